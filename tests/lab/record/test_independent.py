"""The record does not depend on how kernels are compiled: plain Python makes the same one.

The interpreter runs a kernel's own function thread by thread; its arrays are watched here.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest
from numba import float32

from kernels import lab
from kernels.simt import cuda
from kernels.simt.interpreter import interpreter
from kernels.simt.interpreter.functions import KERNEL_MARK
from kernels.simt.interpreter.values import KernelArray
from kernels.simt.ir import stubs


@cuda.jit(device=True)
def _weight(k, n):
    for i in range(n):
        if i == k:
            return float32(i)
    return float32(0)


@cuda.jit
def matmul(a, b, c):
    a_tile = cuda.shared.array((4, 8), float32)
    b_tile = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        inside = y < a.shape[0] and k + tx < a.shape[1]
        a_tile[ty, tx] = a[y, k + tx] if inside else float32(0)
        for row in range(ty, 8, 4):
            inside = k + row < b.shape[0] and x < b.shape[1]
            b_tile[row, tx] = b[k + row, x] if inside else float32(0)
        cuda.syncthreads()
        for j in range(8):
            total += a_tile[ty, j] * b_tile[j, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@cuda.jit
def reduce(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    s[t] = total
    cuda.syncthreads()
    step = 32
    while step >= 1:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    value = cuda.shfl_down_sync(0xFFFFFFFF, s[t], 1)
    if t == 0:
        out[cuda.blockIdx.x] = s[0] + 0 * value


@cuda.jit
def ragged(x, starts, out):
    i = cuda.grid(1)
    if i >= out.size:
        return
    total = float32(0)
    for k in range(starts[i], starts[i + 1]):
        if x[k] < 0:
            continue
        if x[k] > float32(2):
            break
        total += x[k] * _weight(k, 3)
    row = x[starts[i] :]
    if row.size and (i % 2 == 0 or row[0] > 0):
        total += row[0]
    out[i] = total


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


CASES = [
    (matmul, (2, 3), (8, 4), lambda: (_floats(11, 13), _floats(13, 15), np.zeros((11, 15), "f4"))),
    (reduce, 2, 64, lambda: (_floats(500), np.zeros(2, "f4"))),
    (ragged, 2, 32, lambda: (_floats(200), np.arange(51) ** 2 // 13, np.zeros(50, "f4"))),
]


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "make"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_the_record_is_that_of_plain_python(kernel, grid, block, make, monkeypatch):
    seen: Counter = Counter()

    def watch(array, index, op):
        thread = stubs.active_thread()
        frame = sys._getframe(2)
        if thread is not None and KERNEL_MARK in frame.f_globals:
            part = np.asarray(array)[_plain(index)]
            if part.ndim == 0:  # an element, not a view
                key = (frame.f_lineno, op, thread.block.number, thread.number)
                seen[(*key, part.itemsize)] += 1

    get, put = KernelArray.__getitem__, KernelArray.__setitem__
    monkeypatch.setattr(
        KernelArray, "__getitem__", lambda a, i: (watch(a, i, "load"), get(a, i))[1]
    )
    monkeypatch.setattr(
        KernelArray, "__setitem__", lambda a, i, v: (watch(a, i, "store"), put(a, i, v))[1]
    )
    expected = make()
    interpreter.run(kernel.py_func, grid, block, expected)
    args = make()
    report = lab.profile(kernel, grid, block, *args, records=1_000_000)
    columns = ("line", "op", "block", "thread", "size")
    mine = Counter(zip(*(report.records[name].tolist() for name in columns)))
    assert mine == seen and len(seen) > 100
    assert not report.findings
    for a, b in zip(args, expected, strict=True):
        assert np.allclose(a, b, atol=1e-5)


def _plain(index):
    if isinstance(index, tuple):
        return tuple(map(_plain, index))
    if isinstance(index, slice):
        return slice(
            *(None if p is None else int(p) for p in (index.start, index.stop, index.step))
        )
    return int(index)


def test_addresses_of_the_record():
    @cuda.jit
    def copy(x, out):
        s = cuda.shared.array((2, 32), float32)
        t = cuda.threadIdx.x
        s[1, t] = x[t, 2]
        out[t] = s[1, t]

    x = _floats(33, 5)[1:]
    report = lab.profile(copy, 1, 32, x, np.zeros(32, np.float32), records=1000)
    records = report.records
    assert records["offset"][records["array"] == "x"].tolist() == [
        4 * (5 * (t + 1) + 2) for t in range(32)
    ]
    assert set(records["offset"][records["array"] == "s"]) == {128 + 4 * t for t in range(32)}
    assert set(records["space"]) == {"global", "shared"} and set(records["size"]) == {4}
    assert len(lab.profile(copy, 1, 32, x, np.zeros(32, np.float32), records=10).records) == 10
