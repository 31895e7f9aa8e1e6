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

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import has_effects, has_loads
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import BLOCK, const, defined, names, statements
from kernels.simt.plan.layout import Declaration, spill_arrays
from kernels.simt.plan.parts import BlockPlan, RowVersion, StridePlan, ThreadLoop
from kernels.simt.transforms.fission import BlockWhile, Item, Region, Scalars

MOST = 64  # blocks that go together
STATE = 1 << 14  # bytes that their threads carry from iteration to iteration: half of a cache


def plan_strides(plan: BlockPlan) -> StridePlan | None:
    """How the blocks of a plan run the loop of their first region; None where it is no grid-stride
    loop, or depends on the block in other ways."""
    program = plan.program
    _, y, z = program.block
    if program.checked or program.cooperative or plan.interleaving is not None or y * z > 1:
        return None
    position = next((k for k, i in enumerate(plan.items) if not isinstance(i, Scalars)), 0)
    version = _whole_rows(plan, plan.items[position]) if plan.items else None
    if version is None:
        return None
    at = next((k for k, i in enumerate(version.items) if isinstance(i, BlockWhile)), None)
    if at is None:
        return None
    before, head, loop = plan.items[:position], version.items[:at], version.items[at]
    base = _counter(loop)
    if base is None or not _runs_apart(plan, [*before, *head], loop):
        return None
    apart = _apart(plan, [*before, *head], loop, base)
    if apart is None:
        return None
    arrays = _carried(plan, [*head, loop])
    dtypes = {array.name: array.dtype for array in plan.declarations}
    carried = sum(itemsize(dtypes[name]) for name in arrays) * program.threads
    together = min(MOST, STATE // carried) if carried else MOST
    if together < 2:
        return None
    rest = version.items[at + 1 :]
    is_last = not (rest and isinstance(rest[0], BlockWhile) and _counter(rest[0]) == base)
    given = before, head, loop, [loop] * is_last + rest, base, apart, together, arrays
    return StridePlan(plan.items[position], *given)


def with_copies(declarations: list[Declaration], strides: StridePlan) -> list[Declaration]:
    """The declarations of a block's arrays, with those that each of the blocks has for itself."""
    copied = set(strides.arrays)
    return [
        replace(array, name=f"_all_{array.name}", shape=(strides.together, *array.shape))
        if array.name in copied
        else array
        for array in declarations
    ]


def _whole_rows(plan: BlockPlan, item: Item) -> RowVersion | None:
    """How a region of all threads runs, if it runs by whole rows."""
    if not isinstance(item, Region) or item.mask is not None or item not in plan.regions:
        return None
    version = plan.regions[item].every_thread  # also where a guard-free one is there
    if version is None or version.lanes < plan.program.threads or version.ordered:
        return None
    return version


def _counter(loop: BlockWhile) -> str | None:
    """The variable that counts in `while base + ... < stop`, if the loop is nothing but loops over
    threads and the step, which no constant gives."""
    *loops, last = loop.body or [None]
    if not isinstance(last, Scalars) or len(last.body) > 1 or loop.pre:
        return None
    if not all(isinstance(item, ThreadLoop) and item.mask is None for item in loops):
        return None
    match last.body[0], loop.test:
        case (
            ast.Assign(value=ast.BinOp(left=ast.Name(id=base), op=ast.Add(), right=step)) as stmt,
            ast.Compare(left=left, ops=[ast.Lt()], comparators=[stop]),
        ) if defined(stmt) == base and constant(step) is None and base not in names(stop):
            return base if _is_sum_with(left, base) else None
    return None


def _is_sum_with(expr: ast.expr, name: str) -> bool:
    """Whether `expr` is `name` and what is added to it."""
    while isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
        if name in names(expr.right):
            return False
        expr = expr.left
    return isinstance(expr, ast.Name) and expr.id == name


def _runs_apart(plan: BlockPlan, ahead: list[Item], loop: BlockWhile) -> bool:
    """Whether what runs `ahead` of the loop, and the loop, need no array of the block, and scalars
    can be computed again."""
    program, arrays = plan.program, set(plan.program.arrays)
    for item in [*ahead, *loop.body]:
        if isinstance(item, Scalars):
            plain = all(isinstance(s, ast.Assign) and defined(s) for s in item.body)
            if not plain or any(has_effects(program, s) for s in item.body):
                return False
            if any(has_loads(program, s.value) for s in item.body):
                return False
        elif not isinstance(item, ThreadLoop) or item.views:
            return False
        if any(names(stmt) & arrays for stmt in statements(_body(item))):
            return False
    return True


def _body(item: Scalars | ThreadLoop) -> list[ast.stmt]:
    return item.body if isinstance(item, Scalars) else [*item.inputs.rematerialised, *item.body]


def _apart(plan: BlockPlan, ahead: list[Item], loop: BlockWhile, base: str) -> int | None:
    """How far neighbouring blocks along x are apart, if they differ in nothing else."""
    scalars = [stmt for item in ahead if isinstance(item, Scalars) for stmt in item.body]
    of_block: set[str] = set(BLOCK)
    while new := {defined(s) for s in scalars if names(s.value) & of_block} - of_block:
        of_block |= new
    loops = [stmt for item in loop.body[:-1] for stmt in _body(item)]
    used = set().union(*(names(stmt) for stmt in statements(loops)))
    control = names(loop.test) | names(loop.body[-1].body[0].value)
    if (used & (of_block - set(BLOCK)) | control & of_block) - {base}:
        return None
    values: dict[str, list[ast.expr]] = {}
    for stmt in scalars:
        values.setdefault(defined(stmt), []).append(stmt.value)
    once = {name: found[0] for name, found in values.items() if len(found) == 1}
    if base not in once:
        return None
    across = {"_bx": (const(0), const(1))}
    affine = Affine(across, once, plan.kinds, lambda name: name not in of_block or name in BLOCK)
    apart = affine.slope(once[base], "_bx")
    return apart if apart is not None and apart > 0 else None


def _carried(plan: BlockPlan, items: list[Item]) -> list[str]:
    """The spill arrays that loops over threads store to or load from."""
    loops = [i for i in items if isinstance(i, ThreadLoop)]
    loops += [i for item in items if isinstance(item, BlockWhile) for i in item.body[:-1]]
    found = set().union(*({*loop.stored, *loop.inputs.loaded} for loop in loops))
    arrays: list[str] = []
    for name in sorted(found):
        if name in plan.spilled:
            arrays += [array for array, _ in spill_arrays(name, plan.kinds[name])]
        else:
            arrays.append(f"_r_{name}")
    return arrays
