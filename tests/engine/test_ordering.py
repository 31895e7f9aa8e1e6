"""Sorting, the largest, the k-th and the median of each line, beside torch."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
import minigrad as m
from minigrad import backends

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


INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("reach", [100, 40_000, 1 << 20])
def test_many_integers_near_each_other(torch, dtype, reach):
    """Those within 2^16 are sorted digit by digit, and counted."""
    rng, ends = np.random.default_rng(SEED), np.iinfo(dtype)
    low, high = max(ends.min, -reach), min(ends.max, reach)
    for shift in {0, ends.min - low, ends.max - high}:
        x = (rng.integers(low, high, (3, 700)) + shift).astype(dtype)
        x[0, :2] = low + shift, high + shift
        ours, theirs = m.from_numpy(x), torch.from_numpy(x)
        for descending in (False, True):
            got = ours.sort(1, descending)
            want = theirs.sort(dim=1, descending=descending, stable=True)
            np.testing.assert_array_equal(got.values, want.values)
            np.testing.assert_array_equal(got.indices, want.indices)
        got = m.unique(ours, return_inverse=True, return_counts=True)
        want = torch.unique(theirs, return_inverse=True, return_counts=True)
        for mine, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(mine, other)
            assert str(mine.dtype).rpartition(".")[2] == str(other.dtype).rpartition(".")[2]
        np.testing.assert_array_equal(m.unique(ours), want[0])
        inverse = m.unique(ours.t(), return_inverse=True)[1]
        np.testing.assert_array_equal(inverse, want[1].T)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_nan_is_a_value_of_its_own(torch, dtype):
    x = np.array([np.nan, 2, -np.nan, np.nan, -0.0, 0, 2, 2, 1] * 50, dtype)
    for name in ("unique", "unique_consecutive"):
        how = {"return_inverse": True, "return_counts": True}
        got = getattr(m, name)(m.from_numpy(x), **how)
        want = getattr(torch, name)(torch.from_numpy(x), **how)
        for mine, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(mine, other)
        np.testing.assert_array_equal(getattr(m, name)(m.from_numpy(x)), want[0])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("kind", ["distinct", "equal", "few", "sorted", "nan"])
def test_the_first_ones_of_a_long_row(torch, dtype, kind):
    rng = np.random.default_rng(SEED)
    x = rng.permutation(20_011).astype(dtype)
    if kind == "equal":
        x[:] = 3
    elif kind == "few":
        x %= 7
    elif kind == "sorted":
        x.sort()
    elif dtype == "float32" and kind == "nan":
        x[rng.integers(0, x.size, 40)] = np.nan
        x[5], x[6] = np.inf, -np.inf
    for k in (1, 2, 30, 60, 400):
        for largest in (True, False):
            for array, dim in ((x, 0), (x[None], 1), (x[:, None], 0)):
                got = m.from_numpy(array).topk(k, dim, largest)
                want = torch.from_numpy(array).topk(k, dim, largest)
                np.testing.assert_array_equal(got.values, want.values)
                places = got.indices.numpy()
                np.testing.assert_array_equal(np.take_along_axis(array, places, dim), want.values)
                assert len(set(places.ravel().tolist())) == k


@pytest.mark.parametrize("kind", ("different", "equal", "nan", "integers"))
@pytest.mark.parametrize(("shape", "dim"), [((40, 100), 1), ((100, 40), 0), ((3, 90, 5), 1)])
def test_topk_of_many_rows_takes_the_first_of_equal_elements(shape, dim, kind, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    if kind == "equal":
        x = np.round(x)
    elif kind == "nan":
        x[rng.random(shape) < 0.2] = np.nan
    elif kind == "integers":
        x = (100 * x).astype(np.int32)
    for k in (1, 3, 12, 20):
        for largest in (True, False):
            found = m.from_numpy(x.copy()).topk(k, dim, largest)
            ranks = x.astype(np.float64)  # NaN counts as the largest
            keys = -np.nan_to_num(ranks, nan=np.inf) if largest else ranks
            order = np.take(np.argsort(keys, dim, kind="stable"), range(k), dim)
            np.testing.assert_array_equal(found.indices, order)
            np.testing.assert_array_equal(found.values, np.take_along_axis(x, order, dim))


@pytest.mark.parametrize("dtype", (np.float64, np.float32, np.int64))
def test_one_largest_element_is_an_argmax(dtype, rng):
    x = np.round(rng.standard_normal((6, 80)) * 3).astype(dtype)
    if dtype != np.int64:
        x[2, 5:7] = np.nan
    found = m.from_numpy(x.copy()).topk(1)
    np.testing.assert_array_equal(found.indices, np.argmax(x, 1)[:, None])
    np.testing.assert_array_equal(found.values, np.max(x, 1)[:, None])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_the_median_of_all_elements(dtype, rng):
    for count in (1, 2, 7, 1000):
        values = rng.integers(0, 200, count).astype(dtype)
        found = m.tensor(values).median()
        assert found.item() == np.sort(values)[(count - 1) // 2] and found.shape == ()
        assert found.dtype == m.tensor(values).dtype
        if dtype[0] == "f":
            values[rng.integers(count)] = -np.nan
            assert m.tensor(values).median().isnan()


def test_the_median_of_all_elements_has_a_gradient():
    """Also of a view whose base came to need one after it was made."""
    x = m.tensor([3.0, 1.0, 2.0], requires_grad=True)
    x.median().backward()
    assert x.grad.tolist() == [0, 0, 1]
    base, factor = m.tensor([3.0, 1.0, 2.0]), m.ones(3, requires_grad=True)
    view = base[:]
    base.mul_(factor)
    view.median().backward()
    assert factor.grad.tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    "shape", [(1, 100), (4, 600), (16, 64), (100, 100), (8, 1000), (40, 700), (3, 9000)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_the_first_of_all_sizes_are_those_of_a_sort(shape, dtype, rng):
    array = np.round(rng.standard_normal(shape) * 40).astype(dtype)
    if dtype != np.int32:
        array[0, 3], array[-1, 5:9] = np.inf, np.nan
    for x in (m.from_numpy(array), m.from_numpy(np.ascontiguousarray(array.T)).T):
        for largest in (True, False):
            values, indices = x.topk(7, 1, largest)
            expected = x.sort(1, largest).values[:, :7]
            np.testing.assert_array_equal(values, expected)
            np.testing.assert_array_equal(x.gather(1, indices), expected)
            assert all(len(set(row)) == 7 for row in indices.tolist())


def test_what_searchsorted_refuses():
    x = m.tensor([1.0, 2.0])
    for args, given in (
        ((m.tensor(1.0), m.tensor(0.5)), {}),
        ((x, x), {"sorter": m.tensor([0, 1], dtype=m.int32)}),
        ((x, x), {"sorter": m.tensor([0.0, 1.0])}),
    ):
        with pytest.raises(RuntimeError, match=r"^searchsorted\(\)"):
            m.searchsorted(*args, **given)
    assert m.searchsorted(x.flip(0), x, sorter=m.tensor([1, 0])).tolist() == [0, 1]


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "float16", "bfloat16"])
def test_places_in_rows_that_are_sorted(dtype, backend, rng):
    for shape, count in (
        *(((3, 9), 1), ((2, 3, 33), 4), ((2, 40), 300), ((300, 5), 3)),
        *(((2, 3, 0), 4), ((0, 3), 4), ((3, 4), 0)),
    ):
        rows, values = np.sort(rng.integers(0, 9, shape)), rng.integers(0, 9, (*shape[:-1], count))
        given = [m.tensor(a).to(getattr(m, dtype)) for a in (rows, values)]
        for side in ("left", "right"):
            expected = np.zeros(values.shape)
            for row in np.ndindex(shape[:-1]):
                expected[row] = np.searchsorted(rows[row], values[row], side)
            with backends.use(backend):
                found = m.searchsorted(*given, side=side)
            assert found.dtype == m.int64 and found.shape == values.shape
            np.testing.assert_array_equal(found, expected)
    transposed = m.tensor([[1.0, 2.0], [3.0, 4.0]]).T
    assert m.searchsorted(transposed, m.tensor([[2.0], [1.0]])).tolist() == [[1], [0]]


def test_rows_are_searched_by_one_launch(rng):
    rows = m.tensor(np.sort(rng.standard_normal((50, 9))))
    for count, version in ((2, "binary"), (255, "binary"), (256, "shared")):
        values = m.zeros(50, count, dtype=m.float64)
        with backends.use("numba"), kernels.trace() as seen:
            m.searchsorted(rows, values)
        assert [*seen.rows] == [("searchsorted", version)]
