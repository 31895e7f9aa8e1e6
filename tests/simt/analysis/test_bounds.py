"""Proofs that no index is out of bounds: found for usual kernels, and never wrong."""

from __future__ import annotations

import itertools
import linecache

import numpy as np
import pytest
from numba import float32, types

from kernels.simt import cuda
from kernels.simt.analysis import bounds, infer
from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import analyse
from kernels.simt.driver import pipeline
from kernels.simt.interpreter import interpreter
from kernels.support.errors import KernelIndexError

VECTOR, MATRIX, INDEX = types.float32[::1], types.float32[:, ::1], types.int64[::1]
N = types.int64
KERNELS = 60  # random ones; each is run on several sizes


def conditions(function, kinds, block) -> list[str] | None:
    """What the launch must fulfil; its integers are taken to be >= 0, as a launch checks first."""
    program, array_types = pipeline.normal_form(function, kinds, block)
    typed = infer.infer(program, list(kinds), array_types)
    natural = {name for name, kind in zip(program.params, kinds) if kind == N}
    return bounds.conditions(program, typed, Ranges(program, analyse(program), typed, natural))


def hold(texts: list[str], grid, args: dict) -> bool:
    given = {"_gx": grid[0], "_gy": grid[1], "_gz": 1, "_shared_bytes": 0}
    names = {"_min": min, "_max": max, "_int64": int, **given, **args}
    return all(eval(text, names) for text in texts)


def guarded(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = 0


def returns_early(x, n):
    i = cuda.grid(1)
    if i >= n or n < 3:
        return
    x[i] = 0


def without_guard(x):
    x[cuda.grid(1)] = 0


def off_by_one(x, n):
    i = cuda.grid(1)
    if i <= n:
        x[i] = 0


def strided(x, y):
    i = cuda.grid(1)
    while i < x.size:
        y[i] = x[i]
        i += cuda.gridsize(1)


def strided_range(x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i]


def product(a, b, c, m, n, k):
    row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    col = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < m and col < n:
        total = float32(0)
        for i in range(k):
            total += a[row * k + i] * b[i * n + col]
        c[row * n + col] = total


def tiled(a, b, c):
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = float32(0)
    for t in range((a.shape[1] + 15) // 16):
        i, j = t * 16 + tx, t * 16 + ty
        tile_a[ty, tx] = a[row, i] if row < a.shape[0] and i < a.shape[1] else float32(0)
        tile_b[ty, tx] = b[j, col] if j < b.shape[0] and col < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


def tiled_flat(a, b, c, n):
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, n, 16):
        tile_a[ty, tx] = a[row * n + k0 + tx] if row < n and tx + k0 < n else float32(0)
        tile_b[ty, tx] = b[(k0 + ty) * n + col] if k0 + ty < n and col < n else float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    if row < n and col < n:
        c[n * row + col] = total


def unpacked(a, b, c):
    shape = a.shape
    m, k = shape
    n = b.shape[1]
    j, i = cuda.grid(2)
    if i < m and j < n:
        for p in range(k):
            c[i, j] += a[i, p] * b[p, j]


def tree(x, out):
    memory = cuda.shared.array(64, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    memory[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    s = 32
    while s > 0:
        if t < s:
            memory[t] += memory[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        cuda.atomic.add(out, cuda.blockIdx.x, memory[0])


def scan(x):
    memory, t = cuda.shared.array(64, float32), cuda.threadIdx.x
    memory[t] = x[t] if t < x.size else float32(0)
    cuda.syncthreads()
    d = 1
    while d < 64:
        before = memory[t - d] if t >= d else float32(0)
        cuda.syncthreads()
        memory[t] += before
        cuda.syncthreads()
        d *= 2
    if t < x.size:
        x[t] = memory[t]


def stencil(x, y):
    i = cuda.grid(1)
    if 0 < i < x.shape[0] - 1:
        y[i] = x[i - 1] + x[i + 1]


def convolution(x, w, y, pad):
    c, r = cuda.grid(2)
    if r < y.shape[0] and c < y.shape[1]:
        total = float32(0)
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                a, b = r + i - pad, c + j - pad
                if a >= 0 and a < x.shape[0] and b >= 0 and b < x.shape[1]:
                    total += x[a, b] * w[i, j]
        y[r, c] = total


def reversed_in_place(x):
    i, n = cuda.grid(1), x.size
    if i < n // 2:
        x[i], x[n - 1 - i] = x[n - 1 - i], x[i]


def flagged(x):
    i = cuda.grid(1)
    inside = i < x.size
    if inside:
        x[i] = 0


def rows(a, out):
    i = cuda.grid(1)
    if i < a.shape[0]:
        row = a[i]
        for j in range(row.shape[0]):
            out[i] += row[j]


def tile_by_tile(x, out):
    tile, t = cuda.shared.array(16, float32), cuda.threadIdx.x
    p, total = 0, float32(0)
    while p < x.size:
        tile[t] = x[p + t]
        cuda.syncthreads()
        for k in range(16):
            total += tile[k]
        cuda.syncthreads()
        p += 16
    out[cuda.grid(1)] = total


def clamped(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[min(max(i - 1, 0), x.size - 1)]


def steps_without_guard(x):
    for d in (1, 3):
        x[cuda.threadIdx.x + d] = 0


def steps_of_a_tuple(x, y):
    i = cuda.grid(1)
    for d in (3, 1):
        if i + d < x.size:
            y[i] += x[i + d]


PROVEN = [  # kernel, types, block, a launch for which the proof holds
    (guarded, (VECTOR, N), (64, 1, 1), (1, 1), dict(x=np.empty(10), n=10)),
    (returns_early, (VECTOR, N), (64, 1, 1), (1, 1), dict(x=np.empty(10), n=10)),
    (without_guard, (VECTOR,), (64, 1, 1), (2, 1), dict(x=np.empty(128))),
    (strided, (VECTOR, VECTOR), (64, 1, 1), (9, 1), dict(x=np.empty(10), y=np.empty(10))),
    (strided_range, (VECTOR,) * 2, (64, 1, 1), (9, 1), dict(x=np.empty(10), y=np.empty(10))),
    (product, (VECTOR,) * 3 + (N,) * 3, (16, 16, 1), (2, 2),
     dict(a=np.empty(15), b=np.empty(35), c=np.empty(21), m=3, n=7, k=5)),
    (tiled, (MATRIX,) * 3, (16, 16, 1), (2, 2),
     dict(a=np.empty((3, 5)), b=np.empty((5, 7)), c=np.empty((3, 7)))),
    (tiled_flat, (VECTOR,) * 3 + (N,), (16, 16, 1), (2, 2),
     dict(a=np.empty(361), b=np.empty(361), c=np.empty(361), n=19)),
    (unpacked, (MATRIX,) * 3, (16, 16, 1), (2, 2),
     dict(a=np.empty((3, 5)), b=np.empty((5, 7)), c=np.empty((3, 7)))),
    (tree, (VECTOR, VECTOR), (64, 1, 1), (3, 1), dict(x=np.empty(150), out=np.empty(3))),
    (scan, (VECTOR,), (64, 1, 1), (1, 1), dict(x=np.empty(50))),
    (stencil, (VECTOR, VECTOR), (64, 1, 1), (2, 1), dict(x=np.empty(70), y=np.empty(70))),
    (convolution, (MATRIX,) * 3 + (N,), (16, 16, 1), (1, 1),
     dict(x=np.empty((5, 5)), w=np.empty((3, 3)), y=np.empty((5, 5)), pad=1)),
    (reversed_in_place, (VECTOR,), (64, 1, 1), (1, 1), dict(x=np.empty(33))),
    (flagged, (VECTOR,), (64, 1, 1), (1, 1), dict(x=np.empty(33))),
    (rows, (MATRIX, VECTOR), (64, 1, 1), (1, 1), dict(a=np.empty((9, 4)), out=np.empty(9))),
    (tile_by_tile, (VECTOR,) * 2, (16, 1, 1), (3, 1), dict(x=np.empty(48), out=np.empty(48))),
    (steps_of_a_tuple, (VECTOR, VECTOR), (64, 1, 1), (2, 1),
     dict(x=np.empty(70), y=np.empty(128))),
    (clamped, (VECTOR, VECTOR), (64, 1, 1), (1, 1), dict(x=np.empty(9), y=np.empty(33))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "kinds", "block", "grid", "args"), PROVEN, ids=lambda x: getattr(x, "__name__", "")
)
def test_usual_kernels_are_proven(kernel, kinds, block, grid, args):
    texts = conditions(kernel, kinds, block)
    assert texts is not None
    assert hold(texts, grid, args), texts


def gather(x, index, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[index[i]]


def sliced(x, out):
    out[0] = x[1:3][0]


def jumps_out(x):
    i = 0
    while True:
        i += 7
        if i > x.size:
            break
    x[i] = 0


def beyond_a_tuple(x):
    i = cuda.grid(1)
    if i < x.size:
        for k in range(4):
            x[i] += (1, 2, 3)[k]


@pytest.mark.parametrize(
    ("kernel", "kinds"),
    [
        (beyond_a_tuple, (VECTOR,)),
        (gather, (VECTOR, INDEX, VECTOR)),
        (sliced, (VECTOR, VECTOR)),
        (jumps_out, (VECTOR,)),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_no_proof_where_there_is_none(kernel, kinds):
    assert conditions(kernel, kinds, (64, 1, 1)) is None


PRODUCT = dict(a=np.empty(15), b=np.empty(35), c=np.empty(20), m=3, n=7, k=5)  # c: one too few


@pytest.mark.parametrize(
    ("kernel", "kinds", "grid", "args"),
    [
        (without_guard, (VECTOR,), (2, 1), dict(x=np.empty(127))),
        (off_by_one, (VECTOR, N), (1, 1), dict(x=np.empty(10), n=10)),
        (steps_without_guard, (VECTOR,), (1, 1), dict(x=np.empty(66))),
        (guarded, (VECTOR, N), (1, 1), dict(x=np.empty(10), n=11)),
        (strided, (VECTOR, VECTOR), (1, 1), dict(x=np.empty(10), y=np.empty(9))),
        (product, (VECTOR,) * 3 + (N,) * 3, (1, 3), PRODUCT),
        (tree, (VECTOR, VECTOR), (3, 1), dict(x=np.empty(150), out=np.empty(2))),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_conditions_refuse_a_launch_that_leaves_its_arrays(kernel, kinds, grid, args):
    texts = conditions(kernel, kinds, (64, 1, 1))
    assert texts is not None
    assert not hold(texts, grid, args), texts


class Random:
    """A kernel of loops, guards and indices over two arrays and a number, as text."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.names = ["i", "t", "n"]
        self.fresh = (f"v{number}" for number in itertools.count())

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def number(self) -> int:
        return int(self.rng.integers(-3, 8))

    def index(self, depth: int = 2) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            return self.pick(*self.names, str(self.number()), "x.size", "y.shape[0]")
        a, b = self.index(depth - 1), self.index(depth - 1)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} + {self.number()})", f"({a} * {self.number()})",
            f"({a} // 2)", f"({a} % 5)", f"({a} & 7)", f"min({a}, {b})", f"max({a}, {b})",
            f"({a} >> 1)", f"({a} if {self.test(0)} else {b})",
        )  # fmt: skip

    def test(self, depth: int = 1) -> str:
        a, b = self.index(depth), self.index(depth)
        op = self.pick("<", "<=", ">", ">=", "==", "!=", "<", "<")
        text = f"{a} {op} {b}"
        if depth and self.rng.random() < 0.4:
            text = self.pick(f"not ({text})", f"({text} and {self.test(0)})",
                             f"({text} or {self.test(0)})", f"0 <= {a} < {b}")  # fmt: skip
        return text

    def body(self, indent: str, depth: int) -> None:
        self.lines.append(f"{indent}pass")
        for _ in range(self.rng.integers(1, 4)):
            self.statement(indent, depth)

    def statement(self, indent: str, depth: int) -> None:
        kind = self.pick("store", "store", "if", "if", "for", "while", "assign", "change")
        if depth == 0 and kind in ("if", "for", "while"):
            kind = "store"
        known, name = list(self.names), next(self.fresh)
        if kind == "store":
            array, index = self.pick("x", "y"), self.index(1)
            guard = f"if 0 <= {index} < {array}.size: " if self.rng.random() < 0.6 else ""
            self.lines.append(f"{indent}{guard}{array}[{index}] = {self.pick('x', 'y')}[0]")
        elif kind == "assign":
            self.lines.append(f"{indent}{name} = {self.index()}")
            self.names.append(name)
        elif kind == "change" and (mine := [n for n in self.names if n[0] == "v"]):
            changed = self.pick(*mine)
            self.lines.append(f"{indent}{changed} = {changed} {self.pick('+', '-', '//')} 2")
        elif kind == "if":
            self.lines.append(f"{indent}if {self.test()}:")
            self.body(indent + "    ", depth - 1)
            self.names = list(known)
            if self.rng.random() < 0.4:
                self.lines.append(f"{indent}else:")
                self.body(indent + "    ", depth - 1)
        elif kind == "for":
            ends = self.pick(f"{self.index(1)} % 9", f"{self.number()}, {self.index(1)} % 9, 2")
            self.lines.append(f"{indent}for {name} in range({ends}):")
            self.names.append(name)
            self.body(indent + "    ", depth - 1)
        elif kind == "while":
            name = name.replace("v", "loop")  # not changed by the body: the loop has to end
            self.lines.append(f"{indent}{name} = {self.pick(self.index(1) + ' % 9', '0', '2')}")
            self.lines.append(f"{indent}while {name} < {self.pick('x.size', 'y.size', 'n', '5')}:")
            self.names.append(name)
            self.body(indent + "    ", depth - 1)
            if self.rng.random() < 0.3:
                self.lines.append(f"{indent}    if {self.test(0)}: break")
            self.lines.append(f"{indent}    {name} += {self.pick('1', '3', 'cuda.gridsize(1)')}")
        self.names = known if kind not in ("assign",) else self.names

    def function(self, number: int):
        self.body("    ", 2)
        head = ["def kernel(x, y, n):", "    i, t = cuda.grid(1), cuda.threadIdx.x"]
        text = "\n".join([*head, *self.lines]) + "\n"
        path = f"<random kernel {number}>"
        linecache.cache[path] = (len(text), None, text.splitlines(True), path)
        scope = {"cuda": cuda}
        exec(compile(text, path, "exec"), scope)
        return scope["kernel"], text


def test_what_is_proven_is_true(rng):
    """Random kernels: where all conditions hold, no index leaves its array."""
    proven = refused = 0
    for number in range(KERNELS):
        kernel, text = Random(rng).function(number)
        texts = conditions(kernel, (VECTOR, VECTOR, N), (4, 1, 1))
        if texts is None:
            continue
        for size_x, size_y, n, blocks in itertools.product((0, 1, 7), (2, 9), (0, 5), (1, 3)):
            args = dict(x=np.zeros(size_x, np.float32), y=np.zeros(size_y, np.float32), n=n)
            fine = hold(texts, (blocks, 1), args)
            proven, refused = proven + fine, refused + (not fine)
            if fine:
                try:
                    interpreter.run(kernel, blocks, 4, tuple(args.values()))
                except KernelIndexError as error:
                    pytest.fail(f"{error}\n{text}\n{texts}\n{args}, {blocks} blocks")
    print(f"{proven} launches proven, {refused} refused")
    assert proven > 50
    assert refused > 50
