"""Several rows of threads at once: unroll-and-jam of the loop over y.

Where neighbouring rows read the same memory in a loop (`sb[q, tx]` in a tiled matrix product), one
load serves them all, and each row's accumulator is a chain of its own: a processor that can start
two multiply-adds a cycle but has to wait four cycles for each needs eight or more of them.
"""

from __future__ import annotations

import ast
import math

from numba.core import types

from kernels.simt.analysis.uniformity import exposure, is_load
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import expressions, names, statements
from kernels.simt.transforms.fission import Region, walk
from kernels.simt.transforms.row_vectorise import STRIDE_LIMIT, RowPlan, RowPlanner
from kernels.simt.transforms.short_loops import UNROLL_LIMIT, unrolled_length
from kernels.support import processor

MOST_LANES = STRIDE_LIMIT, 32, 16, 8  # fewer, where two rows would not fit in the registers


class UnrollJamPlanner(RowPlanner):
    """Plans for regions that several rows of threads go through together."""

    def __init__(self, program, kinds, ranges, varying: set[str], outside: set[str]) -> None:
        super().__init__(program, kinds, ranges, varying | {"_ty"}, outside)
        self.spilled = outside
        self.outermost: set[int] = set()
        self.most = STRIDE_LIMIT

    def plan(self, body: list[ast.stmt]) -> RowPlan | None:
        """The plan, or None where there is nothing to share or no register to spare."""
        if self.program.block[1] == 1 or self.program.cooperative:
            return None
        self.outermost = {id(stmt) for stmt in body}
        plan = None
        for self.most in MOST_LANES:
            if self.most < processor.vector_registers().floats:
                return None  # half of each register would be empty
            if plan is not None and plan.lanes <= self.most:
                continue  # as before
            plan = super().plan(body)
            if plan is None or not self._shares(plan):
                return None
            each = self._carried(plan) * plan.lanes
            plan.rows = self._rows(plan, each)
            plan.sums = plan.rows * each // (processor.vector_registers().floats * 4)
            if plan.rows > 1:
                return plan
        return None

    def lanes(self, limit: int) -> int:
        return super().lanes(min(limit, self.most))

    def in_registers(self, body: list[ast.stmt], lanes: int) -> tuple[list[ast.stmt], int]:
        """As it is: `plan` looks for a number of threads itself."""
        return body, lanes

    def stays_inside(self, stmt: ast.stmt) -> bool:
        """The outermost loop goes outside of the rows, however short it is."""
        return id(stmt) not in self.outermost and super().stays_inside(stmt)

    def _shares(self, plan: RowPlan) -> bool:
        """Whether all is straight code but for the loops taken out, and rows read the same."""
        regions = [item for item in walk(plan.items) if isinstance(item, Region)]
        for stmt in (s for region in regions for s in statements(region.body)):
            if isinstance(stmt, ast.For) and not self.stays_inside(stmt):
                return False
            if not isinstance(stmt, ast.For | ast.Assign):
                return False
        nodes = [
            (node, region.in_loop)
            for region in regions
            for stmt in statements(region.body)
            for expr in expressions(stmt)
            for node in ast.walk(expr)
        ]
        if any(isinstance(node, ast.IfExp) for node, _ in nodes):
            return False  # rows that go alone may go without such guards
        by_row = self.facts(plan.body, self.seed - {"_tx"})
        return any(
            isinstance(node, ast.Subscript)
            and is_load(self.program, node)
            and not by_row.is_varying(node)
            for node, in_loop in nodes
            if in_loop
        )

    def _carried(self, plan: RowPlan) -> int:
        """The bytes of what a thread accumulates in loops; 0 where that is not in registers."""
        known = set(plan.facts.defs) - plan.facts.scalars | self.spilled
        carried = 0
        for region in _in_loops(plan):
            exposed, written, _ = exposure(region.body, known)
            used = set().union(*(names(e) for s in statements(region.body) for e in expressions(s)))
            kinds = [self.kinds.get(name) for name in exposed & written]
            if not all(isinstance(kind, types.Number | types.Boolean) for kind in kinds):
                return 0
            arrays = [a for a in self.program.arrays.values() if a.space == "local"]
            carried += sum(map(itemsize, kinds))
            carried += sum(itemsize(a.dtype) * math.prod(a.sizes) for a in arrays if a.name in used)
        return carried

    def _rows(self, plan: RowPlan, each: int) -> int:
        """How many rows have room for their accumulators, `each` bytes, in the registers."""
        if not each:
            return 1
        weight = max(sum(map(unrolled_length, region.body)) for region in _in_loops(plan))
        registers = processor.vector_registers().all_floats * 4  # their bytes
        most = min(registers // 2 // each, UNROLL_LIMIT // weight)
        y = self.program.block[1]
        rows = max((n for n in range(1, y + 1) if n <= most and y % n == 0), default=1)
        three = 3 * each <= registers * 3 // 4 and 3 * weight <= UNROLL_LIMIT
        # Two leave as many chains as the latency asks for. A third makes up for some that wait for
        # the cache, where what it leaves over is a pair again, of many: a pair is compiled, too.
        return 3 if most == 2 and three and y > 8 and y % 3 != 1 else rows


def _in_loops(plan: RowPlan) -> list[Region]:
    """The regions of a plan that are in a loop taken out of the rows."""
    return [item for item in walk(plan.items) if isinstance(item, Region) and item.in_loop]
