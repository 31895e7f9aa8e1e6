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


def through_another_argument(a, perm, same, y):
    t = cuda.threadIdx.x
    row = a[perm[t]]
    part, both = a[t, perm[t] % 2 :], (a[perm[t]], perm[t])
    cuda.syncthreads()
    same[t] = 0
    cuda.syncthreads()
    y[t] = row[0] + part[0] + both[0][1] + both[1]


def through_a_slice(a, perm, same, y):
    t = cuda.threadIdx.x
    most = same[:31]
    row = a[perm[t]]
    part, both = a[t, perm[t] % 2 :], (a[perm[t]], perm[t])
    cuda.syncthreads()
    if t < 31:
        most[t] = 0
    cuda.syncthreads()
    y[t] = row[0] + part[0] + both[0][1] + both[1]


def through_a_shared_array(a, perm, same, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, cuda.int32)
    low, other = s[:32], s
    low[t] = perm[t]
    cuda.syncthreads()
    row = a[s[t]]
    part, both = a[t, low[t] % 2 :], (a[other[t]], s[t])
    cuda.syncthreads()
    other[t] = 0
    cuda.syncthreads()
    y[t] = row[0] + part[0] + both[0][1] + both[1]


def through_dynamic_shared_memory(a, perm, same, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(0, cuda.int32)
    f = cuda.shared.array(0, cuda.float32)
    s[t] = perm[t]
    cuda.syncthreads()
    row = a[s[t]]
    part, both = a[t, s[t] % 2 :], (a[s[t]], s[t])
    cuda.syncthreads()
    f[t] = 0
    cuda.syncthreads()
    y[t] = row[0] + part[0] + both[0][1] + both[1]


def in_a_loop(a, perm, same, y):
    t = cuda.threadIdx.x
    for k in range(2):
        i = perm[t]
        if k:
            i = perm[t]  # two assignments: the index is one of two
        row = a[i]
        part, both = a[t, perm[t] % 2 :], (a[perm[t]], perm[t])
        cuda.syncthreads()
        if k:
            same[t] = 0
        cuda.syncthreads()
        y[t] = row[0] + part[0] + both[0][1] + both[1]
        cuda.syncthreads()


ALIASES = (
    through_another_argument,
    through_a_slice,
    through_a_shared_array,
    through_dynamic_shared_memory,
    in_a_loop,
)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kernel", ALIASES, ids=lambda kernel: kernel.__name__)
def test_an_index_that_is_changed_under_another_name(kernel, debug):
    rng = np.random.default_rng(3)
    a, perm, y = rng.random((32, 2)), rng.permutation(32).astype(np.int32), np.zeros(32)
    expected = a[perm].sum(1) + a[np.arange(32), perm % 2] + perm
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterpretedKernelWarning)
        cuda.jit(kernel, debug=debug, opt=not debug)[1, 32, 0, 128](a, perm, perm, y)
    np.testing.assert_allclose(y, expected)


RECORD = np.dtype([("size", np.int32), ("shape", np.int32, (3,)), ("real", np.float64)])


@pytest.mark.parametrize("debug", [False, True])
def test_fields_of_a_record_that_all_threads_read_between_two_stores(debug):
    """Also fields that are called as something of an array's."""

    def kernel(records, y):
        b = cuda.blockIdx.x
        record = records[b]
        record.size, record.shape[1], record.real = -1, -2, 3
        numbers = record.size, record.shape[1], record.real
        records[b].size, records[b].shape[1], record.real = 4, 5, 6
        record.size += 1
        cuda.syncthreads()
        y[cuda.grid(1)] = numbers[0] + 10 * numbers[1] + 100 * numbers[2] + 1000 * record.size

    records, y = np.zeros(3, RECORD), np.zeros(3)
    cuda.jit(kernel, debug=debug, opt=not debug)[3, 1](records, y)
    np.testing.assert_array_equal(y, 5279)
    assert [tuple(map(np.max, r)) for r in records.tolist()] == [(5, 5, 6)] * 3


@pytest.mark.parametrize("debug", [False, True])
def test_a_field_called_size_before_and_after_a_barrier(debug):
    def kernel(records, x, y):
        t = cuda.threadIdx.x
        record = records[t]
        before = record.size
        cuda.syncthreads()
        record.size = 7
        records[(t + 1) % 32].shape[0] = t
        cuda.syncthreads()
        y[t] = x[before] + record.size + 100 * records[t].shape[0]  # an index that may be negative

    records, x, y = np.zeros(32, RECORD), np.arange(32.0), np.zeros(32)
    records["size"] = np.arange(32) - 16
    cuda.jit(kernel, debug=debug, opt=not debug)[1, 32](records, x, y)
    t = np.arange(32)
    np.testing.assert_array_equal(y, x[t - 16] + 7 + 100 * ((t - 1) % 32))
