"""The plan of a block, put together."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import chain

from numba.core import types

from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import Facts
from kernels.simt.frontend import calls
from kernels.simt.ir.nodes import names
from kernels.simt.ir.program import Program
from kernels.simt.plan import collectives
from kernels.simt.plan.demand import demanded_lanes
from kernels.simt.plan.indices import mark_unsigned
from kernels.simt.plan.interleaving import Interleaver
from kernels.simt.plan.layout import Layout
from kernels.simt.plan.needed_rows import needed_rows
from kernels.simt.plan.parts import (
    BlockPlan,
    ClippedLoop,
    RegionPlan,
    RowVersion,
    SquareLoop,
    ThreadLoop,
)
from kernels.simt.plan.regions import RegionPlanner, Versions
from kernels.simt.plan.spans import known_spans
from kernels.simt.plan.squares import square_version
from kernels.simt.plan.strides import plan_strides, with_copies
from kernels.simt.plan.thread_loops import row_version
from kernels.simt.transforms.fission import (
    BlockFor,
    BlockWhile,
    CollectivePoint,
    Item,
    MaskIf,
    MaskWhile,
    Region,
    walk,
)
from kernels.simt.transforms.row_vectorise import GuardIf, RowPlan
from kernels.simt.transforms.storage import Storage

_LOOPS = BlockFor | BlockWhile
PANEL = 8  # blocks in a row of a panel


def plan_block(
    program: Program,
    facts: Facts,
    items: list[Item],
    storage: Storage,
    kinds: dict[str, types.Type],
    ranges: Ranges,
    nonnegative: set[str],
    conditions: list[str],
    half_views: dict[str, Callable],
) -> BlockPlan | None:
    """How a block runs `items`; None where its blocks are interleaved, which does not pay."""
    regions = RegionPlanner(program, facts, items, storage, kinds, ranges)
    regions.plan()
    common = program.interleaving
    layout = Layout(regions, around=() if common is None else ("_j",))
    interleaver = None if common is None else Interleaver(regions, layout, common)
    if interleaver is not None and not interleaver.pays:
        return None
    points = [item for item in walk(items) if isinstance(item, CollectivePoint)]
    met = {point: collectives.plan(program, facts, storage, point) for point in points}
    definitions = regions.rows.affine(facts, program.block[0]).definitions
    spans = known_spans(program, items, definitions, met)
    lanes = demanded_lanes(program, items, storage, regions.variables, definitions, met)
    for point in met.keys() & lanes.keys():
        met[point].lanes = lanes[point]
    ahead = {point.stmt.args[1].id for point, plan in met.items() if plan.reads_ahead}
    copies = interleaver.copies() if interleaver else {}
    edges = interleaver.edges if interleaver else set()
    together = interleaver.together if interleaver else 1
    plan = BlockPlan(
        program=program,
        kinds=kinds,
        items=interleaver.arranged() if interleaver else items,
        nonnegative=sorted(nonnegative),
        conditions=conditions,
        half_views=half_views,
        spilled=storage.spilled,
        private=layout.private,
        marked=sorted(layout.marked),
        declarations=layout.declarations(copies, together, ahead),
        regions={
            region: _region_plan(
                regions, layout, region, versions, region in edges, spans.get(region.mask)
            )
            if region not in lanes
            else _first_lanes(regions, layout, versions, lanes[region])
            for region, versions in regions.versions.items()
        },
        inputs={
            item: collectives.inputs(facts, storage, names(item.test))
            for item in walk(items)
            if isinstance(item, MaskIf | MaskWhile)
        },
        collectives=met,
        spans=spans,
        thread_number=_thread_number(program),
        panel=_panel(program, items) if interleaver is None else None,
        interleaving=interleaver.plan() if interleaver else None,
        strides=None,
    )
    _leave_out_rows(regions, plan)
    plan.strides = plan_strides(plan)
    if plan.strides is not None:
        plan.declarations = with_copies(plan.declarations, plan.strides)
    runs = plan.regions, plan.inputs, plan.collectives
    mark_unsigned(program, kinds, ranges, [*plan.items, *chain(*(part.values() for part in runs))])
    return plan


def _region_plan(
    regions: RegionPlanner,
    layout: Layout,
    region: Region,
    versions: Versions,
    at_edge: bool,
    span: tuple[int, int] | None,
) -> RegionPlan:
    """The versions of a region that are used. `at_edge`: some guard always fails in some thread.

    `span`: where its threads begin and end, of a mask of which nothing else need be known.
    """
    rows, mask = versions.rows, region.mask
    if span is not None:
        assert versions.each_thread is not None
        ends = str(span[0]), str(span[1])
        return RegionPlan(row_version(regions, layout, versions.each_thread, None, span=ends), None)
    if rows is None or (mask is not None and not (region.in_loop or rows.plan.interchanged)):
        plain = row_version(regions, layout, versions.each_thread, mask)
        return RegionPlan(None, plain) if mask else RegionPlan(plain, None)
    masked = row_version(regions, layout, versions.each_thread, mask) if mask else None
    square = square_version(regions, versions.guard_free or rows)
    if versions.guard_free is None:
        return RegionPlan(square or row_version(regions, layout, rows, None), masked)
    if not square and versions.guard_free.plan.rows == 1 and _is_guarded_by_row(rows.plan):
        return RegionPlan(row_version(regions, layout, rows, None), masked)
    may_strip = rows.plan.interchanged
    edge = row_version(regions, layout, rows, None, may_strip=may_strip, at_edge=True)
    if at_edge:
        return RegionPlan(edge, masked)
    inside = square or row_version(regions, layout, versions.guard_free, None, may_strip=False)
    if edge.lanes < regions.program.threads and _has_whole_rows(edge, inside):
        return RegionPlan(row_version(regions, layout, rows, None), masked)
    return RegionPlan(edge, masked, inside, versions.checks)


def _leave_out_rows(regions: RegionPlanner, plan: BlockPlan) -> None:
    """Note which rows need nothing of a region, where rows run one after the other."""
    for region, versions in plan.regions.items():
        below = needed_rows(regions, region)
        for version in (versions.every_thread, versions.guard_free):
            if version is not None and not any(isinstance(i, SquareLoop) for i in version.items):
                version.below = below


def _first_lanes(
    regions: RegionPlanner, layout: Layout, versions: Versions, lanes: int
) -> RegionPlan:
    """The version of a region for the first lanes of each row."""
    rows = versions.rows
    if rows is None or rows.plan.interchanged or rows.plan.lanes < regions.program.block[0]:
        rows = versions.each_thread
    assert rows is not None
    return RegionPlan(row_version(regions, layout, rows, None, span=("0", str(lanes))), None)


def _has_whole_rows(edge: RowVersion, inside: RowVersion) -> bool:
    """Whether `edge` runs rows that are nowhere at an edge by the same code as `inside`."""
    clipped, loop = edge.items[-1], inside.items[-1]
    if not (isinstance(clipped, ClippedLoop) and isinstance(loop, ThreadLoop)) or not clipped.whole:
        return False
    both = clipped.whole.body, loop.body
    one, other = ([ast.dump(stmt) for stmt in body] for body in both)
    return (edge.rows, one) == (inside.rows, other)


def _is_guarded_by_row(plan: RowPlan) -> bool:
    """Whether each row finds out once, before its loops, that none of its threads is at an edge.

    Beside the loops that costs nothing, so a version for blocks that are nowhere at an edge would
    be the same code again.
    """
    outer = [item for item in plan.items if isinstance(item, GuardIf)]
    loops = [item for guard in outer for item in walk(guard.body) if isinstance(item, _LOOPS)]
    inside = [item for loop in loops for item in walk(loop.body)]
    guarded = any(
        isinstance(item, GuardIf) or (isinstance(item, Region) and _has_conditions(item))
        for item in inside
    )
    return bool(loops) and not guarded


def _has_conditions(region: Region) -> bool:
    nodes = (node for stmt in region.body for node in ast.walk(stmt))
    return any(isinstance(node, ast.If | ast.IfExp) for node in nodes)


def _panel(program: Program, items: list[Item]) -> int | None:
    """How wide the panels are in which blocks run; None where they run in the grid's order.

    Blocks that go through memory tile by tile, with a barrier for each, find more of it in the
    cache, since neighbours share it. Checked blocks run in the order of the grid: the lab runs
    those that it is asked for.
    """
    loops = [item for item in walk(items) if isinstance(item, BlockFor)]
    barriers = (isinstance(item, CollectivePoint) for loop in loops for item in walk(loop.body))
    return PANEL if not (program.cooperative or program.checked) and any(barriers) else None


def _thread_number(program: Program) -> str:
    """The position of a thread among all that have spill arrays at a time."""
    number = ast.unparse(calls.linear_thread(program))
    if program.cooperative:
        number = f"_block * {program.threads} + {number}"
    if program.interleaving is not None:
        number = f"_j * {program.threads} + {number}"
    return number
