"""Bug hunts: each gives a wrong kernel (`broken.py`, `broken.cu`), which is to be repaired."""

from __future__ import annotations

from functools import partial

import numpy as np

from kernels.lab.course.exercise import Problem
from kernels.lab.course.tasks.table import FLAT, blank, blocks, exercise, floats

bug_hunt = partial(exercise, broken=True)


@bug_hunt(
    "x, out",
    "In each block of 64 threads: s[t] = x[t] + x[t + 1] (the first follows the last), then"
    " out[t] = s[t] - s[t - 1]. The values are right on some days.",
    (64, 320),
    uses="shared barrier",
    efficiency=0.9,
    traffic=1.3,
)
def fix_barrier(rng, n):
    x = floats(rng, n)
    rows = x.reshape(-1, 64)
    s = rows + np.roll(rows, -1, 1)
    return Problem(n // 64, 64, (x, blank(n)), ((s - np.roll(s, 1, 1)).ravel(),))


@bug_hunt(
    "x, out",
    "out[i] = x[i + 1] - x[i]; out is one shorter than x.",
    (65, 200, 1000),
    efficiency=0.6,
    traffic=1.7,
)
def fix_guard(rng, n):
    x = floats(rng, n)
    return Problem(blocks(n, 64), 64, (x, blank(n - 1)), (np.diff(x),))


@bug_hunt(
    "x, counts",
    "counts[v] becomes how often v is in x (integers of 0 .. 9). Each block of 64 threads counts in"
    " shared memory first. The counts are too low.",
    (64, 1000),
    uses="shared barrier atomics",
    atomics=1.5,
    advice={
        "shared race of a line": "`tile[v] += 1` loads, adds and stores, and two threads"
        " may load the same number: cuda.atomic.add does the three as one"
    },
)
def fix_histogram(rng, n):
    x = rng.integers(0, 10, n)
    return Problem(blocks(n, 64), 64, (x, np.zeros(10, np.int64)), (np.bincount(x, minlength=10),))


@bug_hunt(
    "x, rows, columns, out",
    "out[j] = the sum of column j of a matrix whose rows lie one after the other in x. It works for"
    " square matrices.",
    ((20, 70), (70, 20)),
    efficiency=0.5,
    traffic=1.3,
)
def fix_stride(rng, rows, columns):
    x = floats(rng, rows, columns)
    trap = "element (i, j) of a matrix in C order is at i * columns + j"
    args = x.ravel(), np.int32(rows), np.int32(columns), blank(columns)
    return Problem(blocks(columns, 64), 64, args, (x.sum(0),), trap=trap)


@bug_hunt(
    "x, out",
    "out[b] = the sum of block b's 64 elements. A GPU hangs where x ends inside a block.",
    FLAT,
    uses="shared barrier",
    traffic=1.3,
    lanes=0.5,
)
def fix_divergence(rng, n):
    x, count = floats(rng, n), blocks(n, 64)
    sums = np.pad(x, (0, count * 64 - n)).reshape(-1, 64).sum(1)
    return Problem(count, 64, (x, blank(count)), (sums,))


@bug_hunt(
    "x, out",
    "out[b] = the maximum of block b's 64 elements. The last block's is wrong now and then.",
    FLAT,
    uses="shared barrier",
    traffic=1.3,
    lanes=0.5,
)
def fix_uninitialised(rng, n):
    x, count = floats(rng, n) - 5, blocks(n, 64)  # all negative: 0 is no start for a maximum
    padded = np.pad(x, (0, count * 64 - n), constant_values=-np.inf)
    trap = "all elements are negative: a thread without an element must give less than each of them"
    return Problem(count, 64, (x, blank(count)), (padded.reshape(-1, 64).max(1),), trap=trap)


@bug_hunt(
    "x, out",
    "out[i] = the sum of row i of x (n, 32). A block loads 64 rows into shared memory, then each"
    " thread adds up a row. The values are right, and 32 lanes wait for one bank.",
    (64, 128),
    uses="shared barrier",
    efficiency=0.9,
    traffic=1.3,
)
def fix_banks(rng, n):
    x = floats(rng, n, 32)
    return Problem(n // 64, 64, (x, blank(n)), (x.sum(1),))


@bug_hunt(
    "x, out",
    "out[w] = the maximum of warp w's 32 elements, by shuffles. x has a multiple of 64 elements.",
    (64, 320),
    uses="shuffle",
    advice={"shuffle": "the mask names the lanes that execute the shuffle, which are all 32"},
    traffic=1.3,
    lanes=0.4,
)
def fix_mask(rng, n):
    x = floats(rng, n)
    return Problem(n // 64, 64, (x, blank(n // 32)), (x.reshape(-1, 32).max(1),))


@bug_hunt(
    "x, out",
    "out[b] = the sum of block b's 64 elements, for x of int32 and out of int64 (const int* x, long"
    " long* out in CUDA C). Some sums are negative, and no element is.",
    FLAT,
    uses="shared barrier",
    traffic=1.4,
    lanes=0.5,
)
def fix_overflow(rng, n):
    x, count = rng.integers(2**28, 2**30, n, np.int32), blocks(n, 64)
    sums = np.pad(x.astype(np.int64), (0, count * 64 - n)).reshape(-1, 64).sum(1)
    trap = "the sum of a block is beyond 2**31 - 1, where int32 wraps around: add up in int64"
    return Problem(count, 64, (x, blank(count, dtype=np.int64)), (sums,), trap=trap)


@bug_hunt(
    "x, out",
    "out[j] = the mean of column j of x (n, columns), float16 (const __half* x in CUDA C); out is"
    " float32. Means of 3000 numbers near 1 come out as 0.68.",
    ((50, 70), (3000, 64)),
    efficiency=0.4,
    traffic=1.3,
)
def fix_half(rng, n, columns):
    x = rng.uniform(0.5, 1.5, (n, columns)).astype(np.float16)
    trap = (
        "float16 has 11 bits: from 2048 on, adding 1 changes nothing; convert to float32 and add"
        " up in float32"
    )
    expected = x.astype(np.float32).mean(0)
    args = x, blank(columns)
    return Problem(blocks(columns, 64), 64, args, (expected,), trap=trap)
