"""What a plan is made of.

A `BlockPlan` says how a block runs its items: `emit` prints it and decides nothing. Items of the
block are those of fission, and below them `EachBlock`, `FirstBlock` and `TileLoop` where blocks are
interleaved. A region runs as one of several versions (`RegionPlan`); a version is a program for one
row of threads (`RowVersion`), whose items end in loops over these threads (`ThreadLoop`,
`ClippedLoop`, `GuardedLoop`), or over some of them (`ClippedRow`).
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from numba.core import types

from kernels.simt.analysis.affine import Clip
from kernels.simt.ir.nodes import call, load, names
from kernels.simt.ir.program import Program
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.transforms.fission import (
    BlockFor,
    BlockWhile,
    CollectivePoint,
    Item,
    MaskIf,
    MaskWhile,
    Region,
)

# -- loops over threads ------------------------------------------------------------------------


@dataclass
class Inputs:
    """What a thread loads from spill arrays, and recomputes, before it runs a piece."""

    loaded: list[str] = field(default_factory=list)
    rematerialised: list[ast.Assign] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        reads: set[str],
        rematerialised: dict[str, ast.Assign],
        spilled: set[str],
        variables: set[str],
    ) -> Inputs:
        """What `reads` need, in order: the spilled ones are loaded, others recomputed if they are
        rematerialised, from `variables` that are found in the same way."""
        order: list[str] = []
        loads: set[str] = set()

        def need(name: str) -> None:
            if name in spilled:
                loads.add(name)
            elif name in rematerialised and name not in order:
                for other in sorted(names(rematerialised[name].value) & variables):
                    need(other)
                order.append(name)

        for name in sorted(reads):
            need(name)
        return cls(sorted(loads), [rematerialised[name] for name in order])


@dataclass(eq=False)
class ThreadLoop(Item):
    """A loop over the threads `first` to `last` - 1 of a row (both in generated code), or every
    `step`-th of them."""

    first: str
    last: str
    inputs: Inputs
    zeroed: list[str]  # variables that are set to zero first
    views: list[str]  # private arrays that `body` and what is rematerialised need as a whole
    body: list[ast.stmt]
    stored: list[str]  # variables that go back to their spill arrays
    step: str = ""


@dataclass(eq=False)
class ClippedLoop(Item):
    """A guard as the bounds of a loop: `part` runs from `_lo` to `_hi`.

    `whole`, if there is one, runs instead where these are the ends of the row. What is `common` to
    the threads that pass the guard is computed once, if there is one. `otherwise`, with the guard,
    runs where a factor of the clip is out of its limits.
    """

    clip: Clip
    common: list[ast.stmt]
    first: str
    last: str
    part: ThreadLoop
    whole: ThreadLoop | None
    otherwise: ThreadLoop | None


@dataclass(eq=False)
class ClippedRow(Item):
    """What a row runs by those of its threads that pass a guard: `items`, whose loops over threads
    run from `_lo` to `_hi`; these lie between `first` and `last`."""

    clip: Clip
    first: str
    last: str
    items: list[Item]


@dataclass(eq=False)
class GuardedLoop(Item):
    """`guard_free` where all `checks` hold, else `otherwise`."""

    checks: list[str]
    guard_free: ThreadLoop
    otherwise: ThreadLoop


@dataclass(eq=False)
class SquareLoop(Item):
    """A loop over squares of threads, several rows by as many columns, whose first is at hand."""

    body: list[ast.stmt]


# -- versions of a region ----------------------------------------------------------------------


@dataclass(eq=False)
class RowVersion:
    """The program of one row of threads, all loops over its threads decided."""

    items: list[Item]
    lanes: int  # threads that go through it together
    rows: int  # rows that go through it together: unroll-and-jam
    mask: str | None  # of the threads that take part
    ordered: bool  # threads run one after the other
    below: list[ast.expr] = field(default_factory=list)  # no row from one of these on needs it


@dataclass
class RegionPlan:
    """The versions of a region: `every_thread` where all threads of the block take part, `masked`
    where only those of a mask do. `guard_free` is `every_thread` where all `checks` hold."""

    every_thread: RowVersion | None
    masked: RowVersion | None
    guard_free: RowVersion | None = None
    checks: list[str] = field(default_factory=list)


# -- collectives -------------------------------------------------------------------------------


class Check(enum.Enum):
    """What is checked before a collective."""

    ARRIVALS = "no live thread stays away from a barrier"
    LANES = "the member mask names those lanes that are there"


@dataclass
class CollectivePlan:
    check: Check | None
    members: Inputs  # what the member mask of the check is computed from
    inputs: Inputs  # what a shuffle's source lane is computed from
    reads_ahead: bool  # the same distance in every thread, of full warps
    lanes: int = WARP_SIZE  # the first ones of each warp, whose results are needed


# -- memory ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateLayout:
    """Where a private array (an element per thread) keeps a thread's own elements: the counters
    that are its first indices, and the one that is its last."""

    row: tuple[str, ...]
    lane: str

    def around(self, index: list[ast.expr]) -> list[ast.expr]:
        """The indices of a thread's own element `index`."""
        own = [call("_u", load(name)) for name in (*self.row, self.lane)]
        return [*own[:-1], *index, own[-1]]


@dataclass
class StackArray:
    """An array in the stack frame of the function."""

    name: str
    shape: tuple[int, ...]
    dtype: types.Type


@dataclass
class GridArray:
    """Under grid barriers: an array with a part for every block, `threads` of them in a row for
    arrays with an element per thread."""

    name: str
    shape: tuple[int, ...]
    dtype: types.Type
    threads: int | None


@dataclass
class DynamicShared:
    """A view of the block's dynamic shared memory; the `first` one allocates it."""

    name: str
    dtype: types.Type
    first: bool


# -- interleaved blocks ------------------------------------------------------------------------


@dataclass(eq=False)
class EachBlock(Item):
    """`items` for each of the interleaved blocks in turn."""

    items: list[Item]


@dataclass(eq=False)
class FirstBlock(Item):
    """`region` by the first of the interleaved blocks, for all of them."""

    region: Region


@dataclass
class FullTiles:
    """Iterations, those where `test` holds, in which a row's loop has a constant length: it is
    `whole` there, and `part` elsewhere. Only then a row's sums stay in registers from one iteration
    to the next.
    """

    test: ast.expr
    whole: BlockFor
    part: BlockFor


@dataclass(eq=False)
class TileLoop(Item):
    """The loop over tiles, of which `count` iterations are filled at once, each its own copy of
    the `common` arrays: a row of threads keeps its accumulators in registers for as many tiles.
    """

    target: str
    start: ast.expr | None  # None: 0
    stop: ast.expr
    step: ast.expr | None  # None: 1
    count: int
    common: list[str]
    fills: list[FirstBlock]
    at_once: list[Item]  # what a block does in several iterations, row by row
    ahead: list[ast.Subscript]  # of each line that row `_ty` reads in an iteration of `at_once`
    full: FullTiles | None  # of `at_once`
    initial: Region | None  # sets what threads start with, right before the loop
    initial_rows: RowVersion | None  # the same as part of the first iteration of each row
    after: list[Item]  # what a block does right after the loop, while accumulators are at hand
    final_rows: RowVersion | None  # the same as part of the last iteration of each row
    final_checks: list[str]  # when these hold, rows may do that before others are through the loop
    checks: list[str]  # when these hold, `at_once` reads memory instead of the block's own tiles
    one_by_one: list[Item]  # iterations in which they do not


@dataclass
class InterleavingPlan:
    """Blocks along `axis` that run together, `together` of them."""

    axis: str
    together: int
    panel: int  # blocks in a row of a panel
    apart: list[str]  # shared arrays of which each block has its own copy


# -- grid-stride loops -------------------------------------------------------------------------


@dataclass
class StridePlan:
    """The grid-stride loop of `region`: `together` neighbouring blocks all run an iteration before
    the next one. `base` counts: it is where the first thread of a block is, and that of the next
    block is `apart` further."""

    region: Region
    before: list[Item]  # what a block runs first, `region` after it
    head: list[Item]  # of the row of threads, up to the loop
    loop: BlockWhile
    tail: list[Item]  # what is left of the iterations, and what follows them
    base: str
    apart: int
    together: int
    arrays: list[str]  # spill arrays of which each block has its own copy


# -- the block ---------------------------------------------------------------------------------


@dataclass
class BlockPlan:
    """How one function runs the blocks of a grid."""

    program: Program
    kinds: dict[str, types.Type]
    items: list[Item]
    nonnegative: list[str]  # integer parameters that are checked to be >= 0 on entry
    conditions: list[str]  # of the launch, under which no index leaves its array
    half_views: dict[str, Callable]  # parameters that come in as uint16, and what views them
    spilled: set[str]  # variables and masks with a spill array, an element per thread
    private: dict[str, PrivateLayout]  # local arrays with an element per thread
    marked: list[str]  # shared arrays whose writes are tracked (checked mode)
    declarations: list[StackArray | GridArray | DynamicShared]
    regions: dict[Region, RegionPlan]
    inputs: dict[MaskIf | MaskWhile, Inputs]
    collectives: dict[CollectivePoint, CollectivePlan]
    spans: dict[
        str | None, tuple[int, int]
    ]  # masks of neighbours: the first thread, and the last + 1
    thread_number: str  # of a thread among all that have spill arrays
    panel: int | None  # blocks in a row of a panel, where they are not interleaved; None: no panels
    interleaving: InterleavingPlan | None
    strides: StridePlan | None
