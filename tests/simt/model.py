"""Normal forms run in Python, thread by thread: what property tests compare the compiler with.

`run_threads` keeps each thread's variables to itself and lets threads wait at barriers, as CUDA
says. `Block` runs what fission made of the kernel, with variables only where the compiler's storage
plan has them. Numbers are Python's integers.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from kernels.simt.analysis.uniformity import Facts, exposure
from kernels.simt.ir.nodes import BLOCK, GRID, THREAD, Collective, Loop, names
from kernels.simt.ir.program import Program
from kernels.simt.transforms.fission import Item
from kernels.simt.transforms.storage import Storage

TURNS = 100  # more than any `while` of these kernels makes
FUNCTIONS = {"minimum": min, "maximum": max}
VOTES = {
    "syncthreads_count": lambda given: sum(map(bool, given)),
    "syncthreads_and": lambda given: int(all(given)),
    "syncthreads_or": lambda given: int(any(given)),
}


class Memory:
    """An array: a value by index. An index outside of the shape is an error."""

    def __init__(self, shape: tuple[int, ...], values=()) -> None:
        self.shape = shape
        self.values = dict(enumerate(values)) if values else {}

    def _checked(self, index):
        parts = index if isinstance(index, tuple) else (index,)
        assert len(parts) == len(self.shape), (index, self.shape)
        assert all(0 <= i < n for i, n in zip(parts, self.shape)), (index, self.shape)
        return index

    def __getitem__(self, index):
        return self.values.get(self._checked(index), 0)

    def __setitem__(self, index, value) -> None:
        self.values[self._checked(index)] = value


@dataclass
class Moment:
    """An expression is evaluated by a thread: where, when, and with which variables."""

    stmt: ast.stmt
    expr: ast.expr
    turn: tuple[int, ...]  # of each loop around it
    around: tuple[tuple[ast.expr, bool], ...]  # conditions of the `if`s around it
    env: dict


Watch = Callable[[Moment], None]


@dataclass
class Runner:
    """Runs statements of a normal form."""

    watch: Watch | None = None
    codes: dict[int, tuple] = field(default_factory=dict)

    def value(self, expr: ast.expr, env: dict):
        """The value of an expression."""
        if id(expr) not in self.codes:
            tree = ast.fix_missing_locations(ast.Expression(expr))
            self.codes[id(expr)] = (compile(tree, "<expression>", "eval"), expr)
        return eval(self.codes[id(expr)][0], env)

    def see(self, stmt, expr, turn, around, env):
        if self.watch is not None:
            self.watch(Moment(stmt, expr, turn, around, env))
        return self.value(expr, env)

    def block(self, body, env, turn=(), around=()) -> Generator[tuple, int, str | None]:
        """Run the statements; yields (collective, turn, what the thread brings) at each."""
        for stmt in body:
            jump = yield from self.statement(stmt, env, turn, around)
            if jump:
                return jump
        return None

    def statement(self, stmt, env, turn, around):
        match stmt:
            case Collective():
                given = [self.see(stmt, arg, turn, around, env) for arg in stmt.args]
                result = yield stmt, turn, given
                if stmt.dest is not None:
                    env[stmt.dest.id] = result
            case ast.If():
                holds = bool(self.see(stmt, stmt.test, turn, around, env))
                inside = (*around, (stmt.test, holds))
                return (
                    yield from self.block(stmt.body if holds else stmt.orelse, env, turn, inside)
                )
            case ast.For():
                for k, counter in enumerate(self.see(stmt, stmt.iter, turn, around, env)):
                    env[stmt.target.id] = counter
                    if (yield from self.block(stmt.body, env, (*turn, k), around)) == "break":
                        break
            case ast.While():
                yield from self.loop(stmt, env, turn, around)
            case ast.Assign(targets=[ast.Name(id=name)]):
                env[name] = self.see(stmt, stmt.value, turn, around, env)
            case ast.Assign(targets=[ast.Subscript(value=array, slice=index)]):
                value = self.see(stmt, stmt.value, turn, around, env)
                where = self.see(stmt, index, turn, around, env)
                self.value(array, env)[where] = value
            case ast.Break() | ast.Continue():
                return type(stmt).__name__.lower()
            case ast.Pass():
                pass
            case _:
                raise NotImplementedError(ast.dump(stmt))
        return None

    def loop(self, stmt: ast.While, env, turn, around):
        for k in range(TURNS):
            here = (*turn, k)
            if isinstance(stmt, Loop):
                yield from self.block(stmt.pre, env, here, around)
            if not self.see(stmt, stmt.test, here, around, env):
                return
            if (yield from self.block(stmt.body, env, here, around)) == "break":
                return
        raise AssertionError("this loop does not end")


def surroundings(program: Program, arguments: dict) -> dict:
    """What every thread of a block can read: arguments, functions, coordinates, shared arrays."""
    functions = {name: FUNCTIONS[value.__name__] for name, value in program.externs.items()
                 if getattr(value, "__name__", "") in FUNCTIONS}  # fmt: skip
    env = {**functions, **arguments, **dict.fromkeys(BLOCK, 0), **dict.fromkeys(GRID, 1)}
    return {a.name: Memory(a.shape) for a in program.arrays.values()} | env


def positions(program: Program) -> list[dict[str, int]]:
    """The coordinates of the threads of a block, x first."""
    sizes = [range(n) for n in reversed(program.block)]
    return [dict(zip(THREAD, reversed(place))) for place in itertools.product(*sizes)]


def run_threads(program: Program, arguments: dict, watch: Watch | None = None) -> None:
    """Run a block: every thread by itself from one barrier to the next."""
    runner, shared = Runner(watch), surroundings(program, arguments)
    threads = [runner.block(program.body, {**shared, **at}) for at in positions(program)]
    answers: dict[int, int | None] = dict.fromkeys(range(len(threads)))
    while answers:
        waiting = {}
        for number, answer in answers.items():
            try:
                waiting[number] = threads[number].send(answer)
            except StopIteration:
                continue
        assert len({(id(stmt), turn) for stmt, turn, _ in waiting.values()}) <= 1, "divergent"
        answers = dict.fromkeys(waiting, vote([*waiting.values()]))


def vote(waiting: list[tuple]) -> int | None:
    """What a barrier tells the threads that wait at it: (barrier, turn, what the thread brings)."""
    if not waiting or waiting[0][0].kind not in VOTES:
        return None
    return VOTES[waiting[0][0].kind](given[0] for _, _, given in waiting)


@dataclass
class Block:
    """Runs the items that fission made. A thread's variable is a local of the item that assigns it,
    unless the storage plan says otherwise: a local that was not assigned is an error."""

    program: Program
    facts: Facts
    storage: Storage
    arguments: dict

    def __post_init__(self) -> None:
        self.runner = Runner()
        self.shared = surroundings(self.program, self.arguments)
        self.threads = positions(self.program)
        self.kept: list[dict] = [{} for _ in self.threads]  # what each thread has spilled
        self.variables = set(self.facts.defs) - self.facts.scalars

    def run(self, items: list[Item]) -> None:
        for item in items:
            getattr(self, f"run_{type(item).__name__}")(item)

    def present(self, mask: str | None) -> list[int]:
        """The threads that run an item."""
        return [k for k, kept in enumerate(self.kept) if mask is None or kept[mask]]

    def thread(self, number: int, reads: set[str], zeroed: set[str] = frozenset()) -> dict:
        """What thread `number` has before it runs what reads these variables."""
        env = {**self.shared, **self.threads[number], **dict.fromkeys(zeroed, 0)}
        env |= {name: v for name, v in self.kept[number].items() if name in self.storage.spilled}
        done: set[str] = set()

        def compute(name: str) -> None:
            stmt = self.storage.rematerialised.get(name)
            if stmt is not None and name not in done:
                done.add(name)
                for other in sorted(names(stmt.value) & self.variables):
                    compute(other)
                env[name] = self.runner.value(stmt.value, env)

        for name in sorted(reads):
            compute(name)
        return env

    def keep(self, number: int, env: dict) -> None:
        self.kept[number] |= {name: env[name] for name in self.storage.spilled if name in env}

    def straight(self, body: list, env: dict) -> None:
        """Run statements without barriers."""
        for _ in self.runner.block(body, env):
            raise AssertionError("a barrier inside of a region")

    def run_Region(self, item) -> None:
        reads = exposure(item.body, self.variables)[0]
        for number in self.present(item.mask):
            env = self.thread(number, reads, self.storage.zeroed.get(item, set()))
            self.straight(item.body, env)
            self.keep(number, env)

    def run_Scalars(self, item) -> None:
        self.straight(item.body, self.shared)

    def run_BlockIf(self, item) -> None:
        self.run(item.body if self.runner.value(item.test, self.shared) else item.orelse)

    def run_BlockFor(self, item) -> None:
        for counter in self.runner.value(item.iter, self.shared):
            self.shared[item.target] = counter
            self.run(item.body)

    def run_BlockWhile(self, item) -> None:
        self.run(item.pre)
        for _ in range(TURNS):
            if not self.runner.value(item.test, self.shared):
                return
            self.run(item.body)
            self.run(item.pre)
        raise AssertionError("this loop does not end")

    def decide(self, mask: str | None, test) -> dict[int, bool]:
        reads = names(test) & self.variables
        here = self.present(mask)
        return {k: bool(self.runner.value(test, self.thread(k, reads))) for k in here}

    def run_MaskIf(self, item) -> None:
        decided = self.decide(item.mask, item.test)
        for side, mask, body in ((True, item.taken, item.body), (False, item.other, item.orelse)):
            if mask is not None:
                for number, kept in enumerate(self.kept):
                    kept[mask] = decided.get(number) is side
                if self.present(mask):
                    self.run(body)

    def run_MaskWhile(self, item) -> None:
        here = self.present(item.mask)
        for number, kept in enumerate(self.kept):
            kept[item.taken] = number in here
        for _ in range(TURNS):
            self.run(item.pre)
            for number, holds in self.decide(item.taken, item.test).items():
                self.kept[number][item.taken] = holds
            if not self.present(item.taken):
                return
            self.run(item.body)
        raise AssertionError("this loop does not end")

    def run_CollectivePoint(self, item) -> None:
        here = self.present(item.mask)
        assert here == self.present(item.live), "divergent"
        reads = set().union(*(names(arg) for arg in item.stmt.args)) & self.variables
        brought = [
            (item.stmt, (), [self.runner.value(a, self.thread(k, reads)) for a in item.stmt.args])
            for k in here
        ]
        if item.stmt.dest is not None and here:
            name, result = item.stmt.dest.id, vote(brought)
            if name in self.facts.scalars:
                self.shared[name] = result
            for number in here:
                self.keep(number, {name: result})
