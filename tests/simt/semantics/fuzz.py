"""Random kernels, free of data races by construction, and the runs that they are compared with.

`generate(seed)` writes a kernel with barriers in loops and branches, early returns, exchanges
through shared memory, atomics, device functions and mixed types. Whatever the schedule, its result
is the same: a shared array is either in the phase OWN (each thread touches its own slot) or in the
phase READ (nobody writes), and a barrier stands between the two. All arithmetic is exact: integers
are kept small, floats are small multiples of one half, so Python, NumPy and compiled code agree
bit for bit.

Run as a program it is the other half of the comparison: it runs the kernels of the given seeds in
Numba's simulator, in a process of its own because the simulator is chosen before numba is imported.
"""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

BLOCKS = [(1,), (5,), (8,), (12,), (17,), (24,), (4, 3), (3, 5), (8, 2), (2, 3, 2)]
WARP_BLOCKS = [(32,), (64,), (40,), (16, 4), (20,)]
LARGE = 1000  # kernels of this seed and above may be far longer
GRIDS = [(1,), (2,), (3,), (2, 2)]

HEADER = """\
import math

import numpy as np
from numba import float32, float64, int32, int64


@cuda.jit(device=True)
def pick(x, y):
    if x > y:
        return x - y
    for k in range(3):
        if x + k == y:
            return k
    return y - x + cuda.threadIdx.x


@cuda.jit(device=True)
def swap_slots(s, t, n, v):
    s[t] = v
    cuda.syncthreads()
    v = s[n - 1 - t]
    cuda.syncthreads()
    s[t] = v + 1
    return v


"""


@dataclasses.dataclass
class Case:
    """A kernel, its launch and the text of its module."""

    seed: int
    text: str
    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    def arguments(self) -> list[np.ndarray | int]:
        """Fresh arguments: what is read first, then what is written."""
        rng = np.random.default_rng(self.seed)
        total = self.threads * int(np.prod(self.grid))
        return [
            rng.integers(-20, 20, max(total, 9)).astype(np.int32),
            (rng.integers(-60, 60, max(total, 7)) / 2).astype(np.float32),
            rng.integers(-99, 99, (5, 7)),
            int(rng.integers(0, total + 2)),
            np.zeros(total, np.int64),
            np.zeros(total, np.float64),
            np.zeros(8, np.int64),
            np.full(4, -(10**6)),
            np.zeros(3, np.float64),
        ]


class Generator:
    """Writes one kernel; every choice comes from the seed."""

    def __init__(self, seed: int, warp: bool) -> None:
        self.r = random.Random(f"{seed} {warp}")
        self.warp = warp
        self.lines: list[str] = []
        self.depth = 1
        self.budget = self.r.randint(*((4, 24) if seed >= LARGE else (3, 9)))
        self.names = 0
        self.ints = ["v0", "v1", "v2"]
        self.floats = ["x0", "x1"]
        self.uniform = ["u0", "bx", "n"]
        self.phase = {"s0": "OWN", "s1": "OWN", "sa": "OWN"}
        # With returns no voting barriers (see vote) and no warp operations (see warp_statement).
        self.returns = not warp and self.r.random() < 0.45
        self.block = self.r.choice(WARP_BLOCKS if warp else BLOCKS)
        self.grid = self.r.choice(GRIDS[:2] if warp else GRIDS)

    def say(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # Expressions.

    def constant(self) -> str:
        return str(self.r.choice([0, 1, 2, 3, 4, 5, 7, 8, 11, 16, -1, -2, -5]))

    def uniform_int(self) -> str:
        """An integer that is the same in every thread of the block."""
        u = self.r.choice(self.uniform)
        return self.r.choice([u, u, self.constant(), f"({u} + {self.constant()})", f"({u} % 3)"])

    def leaf_int(self) -> str:
        r = self.r
        kind = r.randrange(12)
        if kind < 4:
            return r.choice(self.ints)
        if kind == 4:
            return self.constant()
        if kind == 5:
            return r.choice(["tx", "ty", "t", "gi", *self.uniform])
        if kind == 6:
            return f"np.int64(a[{self.index('a.size')}])"
        if kind == 7:
            return f"m[{self.index('5')}, {self.index('7')}]"
        return self.load_shared() or r.choice(self.ints)

    def index(self, size: str) -> str:
        """An index below `size`; the last two rely on non-negative and on wrapping indices."""
        r = self.r
        base = f"({r.choice(self.ints)} + {self.constant()}) % {size}"
        if size == "a.size":
            return r.choice([base, "gi", "gi - 1", "t", f"(gi + {r.randint(1, 5)}) % {size}"])
        if size in ("5", "7"):
            return r.choice([base, f"tx % {size}", f"(t + u0 * u0) % {size}", "-1", "2"])
        return base

    def load_shared(self) -> str | None:
        name = self.r.choice(["s0", "s1", "sa"])
        if name == "sa":
            return f"sa[{self.index('4')}]" if self.phase["sa"] == "READ" else None
        if self.phase[name] == "OWN":
            slot = "t"
        else:
            shift = self.r.randint(1, 9)
            slot = self.r.choice([f"(t + {shift}) % T", "T - 1 - t", f"(t * {shift}) % T", "0"])
        return f"np.int64({name}[{slot}])"

    def int_expr(self, depth: int = 2) -> str:
        r = self.r
        if depth == 0 or r.random() < 0.25:
            return self.leaf_int()
        x, y = self.int_expr(depth - 1), self.int_expr(depth - 1)
        c = r.randint(2, 9)
        forms = [
            f"({x} + {y})",
            f"({x} - {y})",
            f"({x} * {r.randint(-4, 4)})",
            f"({x} // {c})",
            f"({x} % {c})",
            f"({x} & 63)",
            f"({x} ^ {y})",
            f"({x} << {r.randint(0, 3)})",
            f"({x} >> {r.randint(1, 4)})",
            f"min({x}, {y})",
            f"max({x}, {y})",
            f"abs({x})",
            f"({x} if {self.condition(1)} else {y})",
            f"np.int64(math.floor({self.float_expr(0)}))",
        ]
        return r.choice(forms)

    def float_expr(self, depth: int = 1) -> str:
        r = self.r
        leaves = [
            *self.floats,
            f"f[{self.index('f.size')}]",
            "1.5",
            "-0.5",
            f"({r.choice(self.ints)} * 0.5)",
        ]
        if depth == 0 or r.random() < 0.3:
            return r.choice(leaves)
        x, y = self.float_expr(depth - 1), self.float_expr(depth - 1)
        forms = [
            f"({x} + {y})",
            f"({x} - {y})",
            f"({x} * {y})",
            f"({x} if {self.condition(0)} else {y})",
            f"abs({x})",
            f"-({x})",
        ]
        return r.choice(forms)

    def condition(self, depth: int = 1) -> str:
        r = self.r
        op = r.choice(["<", "<=", ">", ">=", "==", "!="])
        if depth and r.random() < 0.4:
            x, y = self.condition(depth - 1), self.condition(depth - 1)
            return r.choice([f"({x} and {y})", f"({x} or {y})", f"not ({x})"])
        forms = [
            f"gi {op} {self.uniform_int()}",
            f"tx {op} {self.uniform_int()}",
            f"ty {op} {self.constant()}",
            f"t % {r.randint(2, 4)} {op} {r.randint(0, 2)}",
            f"{r.choice(self.ints)} {op} {self.int_expr(0)}",
            f"{r.choice(self.floats)} {op} {self.float_expr(0)}",
            f"a[gi] {op} {self.constant()}",
            f"0 <= {r.choice(self.ints)} < {r.randint(1, 30)}",
        ]
        return r.choice(forms)

    def uniform_condition(self) -> str:
        r = self.r
        op = r.choice(["<", "<=", ">", ">=", "==", "!="])
        u = self.uniform_int()
        forms = [f"{u} {op} {self.constant()}", f"bx {op} {r.randint(0, 2)}", f"{u} % 2 == 0"]
        if not self.returns and r.random() < 0.4:
            forms = [self.vote()]
        return r.choice(forms)

    def vote(self) -> str:
        """A voting barrier; none where threads return: the simulator counts their last vote."""
        p = self.condition(1)
        return self.r.choice(
            [
                f"cuda.syncthreads_or(int32({p}))",
                f"cuda.syncthreads_and(int32({p}))",
                f"cuda.syncthreads_count(int32({p})) > {self.r.randint(0, 6)}",
            ]
        )

    # Statements.

    def assign_int(self, depth: int = 2) -> None:
        target = self.r.choice(self.ints)
        self.say(f"{target} = ({self.int_expr(depth)}) % 1009")

    def assign_float(self) -> None:
        target = self.r.choice(self.floats)
        self.say(f"{target} = math.floor(({self.float_expr(1)}) * 2) % 128 * 0.5")

    def assign_uniform(self) -> None:
        self.say(
            f"u0 = ({self.uniform_int()} * {self.r.randint(1, 3)} + {self.uniform_int()}) % 17"
        )

    def barrier(self) -> None:
        self.say("cuda.syncthreads()")

    def enter(self, name: str, phase: str) -> None:
        if self.phase[name] != phase:
            self.barrier()
            self.phase[name] = phase

    def settle(self) -> None:
        """Every shared array back in the phase OWN: what control flow may assume of its ends."""
        if "READ" in self.phase.values():
            self.barrier()
            self.phase = dict.fromkeys(self.phase, "OWN")

    def store_shared(self) -> None:
        name = self.r.choice(["s0", "s1"])
        if self.phase[name] == "OWN":
            self.say(f"{name}[t] = ({self.int_expr(1)}) % 101")
        else:
            self.assign_int(1)

    def atomic(self) -> None:
        r = self.r
        v = self.int_expr(1)
        forms = [
            f"cuda.atomic.add(bins, {self.index('8')}, {v})",
            f"cuda.atomic.max(tops, {self.index('4')}, {v})",
            f"cuda.atomic.add(fbins, {self.index('3')}, math.floor({self.float_expr(0)}) * 0.5)",
        ]
        if self.phase["sa"] == "OWN":
            forms.append(f"cuda.atomic.add(sa, {self.index('4')}, {v})")
        self.say(r.choice(forms))

    def straight(self) -> None:
        """A statement that any thread may run at any time."""
        r = self.r
        choice = r.randrange(12)
        if choice < 4:
            self.assign_int()
        elif choice < 6:
            self.assign_float()
        elif choice == 6:
            self.store_shared()
        elif choice == 7:
            self.atomic()
        elif choice == 8:
            self.say(f"out[gi] += {self.int_expr(1)}")
        elif choice == 9:
            x, y = r.sample(self.ints, 2)
            self.say(f"{x}, {y} = {y}, {x}")
        elif choice == 10:
            target = r.choice(self.ints)
            self.say(f"{target} = pick({self.leaf_int()}, {self.leaf_int()}) % 1009")
        else:
            self.say(f"mine[{r.randrange(3)}] = ({self.int_expr(1)}) % 97")
            self.say(f"{r.choice(self.ints)} = mine[{self.index('3')}]")

    def block_of(self, statement: Callable[[], None], most: int) -> None:
        self.depth += 1
        for _ in range(self.r.randint(1, most)):
            statement()
        self.depth -= 1

    def divergent(self, nesting: int = 0) -> None:
        """A statement run by some of the threads; nothing in it is a barrier."""
        r = self.r
        self.budget -= 1
        kind = r.randrange(8) if nesting < 2 else 0

        def inner() -> None:
            self.divergent(nesting + 1)

        if kind < 4:
            self.straight()
        elif kind == 4:
            self.say(f"if {self.condition()}:")
            self.block_of(inner, 2)
            if r.random() < 0.4:
                self.say(f"elif {self.condition()}:")
                self.block_of(inner, 2)
            if r.random() < 0.5:
                self.say("else:")
                self.block_of(inner, 2)
        elif kind == 5:
            k = self.fresh("k")
            bound = r.choice([f"{self.r.choice(self.ints)} % 5", "t % 4", "3"])
            self.say(f"for {k} in range({bound}):")
            self.loop_body(k, inner)
        elif kind == 6:
            j = self.fresh("j")
            self.say(f"{j} = 0")
            self.say(f"while {j} < {self.leaf_int()} % 6:")
            self.depth += 1
            self.say(f"{j} += 1")
            self.depth -= 1
            self.loop_body(j, inner)
        else:
            q = self.fresh("q")
            self.say(f"for {q} in range(gi, a.size, {r.choice(['G', 'G', 'T + 1'])}):")
            self.depth += 1
            self.say(f"v0 = (v0 + a[{q}] * {self.constant()}) % 1009")
            if r.random() < 0.5:
                self.atomic()
            self.depth -= 1

    def loop_body(self, counter: str, inner: Callable[[], None]) -> None:
        self.depth += 1
        self.say(f"v1 = (v1 + {counter}) % 1009")
        self.depth -= 1
        self.block_of(inner, 2)
        self.depth += 1
        if self.r.random() < 0.35:
            self.say(f"if {self.condition()}:")
            self.say("    " + self.r.choice(["break", "continue"]))
            self.straight()
        self.depth -= 1

    def exchange(self) -> None:
        """A value goes to another thread through shared memory."""
        name = self.r.choice(["s0", "s1", "sa"])
        if name == "sa":
            self.enter("sa", "OWN")
            self.say(f"cuda.atomic.add(sa, {self.index('4')}, {self.int_expr(1)})")
            self.enter("sa", "READ")
            self.say(f"{self.r.choice(self.ints)} = sa[{self.index('4')}] % 1009")
            return
        self.enter(name, "OWN")
        self.say(f"{name}[t] = ({self.int_expr(1)}) % 101")
        self.enter(name, "READ")
        target = self.r.choice(self.ints)
        theirs = f"np.int64({name}[(t + {self.r.randint(1, 9)}) % T])"
        self.say(f"{target} = ({target} + {theirs}) % 1009")
        if self.r.random() < 0.3:
            self.say(f"u0 = np.int64({name}[{self.r.choice(['0', 'T - 1', 'u0 % T'])}]) % 17")

    def uniform_statement(self, nesting: int = 0, in_loop: bool = False) -> None:
        """A statement that every live thread of the block runs: barriers are allowed in it."""
        r = self.r
        self.budget -= 1
        kind = r.randrange(15)
        if nesting >= 2 and kind in (9, 10, 11):
            kind = 3

        def inner() -> None:
            self.uniform_statement(nesting + 1, in_loop)

        def inner_loop() -> None:
            self.uniform_statement(nesting + 1, True)

        if kind < 3:
            self.divergent()
        elif kind < 6:
            self.exchange()
        elif kind == 6:
            self.assign_uniform()
        elif kind == 7:
            self.settle()
            self.say(f"{r.choice(self.ints)} = swap_slots(s0, t, T, {self.leaf_int()}) % 1009")
        elif kind == 8:
            if self.returns:
                self.say(f"if {self.condition()}:")
                self.say(f"    out[gi] = {self.r.choice(self.ints)} - {self.constant()}")
                self.say("    return")
            elif self.warp:
                self.warp_statement()
            else:
                self.say(
                    f"{r.choice(self.ints)} += cuda.syncthreads_count(int32({self.condition()}))"
                )
        elif kind == 9:
            self.uniform_branch(inner)
        elif kind in (10, 11):
            self.uniform_loop(inner_loop)
        elif kind == 12 and in_loop:
            self.settle()
            self.say(f"if {self.uniform_condition()}:")
            self.say("    " + r.choice(["break", "continue"]))
        elif self.warp:
            self.warp_statement()
        else:
            self.divergent()

    def uniform_branch(self, inner: Callable[[], None]) -> None:
        self.settle()
        self.say(f"if {self.uniform_condition()}:")
        self.block_of(inner, 3)
        self.settle_inside()
        if self.r.random() < 0.6:
            self.say("else:")
            self.block_of(inner, 3)
            self.settle_inside()

    def uniform_loop(self, inner: Callable[[], None]) -> None:
        self.settle()
        r = self.r
        k = self.fresh("k")
        kind = r.randrange(4)
        if kind == 0:
            self.say(f"{k} = 0")
            self.say(f"while {k} < {r.randint(1, 3)} and {self.uniform_condition()}:")
        elif kind == 1:
            self.say(f"{k} = 0")
            self.say("while True:")
        elif kind == 2:
            self.say(f"for {k} in range({r.choice(self.uniform)} % 4):")
        else:
            self.say(f"for {k} in range({r.randint(1, 4)}, 0, -1):")
        self.depth += 1
        if kind < 2:
            self.say(f"{k} += 1")
        if kind == 1:
            self.say(f"if {k} > {r.randint(1, 3)}:")
            self.say("    break")
        self.depth -= 1
        self.uniform.append(k)
        self.block_of(inner, 4)
        self.uniform.remove(k)
        self.settle_inside()

    def settle_inside(self) -> None:
        self.depth += 1
        self.settle()
        self.depth -= 1

    def warp_statement(self) -> None:
        """Shuffles and votes of all lanes; those that do not exist or have left are never asked."""
        r = self.r
        v = r.choice(self.ints)
        value = self.leaf_int()
        forms = [
            f"cuda.shfl_sync(W, {value}, u0 % L)",
            f"cuda.shfl_up_sync(W, {value}, {r.choice([1, 2, 4])})",
            f"cuda.shfl_sync(W, {value}, L - 1 - t % 32)",
            f"cuda.shfl_xor_sync(W, {value}, 1)",
            f"np.int64(cuda.any_sync(W, {self.condition()}))",
            f"np.int64(cuda.all_sync(W, {self.condition()}))",
            f"cuda.popc(cuda.ballot_sync(W, {self.condition()}) & cuda.lanemask_lt())",
            f"cuda.popc(cuda.match_any_sync(W, {r.choice(self.ints)} % 4))",
        ]
        self.say(f"{v} = ({v} + {r.choice(forms)}) % 1009")

    def kernel(self) -> str:
        dims = len(self.block)
        threads = int(np.prod(self.block))
        self.say(f"T = {threads}")
        if dims == 1:
            self.say("tx, ty = cuda.threadIdx.x, 0")
            self.say("t = cuda.threadIdx.x")
        else:
            self.say("tx, ty = cuda.threadIdx.x, cuda.threadIdx.y")
            flat = "tx + cuda.blockDim.x * ty"
            if dims == 3:
                flat = "tx + cuda.blockDim.x * (ty + cuda.blockDim.y * cuda.threadIdx.z)"
            self.say(f"t = {flat}")
        self.say("bx = cuda.blockIdx.x + cuda.gridDim.x * cuda.blockIdx.y")
        self.say("gi = bx * T + t")
        self.say("G = T * cuda.gridDim.x * cuda.gridDim.y")
        if self.warp:
            # The lanes of this thread's warp: how many, and their mask.
            self.say("L = min(32, T - t // 32 * 32)")
            self.say("W = (1 << L) - 1")
        self.say("s0 = cuda.shared.array(T, int64)")
        self.say(f"s1 = cuda.shared.array(T, {self.r.choice(['int32', 'float32', 'float64'])})")
        self.say("sa = cuda.shared.array(4, int64)")
        self.say("mine = cuda.local.array(3, int64)")
        for k in range(3):
            self.say(f"mine[{k}] = t + {k}")
        self.say("s0[t] = t * 3 - 4")
        self.say("s1[t] = 50 - t")
        self.say("for k in range(t, 4, T):")
        self.say("    sa[k] = k")
        self.say("v0, v1, v2 = gi % 50, np.int64(a[gi]), t * 2 - 5")
        self.say("x0, x1 = t * 0.5, f[t] * 1.0")
        self.say("u0 = n % 5")
        if self.r.random() < 0.2:
            self.say("if bx == 1:")
            self.say("    return")
        self.barrier()
        while self.budget > 0:
            self.uniform_statement()
        self.say("out[gi] += v0 + 1009 * (v1 + 1009 * v2) + u0")
        self.say("fout[gi] = x0 + 128 * x1 + mine[0] + 1000 * mine[1]")
        self.enter("s0", "READ")
        self.say("fout[gi] += s0[(t + 1) % T] * 0.5")
        return "\n".join(self.lines) + "\n"


def generate(seed: int, warp: bool = False) -> Case:
    """The kernel of a seed; `warp` adds the operations that Numba's simulator lacks."""
    generator = Generator(seed, warp)
    body = generator.kernel()
    signature = "@jit\ndef kernel(a, f, m, n, out, fout, bins, tops, fbins):\n"
    return Case(seed, HEADER + signature + body, generator.grid, generator.block)


def load(case: Case, cuda: object, path: Path, jit: Callable | None = None) -> Callable:
    """The case's kernel, defined with the given `cuda` and `jit`; `path` holds its source."""
    path.write_text(case.text)
    scope = {"cuda": cuda, "jit": jit or cuda.jit, "__name__": path.stem}
    exec(compile(case.text, str(path), "exec"), scope)
    return scope["kernel"]


def run(case: Case, kernel: Callable) -> list[np.ndarray]:
    """Launches the kernel on fresh arguments and returns the arrays that it writes."""
    arguments = case.arguments()
    kernel[case.grid, case.block](*arguments)
    return [x for x in arguments[4:] if isinstance(x, np.ndarray)]


def simulate(seeds: Iterable[int], timeout: float = 1200) -> dict[int, list[np.ndarray]]:
    """The results of Numba's simulator for the seeds, computed in another process."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "results.npz"
        env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "OPENBLAS_NUM_THREADS": "1"}
        env.pop("PYTHONPATH", None)
        command = [sys.executable, str(Path(__file__).resolve()), str(target), *map(str, seeds)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"the simulator failed:\n{done.stdout}\n{done.stderr}")
        with np.load(target) as stored:
            results: dict[int, list[np.ndarray]] = {}
            for key in sorted(stored.files, key=lambda k: tuple(map(int, k.split("_")))):
                results.setdefault(int(key.split("_")[0]), []).append(stored[key])
    return results


def difference(case: Case, expected: list[np.ndarray], actual: list[np.ndarray]) -> str | None:
    """None where all is equal, else a report with the whole kernel."""
    names = ["out", "fout", "bins", "tops", "fbins"]
    for name, x, y in zip(names, expected, actual, strict=True):
        if not np.array_equal(x, y):
            where = np.flatnonzero(x != y)
            return (
                f"seed {case.seed}, grid {case.grid}, block {case.block}: {name} differs at "
                f"{where[:9].tolist()}: expected {x[where[:9]].tolist()}, "
                f"got {y[where[:9]].tolist()}\n\n{case.text}"
            )
    return None


def main(target: str, seeds: list[int]) -> None:
    from numba import cuda

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            case = generate(seed)
            try:
                arrays = run(case, load(case, cuda, Path(folder) / f"fuzz_{seed}.py"))
            except Exception:
                print(f"seed {seed}\n{case.text}")
                traceback.print_exc()
                raise
            results.update({f"{seed}_{k}": array for k, array in enumerate(arrays)})
    np.savez(target, **results)


if __name__ == "__main__":
    main(sys.argv[1], [int(s) for s in sys.argv[2:]])
