"""What stands between brackets, read in two ways that must agree; and calls that are remembered."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F
from minigrad.ops.brackets import parse, plain_index

FULL = slice(None)


def _part(rng, n):
    """A random part of an index of a dimension of length n, sometimes a wrong one."""
    ends = [None, *range(-n - 2, n + 3)]
    chosen = rng.integers(8)
    if chosen < 3:
        return int(rng.integers(-n - 1, n + 1))
    if chosen == 3:
        return None
    if chosen == 4:
        return ...
    start, stop = (ends[i] for i in rng.integers(len(ends), size=2))
    return slice(start, stop, [None, 1, 2, 3, 0, -1][min(rng.integers(9), 5)])


def _trimmed(index):
    index = list(index)
    while index and index[-1] == FULL:
        index.pop()
    return index


def test_the_short_way_reads_an_index_as_the_long_one(rng):
    short = wrong = 0
    for _ in range(3000):
        shape = tuple(rng.integers(1, 5, rng.integers(4)).tolist())
        x = mg.arange(math.prod(shape)).reshape(shape)
        index = tuple([_part(rng, int(rng.integers(1, 5))) for _ in range(rng.integers(5))])
        index = index[0] if len(index) == 1 and rng.random() < 0.5 else index
        plain = plain_index(shape, index)
        try:
            basic, tensors = parse(x, index)
        except (IndexError, ValueError):
            wrong += 1
            assert plain is None
            with pytest.raises((IndexError, ValueError)):
                x[index]
            continue
        assert not tensors
        if plain is not None:
            short += 1
            assert _trimmed(plain) == _trimmed(basic)
        if isinstance(index, tuple) and sum(part is ... for part in index) > 1:
            continue  # which NumPy refuses
        found, expected = x[index], np.asarray(x.numpy()[index])
        np.testing.assert_array_equal(found.numpy(), expected)
        assert np.shares_memory(found.numpy(), x.numpy()) or not expected.size
    assert short > 1000 and wrong > 300


@pytest.mark.parametrize(
    "index", [None, ..., (FULL, None), (..., None, FULL), (0, None), (slice(0, None, 1), ..., FULL)]
)
def test_gradients_of_views_of_all_elements(index, rng):
    x = mg.from_numpy(rng.standard_normal((1, 3, 2))).requires_grad_()
    assert mg.autograd.gradcheck(lambda x: x[index] ** 2, x)
    assert mg.autograd.gradgradcheck(lambda x: x[index] ** 2, x)
    strided = x.detach().transpose(1, 2).requires_grad_()
    g = mg.from_numpy(rng.standard_normal(strided[index].mT.shape)).mT
    strided[index].backward(g)
    np.testing.assert_array_equal(strided.grad.numpy(), g.numpy().reshape(strided.shape))


def test_paddings_that_are_equal_numbers(rng):
    """0.0 and -0.0 are equal, but not the same padding, also where launches are remembered."""
    for dtype in (mg.float32, mg.float64, mg.int64):
        values = [0.0, -0.0, 1, 1.0, 2.5, math.inf, math.nan] if dtype != mg.int64 else [0, 1, -3]
        for _ in range(4):
            for value in values:
                x = mg.from_numpy(rng.standard_normal((3, 4))).to(dtype)
                found = F.pad(x, (1, 2, -1, 1), value=value).numpy()
                expected = np.full((3, 7), value, x.numpy().dtype)
                expected[:2, 1:5] = x.numpy()[1:]
                np.testing.assert_array_equal(found, expected)
                if dtype != mg.int64:
                    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_copies_in_another_order_of_every_call(rng):
    for _ in range(5):
        for dtype in (np.float32, np.int64, np.complex64):
            x = (10 * rng.standard_normal((3, 4, 2))).astype(dtype)
            for axes in ((0,), (1, 2), (-1, 0)):
                t = mg.from_numpy(x)
                np.testing.assert_array_equal(t.flip(axes).numpy(), np.flip(x, axes))
                shifts = tuple(rng.integers(-5, 6, len(axes)).tolist())
                np.testing.assert_array_equal(
                    t.roll(shifts, axes).numpy(), np.roll(x, shifts, axes)
                )


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_extremes_of_every_call(name, keepdim, rng):
    for _ in range(5):
        for dim in (0, 1, -1):
            x = mg.from_numpy(rng.standard_normal((3, 4, 5)).round(1)).requires_grad_()
            values, places = getattr(x, name)(dim, keepdim=keepdim)
            expected = getattr(np, f"arg{name}")(x.detach().numpy(), dim, keepdims=True)
            kept = places if keepdim else places.unsqueeze(dim)
            np.testing.assert_array_equal(kept.numpy(), expected)
            assert values.shape == places.shape and not places.requires_grad
            assert values.grad_fn.name() == f"{name.capitalize()}Backward0"
            g = mg.from_numpy(rng.standard_normal(values.shape))
            values.backward(g)
            slope = np.zeros(x.shape)
            np.put_along_axis(slope, expected, g.numpy().reshape(expected.shape), dim)
            np.testing.assert_array_equal(x.grad.numpy(), slope)
            np.testing.assert_array_equal(
                values.detach().numpy(), getattr(x.detach().numpy(), name)(dim, keepdims=keepdim)
            )


def test_second_derivatives_of_extremes(rng):
    x = mg.from_numpy(rng.standard_normal((3, 4))).requires_grad_()
    for dim in (0, 1):
        assert mg.autograd.gradcheck(lambda x, dim=dim: x.max(dim)[0] ** 3, x)
        assert mg.autograd.gradgradcheck(lambda x, dim=dim: x.min(dim, keepdim=True)[0] ** 3, x)
