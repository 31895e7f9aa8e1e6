"""What a thread has read before a barrier stays what it was, whatever is stored afterwards."""

from __future__ import annotations

import warnings
from collections import namedtuple

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.api.fallback import InterpretedKernelWarning

Pair = namedtuple("Pair", "value place")


def view(a, perm, y):
    t = cuda.threadIdx.x
    row = a[perm[t]]
    cuda.syncthreads()
    perm[t] = 0
    cuda.syncthreads()
    y[t] = row[0] + row[1]


def sliced(a, perm, y):
    t = cuda.threadIdx.x
    part = a[t, perm[t] % 2 :]
    alias = perm[:]
    cuda.syncthreads()
    cuda.atomic.add(alias, t, 1)
    cuda.syncthreads()
    y[t] = part.size + part[0]


def pair(a, perm, y):
    t = cuda.threadIdx.x
    p = (perm[t], t)
    cuda.syncthreads()
    perm[t] = 0
    cuda.syncthreads()
    y[t] = a[p[0], 0] + p[1]


def named(a, perm, y):
    t = cuda.threadIdx.x
    p = Pair(perm[t], t)
    cuda.syncthreads()
    perm[t] = 0
    cuda.syncthreads()
    y[t] = a[p.value, 0] + p.place


def view_and_number(a, perm, y):
    t = cuda.threadIdx.x
    p = (a[t], perm[t])
    cuda.syncthreads()
    perm[t] = 0
    cuda.syncthreads()
    y[t] = p[0][0] + p[1]


def not_changed(a, perm, y):
    t = cuda.threadIdx.x
    row, p = a[perm[t]], (a[t], perm[t])
    cuda.syncthreads()
    y[t] = a[31 - t, 0]
    cuda.syncthreads()
    y[t] += row[0] + row[1] + p[0][0] + p[1]


EXPECTED = {
    view: lambda a, perm: a[perm].sum(1),
    sliced: lambda a, perm: 2 - perm % 2 + a[np.arange(32), perm % 2],
    pair: lambda a, perm: a[perm, 0] + np.arange(32),
    named: lambda a, perm: a[perm, 0] + np.arange(32),
    view_and_number: lambda a, perm: a[:, 0] + perm,
    not_changed: lambda a, perm: a[::-1, 0] + a[perm].sum(1) + a[:, 0] + perm,
}


@pytest.mark.filterwarnings("ignore::kernels.simt.api.fallback.InterpretedKernelWarning")
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda kernel: kernel.__name__)
def test_values_from_before_a_barrier(kernel, debug):
    rng = np.random.default_rng(2)
    a, perm, y = rng.random((32, 2)), rng.permutation(32), np.zeros(32)
    expected = EXPECTED[kernel](a, perm)
    cuda.jit(kernel, debug=debug, opt=not debug)[1, 32](a, perm, y)
    np.testing.assert_allclose(y, expected)


@pytest.mark.parametrize("debug", [False, True])
def test_a_record_that_is_kept_is_that_of_the_array(debug):
    def kernel(records, y):
        i = cuda.grid(1)
        p = records[i]
        before = p.value
        cuda.syncthreads()
        records[i].value = -1
        p.place += 1
        cuda.syncthreads()
        y[i] = p.value + 10 * before

    dtype = [("value", np.float64), ("place", np.int32)]
    records, y = np.array([(i + 0.5, i) for i in range(64)], dtype), np.zeros(64)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterpretedKernelWarning)
        cuda.jit(kernel, debug=debug, opt=not debug)[2, 32](records, y)
    np.testing.assert_array_equal(y, 10 * (np.arange(64) + 0.5) - 1)
    assert (records["value"] == -1).all() and (records["place"] == np.arange(1, 65)).all()


@pytest.mark.parametrize("kernel", [pair, named, not_changed], ids=lambda kernel: kernel.__name__)
def test_what_can_be_kept_or_read_again_is_compiled(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterpretedKernelWarning)
        cuda.jit(kernel)[1, 32](np.zeros((32, 2)), np.arange(32), np.zeros(32))
