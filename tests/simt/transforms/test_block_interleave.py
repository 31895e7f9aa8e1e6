"""Interleaved blocks share what all of them load, and compute what each would alone."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from numba import float32, float64, int64, njit

from kernels.simt import cuda
from kernels.simt.interpreter import interpreter
from kernels.simt.ir import memory as memory_functions
from kernels.support import thread_pool
from tests.simt.plans import plan

FIRST = int(os.environ.get("MINIGRAD_TEST_SEED", "0"))
T = 8


def in_step(kernel) -> bool:
    return "are interleaved" in plan(kernel)


@cuda.jit
def matmul(a, b, c):
    sa = cuda.shared.array((T, T), float32)
    sb = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    total = float32(0)
    for p in range(0, a.shape[1], T):
        sa[ty, tx] = a[y, p + tx] if y < a.shape[0] and p + tx < a.shape[1] else float32(0)
        sb[ty, tx] = b[p + ty, x] if p + ty < b.shape[0] and x < b.shape[1] else float32(0)
        cuda.syncthreads()
        for q in range(T):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (9, 0, 11), (70, 9, 75), (130, 33, 8), (8, 70, 150), (64, 64, 64), (70, 133, 20)],
)
def test_a_tiled_matmul_shares_the_tiles_of_b(shape, threads):
    n, inner, m = shape
    rng = np.random.default_rng(n)
    a = rng.integers(-4, 5, (n, inner)).astype(np.float32)
    b = rng.integers(-4, 5, (inner, m)).astype(np.float32)
    c = np.full((n, m), np.nan, np.float32)
    grid = (-(-m // T), -(-n // T))
    before = thread_pool.get_num_threads()
    thread_pool.set_num_threads(threads)
    try:
        matmul[grid, (T, T)](a, b, c)  # measures the cost of a block
        c[:] = np.nan
        matmul.specialise((T, T, 1), (a, b, c)).run_shared((*grid, 1), 0, (a, b, c), 10**9)
    finally:
        thread_pool.set_num_threads(before)
    np.testing.assert_array_equal(c, a @ b)
    assert in_step(matmul)
    assert "16 iterations at a time" in plan(matmul, (T, T))


@cuda.jit
def forces(positions, out):
    """n bodies on a line: each block goes through the tiles that all others go through."""
    tile = cuda.shared.array(16, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = positions[i]
    force = float32(0)
    p = 0
    while p < positions.size:
        tile[t] = positions[p + t]
        cuda.syncthreads()
        for k in range(16):
            force += abs(tile[k] - mine)
        cuda.syncthreads()
        p += 16
    out[i] = force


def test_along_x_where_the_grid_is_a_line():
    positions = np.random.default_rng(1).integers(-9, 9, 16 * 11).astype(np.float32)
    out = np.zeros_like(positions)
    forces[11, 16](positions, out)
    np.testing.assert_array_equal(out, abs(positions[:, None] - positions).sum(1))
    assert in_step(forces)


def test_a_listing_shows_what_is_done_once():
    a = np.zeros((8, 8), np.float32)
    matmul[(1, 1), (T, T)](a, a, a.copy())
    once = plan(matmul, (T, T)).split("the first block, for all that are interleaved:")[1]
    fill = once.split("without own tiles")[0]
    assert "sb[" in fill and "sa[" not in fill


@cuda.jit
def matmul_of_parts(a, b, starts, c):
    """Row starts[z] + y of a, as in batched products whose parts are found through a table."""
    tile = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.blockIdx.x * T + tx, starts[cuda.blockIdx.z] + cuda.blockIdx.y * T
    total = float32(0)
    for p in range(0, a.shape[1], T):
        tile[ty, tx] = b[p + ty, x]
        cuda.syncthreads()
        for q in range(T):
            total += a[y + ty, p + q] * tile[q, tx]
        cuda.syncthreads()
    c[y + ty, x] = total


def test_a_load_that_blocks_have_in_common_is_done_once():
    """What is added to it is then computed for each block, not kept for each of its threads."""
    rng = np.random.default_rng(2)
    a = rng.integers(-4, 5, (6 * T, 2 * T)).astype(np.float32)
    b = rng.integers(-4, 5, (2 * T, 3 * T)).astype(np.float32)
    c = np.zeros((6 * T, 3 * T), np.float32)
    starts = np.array([0, 4 * T])
    matmul_of_parts[(3, 2, 2), (T, T)](a, b, starts, c)
    expected = a @ b
    expected[2 * T : 4 * T] = 0
    np.testing.assert_array_equal(c, expected)
    assert in_step(matmul_of_parts)
    text = plan(matmul_of_parts, (T, T))
    assert "declare _s_total" in text and "declare _s_y" not in text


@cuda.jit
def without_guards(a, b, c):
    sa = cuda.shared.array((32, 32), float32)
    sb = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    total = float32(0)
    for p in range(0, a.shape[1], 32):
        sa[ty, tx] = a[y, p + tx]
        sb[ty, tx] = b[p + ty, x]
        cuda.syncthreads()
        for q in range(32):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit
def through_a_view(a, b, c):
    sa = cuda.shared.array((32, 32), float32)
    sb = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    result = c[y]
    total = float32(0)
    for p in range(0, a.shape[1], 32):
        sa[ty, tx] = a[y, p + tx]
        sb[ty, tx] = b[p + ty, x]
        cuda.syncthreads()
        for q in range(32):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    result[x] = total


@pytest.mark.parametrize("kernel", [without_guards, through_a_view])
@pytest.mark.parametrize("first", [0, 100, 1000, 2048, 4096])
def test_a_result_may_lie_where_a_factor_does(kernel, first):
    """A block has read all of a when it stores: no row may store while others still read."""
    memory = np.random.default_rng(first).integers(-4, 5, 6000).astype(np.float32)
    a, c = memory[: 32 * 64].reshape(32, 64), memory[first : first + 32 * 32].reshape(32, 32)
    b = memory[-64 * 32 :].reshape(64, 32).copy()
    expected = a @ b
    kernel[(1, 1), (32, 32)](a, b, c)
    np.testing.assert_array_equal(c, expected)
    assert ("in each row's last iterations" in plan(kernel)) == (kernel is without_guards)


def views(rng, memory):
    """Two views that may share memory: whole ones, with steps, backwards, transposed."""
    for _ in range(2):
        first, rows, columns = rng.integers(0, 3000), *rng.integers(1, 30, 2)
        view = memory[first : first + rows * columns].reshape(rows, columns)
        yield (view, view[::-1], view[:, ::2], view.T)[rng.integers(4)]


def test_whether_arrays_are_apart():
    rng, memory = np.random.default_rng(FIRST), np.zeros(4000, np.float32)
    are_apart = njit(lambda a, b: memory_functions.apart(a, b))
    for _ in range(500):
        a, b = views(rng, memory)
        assert are_apart(a, b) == (not np.may_share_memory(a, b))


@cuda.jit
def until_the_end(a, b, c):
    """The last tile has fewer terms, so the length of the inner loop is no constant."""
    sa = cuda.shared.array((T, T), float32)
    sb = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    terms = a.shape[1]
    total = float32(0)
    for p in range(0, terms, T):
        sa[ty, tx] = a[y, p + tx] if y < a.shape[0] and p + tx < terms else float32(0)
        sb[ty, tx] = b[p + ty, x] if p + ty < terms and x < b.shape[1] else float32(0)
        cuda.syncthreads()
        for q in range(min(terms - p, T)):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@pytest.mark.parametrize("terms", [1, T - 1, T, T + 1, 5 * T, 16 * T, 16 * T + 3, 40 * T - 1])
@pytest.mark.parametrize("shape", [(2 * T, 3 * T), (3 * T + 5, 2 * T + 1)])
def test_full_tiles_and_the_last_one(terms, shape):
    rng = np.random.default_rng(terms)
    a = rng.integers(-4, 5, (shape[0], terms)).astype(np.float32)
    b = rng.integers(-4, 5, (terms, shape[1])).astype(np.float32)
    c = np.full(shape, np.nan, np.float32)
    grid = (-(-shape[1] // T), -(-shape[0] // T))
    until_the_end[grid, (T, T)](a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert in_step(until_the_end)
    assert "as many iterations as there can be, where terms - p >= 8" in plan(until_the_end)


class Writer:
    """A random kernel whose blocks may share s0, and keep s1 for themselves.

    Between barriers a thread writes its own elements or reads any; all numbers are integers.
    """

    def __init__(self, seed: int) -> None:
        self.r, self.seed = random.Random(seed), seed
        self.block = self.r.choice([(4, 4), (8, 2), (5, 3)])
        self.grid = self.r.choice([(3, 5), (2, 9), (5, 1), (1, 11, 2), (13, 2)])
        self.loop = self.r.choice(["for p in range(4):", "while p < 4:"])
        self.tiles = self.r.random() < 0.5  # one of memory, one common: filled once a turn
        if self.tiles:
            self.edge = self.r.randint(1, 20)
            first, step, turns = (self.r.randint(lowest, 12) for lowest in (0, 1, 0))
            self.loop = f"for p in range({first}, a.size - {23 - first - turns}, {step}):"

    def fill(self) -> list[str]:
        r = self.r
        if self.tiles:
            index = r.choice(["y + p + tx", "p * 5 + ty + 2 * x", "ty + tx + w"])
            guard = f"{index} < a.size - {r.randint(0, 5)} and {r.choice(['y', 'p'])} < {self.edge}"
            other = r.choice(["0", "p", "w"])
            own = [
                [f"s1[ty, tx] = a[({index}) % a.size]"],
                [f"s1[ty, tx] = a[{index}] if {guard} else {other}"],
                [f"s1[ty, tx] = {other}", f"if {guard}:", f"    s1[ty, tx] = a[{index}]"],
            ]
            return [
                *own[self.seed % 3],
                f"s0[ty, tx] = {r.choice(['p', 'x', 'w'])} + a[(x + p) % a.size]",
            ]
        shared = ["p", "tx", "ty", "cuda.blockIdx.x", "w", "a[(x + p) % a.size]"]
        if r.random() < 0.1:
            shared.append("y")
        value = lambda among: f"{r.choice(among)} * {r.randint(1, 3)} + {r.choice(among)}"  # noqa: E731
        own = ["x", "y", "v", "p", "cuda.blockIdx.y", "a[(y + p) % a.size]"]
        test = r.choice(["tx < 2", "p % 2 == 0", "(ty + p) % 3 < 2", "x % 5 > 1"])
        if r.random() < 0.25:
            test = "y % 2 == 0"
        choices = [
            [f"s0[ty, tx] = {value(shared)}"],
            [f"s0[ty, tx] = {value(shared)}"],
            [f"s1[ty, tx] = {value(own)}"],
            [f"s1[ty, tx] = {value(own)}"],
            [f"if {test}:", f"    s0[ty, tx] = {value(shared)}"],
            [f"if {test}:", f"    s1[ty, tx] = {value(own)}", f"    s0[ty, tx] = {value(shared)}"],
            [f"s0[ty, tx] += {value(shared)}"],
            [f"v = (v + {value(own)}) % 1009"],
            [f"k = {value(['p', 'tx', 'ty'])}", "s0[ty, tx] = k", "s1[ty, tx] = k + y"],
        ]
        if r.random() < 0.15:
            choices.append(["w += 1"])
        if r.random() < 0.4:  # what lies in s1 stays from turn to turn
            del choices[2:4]
        return [line for lines in r.sample(choices, r.randint(2, 4)) for line in lines]

    def read(self) -> list[str]:
        x, y = self.block
        if self.tiles:
            term = self.r.choice([f"s0[q % {y}, tx]", f"s0[(ty + p) % {y}, q]", "v"])
            return [f"for q in range({x}):", f"    v = (v + s1[ty, q] * {term}) % 10007"]
        choices = [
            [f"v += s0[(ty + p) % {y}, q] * s1[ty, q]"],
            [f"v += s1[(ty + 1) % {y}, tx] - s0[q % {y}, tx]"],
            ["kept[p % 2] += s0[ty, q]", "v += kept[0] * 3 + kept[1]"],
        ]
        body = [line for lines in self.r.sample(choices, 2) for line in lines]
        return [f"for q in range({x}):", *("    " + line for line in body), "v = v % 10007"]

    def text(self) -> str:
        x, y = self.block
        inside = [*self.fill(), "cuda.syncthreads()", *self.read(), "cuda.syncthreads()"]
        if self.r.random() < 0.4 and not self.tiles:
            inside += [*self.fill(), "cuda.syncthreads()", *self.read(), "cuda.syncthreads()"]
        if self.r.random() < 0.3 and not self.tiles:
            inside += ["h = 2", "while h > 0:", f"    v += s1[(ty + h) % {y}, tx]"]
            inside += ["    cuda.syncthreads()", "    h //= 2"]
        if "while" in self.loop:
            inside.append("p += 1")
        lines = [
            f"s0 = cuda.shared.array(({y}, {x}), int64)",
            f"s1 = cuda.shared.array(({y}, {x}), int64)",
            "kept = cuda.local.array(2, int64)",
            "tx, ty = cuda.threadIdx.x, cuda.threadIdx.y",
            "x, y = cuda.grid(2)",
            "p, w, v = 0, tx, x + 3 * y",
            "kept[0], kept[1] = 0, y",
            *(["s0[ty, tx] = 0", "s1[ty, tx] = y", "cuda.syncthreads()"] * (not self.tiles)),
            self.loop,
            *("    " + line for line in inside),
            "out[cuda.blockIdx.z, y, x] = v",
        ]
        return "@jit\ndef kernel(a, out):\n" + "".join(f"    {line}\n" for line in lines)


def run(seed: int, folder) -> tuple[str, bool]:
    """(what differs from threads that run one by one, whether blocks kept step)."""
    writer = Writer(seed)
    text, (x, y) = writer.text(), writer.block
    gx, gy, *gz = writer.grid
    path = folder / f"step_{seed}.py"
    path.write_text(text)
    scope = {"cuda": cuda, "int64": int64, "jit": cuda.jit}
    exec(compile(text, str(path), "exec"), scope)
    shape = (*(gz or [1]), gy * y, gx * x)
    same = same_as_interpreted(scope["kernel"], writer.grid, writer.block, shape, seed)
    return "" if same else f"seed {seed}:\n{text}", in_step(scope["kernel"])


def same_as_interpreted(kernel, grid, block, shape, seed=0) -> bool:
    a = np.random.default_rng(seed).integers(-9, 9, 23)
    here, there = (a.copy(), np.zeros(shape, np.int64)), (a.copy(), np.zeros(shape, np.int64))
    kernel[grid, block](*here)
    interpreter.run(kernel.py_func, grid, block, there)
    return all(map(np.array_equal, here, there))


@cuda.jit
def filled_by_some_blocks(a, out):
    s0 = cuda.shared.array(4, int64)
    x, y = cuda.grid(2)
    t, v = cuda.threadIdx.x, 0
    s0[t] = 0
    cuda.syncthreads()
    for p in range(4):
        if (cuda.blockIdx.x + cuda.blockIdx.y) % 2 == p % 2:
            s0[t] = p + t
        cuda.syncthreads()
        v += s0[3 - t]
        cuda.syncthreads()
    out[0, y, x] = v


@cuda.jit
def filled_with_what_was_read(a, out):
    s0 = cuda.shared.array(4, int64)
    x, y = cuda.grid(2)
    t = cuda.threadIdx.x
    v, w = y, cuda.threadIdx.x
    for p in range(5):
        s0[t] = w + p
        cuda.syncthreads()
        for q in range(4):
            v += s0[q] * y
            w += s0[q]
        cuda.syncthreads()
    out[0, y, x] = v + w


@cuda.jit
def read_before_it_is_filled(a, out):
    s1 = cuda.shared.array((4, 4), int64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    v = 0
    for p in range(5):
        if p > 0:
            v += s1[ty, 1]
        cuda.syncthreads()
        s1[ty, tx] = a[(y + p + tx) % a.size]
        cuda.syncthreads()
        v += 10 * s1[ty, 2]
    out[0, y, x] = v


@cuda.jit
def filled_across(a, out):
    s1 = cuda.shared.array((4, 4), int64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    v = 0
    for p in range(5):
        s1[tx, ty] = a[(y + p * 3 + 2 * tx) % a.size]
        cuda.syncthreads()
        for q in range(4):
            v = v * 2 + s1[q, ty]
        cuda.syncthreads()
    out[0, y, x] = v


@cuda.jit
def memory_changes_meanwhile(a, out):
    s1 = cuda.shared.array((4, 4), int64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    v = 0
    for p in range(3):
        s1[ty, tx] = a[ty * 4 + tx]
        cuda.syncthreads()
        a[ty * 4 + tx] = p
        for q in range(4):
            v = v * 2 + s1[ty, q]
        cuda.syncthreads()
    out[0, y, x] = v


@cuda.jit
def seen_through_a_view(a, out):
    s0 = cuda.shared.array((4, 4), int64)
    s1 = cuda.shared.array((4, 4), int64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    row = s1[ty]
    s1[ty, tx] = y
    cuda.syncthreads()
    v = 0
    for p in range(4):
        s0[ty, tx] = p + x
        cuda.syncthreads()
        for q in range(4):
            v += s0[ty, q] * row[q]
        cuda.syncthreads()
    out[0, y, x] = v


@cuda.jit
def set_beside_a_guarded_fill(a, out):
    s0 = cuda.shared.array((4, 4), int64)
    s1 = cuda.shared.array((4, 4), int64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    v = 0
    for p in range(5):
        s1[ty, tx] = a[y + p + tx] if y + p + tx < 18 else 0
        s0[ty, tx] = p + x
        w = a[y + p]
        cuda.syncthreads()
        for q in range(4):
            v += s1[ty, q] * s0[q, tx] + w
        cuda.syncthreads()
    out[0, y, x] = v


def guarded(kept):
    """Beyond the edge, which comes with the fourth turn at first, s1 is as in the turn before; or
    it is read after the loop."""
    limit = 14 if kept else 23

    @cuda.jit
    def kernel(a, out):
        s0 = cuda.shared.array((4, 4), int64)
        s1 = cuda.shared.array((4, 4), int64)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        x, y = cuda.grid(2)
        v = 0
        for p in range(0, 16, 3):
            if y + p + tx < limit:
                s1[ty, tx] = a[y + p + tx]
            elif not kept:
                s1[ty, tx] = 0
            s0[ty, tx] = p + x
            cuda.syncthreads()
            for q in range(4):
                v += s1[ty, q] * s0[q, tx]
            cuda.syncthreads()
        out[0, y, x] = v if kept else v + s1[ty, 1]

    return kernel


@cuda.jit
def sums(a, out):
    tile = cuda.shared.array((2, 4), float64)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float64(x + 3 * y)
    kept = cuda.local.array(1, float64)
    kept[0] = 1
    for p in range(0, a.size, 4):
        tile[ty, tx] = a[p + tx]
        cuda.syncthreads()
        total += tile[ty, tx]
        cuda.syncthreads()
    kept[0] += total
    out[y, x] += kept[0] - 1


@pytest.mark.parametrize(
    "kernel, grid, block, sharing",
    [
        (filled_by_some_blocks, (2, 3), (4, 1), False),
        (filled_with_what_was_read, (2, 3), (4, 1), True),
        (read_before_it_is_filled, (2, 3), (4, 4), True),  # along x
        (filled_across, (2, 3), (4, 4), False),
        (memory_changes_meanwhile, (1, 1), (4, 4), True),
        (seen_through_a_view, (2, 3), (4, 4), True),
        (set_beside_a_guarded_fill, (2, 3), (4, 4), True),
        (guarded(kept=True), (2, 1), (4, 4), True),
        (guarded(kept=False), (2, 1), (4, 4), True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_looks_common_or_needless(kernel, grid, block, sharing):
    shape = (1, grid[1] * block[1], grid[0] * block[0])
    assert same_as_interpreted(kernel, grid, block, shape)
    assert in_step(kernel) == sharing
    # s1 is read by rows that read together; the two kernels beside this one must not use memory
    beside = (read_before_it_is_filled, memory_changes_meanwhile)
    if kernel is filled_across or kernel in beside:
        assert ("declare s1" in plan(kernel)) == (kernel in beside)


def test_what_comes_before_and_after_the_loop_is_done_once():
    """Where the loop has no turn, too."""
    for tiles in (0, 1, 9):
        a, out = np.arange(4.0 * tiles), np.zeros((6, 4))
        sums[(1, 3), (4, 2)](a, out)
        x, y = np.arange(4), np.arange(6)[:, None]
        np.testing.assert_array_equal(out, x + 3 * y + a.reshape(-1, 4).sum(0))
    assert in_step(sums)
    assert "if _chunk == 0:" in sums.inspect_cpu()


@pytest.mark.parametrize("count", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_random_kernels_do_the_same_in_step(count, tmp_path):
    print(f"seeds {FIRST} to {FIRST + count - 1}")
    failures, stepped = zip(*(run(seed, tmp_path) for seed in range(FIRST, FIRST + count)))
    assert not any(failures), "\n".join(failures)
    assert sum(stepped) >= count // 3, f"only {sum(stepped)} of {count} kept step"
