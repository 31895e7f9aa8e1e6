"""Random numbers: the reference's numbers, on every device, for every count."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import numba_cuda, reference
from tests.kernels.helpers import BFLOAT16, DEVICES, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
COUNTS = [0, 1, 2, 3, 4, 5, 255, 1023, 1025, 1027, 10_001]
SEEDS = [(0, 0), (7, 3), (2**63 + 5, 2**40 + 1), (-1, 2**64 - 1)]


def test_philox_words(device):
    like = put(np.zeros(1), device)
    for seed, offset in SEEDS:
        for n in COUNTS:
            got = get(numba_cuda.philox_uint32(n, seed, offset, like=like))
            np.testing.assert_array_equal(got, reference.philox_uint32(n, seed, offset))


def test_known_answers(device):
    """Vectors that ship with Random123."""
    like = put(np.zeros(1), device)
    words = get(numba_cuda.philox_uint32(4, 0, 0, like=like))
    assert [hex(w) for w in words] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BFLOAT16])
def test_uniform(dtype, device):
    like = put(np.zeros(1), device)
    for n in COUNTS:
        got = numba_cuda.uniform((n,), 11, 5, np.dtype(dtype), like=like)
        want = reference.uniform((n,), 11, 5, np.dtype(dtype))
        assert got.dtype == dtype
        np.testing.assert_array_equal(wide(got), wide(want))
    assert numba_cuda.uniform((2, 3), 1, 1, like=like).shape == (2, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_normal(dtype, device):
    like = put(np.zeros(1), device)
    for n in COUNTS:
        got = numba_cuda.normal((n,), 11, 5, np.dtype(dtype), like=like)
        want = reference.normal((n,), 11, 5, np.dtype(dtype))
        step = np.finfo(dtype).eps
        np.testing.assert_allclose(wide(got), wide(want), rtol=32 * step, atol=16 * step)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dropout(dtype, device, rng):
    for shape in [(1027,), (31, 33), (0,), ()]:
        x = normal(rng, shape, dtype)
        for p in (0.0, 0.25, 1.0):
            got = numba_cuda.dropout(put(np.asarray(x), device), p, 3, 9)
            want = reference.dropout(np.asarray(x), p, 3, 9)
            assert got.dtype == dtype
            np.testing.assert_allclose(wide(got), wide(want), rtol=np.finfo(dtype).eps)
    x = normal(rng, (40, 30), dtype).T
    got = get(numba_cuda.dropout(put(x, device), 0.5, 1, 1))
    np.testing.assert_allclose(got, reference.dropout(x, 0.5, 1, 1), rtol=np.finfo(dtype).eps)


def test_errors(device):
    with pytest.raises(ValueError, match="between 0 and 1, got 1.5"):
        kernels.dropout(put(np.ones(3, np.float32), device), 1.5, 0, 0, backend="numba")
    with pytest.raises(TypeError, match="expected a floating dtype, got int64"):
        kernels.dropout(put(np.ones(3, np.int64), device), 0.5, 0, 0, backend="numba")
    with pytest.raises(TypeError, match="uniform: expected a floating dtype"):
        kernels.uniform((3,), 0, 0, np.int32, backend="numba")
    with pytest.raises(ValueError, match="expected n >= 0"):
        kernels.philox_uint32(-1, 0, 0, backend="numba")
