"""Loop interchange in regions: the loops go outside, the threads of a row inside.

A row is a run of threads that are neighbours in x. A loop that all threads of a row count through
together is taken out of the loop over the row, so that the innermost loop is always over threads:
neighbouring threads touch neighbouring memory, and that is what a vector unit wants. It is fission
once more, with the row in the place of the block; accumulators become small arrays along the row.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from kernels.simt.analysis.affine import Affine
from kernels.simt.analysis.ranges import constant
from kernels.simt.analysis.uniformity import (
    Facts,
    _choose_scalars,
    dependent_on,
    has_effects,
    has_loads,
)
from kernels.simt.frontend.structure import has_jumps
from kernels.simt.ir.nodes import (
    BLOCK,
    HintedFor,
    Loop,
    PartIf,
    RowIf,
    assign,
    binary,
    bodies,
    clone,
    const,
    counter,
    load,
    located,
    names,
    range_arguments,
    statements,
    store,
)
from kernels.simt.ir.program import Program
from kernels.simt.transforms import register_tiles
from kernels.simt.transforms.columns import by_columns
from kernels.simt.transforms.far_apart import TOGETHER, reads_apart
from kernels.simt.transforms.fission import (
    NOT_FAR,
    BlockFor,
    BlockWhile,
    Context,
    Fission,
    Item,
    Region,
    line_of,
)
from kernels.simt.transforms.guarded_parts import computed_under_guards, guarded_parts
from kernels.simt.transforms.guards import strip_guards
from kernels.simt.transforms.short_loops import shallow_copy
from kernels.simt.transforms.storage import dominates, stays
from kernels.support import processor

LANE_LIMIT = 64  # threads that go through a region together: their accumulators fit in registers
STRIDE_LIMIT = 1024  # ... through grid-stride loops: all, for long runs of memory count for more
AT_ONCE = 4  # iterations of a grid-stride loop that only reads
WHOLE_BLOCK = 0  # in the place of a number of lanes: all threads of the block


@dataclass
class GuardIf(Item):
    """The statement `guard`: `body` where `everywhere` proves its test for the whole row, else
    `otherwise`."""

    guard: ast.If
    everywhere: ast.expr
    body: list[Item]
    otherwise: Item | None


@dataclass
class RowPlan:
    """The program of one row of threads."""

    items: list[Item]
    facts: Facts
    lanes: int
    body: list[ast.stmt] = field(default_factory=list)
    interchanged: bool = False
    rows: int = 1  # that go through it together
    sums: int = 0  # vectors that these accumulate into


class RowPlanner:
    """Decides what to take out of the loop over a row, for one region."""

    def __init__(self, program: Program, kinds, ranges, varying: set[str], outside: set[str]):
        self.program, self.kinds, self.ranges = program, kinds, ranges
        self.seed = varying  # what differs along a row on entry
        self.outside = outside  # variables that other regions use
        self.far = NOT_FAR  # of the region

    def plan(self, body: list[ast.stmt]) -> RowPlan | None:
        """The plan for a region's statements, or None if nothing is to be taken out."""
        body, limit = self.by_columns(body)
        lanes = self.lanes(min(STRIDE_LIMIT, limit))
        if (
            self.far.written
            or lanes < 8
            or not any(isinstance(s, ast.For | ast.While) for s in statements(body))
        ):
            return None
        split = self.split_strides(body, lanes)
        if split == body:
            if self.far.read:
                body = reads_apart(body, self.facts(body), self.kinds)
            lanes = self.lanes(min(TOGETHER if self.far.read else LANE_LIMIT, limit))
            split, lanes = self.in_registers(body, lanes)
        body = split
        facts = self.facts(body)
        interchanged = self.choose(body, facts, lanes)
        if not interchanged:
            return None
        items = RowFission(self.program, facts, self, lanes).split(body, Context())
        return RowPlan(items, facts, lanes, body, interchanged=True)

    def simple(self, body: list[ast.stmt]) -> RowPlan:
        """No loop taken out; what is common to a whole row is computed once, and guards that only
        some threads of it pass become bounds of loops of their own."""
        body, lanes = self.by_columns(body)
        body = computed_under_guards(self.program, body, self.outside)
        parts = guarded_parts(body) if lanes >= 8 else None
        if parts is None or not self._gain(parts, lanes):
            parts = [body]
        body = list(chain(*parts))
        facts = self.facts(body)
        _choose_scalars(facts)
        fission = RowFission(self.program, facts, self, lanes)
        items = [item for part in parts for item in fission.split(part, Context())]
        return RowPlan(items, facts, lanes, body)

    def _gain(self, parts: list[list[ast.stmt]], lanes: int) -> bool:
        """Whether all guards of the parts are bounds of a loop over the row, and some are for few
        rows or few threads only: no check decides them all at once for most rows."""
        body = list(chain(*parts))
        facts = self.facts(body)
        guards = [guard for *_, guard in parts if isinstance(guard, ast.If)]
        affines = [(guard, self.affine(facts, lanes, at=guard)) for guard in guards]
        clips = [affine.clip(guard.test, "_tx", factors=True) for guard, affine in affines]
        if None in clips:
            return False
        for_rows = {tuple(map(ast.unparse, clip.conditions)) for clip in clips if clip}
        left, _ = strip_guards(self.program, body, partial(self.affine, facts, lanes))
        return len(for_rows) > 1 or any(isinstance(stmt, ast.If) for stmt in statements(left))

    def plain(self, body: list[ast.stmt]) -> RowPlan:
        """Every thread by itself."""
        facts = self.facts(body)
        facts.scalars = set()
        region = Region(line_of(body[0]), None, body)
        return RowPlan([region], facts, self.program.block[0], body)

    def lanes(self, limit: int) -> int:
        """How many threads go through a region together: at most `limit`, rows in equal parts."""
        x = self.program.block[0]
        if x <= limit:
            return x
        return next((n for n in (256, 128, 64, 32, 16, 8) if n <= limit and x % n == 0), 1)

    def by_columns(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], int]:
        """`body` and the number of threads that go through it together: those of a row, where it
        makes rows of a line of threads."""
        x, y, z = self.program.block
        if y * z > 1 or self.program.cooperative:
            return body, x
        return by_columns(body, x, self.kinds) or (body, x)

    def in_registers(self, body: list[ast.stmt], lanes: int) -> tuple[list[ast.stmt], int]:
        """`body` and a number of threads whose accumulators fit in the registers."""
        floats, x = processor.vector_registers().floats, self.program.block[0]
        each = register_tiles.accumulated(body, self.program)
        if each * lanes > register_tiles.usable() and lanes > floats and x % floats == 0:
            lanes = floats
        return register_tiles.distributed(body, self.program, lanes), lanes

    def facts(self, body: list[ast.stmt], varying: set[str] | None = None) -> Facts:
        facts = dependent_on(self.seed if varying is None else varying, self.program, body)
        facts.collective = set()
        return facts

    # -- which loops -----------------------------------------------------------------------

    def choose(self, body: list[ast.stmt], facts: Facts, lanes: int) -> set[int]:
        """The ids of the statements that are taken out of the loop over the row."""
        refused: set[int] = set()
        while True:
            facts.collective = interchanged = set()
            self._interchange(body, facts, refused, interchanged, lanes)
            _choose_scalars(facts)
            wrong = {
                id(s)
                for s in statements(body)
                if id(s) in interchanged and not self._can_control(s, facts, lanes)
            }
            if not wrong:
                return interchanged
            refused |= wrong

    def _can_control(self, stmt: ast.stmt, facts: Facts, lanes: int) -> bool:
        if isinstance(stmt, ast.For):
            return facts.at_block_level(stmt.iter) and counter(stmt) in facts.scalars
        if facts.at_block_level(stmt.test) and not has_loads(self.program, stmt.test):
            return True
        return isinstance(stmt, ast.If) and self.guard(stmt, facts, lanes) is not None

    def guard(self, stmt: ast.If, facts: Facts, lanes: int) -> ast.expr | None:
        """When the test of an `if` without `else` holds for the whole row."""
        if stmt.orelse:
            return None
        return self.affine(facts, lanes, at=stmt).everywhere(stmt.test)

    def whole_block(self, facts: Facts, at: ast.stmt | None = None, more=None) -> Affine:
        """Reasoning over the positions of a block, before any of its threads has run."""
        return self.affine(facts, WHOLE_BLOCK, at, more)

    def affine(self, facts: Facts, lanes: int, at: ast.stmt | None = None, more=None) -> Affine:
        """Reasoning over the positions of a row (and the constant loops `more`) at a statement."""
        where = next((site for site in facts.sites if site.stmt is at), None)
        definitions = {
            name: sites[0].stmt.value
            for name, sites in facts.defs.items()
            if len(sites) == 1
            and name not in self.seed
            and isinstance(sites[0].stmt, ast.Assign)
            and (dominates(sites[0], where) if where else not sites[0].controls)
            and all(
                len(facts.defs[other]) == 1
                and other not in self.seed
                and stays(facts, other, sites[0])
                for other in names(sites[0].stmt.value) & set(facts.defs)
            )
        }
        if lanes < self.program.block[0]:
            ends = load("_x0"), binary(load("_x0"), ast.Add(), const(lanes - 1))
        else:
            ends = const(0), const(lanes - 1)
        box = {"_tx": ends, **(more or {})}
        if lanes == WHOLE_BLOCK:
            sizes = zip(("_tx", "_ty", "_tz"), self.program.block)
            box |= {name: (const(0), const(size - 1)) for name, size in sizes}

        def fixed(name: str) -> bool:
            if name in facts.varying or name in box:
                return False
            if lanes == WHOLE_BLOCK and self.program.cooperative and name in BLOCK:
                return False
            return name not in facts.defs or (name in facts.scalars and lanes != WHOLE_BLOCK)

        return Affine(box, definitions, self.kinds, fixed)

    def _interchange(
        self, body, facts: Facts, refused: set[int], interchanged: set[int], lanes: int
    ) -> bool:
        """Mark what to take out of `body`; False if a loop in it has to stay with its thread."""
        fine = True
        inner_interchanged = False
        for stmt in body:
            if isinstance(stmt, ast.For | ast.While):
                before = len(interchanged)
                good = self._interchange_loop(stmt, facts, refused, interchanged, lanes)
                fine &= good
                inner_interchanged |= len(interchanged) > before
            elif isinstance(stmt, ast.If):
                before = len(interchanged)
                good = True
                for inner in bodies(stmt):
                    good &= self._interchange(inner, facts, refused, interchanged, lanes)
                if len(interchanged) > before or isinstance(stmt, RowIf):
                    if id(stmt) in refused:
                        self._drop(stmt, interchanged)
                        good = False
                    else:
                        interchanged.add(id(stmt))
                fine &= good
        return fine

    def _interchange_loop(
        self, stmt, facts: Facts, refused: set[int], interchanged: set[int], lanes: int
    ) -> bool:
        if self.stays_inside(stmt):
            return True
        good = self._interchange(stmt.body, facts, refused, interchanged, lanes)
        plain = not has_jumps(stmt) and not getattr(stmt, "pre", None)
        control = stmt.iter if isinstance(stmt, ast.For) else stmt.test
        uniform = not facts.is_varying(control) and id(stmt) not in facts.divergent
        if good and plain and uniform and id(stmt) not in refused:
            interchanged.add(id(stmt))
            return True
        self._drop(stmt, interchanged)
        return False

    @staticmethod
    def _drop(stmt: ast.stmt, interchanged: set[int]) -> None:
        interchanged -= {id(inner) for inner in statements([stmt])}

    def stays_inside(self, stmt: ast.stmt) -> bool:
        """Whether a loop is to be unrolled inside of the loop over the row."""
        return isinstance(stmt, HintedFor)

    # -- grid-stride loops -----------------------------------------------------------------

    def split_strides(self, body: list[ast.stmt], lanes: int) -> list[ast.stmt]:
        """Loops that neighbouring threads run one step apart, as a common loop and a rest."""
        facts = self.facts(body)
        _choose_scalars(facts)
        return self._split(body, facts, lanes)

    def _split(self, body: list[ast.stmt], facts: Facts, lanes: int) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for stmt in body:
            parts = self._stride(stmt, facts, lanes) if isinstance(stmt, ast.For) else None
            if parts is not None:
                out += parts
                continue
            if isinstance(stmt, ast.If | ast.For):
                inner = [self._split(b, facts, lanes) for b in (stmt.body, stmt.orelse)]
                if [id(s) for b in inner for s in b] != [id(s) for s in stmt.body + stmt.orelse]:
                    new = shallow_copy(stmt)
                    new.body, new.orelse = inner
                    stmt = new
            out.append(stmt)
        return out

    def _stride(self, stmt: ast.For, facts: Facts, lanes: int) -> list[ast.stmt] | None:
        args = range_arguments(stmt)
        if len(args) != 3 or has_jumps(stmt) or not facts.is_varying(args[0]):
            return None
        start, stop, step = args
        name = counter(stmt)
        if facts.is_varying(stop) or facts.is_varying(step) or has_calls(stop):
            return None
        if has_loads(self.program, stop):
            return None
        if not self.ranges.positive(step) or name in self.outside:
            return None
        if any(site.stmt is not stmt for site in facts.defs[name]):
            return None
        if any(stmt not in use.controls for use in facts.uses.get(name, [])):
            return None
        affine = self.affine(facts, lanes, at=stmt)
        slope = affine.slope(start, "_tx")
        if slope is None or slope < 1:
            return None
        base = self.program.fresh("base")
        self.kinds[base] = self.kinds.get(name)
        self.ranges.known |= {base} if self.ranges.nonnegative(start) else set()
        first = affine.at(start, {"_tx": affine.box["_tx"][0]})
        span = const(slope * (lanes - 1))
        here = binary(load("_tx"), ast.Sub(), affine.box["_tx"][0])
        if isinstance(affine.box["_tx"][0], ast.Constant):
            here = load("_tx")
        here = here if slope == 1 else binary(here, ast.Mult(), const(slope))
        mine = binary(load(base), ast.Add(), here)
        test = ast.Compare(binary(load(base), ast.Add(), span), [ast.Lt()], [stop])
        step_on = assign(base, binary(load(base), ast.Add(), step), stmt)
        common = located(
            Loop(test, [assign(name, mine, stmt), *self._split(stmt.body, facts, lanes), step_on]),
            stmt,
        )
        begun = [assign(base, first, stmt), *self._several_at_once(stmt, base, here, span, args)]
        if self.ranges.at_least(step, slope * (lanes - 1) + 1):  # at most one step is left
            mine = clone(mine)
            inside = ast.Compare(clone(mine), [ast.Lt()], [clone(stop)])  # a bound of the threads
            once = located(PartIf(inside, clone(stmt.body), []), stmt)
            some = ast.Compare(load(base), [ast.Lt()], [clone(stop)])
            rest = located(RowIf(some, [assign(name, mine, stmt), once], []), stmt)
            return [*begun, common, rest]
        rest = ast.For(
            store(name),
            ast.Call(load("range"), [clone(mine), clone(stop), clone(step)], []),
            clone(stmt.body),
            [],
        )
        return [*begun, common, located(rest, stmt)]

    def _several_at_once(
        self, stmt: ast.For, base: str, here: ast.expr, span: ast.expr, args: list[ast.expr]
    ) -> list[ast.stmt]:
        """The loop that goes before the common one where iterations only read: each thread runs
        AT_ONCE of them in a row. Its sums stay in registers meanwhile, and as many runs of memory
        are under way; they are far apart, and no processor prefetches one after the other."""
        _, stop, step = args
        if constant(step) is not None or not self._only_reads(stmt.body):
            return []

        def later(iterations: int) -> ast.expr:
            distance = binary(const(iterations), ast.Mult(), clone(step))
            return binary(load(base), ast.Add(), distance) if iterations else load(base)

        body: list[ast.stmt] = []
        for iteration in range(AT_ONCE):
            mine = binary(later(iteration), ast.Add(), clone(here))
            body += [assign(counter(stmt), mine, stmt), *map(clone, stmt.body)]
        body.append(assign(base, later(AT_ONCE), stmt))
        last = binary(later(AT_ONCE - 1), ast.Add(), clone(span))
        return [located(Loop(ast.Compare(last, [ast.Lt()], [clone(stop)]), body), stmt)]

    def _only_reads(self, body: list[ast.stmt]) -> bool:
        """Whether statements read memory, and change nothing but variables."""
        values = [stmt.value for stmt in body if isinstance(stmt, ast.Assign)]
        if len(values) < len(body) or any(has_effects(self.program, stmt) for stmt in body):
            return False
        return any(has_loads(self.program, value) for value in values)


class RowFission(Fission):
    """Fission of a region at the interchanged statements."""

    def __init__(self, program: Program, facts: Facts, planner: RowPlanner, lanes: int) -> None:
        super().__init__(program, facts)
        self.planner, self.lanes = planner, lanes

    def around_collective(self, stmt: ast.stmt, at: Context) -> list[Item]:
        inside = at.but(in_loop=True)
        match stmt:
            case ast.For():
                return [
                    BlockFor(
                        line_of(stmt),
                        None,
                        counter(stmt),
                        stmt.iter,
                        self.split(stmt.body, inside),
                    )
                ]
            case ast.While():
                return [
                    BlockWhile(line_of(stmt), None, [], stmt.test, self.split(stmt.body, inside))
                ]
            case ast.If() if not self.facts.at_block_level(stmt.test) or has_loads(
                self.program, stmt.test
            ):
                everywhere = self.planner.guard(stmt, self.facts, self.lanes)
                otherwise = Region(line_of(stmt), None, [clone(stmt)], at.in_loop)
                body = self.split(stmt.body, at)
                return [GuardIf(line_of(stmt), None, stmt, everywhere, body, otherwise)]
        return super().around_collective(stmt, at)


def has_calls(expr: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(expr))
