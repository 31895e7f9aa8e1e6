"""The lanes of a warp whose results are still needed.

A warp that adds up its values by shuffles keeps what lane 0 ends with: the last step needs the sums
of two lanes, the one before of four. On a GPU the other lanes cost nothing. On a CPU they are half
of the work, and they read values that were stored in other pieces than they are loaded in, for
which a processor waits.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernels.simt.analysis.uniformity import exposure, has_effects
from kernels.simt.ir.program import Program
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.plan.parts import CollectivePlan, Inputs
from kernels.simt.plan.spans import threads_of
from kernels.simt.transforms.fission import CollectivePoint, Item, Region
from kernels.simt.transforms.storage import Storage

Definitions = Mapping[str, ast.expr]


def demanded_lanes(
    program: Program,
    items: list[Item],
    storage: Storage,
    variables: set[str],
    definitions: Definitions,
    collectives: dict[CollectivePoint, CollectivePlan],
) -> dict[Item, int]:
    """By item at the end of a block's program: how many lanes of each warp have to run it.

    Of blocks whose rows are warps. `definitions` are assigned once.
    """
    if program.block[0] != WARP_SIZE or program.checked or program.debug:
        return {}
    if program.cooperative or program.interleaving:
        return {}
    found: dict[Item, int] = {}
    needed: dict[str, int] = {}  # lanes, by the name of a variable that has a spill array
    for item in reversed(items):
        if isinstance(item, Region) and item.mask is None:
            exposed, written, certain = exposure(item.body, variables)
            read = Inputs.of(exposed, storage.rematerialised, storage.spilled, variables).loaded
            lanes = max((needed.get(name, 0) for name in written), default=0)
            lanes = max(lanes, _with_effects(program, item.body, definitions), 1)
        elif isinstance(item, CollectivePoint) and _reads_ahead(item, collectives[item]):
            value = item.stmt.args[1]
            assert isinstance(value, ast.Name)
            certain, read = {item.stmt.result}, [value.id]
            lanes = max(needed.get(item.stmt.result, 0), 1)
        else:
            break
        found[item] = lanes
        ahead = _distance(item) or 0 if isinstance(item, CollectivePoint) else 0
        for name in certain:
            needed.pop(name, None)
        for name in read:
            needed[name] = max(needed.get(name, 0), min(lanes + ahead, WARP_SIZE))
    return {item: lanes for item, lanes in found.items() if lanes < WARP_SIZE}


def _reads_ahead(point: CollectivePoint, plan: CollectivePlan) -> bool:
    """Whether a shuffle reads a known distance ahead, by all lanes."""
    if not plan.reads_ahead or plan.check is not None or point.mask is not None:
        return False
    return _distance(point) is not None


def _distance(point: CollectivePoint) -> int | None:
    """How many lanes ahead a shuffle reads; None where that is not known."""
    distance = point.stmt.args[2]
    known = distance.value if isinstance(distance, ast.Constant) else None
    return known if isinstance(known, int) and 0 <= known <= WARP_SIZE else None


def _with_effects(program: Program, body: list[ast.stmt], definitions: Definitions) -> int:
    """The last lane + 1 that does anything but assign variables."""
    last = 0
    for stmt in body:
        if has_effects(program, stmt):
            taken = list(range(WARP_SIZE))
            if isinstance(stmt, ast.If) and not stmt.orelse:
                taken = _taken(stmt.test, definitions)
            last = max(last, *(lane + 1 for lane in taken), 0)
    return last


def _taken(test: ast.expr, definitions: Definitions) -> list[int]:
    """The lanes for which `test` may hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [_taken(part, definitions) for part in test.values]
        return [lane for lane in parts[0] if all(lane in part for part in parts)]
    known = threads_of(test, WARP_SIZE, definitions)
    return list(range(WARP_SIZE)) if known is None else known
