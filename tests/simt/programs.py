"""Random kernels for property tests of the compiler's analyses, and their normal form.

All numbers are integers. Threads write elements of their own, and read those of others only
between two barriers, so the order in which threads run does not matter. No division is by zero.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType

from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from numba import int64, types

from kernels.simt import cuda
from kernels.simt.driver import pipeline
from kernels.simt.frontend import frontend
from kernels.simt.ir.program import Program
from kernels.simt.transforms.canonicalise import prepare
from tests.simt.model import Memory, Watch, run_threads

BLOCK = (3, 2, 1)
INPUTS = 5  # elements of the array `x`
RESULTS = 6  # elements of each thread in `out`
RESULT = f"out[{BLOCK[0]} * y + t, {{}}]"
OWN = ("a", "b", "c", "d")  # variables of a thread
LATE = ("e", "f")  # of a thread, too, and without a value at first
KINDS = {"x": types.int64[::1], "out": types.int64[:, ::1], "n": types.int64, "q": types.int64}
_numbers = itertools.count()

#: the settings of a property test: the same examples in every run
PROPERTY = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    phases=[Phase.generate],  # shrinking a kernel takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def function(text: str) -> FunctionType:
    """The function `kernel` that the text defines, with a source that can be read."""
    name = f"<random kernel {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict = {"cuda": cuda, "int64": int64}
    exec(compile(text, name, "exec"), space)
    return space["kernel"]


def normal_form(text: str, kinds: dict[str, types.Type] = KINDS, block=BLOCK) -> Program:
    """The kernel as one thread runs it, with a name for every web of its variables."""
    return pipeline.normal_form(function(text), tuple(kinds.values()), block, False)[0]


def before_renaming(text: str, kinds: dict[str, types.Type] = KINDS, block=BLOCK) -> Program:
    """The kernel as one thread runs it, with the names that its author gave."""
    program = frontend.build(function(text), block, kinds, False)
    prepare(program)
    return program


@dataclass
class _Scope:
    """Where a statement stands."""

    uniform: bool  # all threads of the block run it
    depth: int = 0
    in_loop: bool = False


@dataclass
class _Author:
    """Writes a kernel, line by line."""

    draw: st.DrawFn
    barriers: bool
    lines: list[str] = field(default_factory=list)
    agreed: list[str] = field(default_factory=lambda: ["n", "q", "u", "v"])  # same in all threads
    readable: list[str] = field(default_factory=lambda: ["n", "q", "t", "y", *OWN])
    loops: int = 0

    def one_of(self, *choices):
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def line(self, scope: _Scope, text: str) -> None:
        self.lines.append("    " * (scope.depth + 1) + text)

    def expression(self, uniform: bool, size: int = 2) -> str:
        """The text of an integer expression; a uniform one is the same in all threads."""
        kind = self.number(0, 9) if size else self.number(0, 1)
        if kind == 0:
            return str(self.number(-3, 6))
        if kind == 1:
            return self.one_of(*(self.agreed if uniform else self.readable))
        a = self.expression(uniform, size - 1)
        if kind == 2:
            return f"x[({a}) % {INPUTS}]"
        if kind == 3:
            by = self.one_of("1", "2", "3", "-2", f"max(1, {self.expression(uniform, 0)})")
            return f"(({a}) {self.one_of('//', '%')} {by})"
        if kind == 4:
            return f"(({a}) {self.one_of('<<', '>>')} {self.number(0, 2)})"
        if kind == 5:
            return self.one_of(f"-({a})", f"abs({a})", f"int({self.test(uniform, size - 1)})")
        b = self.expression(uniform, size - 1)
        if kind == 6:
            return f"{self.one_of('min', 'max')}({a}, {b})"
        if kind == 7:
            return self.one_of(
                f"(({a}) if {self.test(uniform, 0)} else ({b}))", f"(({a}) or ({b}))"
            )
        return f"(({a}) {self.one_of('+', '-', '*', '&', '|', '^')} ({b}))"

    def test(self, uniform: bool, size: int = 1) -> str:
        a, b = self.expression(uniform, size), self.expression(uniform, 0)
        test = f"{a} {self.one_of('<', '<=', '>', '>=', '==', '!=')} {b}"
        if size and self.number(0, 3) == 0:
            other = self.test(uniform, size - 1)
            test = self.one_of(f"not ({test})", f"({test} and {other})", f"({test} or {other})")
        return test

    def statements(self, scope: _Scope, count: int) -> None:
        for _ in range(count):
            kinds = ["assign", "assign", "assign", "store", "augment"]
            if scope.depth < 2:
                kinds += ["if", "if", "for", "while"]
            if scope.in_loop:
                kinds += ["jump"]
            if self.barriers and scope.uniform:
                kinds += ["exchange", "exchange", "vote", "agreed"]
            getattr(self, f"write_{self.one_of(*kinds)}")(scope)

    def write_assign(self, scope: _Scope) -> None:
        name = self.one_of(*OWN, *LATE)
        self.line(scope, f"{name} = {self.expression(False)}")
        if name not in self.readable:
            self.readable.append(name)

    def write_augment(self, scope: _Scope) -> None:
        self.line(scope, f"{self.one_of(*OWN)} {self.one_of('+=', '-=')} {self.expression(False)}")

    def write_agreed(self, scope: _Scope) -> None:
        self.line(scope, f"{self.one_of('u', 'v')} = {self.expression(True)}")

    def write_store(self, scope: _Scope) -> None:
        self.line(scope, f"{RESULT.format(self.number(0, RESULTS - 1))} = {self.expression(False)}")

    def write_exchange(self, scope: _Scope) -> None:
        """Reads a value of another thread."""
        away, row = self.number(0, BLOCK[0] - 1), self.one_of("y", "1 - y")
        self.line(scope, f"tile[y, t] = {self.expression(False)}")
        self.line(scope, "cuda.syncthreads()")
        self.line(scope, f"{self.one_of(*OWN)} = tile[{row}, (t + {away}) % {BLOCK[0]}]")
        self.line(scope, "cuda.syncthreads()")

    def write_vote(self, scope: _Scope) -> None:
        vote, test = self.one_of("count", "and", "or"), self.test(False)
        name = self.one_of("u", *OWN)
        self.line(scope, f"{name} = int(cuda.syncthreads_{vote}({test}))")

    def write_jump(self, scope: _Scope) -> None:
        self.line(scope, f"if {self.test(scope.uniform and self.barriers)}:")
        self.line(scope, f"    {self.one_of('break', 'continue')}")

    def write_return(self, scope: _Scope) -> None:
        self.line(scope, f"if {self.test(False)}:")
        self.line(scope, "    return")

    def write_if(self, scope: _Scope) -> None:
        kind = self.one_of("uniform", "true of all", "of a thread")
        uniform = scope.uniform and self.barriers and kind != "of a thread"
        test = self.test(uniform)
        if uniform and kind == "true of all":  # though nothing shows it
            test = f"t < {BLOCK[0]} + abs({self.expression(True, 0)})"
        inside = _Scope(uniform, scope.depth + 1, scope.in_loop)
        self.line(scope, f"if {test}:")
        self.statements(inside, self.number(1, 3))
        if self.one_of(True, False):
            self.line(scope, "else:")
            self.statements(inside, self.number(1, 2))

    def write_for(self, scope: _Scope) -> None:
        uniform = scope.uniform and self.barriers
        count = f"({self.expression(uniform, 1)}) % 4"
        first = self.one_of("0", "1", "-2", self.expression(uniform, 0))
        ends = self.one_of(count, f"{first}, {first} + {count}", "3, -1, -1", "2")
        counter = self.counter("k", uniform)
        self.line(scope, f"for {counter} in range({ends}):")
        self.statements(_Scope(uniform, scope.depth + 1, True), self.number(1, 3))
        self.leave(counter)

    def write_while(self, scope: _Scope) -> None:
        uniform = scope.uniform and self.barriers
        count = f"({self.expression(uniform, 1)}) % 4"
        counter = self.counter("w", uniform)
        self.line(scope, f"{counter} = {count}")
        self.line(scope, f"while {counter} > 0:")
        self.line(scope, f"    {counter} -= 1")
        self.statements(_Scope(uniform, scope.depth + 1, True), self.number(1, 3))
        self.leave(counter)

    def counter(self, letter: str, uniform: bool) -> str:
        """The name of a loop's counter, which only the loop assigns."""
        self.loops += 1
        name = f"{letter}{self.loops}"
        self.readable.append(name)
        if uniform:
            self.agreed.append(name)
        return name

    def leave(self, counter: str) -> None:
        """After the loop a counter can be read, if not all threads need to have one."""
        if counter in self.agreed:
            self.agreed.remove(counter)


@st.composite
def kernels(draw: st.DrawFn, barriers: bool = False) -> str:
    """The text of a kernel."""
    author, top = _Author(draw, barriers), _Scope(uniform=True)
    for name in OWN:
        author.line(top, f"{name} = {author.one_of('n', 'q', 't', '0', '-3', '5')}")
    author.line(top, f"u, v = {author.one_of('n, q', '0, n', 'q, 3')}")
    author.statements(top, author.number(2, 5))
    if author.one_of(True, False):
        author.write_return(top)
    author.statements(top, author.number(1, 4))
    for slot, name in enumerate(OWN):
        author.line(top, f"{RESULT.format(slot)} = {name}")
    head = ["def kernel(x, out, n, q):", f"    tile = cuda.shared.array({BLOCK[1::-1]}, int64)"]
    head += ["    t, y = cuda.threadIdx.x, cuda.threadIdx.y"]
    return "\n".join(head + author.lines) + "\n"


def fault_is_found(check: Callable[..., None], *strategies: st.SearchStrategy) -> bool:
    """Whether the check fails for one of the examples."""
    once = settings(PROPERTY, report_multiple_bugs=False, print_blob=False)

    def run(example: tuple) -> None:
        check(*example)

    try:
        once(given(st.tuples(*strategies))(run))()
    except HypothesisException:
        raise
    except Exception:
        return True
    return False


def arguments(values: dict) -> dict:
    """What a kernel is called with, of what `inputs` gives."""
    out = Memory((BLOCK[0] * BLOCK[1], RESULTS))
    return {**values, "x": Memory((INPUTS,), values["x"]), "out": out}


def results(program: Program, values: dict, watch: Watch | None = None) -> dict:
    """What the threads of a block store. A kernel that reads what has no value is no example."""
    given = arguments(values)
    try:
        run_threads(program, given, watch)
    except NameError:
        reject()
    return given["out"].values


def inputs() -> st.SearchStrategy[dict]:
    """Values of the parameters; `n` is never negative."""
    return st.fixed_dictionaries(
        {
            "x": st.lists(st.integers(-4, 6), min_size=INPUTS, max_size=INPUTS),
            "n": st.integers(0, 6),
            "q": st.integers(-5, 5),
        }
    )
