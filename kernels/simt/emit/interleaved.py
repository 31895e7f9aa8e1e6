"""The block's program for several blocks in step (see `step`).

What fills a common array is written once. The rest goes into loops over the blocks (`_j` counts
them) that reach from one fill to the next: there a block passes its own barriers alone, and finds
in the cache what it has just left in its own shared array.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from kernels.simt.analysis.ssa import clone
from kernels.simt.analysis.uniformity import dependent_on, exposure, has_loads
from kernels.simt.emit.emitter import Emitter, names_in
from kernels.simt.emit.rows import RowEmitter
from kernels.simt.ir import memory
from kernels.simt.ir.memory import ALIGNMENT, itemsize
from kernels.simt.ir.nodes import call, expressions, load, located, names, statements
from kernels.simt.ir.program import ArrayDecl
from kernels.simt.transforms.block_interleave import index_parts, needed, passed_on, stored_array
from kernels.simt.transforms.coverage import covers
from kernels.simt.transforms.fission import BlockFor, Item, Meet, Region, Scalars, walk
from kernels.simt.transforms.row_vectorise import RowPlan
from kernels.simt.transforms.storage import Storage
from kernels.simt.transforms.tile_forwarding import Source, reads_of

MOST = 8  # blocks in step
WIDE = 16  # blocks in a row of a panel
MEMORY = 1 << 17  # bytes that they may keep for themselves, so that these stay in the cache
AT_HAND = 1 << 14  # bytes of common arrays that a row goes through: half of a first-level cache


@dataclass
class Turns:
    """Turns of the loop over tiles that go together."""

    count: int
    fills: list[Region]  # of what blocks have in common
    last: Region  # what a block does with its tiles
    first: Region | None  # sets what its threads start with, right before the loop
    after: list[Item]  # what it does right after the loop, while its accumulators are at hand
    ahead: list[ast.stmt] = field(default_factory=list)  # brings what that stores to
    checks: list[str] = field(default_factory=list)  # when these hold, a block does without
    directly: Region | None = None  # its own tiles: `last`, but reads memory


class StepEmitter(Emitter):
    """Writes the function for a kernel whose neighbouring blocks keep step."""

    def __post_init__(self) -> None:
        self.in_step = self.program.in_step
        self.inside = False  # of a loop over the blocks
        self.around = ("_j",)
        self.in_turn = ""  # how many turns a row takes one after the other, if it does
        super().__post_init__()
        runs = list(self._runs(self.items))
        self.own = {a.name for a in self.program.arrays.values() if a.space == "shared"}
        self.own -= self.in_step.common
        self.seen_as_views = passed_on(self.program, self.own)
        self.apart = self.seen_as_views | {
            name for name in self.own if not all(self._begins_anew(name, run) for run in runs)
        }
        self.together = self._how_many()
        self.turns = self._turns()
        self.copies = dict.fromkeys(self.apart, self.together)
        if self.turns:
            self.copies |= dict.fromkeys(self.in_step.common, self.turns.count)

    # -- what is possible ------------------------------------------------------------------

    def _is_fill(self, item: Item) -> bool:
        return isinstance(item, Region) and bool(_stored(item) & self.in_step.common)

    def _fills_in(self, item: Item) -> bool:
        return any(map(self._is_fill, walk([item])))

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
            for inner in vars(item).values():
                if isinstance(inner, list) and inner and isinstance(inner[0], Item):
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
        """How many blocks go together: as many as MEMORY has room for what each keeps for itself.

        Where that is more than what they have in common, they go one by one, unless the
        first-level cache holds it all: it would leave the cache for little.
        """
        arrays = self.program.arrays
        kept = self.program.threads * sum(itemsize(self.kinds[n]) for n in self.storage.slots)
        for name in self.expressions.private:
            kept += self.program.threads * _size(arrays[name])
        kept += sum(_size(arrays[name]) for name in self.apart)
        most = max(1, min(MOST, MEMORY // max(kept, 1)))
        worthwhile = kept <= self._common_size() or kept * most <= 2 * AT_HAND
        return most if worthwhile else 1

    def _common_size(self) -> int:
        return sum(_size(self.program.arrays[name]) for name in self.in_step.common)

    # -- several turns of the loop at a time -----------------------------------------------

    def _turns(self) -> Turns | None:
        """The turns of the loop over tiles that are filled at once, each its own copy.

        A row of threads then keeps its accumulators in registers for as many tiles. For loops in
        which blocks only read what they have in common, and memory.
        """
        around = [i for i, item in enumerate(self.items) if self._fills_in(item)]
        loop = self.items[around[0]]
        if len(around) != 1 or not isinstance(loop, BlockFor):
            return None
        pieces = [item for item in loop.body if not isinstance(item, Meet)]
        if not all(isinstance(piece, Region) for piece in pieces):
            return None
        *fills, last = pieces
        common = [fill for fill in fills if self._is_fill(fill)]
        own = [fill for fill in fills if not self._is_fill(fill)]
        variables = set(self.facts.defs)
        filled = {a for f in common for a in self.in_step.common if self._covers(f, a)}
        carried = exposure(last.body, variables)[1] & self.storage.slots
        here = {id(item) for item in (loop, *loop.body)}
        elsewhere = [item for item in walk(self.items) if id(item) not in here]
        tiles = {tile for fill in own for tile in _stored(fill)}
        count = max(1, min(MOST, AT_HAND // self._common_size()))
        if (
            filled != self.in_step.common
            or any(exposure(fill.body, variables)[0] & carried for fill in fills)
            or not _stored(last) <= set(self.expressions.private)
            or names_in(last) & self.own - tiles
            or self.seen_as_views
            or not tiles <= self.own - self.apart
            or any(names_in(item) & self.in_step.common for item in elsewhere)
            or id(last) not in self.plans
            or id(last) in self.interiors
            or count == 1
        ):
            return None
        first = self._first(around[0], common)
        after = list(takewhile(lambda i: not self._is_once(i), self.items[around[0] + 1 :]))
        turns = Turns(count, common, last, first, after)
        if own and not self._do_without(turns, own):
            return None
        turns.ahead = self._ahead(after)
        return turns

    def _do_without(self, turns: Turns, own: list[Region]) -> bool:
        """Whether, in blocks away from the edges, rows can read memory in the place of the tiles
        that the regions `own` fill; notes how."""
        body = clone(turns.last.body)
        along_row = dependent_on({"_tx"}, self.program, self.program.body)
        for fill in own:
            interior = self.interiors.get(id(fill))
            written = exposure(fill.body, set(self.facts.defs))[1]
            if interior is None or written & self.storage.slots:
                return False
            turns.checks += interior[-1]
            for tile in _stored(fill):
                source = self._source(interior[0].body, tile)
                if source is None or any(map(along_row.is_varying, reads_of(tile, body))):
                    return False
                body = source.instead_of_tile(body)
        plan = self._best([*self._rebuilt_before(body), *body])
        if plan is None:
            return False
        turns.directly = Region(turns.last.line, None, body)
        self.plans[id(turns.directly)] = plan
        return True

    def _source(self, fill: list[ast.stmt], tile: str) -> Source | None:
        """The memory that `fill`, which has no guards, fills `tile` from."""
        last = [stmt for stmt in fill if tile in map(stored_array, statements([stmt]))][-1:]
        if not last or stored_array(last[0]) != tile:  # none, or in a loop
            return None
        *_, site = (site for site in self.facts.sites if stored_array(site.stmt) == tile)
        source = Source(self.program, self.facts, site, last[0])
        return source if source.is_known else None

    def _ahead(self, after: list[Item]) -> list[ast.stmt]:
        """What brings the memory that `after` stores to: it comes while rows still compute."""
        body: list[ast.stmt] = []
        for item in after:
            if isinstance(item, Region):
                body += [*self._rebuilt_before(item.body), *item.body]
        fetched = self.program.extern(memory.fetch, "fetch")
        body = needed(_fetches(clone(body), set(self.program.params), fetched), set())
        read = [expr for stmt in statements(body) for expr in expressions(stmt)]
        known_later = exposure(body, set(self.facts.defs))[0] - self.facts.scalars
        return [] if known_later or any(map(has_loads, read)) else body

    def _first(self, loop: int, fills: list[Region]) -> Region | None:
        """What stands right before the `loop` in the items, if it only sets what threads keep.

        A row does that in the loop's first turn: what it sets need not go through memory.
        """
        region = self.items[loop - 1] if loop else None
        if not isinstance(region, Region) or region.mask or not region.body:
            return None
        plan = self._plan_of(region)[0]
        keeps = set(self.expressions.private)
        others = set(self.program.arrays) | set(self.program.params)
        written = exposure(region.body, set(self.facts.defs))[1]
        if (
            plan.rows > 1
            or plan.lanes < self.program.block[0]
            or id(region) in self.interiors
            or names_in(region) & (others - keeps)
            or any(names_in(fill) & (written | _stored(region)) for fill in fills)
        ):
            return None
        return region

    def _plan_of(self, region: Region) -> tuple[RowPlan, Storage]:
        return self.plans.get(id(region)) or self.plain[id(region)]

    def _write_first(self, together: int) -> None:
        writer, depth = self.writer, self.writer.depth
        with writer.block("if _chunk == 0:"):
            if together > 1:
                writer.line(f"for _ty in range(_y0, _y0 + {together}):")
                writer.depth += 1
            plan, storage = self._plan_of(self.turns.first)
            RowEmitter(self, plan, storage, None, checks=False).write(plan.items)
        writer.depth = depth

    def write_BlockFor(self, item: BlockFor) -> None:
        turns = self.turns
        if turns is None or self.inside or turns.last not in item.body:
            super().write_BlockFor(item)
            return
        bounds = [self.expressions.text(arg) for arg in item.iter.args]
        start, stop, step = [["0", *bounds, "1"], [*bounds, "1"], bounds][len(bounds) - 1]
        line, block = self.writer.line, self.writer.block
        line(f"_turns = len(range({start}, {stop}, {step}))")
        with block(f"for _chunk in range(0, _max(_turns, 1), {turns.count}):"):
            line(f"_tiles = _min({turns.count}, _turns - _chunk)")
            begin = "" if start == "0" else f"({start}) + "
            self.this_turn = [f"{item.target} = {begin}(_chunk + _w) * ({step})"]
            self.this_turn += [f"{a} = _all_{a}[_u(_w)]" for a in sorted(self.in_step.common)]
            with block("for _w in range(_tiles):"):
                self._write_turn()
                for fill in turns.fills:
                    self._write_fill(fill)
            at_last = f"if _chunk + {turns.count} >= _turns:"
            with self._each_block():
                if turns.ahead:
                    with block(at_last):
                        self._write_ahead()
                self._write_turns([inner for inner in item.body if inner not in turns.fills])
                if turns.after:
                    with block(at_last):
                        self._write_inside(turns.after)

    def _write_ahead(self) -> None:
        """Loops over one thread of each cache line, where rows go along memory."""
        depth = self.writer.depth
        self.open_rows()
        widest = max(map(itemsize, self.program.dtypes.values()), default=ALIGNMENT)
        apart = max(1, ALIGNMENT // widest)
        self.writer.line(f"for _tx in range(0, {self.program.block[0]}, {apart}):")
        self.writer.depth += 1
        self.statements.write(self.turns.ahead)
        self.writer.depth = depth

    def _write_turns(self, items: list[Item]) -> None:
        """What a block does with tiles that are filled: `items`, turn by turn, or all at once."""
        turns, line, block = self.turns, self.writer.line, self.writer.block
        if not turns.checks:
            self._write_rows_in_turn(items, "_tiles")
            return
        line("_inside = 0  # turns in which no thread of the block is at an edge")
        with block("for _w in range(_tiles):"):
            line(self.this_turn[0])
            with block(f"if not ({' and '.join(turns.checks)}):"):
                line("break")
            line("_inside += 1")
        with block("if _inside > 0:"):
            self._write_rows_in_turn([turns.directly], "_inside")
        if turns.first is not None:
            with block("elif _chunk == 0:"):
                self._write_inside([turns.first])
        with block("for _w in range(_inside, _tiles):"):
            self._write_turn()
            self._write_inside(items)

    def _write_rows_in_turn(self, items: list[Item], turns: str) -> None:
        self.in_turn = turns
        self._write_inside(items)
        self.in_turn = ""

    def _write_turn(self) -> None:
        for text in self.this_turn:
            self.writer.line(text)

    def open_rows(self, together: int = 1) -> None:
        super().open_rows(together)
        if self.in_turn:
            if self.turns.first is not None:
                self._write_first(together)
            self.writer.line(f"for _w in range({self.in_turn}):")
            self.writer.depth += 1
            self._write_turn()

    # -- the function ----------------------------------------------------------------------

    def write_blocks(self) -> None:
        line = self.writer.line
        line("_turn = _first")
        with self.writer.block("while _turn < _last:"):
            for text in self._coordinates():
                line(text)
            self.write(self.items)
            line("_turn += _joined")

    def _coordinates(self) -> list[str]:
        """Where the blocks are that go next; those in step follow each other in the order.

        A panel of the grid is WIDE blocks wide; along y, a band of it is as tall as there are
        blocks in step.
        """
        panel = [
            "_bz = _turn // (_gx * _gy)",
            "_in_panel = _turn % (_gx * _gy)",
            f"_across = _in_panel // ({WIDE} * _gy) * {WIDE}",
            f"_wide = _min({WIDE}, _gx - _across)",
            "_in_panel -= _across * _gy",
        ]
        most = self.together
        if self.in_step.axis == "_by":
            return [
                *panel,
                f"_down = _in_panel // ({most} * _wide) * {most}",
                f"_tall = _min({most}, _gy - _down)",
                "_in_panel -= _down * _wide",
                "_bx = _in_panel // _tall + _across",
                "_by = _in_panel % _tall",
                "_joined = _min(_tall - _by, _last - _turn)",
                "_begin = _down + _by",
            ]
        return [
            *panel,
            "_by = _in_panel // _wide",
            "_bx = _in_panel % _wide",
            f"_joined = _min(_min({most}, _wide - _bx), _last - _turn)",
            "_begin = _across + _bx",
        ]

    def linear(self) -> str:
        return f"_j * {self.program.threads} + {super().linear()}"

    def write(self, items: list[Item]) -> None:
        if self.inside:
            super().write(items)
            return
        if self.turns:
            moved = {id(item) for item in (self.turns.first, *self.turns.after)}
            items = [item for item in items if id(item) not in moved]
        run: list[Item] = []
        for item in items:
            if not self._is_once(item):
                run.append(item)
                continue
            self._write_run(run)
            run = []
            if self._is_fill(item):
                self._write_fill(item)
            else:
                super().write([item])
        self._write_run(run)

    def _write_fill(self, item: Item) -> None:
        self.writer.line("# the first block, for all in step")
        self.writer.line("_j = 0")
        self.writer.line(f"{self.in_step.axis} = _begin")
        self._write_inside([item])

    def _write_run(self, run: list[Item]) -> None:
        if not any(isinstance(item, Region) for item in walk(run)):
            self._write_inside(run)
            return
        with self._each_block():
            self._write_inside(run)

    @contextlib.contextmanager
    def _each_block(self) -> Iterator[None]:
        with self.writer.block("for _j in range(_joined):"):
            self.writer.line(f"{self.in_step.axis} = _begin + _j")
            for name in sorted(self.apart):
                self.writer.line(f"{name} = _all_{name}[_u(_j)]")
            yield

    def _write_inside(self, items: list[Item]) -> None:
        self.inside = True
        super().write(items)
        self.inside = False


def _fetches(body: list[ast.stmt], params: set[str], fetched: str) -> list[ast.stmt]:
    """`body` with a call of `fetched` in the place of each store to one of `params`, and without
    other stores and `while` loops."""
    out: list[ast.stmt] = []
    for stmt in body:
        stored = stored_array(stmt)
        if isinstance(stmt, ast.While) or (stored is not None and stored not in params):
            continue
        for name in ("body", "orelse"):
            if isinstance(stmt, ast.If | ast.For):
                setattr(stmt, name, _fetches(getattr(stmt, name), params, fetched))
        if stored in params:
            place = ast.Tuple(index_parts(stmt.targets[0]), ast.Load())
            stmt = located(ast.Expr(call(fetched, load(stored), place)), stmt)
        out.append(stmt)
    return out


def _size(array: ArrayDecl) -> int:
    """Bytes of an array, or of one thread's part of it."""
    return math.prod(array.shape) * itemsize(array.dtype)


def _stored(region: Region) -> set[str]:
    return {stored_array(stmt) for stmt in statements(region.body)} - {None}
