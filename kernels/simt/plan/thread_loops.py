"""The loops over the threads of a row: their bounds, guards, inputs and outputs."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial

from kernels.simt.analysis.affine import Clip
from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import exposure, has_effects, has_loads
from kernels.simt.ir.hints import Hint
from kernels.simt.ir.nodes import PartIf, defined, expressions, names, statements
from kernels.simt.plan.layout import Layout
from kernels.simt.plan.parts import (
    ClippedLoop,
    ClippedRow,
    GuardedLoop,
    Inputs,
    RowVersion,
    ThreadLoop,
)
from kernels.simt.plan.regions import RegionPlanner, StoredRows, without_unread
from kernels.simt.transforms.fission import (
    BlockFor,
    BlockIf,
    BlockWhile,
    Item,
    Region,
    Scalars,
    walk,
)
from kernels.simt.transforms.guards import strip_guards
from kernels.simt.transforms.row_vectorise import GuardIf

MANY_SUMS = 16  # vectors, half of the registers of AVX-512


def row_version(
    regions: RegionPlanner,
    layout: Layout,
    rows: StoredRows,
    mask: str | None,
    may_strip: bool = True,
    at_edge: bool = False,
    span: tuple[str, str] | None = None,
) -> RowVersion:
    """The version of a region in which rows run as `rows` says, for the threads of `mask`.

    `may_strip`: rows may have a guard-free version. `at_edge`: some guard fails in some thread of
    the block. `span`: threads from the one number to below the other only, of whole rows.
    """
    planner = _ThreadLoops(regions, layout, rows, mask, may_strip, at_edge, span)
    plan = rows.plan
    items = planner.items(plan.items)
    return RowVersion(items, plan.lanes, plan.rows, mask, layout.needs_order(plan.body))


class _ThreadLoops:
    def __init__(
        self,
        regions: RegionPlanner,
        layout: Layout,
        rows: StoredRows,
        mask: str | None,
        may_strip: bool,
        at_edge: bool,
        span: tuple[str, str] | None,
    ) -> None:
        self.program, self.planner, self.layout = regions.program, regions.rows, layout
        (self.plan, self.storage), self.of_block = rows, regions.storage
        self.mask, self.may_strip, self.at_edge, self.span = mask, may_strip, at_edge, span
        self.spilled = self.storage.spilled | self.of_block.spilled
        variables = set(self.plan.facts.defs) - self.plan.facts.scalars
        self.known = variables | self.of_block.spilled

    def items(self, items: list[Item]) -> list[Item]:
        """The items of a row with its regions as loops over threads."""
        return [new for item in items if (new := self.item(item)) is not None]

    def item(self, item: Item) -> Item | None:
        match item:
            case Scalars():
                return item
            case BlockFor():
                hint = Hint.UNROLL_4 if self._is_short(item) else None
                return replace(item, body=self.items(item.body), hint=hint)
            case BlockWhile():
                return replace(item, body=self.items(item.body))
            case BlockIf():
                return replace(item, body=self.items(item.body), orelse=self.items(item.orelse))
            case GuardIf():
                body = self.items(item.body)
                otherwise = self._clipped_row(item) or self.region(item.otherwise, at_edge=True)
                return replace(item, body=body, otherwise=otherwise)
            case Region():
                return self.region(item)
        raise AssertionError(f"no {type(item).__name__} in a row")

    def _is_short(self, loop: BlockFor) -> bool:
        """Whether this is the loop around rows that run together: short, so that counting costs.

        With many sums it costs little. If addresses are loaded too, LLVM begins with the loads of
        all copies, which the other registers cannot hold.
        """
        regions = [item for item in loop.body if isinstance(item, Region)]
        if self.plan.rows == 1 or len(regions) < len(loop.body):
            return False
        stmts = [stmt for region in regions for stmt in statements(region.body)]
        return self.plan.sums < MANY_SUMS or not any(map(self._reads_through_tables, stmts))

    def _reads_through_tables(self, stmt: ast.stmt) -> bool:
        nodes = (n for expr in expressions(stmt) for n in ast.walk(expr))
        indices = [n.slice for n in nodes if isinstance(n, ast.Subscript)]
        return any(has_loads(self.program, index) for index in indices)

    def region(self, region: Region, at_edge: bool = False) -> Item | None:
        """What runs a region; None where nothing of it is left.

        `at_edge`: its guard fails in some thread of the row.
        """
        rematerialised = {**self.storage.rematerialised, **self.of_block.rematerialised}
        body = without_unread(region.body, set(rematerialised) - self.spilled)
        if not body:
            return None
        if self.mask is None and not self.program.checked and self.plan.rows == 1:
            clipped = self._clipped(region, body, at_edge)
            if clipped is not None:
                return clipped
            strip = self.may_strip and not at_edge
            stripped, checks = self._stripped(body) if strip else (body, [])
            if checks:
                guard_free, guarded = self.loop(region, stripped), self.loop(region, body)
                return GuardedLoop(region.line, None, checks, guard_free, guarded)
        return self.loop(region, body)

    def _clipped(self, region: Region, body: list[ast.stmt], at_edge: bool) -> ClippedLoop | None:
        """`if low <= x < high: ...` as a loop from low to high, if the region is just that."""
        *before, last = body
        if not isinstance(last, ast.If) or last.orelse:
            return None
        if any(not isinstance(s, ast.Assign) or defined(s) in self.spilled for s in before):
            return None
        if any(defined(s) is None or has_effects(self.program, s) for s in before):
            return None
        affine = self.planner.affine(self.plan.facts, self.plan.lanes, at=last)
        clip = affine.clip(last.test, "_tx", factors=True)
        if clip is None:
            return None
        common, own = self._common(last.body)
        inside = [*before, *own]
        first, end = self._span()
        part, whole = self.loop(region, inside), None
        bounds = _constant_bounds(clip, first, end)
        if bounds is not None:
            part = replace(part, first=bounds[0], last=bounds[1])
            clip = replace(clip, low=[], high=[])
        if clip.bounded:
            if not (at_edge or isinstance(last, PartIf)) and self._may_be_whole(clip, inside):
                whole = part
            step = "" if clip.step is None else ast.unparse(clip.step)
            part = replace(part, first="_lo", last="_hi", step=step)
        otherwise = self.loop(region, body) if clip.factors else None
        return ClippedLoop(region.line, None, clip, common, first, end, part, whole, otherwise)

    def _clipped_row(self, item: GuardIf) -> ClippedRow | None:
        """The loops of a guarded row for those of its threads that pass, where they are neighbours
        and there is no other guard inside; else each thread goes through them by itself."""
        if self.mask is not None or self.program.checked or self.plan.rows > 1 or self.span:
            return None
        if any(isinstance(i, GuardIf | BlockIf | BlockWhile) for i in walk(item.body)):
            return None
        affine = self.planner.affine(self.plan.facts, self.plan.lanes, at=item.guard)
        clip = affine.clip(item.guard.test, "_tx")
        if clip is None or not (clip.low or clip.high):
            return None
        first, last = self._span()
        self.span = "_lo", "_hi"
        items = self.items(item.body)
        self.span = None
        if any(isinstance(inner, ClippedLoop) for inner in walk(items)):
            return None
        return ClippedRow(item.line, None, clip, first, last, items)

    def _common(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """What comes first in `body` and is the same for all threads of a row, and the rest.

        It is taken out of the loop if it reads memory: where the loop stores, LLVM cannot know that
        this memory stays as it is, and no vector code has such loads.
        """
        facts, known = self.plan.facts, set(self.plan.facts.scalars)
        kept = self.spilled | set(self.storage.rematerialised) | set(self.of_block.rematerialised)
        common: list[ast.stmt] = []
        for stmt in body:
            name = defined(stmt)
            if not isinstance(stmt, ast.Assign) or name is None or name in kept:
                break
            others = (names(stmt.value) & set(facts.defs)) - known
            if len(facts.defs[name]) > 1 or others or facts.is_varying(stmt.value):
                break
            common.append(stmt)
            known.add(name)
        if not any(has_loads(self.program, expr) for stmt in common for expr in expressions(stmt)):
            return [], body
        return common, body[len(common) :]

    def _may_be_whole(self, clip: Clip, body: list[ast.stmt]) -> bool:
        """Whether all threads of a row may pass the guard of `body`, as far as is known."""
        if clip.one or clip.step is not None or _leaves_out_some(clip, *self._span()):
            return False
        one_row = self.plan.lanes >= self.program.threads
        if not (self.at_edge and one_row):
            return True
        return bool(self._stripped(body)[1])  # it may be another guard that fails

    def _stripped(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], list[str]]:
        reasoning = partial(self.planner.affine, self.plan.facts, self.plan.lanes)
        return strip_guards(self.program, body, reasoning)

    def _span(self) -> tuple[str, str]:
        """Where the threads that go together begin and end in x."""
        lanes, x = self.plan.lanes, self.program.block[0]
        if self.span is not None:
            return self.span
        return ("0", str(x)) if lanes >= x else ("_x0", f"_x0 + {lanes}")

    def loop(self, region: Region, body: list[ast.stmt]) -> ThreadLoop:
        """`body`, which is a version of `region`, as one loop over the threads of the row."""
        exposed, written, certain = exposure(body, self.known)
        zeroed = self.storage.zeroed.get(region, set())
        reads = (exposed | ((written - certain) & self.spilled)) - zeroed
        inputs = self._inputs(reads)
        return ThreadLoop(
            region.line,
            self.mask,
            *self._span(),
            inputs,
            sorted(zeroed),
            self.layout.views([*inputs.rematerialised, *body]),
            body,
            sorted(written & self.spilled),
        )

    def _inputs(self, reads: set[str]) -> Inputs:
        rematerialised = {**self.of_block.rematerialised, **self.storage.rematerialised}
        local = self.known | set(rematerialised)
        of_threads = {n: s for n, s in rematerialised.items() if n not in self.plan.facts.scalars}
        return Inputs.of(reads, of_threads, self.spilled, local)


def _constant_bounds(clip: Clip, first: str, end: str) -> tuple[str, str] | None:
    """Where a clipped loop begins and ends, if that is the same for all rows."""
    if not (first.isdigit() and end.isdigit()) or clip.factors:
        return None
    begin, stop = max(int(first), 0), int(end)
    for bound in clip.low:
        if (number := _number(bound)) is None:
            return None
        begin = max(begin, number)
    for bound in clip.high:
        if (number := _number(bound)) is None:
            return None
        stop = min(stop, number)
    return str(begin), str(max(begin, stop))


def _leaves_out_some(clip: Clip, first: str, end: str) -> bool:
    """Whether some number from `first` to below `end` is outside of the interval in all rows."""
    if not (first.isdigit() and end.isdigit()):
        return False
    low = [n for bound in clip.low if (n := _number(bound)) is not None]
    high = [n for bound in clip.high if (n := _number(bound)) is not None]
    return max(low, default=int(first)) > int(first) or min(high, default=int(end)) < int(end)


def _number(expr: ast.expr) -> int | None:
    """The value of sums and differences of integers that the source spells."""
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
        inner = _number(expr.operand)
        return None if inner is None else -inner
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add | ast.Sub):
        left, right = _number(expr.left), _number(expr.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(expr.op, ast.Add) else left - right
    return constant(expr)
