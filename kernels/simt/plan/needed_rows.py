"""Rows of threads that need not accumulate, for no thread of them stores the result.

At the lower edge of a matrix some rows of a block are beyond it. They go through the loop over
tiles with the others, since all threads have to pass its barriers, but at the end
`if row < m and col < n: c[row, col] = acc` throws away what they have summed up. Where all that a
piece of such a loop writes is only read under a guard like this one, rows that fail it leave that
piece out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernels.simt.analysis.uniformity import Site, dependent_on, is_pure_call
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    const,
    defined,
    expressions,
    names,
    nodes_in,
    statements,
    stored_array,
    used,
)
from kernels.simt.plan.regions import RegionPlanner
from kernels.simt.transforms.fission import Region
from kernels.simt.transforms.storage import dominates


def needed_rows(regions: RegionPlanner, region: Region) -> list[ast.expr]:
    """Bounds from which on no row needs what `region` computes."""
    program = regions.program
    if not region.in_loop or program.checked or program.cooperative:
        return []
    written = _written(regions, region)
    if not written:
        return []
    along_row = dependent_on({"_tx"}, program, program.body)
    along_row.scalars = regions.facts.scalars
    any_row = {"_ty": (const(0), const(program.block[1] - 1))}
    bounds: list[ast.expr] = []
    for guard, test in _guards(regions, region, written):
        affine = regions.rows.affine(along_row, program.block[0], at=guard, more=any_row)
        clip = affine.clip(test, "_ty")
        bounds += [] if clip is None else clip.high
    return [b for b in bounds if _are_known(regions, region, names(b))]


def _kept(regions: RegionPlanner) -> set[str]:
    """The variables and arrays that each thread keeps from one piece to the next."""
    arrays = regions.program.arrays.values()
    return regions.storage.spilled | {a.name for a in arrays if a.space == "local"}


def _written(regions: RegionPlanner, region: Region) -> set[str]:
    """What threads keep of what `region` writes; nothing if it does more than that."""
    kept, written = _kept(regions), set()
    for stmt in statements(region.body):
        name = defined(stmt) or stored_array(stmt)
        calls = (n for e in expressions(stmt) for n in nodes_in(e) if isinstance(n, ast.Call))
        if not all(is_pure_call(regions.program, call) for call in calls):
            return set()
        if isinstance(stmt, ast.If):
            continue
        if name is None or (defined(stmt) is None and name not in kept):
            return set()
        written.add(name)
    return written & kept


def _guards(
    regions: RegionPlanner, region: Region, written: set[str]
) -> list[tuple[ast.If, ast.expr]]:
    """The conditions under which all others read what `region` has `written`, and their `if`s."""
    inside = {id(stmt) for stmt in statements(region.body)}
    common: dict[str, tuple[ast.If, ast.expr]] | None = None
    for site in regions.facts.sites:
        if id(site.stmt) in inside or not _read(site.stmt) & written:
            continue
        found = {ast.unparse(test): (guard, test) for guard, test in _tests(site)}
        common = found if common is None else {k: v for k, v in common.items() if k in found}
    return list((common or {}).values())


def _read(stmt: ast.stmt) -> set[str]:
    """The names that a statement reads itself: not of an array to which it stores."""
    if stored_array(stmt) is None:
        return used(stmt)
    assert isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Subscript)
    return names(stmt.value) | names(stmt.targets[0].slice)


def _tests(site: Site) -> Iterator[tuple[ast.If, ast.expr]]:
    """The conditions around a statement."""
    for control, branch, _ in site.path:
        if isinstance(control, ast.If) and branch == "body":
            match control.test:
                case ast.BoolOp(op=ast.And(), values=tests):
                    yield from ((control, test) for test in tests)
                case test:
                    yield control, test


def _are_known(regions: RegionPlanner, region: Region, variables: set[str]) -> bool:
    """Whether variables have the same values before `region` as ever after."""
    sites = {id(site.stmt): site for site in regions.facts.sites}
    begin = sites.get(id(region.body[0]))
    defs = regions.facts.defs
    return begin is not None and all(
        name in {*BLOCK, *GRID}
        or name not in defs
        or (len(defs[name]) == 1 and dominates(defs[name][0], begin))
        for name in variables
    )
