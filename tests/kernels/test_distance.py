"""Distances of rows."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels.launchers.distance import LINES
from tests.kernels.helpers import BFLOAT16, DEVICES, check, normal, put

pytestmark = pytest.mark.parametrize("device", DEVICES)
DTYPES = [np.float32, np.float64, np.float16, BFLOAT16]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (31, 70, 33), (64, 32, 64), (5, 3, 0), (0, 4, 3)])
def test_rows_of_two_arrays(line, m, n, k, device, rng):
    for batch in (1, 3):
        a, b = normal(rng, (batch, m, k)), normal(rng, (batch, n, k))
        check("distances", a, b, line, device=device, scale=k, terms=max(k, 1))
        check("distances", a[:, ::-1], b[..., ::-1], line, device=device, scale=k, terms=max(k, 1))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n, k", [(1, 3), (0, 3), (2, 0), (33, 5), (64, 32), (101, 40)])
def test_pairs_of_rows(line, n, k, device, rng):
    x = normal(rng, (n, k))
    check("pair_distances", x, line, device=device, scale=k, terms=max(k, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_what_is_not_a_number(dtype, device, rng):
    x = normal(rng, (40, 7), dtype)
    x[3] = x[2]
    x[5, 1], x[6, 2] = np.nan, np.inf
    for line in LINES:
        check("pair_distances", x, line, device=device, scale=7, terms=7)
        check("distances", x[None, :9], x[None], line, device=device, scale=7, terms=7)


def test_errors(device, rng):
    x = put(normal(rng, (1, 3, 4)), device)
    with pytest.raises(ValueError, match=r"expected \(batch, m, k\) and \(batch, n, k\), got"):
        kernels.distances(x, x[..., 1:], backend="numba")
    with pytest.raises(ValueError, match=r"pair_distances: expected \(n, k\), got \(1, 3, 4\)"):
        kernels.pair_distances(x, backend="numba")
    with pytest.raises(ValueError, match="expected a line among .*, got 'sum'"):
        kernels.distances(x, x, "sum", backend="numba")
    with pytest.raises(TypeError, match="expected a floating dtype, got int64"):
        kernels.pair_distances(x[0].astype(np.int64), backend="numba")
    with pytest.raises(TypeError, match="expected arrays of one dtype"):
        kernels.distances(x, x.astype(np.float64), backend="numba")
    with pytest.raises(ValueError, match="65535 batches, got .* take parts of them"):
        many = put(np.zeros((65536, 1, 1), np.float32), device)
        kernels.distances(many, many, backend="numba")
