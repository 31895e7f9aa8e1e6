"""What all printers share: the lines so far, names of types, and loops over the threads."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numba.core import types

from kernels.simt.emit.expressions import Expressions, Statements
from kernels.simt.emit.polls import Polls
from kernels.simt.emit.writer import Writer
from kernels.simt.ir.hints import Hint
from kernels.simt.plan.layout import is_tuple
from kernels.simt.plan.parts import BlockPlan, DynamicShared, Inputs


class Printer:
    """Prints a plan, which it leaves as it is: what it imports is in `program.externs`, a copy."""

    def __init__(self, plan: BlockPlan) -> None:
        self.plan = plan
        self.program = replace(plan.program, externs=dict(plan.program.externs))
        self.writer = Writer()
        self.expressions = Expressions(plan)
        self.polls = Polls(self.writer, plan.program, plan.kinds)
        self.statements = Statements(self.writer, self.expressions, self.polls)
        dynamic = any(isinstance(array, DynamicShared) for array in plan.declarations)
        if dynamic or plan.program.cooperative:
            self.program.externs["_empty"] = np.empty

    def dtype_name(self, dtype: types.Type) -> str:
        return self.program.extern(dtype, str(dtype))

    def zero(self, name: str) -> str:
        return self._zero(self.plan.kinds.get(name, types.intp))

    def _zero(self, kind: Any) -> str:
        if is_tuple(kind):
            return self._tuple(kind, map(self._zero, kind))
        is_number = isinstance(kind, types.Number | types.Boolean)
        return f"{self.dtype_name(kind)}(0)" if is_number else "0"

    def _tuple(self, kind: Any, parts: Iterable[str]) -> str:
        name = ""
        if isinstance(kind, types.BaseNamedTuple):
            made = getattr(kind, "instance_class")  # noqa: B009 - Numba's types do not tell
            name = self.program.extern(made, made.__name__)
        return f"{name}({', '.join(parts)},)"

    def spilled(self, name: str) -> str:
        """What is loaded for a thread of the spill array of `name`: of a tuple, of several."""
        return self._spilled(name, self.plan.kinds.get(name, types.boolean))

    def _spilled(self, name: str, kind: Any) -> str:
        if not is_tuple(kind):
            return f"_s_{name}[_u(_t)]"
        parts = enumerate(kind)
        return self._tuple(kind, (self._spilled(f"{i}_{name}", part) for i, part in parts))

    def spill(self, name: str) -> None:
        """Store a thread's value of `name` in its spill arrays."""
        self._spill(name, name, self.plan.kinds.get(name, types.boolean))

    def _spill(self, name: str, value: str, kind: Any) -> None:
        if not is_tuple(kind):
            self.writer.line(f"_s_{name}[_u(_t)] = {value}")
            return
        for i, part in enumerate(kind):
            self._spill(f"{i}_{name}", f"{value}[{i}]", part)

    # -- loops over threads ----------------------------------------------------------------

    def open_rows(
        self,
        together: int = 1,
        first: str = "_y0",
        start: int = 0,
        below: Sequence[ast.expr] = (),
    ) -> None:
        """Enter the loops over the blocks (under grid barriers) and over y and z.

        Of rows that go `together`, from row `start` on, the variable `first` is the first. Rows
        from one of the bounds `below` on are left out."""
        _, y, z = self.program.block
        if self.program.cooperative:
            self.open_grid()
        row, last = "_ty" if together == 1 else first, y - (y - start) % together
        for name, begin, end, step in (("_tz", 0, z, 1), (row, start, last, together)):
            if name == row and below:
                bound = extreme("_min", str(end), below)
                self.writer.open_loop(name, f"range({begin}, {bound}, {step})")
            elif end - begin == step:
                self.writer.line(f"{name} = {begin}")
            elif begin == 0 and step == 1:
                self.writer.open_loop(name, f"range({end})")
            else:
                self.writer.open_loop(name, f"range({begin}, {end}, {step})")

    def open_grid(self) -> None:
        """Under grid barriers: loop over the blocks, each with its part of the shared memory."""
        self.writer.open("for _block in range(_first, _last):")
        self.block_coordinates()
        for array in self.program.arrays.values():
            if array.shape is None:
                view = f"_view_bytes(_shared[_u(_block)], {self.dtype_name(array.dtype)})"
                self.writer.line(f"{array.name} = {view}")
            elif array.name not in self.plan.private:
                self.writer.line(f"{array.name} = _all_{array.name}[_u(_block)]")

    def block_coordinates(self) -> None:
        for line in (
            "_bx = _block % _gx",
            "_by = _block // _gx % _gy",
            "_bz = _block // (_gx * _gy)",
        ):
            self.writer.line(line)

    def open_mask(self, mask: str | None) -> None:
        if mask:
            self.writer.open(f"if _s_{mask}[_u(_t)]:")

    @contextmanager
    def thread_loop(self, mask: str | None, inputs: Inputs) -> Iterator[None]:
        """A loop over the threads of `mask` with their `inputs` at hand."""
        with self.writer.closing():
            self.open_rows()
            first, last = self.plan.spans.get(mask, (0, self.program.block[0]))
            values = f"range({last})" if first == 0 else f"range({first}, {last})"
            self.writer.open_loop("_tx", values, Hint.THREADS)
            self.writer.line(f"_t = {self.plan.thread_number}")
            self.open_mask(None if mask in self.plan.spans else mask)
            for name in inputs.loaded:
                self.writer.line(f"{name} = {self.spilled(name)}")
            self.statements.write(inputs.rematerialised)
            yield


def extreme(function: str, first: str, others: Sequence[ast.expr]) -> str:
    """The largest or smallest of several numbers, two at a time."""
    for other in others:
        first = f"{function}({first}, {ast.unparse(other)})"
    return first
