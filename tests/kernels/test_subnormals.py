"""float32 numbers below 1.2e-38 are numbers: on the CPU and on a GPU, in both dialects."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from tests.kernels.helpers import DEVICES, get, put

TINY = np.float32(1e-40)
CALLS = {
    "add": lambda x: ("add", x, x),
    "mul": lambda x: ("mul", x, np.full_like(x, 3)),
    "div": lambda x: ("div", np.float32(1e-20) * np.abs(x) / TINY, np.full_like(x, 1e20)),
    "sqrt": lambda x: ("sqrt", np.abs(x)),
    "exp": lambda x: ("exp", np.float32(-97) + x / TINY),
    "relu": lambda x: ("relu", x),
    "sum": lambda x: ("sum", x, 1),
    "max": lambda x: ("max", -np.abs(x), 1),
    "matmul": lambda x: ("matmul", x, np.eye(x.shape[1], dtype=np.float32)),
    "cumsum": lambda x: ("cumsum", x, 1),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("call", CALLS)
def test_subnormal_numbers_stay(call, backend, device, rng):
    x = rng.integers(-9, 10, (5, 64)).astype(np.float32) * TINY
    name, *args = CALLS[call](x)
    got = get(getattr(kernels, name)(*(put(a, device) for a in args), backend=backend))
    want = np.asarray(getattr(kernels, name)(*args, backend="numpy"))
    tiny = np.finfo(np.float32).tiny
    assert call == "sqrt" or ((0 < np.abs(want[want != 0])).all() and np.abs(want).max() < tiny)
    bound = 4 * np.finfo(np.float32).smallest_subnormal + 1e-6 * np.abs(want)
    assert got.dtype == np.float32 and (np.abs(got - want) <= bound).all()


@pytest.mark.gpu
@pytest.mark.parametrize("options, kept", [((), True), (("-ftz=true",), False)])
def test_cuda_c_keeps_them_on_a_gpu_unless_asked(options, kept):
    code = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"
    x = put(np.full(32, TINY), "gpu")
    kernels.raw_kernel(code, "twice", options)((1,), (32,), (x,))
    np.testing.assert_array_equal(get(x), np.full(32, 2 * TINY if kept else 0, np.float32))
