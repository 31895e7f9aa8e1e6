"""`cuda.reduce`, `cuda.vectorize` and `cuda.random` on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import cuda
from kernels.simt.interpreter import interpreter

SEED = 20261124


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 1000, 256 * 64 + 5, 100_003])
def test_reduce(size):
    values = np.random.default_rng(SEED).integers(-1000, 1000, size)
    total = cuda.reduce(lambda a, b: a + b)
    assert total(values) == values.sum()
    assert total(cuda.to_device(values), init=7) == values.sum() + 7
    assert total(values, size=size // 2) == values[: size // 2].sum()


def test_reduce_with_a_maximum_and_a_result_on_the_device():
    values = np.random.default_rng(SEED).normal(size=5000).astype(np.float32)

    @cuda.reduce
    def largest(a, b):
        return a if a > b else b

    assert largest(values, init=-np.inf) == values.max()
    assert isinstance(largest(values), np.float32)
    out = cuda.device_array(1, np.float32)
    assert largest(cuda.to_device(values), res=out, init=-np.inf) is None
    assert out[0] == values.max()
    assert largest(np.zeros(0, np.float32), init=3) == 3
    with pytest.raises(TypeError, match="one dimension"):
        largest(values.reshape(50, 100))


def test_vectorize():
    @cuda.vectorize(["float32(float32, float32)", "float64(float64, float64)"])
    def hypotenuse(a, b):
        return (a * a + b * b) ** 0.5

    a, b = np.float32([3, 6]), np.float32([4, 8])
    result = hypotenuse(a, b)
    assert (result.tolist(), result.dtype) == ([5, 10], np.float32)
    device = hypotenuse(cuda.to_device(a), 4.0)
    assert isinstance(device, cuda.DeviceNDArray)
    assert device[0] == 5
    out = cuda.device_array(2, np.float32)
    assert hypotenuse(a, b, out=out) is out
    assert out.copy_to_host().tolist() == [5, 10]


def draw(name: str, count: int = 5) -> np.ndarray:
    function = getattr(cuda.random, name)

    @cuda.jit
    def kernel(states, out):
        i = cuda.grid(1)
        if i < out.shape[0]:
            for k in range(out.shape[1]):
                out[i, k] = function(states, i)

    states = cuda.random.create_xoroshiro128p_states(40, seed=SEED, subsequence_start=2)
    out = np.zeros((40, count), np.float64)
    kernel[2, 32](states, out)
    return out


UNIFORM = ["xoroshiro128p_uniform_float32", "xoroshiro128p_uniform_float64"]
NORMAL = ["xoroshiro128p_normal_float32", "xoroshiro128p_normal_float64"]


@pytest.mark.needs("numba.cuda")
@pytest.mark.parametrize("name", UNIFORM + NORMAL)
def test_random_numbers_are_numba_cudas(name):
    from numba.cuda import random as real

    states = np.empty(6, real.xoroshiro128p_dtype)
    real.init_xoroshiro128p_states_cpu(states, SEED, 2)
    function = getattr(real, name)
    theirs = [[function(states, i) for _ in range(5)] for i in range(6)]
    tolerance = 0 if name in UNIFORM else 1e-4
    np.testing.assert_allclose(draw(name)[:6], theirs, rtol=tolerance, atol=tolerance / 10)


def test_random_numbers_in_the_interpreter():
    states = cuda.random.create_xoroshiro128p_states(40, seed=SEED, subsequence_start=2).memory

    def kernel(states, out):
        i = cuda.grid(1)
        if i < out.shape[0]:
            for k in range(out.shape[1]):
                out[i, k] = cuda.random.xoroshiro128p_uniform_float32(states, i)

    out = np.zeros((40, 5))
    interpreter.run(kernel, 2, 32, (states, out))
    np.testing.assert_array_equal(out, draw(UNIFORM[0]))


def test_random_numbers_are_distributed_as_they_say():
    uniform = draw("xoroshiro128p_uniform_float64", 500).ravel()
    normal = draw("xoroshiro128p_normal_float32", 500).ravel()
    n = uniform.size
    assert abs(uniform.mean() - 0.5) < 5 / np.sqrt(12 * n)
    assert abs(normal.mean()) < 5 / np.sqrt(n)
    assert abs(normal.std() - 1) < 5 / np.sqrt(2 * n)
    assert np.unique(uniform).size == n


def test_seeds_and_subsequences_differ():
    make = cuda.random.create_xoroshiro128p_states
    first, same = make(4, seed=1).copy_to_host(), make(4, seed=1).copy_to_host()
    np.testing.assert_array_equal(first, same)
    assert (make(4, seed=2).copy_to_host() != first).all()
    np.testing.assert_array_equal(make(3, seed=1, subsequence_start=1).copy_to_host(), first[1:])
