"""The function for several interleaved blocks: `_j` counts those that run together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kernels.simt.emit.block import BlockPrinter
from kernels.simt.emit.rows import RowPrinter
from kernels.simt.plan.parts import (
    BlockPlan,
    EachBlock,
    FirstBlock,
    InterleavingPlan,
    RowVersion,
    TileLoop,
)
from kernels.simt.transforms.fission import Region


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
    """Writes a TileLoop: `_chunk` counts iterations, `_tiles` of which are filled at once."""

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
        loop, line, block = self.loop, self.line, self.block
        line(f"_iterations = len({self.values})")
        # Where few blocks go through them, most tiles are read from the nearest cache.
        few = self.printer.interleaving.together // 2
        line(f"_count = {loop.count} if _joined > {few} else {max(1, loop.count // 2)}")
        with block("for _part in range(_max((_iterations + _count - 1) // _count, 1)):"):
            line("_chunk = _part * _count")
            line("_tiles = _min(_count, _iterations - _chunk)")
            with block("for _w in range(_tiles):"):
                self._begin_iteration()
                self.printer.write(loop.fills)
            at_last = "if _chunk + _count >= _iterations:"
            with self.printer.each_block():
                if loop.prefetch:
                    with block(at_last):
                        self._prefetch()
                self._iterations()
                if loop.after:
                    with block(at_last):
                        self.printer.write(loop.after)

    def _begin_iteration(self) -> None:
        self.line(self.counter)
        for array in self.loop.common:
            self.line(f"{array} = _all_{array}[_u(_w)]")

    def _prefetch(self) -> None:
        """Loops over one thread of each cache line, where rows go along memory."""
        printer, x = self.printer, self.printer.program.block[0]
        with printer.writer.closing():
            printer.open_rows()
            printer.writer.open(f"for _tx in range(0, {x}, {self.loop.prefetch_step}):")
            printer.statements.write(self.loop.prefetch)

    def _iterations(self) -> None:
        """What a block does with tiles that are filled, row by row; one by one at the edges."""
        loop, line, block = self.loop, self.line, self.block
        if not loop.checks:
            self._at_once("_tiles")
            return
        line("_inside = 0  # iterations in which no thread of the block is at an edge")
        with block("for _w in range(_tiles):"):
            line(self.counter)
            with block(f"if not ({' and '.join(loop.checks)}):"):
                line("break")
            line("_inside += 1")
        with block("if _inside > 0:"):
            self._at_once("_inside")
        if loop.initial is not None:
            with block("elif _chunk == 0:"):
                self.printer.write([loop.initial])
        with block("for _w in range(_inside, _tiles):"):
            self._begin_iteration()
            self.printer.write(loop.one_by_one)

    def _at_once(self, count: str) -> None:
        """All iterations up to `count` in each row."""

        def enter_row(version: RowVersion) -> None:
            if self.loop.initial_rows is not None:
                self._initial_row(self.loop.initial_rows, version)
            self.printer.writer.open(f"for _w in range({count}):")
            self._begin_iteration()

        for item in self.loop.at_once:
            if isinstance(item, Region):
                self.printer.write_versions(item, self.printer.plan.regions[item], enter_row)
            else:
                self.printer.write([item])

    def _initial_row(self, version: RowVersion, followed_by: RowVersion) -> None:
        """The whole row, or rows, where the first threads of `followed_by` come to it."""
        writer, together = self.printer.writer, followed_by.rows
        in_parts = followed_by.lanes < self.printer.program.block[0]
        first = "_chunk == 0 and _x0 == 0" if in_parts else "_chunk == 0"
        with self.block(f"if {first}:"), writer.closing():
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
