"""Grid-stride loops of neighbouring blocks, together.

In an iteration of such a loop a block reads a run of memory as long as a row of threads, and the
next iteration is many pages further. The next block's run begins where this one ends. Blocks one
after the other would read memory in such runs, and a processor prefetches within a page only. So
several blocks go through the loop together, an iteration of all before the next, as far as all have
whole rows of threads; then each does what is left. Blocks may run in any order, so this one is as
good.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import NamedTuple

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import has_effects, has_loads
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import BLOCK, const, defined, names, statements
from kernels.simt.ir.program import Program
from kernels.simt.plan.layout import Declaration, spill_arrays
from kernels.simt.plan.parts import (
    BlockPlan,
    DynamicShared,
    RowVersion,
    StridePlan,
    ThreadLoop,
)
from kernels.simt.transforms.fission import BlockWhile, Item, Region, Scalars

MOST = 64  # blocks that go together
STATE = 1 << 14  # bytes that their threads carry from iteration to iteration: half of a cache


class _Loop(NamedTuple):
    """`while base + ... < stop` around loops over threads; `step` is added to `base` at the end."""

    item: BlockWhile
    base: str
    step: ast.expr
    threads: list[ThreadLoop]


def plan_strides(plan: BlockPlan) -> StridePlan | None:
    """How the blocks of a plan run the loop of their first region; None where it is no grid-stride
    loop, or depends on the block in other ways."""
    program = plan.program
    _, y, z = program.block
    if program.checked or program.cooperative or plan.interleaving is not None or y * z > 1:
        return None
    position = next((k for k, i in enumerate(plan.items) if not isinstance(i, Scalars)), None)
    region = None if position is None else plan.items[position]
    version = _whole_rows(plan, region)
    if not isinstance(region, Region) or version is None:
        return None
    loops = (k for k, i in enumerate(version.items) if isinstance(i, BlockWhile))
    at = next(loops, len(version.items))
    before, head, rest = plan.items[:position], version.items[:at], version.items[at + 1 :]
    loop = None if at == len(version.items) else _counted(version.items[at])
    if loop is None:
        return None
    first = [item for item in head if isinstance(item, ThreadLoop)]
    scalars = _assignments(plan.program, [*before, *head])
    if scalars is None or _needs_arrays(plan, [*first, *loop.threads], scalars):
        return None
    apart = _apart(plan, scalars, loop)
    arrays = _carried(plan, [*first, *loop.threads])
    dtypes = {array.name: array.dtype for array in plan.declarations}
    carried = sum(itemsize(dtypes[name]) for name in arrays) * program.threads
    together = min(MOST, STATE // carried) if carried else MOST
    if apart is None or together < 2:
        return None
    again = _counted(rest[0]) if rest else None  # the same loop, by one iteration at a time
    tail = rest if again is not None and again.base == loop.base else [loop.item, *rest]
    given = before, head, loop.item, tail, loop.base, apart, together, arrays
    return StridePlan(region, *given)


def with_copies(declarations: list[Declaration], strides: StridePlan) -> list[Declaration]:
    """The declarations of a block's arrays, with those that each of the blocks has for itself."""
    found: list[Declaration] = []
    for array in declarations:
        if array.name in strides.arrays and not isinstance(array, DynamicShared):
            shape = strides.together, *array.shape
            array = replace(array, name=f"_all_{array.name}", shape=shape)
        found.append(array)
    return found


def _whole_rows(plan: BlockPlan, item: Item | None) -> RowVersion | None:
    """How a region of all threads runs, if it runs by whole rows."""
    if not isinstance(item, Region) or item.mask is not None or item not in plan.regions:
        return None
    version = plan.regions[item].every_thread  # also where a guard-free one is there
    if version is None or version.lanes < plan.program.threads or version.ordered:
        return None
    return version


def _counted(item: Item) -> _Loop | None:
    """The parts of a loop that is nothing but loops over threads and the step, which no constant
    gives."""
    if not isinstance(item, BlockWhile) or item.pre or not item.body:
        return None
    *loops, last = item.body
    threads = [loop for loop in loops if isinstance(loop, ThreadLoop) and loop.mask is None]
    if not isinstance(last, Scalars) or len(last.body) > 1 or len(threads) < len(loops):
        return None
    match last.body[0], item.test:
        case (
            ast.Assign(value=ast.BinOp(left=ast.Name(id=base), op=ast.Add(), right=step)) as stmt,
            ast.Compare(left=left, ops=[ast.Lt()], comparators=[stop]),
        ) if defined(stmt) == base and constant(step) is None and base not in names(stop):
            return _Loop(item, base, step, threads) if _is_sum_with(left, base) else None
    return None


def _is_sum_with(expr: ast.expr, name: str) -> bool:
    """Whether `expr` is `name` and what is added to it."""
    while isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
        if name in names(expr.right):
            return False
        expr = expr.left
    return isinstance(expr, ast.Name) and expr.id == name


def _assignments(program: Program, items: list[Item]) -> list[tuple[str, ast.expr]] | None:
    """The variables that scalar statements set, and their values; None where these cannot be
    computed again, or `items` are more than such statements and loops over threads."""
    found: list[tuple[str, ast.expr]] = []
    for item in items:
        for stmt in item.body if isinstance(item, Scalars) else ():
            name = defined(stmt)
            if not isinstance(stmt, ast.Assign) or name is None or has_effects(program, stmt):
                return None
            found.append((name, stmt.value))
        if not isinstance(item, Scalars | ThreadLoop):
            return None
    return found


def _needs_arrays(
    plan: BlockPlan, loops: list[ThreadLoop], scalars: list[tuple[str, ast.expr]]
) -> bool:
    """Whether these need arrays of the block, or scalars memory that may change."""
    arrays = set(plan.program.arrays)
    if any(loop.views or _used(loop) & arrays for loop in loops):
        return True
    return any(names(value) & arrays or has_loads(plan.program, value) for _, value in scalars)


def _used(loop: ThreadLoop) -> set[str]:
    stmts = statements([*loop.inputs.rematerialised, *loop.body])
    return set().union(*(names(stmt) for stmt in stmts))


def _apart(plan: BlockPlan, scalars: list[tuple[str, ast.expr]], loop: _Loop) -> int | None:
    """How far neighbouring blocks along x are apart, if they differ in nothing else."""
    of_block: set[str] = set(BLOCK)
    while new := {name for name, value in scalars if names(value) & of_block} - of_block:
        of_block |= new
    used = set().union(*map(_used, loop.threads)) - set(BLOCK)
    control = names(loop.item.test) | names(loop.step)
    if (used | control) & of_block - {loop.base}:
        return None
    values: dict[str, list[ast.expr]] = {}
    for name, value in scalars:
        values.setdefault(name, []).append(value)
    once = {name: found[0] for name, found in values.items() if len(found) == 1}
    if loop.base not in once:
        return None
    across = {"_bx": (const(0), const(1))}
    affine = Affine(across, once, plan.kinds, lambda name: name not in of_block or name in BLOCK)
    apart = affine.slope(once[loop.base], "_bx")
    return apart if apart is not None and apart > 0 else None


def _carried(plan: BlockPlan, loops: list[ThreadLoop]) -> list[str]:
    """The spill arrays that loops over threads store to or load from."""
    arrays: list[str] = []
    for name in sorted(set().union(*({*loop.stored, *loop.inputs.loaded} for loop in loops))):
        if name in plan.spilled:
            arrays += [array for array, _ in spill_arrays(name, plan.kinds[name])]
        else:
            arrays.append(f"_r_{name}")
    return arrays
