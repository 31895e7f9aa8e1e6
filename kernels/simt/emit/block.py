"""From the plan of a block to the function that runs blocks `_first` to `_last` of a grid.

A region becomes a loop over the threads of the block (x innermost); what a thread carries from one
region to the next is in spill arrays `_s_<name>`, an element per thread.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from numba.core import types

from kernels.simt.analysis.loops import waits
from kernels.simt.emit import collectives
from kernels.simt.emit.printer import Printer
from kernels.simt.emit.rows import WriteRow, write_rows
from kernels.simt.ir.checks import UNEXPECTED_SIGN, UNPROVEN
from kernels.simt.ir.nodes import GRID, Loop, statements
from kernels.simt.plan.parts import (
    DynamicShared,
    GridArray,
    Inputs,
    RegionPlan,
    RowVersion,
    StackArray,
)
from kernels.simt.transforms.fission import (
    BlockFor,
    BlockIf,
    BlockWhile,
    CollectivePoint,
    Item,
    MaskIf,
    MaskWhile,
    Region,
    Scalars,
)

BEGIN, END = ("_first", "_last"), ("_shared_bytes", "_error")  # of all parameters; GRID between


class BlockPrinter(Printer):
    """Writes the function for one kernel."""

    def function(self, name: str) -> str:
        """The source of the function `name`."""
        # what is viewed as another type needs another name: a variable has one type
        views = self.plan.half_views
        stored = {parameter: f"_bits_{parameter}" for parameter in views}
        given = [stored.get(parameter, parameter) for parameter in self.program.params]
        grid, turned = list(GRID), self.program.turned
        grid[0], grid[turned] = grid[turned], grid[0]
        params = [*BEGIN, *grid, *END, *given, *self.program.constants]
        writer = self.writer
        with writer.block(f"def {name}({', '.join(params)}):"):
            for parameter in self.plan.nonnegative:
                with writer.block(f"if {parameter} < 0:"):
                    writer.line(f"return {UNEXPECTED_SIGN}")
            for parameter, view in views.items():
                as_type = self.program.extern(view, view.__name__)
                writer.line(f"{parameter} = {as_type}({stored[parameter]})")
            for condition in self.plan.conditions:
                with writer.block(f"if not {condition}:"):
                    writer.line(f"return {UNPROVEN}  # the launch is repeated with checks")
            self.polls.begin()
            if self.program.checked:  # what runs once for the block is told of its first thread
                writer.line("_block = _t = 0")
            for array in self.plan.declarations:
                getattr(self, "declare_" + type(array).__name__)(array)
            if self.program.cooperative:
                self.write(self.plan.items)
            else:
                self.write_blocks()
            writer.line("return 0")
        return writer.text()

    def write_blocks(self) -> None:
        """The blocks, one after the other."""
        if self.program.joined > 1:
            self._write_joined(self.program.joined)
            return
        counter = "_block" if self.plan.panel is None else "_position"
        with self.polls.blocks(counter):
            if self.plan.panel is None:
                self.block_coordinates()
            else:
                self.panel_coordinates(self.plan.panel)
            begun = len(self.writer.lines)
            for array in self.plan.marked:
                self.writer.line(f"_written_{array}[...] = False")
            self.write(self.plan.items)
            written = self.writer.lines[begun:]  # coordinates that nothing reads are not written
            if all(line.lstrip().startswith("#") for line in written):
                self.writer.line("pass")

    def _write_joined(self, most: int) -> None:
        """Neighbours in x at once, up to `most`."""
        line = self.writer.line
        line("_block = _first")
        with self.writer.block("while _block < _last:"):
            self.polls.between_blocks()
            self.block_coordinates()
            line(f"_joined = _min(_min({most}, _gx - _bx), _last - _block)")
            line(f"_span = {self.program.block[0] // most} * _joined")
            self.write(self.plan.items)
            line("_block += _joined")

    def panel_coordinates(self, panel: int) -> None:
        for line in (
            "_bz = _position // (_gx * _gy)",
            "_position = _position % (_gx * _gy)",
            f"_across = _position // ({panel} * _gy) * {panel}",
            f"_wide = _min({panel}, _gx - _across)",
            "_position = _position - _across * _gy",
            "_by = _position // _wide",
            "_bx = _position % _wide + _across",
            "_block = _bx + _gx * (_by + _gy * _bz)",
        ):
            self.writer.line(line)

    # -- declarations ----------------------------------------------------------------------

    def declare_StackArray(self, array: StackArray) -> None:
        dtype = self.dtype_name(array.dtype)
        self.writer.line(f"{array.name} = _stack_array({array.shape!r}, {dtype})")

    def declare_GridArray(self, array: GridArray) -> None:
        parts = [str(n) for n in array.shape]
        parts = ["_last", *parts] if array.threads is None else [*parts, f"_last * {array.threads}"]
        dtype = self.dtype_name(array.dtype)
        self.writer.line(f"{array.name} = _empty(({', '.join(parts)},), {dtype})")

    def declare_DynamicShared(self, array: DynamicShared) -> None:
        """Every dynamic shared array of a block begins at the same address, as on CUDA."""
        if array.first:
            size = "(_last, _shared_bytes)" if self.program.cooperative else "_shared_bytes"
            self.writer.line(f"_shared = _empty({size}, {self.dtype_name(types.uint8)})")
        if not self.program.cooperative:
            dtype = self.dtype_name(array.dtype)
            self.writer.line(f"{array.name} = _view_bytes(_shared, {dtype})")

    # -- items -----------------------------------------------------------------------------

    def write(self, items: Sequence[Item]) -> None:
        for item in items:
            getattr(self, "write_" + type(item).__name__)(item)

    def write_Scalars(self, item: Scalars) -> None:
        if not self.program.checked and any(self._reports(s) for s in statements(item.body)):
            self.writer.line("_block = _t = 0" if self.program.cooperative else "_t = 0")
        self.statements.write(item.body)

    def _reports(self, stmt: ast.stmt) -> bool:
        """Whether a statement may end the launch, and says in which thread."""
        if isinstance(stmt, Loop):
            return waits(stmt, self.program)
        return isinstance(stmt, ast.Raise)

    def write_BlockIf(self, item: BlockIf) -> None:
        with self.writer.block(f"if {self.expressions.text(item.test)}:"):
            self.write(item.body)
        if item.orelse:
            with self.writer.block("else:"):
                self.write(item.orelse)

    def write_BlockFor(self, item: BlockFor) -> None:
        with self.writer.loop(item.target, self.expressions.text(item.iter), item.hint):
            if self.polls.counts(item):
                self.polls.poll(self.program.threads)
            self.write(item.body)

    def write_BlockWhile(self, item: BlockWhile) -> None:
        test = self.expressions.text(item.test)
        with self.writer.block("while True:" if item.pre else f"while {test}:"):
            self.polls.block_while(item, self.program.threads)
            if item.pre:
                self.write(item.pre)
                with self.writer.block(f"if not ({test}):"):
                    self.writer.line("break")
            self.write(item.body)

    def write_MaskIf(self, item: MaskIf) -> None:
        if item.taken in self.plan.spans:
            self.write(item.body)
            return
        line = self.writer.line
        for mask in filter(None, (item.taken, item.other)):
            line(f"_any_{mask} = False")
            line(f"_all_{mask} = True")
        with self.thread_loop(None, self.plan.inputs[item]):
            test = f"bool({self.expressions.text(item.test)})"
            present = f"_s_{item.mask}[_u(_t)] and " if item.mask else ""
            line(f"_s_{item.taken}[_u(_t)] = {present}{test}")
            self._note(item.taken)
            if item.other:
                line(f"_s_{item.other}[_u(_t)] = {present}not _s_{item.taken}[_u(_t)]")
                self._note(item.other)
        with self.writer.block(f"if _any_{item.taken}:"):
            self.write(item.body)
        if item.other:
            with self.writer.block(f"if _any_{item.other}:"):
                self.write(item.orelse)

    def _note(self, mask: str) -> None:
        """Whether any, and whether all threads are in `mask`."""
        with self.writer.block(f"if _s_{mask}[_u(_t)]:"):
            self.writer.line(f"_any_{mask} = True")
        with self.writer.block("else:"):
            self.writer.line(f"_all_{mask} = False")

    def write_MaskWhile(self, item: MaskWhile) -> None:
        line, mask = self.writer.line, f"_s_{item.taken}[_u(_t)]"
        with self.thread_loop(None, Inputs()):
            line(f"{mask} = {f'_s_{item.mask}[_u(_t)]' if item.mask else 'True'}")
        with self.writer.block("while True:"):
            self.polls.poll(self.program.threads)
            line(f"_all_{item.taken} = False")
            self.write(item.pre)
            line(f"_any_{item.taken} = False")
            with self.thread_loop(item.taken, self.plan.inputs[item]):
                with self.writer.block(f"if {self.expressions.text(item.test)}:"):
                    line(f"_any_{item.taken} = True")
                with self.writer.block("else:"):
                    line(f"{mask} = False")
            with self.writer.block(f"if not _any_{item.taken}:"):
                line("break")
            self.write(item.body)

    def write_CollectivePoint(self, item: CollectivePoint) -> None:
        collectives.write(self, item)

    # -- regions ---------------------------------------------------------------------------

    def write_Region(self, item: Region) -> None:
        if item not in self.plan.regions:  # nothing is left of it
            return
        self.write_versions(item, self.plan.regions[item])

    def write_versions(
        self, item: Region, plan: RegionPlan, write_row: WriteRow | None = None
    ) -> None:
        """A region in those of its versions that the plan asks for; see `write_rows`."""
        self.writer.line(f"# threads, from line {item.line}")
        whole, masked = plan.every_thread, plan.masked
        if whole is not None and masked is not None:
            with self.writer.block(f"if _all_{item.mask}:"):
                self._every_thread(plan, whole, write_row)
            with self.writer.block("else:"):
                write_rows(self, masked)
        elif whole is not None:
            self._every_thread(plan, whole, write_row)
        elif masked is not None:
            write_rows(self, masked)

    def _every_thread(
        self, plan: RegionPlan, whole: RowVersion, write_row: WriteRow | None
    ) -> None:
        if plan.guard_free is None:
            write_rows(self, whole, write_row)
            return
        checks = " and ".join(plan.checks)
        with self.writer.block(f"if {checks}:  # no thread of the block is at an edge"):
            write_rows(self, plan.guard_free)
        with self.writer.block("else:"):
            write_rows(self, whole)
