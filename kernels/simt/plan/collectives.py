"""What is decided of collectives: their checks, and how lanes find each other's values."""

from __future__ import annotations

import ast

from kernels.simt.analysis.uniformity import Facts
from kernels.simt.frontend import calls
from kernels.simt.ir.nodes import names
from kernels.simt.ir.program import Program
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.plan.parts import Check, CollectivePlan, Inputs
from kernels.simt.transforms.fission import CollectivePoint
from kernels.simt.transforms.storage import Storage

FULL = 0xFFFFFFFF  # the member mask that names every lane


def plan(
    program: Program, facts: Facts, storage: Storage, point: CollectivePoint
) -> CollectivePlan:
    args = point.stmt.args
    lane: set[str] = set()
    if point.stmt.kind in calls.SHUFFLES:
        lane = set().union(*(names(arg) for arg in args[2:4]))
    return CollectivePlan(
        check=_check(program, point),
        members=inputs(facts, storage, names(args[0]) if args else set()),
        inputs=inputs(facts, storage, lane),
        reads_ahead=_reads_ahead(program, facts, storage, point),
    )


def inputs(facts: Facts, storage: Storage, reads: set[str]) -> Inputs:
    """How a thread gets at the variables among `reads`."""
    variables = set(facts.defs) - facts.scalars
    known = reads & (variables | storage.spilled)
    return Inputs.of(known, storage.rematerialised, storage.spilled, variables)


def _check(program: Program, point: CollectivePoint) -> Check | None:
    kind = point.stmt.kind
    if kind.startswith("syncthreads") or kind == "cg.GridGroup.sync":
        return None if point.mask == point.live else Check.ARRIVALS
    if not program.debug or kind in ("activemask", "match_all_pred"):
        return None
    member = point.stmt.args[0] if point.stmt.args else ast.Constant(FULL)
    everyone = isinstance(member, ast.Constant) and member.value in (FULL, -1)
    return None if everyone and point.mask == point.live else Check.LANES


def _reads_ahead(program: Program, facts: Facts, storage: Storage, point: CollectivePoint) -> bool:
    """Whether a shuffle reads the same distance ahead in every thread, of full warps."""
    args = point.stmt.args
    return (
        point.stmt.kind == "shfl_down_sync"
        and not program.debug
        and len(args) == 3
        and not program.cooperative
        and program.threads % WARP_SIZE == 0
        and facts.at_block_level(args[2])
        and isinstance(args[1], ast.Name)
        and args[1].id in storage.spilled
    )
