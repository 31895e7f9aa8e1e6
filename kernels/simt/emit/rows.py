"""Code for one row of threads: the loops over x, and what is common to the row around them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from kernels.simt.emit.printer import Printer, extreme
from kernels.simt.ir.hints import Hint, encode
from kernels.simt.plan.parts import (
    ClippedLoop,
    ClippedRow,
    GuardedLoop,
    RowVersion,
    SquareLoop,
    ThreadLoop,
)
from kernels.simt.transforms.fission import BlockFor, BlockIf, BlockWhile, Item, Scalars
from kernels.simt.transforms.row_vectorise import GuardIf

WriteRow = Callable[[RowVersion], None]
ROW = encode("row", Hint.UNROLL)  # which of the rows that go together


def write_rows(printer: Printer, version: RowVersion, write_row: WriteRow | None = None) -> None:
    """Loops over the rows of a block, each run as `version` says; none where nothing is left.

    `write_row(version)` writes each row, or rows that go together; None: just the version's items.
    """
    if not version.items:
        return
    y = printer.program.block[1]
    _write_groups(printer, version, write_row, 0)
    if left := y % version.rows:
        _write_groups(printer, replace(version, rows=left), write_row, y - left)


def _write_groups(
    printer: Printer,
    version: RowVersion,
    write_row: WriteRow | None,
    start: int,
) -> None:
    """Groups of `version.rows` rows, from row `start` on, as far as there are whole ones."""
    with printer.writer.closing():
        square = isinstance(version.items[0], SquareLoop)
        printer.open_rows(version.rows, "_ty" if square else "_y0", start, version.below)
        x = printer.program.block[0]
        if version.lanes < x and not square:
            printer.writer.open_loop("_x0", f"range(0, {x}, {version.lanes})")
        if write_row is not None:
            write_row(version)
        else:
            RowPrinter(printer, version).write(version.items)


class RowPrinter:
    """Writes the items of a RowVersion."""

    def __init__(self, printer: Printer, version: RowVersion) -> None:
        self.printer, self.version = printer, version
        self.writer, self.text = printer.writer, printer.expressions.text

    def write(self, items: list[Item]) -> None:
        for item in items:
            getattr(self, "write_" + type(item).__name__)(item)

    def write_Scalars(self, item: Scalars) -> None:
        self.printer.statements.write(item.body)

    def write_BlockFor(self, item: BlockFor) -> None:
        given = item, item.target, item.hint, self.text, self.version.lanes
        with self.printer.polls.loop(*given):
            self.write(item.body)

    def write_BlockWhile(self, item: BlockWhile) -> None:
        with self.writer.block(f"while {self.text(item.test)}:"):
            self.printer.polls.block_while(item, self.version.lanes)
            self.write(item.body)

    def write_BlockIf(self, item: BlockIf) -> None:
        with self.writer.block(f"if {self.text(item.test)}:"):
            self.write(item.body)
        if item.orelse:
            with self.writer.block("else:"):
                self.write(item.orelse)

    def write_GuardIf(self, item: GuardIf) -> None:
        with self.writer.block(f"if {self.text(item.everywhere)}:  # the whole row"):
            self.write(item.body)
        with self.writer.block("else:"):
            self.write([item.otherwise] if item.otherwise is not None else [])

    # -- loops over the threads of the row -------------------------------------------------

    def write_GuardedLoop(self, item: GuardedLoop) -> None:
        with self.writer.block(f"if {' and '.join(item.checks)}:  # no thread is at an edge"):
            self.write_ThreadLoop(item.guard_free)
        with self.writer.block("else:"):
            self.write_ThreadLoop(item.otherwise)

    def write_ClippedRow(self, item: ClippedRow) -> None:
        with self.writer.closing():
            self._clip(item)
            self.writer.open("if _lo < _hi:")
            self.write(item.items)

    def _clip(self, item: ClippedLoop | ClippedRow) -> None:
        """Open the conditions of a clip, and set its bounds."""
        clip = item.clip
        if clip.conditions:
            self.writer.open(f"if {' and '.join(map(ast.unparse, clip.conditions))}:")
        if clip.bounded:
            self.writer.line(f"_lo = {extreme('_max', item.first, clip.low)}")
            self.writer.line(f"_hi = {extreme('_min', item.last, clip.high)}")
        if clip.step is not None:
            phase, step = ast.unparse(clip.phase), ast.unparse(clip.step)
            self.writer.line(f"_lo = _lo + ({phase} - _lo) % ({step})")

    def write_ClippedLoop(self, item: ClippedLoop) -> None:
        writer, clip = self.writer, item.clip
        with writer.closing():
            if item.otherwise is not None:
                with writer.block(f"if not ({' and '.join(clip.checks())}):"):
                    self.write_ThreadLoop(item.otherwise)
                writer.open("else:")
            self._clip(item)
            if item.common and clip.bounded:
                writer.open("if _lo < _hi:")
            self.printer.statements.write(item.common)
            if item.whole is not None:
                with writer.block(f"if _lo == {item.first} and _hi == {item.last}:"):
                    self.write_ThreadLoop(item.whole)
                writer.open("else:")
            self.write_ThreadLoop(item.part)

    def write_SquareLoop(self, item: SquareLoop) -> None:
        writer, x = self.writer, self.printer.program.block[0]
        with writer.block(f"for _tx in range(0, {x}, {self.version.rows}):"):
            self.printer.statements.write(item.body)

    def write_ThreadLoop(self, item: ThreadLoop) -> None:
        """One loop over the threads of the row, or those in a part of it."""
        writer, version = self.writer, self.version
        in_part = (item.first, item.last) == ("_x0", f"_x0 + {version.lanes}")
        values = f"range({item.last})" if item.first == "0" else f"range({item.first}, {item.last})"
        if item.step:
            values = f"range({item.first}, {item.last}, {item.step})"
        with writer.closing():
            hint = Hint.ORDERED_THREADS if version.ordered else Hint.THREADS
            writer.open_loop("_tx", f"range({version.lanes})" if in_part else values, hint)
            if in_part:
                writer.line("_tx = _x0 + _tx")
            if version.rows > 1:
                writer.open(f"for {ROW} in range({version.rows}):")
                writer.line(f"_ty = _y0 + {ROW}")
            writer.line(f"_t = {self.printer.plan.thread_number}")
            self.printer.open_mask(item.mask)
            for name in item.inputs.loaded:
                writer.line(f"{name} = {self.loaded(name)}")
            self.write_views(item.views)
            self.printer.statements.write(item.inputs.rematerialised)
            for name in item.zeroed:
                writer.line(f"{name} = {self.printer.zero(name)}")
            self.printer.statements.write(item.body)
            for name in item.stored:
                self.store(name)

    def write_views(self, arrays: list[str]) -> None:
        """Views of a thread's own elements of private arrays."""
        for name in arrays:
            whole: list[ast.expr] = [ast.Slice() for _ in self.printer.program.arrays[name].sizes]
            index = ast.Tuple(self.printer.plan.private[name].around(whole), ast.Load())
            self.writer.line(f"_view_{name} = {name}[{ast.unparse(index)[1:-1]}]")

    def loaded(self, name: str) -> str:
        """A thread's element of the spill array of `name`, of the block or of the row."""
        block = name in self.printer.plan.spilled
        return self.printer.spilled(name) if block else self._of_row(name)

    def store(self, name: str) -> None:
        """Store a variable in that element."""
        if name in self.printer.plan.spilled:
            self.printer.spill(name)
        else:
            self.writer.line(f"{self._of_row(name)} = {name}")

    def _of_row(self, name: str) -> str:
        if self.version.rows > 1:
            return f"_r_{name}[_u(_tx + {ROW} * {self.printer.program.block[0]})]"
        return f"_r_{name}[_u(_tx)]"
