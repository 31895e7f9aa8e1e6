"""Random kernels of another style, and a reference that runs them thread by thread.

Where `fuzz` writes one-dimensional kernels with small exact numbers, these have blocks of two or
three dimensions, barriers inside `while` loops with `break` and `continue`, device functions with
barriers and loops of their own, votes of the block, local arrays, atomics, early returns, and
integers of all widths that overflow, shift, divide and are cast.

A kernel is free of races by construction: a thread touches its own element of a shared array, and
reads others' only between two barriers that all live threads reach. Conditions of loops around
barriers are the same in all threads, though a compiler may not see that.

The reference shares nothing with the compiler: the same text, in which a barrier is a `yield`, runs
as one generator per thread, on integers that know their width (`Int`). Where a signed sum or
product leaves 64 bits, Numba's result is undefined (LLVM may take `8 * x <= y` for `x <= y // 8`):
such a kernel is run, and not compared.
"""

from __future__ import annotations

import dataclasses
import linecache
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

BLOCKS = [(4, 3), (8, 2), (3, 5), (16, 2), (2, 3, 2), (5, 1, 3), (7, 4), (32, 2), (1, 6)]
GRIDS = [(1,), (2,), (2, 2), (3, 1)]
WIDTHS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
ATOMIC = ["int32", "int64", "uint32", "uint64"]

# -- the reference -----------------------------------------------------------------------------


class Int:
    """An integer of a width, with Numba's rules: operations of two have 64 bits, wrap around, and
    are unsigned if both operands are; a shift takes the sign of what is shifted. A minus and a
    complement have 64 bits too, but are computed in the operand's. `overflows` counts signed sums,
    differences and products that do not fit, which are undefined."""

    __slots__ = ("bits", "signed", "value")
    overflows = 0

    def __init__(self, value: Any, bits: int = 64, signed: bool = True) -> None:
        value = int(value) & (1 << bits) - 1
        if signed and value >> bits - 1:
            value -= 1 << bits
        self.value, self.bits, self.signed = value, bits, signed

    def __index__(self) -> int:
        return self.value

    __int__ = __index__

    def __bool__(self) -> bool:
        return self.value != 0

    def __hash__(self) -> int:
        return hash(self.value)

    def _with(self, other: Any, function: Callable[[int, int], int]) -> Int:
        other = other if isinstance(other, Int) else Int(other)
        signed = self.signed or other.signed
        wide = {x.bits for x in (self, other) if not x.signed}
        assert not (signed and 64 in wide), "uint64 with a signed integer is float64 in Numba"
        value = function(self.value, other.value)
        Int.overflows += signed and not -(2**63) <= value < 2**63
        return Int(value, 64, signed)

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other):
        return Int(other) - self

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __floordiv__(self, other):
        return self._with(other, lambda a, b: a // b)

    def __mod__(self, other):
        return self._with(other, lambda a, b: a % b)

    def __rfloordiv__(self, other):
        return Int(other) // self

    def __rmod__(self, other):
        return Int(other) % self

    def __and__(self, other):
        return self._with(other, lambda a, b: a & b)

    def __or__(self, other):
        return self._with(other, lambda a, b: a | b)

    def __xor__(self, other):
        return self._with(other, lambda a, b: a ^ b)

    __radd__, __rmul__, __rand__, __ror__, __rxor__ = __add__, __mul__, __and__, __or__, __xor__

    def __lshift__(self, other):
        return Int(self.value << int(other), 64, self.signed)

    def __rshift__(self, other):
        return Int(self.value >> int(other), 64, self.signed)

    def __rlshift__(self, other):
        return Int(other) << self

    def __rrshift__(self, other):
        return Int(other) >> self

    def __neg__(self):
        return Int(Int(-self.value, self.bits, self.signed).value, 64, self.signed)

    def __invert__(self):
        return Int(Int(~self.value, self.bits, self.signed).value, 64, self.signed)

    def __eq__(self, other):
        return self.value == int(other)

    def __lt__(self, other):
        return self.value < int(other)

    def __le__(self, other):
        return self.value <= int(other)

    def __gt__(self, other):
        return self.value > int(other)

    def __ge__(self, other):
        return self.value >= int(other)


def cast_to(name: str) -> Callable[[Any], Int]:
    bits, signed = int(re.sub(r"\D", "", name)), not name.startswith("u")
    return lambda value: Int(value, bits, signed)


CASTS = {name: cast_to(name) for name in WIDTHS}


class Array:
    """An array whose elements are read as `Int` and stored with a cast."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.cast, self.size = values, CASTS[values.dtype.name], values.size

    def __getitem__(self, index: Any) -> Int:
        return self.cast(self.values[self._at(index)].item())

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[self._at(index)] = self.cast(value).value

    def _at(self, index: Any) -> tuple[int, ...]:
        parts = tuple(map(int, index if isinstance(index, tuple) else (index,)))
        assert all(0 <= part < n for part, n in zip(parts, self.values.shape)), parts
        return parts


class Dim:
    def __init__(self, values: tuple[int, ...]) -> None:
        self.x, self.y, self.z = (Int(v, 32) for v in (*values, 1, 1)[:3])


class Thread:
    """`cuda` as one thread sees it."""

    def __init__(self, block: Block, at: tuple[int, ...]) -> None:
        self.block, self.declared = block, 0
        self.threadIdx, self.blockIdx = Dim((*at, 0, 0)[:3]), Dim((*block.at, 0, 0)[:3])
        self.blockDim, self.gridDim = Dim(block.size), Dim(block.grid)
        self.shared = self.local = self.atomic = self

    def array(self, shape: Any, dtype: Callable) -> Array:
        name = next(name for name, cast in CASTS.items() if cast is dtype)
        return Array(np.zeros(shape, name))

    def shared_array(self, shape: Any, dtype: Callable) -> Array:
        self.declared += 1
        if self.declared > len(self.block.arrays):
            self.block.arrays.append(self.array(shape, dtype))
        return self.block.arrays[self.declared - 1]

    def add(self, array: Array, index: Any, value: Any) -> None:
        array[index] = array[index].value + int(value)

    def max(self, array: Array, index: Any, value: Any) -> None:
        array[index] = max(array[index].value, array.cast(value).value)


@dataclasses.dataclass
class Block:
    at: tuple[int, ...]
    size: tuple[int, ...]
    grid: tuple[int, ...]
    arrays: list[Array] = dataclasses.field(default_factory=list)


def meet(asked: list[tuple[str, bool] | None]) -> Any:
    """What a barrier gives the threads that have come to it."""
    kinds = {x if x is None else x[0] for x in asked}
    assert len(kinds) == 1, f"threads are at different barriers: {kinds}"
    kind = kinds.pop()
    if kind is None:
        return None
    votes = [bool(x[1]) for x in asked]
    return Int({"count": sum(votes), "and": all(votes), "or": any(votes)}[kind], 32)


def run_reference(case: Case) -> list[np.ndarray]:
    """The arrays that `case` writes, computed thread by thread."""
    space: dict[str, Any] = dict(CASTS)
    exec(compile(case.as_generators(), f"<reference of seed {case.seed}>", "exec"), space)
    arguments, overflows = case.arguments(), Int.overflows
    given = [Array(x) if isinstance(x, np.ndarray) else x for x in arguments]
    for at in np.ndindex(*reversed(case.grid)):
        block = Block(tuple(reversed(at)), case.block, case.grid)
        threads = [Thread(block, tuple(reversed(t))) for t in np.ndindex(*reversed(case.block))]
        live = [space["kernel"](thread, *given) for thread in threads]
        answer = None
        while live:
            asked, still = [], []
            for thread in live:
                try:
                    asked.append(thread.send(answer))
                    still.append(thread)
                except StopIteration:
                    pass
            live = still
            answer = meet(asked) if live else None
            if answer is None:
                continue
    case.undefined = Int.overflows > overflows
    return [x for x in arguments if isinstance(x, np.ndarray)][case.inputs :]


# -- the generator -----------------------------------------------------------------------------


@dataclasses.dataclass
class Case:
    """A kernel, its launch and its text."""

    seed: int
    text: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    inputs: int = 3
    undefined: bool = False  # whether the reference met an overflow

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    def arguments(self) -> list[Any]:
        """Fresh arguments: three arrays that are read, a number, four that are written."""
        rng = np.random.default_rng(self.seed)
        total = self.threads * int(np.prod(self.grid))
        info = np.iinfo(np.int32)
        return [
            rng.integers(info.min, info.max, 64).astype(np.int32),
            rng.integers(0, 255, 64).astype(np.uint8),
            rng.integers(-(2**62), 2**62, 64),
            int(rng.integers(0, 40)),
            np.zeros(total, np.int64),
            np.zeros(total, np.uint64),
            np.zeros(total, np.int16),
            np.zeros(8, np.int64),
        ]

    def as_generators(self) -> str:
        """The text for the reference: barriers are `yield`, calls of functions with barriers
        `yield from`."""
        text = re.sub(r"@cuda\.jit.*\n", "", self.text)
        text = text.replace("cuda.syncthreads()", "yield")
        text = re.sub(r"cuda\.syncthreads_(\w+)\(", r'yield ("\1", ', text)
        text = re.sub(r"= (meeting\d+\()", r"= yield from \1", text)
        text = text.replace("cuda.shared.array", "cuda.shared_array")
        return text.replace("def kernel(", "def kernel(cuda, ") + "    yield\n"


class Writer:
    """Writes one kernel; every choice comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(f"blocks {seed}")
        self.seed = seed
        self.block, self.grid = self.r.choice(BLOCKS), self.r.choice(GRIDS)
        self.lines: list[str] = []
        self.depth = 0
        self.names = 0
        self.functions: list[str] = []
        # variables with their types; those of `uniform` are the same in all threads of a block
        self.variables: dict[str, str] = {}
        self.uniform: dict[str, str] = {}
        self.shared: dict[str, str] = {}
        self.locals: dict[str, str] = {}
        self.reads: dict[str, str] = {}
        self.budget = 0
        self.may_return = False

    def say(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # -- expressions: (text, kind); kind is "s" signed, "u" uint64, "n" narrow and unsigned -----

    @staticmethod
    def kind(dtype: str) -> str:
        return "s" if dtype[0] == "i" else "u" if dtype == "uint64" else "n"

    def leaf(self, uniform: bool) -> tuple[str, str]:
        r = self.r
        roll = r.random()
        known = self.uniform if uniform else {**self.variables, **self.uniform}
        if roll < 0.55 and known:
            name = r.choice(sorted(known))
            return name, self.kind(known[name])
        if roll < 0.7:
            return str(r.choice([0, 1, 2, 3, 5, 7, 13, 100, 255, -1, -3, -128, 40000])), "s"
        if roll < 0.75:
            dtype = r.choice(WIDTHS)
            return f"{dtype}({r.choice([0, 1, 3, 77, 200])})", self.kind(dtype)
        if roll < 0.85 and self.reads:
            name = r.choice(sorted(self.reads))
            at = self.expression(uniform, 0)
            return f"{name}[{self.signed(at)} & 63]", self.kind(self.reads[name])
        if not uniform and self.shared and roll < 0.95:
            name = r.choice(sorted(self.shared))
            if name == "s":  # of a function: any array
                return "int64(s[t])", "s"
            return f"{name}[{self.own(name)}]", self.kind(self.shared[name])
        if not uniform and self.locals:
            name = r.choice(sorted(self.locals))
            return f"{name}[{self.signed(self.expression(False, 0))} & 3]", self.kind(
                self.locals[name]
            )
        return str(r.randint(-9, 9)), "s"

    def own(self, name: str) -> str:
        """A thread's own element of a shared array, of one or two dimensions."""
        return "ty, tx" if name.startswith("q") else "t"

    def signed(self, given: tuple[str, str]) -> str:
        return given[0] if given[1] == "s" else f"int64({given[0]})"

    def expression(self, uniform: bool = False, depth: int | None = None) -> tuple[str, str]:
        r = self.r
        depth = r.choice([1, 2, 2, 3]) if depth is None else depth
        if depth == 0 or r.random() < 0.15:
            return self.leaf(uniform)
        a, b = self.expression(uniform, depth - 1), self.expression(uniform, depth - 1)
        roll = r.random()
        if roll < 0.12:
            dtype = r.choice(WIDTHS)
            return f"{dtype}({a[0]})", self.kind(dtype)
        if roll < 0.2:
            return f"({r.choice('-~')}{a[0]})", "s" if a[1] == "s" else "u"
        if roll < 0.36:
            count = f"({self.signed(b)} & {r.choice([1, 3, 7, 15, 31])})"
            return f"({a[0]} {r.choice(['<<', '>>', '>>'])} {count})", "s" if a[1] == "s" else "u"
        if roll < 0.5:
            return self.division(a, b)
        if roll < 0.57:
            x, y = self.same(a, b)
            return f"({x[0]} if {self.condition(uniform, depth - 1)} else {y[0]})", x[1]
        if roll < 0.6:
            dtype = r.choice(WIDTHS)
            return f"{dtype}({self.condition(uniform, depth - 1)})", self.kind(dtype)
        (x, k), (y, m) = self.mixed(a, b)
        both = "s" if "s" in (k, m) else "u"
        return f"({x} {r.choice(['+', '-', '*', '+', '&', '|', '^'])} {y})", both

    def division(self, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
        r = self.r
        op = r.choice(["//", "%"])
        if a[1] == "s":
            by = f"(({self.signed(b)} & {r.choice([3, 7, 63])}) + 1)"
            return f"({a[0]} {op} {r.choice([by, by, '-3', '7', '-16'])})", "s"
        return f"({a[0]} {op} uint64(({self.signed(b)} & 15) + 1))", "u"

    def mixed(self, a: tuple[str, str], b: tuple[str, str]):
        """Two operands that have a common integer type."""
        if {a[1], b[1]} == {"s", "u"}:
            to = self.r.choice(["int64", "uint64"])
            a, b = ((f"{to}({x})", self.kind(to)) for x, _ in (a, b))
        return a, b

    def same(self, a: tuple[str, str], b: tuple[str, str]):
        """Two values of one type."""
        dtype = self.r.choice(WIDTHS)
        return tuple((f"{dtype}({x})", self.kind(dtype)) for x, _ in (a, b))

    def condition(self, uniform: bool = False, depth: int = 1) -> str:
        r = self.r
        a, b = self.expression(uniform, depth), self.expression(uniform, depth)
        plain = f"{a[0]} {r.choice(['<', '<=', '>', '==', '!='])} {b[0]}"
        if r.random() < 0.5:
            plain = f"({self.signed(a)} & {r.choice([1, 3, 5])}) {r.choice(['==', '!='])} 0"
        if r.random() < 0.2:
            other = f"({self.signed(b)} & 3) > {r.randint(0, 2)}"
            return f"({plain} {r.choice(['and', 'or'])} {other})"
        return f"({plain})"

    # -- statements -------------------------------------------------------------------------

    def assign(self, into: dict[str, str], uniform: bool) -> None:
        text = self.expression(uniform)[0]
        name = self.r.choice(self.changeable(into))
        self.say(f"{name} = {into[name]}({text})")

    @staticmethod
    def changeable(known: dict[str, str]) -> list[str]:
        return [name for name in sorted(known) if name not in ("t", "tx", "u0")]

    def statement(self, loop: str | None, meets: bool, uniform: bool = True) -> None:
        """One statement. `loop` is the kind of loop around it: "own" (of a thread) or "block"
        (around barriers); `meets`: all live threads are here, so barriers are allowed; `uniform`:
        variables that are the same in all threads may be assigned."""
        self.budget -= 1
        r, roll = self.r, self.r.random()
        nested = self.depth < 5 and self.budget > 0
        if roll < 0.2 or (not nested and not meets):
            self.assign(self.variables, False)
        elif roll < 0.25 and meets and uniform:
            self.assign(self.uniform, True)
        elif roll < 0.32 and self.shared:
            name = r.choice(sorted(self.shared))
            self.say(f"{name}[{self.own(name)}] = {self.expression()[0]}")
        elif roll < 0.36 and self.locals:
            name = r.choice(sorted(self.locals))
            at = self.signed(self.expression(False, 0))
            self.say(f"{name}[{at} & 3] = {self.expression()[0]}")
        elif roll < 0.58 and meets:
            self.meeting()
        elif roll < 0.7 and nested:
            self.branch(loop, meets)
        elif roll < 0.9 and nested:
            self.loop(meets)
        elif roll < 0.95 and loop:
            self.jump(loop)
        elif roll < 0.97 and self.may_return and meets and loop != "own":
            with_mask = f"({self.signed(self.leaf(False))} & 15) == {r.randint(0, 15)}"
            self.say(f"if {with_mask} and t % 3 == {r.randint(0, 2)}:")
            self.say("    return")
        else:
            self.assign(self.variables, False)

    def body(self, loop: str | None, meets: bool, most: int = 4) -> None:
        self.depth += 1
        for _ in range(self.r.randint(1, most)):
            self.statement(loop, meets)
        self.depth -= 1

    def jump(self, loop: str) -> None:
        """`break` or `continue`, at a condition that all threads agree on around barriers."""
        self.say(f"if {self.condition(loop == 'block')}:")
        self.say(f"    {self.r.choice(['break', 'continue'])}")

    def branch(self, loop: str | None, meets: bool) -> None:
        together = meets and self.r.random() < 0.5
        # the jumps of a loop around barriers must not depend on the thread
        inner = loop if together or loop == "own" else None
        self.say(f"if {self.condition(together)}:")
        self.body(inner, together, 3)
        if self.r.random() < 0.4:
            self.say("else:")
            self.body(inner, together, 3)

    def loop(self, meets: bool) -> None:
        r = self.r
        together = meets and r.random() < 0.65
        kind = "block" if together else "own"
        if r.random() < 0.3:
            counter = self.fresh("k")
            stop = f"({self.signed(self.leaf(together))} & {r.choice([3, 7])})"
            stop = r.choice([stop, str(r.randint(1, 4))])
            self.say(f"for {counter} in range({stop}):")
            self.body(kind, together)
            return
        counter, dtype = self.fresh("w"), r.choice(["int64", "int32", "uint8", "int16"])
        self.say(f"{counter} = {dtype}(0)")
        limit = f"({self.signed(self.leaf(together))} & 3) + {r.randint(1, 3)}"
        if together and r.random() < 0.4:  # the same in all threads, which nobody can see
            limit = f"{limit} + (t & 0)"
        self.say(f"while {r.choice([f'{counter} < {limit}', 'True'])}:")
        self.depth += 1
        self.say(f"{counter} = {dtype}({counter} + 1)")
        self.say(f"if {counter} > {r.randint(2, 5)}:")
        self.say("    break")
        self.depth -= 1
        (self.uniform if together else self.variables)[counter] = dtype
        known = self.uniform if together else self.variables
        del known[counter]
        self.body(kind, together)

    def meeting(self) -> None:
        """Something around barriers: an exchange, a vote, atomics, a function."""
        r, roll = self.r, self.r.random()
        name = r.choice(sorted(self.shared))
        own, value = self.own(name), r.choice(self.changeable(self.variables))
        flat = [n for n in sorted(self.shared) if n.startswith("s")]
        if roll < 0.15:
            self.say("cuda.syncthreads()")
        elif roll < 0.45:
            self.say(f"{name}[{own}] = {self.expression()[0]}")
            self.say("cuda.syncthreads()")
            dtype, other = self.variables[value], self.other(name)
            self.say(f"{value} = {dtype}({name}[{other}])")
            self.say("cuda.syncthreads()")
        elif roll < 0.55:  # a value of one thread for all
            into = r.choice(self.changeable(self.uniform))
            at = "0, 0" if name.startswith("q") else "0"
            self.say(f"{name}[{own}] = {self.expression()[0]}")
            self.say("cuda.syncthreads()")
            self.say(f"{into} = {self.uniform[into]}({name}[{at}])")
            self.say("cuda.syncthreads()")
        elif roll < 0.7:
            into = r.choice(self.changeable(self.uniform))
            kind = r.choice(["count", "and", "or"])
            vote = f"cuda.syncthreads_{kind}(int32({self.condition()}))"
            counted = self.fresh("c")
            self.say(f"{counted} = {vote}")
            self.say(f"{into} = {self.uniform[into]}({counted})")
        elif roll < 0.85 and (sums := [n for n in flat if self.shared[n] in ATOMIC]):
            name = r.choice(sums)
            at = f"({self.signed(self.expression(False, 1))} & 63) % {self.threads}"
            self.say(f"{name}[t] = 0")
            self.say("cuda.syncthreads()")
            operation = r.choice(["add", "add", "max"])
            dtype = self.shared[name]
            self.say(f"cuda.atomic.{operation}({name}, {at}, {dtype}({self.expression()[0]}))")
            self.say("cuda.syncthreads()")
        elif self.functions and flat:
            name, dtype = r.choice(flat), self.variables[value]
            called = r.choice(self.functions)
            result = self.fresh("f")
            u = self.signed(self.expression(True, 1))
            arguments = f"{name}, t, int64({self.expression(False, 1)[0]}), int64({u})"
            self.say(f"{result} = {called}({arguments})")
            self.say(f"{value} = {dtype}({result})")
        else:
            self.say("cuda.syncthreads()")

    def other(self, name: str) -> str:
        """The element of any thread."""
        value = self.signed(self.expression(False, 1))
        x, y = self.block[0], self.block[1]
        if name.startswith("q"):
            again = self.signed(self.expression(False, 1))
            return self.r.choice(
                [f"({value} & 63) % {y}, ({again} & 63) % {x}", f"{y} - 1 - ty, {x} - 1 - tx"]
            )
        n = self.threads
        return self.r.choice([f"({value} & 63) % {n}", f"(t + 1) % {n}", f"{n} - 1 - t"])

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    # -- the whole --------------------------------------------------------------------------

    def function(self) -> None:
        """A device function with barriers, which all live threads call together."""
        name = self.fresh("meeting")
        self.say("@cuda.jit(device=True)")
        self.say(f"def {name}(s, t, v, u0):")
        self.depth += 1
        self.variables, self.uniform = {"v": "int64", "x": "int16"}, {"u0": "int64", "u": "int32"}
        self.shared, self.locals, self.reads = {"s": "int16"}, {}, {}
        self.say("cuda.syncthreads()")
        self.say("x = int16(v)")
        self.say("u = int32(u0)")
        self.budget = self.r.randint(3, 9)
        for _ in range(self.r.randint(1, 4)):
            self.statement(None, True)
        self.say("return v + x + u")
        self.depth -= 1
        self.say("")
        self.say("")
        self.functions.append(name)

    def case(self) -> Case:
        r = self.r
        functions = [self.function for _ in range(r.randint(0, 2))]
        for write in functions:
            known, self.functions = self.functions, []  # they do not call each other
            write()
            self.functions = known + self.functions
        self.say("@cuda.jit")
        self.say("def kernel(a, b, c, n, out, big, small, sums):")
        self.depth += 1
        x, y, z = (*self.block, 1, 1)[:3]
        self.say("tx = cuda.threadIdx.x")
        self.say("ty = cuda.threadIdx.y" + (f" + {y} * cuda.threadIdx.z" if z > 1 else ""))
        self.say(f"t = tx + {x} * ty")
        self.say("u1 = int64(cuda.blockIdx.x + cuda.gridDim.x * cuda.blockIdx.y)")
        self.say(f"at = u1 * {self.threads} + t")
        self.block = (x, y * z)
        self.shared, self.locals, self.uniform = {}, {}, {"u1": "int64"}
        for _ in range(r.randint(1, 3)):
            name, dtype = self.fresh(r.choice("ssq")), r.choice(WIDTHS)
            shape = f"({y * z}, {x})" if name.startswith("q") else str(self.threads)
            self.say(f"{name} = cuda.shared.array({shape}, {dtype})")
            self.shared[name] = dtype
        if r.random() < 0.4:
            name, dtype = self.fresh("l"), r.choice(WIDTHS)
            self.say(f"{name} = cuda.local.array(4, {dtype})")
            self.say(f"for k in range(4):\n        {name}[k] = {dtype}(k + t)")
            self.locals[name] = dtype
        for name in sorted(self.shared):
            self.say(f"{name}[{self.own(name)}] = {r.choice(['0', 't', 'tx + 3'])}")
        self.reads = {"a": "int32", "b": "uint8", "c": "int64"}
        for number in range(2, 4):
            dtype = r.choice(WIDTHS)
            self.say(f"u{number} = {dtype}({self.signed(self.expression(True, 1))})")
            self.uniform[f"u{number}"] = dtype
        self.variables = {"t": "int64", "tx": "int32"}
        for _ in range(r.randint(3, 5)):
            name, dtype = self.fresh("v"), r.choice(WIDTHS)
            self.say(f"{name} = {dtype}({self.expression()[0]})")
            self.variables[name] = dtype
        self.may_return = r.random() < 0.3
        self.budget = r.randint(6, 22)
        while self.budget > 0:
            self.statement(None, True)
        self.results()
        text = "\n".join(self.lines) + "\n"
        z_block = (x, y, z) if z > 1 else (x, y)
        return Case(self.seed, text, self.grid, z_block)

    def results(self) -> None:
        values = [n for n in sorted(self.variables) if n.startswith("v")]
        total = " ^ ".join(f"int64({v})" for v in values)
        self.say(f"out[at] = {total}")
        shared = " + ".join(f"uint64({s}[{self.own(s)}])" for s in sorted(self.shared))
        self.say(f"big[at] = {shared}")
        self.say(f"small[at] = int64({self.r.choice(values)}) - {self.signed(self.expression())}")
        uniform = " + ".join(f"int64({u})" for u in sorted(self.uniform))
        self.say(f"cuda.atomic.add(sums, t % 8, {uniform})")


def generate(seed: int) -> Case:
    return Writer(seed).case()


def load(case: Case, cuda: Any, jit: Callable) -> Any:
    """The kernel of `case`, compiled by `jit` at its first launch."""
    import numba

    filename = f"<random kernel of seed {case.seed}>"
    text = case.text.replace("@cuda.jit\n", "@jit\n")
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"cuda": cuda, "jit": jit}
    space |= {name: getattr(numba, name) for name in WIDTHS}
    exec(compile(text, filename, "exec"), space)
    return space["kernel"]


def difference(case: Case, expected: list[np.ndarray], got: list[np.ndarray]) -> str | None:
    """What is wrong with the results, with the kernel; None where they are equal or undefined."""
    if case.undefined:
        return None
    for name, want, have in zip(("out", "big", "small", "sums"), expected, got):
        wrong = np.flatnonzero(want != have)
        if wrong.size:
            at = wrong[0]
            return (
                f"seed {case.seed}, grid {case.grid}, block {case.block}: {name} differs at"
                f" {wrong.size} of {want.size} places, first {name}[{at}] = {have[at]}, expected"
                f" {want[at]}\n{case.text}"
            )
    return None
