"""How interleaved blocks go through their program together.

What fills a common array is done once, by the first block. The rest goes into loops over the blocks
that reach from one fill to the next: there a block passes its own barriers alone, and finds in the
cache what it has just left in its own shared array.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile

from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import dependent_on, exposure
from kernels.simt.ir import memory
from kernels.simt.ir.memory import itemsize
from kernels.simt.ir.nodes import BLOCK, GRID, call, clone, names, statements
from kernels.simt.ir.program import ArrayDecl, Interleaving
from kernels.simt.plan.ahead import read_ahead
from kernels.simt.plan.layout import Layout, spill_arrays
from kernels.simt.plan.parts import (
    EachBlock,
    FirstBlock,
    FullTiles,
    InterleavingPlan,
    RowVersion,
    TileLoop,
)
from kernels.simt.plan.regions import RegionPlanner, StoredRows, Versions
from kernels.simt.plan.thread_loops import row_version
from kernels.simt.transforms.block_interleave import (
    passed_on,
    stored_array,
    stored_arrays,
)
from kernels.simt.transforms.clamps import LEAST, arguments
from kernels.simt.transforms.coverage import covers
from kernels.simt.transforms.fission import (
    BlockFor,
    CollectivePoint,
    Item,
    Region,
    Scalars,
    names_in,
    walk,
)
from kernels.simt.transforms.tile_forwarding import Source, reads_of

MOST = 16  # blocks that are interleaved
ENOUGH = 8  # of which each keeps more than what they have in common
PANEL = 16  # blocks in a row of a panel
MEMORY = 1 << 17  # bytes that they may keep for themselves, so that these stay in the cache
FIRST_LEVEL = 1 << 15  # bytes of a first-level cache
AT_ONCE = FIRST_LEVEL // 2  # bytes of common arrays that a row goes through


@dataclass
class _Tiles:
    """Iterations of the loop over tiles that can be filled at once."""

    loop: BlockFor
    count: int
    fills: list[Region]  # of what blocks have in common
    last: Region  # what a block does with its tiles
    initial: Region | None  # sets what its threads start with, right before the loop
    after: list[Item]  # what it does right after the loop
    checks: list[str] = field(default_factory=list)  # when these hold, a block needs no own tiles
    directly: Region | None = None  # `last`, but reads memory instead of the block's own tiles


class Interleaver:
    """Decides how blocks are interleaved, for regions that are planned."""

    def __init__(self, regions: RegionPlanner, layout: Layout, common: Interleaving) -> None:
        self.regions, self.layout = regions, layout
        self.program, self.facts, self.items = regions.program, regions.facts, regions.items
        self.storage, self.kinds = regions.storage, regions.kinds
        self.axis, self.common = common.axis, common.common
        shared = {a.name for a in self.program.arrays.values() if a.space == "shared"}
        self.own = shared - self.common
        self.seen_as_views = passed_on(self.program, self.own)
        runs = list(self._runs(self.items))
        self.apart = self.seen_as_views | {
            name for name in self.own if not all(self._begins_anew(name, run) for run in runs)
        }
        self.together = self._how_many()
        self.edges: set[Region] = set()  # what only runs where some guard fails
        self.tiles = self._tiles() if self.pays else None

    @property
    def pays(self) -> bool:
        """Whether blocks gain from being interleaved."""
        return self.together > 1

    def plan(self) -> InterleavingPlan:
        return InterleavingPlan(self.axis, self.together, PANEL, sorted(self.apart))

    def copies(self) -> dict[str, int]:
        """Of which shared arrays there are several, and how many."""
        copies = dict.fromkeys(self.apart, self.together)
        if self.tiles is not None:
            copies |= dict.fromkeys(self.common, self.tiles.count)
        return copies

    # -- what is possible ------------------------------------------------------------------

    def _is_fill(self, item: Item) -> bool:
        return isinstance(item, Region) and bool(_stored(item) & self.common)

    def _is_once(self, item: Item) -> bool:
        """Whether something in `item` is done once for all blocks."""
        return any(isinstance(i, Scalars) or self._is_fill(i) for i in walk([item]))

    def _runs(self, items: list[Item]) -> Iterator[list[Item]]:
        """What a block goes through alone, piece by piece."""
        run: list[Item] = []
        for item in items:
            if not self._is_once(item):
                run.append(item)
                continue
            yield run
            run = []
            for inner in _inner_items(item).values():
                yield from self._runs(inner)
        yield run

    def _begins_anew(self, array: str, run: list[Item]) -> bool:
        """Whether `run` leaves nothing in a shared array of what was there before."""
        for item in run:
            regions = [r for r in walk([item]) if isinstance(r, Region)]
            if any(array in names(s) for r in regions for s in r.body):
                return isinstance(item, Region) and self._covers(item, array)
        return True

    def _covers(self, region: Region, array: str) -> bool:
        return covers(self.program, self.facts, region.body, array)

    def _how_many(self) -> int:
        """How many blocks are interleaved: as many as MEMORY has room for what each keeps.

        1 where that is more than what they have in common, unless the first-level cache holds it
        all: interleaving would evict it for little reuse.
        """
        arrays, threads = self.program.arrays, self.program.threads
        spilled = {name: spill_arrays(name, self.kinds[name]) for name in self.storage.spilled}
        kept = threads * sum(itemsize(kind) for parts in spilled.values() for _, kind in parts)
        kept += threads * sum(_size(arrays[name]) for name in self.layout.private)
        kept += sum(_size(arrays[name]) for name in self.apart)
        gained = kept <= self._common_size()
        most = min(MOST, (MEMORY if gained else FIRST_LEVEL) // max(kept, 1))
        return max(1, most) if gained or most >= ENOUGH else 1

    def _common_size(self) -> int:
        return sum(_size(self.program.arrays[name]) for name in self.common)

    # -- several iterations of the loop over tiles at a time -------------------------------

    def _tiles(self) -> _Tiles | None:
        """The loop over tiles, if several of its iterations can be filled at once.

        For loops in which blocks only read what they have in common, and memory.
        """
        around = [i for i, item in enumerate(self.items) if any(map(self._is_fill, walk([item])))]
        loop = self.items[around[0]]
        if len(around) != 1 or not isinstance(loop, BlockFor):
            return None
        pieces = [item for item in loop.body if not isinstance(item, CollectivePoint)]
        regions = [piece for piece in pieces if isinstance(piece, Region)]
        if len(regions) < len(pieces):
            return None
        *fills, last = regions
        common = [fill for fill in fills if self._is_fill(fill)]
        own = [fill for fill in fills if not self._is_fill(fill)]
        size = self._common_size()
        count = min(MOST, max(2, AT_ONCE // size))
        if 2 * size > FIRST_LEVEL or not self._only_reads(loop, common, own, last):
            return None
        initial = self._initial(around[0], common)
        after = list(takewhile(lambda i: not self._is_once(i), self.items[around[0] + 1 :]))
        tiles = _Tiles(loop, count, common, last, initial, after)
        if own and not self._do_without(tiles, own):
            return None
        return tiles

    def _only_reads(
        self, loop: BlockFor, common: list[Region], own: list[Region], last: Region
    ) -> bool:
        """Whether `last` only reads tiles, which the fills of one iteration make anew."""
        variables = set(self.facts.defs)
        filled = {a for f in common for a in self.common if self._covers(f, a)}
        carried = exposure(last.body, variables)[1] & self.storage.spilled
        here = {loop, *loop.body}
        elsewhere = [item for item in walk(self.items) if item not in here]
        tiles = {tile for fill in own for tile in _stored(fill)}
        versions = self.regions.versions.get(last)
        return not (
            filled != self.common
            or any(exposure(fill.body, variables)[0] & carried for fill in (*common, *own))
            or not _stored(last) <= set(self.layout.private)
            or names_in(last) & self.own - tiles
            or self.seen_as_views
            or not tiles <= self.own - self.apart
            or any(names_in(item) & self.common for item in elsewhere)
            or versions is None
            or versions.rows is None
            or versions.guard_free is not None
        )

    def _do_without(self, tiles: _Tiles, own: list[Region]) -> bool:
        """Whether, in blocks away from the edges, rows can read memory instead of the tiles that
        the regions `own` fill; records how."""
        body = clone(tiles.last.body)
        along_row = dependent_on({"_tx"}, self.program, self.program.body)
        for fill in own:
            versions = self.regions.versions.get(fill)
            written = exposure(fill.body, set(self.facts.defs))[1]
            if versions is None or versions.guard_free is None or written & self.storage.spilled:
                return False
            tiles.checks += versions.checks
            for tile in _stored(fill):
                source = self._source(versions.guard_free.plan.body, tile)
                if source is None or any(map(along_row.is_varying, reads_of(tile, body))):
                    return False
                body = source.instead_of_tile(body)
        rows = self.regions.best([*self.regions.rematerialised_before(body), *body])
        if rows is None:
            return False
        tiles.directly = Region(tiles.last.line, None, body)
        self.regions.versions[tiles.directly] = Versions(None, rows)
        if tiles.checks:  # what is left is for the edges: less to compile, and rows to leave out
            y = self.program.block[1]
            for at_edges in self.regions.versions[tiles.last].fast:
                at_edges.rows = min(at_edges.rows, max(y // 2, 1))
                while y % at_edges.rows:
                    at_edges.rows -= 1
        if len(own) == 1:  # or another one's guard failed
            self.edges.update(own)
        return True

    def _source(self, fill: list[ast.stmt], tile: str) -> Source | None:
        """The memory that `fill`, which has no guards, fills `tile` from."""
        last = [stmt for stmt in fill if tile in map(stored_array, statements([stmt]))][-1:]
        if not last or stored_array(last[0]) != tile:  # none, or in a loop
            return None
        *_, site = (site for site in self.facts.sites if stored_array(site.stmt) == tile)
        source = Source(self.program, self.facts, site, last[0])
        return source if source.is_known else None

    def _initial(self, loop: int, fills: list[Region]) -> Region | None:
        """What stands right before the `loop` in the items, if it only sets what threads keep.

        A row does that in the loop's first iteration: what it sets need not go through memory.
        """
        region = self.items[loop - 1] if loop else None
        if not isinstance(region, Region) or region.mask or not region.body:
            return None
        versions = self.regions.versions[region]
        plan = _inside(versions).plan
        keeps = set(self.layout.private)
        others = set(self.program.arrays) | set(self.program.params)
        written = exposure(region.body, set(self.facts.defs))[1]
        if (
            plan.rows > 1
            or plan.lanes < self.program.block[0]
            or versions.guard_free is not None
            or names_in(region) & (others - keeps)
            or any(names_in(fill) & (written | _stored(region)) for fill in fills)
        ):
            return None
        return region

    def _final(self, tiles: _Tiles) -> Region | None:
        """What comes right after the loop over tiles, if a row can do it without the others: it
        stores what is in registers, while the next rows compute."""
        region = tiles.after[0] if len(tiles.after) == 1 else None
        if not isinstance(region, Region) or region.mask or tiles.last.mask or not region.body:
            return None
        plan = _inside(self.regions.versions[region]).plan
        if (
            plan.rows > 1
            or plan.lanes < self.program.block[0]
            or names_in(region) & (self.own | self.common)
            or not _stored(region)
            <= {*self.layout.private, *self.program.given}  # or views of them
            or any(isinstance(stmt, ast.Expr | ast.Raise) for stmt in statements(region.body))
        ):
            return None
        return region

    def _final_checks(self, final: Region | None, at_once: Region) -> list[str]:
        """Where no thread of the block is at an edge, and nothing that `final` stores to is read by
        the rows that come later."""
        if final is None:
            return []
        given = set(self.program.given)
        stored = _stored(final) & given
        read = (given - stored) | (names_in(at_once) & given)  # also through views
        apart = self.program.extern(memory.apart, "apart")
        disjoint = [f"{apart}({a}, {b})" for a in sorted(stored) for b in sorted(read)]
        return [*self.regions.versions[final].checks, *disjoint]

    def _full(self, loop: BlockFor, at_once: Region) -> FullTiles | None:
        """Where a row's loop over `range(min(32, rest))` has all of its 32 iterations."""
        rows = self.regions.versions[at_once].rows
        assert rows is not None
        match row_version(self.regions, self.layout, rows, None).items:
            case [BlockFor(iter=ast.Call(args=[ast.Call() as length])) as inner]:
                pass
            case _:
                return None
        parts = arguments(self.program, length, LEAST)
        most = [part for part in parts if constant(part) is not None]
        rest = [part for part in parts if part not in most]
        known = {loop.target, *BLOCK, *GRID, *self.facts.scalars, *self.program.params}
        if len(most) != 1 or len(rest) != 1 or not names(rest[0]) <= known:
            return None
        full = ast.Compare(rest[0], [ast.GtE()], most)
        whole, part = replace(inner, iter=call("range", most[0])), replace(inner, hint=None)
        return FullTiles(full, whole, part)

    # -- the block's program ---------------------------------------------------------------

    def arranged(self) -> list[Item]:
        """The items of a block as those of interleaved blocks."""
        moved: set[Item | None] = set()
        if self.tiles is not None:
            moved = {self.tiles.initial, *self.tiles.after}
        return self._arranged([item for item in self.items if item not in moved])

    def _arranged(self, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        run: list[Item] = []
        for item in items:
            if not self._is_once(item):
                run.append(item)
                continue
            out += _for_each_block(run)
            run = []
            if self._is_fill(item):
                out.append(FirstBlock(item.line, None, item))
            elif self.tiles is not None and item is self.tiles.loop:
                out.append(self._tile_loop(self.tiles))
            else:
                inner = {name: self._arranged(i) for name, i in _inner_items(item).items()}
                out.append(replace(item, **inner) if inner else item)
        return out + _for_each_block(run)

    def _tile_loop(self, tiles: _Tiles) -> TileLoop:
        loop = tiles.loop
        bounds = loop.iter.args
        start, stop, step = {1: (None, *bounds, None), 2: (*bounds, None), 3: bounds}[len(bounds)]
        rest = [item for item in loop.body if item not in tiles.fills]
        at_once, one_by_one = ([tiles.directly], rest) if tiles.checks else (rest, [])
        row_by_row = next(item for item in at_once if isinstance(item, Region))
        final = self._final(tiles)
        return TileLoop(
            loop.line,
            None,
            target=loop.target,
            start=start,
            stop=stop,
            step=step,
            count=tiles.count,
            common=sorted(self.common),
            fills=[FirstBlock(fill.line, None, fill) for fill in tiles.fills],
            at_once=at_once,
            ahead=read_ahead(self.regions, self.regions.versions[row_by_row].rows),
            full=self._full(loop, row_by_row),
            initial=tiles.initial,
            initial_rows=self._row_version(tiles.initial),
            after=tiles.after,
            final_rows=self._row_version(final),
            final_checks=self._final_checks(final, row_by_row),
            checks=tiles.checks,
            one_by_one=one_by_one,
        )

    def _row_version(self, region: Region | None) -> RowVersion | None:
        """How a row, of which no thread is at an edge, goes through a region."""
        if region is None:
            return None
        rows = _inside(self.regions.versions[region])
        return row_version(self.regions, self.layout, rows, None, may_strip=False)


def _inside(versions: Versions) -> StoredRows:
    """The version for blocks of which no thread is at an edge."""
    found = versions.guard_free or versions.rows or versions.each_thread
    assert found is not None
    return found


def _inner_items(item: Item) -> dict[str, list[Item]]:
    """The lists of items directly inside `item`, by the name of their field."""
    found = {f.name: getattr(item, f.name) for f in fields(item)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, list) and value and isinstance(value[0], Item)
    }


def _for_each_block(run: list[Item]) -> list[Item]:
    """`run` for every block; as it is where threads do nothing in it."""
    if not any(isinstance(item, Region) for item in walk(run)):
        return run
    return [EachBlock(run[0].line, None, run)]


def _size(array: ArrayDecl) -> int:
    """Bytes of an array, or of one thread's part of it."""
    return math.prod(array.sizes) * itemsize(array.dtype)


def _stored(region: Region) -> set[str]:
    return stored_arrays(region.body)
