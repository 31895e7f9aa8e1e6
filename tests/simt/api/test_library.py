"""`cuda.reduce`, `cuda.vectorize` and `cuda.random` on the CPU."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from numba import float64, int32

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


@pytest.fixture
def added():
    @cuda.vectorize(
        ["float32(float32, float32)", "float64(float64, float64)", "int64(int64,int64)"]
    )
    def added(a, b):
        return a + b

    return added


def test_vectorize_broadcasts_and_reduces(added):
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(added(a, a[0]), a + a[0])
    np.testing.assert_array_equal(added(a[:, ::-1], a.T.copy().T), a[:, ::-1] + a)
    np.testing.assert_array_equal(added(cuda.to_device(a), 1).copy_to_host(), a + 1)
    out = np.zeros((3, 2), np.float32).T
    assert added(a, a, out=out) is out
    np.testing.assert_array_equal(out, 2 * a)
    assert added(2, 3).tolist() == [5]
    assert added.reduce(np.arange(101)) == 5050
    assert (added.__name__, added(a[:0], a[:0]).shape) == ("added", (0, 3))


def test_vectorize_refuses_what_numba_cuda_refuses(added):
    a = np.arange(3, dtype=np.float32)
    with pytest.raises(TypeError, match="No matching version"):
        added(a, np.arange(3))
    with pytest.raises(ValueError, match="failed to broadcast argument #1"):
        added(a, a[:2])
    with pytest.raises(TypeError, match="out is float64"):
        added(a, a, out=np.zeros(3))
    with pytest.raises(TypeError, match="ambiguous"):
        added(np.float16(1), 2)
    with pytest.raises(TypeError, match="needs signatures"):
        cuda.vectorize(lambda a: a)
    with pytest.raises(TypeError, match="caching is not supported"):
        cuda.vectorize(["int32(int32)"], cache=True)(lambda a: a)
    with pytest.raises(TypeError, match="empty array"):
        added.reduce(a[:0])


def test_vectorize_calls_device_functions_and_infers_the_result():
    clamped = cuda.jit(lambda v, top: min(v, top), device=True)

    @cuda.vectorize([(int32, float64), "(float32,float32)"])
    def mixed(a, b):
        return clamped(a, 2) * math.sqrt(b)

    a = np.arange(4, dtype=np.int32)
    result = mixed(a, np.full(4, 9.0))
    assert (result.dtype, result.tolist()) == (np.float64, [0, 3, 6, 6])


NUMBAS_OWN = """
import numpy as np
import kernels
kernels.install()
from numba import guvectorize, vectorize

@vectorize(["float32(float32)"], target="cuda")
def negated(a):
    return -a

@guvectorize(["void(float32[:], float32[:])"], "(n)->(n)", target="cuda")
def turned(a, out):
    for i in range(a.size):
        out[i] = a[a.size - 1 - i]

a = np.arange(3, dtype=np.float32)
assert (negated(a).tolist(), turned(a).tolist()) == ([0, -1, -2], [2, 1, 0])
"""


def test_numbas_own_decorators_for_the_target_cuda(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(NUMBAS_OWN)
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def product():
    @cuda.guvectorize(["void(float64[:,:], float64[:,:], float64[:,:])"], "(m,n),(n,p)->(m,p)")
    def product(a, b, c):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                c[i, j] = 0
                for k in range(a.shape[1]):
                    c[i, j] += a[i, k] * b[k, j]

    return product


def test_guvectorize(product):
    rng = np.random.default_rng(SEED)
    a, b = rng.normal(size=(3, 5, 2, 4)), rng.normal(size=(3, 5, 4, 6))
    np.testing.assert_allclose(product(a, b), a @ b)
    np.testing.assert_allclose(product(a, b[0, 0]), a @ b[0, 0])
    np.testing.assert_allclose(product(a[0, 0], b[0, 0]), a[0, 0] @ b[0, 0])
    device = product(cuda.to_device(a), b)
    np.testing.assert_allclose(device.copy_to_host(), a @ b)
    out = np.zeros((3, 5, 6, 2)).swapaxes(2, 3)
    assert product(a, b, out) is out
    np.testing.assert_allclose(out, a @ b)
    target = cuda.device_array((3, 5, 2, 6))
    assert product(a, b, out=target) is target
    np.testing.assert_allclose(target.copy_to_host(), a @ b)


def test_guvectorize_of_scalars_and_several_outputs():
    @cuda.guvectorize(["(float64[:], float64, float64[:], float64[:])"], "(n),()->(),(n)")
    def scaled(x, factor, total, out):
        total[0] = 0
        for i in range(x.size):
            out[i] = x[i] * factor
            total[0] += out[i]

    x = np.arange(6.0).reshape(2, 3)
    total, out = scaled(x, np.array([2.0, 10]))
    assert (total.tolist(), out.tolist()) == ([6, 120], [[0, 2, 4], [30, 40, 50]])
    assert scaled(x, 3.0)[0].tolist() == [9, 36]


def test_guvectorize_refuses_what_numba_cuda_refuses(product):
    a = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"arg #2: shape\[0\] mismatch"):
        product(a, a)
    with pytest.raises(ValueError, match="arg #1: insufficient inner dimension"):
        product(a[0], a)
    with pytest.raises(ValueError, match="outer dimension mismatch"):
        product(np.ones((2, 3, 3)), np.ones((4, 3, 3)))
    with pytest.raises(ValueError, match="output shape mismatch"):
        product(a, a.T, np.ones((3, 3)))
    with pytest.raises(
        TypeError, match="accepts 2 positional arguments .* Got 1 positional argument"
    ):
        product(a)
    with pytest.raises(ValueError, match="both positional and keyword"):
        product(a, a.T, a, out=a)
    with pytest.raises(TypeError, match="no matching signature"):
        product(a.astype(np.int8), a.T)
    with pytest.raises(TypeError, match="cannot return values"):
        cuda.guvectorize(["int32(int32[:], int32[:])"], "(n)->(n)")(lambda a, b: 1)
    with pytest.raises(TypeError, match="writable_args"):
        cuda.guvectorize(["(int32[:], int32[:])"], "(n)->(n)", writable_args=(0,))(lambda a, b: 1)
    with pytest.raises(NameError, match="undefined output symbols: m"):
        cuda.guvectorize(["(int32[:], int32[:])"], "(n)->(m)")(lambda a, b: 1)
    with pytest.raises(ValueError, match="bad token"):
        cuda.guvectorize(["(int32[:], int32[:])"], "(n->(n)")(lambda a, b: 1)


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
