"""The kernels of a network at their best, and what the hardware offers for them: registers, warps,
the whole grid, wide loads, half precision, tensor cores."""

from __future__ import annotations

import numpy as np

from kernels.lab.course.exercise import Problem
from kernels.lab.course.tasks.table import blank, blocks, exercise, floats

OVERFLOW = "exp overflows for large scores: keep the maximum so far, and subtract it"


@exercise(
    "x, w, out",
    "A convolution without padding: out[f, i, j] = the sum over c, p, q of x[c, i + p, j + q] *"
    " w[f, c, p, q], for x (channels, height, width) and w (filters, channels, size, size). One"
    " thread per element of out: x of the grid along j, y along i, z along f.",
    ((2, 9, 40, 3, 3), (3, 12, 35, 2, 5)),
    efficiency=0.5,
)
def conv2d(rng, channels, height, width, filters, size):
    x, w = floats(rng, channels, height, width), floats(rng, filters, channels, size, size)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    expected = np.einsum("cijpq,fcpq->fij", windows, w)
    grid = blocks(expected.shape[2], 32), blocks(expected.shape[1], 4), filters
    return Problem(grid, (32, 4), (x, w, blank(*expected.shape)), (expected,))


@exercise(
    "a, b, out",
    "out = a @ b. A block of 8 x 8 threads makes 32 x 32 elements of out; each thread keeps 4 x 4"
    " of them in registers. Tiles of a (32 x 8) and b (8 x 32) are in shared memory. What a thread"
    " reads from them it uses four times.",
    ((40, 33, 45), (32, 16, 32)),
    uses="shared barrier",
    traffic=3,
    shared_reads=2,
    advice={
        "shared_reads": "read 4 elements of a's tile and 4 of b's tile into variables (a"
        " cuda.local.array), and make 16 products of them"
    },
)
def matmul_registers(rng, m, k, n):
    a, b = floats(rng, m, k), floats(rng, k, n)
    return Problem((blocks(n, 32), blocks(m, 32)), (8, 8), (a, b, blank(m, n)), (a @ b,))


@exercise(
    "x, out",
    "softmax of each row, one block of 64 threads per row, that reads x twice: once for the maximum"
    " and the sum together, corrected whenever the maximum grows, and once for the quotients.",
    ((3, 64), (5, 150), (4, 20), (3, 100, 100)),
    uses="shared barrier",
    traffic=1.7,
    lanes=0.5,
    advice={
        "traffic": "one loop keeps both the maximum so far and the sum: where an element is larger"
        " than the maximum, the sum so far is multiplied by exp(old maximum - new maximum)"
    },
)
def softmax_online(rng, rows, columns, scale=1):
    x = scale * floats(rng, rows, columns)
    e = np.exp(x - x.max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True)
    trap = "exp overflows for large x: subtract the maximum so far" if scale > 1 else ""
    return Problem(rows, 64, (x, blank(rows, columns)), (expected,), trap=trap)


@exercise(
    "g, x, mean, rstd, out",
    "The gradient of layer norm, one block of 64 threads per row: with xhat = (x - mean) * rstd,"
    " out = rstd * (g - average(g) - xhat * average(g * xhat)). mean and rstd hold one number per"
    " row.",
    ((3, 64), (5, 150), (4, 50)),
    uses="shared barrier",
    traffic=2.6,
    lanes=0.5,
)
def layer_norm_backward(rng, rows, columns):
    g, x = floats(rng, rows, columns), 1 + floats(rng, rows, columns)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + np.float32(1e-5))
    xhat = (x - mean[:, None]) * rstd[:, None]
    centred = g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True)
    args = g, x, mean, rstd, blank(rows, columns)
    return Problem(rows, 64, args, (rstd[:, None] * centred,))


@exercise(
    "q, k, v, out",
    "Attention: out = softmax(q @ k.T / 4) @ v for q (queries, 16), k and v (keys, 16). One thread"
    " per query, 64 in a block. Tiles of 32 keys and values pass through shared memory; each thread"
    " keeps the maximum so far, the sum and 16 results, so that scores are never stored.",
    ((64, 64), (100, 77), (64, 50, 100)),
    uses="shared barrier",
    traffic=2,
)
def attention(rng, queries, keys, scale=1):
    q, k, v = scale * floats(rng, queries, 16), floats(rng, keys, 16), floats(rng, keys, 16)
    scores = q @ k.T / 4
    p = np.exp(scores - scores.max(1, keepdims=True))
    expected = p @ v / p.sum(1, keepdims=True)
    args = q, k, v, blank(queries, 16)
    return Problem(
        blocks(queries, 64), 64, args, (expected,), trap=OVERFLOW if scale > 1 else "", atol=1e-3
    )


@exercise(
    "gx, gh, h, out",
    "A GRU's cell: gx and gh (rows, 3 * hidden) hold the products of the input and of the state"
    " with the weights, for r, z and n side by side. r = sigmoid(gx_r + gh_r), z = sigmoid(gx_z +"
    " gh_z), n = tanh(gx_n + r * gh_n), out = (1 - z) * n + z * h. x of the grid runs along"
    " hidden.",
    ((9, 40), (20, 33)),
    efficiency=0.6,
    traffic=1.3,
)
def gru_cell(rng, rows, hidden):
    gx, gh, h = (
        floats(rng, rows, 3 * hidden),
        floats(rng, rows, 3 * hidden),
        floats(rng, rows, hidden),
    )
    (xr, xz, xn), (hr, hz, hn) = np.split(gx, 3, 1), np.split(gh, 3, 1)
    r, z = 1 / (1 + np.exp(-xr - hr)), 1 / (1 + np.exp(-xz - hz))
    expected = (1 - z) * np.tanh(xn + r * hn) + z * h
    grid = blocks(hidden, 32), blocks(rows, 4)
    return Problem(grid, (32, 4), (gx, gh, h, blank(rows, hidden)), (expected,))


@exercise(
    "x, out, counts",
    "Each warp moves the positive ones of its 32 elements to the front of its 32 places in out, in"
    " their order, and fills the rest with 0; counts[warp] becomes how many they are. Lanes know"
    " the places from a ballot and the bits below their own. There are 64 threads in a block.",
    (64, 200),
    uses="ballot",
    traffic=2,
)
def compact(rng, n):
    x = floats(rng, n)
    warps = np.pad(x, (0, -n % 64)).reshape(-1, 32)
    packed = np.zeros_like(warps)
    for row, line in zip(packed, warps):
        row[: (line > 0).sum()] = line[line > 0]
    counts = (warps > 0).sum(1)
    args = x, blank(warps.size), blank(len(counts), dtype=np.int64)
    return Problem(blocks(n, 64), 64, args, (packed.ravel(), counts))


@exercise(
    "x, partial, out",
    "out[i] = x[i] - the mean of all of x, in one launch of 4 blocks of 64 threads. Block b writes"
    " the sum of its share to partial[b]; after a barrier of the whole grid each thread adds the"
    " four up.",
    (200, 1000),
    uses="barrier grid_barrier",
    lanes=0.5,
    advice={
        "global race": "a barrier of the block does not order blocks: one of the whole grid does,"
        " cuda.cg.this_grid().sync()"
    },
)
def centre(rng, n):
    x = 3 + floats(rng, n)
    return Problem(4, 64, (x, blank(4), blank(n)), (x - x.mean(),))


@exercise(
    "a, b, out",
    "out = a @ b by blocks of 16 x 16 threads, with two tiles of a and two of b in shared memory:"
    " while a block multiplies one pair it loads the next into the other, so that one barrier per"
    " tile is enough.",
    ((20, 33, 45), (32, 48, 32)),
    uses="shared barrier",
    traffic=3,
)
def matmul_double_buffered(rng, m, k, n):
    a, b = floats(rng, m, k), floats(rng, k, n)
    grid = blocks(n, 16), blocks(m, 16)
    return Problem(grid, (16, 16), (a, b, blank(m, n)), (a @ b,), barriers=blocks(k, 16) + 1)


@exercise(
    "a, x, out",
    "out[i] = a * x[i], four elements per thread, loaded and stored as one float4; the thread at"
    " the end does the up to three elements that are left one by one. For CUDA C: Numba's dialect"
    " has no loads of 16 bytes.",
    (256, 1003),
    dialects=("cuda_c",),
    efficiency=0.9,
    traffic=1.3,
    width=8,
)
def float4_scale(rng, n):
    a, x = np.float32(1.5), floats(rng, n)
    return Problem(blocks(blocks(n, 4), 64), 64, (a, x, blank(n)), (a * x,))


@exercise(
    "x, y, out",
    "out[row] = the sum of x[row] * y[row] for x and y of float16 (const __half* in CUDA C) and out"
    " of float32. One block of 64 threads per row. Numbers are loaded as float16, and multiplied"
    " and added up as float32.",
    ((3, 150), (2, 2048, 300)),
    uses="shared barrier",
    traffic=1.3,
    lanes=0.5,
)
def half_dot(rng, rows, columns, low=0):
    x, y = (rng.uniform(low, low + 2, (rows, columns)).astype(np.float16) for _ in range(2))
    expected = (x.astype(np.float32) * y.astype(np.float32)).sum(1)
    trap = (
        "float16 holds at most 65504, and 11 bits of a number: convert x and y to float32 before"
        " they are multiplied, and add up in float32"
    )
    args = x, y, blank(rows)
    return Problem(rows, 64, args, (expected,), trap=trap if low else "", atol=1e-2)


@exercise(
    "a, b, out",
    "out = a @ b on tensor cores: a and b of float16 (const half*), out of float32. A block is one"
    " warp, which makes 16 x 16 elements of out by nvcuda::wmma. All sizes are multiples of 16. For"
    " CUDA C: Numba's dialect has no tensor cores.",
    ((32, 48, 16), (16, 32, 64)),
    dialects=("cuda_c",),
    uses="tensor_cores",
)
def wmma_matmul(rng, m, k, n):
    a, b = (floats(rng, *shape).astype(np.float16) for shape in ((m, k), (k, n)))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return Problem((n // 16, m // 16), 32, (a, b, blank(m, n)), (expected,), atol=1e-2)
