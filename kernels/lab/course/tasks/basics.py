"""From a first map to a network's layers."""

from __future__ import annotations

import numpy as np

from kernels.lab.course.exercise import Problem
from kernels.lab.course.tasks.table import FLAT, blank, blocks, exercise, floats


@exercise(
    "x, out", "out[i] = x[i] + 10, one thread per element.", FLAT, efficiency=0.9, traffic=1.3
)
def add_ten(rng, n):
    x = floats(rng, n)
    return Problem(blocks(n, 64), 64, (x, blank(n)), (x + 10,))


@exercise("a, x, y, out", "out[i] = a * x[i] + y[i].", FLAT, efficiency=0.9, traffic=1.3)
def saxpy(rng, n):
    a, x, y = np.float32(1.5), floats(rng, n), floats(rng, n)
    return Problem(blocks(n, 128), 128, (a, x, y, blank(n)), (a * x + y,))


@exercise(
    "x, out",
    "out[n - 1 - i] = x[i]: the whole array backwards.",
    FLAT,
    efficiency=0.7,
    traffic=1.3,
)
def reverse(rng, n):
    x = floats(rng, n)
    return Problem(blocks(n, 64), 64, (x, blank(n)), (x[::-1],))


@exercise(
    "a, b, out",
    "out[row, column] = a[row, column] * b[row, column]. The grid is two-dimensional: x runs along"
    " a row, y down the columns.",
    ((33, 70), (70, 33), (16, 16)),
    efficiency=0.6,
    traffic=1.3,
)
def multiply_2d(rng, rows, columns):
    a, b = floats(rng, rows, columns), floats(rng, rows, columns)
    grid = blocks(columns, 32), blocks(rows, 4)
    return Problem(grid, (32, 4), (a, b, blank(rows, columns)), (a * b,))


@exercise(
    "row, column, out",
    "out[i, j] = column[i] + row[j]: a vector along each axis, broadcast.",
    ((35, 50), (50, 35), (16, 16)),
    efficiency=0.6,
    traffic=4,
)
def outer_sum(rng, rows, columns):
    row, column = floats(rng, columns), floats(rng, rows)
    grid = blocks(columns, 32), blocks(rows, 4)
    expected = column[:, None] + row
    return Problem(grid, (32, 4), (row, column, blank(rows, columns)), (expected,))


@exercise(
    "x, out",
    "out[i] = x[i] ** 2 with 2 blocks of 64 threads, however long x is: each thread strides over"
    " the array in steps of the whole grid.",
    (100, 1000, 1023),
    efficiency=0.9,
    traffic=2,
)
def square_strided(rng, n):
    x = floats(rng, n)
    return Problem(2, 64, (x, blank(n)), (x * x,))


@exercise(
    "points, out",
    "points (n, 3) holds x, y, z of each point; out (3, n) all x, then all y, then all z.",
    (64, 333),
    traffic=1.3,
)
def split_points(rng, n):
    points = floats(rng, n, 3)
    return Problem(blocks(n, 64), 64, (points, blank(3, n)), (points.T,))


@exercise(
    "x, index, out",
    "out[i] = x[index[i]]: a gather.",
    (64, 500),
    traffic=2,
)
def gather(rng, n):
    x, index = floats(rng, 97), rng.integers(0, 97, n)
    return Problem(blocks(n, 64), 64, (x, index, blank(n)), (x[index],))


@exercise(
    "x, counts",
    "counts[v] becomes how often v is in x (integers of 0 .. 9); counts is zero at first.",
    (64, 1000),
    uses="atomics",
)
def histogram(rng, n):
    x = rng.integers(0, 10, n)
    expected = np.bincount(x, minlength=10)
    return Problem(blocks(n, 64), 64, (x, np.zeros(10, np.int64)), (expected,))


@exercise(
    "x, out",
    "Each block of 64 threads turns its 64 elements around, through shared memory:"
    " out[64 b + t] = x[64 b + 63 - t]. The length is a multiple of 64.",
    (64, 320),
    uses="shared barrier",
    efficiency=0.9,
    traffic=1.3,
)
def reverse_blocks(rng, n):
    x = floats(rng, n)
    return Problem(n // 64, 64, (x, blank(n)), (x.reshape(-1, 64)[:, ::-1].ravel(),))


@exercise(
    "x, out",
    "out[i] = x[i - 1] + x[i] + x[i + 1], with zeros beyond the ends. Load each element once into"
    " shared memory, 64 of a block and one more on either side.",
    (64, 200, 1000),
    uses="shared barrier",
    traffic=1.3,
)
def stencil(rng, n):
    x = floats(rng, n)
    padded = np.pad(x, 1)
    return Problem(*(blocks(n, 64), 64, (x, blank(n))), (padded[:-2] + padded[1:-1] + padded[2:],))


@exercise(
    "x, out",
    "out = x transposed, with blocks of 32 x 32 threads and a tile in shared memory, so that loads"
    " and stores both run along rows, without bank conflicts.",
    ((40, 70), (64, 64)),
    uses="shared barrier",
    efficiency=0.6,
    traffic=1.3,
)
def transpose(rng, rows, columns):
    x = floats(rng, rows, columns)
    grid = blocks(columns, 32), blocks(rows, 32)
    return Problem(grid, (32, 32), (x, blank(columns, rows)), (x.T,))


@exercise(
    "x, out",
    "out[b] = the sum of block b's 128 elements (fewer at the end of x), by a tree in shared"
    " memory.",
    (128, 300, 1000),
    uses="shared barrier",
    traffic=1.3,
    lanes=0.6,
)
def block_sum(rng, n):
    x = floats(rng, n)
    count = blocks(n, 128)
    sums = np.pad(x, (0, count * 128 - n)).reshape(-1, 128).sum(1)
    return Problem(count, 128, (x, blank(count)), (sums,))


@exercise(
    "x, out",
    "out[0] += all of x, without shared memory: a warp adds up by cuda.shfl_down_sync, then its"
    " first lane adds atomically. out is zero at first.",
    (64, 1000),
    uses="shuffle atomics",
    traffic=1.3,
    atomics=1 / 16,
)
def warp_sum(rng, n):
    x = floats(rng, n)
    return Problem(blocks(n, 128), 128, (x, np.zeros(1, np.float32)), (x.sum(keepdims=True),))


@exercise(
    "x, out",
    "out[i] = x[0] + ... + x[i], one block of 128 threads; x has 128 elements or fewer.",
    (128, 100, 37),
    uses="shared barrier",
    traffic=2,
    lanes=0.6,
)
def scan(rng, n):
    x = floats(rng, n)
    return Problem(1, 128, (x, blank(n)), (np.cumsum(x),))


@exercise(
    "a, b, out",
    "out = a @ b, one thread per element, x along the columns.",
    ((20, 33, 45), (45, 20, 33), (16, 16, 16)),
    efficiency=0.5,
)
def matmul(rng, m, k, n):
    a, b = floats(rng, m, k), floats(rng, k, n)
    return Problem((blocks(n, 32), blocks(m, 4)), (32, 4), (a, b, blank(m, n)), (a @ b,))


@exercise(
    "a, b, out",
    "out = a @ b by blocks of 16 x 16 threads that share tiles of a and b.",
    ((20, 33, 45), (32, 32, 32)),
    uses="shared barrier",
    traffic=3,
)
def matmul_tiled(rng, m, k, n):
    a, b = floats(rng, m, k), floats(rng, k, n)
    return Problem((blocks(n, 16), blocks(m, 16)), (16, 16), (a, b, blank(m, n)), (a @ b,))


@exercise(
    "x, out", "out[i] = x[i] where it is positive, else 0.", FLAT, efficiency=0.7, traffic=1.6
)
def relu(rng, n):
    x = floats(rng, n)
    return Problem(blocks(n, 64), 64, (x, blank(n)), (np.maximum(x, 0),))


@exercise(
    "g, y, out",
    "The gradient of relu: out[i] = g[i] where the result y[i] is positive, else 0.",
    FLAT,
    efficiency=0.7,
    traffic=1.3,
)
def relu_backward(rng, n):
    g, y = floats(rng, n), np.maximum(floats(rng, n), 0)
    return Problem(blocks(n, 64), 64, (g, y, blank(n)), (np.where(y > 0, g, 0),))


@exercise(
    "x, out",
    "softmax of each row, one block of 64 threads per row: the maximum, the sum of"
    " exp(x - maximum), the quotients. Rows are longer or shorter than the block.",
    ((3, 64), (5, 150), (4, 20), (3, 100, 100)),
    uses="shared barrier",
    traffic=4.5,
    lanes=0.6,
)
def softmax(rng, rows, columns, scale=1):
    x = scale * floats(rng, rows, columns)
    e = np.exp(x - x.max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True)
    trap = "exp overflows for large x: subtract the row's maximum first" if scale > 1 else ""
    return Problem(rows, 64, (x, blank(rows, columns)), (expected,), trap=trap)


@exercise(
    "x, out",
    "(x - mean) / sqrt(variance + 1e-5) of each row, one block of 64 threads per row.",
    ((3, 64), (5, 150), (3, 100, 1000)),
    uses="shared barrier",
    traffic=4.5,
    lanes=0.6,
)
def layer_norm(rng, rows, columns, offset=0):
    x = offset + floats(rng, rows, columns)
    exact = x.astype(np.float64)
    centred = exact - exact.mean(1, keepdims=True)
    expected = (centred / np.sqrt(exact.var(1, keepdims=True) + 1e-5)).astype(np.float32)
    trap = (
        "the rows' mean is large, and E[x^2] - E[x]^2, the difference of two large numbers, loses"
        " the variance: subtract the mean first, then square"
    )
    args = x, blank(rows, columns)
    return Problem(rows, 64, args, (expected,), trap=trap if offset else "", atol=1e-3)


@exercise(
    "logits, target, out",
    "out[i] = log(sum(exp(logits[i]))) - logits[i, target[i]]: the cross entropy of each row, one"
    " thread per row, without overflow for large logits.",
    ((64, 10), (100, 7), (100, 7, 50)),
    traffic=4.5,
)
def cross_entropy(rng, rows, columns, scale=1):
    x, target = scale * floats(rng, rows, columns), rng.integers(0, columns, rows)
    top = x.max(1)
    lse = top + np.log(np.exp(x - top[:, None]).sum(1))
    expected = lse - x[np.arange(rows), target]
    trap = "exp overflows for large logits: subtract the row's maximum first, add it at the end"
    args = x, target, blank(rows)
    return Problem(blocks(rows, 64), 64, args, (expected,), trap=trap if scale > 1 else "")


@exercise(
    "x, g, out",
    "The weights' gradient of a linear layer: out (outputs, inputs) = g.T @ x for x (rows, inputs)"
    " and g (rows, outputs), x of the grid along the inputs.",
    ((16, 32, 8), (30, 33, 10)),
    efficiency=0.5,
)
def linear_backward(rng, rows, inputs, outputs):
    x, g = floats(rng, rows, inputs), floats(rng, rows, outputs)
    grid = blocks(inputs, 32), blocks(outputs, 4)
    return Problem(grid, (32, 4), (x, g, blank(outputs, inputs)), (g.T @ x,))


@exercise(
    "g, lr, momentum, velocity, p",
    "A step of SGD: velocity = momentum * velocity + g, p = p - lr * velocity, both in place.",
    FLAT,
    efficiency=0.9,
    traffic=2.5,
)
def sgd(rng, n):
    g, v, p = floats(rng, n), floats(rng, n), floats(rng, n)
    lr, momentum = np.float32(0.1), np.float32(0.9)
    new = momentum * v + g
    return Problem(blocks(n, 64), 64, (g, lr, momentum, v.copy(), p.copy()), (new, p - lr * new))


@exercise(
    "g, index, table",
    "The gradient of an embedding: row index[i] of `table` gets row i of g added; several i may"
    " have the same index. x of the grid runs along a row.",
    ((40, 33),),
    uses="atomics",
)
def embedding_backward(rng, n, width):
    g, index = floats(rng, n, width), rng.integers(0, 7, n)
    expected = np.zeros((7, width), np.float32)
    np.add.at(expected, index, g)
    grid = blocks(width, 32), blocks(n, 4)
    return Problem(grid, (32, 4), (g, index, np.zeros((7, width), np.float32)), (expected,))
