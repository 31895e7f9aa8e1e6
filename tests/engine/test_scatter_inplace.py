"""`scatter_` and `scatter_add_`: written at once where no gradient is recorded."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from kernels import dispatch
from minigrad.ops import scatter

NAMES = ("scatter_", "scatter_add_")
LAYOUTS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "part": lambda x: x[1:, 2:],
}


def operands(rng, shape, dtype=np.float32):
    size = shape[1]
    index = np.argsort(rng.random(shape), 1)[:, : size // 2]  # distinct, so that the order is free
    src = (rng.standard_normal(shape) * 9).astype(dtype)
    return minigrad.from_numpy(index.astype(np.int64)), minigrad.from_numpy(src)


def wanted(name, x, index, src):
    x = x.numpy().copy()
    part = src.numpy()[:, : index.shape[1]]
    if name == "scatter_add_":
        part = np.take_along_axis(x, index.numpy(), 1) + part
    np.put_along_axis(x, index.numpy(), part, 1)
    return x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8])
def test_layouts_and_dtypes(name, layout, dtype, rng):
    base = minigrad.from_numpy((rng.standard_normal((33, 34)) * 9).astype(dtype))
    x = LAYOUTS[layout](base)
    index, src = operands(rng, tuple(x.shape), dtype)
    expected, version = wanted(name, x, index, src), base._version
    with dispatch.trace() as trace:
        assert getattr(x, name)(1, index, src) is x
    tolerance = 1e-2 if dtype == np.float16 else 0
    np.testing.assert_allclose(x.numpy(), expected, rtol=tolerance)
    assert base._version == x._version == version + 1
    if layout == "whole" and dtype == np.float32:
        assert [operation for operation, _ in trace.rows] == [name.removesuffix("_")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_again_and_again(name, layout, rng):
    """From the third call on the launches are remembered; the index is looked at each time."""
    for turn in range(5):
        base = minigrad.from_numpy(rng.standard_normal((33, 34)).astype(np.float32))
        x, before = LAYOUTS[layout](base), base.clone()
        index, src = operands(rng, tuple(x.shape))
        src = src[:, : index.shape[1]].contiguous()
        expected = wanted(name, x, index, src)
        assert getattr(x, name)(1, index, src) is x
        np.testing.assert_array_equal(x.numpy(), expected)
        other = minigrad.ones_like(base, dtype=minigrad.bool)
        LAYOUTS[layout](other).fill_(False)
        assert base[other].equal(before[other])  # nothing else was written
        index[turn, 0] = x.shape[1]
        with pytest.raises(RuntimeError, match=f"index {x.shape[1]} is out of bounds"):
            getattr(x, name)(1, index, src)
        np.testing.assert_array_equal(x.numpy(), expected)


def test_a_number_and_keywords(rng):
    for write in (
        lambda x, i: x.scatter_(1, i, 2),
        lambda x, i: x.scatter_(dim=-1, index=i, value=2.0),
        lambda x, i: x.scatter_(1, i, src=minigrad.full((3, 1), 2.0)),
    ):
        x = minigrad.zeros(3, 4)
        write(x, minigrad.tensor([[0], [3], [1]]))
        assert x.tolist() == [[2, 0, 0, 0], [0, 0, 0, 2], [0, 2, 0, 0]]
    x = minigrad.zeros(3)  # an index without dimensions is one element
    assert x.scatter_(0, minigrad.tensor(1), 5.0).tolist() == [0, 5, 0]
    assert x.scatter_add_(0, minigrad.tensor(1), minigrad.tensor(2.0)).tolist() == [0, 7, 0]
    x = minigrad.ones(2, 2)
    assert x.scatter_(1, minigrad.tensor([[1], [0]]), 3.0, reduce="multiply").tolist() == [
        [1, 3],
        [3, 1],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_operands_that_share_memory(name, rng):
    """Elements that are read may be written meanwhile: the values are computed first."""
    x = minigrad.from_numpy(rng.standard_normal((5, 8)).astype(np.float32))
    index, _ = operands(rng, (5, 8))
    expected = wanted(name, x, index, x)
    getattr(x, name)(1, index, x)
    np.testing.assert_array_equal(x.numpy(), expected)
    places = minigrad.tensor([[3, 0, 1, 2]])
    places.scatter_(1, places, minigrad.tensor([[10, 11, 12, 13]]))
    assert places.tolist() == [[11, 12, 13, 10]]


@pytest.mark.parametrize("name", NAMES)
def test_wrong_operands_change_nothing(name):
    x, src = minigrad.zeros(2, 3), minigrad.ones(2, 1)
    method = getattr(x, name)
    for wrong in (3, -1):
        with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds for dimension 1"):
            method(1, minigrad.tensor([[0], [wrong]]), src)
    with pytest.raises(RuntimeError, match="dtype"):
        method(1, minigrad.tensor([[0], [1]]), src.double())
    with pytest.raises(RuntimeError, match="no larger than src"):
        method(1, minigrad.tensor([[0, 1], [1, 2]]), src)
    with pytest.raises(RuntimeError, match="single memory location"):
        getattr(minigrad.zeros(1, 3).expand(2, 3), name)(1, minigrad.tensor([[0], [1]]), src)
    assert not x.any()
    assert x._version == 0


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_recorded(name):
    x = minigrad.ones(2, 3, requires_grad=True)
    src = minigrad.full((2, 1), 5.0, requires_grad=True)
    index = minigrad.tensor([[0], [2]])
    y = x * 1
    getattr(y, name)(1, index, src)
    (y * y).sum().backward()
    value = 5.0 if name == "scatter_" else 6.0
    kept = 0.0 if name == "scatter_" else 2 * value
    assert src.grad.tolist() == [[2 * value], [2 * value]]
    assert x.grad.tolist() == [[kept, 2, 2], [2, 2, kept]]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        getattr(x, name)(1, index, src)
    with minigrad.no_grad():
        getattr(x, name)(1, index, src)
    assert x[0, 0].item() == value


@pytest.mark.parametrize("dim", range(3))
def test_where_lines_begin_is_computed_once_for_shapes(dim, rng):
    x, before = rng.standard_normal((4, 5, 3)), scatter._starts.cache_info()
    for dtype in (np.int64, np.int32, np.int64):
        index, src = rng.integers(0, 3, (2, 3, 3)).astype(dtype), rng.standard_normal((2, 5, 3))
        wanted = x.copy()
        for at in np.ndindex(index.shape):
            to = (*at[:dim], index[at], *at[dim + 1 :])
            wanted[to] = max(wanted[to], src[at])
        given = (minigrad.from_numpy(a) for a in (index, src))
        found = minigrad.from_numpy(x).scatter_reduce(dim, *given, "amax")
        np.testing.assert_array_equal(found.numpy(), wanted)
    after = scatter._starts.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)
