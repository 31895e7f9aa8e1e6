"""Wrong solutions of each exercise, with a part of the hint that fits.

Most are the right solution with one piece of its source replaced: (hint, old, new); several pieces
are given as (hint, [(old, new), ...]). Others are written out: (hint, source).
"""

from __future__ import annotations

import inspect
import linecache
from typing import Any

from kernels import cuda, raw_kernel
from kernels.host import RawKernel, source
from kernels.lab.course import solutions
from tests.lab.course.wrong_advanced import WRONG as ADVANCED

GUARD = "there are more threads than elements"
EVERY = "every thread does the work of all"
FEW = "few threads do the work of all"
SWAPPED = "x and y are swapped"
NO_BARRIER = "cuda.syncthreads() between"
ADDED = "the result is added to, but it holds nothing at first"

WRONG: dict[str, list[tuple]] = {
    "add_ten": [
        (GUARD, "if i < x.size:", "if True:"),
        ("`if i < x.shape[0]:`", "if i < x.size:", "if True:"),
        ("is blockIdx used?", "cuda.grid(1)", "cuda.threadIdx.x"),
        ("does the guard stop one too early?", "i < x.size", "i < x.size - 1"),
        (ADDED, "out[i] = x[i] + np.float32(10)", "out[i] += x[i] + np.float32(10)"),
        (
            FEW,
            """
            def add_ten(x, out):
                if cuda.grid(1) == 0:
                    for i in range(x.size):
                        out[i] = x[i] + np.float32(10)
            """,
        ),
        ("does `i` change?", "if i < x.size:", "while i < x.size:"),
        ("`x.shape` is a tuple", "i < x.size", "i < x.shape"),
        ("a kernel cannot allocate memory", "x[i] + np.float32(10)", "(x + np.float32(10))[i]"),
    ],
    "saxpy": [
        ("a guard with <= lets one too many in", "i < x.size", "i <= x.size"),
        (
            EVERY,
            """
            def saxpy(a, x, y, out):
                for i in range(x.size):
                    out[i] = a * x[i] + y[i]
            """,
        ),
        ("element 0 is", "a * x[i] + y[i]", "x[i] + y[i]"),
        ("only the first one", "if i < x.size:", "if 0 < i < x.size:"),
        ("only one of 2 elements was written", "i < x.size", "i < x.size and i % 2 == 0"),
        ("nothing was written", "i < x.size", "cuda.blockIdx.x < x.size // 128"),
    ],
    "reverse": [
        ("off by one", "out[x.size - 1 - i]", "out[(x.size - i) % x.size]"),
        ("`x.size - i` must be less than out.shape[0]", "x.size - 1 - i", "x.size - i"),
        ("element 0 is", "out[x.size - 1 - i]", "out[i]"),
        (GUARD, "if i < x.size:", "if True:"),
        (
            "not coalesced",
            """
            def reverse(x, out):
                i = cuda.grid(1)
                n = (x.size + 7) // 8
                if i < n * 8:
                    j = i % 8 * n + i // 8
                    if j < x.size:
                        out[x.size - 1 - j] = x[j]
            """,
        ),
    ],
    "multiply_2d": [
        (
            "are x and y swapped?",
            [
                ("column, row = cuda", "row, column = cuda"),
                GUARDED := ("if row < out.shape[0] and column < out.shape[1]:", "if True:"),
            ],
        ),
        (SWAPPED, "column, row = cuda", "row, column = cuda"),
        ("`if column < a.shape[1]:`", [GUARDED]),
        ("only the last row", "row < out.shape[0]", "row < out.shape[0] - 1"),
        ("is blockIdx used?", "cuda.grid(2)", "cuda.threadIdx.x, cuda.threadIdx.y"),
    ],
    "outer_sum": [
        (SWAPPED, [("j, i = cuda", "i, j = cuda"), ("row[j]", "row[j]")]),
        ("is outside of column", "column[i] + row[j]", "column[j] + row[i]"),
        ("element 0, 0 is", "column[i] + row[j]", "column[i] * row[j]"),
        ("only the last column", "j < out.shape[1]", "j < out.shape[1] - 1"),
    ],
    "square_strided": [
        (
            "let each thread go on in steps of cuda.gridsize(1)",
            "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):",
            "i = cuda.grid(1)\n    if i < x.size:",
        ),
        (EVERY, "range(cuda.grid(1), x.size, cuda.gridsize(1))", "range(x.size)"),
        (EVERY, "cuda.gridsize(1)", "1"),
        ("element 0 is", "x[i] * x[i]", "x[i] + x[i]"),
        ("is outside of x", "x.size, cuda", "x.size + 1, cuda"),
    ],
    "split_points": [
        (
            "is outside of points",
            "out[axis, i] = points[i, axis]",
            "out[axis, i] = points[axis, i]",
        ),
        ("the kernel does not run", "points, out", "points"),
        (GUARD, "if i < points.shape[0]:", "if True:"),
        ("all rows from 2 on", "range(3)", "range(2)"),
        ("element 0, 0 is", "points[i, axis]", "points[i, 2 - axis]"),
    ],
    "gather": [
        ("nothing was written", "if i < out.size:", "if i > 2 * out.size:"),
        ("element 0 is", "x[index[i]]", "x[i % 97]"),
        (GUARD, "if i < out.size:", "if True:"),
        ("those of the last block", "i < out.size", "i < out.size // 64 * 64"),
        ("is outside of x", "x[index[i]]", "x[index[i] + 1]"),
    ],
    "histogram": [
        ("cuda.atomic.add", "cuda.atomic.add(counts, x[i], 1)", "counts[x[i]] += 1"),
        ("element 0 is", "x[i], 1)", "x[i], 2)"),
        (GUARD, "if i < x.size:", "if True:"),
        ("element 0 is", "i < x.size", "i < x.size - 40"),
        (
            "no atomic operation is used",
            """
            def histogram(x, counts):
                i = cuda.grid(1)
                if i < 10:
                    n = 0
                    for j in range(x.size):
                        if x[j] == i:
                            n += 1
                    counts[i] = n
            """,
        ),
    ],
    "reverse_blocks": [
        (NO_BARRIER, "cuda.syncthreads()", "pass"),
        ("Load each element once", "out[i] = tile[63 - t]", "out[i] = x[i - t + 63 - t]"),
        ("is outside of tile", "63 - t", "64 - t"),
        ("is it too small?", "array(64", "array(63"),
        ("element 0 is", "tile[63 - t]", "tile[t]"),
    ],
    "stencil": [
        ("is read where no thread wrote it", [("tile[0] =", "tile[1] ="), ("t == 63", "t == 64")]),
        (NO_BARRIER, "cuda.syncthreads()", "pass"),
        (
            "is outside of x",
            "if i < x.size else np.float32(0)",
            "if i <= x.size else np.float32(0)",
        ),
        (
            "Load each element once, and take it from shared memory afterwards",
            """
            def stencil(x, out):
                tile = cuda.shared.array(66, np.float32)
                i, t = cuda.grid(1), cuda.threadIdx.x
                tile[t] = 0
                cuda.syncthreads()
                if i < x.size:
                    left = x[i - 1] if i > 0 else np.float32(0)
                    right = x[i + 1] if i + 1 < x.size else np.float32(0)
                    out[i] = left + x[i] + right
            """,
        ),
        (
            "no shared memory is used",
            """
            def stencil(x, out):
                i = cuda.grid(1)
                if i < x.size:
                    left = x[i - 1] if i > 0 else np.float32(0)
                    right = x[i + 1] if i + 1 < x.size else np.float32(0)
                    out[i] = left + x[i] + right
            """,
        ),
    ],
    "transpose": [
        ("bank conflicts", "(32, 33)", "(32, 32)"),
        (NO_BARRIER, "cuda.syncthreads()", "pass"),
        (
            "no shared memory is used",
            """
            def transpose(x, out):
                column, row = cuda.grid(2)
                if row < x.shape[0] and column < x.shape[1]:
                    out[column, row] = x[row, column]
            """,
        ),
        ("is outside of", "column + ty < x.shape[1] and row", "row"),
        ("is read where no thread wrote it", "tile[tx, ty]", "tile[ty, tx]"),
    ],
    "block_sum": [
        (
            "is read where no thread wrote it",
            "    tile[t] = x[i] if i < x.size else np.float32(0)",
            "    if i >= x.size:\n        return\n    tile[t] = x[i]",
        ),
        (
            FEW,
            """
            def block_sum(x, out):
                tile = cuda.shared.array(128, np.float32)
                i, t = cuda.grid(1), cuda.threadIdx.x
                tile[t] = x[i] if i < x.size else np.float32(0)
                cuda.syncthreads()
                if t == 0:
                    total = np.float32(0)
                    for j in range(128):
                        total += tile[j]
                    out[cuda.blockIdx.x] = total
            """,
        ),
        ("cuda.syncthreads()", "        cuda.syncthreads()\n        step", "        step"),
        ("is outside of x", "x[i] if i < x.size else np.float32(0)", "x[i]"),
        ("element 0 is", "step = 64", "step = 32"),
        ("does `step` change?", "        step //= 2\n", ""),
    ],
    "warp_sum": [
        (
            "no shuffle (cuda.shfl_down_sync) is used",
            """
            def warp_sum(x, out):
                i = cuda.grid(1)
                if i < x.size:
                    cuda.atomic.add(out, 0, x[i])
            """,
        ),
        ("cuda.atomic.add", "cuda.atomic.add(out, 0, value)", "out[0] += value"),
        (
            "take it out of the condition",
            """
            def warp_sum(x, out):
                i = cuda.grid(1)
                if i < x.size:
                    value = x[i]
                    for step in (16, 8, 4, 2, 1):
                        value += cuda.shfl_down_sync(FULL, value, step)
                    if cuda.threadIdx.x % 32 == 0:
                        cuda.atomic.add(out, 0, value)
            """,
        ),
        ("element 0 is", "(16, 8, 4, 2, 1)", "(8, 4, 2, 1)"),
        (
            "atomic operations for",
            "    if cuda.threadIdx.x % 32 == 0:\n        cuda.atomic.add(out, 0, value)",
            "    cuda.atomic.add(out, 0, value if cuda.threadIdx.x % 32 == 0 else np.float32(0))",
        ),
    ],
    "scan": [
        (
            "no shared memory is used",
            """
            def scan(x, out):
                t = cuda.threadIdx.x
                if t < x.size:
                    total = np.float32(0)
                    for j in range(t + 1):
                        total += x[j]
                    out[t] = total
            """,
        ),
        (NO_BARRIER, [("        cuda.syncthreads()\n        tile", "        tile")]),
        ("element 1 is", "step = 1", "step = 2"),
        (
            FEW,
            """
            def scan(x, out):
                tile = cuda.shared.array(128, np.float32)
                t = cuda.threadIdx.x
                tile[t] = x[t] if t < x.size else np.float32(0)
                cuda.syncthreads()
                if t == 0:
                    for j in range(1, 128):
                        tile[j] += tile[j - 1]
                cuda.syncthreads()
                if t < x.size:
                    out[t] = tile[t]
            """,
        ),
        ("is outside of x", "x[t] if t < x.size else np.float32(0)", "x[t]"),
    ],
    "matmul": [
        (SWAPPED, "column, row = cuda", "row, column = cuda"),
        ("is outside of", "range(a.shape[1])", "range(a.shape[1] + 1)"),
        ("element 0, 0 is", "range(a.shape[1])", "range(1, a.shape[1])"),
        (ADDED, [("total += a", "out[row, column] += a"), ("out[row, column] = total", "pass")]),
        ("only the last row", "row < out.shape[0]", "row < out.shape[0] - 1"),
    ],
    "matmul_tiled": [
        ("one more cuda.syncthreads() after", "tx]\n        cuda.syncthreads()", "tx]"),
        (NO_BARRIER, "0)\n        cuda.syncthreads()", "0)"),
        (
            "no shared memory is used",
            """
            def matmul_tiled(a, b, out):
                column, row = cuda.grid(2)
                if row < out.shape[0] and column < out.shape[1]:
                    total = np.float32(0)
                    for k in range(a.shape[1]):
                        total += a[row, k] * b[k, column]
                    out[row, column] = total
            """,
        ),
        ("element 0, 0 is", "range(16)", "range(15)"),
        ("is outside of a", "row < a.shape[0] and k + tx < a.shape[1]", "row < a.shape[0]"),
    ],
    "relu": [
        (
            "not coalesced",
            """
            def relu(x, out):
                i = cuda.grid(1)
                n = (x.size + 7) // 8
                if i < n * 8:
                    j = i % 8 * n + i // 8
                    if j < x.size:
                        out[j] = max(x[j], np.float32(0))
            """,
        ),
        ("never written", "if i < x.size:", "if i < x.size and x[i] > 0:"),
        ("element", "max(", "min("),
        (GUARD, "if i < x.size:", "if True:"),
        ("is blockIdx used?", "cuda.grid(1)", "cuda.threadIdx.x"),
    ],
    "relu_backward": [
        ("element", "y[i] > 0", "y[i] >= 0"),
        ("element", "y[i] > 0", "g[i] > 0"),
        ("element", "g[i] if", "y[i] if"),
        ("a guard with <= lets one too many in", "i < g.size", "i <= g.size"),
    ],
    "softmax": [
        ("subtract the row's maximum first", "x[row, j] - top", "x[row, j]"),
        (
            EVERY,
            """
            def softmax(x, out):
                row, n = cuda.blockIdx.x, x.shape[1]
                top = x[row, 0]
                for j in range(1, n):
                    top = max(top, x[row, j])
                total = np.float32(0)
                for j in range(n):
                    total += math.exp(x[row, j] - top)
                for j in range(n):
                    out[row, j] = math.exp(x[row, j] - top) / total
            """,
        ),
        (
            "no shared memory is used",
            """
            def softmax(x, out):
                row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
                top = x[row, 0]
                for j in range(1, n):
                    top = max(top, x[row, j])
                total = np.float32(0)
                for j in range(n):
                    total += math.exp(x[row, j] - top)
                for j in range(t, n, 64):
                    out[row, j] = math.exp(x[row, j] - top) / total
            """,
        ),
        ("element 0, 0 is", " / total", ""),
        (
            "all columns from 64 on",
            "    for j in range(t, n, 64):\n        out",
            "    if t < n:\n        j = t\n        out",
        ),
        (NO_BARRIER, "    tile[t] = total\n    cuda.syncthreads()", "    tile[t] = total"),
    ],
    "layer_norm": [
        (
            "subtract the mean first, then square",
            [
                ("(x[row, j] - mean) * (x[row, j] - mean)", "x[row, j] * x[row, j]"),
                (
                    "_block_sum(tile, t) / np.float32(n) + np",
                    "_block_sum(tile, t) / np.float32(n) - mean * mean + np",
                ),
            ],
        ),
        ("element 0, 0 is", "math.sqrt(", "("),
        ("element 0, 0 is", " - mean) * scale", ") * scale"),
        (
            NO_BARRIER,
            "    tile[t] = total\n    cuda.syncthreads()\n    mean",
            "    tile[t] = total\n    mean",
        ),
        (
            "no shared memory is used",
            """
            def layer_norm(x, out):
                row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
                total = np.float32(0)
                for j in range(n):
                    total += x[row, j]
                mean = total / np.float32(n)
                total = np.float32(0)
                for j in range(n):
                    total += (x[row, j] - mean) * (x[row, j] - mean)
                scale = np.float32(1) / math.sqrt(total / np.float32(n) + np.float32(1e-5))
                for j in range(t, n, 64):
                    out[row, j] = (x[row, j] - mean) * scale
            """,
        ),
    ],
    "cross_entropy": [
        (
            "subtract the row's maximum first",
            [
                ("logits[i, j] - top)", "logits[i, j])"),
                ("math.log(total) + top", "math.log(total)"),
            ],
        ),
        ("element 0 is", "target[i]]", "0]"),
        ("element 0 is", "math.log(total) + top", "math.log(total)"),
        ("is outside of logits", "if i < logits.shape[0]:", "if True:"),
    ],
    "linear_backward": [
        ("is outside of", "g[k, row] * x[k, column]", "g[row, k] * x[k, column]"),
        (SWAPPED, "column, row = cuda", "row, column = cuda"),
        (ADDED, [("total += g", "out[row, column] += g"), ("out[row, column] = total", "pass")]),
        ("element 0, 0 is", "range(x.shape[0])", "range(1, x.shape[0])"),
    ],
    "sgd": [
        ("element 0 is", "p[i] -= lr", "p[i] += lr"),
        ("element 0 is", "        velocity[i] = v\n", ""),
        ("element 0 is", "momentum * velocity[i] + g[i]", "velocity[i] + g[i]"),
        (GUARD, "if i < p.size:", "if True:"),
    ],
    "embedding_backward": [
        (
            "cuda.atomic.add",
            "cuda.atomic.add(table, (index[row], column), g[row, column])",
            "table[index[row], column] += g[row, column]",
        ),
        (
            "`if row < index.shape[0]:`",
            [
                ("column, row = cuda", "row, column = cuda"),
                ("row < g.shape[0] and column < g.shape[1]", "True"),
            ],
        ),
        ("is outside of", "row < g.shape[0] and column < g.shape[1]", "row < g.shape[0]"),
        ("element", "(index[row], column)", "(row % 7, column)"),
    ],
    **ADVANCED,
}


def kernel(name: str, number: int) -> Any:
    """A wrong solution as a kernel, whose source is found where Python looks for sources."""
    right = getattr(solutions, name)
    if isinstance(right, RawKernel):
        return _in_cuda_c(right, name, number)
    text = _changed(inspect.getsource(right.py_func), "@cuda.jit\n", name, number)
    filename = f"<wrong solution {number} of {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = {**right.py_func.__globals__, "cuda": cuda}
    exec(compile(text, filename, "exec"), space)
    return space[name]


def _in_cuda_c(right: RawKernel, name: str, number: int) -> RawKernel:
    first, last = source.extent(right.code, name)
    text = "\n".join(right.code.splitlines()[first - 1 : last])
    include = "#include <cuda_fp16.h>\n#include <mma.h>\n"
    return raw_kernel(include + _changed(text, "", name, number), name)


def _changed(text: str, mark: str, name: str, number: int) -> str:
    """The source of a wrong solution; `mark` comes before one that is written out."""
    _, *change = WRONG[name][number]
    if len(change) == 2:
        return _replaced(text, *change)
    if isinstance(change[0], str):
        return mark + inspect.cleandoc(change[0])
    for old, new in change[0]:
        text = _replaced(text, old, new)
    return text


def _replaced(source: str, old: str, new: str) -> str:
    assert old in source, old
    return source.replace(old, new)
