"""The function for several interleaved blocks: `_j` counts those that run together."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

from kernels.simt.emit.block import BlockPrinter
from kernels.simt.emit.rows import ROW, RowPrinter
from kernels.simt.ir import memory
from kernels.simt.plan.parts import (
    BlockPlan,
    EachBlock,
    FirstBlock,
    InterleavingPlan,
    RowVersion,
    TileLoop,
)
from kernels.simt.transforms.block_interleave import index_parts
from kernels.simt.transforms.fission import Item, Region


class InterleavedPrinter(BlockPrinter):
    """Writes the function for a kernel whose neighbouring blocks are interleaved."""

    def __init__(self, plan: BlockPlan, interleaving: InterleavingPlan) -> None:
        super().__init__(plan)
        self.interleaving = interleaving

    def write_blocks(self) -> None:
        line = self.writer.line
        line("_position = _first")
        with self.writer.block("while _position < _last:"):
            self.polls.between_blocks()
            for text in coordinates(self.interleaving):
                line(text)
            self.write(self.plan.items)
            line("_position += _joined")

    def write_FirstBlock(self, item: FirstBlock) -> None:
        self.writer.line("# the first block, for all that are interleaved")
        self.writer.line("_j = 0")
        self.writer.line(f"{self.interleaving.axis} = _begin")
        self.write_Region(item.region)

    def write_EachBlock(self, item: EachBlock) -> None:
        with self.each_block():
            self.write(item.items)

    @contextlib.contextmanager
    def each_block(self) -> Iterator[None]:
        with self.writer.block("for _j in range(_joined):"):
            self.writer.line(f"{self.interleaving.axis} = _begin + _j")
            for name in self.interleaving.apart:
                self.writer.line(f"{name} = _all_{name}[_u(_j)]")
            yield

    def write_TileLoop(self, item: TileLoop) -> None:
        TileLoopPrinter(self, item).write()


class TileLoopPrinter:
    """Writes a TileLoop: `_chunk` counts iterations, `_tiles` of which are filled at once.

    `_in_rows`: each row does in this chunk, the last one, what comes right after the loop.
    """

    def __init__(self, printer: InterleavedPrinter, loop: TileLoop) -> None:
        self.printer, self.loop = printer, loop
        self.line, self.block = printer.writer.line, printer.writer.block
        start, stop, step = (
            default if bound is None else printer.expressions.text(bound)
            for bound, default in ((loop.start, "0"), (loop.stop, ""), (loop.step, "1"))
        )
        self.values = f"range({start}, {stop}, {step})"
        begin = "" if start == "0" else f"({start}) + "
        self.counter = f"{loop.target} = {begin}(_chunk + _w) * ({step})"

    def write(self) -> None:
        loop, line, block, count = self.loop, self.line, self.block, self.loop.count
        line(f"_iterations = len({self.values})")
        with block(f"for _part in range(_max((_iterations + {count - 1}) // {count}, 1)):"):
            line(f"_chunk = _part * {count}")
            line(f"_tiles = _min({count}, _iterations - _chunk)")
            line(f"_is_last = _chunk + {count} >= _iterations")
            with block("for _w in range(_tiles):"):
                self._begin_iteration()
                self.printer.write(loop.fills)
            with self.printer.each_block():
                self._iterations()
                if loop.after:
                    with block("if _is_last and not _in_rows:"):
                        self.printer.write(loop.after)

    def _begin_iteration(self) -> None:
        self.line(self.counter)
        for array in self.loop.common:
            self.line(f"{array} = _all_{array}[_u(_w)]")

    def _iterations(self) -> None:
        """What a block does with tiles that are filled, row by row; one by one at the edges."""
        loop, line, block = self.loop, self.line, self.block
        if loop.full is not None:
            self._count("_full", self.printer.expressions.text(loop.full.test))
        in_rows = " and ".join(["_is_last", *loop.final_checks]) if loop.final_rows else "False"
        if not loop.checks:
            line(f"_in_rows = {in_rows}")
            self._at_once("_tiles")
            return
        self._count("_inside", " and ".join(loop.checks))  # where no thread is at an edge
        line(f"_in_rows = {in_rows} and 0 < _inside == _tiles")
        with block("if _inside > 0:"):
            self._at_once("_inside")
        if loop.initial is not None:
            with block("elif _chunk == 0:"):
                self.printer.write([loop.initial])
        with block("for _w in range(_inside, _tiles):"):
            self._begin_iteration()
            self.printer.write(loop.one_by_one)

    def _count(self, counter: str, test: str) -> None:
        """Counts the first iterations of a chunk for which `test` holds."""
        self.line(f"{counter} = 0")
        with self.block("for _w in range(_tiles):"):
            self.line(self.counter)
            with self.block(f"if not ({test}):"):
                self.line("break")
            self.line(f"{counter} += 1")

    def _at_once(self, count: str) -> None:
        """All iterations up to `count` in each row."""

        def write_row(version: RowVersion) -> None:
            x = self.printer.program.block[0]
            in_parts = version.lanes < x
            if self.loop.initial_rows is not None:
                first = "_chunk == 0" + " and _x0 == 0" * in_parts
                self._whole_rows(first, self.loop.initial_rows, version.rows)
            self._tiles_of_row(version, count)
            if self.loop.final_rows is not None:
                last = "_in_rows" + f" and _x0 == {x - version.lanes}" * in_parts
                self._whole_rows(last, self.loop.final_rows, version.rows)

        for item in self.loop.at_once:
            if isinstance(item, Region):
                self.printer.write_versions(item, self.printer.plan.regions[item], write_row)
            else:
                self.printer.write([item])

    def _tiles_of_row(self, version: RowVersion, count: str) -> None:
        full = self.loop.full
        if full is None:
            self._tiles_from_to("0", count, version, version.items, self.loop.ahead)
        else:
            end = f"_min(_full, {count})"
            self._tiles_from_to("0", end, version, [full.whole], self.loop.ahead)
            self._tiles_from_to(end, count, version, [full.part], [])

    def _tiles_from_to(
        self,
        begin: str,
        end: str,
        version: RowVersion,
        items: list[Item],
        ahead: list[ast.Subscript],
    ) -> None:
        with self.block(f"for _w in range({begin}, {end}):"):
            self._begin_iteration()
            if ahead and version.rows > 1:
                self._ask_for(ahead, version.rows)
            RowPrinter(self.printer, version).write(items)

    def _ask_for(self, ahead: list[ast.Subscript], together: int) -> None:
        """Ask for what the rows read that come next: after the last ones, those of the block
        below."""
        text = self.printer.expressions.text
        prefetch = self.printer.program.extern(memory.prefetch, "prefetch")
        with self.block(f"for {ROW} in range({together}):"):
            self.line(f"_ty = _y0 + {together} + {ROW}")
            for element in ahead:
                index = ", ".join(map(text, index_parts(element)))
                self.line(f"{prefetch}({text(element.value)}, ({index},))")

    def _whole_rows(self, when: str, version: RowVersion, together: int) -> None:
        """All of the rows that go `together`, where `when` holds."""
        writer = self.printer.writer
        with self.block(f"if {when}:"), writer.closing():
            if together > 1:
                writer.open(f"for _ty in range(_y0, _y0 + {together}):")
            RowPrinter(self.printer, version).write(version.items)


def coordinates(plan: InterleavingPlan) -> list[str]:
    """Where the blocks are that go next; those that are interleaved follow each other in the order.

    A panel of the grid is `plan.panel` blocks wide; along y, a band of it is as tall as there are
    interleaved blocks.
    """
    most, panel = plan.together, plan.panel
    lines = [
        "_bz = _position // (_gx * _gy)",
        "_in_panel = _position % (_gx * _gy)",
        f"_across = _in_panel // ({panel} * _gy) * {panel}",
        f"_wide = _min({panel}, _gx - _across)",
        "_in_panel -= _across * _gy",
    ]
    if plan.axis == "_by":
        return [
            *lines,
            f"_down = _in_panel // ({most} * _wide) * {most}",
            f"_tall = _min({most}, _gy - _down)",
            "_in_panel -= _down * _wide",
            "_bx = _in_panel // _tall + _across",
            "_by = _in_panel % _tall",
            "_joined = _min(_tall - _by, _last - _position)",
            "_begin = _down + _by",
        ]
    return [
        *lines,
        "_by = _in_panel // _wide",
        "_bx = _in_panel % _wide",
        f"_joined = _min(_min({most}, _wide - _bx), _last - _position)",
        "_begin = _across + _bx",
    ]
