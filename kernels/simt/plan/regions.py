"""How each region runs: the versions of it that are worth their code."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from numba.core import types

from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import Facts, exposure
from kernels.simt.ir.nodes import defined, statements, used
from kernels.simt.ir.program import Program
from kernels.simt.plan.parts import Inputs
from kernels.simt.transforms.fission import Item, Region, walk
from kernels.simt.transforms.guards import strip_guards
from kernels.simt.transforms.row_vectorise import RowPlan, RowPlanner
from kernels.simt.transforms.short_loops import hint_short_loops
from kernels.simt.transforms.storage import Storage, assign_storage
from kernels.simt.transforms.unroll_jam import UnrollJamPlanner


class StoredRows(NamedTuple):
    """A row's program, and where its variables live between its items."""

    plan: RowPlan
    storage: Storage


@dataclass
class Versions:
    """The versions of a region that were found."""

    each_thread: StoredRows | None  # every thread by itself
    rows: StoredRows | None = None  # the fastest for all threads of a block
    guard_free: StoredRows | None = None
    checks: list[str] = field(default_factory=list)

    @property
    def fast(self) -> list[RowPlan]:
        return [found.plan for found in (self.rows, self.guard_free) if found is not None]


class RegionPlanner:
    """Finds the versions of all regions of a block."""

    def __init__(
        self,
        program: Program,
        facts: Facts,
        items: list[Item],
        storage: Storage,
        kinds: dict[str, types.Type],
        ranges: Ranges,
    ) -> None:
        self.program, self.facts, self.items = program, facts, items
        self.storage, self.kinds = storage, kinds
        self.variables = set(facts.defs) - facts.scalars
        seed = {"_tx"} | storage.spilled
        seed |= {a.name for a in program.arrays.values() if a.space == "local"}
        given = program, kinds, ranges, seed, set(storage.spilled)
        self.rows, self.several_rows = RowPlanner(*given), UnrollJamPlanner(*given)
        self.versions: dict[Region, Versions] = {}

    def plan(self) -> dict[Region, Versions]:
        for region in walk(self.items):
            if isinstance(region, Region):
                region.body = without_unread(region.body, set(self.storage.rematerialised))
                if region.body:
                    self.versions[region] = self._versions(region)
        return self.versions

    def _versions(self, region: Region) -> Versions:
        body = [*self.rematerialised_before(region.body), *region.body]
        if self.program.checked:
            return Versions(self._stored(self.rows.plain(body)))
        body = hint_short_loops(body)
        self.rows.far = self.several_rows.far = region.far
        found = Versions(self._stored(self.rows.plain(body)), self.best(body))
        if found.rows is not None:
            self._add_guard_free(found, body)
        return found

    def best(self, body: list[ast.stmt]) -> StoredRows | None:
        """How rows run `body` fastest, where there is more to do than run each thread by itself."""
        body = hint_short_loops(body)
        for find in (self.several_rows.plan, self.rows.plan, self.rows.simple):
            plan = find(body)
            if plan is not None:
                stored = self._stored(plan)
                if self._holds_numbers(stored.storage):
                    return stored
        return None

    def _add_guard_free(self, versions: Versions, body: list[ast.stmt]) -> None:
        """Add a version for blocks in which every thread passes the guards."""
        reasoning = partial(self.rows.whole_block, versions.each_thread.plan.facts)
        stripped, checks = strip_guards(self.program, body, reasoning)
        if checks and stripped:
            stored = self.best(stripped)
            if stored is not None:
                versions.guard_free, versions.checks = stored, checks

    def _stored(self, plan: RowPlan) -> StoredRows:
        storage = assign_storage(self.program, plan.facts, plan.items, [], self.kinds)
        storage.spilled -= self.storage.spilled
        for name in self.storage.spilled:
            storage.rematerialised.pop(name, None)
            for zeroed in storage.zeroed.values():
                zeroed.discard(name)
        return StoredRows(plan, storage)

    def _holds_numbers(self, storage: Storage) -> bool:
        return all(
            isinstance(self.kinds.get(n), types.Number | types.Boolean) for n in storage.spilled
        )

    def rematerialised_before(self, body: list[ast.stmt]) -> list[ast.Assign]:
        """The assignments that recompute what `body` reads from outside, in order."""
        exposed = exposure(body, self.variables)[0]
        return Inputs.of(exposed, self.storage.rematerialised, set(), self.variables).rematerialised


def without_unread(body: list[ast.stmt], rematerialised: set[str]) -> list[ast.stmt]:
    """`body` without the assignments that only other regions need, which rematerialise them."""
    while True:
        read = set().union(*(used(stmt) for stmt in statements(body)))
        unread = rematerialised - read
        kept = [s for s in body if not (isinstance(s, ast.Assign) and defined(s) in unread)]
        if len(kept) == len(body):
            return kept
        body = kept
