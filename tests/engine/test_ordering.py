"""Sorting, the largest, the k-th and the median of each line, beside torch."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m

pytestmark = pytest.mark.usefixtures("reference_backend")

SEED = 20261126
SHAPES = [(50,), (4, 30), (3, 40, 5), (1,), (2, 1), (0,), (3, 0), (0, 3)]


def values(rng, shape, dtype, special: bool) -> np.ndarray:
    """Many equal ones, and zeros, infinities and NaN of both signs."""
    x = rng.integers(-5, 5, shape).astype(dtype)
    if np.dtype(dtype).kind == "f" and special:
        chosen = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], shape)
        x = np.where(rng.random(shape) < 0.4, chosen, x).astype(dtype)
    return x


def cases(dtype, special):
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    for shape in SHAPES:
        x = values(rng, shape, dtype, special)
        for dim in range(len(shape)):
            yield x, dim


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64, np.int64])
def test_sorting_is_stable(torch, dtype, special):
    for x, dim in cases(dtype, special):
        for descending in (False, True):
            found = m.tensor(x).sort(dim, descending)
            expected = torch.sort(torch.tensor(x), dim=dim, descending=descending, stable=True)
            np.testing.assert_array_equal(found.indices.numpy(), expected.indices.numpy())
            np.testing.assert_array_equal(found.values.numpy(), expected.values.numpy())


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
def test_the_first_ones_in_order(torch, dtype, special):
    for x, dim in cases(dtype, special):
        ours, theirs, n = m.tensor(x), torch.tensor(x), x.shape[dim]
        for k in {1, n // 5, n // 2, n} - {0} if x.size else ():
            kth = ours.kthvalue(k, dim)
            np.testing.assert_array_equal(
                kth.values.numpy(), theirs.kthvalue(k, dim).values.numpy()
            )
            for largest in (False, True):
                found, expected = ours.topk(k, dim, largest), theirs.topk(k, dim, largest)
                np.testing.assert_array_equal(found.values.numpy(), expected.values.numpy())
                again = np.take_along_axis(x, found.indices.numpy(), dim)
                np.testing.assert_array_equal(again, found.values.numpy())
                lines = np.sort(found.indices.numpy(), dim)
                assert (np.diff(lines, axis=dim) > 0).all()  # none twice
        if x.size:
            median = ours.median(dim).values.numpy()
            np.testing.assert_array_equal(median, theirs.median(dim).values.numpy())


def test_one_hot_of_any_shape(torch):
    for shape in ((), (4,), (2, 3), (0, 2)):
        x = np.arange(int(np.prod(shape))).reshape(shape) % 5
        found = m.nn.functional.one_hot(m.tensor(x), 5).numpy()
        expected = torch.nn.functional.one_hot(torch.tensor(x), 5).numpy()
        np.testing.assert_array_equal(found, expected)
