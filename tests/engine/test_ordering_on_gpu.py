"""Sorting and selecting on a GPU, by the kernels of `kernels.sort`: the same as on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m
from minigrad.backends import array_module
from tests.engine.test_ordering import values as tied

pytestmark = pytest.mark.gpu

SHAPES = [(50,), (4, 31), (3, 33, 5), (1,), (0,), (3, 0), (0, 3), (2, 1025), (2, 9000), (9001,)]
DTYPES = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]


def same(found, expected) -> None:
    """Pairs of values, bit by bit, and positions."""
    assert found.values.is_cuda and found.indices.is_contiguous()
    np.testing.assert_array_equal(found.indices.cpu().numpy(), expected.indices.numpy())
    assert found.values.cpu().numpy().tobytes() == expected.values.numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorting_and_selecting(dtype, rng):
    for shape in SHAPES:
        x = m.from_numpy(tied(rng, shape, dtype, True))
        for dim in range(x.ndim):
            for descending in (False, True):
                same(x.cuda().sort(dim, descending), x.sort(dim, descending))
                for k in {0, 1, x.shape[dim] // 3} if x.numel() and dtype != "bool" else ():
                    found, expected = (t.topk(k, dim, descending) for t in (x.cuda(), x))
                    np.testing.assert_array_equal(
                        found.values.cpu().numpy(), expected.values.numpy()
                    )
                    again = x.gather(dim, found.indices.cpu()).numpy()
                    np.testing.assert_array_equal(again, expected.values.numpy())
                    if k:
                        same(x.cuda().kthvalue(k, dim), x.kthvalue(k, dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_without_repeats(dtype, rng):
    for shape in SHAPES:
        x = m.from_numpy(tied(rng, shape, dtype, True))
        for name in ("unique", "unique_consecutive"):
            found, expected = getattr(m, name)(x.cuda()), getattr(m, name)(x)
            assert found.is_cuda and found.dtype == expected.dtype
            np.testing.assert_array_equal(found.cpu().numpy(), expected.numpy())


@pytest.mark.parametrize("n", [31, 1023, 8193, 20_001])
def test_the_first_ones_of_long_rows(n, rng):
    """From parts of the rows; of equal elements the first ones."""
    x = rng.integers(-400, 400, (2, n)).astype(np.float32)
    x[:, 7] = x[:, -1] = np.nan
    for array in (x, x[0]):
        order = np.argsort(array, -1, kind="stable")
        for k in {1, 10, min(n, 1000), min(n, 1100)}:
            found = m.from_numpy(array).cuda().topk(k, -1, largest=False).indices
            np.testing.assert_array_equal(found.cpu().numpy(), order[..., :k])


def test_medians_and_quantiles(rng):
    x = m.from_numpy(tied(rng, (5, 40), np.float32, True))
    for t in (x, m.from_numpy(rng.standard_normal((33, 65)).astype(np.float32))):
        for dim in (0, 1):
            for name in ("median", "nanmedian"):
                there, here = (getattr(a, name)(dim) for a in (t.cuda(), t))
                np.testing.assert_array_equal(there.values.cpu().numpy(), here.values.numpy())
            found, expected = (a.quantile(0.3, dim) for a in (t.cuda(), t))
            np.testing.assert_allclose(found.cpu().numpy(), expected.numpy(), rtol=1e-6)
        assert t.cuda().median().cpu().equal(t.median()) or t.isnan().any()


def test_layouts_and_gradients(rng):
    x = rng.standard_normal((6, 40, 33)).astype(np.float32)
    grads = []
    for device in ("cpu", "cuda"):
        t = m.tensor(x, device=device, requires_grad=True)
        view = t.transpose(0, 2)[::2, 3:]
        y = view.sort(1, descending=True).values
        weights = m.arange(y.numel(), dtype=m.float32, device=device).reshape(y.shape)
        ((y * weights).sum() + (view.topk(3, 2)[0] ** 2).sum() + view.median(0)[0].sum()).backward()
        assert type(y.grad_fn).__name__ == "SortBackward0"
        grads.append(t.grad.cpu().numpy())
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5, atol=1e-5)


def test_a_compiled_step_records_it(rng):
    x = m.from_numpy(rng.standard_normal((9, 70)).astype(np.float32)).cuda()

    def step():
        return x.sort(1).values * 2, x.topk(3, 0).indices, x.argsort(0)

    compiled = m.compile(step)
    expected = [t.cpu() for t in step()]
    for _ in range(3):
        assert all(a.cpu().equal(b) for a, b in zip(compiled(), expected))
    assert "1 recorded, 2 replayed, 0 eager" in compiled.report()


def test_places_in_sorted_sequences(rng):
    edges = np.sort(rng.standard_normal(300).astype(np.float32))
    values = rng.choice([*edges, np.nan, np.inf, 0.5], (4, 33, 2)).astype(np.float32)
    sequences = np.sort(rng.integers(-9, 9, (4, 33, 7)), -1)
    for side in ("left", "right"):
        for a, b in (
            (edges, values),
            (sequences, values),
            (edges, np.int64(1)),
            (edges[:0], values),
        ):
            there, here = m.from_numpy(a).cuda(), m.from_numpy(a)
            b = m.tensor(b)
            found = m.searchsorted(there, b.cuda(), side=side)
            assert found.cpu().equal(m.searchsorted(here, b, side=side))
            assert m.searchsorted(there, b.cuda(), out_int32=True).dtype == m.int32
        assert m.searchsorted(there, 0.3).item() == m.searchsorted(here, 0.3).item()
    assert m.bucketize(m.tensor(values).cuda(), m.tensor(edges).cuda()).shape == (4, 33, 2)


@pytest.mark.parametrize("replacement", [False, True])
def test_numbers_drawn_by_weights(replacement, rng):
    """As on the CPU, weights of zero and a row longer than a block sorts among them."""
    for shape in ((33,), (5, 70), (2, 9000)):
        weights = m.from_numpy(rng.random(shape) * (rng.random(shape) < 0.9))
        drawn = []
        for device in ("cpu", "cuda"):
            m.manual_seed(7)
            drawn.append(m.multinomial(weights.to(device), 20, replacement).cpu())
        assert drawn[0].equal(drawn[1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_long_vectors_of_a_library_that_sorts_by_bits(dtype, rng, monkeypatch):
    """As CuPy does on a GPU: NaN with a sign would be the least, and -0 less than 0."""
    bits = np.dtype(f"i{np.dtype(dtype).itemsize}")

    def by_bits(array, axis=0, kind="stable"):
        x = array.get()
        assert x.dtype == dtype and x.ndim == 1 and kind == "stable"
        keys = x.view(bits)
        keys = np.where(keys < 0, keys ^ np.iinfo(bits).max, keys)
        return cupy.asarray(np.argsort(keys, kind="stable"))

    def sorted_by_bits(array):
        return cupy.asarray(array.get()[by_bits(array).get()])

    values = rng.choice([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan], 9001).astype(dtype)
    x = m.from_numpy(np.where(rng.random(9001) < 0.5, values, -values))
    there = x.cuda()
    cupy = array_module(there._array)
    monkeypatch.setattr(cupy, "argsort", by_bits)
    monkeypatch.setattr(cupy, "sort", sorted_by_bits)
    np.testing.assert_array_equal(m.unique(there).cpu().numpy(), m.unique(x).numpy())
    for descending in (False, True):
        same(there.sort(0, descending), x.sort(0, descending))
        order = there.argsort(0, descending).cpu().numpy()
        np.testing.assert_array_equal(order, x.sort(0, descending).indices.numpy())
