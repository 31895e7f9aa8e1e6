"""Rows of threads whose sums nobody reads are left out of the loop over tiles, and no others."""

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest

from kernels.simt import cuda

X, Y = 16, 8

SOURCE = """
def kernel(a, b, c, other):
    rows = cuda.shared.array((Y, X), np.int64)
    columns = cuda.shared.array((X, X), np.int64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    m, n = c.shape
    k = a.shape[1]
    acc, count = 0, 0
    for k0 in range(0, k, X):
        rows[ty, tx] = a[row, k0 + tx] if row < m and k0 + tx < k else 0
        for r in range(ty, X, Y):
            columns[r, tx] = b[k0 + r, col] if k0 + r < k and col < n else 0
        cuda.syncthreads()
        for kk in range(X):
            acc += rows[ty, kk] * columns[kk, tx]
        INSIDE
        cuda.syncthreads()
    AFTER
    if GUARD:
            c[row, col] = acc + count
"""


def written(inside="", after="", guard="row < m and col < n"):
    """A tiled product with these statements in it."""
    text = SOURCE.replace("INSIDE", inside).replace("AFTER", after).replace("GUARD", guard)
    text = "\n".join(line for line in text.splitlines() if line.strip()) + "\n"
    name = f"<{hash(text)}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    names = {"cuda": cuda, "np": np, "X": X, "Y": Y}
    exec(compile(text, name, "exec"), names)
    return names["kernel"]


def run(kernel, shape=(11, 21, 37), **options):
    """c and the other array after a launch, and the kernel."""
    m, n, k = shape
    rng = np.random.default_rng(1)
    a, b = rng.integers(-5, 6, (m, k)), rng.integers(-5, 6, (k, n))
    c, other = np.full((m, n), -1), np.zeros(4, np.int64)
    jitted = cuda.jit(kernel, **options)
    jitted[(-(-n // X), -(-m // Y)), (X, Y)](a, b, c, other)
    return c, other, jitted, a @ b


def bounds(kernel) -> set[str]:
    """From where on rows are left out."""
    found = re.findall(rf"for _\w+ in range\(0, _min\({Y}, (.+)\), \d\):", kernel.inspect_cpu())
    return set(found)


@pytest.mark.parametrize("shape", [(11, 21, 37), (1, 1, 1), (8, 16, 16), (17, 33, 5), (23, 5, 64)])
def test_rows_beyond_the_last_one(shape):
    c, _, kernel, expected = run(written(), shape)
    np.testing.assert_array_equal(c, expected)
    assert bounds(kernel)
    assert "rows from" in kernel.inspect_passes()["plan"]


def same_as_checked(**parts):
    """The kernel with these statements, whose results are those of the checked mode."""
    found, other, kernel, _ = run(written(**parts))
    expected, of_checked, _, _ = run(written(**parts), debug=True, opt=False)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(other, of_checked)
    return kernel


READ = "cuda.atomic.add(other, 0, acc % 3)"
NEEDED = {
    "a sum read without a guard": {"after": "if acc > 3: cuda.atomic.add(other, 0, 1)"},
    "a sum read in an else": {"after": f"if row < m: other[1] = 7\n    else: {READ}"},
    "a sum read under another guard": {"after": f"if row < m + 2: {READ}"},
    "a sum that goes on": {"after": "acc = acc * 2"},
    "a store": {"inside": "if cuda.blockIdx.y == 1 and ty == 7 and col == 0: other[2] = k0"},
    "an effect": {"inside": "cuda.atomic.add(other, 0, 1)"},
    "an effect with a result": {"inside": "count += 0 * cuda.atomic.add(other, 0, 1)"},
    "a sum that others read": {
        "after": "rows[ty, tx] = acc\n    cuda.syncthreads()\n    count = rows[Y - 1 - ty, tx]"
    },
    "a height that the loop changes": {"inside": "m = m - 0 * k0"},
    "a height that comes later": {"after": "end = m - 1", "guard": "row < end and col < n"},
    "a guard that differs along a row": {"guard": "row + tx % 2 * n < m and col < n"},
}


@pytest.mark.parametrize("case", NEEDED)
def test_rows_that_somebody_may_read(case):
    assert not bounds(same_as_checked(**NEEDED[case]))


LEFT_OUT = {
    "another row in the guard": {"after": "row = row - 2", "guard": "0 <= row < m and col < n"},
    "the negation of a guard": {"guard": "col < n and not row >= m"},
    "guards inside each other": {"guard": "col < n:\n      if row < m"},
    "two reads": {"after": f"if col < n and row < m: {READ}"},
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_other_forms_of_a_guard(case):
    assert bounds(same_as_checked(**LEFT_OUT[case]))
