"""A kernel that a person wrote stays inside its arrays, or says where it would have left them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import float32, int32

from kernels.numba_cuda.random import unit32
from kernels.simt import cuda
from kernels.simt.ir.safety import Safety
from kernels.support.errors import KernelIndexError


@cuda.jit
def double(x):
    x[cuda.grid(1)] *= 2


@cuda.jit
def count(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def up_to(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = 1


@cuda.jit
def last_row(x, out):
    tile = cuda.shared.array((4, 4), float32)
    t = cuda.threadIdx.x
    tile[t, 0] = x[t]
    cuda.syncthreads()
    out[t] = tile[t, 0]


@cuda.jit
def narrow(x, n):
    i = int32(int32(n) * int32(65536)) + cuda.threadIdx.x  # negative from n = 32768 on
    if i < x.size:
        x[i] = 1


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_a_forgotten_guard(n):
    blocks = 1 if n < 128 else 8
    with pytest.raises(
        IndexError,
        match=rf"double: index {n} is out of bounds for axis 0 of 'x' with shape \({n},\),"
        rf" block \({n // 128}, 0, 0\), thread \({n % 128}, 0, 0\), at .*test_safety.py:17",
    ):
        double[blocks, 128](np.ones(n))


def test_launches_that_fit_run_without_checks():
    x = np.ones(256)
    double[2, 128](x)
    assert (x == 2).all()
    (text, *_) = double.inspect_cpu((128,)).split("def double")[1:]
    assert "_place(" not in text
    assert "if not" in text


def test_a_number_that_is_not_the_size():
    x = np.zeros(100)
    up_to[1, 128](x, 100)
    assert x.all()
    with pytest.raises(IndexError, match="index 100 is out of bounds"):
        up_to[1, 128](x, 101)


def test_an_index_from_memory():
    bins = np.zeros(4, np.int64)
    count[1, 32](np.array([0, 1, 2, 3, 3]), bins)
    assert bins.tolist() == [1, 1, 1, 2]
    with pytest.raises(IndexError, match=r"index 7 .* of 'bins' with shape \(4,\)"):
        count[1, 32](np.array([0, 7]), bins)


def test_shared_memory():
    last_row[1, 4](np.ones(8, np.float32), np.empty(8, np.float32))
    with pytest.raises(IndexError, match=r"index 4 .* axis 0 of 'tile' with shape \(4, 4\)"):
        last_row[1, 8](np.ones(8, np.float32), np.empty(8, np.float32))


def test_launches_on_several_os_threads():
    x = np.ones(128 * 2000)
    for _ in range(3):  # the first measures whether threads pay
        double[2000, 128](x)
    with pytest.raises(KernelIndexError):
        double[2001, 128](x)


def test_bound_launches_are_safe_too():
    bound = double.bind(1, 128, np.ones(128))
    bound(np.ones(128))
    with pytest.raises(IndexError):
        bound(np.ones(127))


def test_numbers_that_wrap_around():
    with pytest.raises(IndexError):
        narrow[1, 32](np.ones(5), 1 << 15)


def test_who_decides(monkeypatch):
    def kernel(x):
        pass

    monkeypatch.delenv("MINIGRAD_CUDA_DEBUG", raising=False)
    assert cuda.jit(kernel).safety is Safety.PROVEN
    assert cuda.jit(debug=True)(kernel).safety is Safety.DEBUG
    assert cuda.jit(debug=False)(kernel).safety is Safety.UNCHECKED
    assert unit32.safety is Safety.SHIPPED
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "0")
    assert cuda.jit(kernel).safety is Safety.UNCHECKED
    assert cuda.jit(debug=True)(kernel).safety is Safety.DEBUG
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "1")
    assert cuda.jit(kernel).safety is Safety.DEBUG
    assert unit32.safety is Safety.DEBUG
