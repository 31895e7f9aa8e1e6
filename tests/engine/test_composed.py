"""Operations that are composed of others, beside torch: values, strides and gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

import kernels
import minigrad as m
from minigrad.ops import einsum

SEED = 20261126
RNG = np.random.default_rng(SEED)
MASK = np.array([True, False, True, True, False, True])
CASES = {
    "trace_tall": (lambda lib, x: lib.trace(x), [(6, 3)]),
    "trace_wide": (lambda lib, x: lib.trace(x), [(3, 6)]),
    "trace_empty": (lambda lib, x: lib.trace(x), [(0, 3)]),
    "diag": (lambda lib, x: lib.diag(x, -1), [(4,)]),
    "diag_embed": (lambda lib, x: lib.diag_embed(x), [(2, 4, 6)]),
    "diag_embed_apart": (lambda lib, x: lib.diag_embed(x, 1, 0, 2), [(4, 6)]),
    "diag_embed_reversed": (lambda lib, x: lib.diag_embed(x, -2, 2, 0), [(4, 6)]),
    "cross_last": (lambda lib, x, y: lib.linalg.cross(x, y), [(40, 3), (40, 3)]),
    "cross_first": (lambda lib, x, y: lib.linalg.cross(x, y, dim=0), [(3, 4), (3, 4)]),
    "cross_broadcast": (lambda lib, x, y: lib.linalg.cross(x, y), [(1, 3), (4, 3)]),
    "cross_middle": (lambda lib, x, y: lib.cross(x, y, dim=1), [(5, 3, 4), (5, 3, 4)]),
    "masked_scatter": (
        lambda lib, x, y: x.masked_scatter(lib.from_numpy(MASK), y),
        [(4, 6), (30,)],
    ),
    "interpolate_long": (
        lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2, mode="linear"),
        [(2, 3, 200)],
    ),
}


def both(torch, function: Callable, *arrays: np.ndarray) -> None:
    """Compare a function's result, its strides, and the gradients of the arrays."""
    found = []
    for lib in (torch, m):
        tensors = [lib.tensor(array, requires_grad=True) for array in arrays]
        result = function(lib, *tensors)
        (result * result).sum().backward()
        gradients = [0 * t.detach() if t.grad is None else t.grad for t in tensors]
        found.append([result.stride(), result.detach().numpy(), *[g.numpy() for g in gradients]])
    for right, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_values_strides_and_gradients(torch, name):
    function, shapes = CASES[name]
    both(torch, function, *[RNG.standard_normal(shape) for shape in shapes])


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    "mode, dims", [("bilinear", 2), ("bilinear", 3), ("nearest", 2), ("nearest", 3), ("bicubic", 2)]
)
def test_grid_sample(torch, mode, dims, padding, align):
    def sample(lib, x, grid):
        return lib.nn.functional.grid_sample(x, grid, mode, padding, align)

    x, grid = RNG.standard_normal((2, 3, 5, 4, 6)[: 2 + dims]), RNG.random((2, 3, 7, 2)[: 1 + dims])
    grid = np.stack([grid * 3 - 1.5] * dims, -1) * np.linspace(0.7, 1, dims)
    both(torch, sample, x, grid)


@pytest.mark.parametrize("shape, out", [((2, 3, 9, 10), (4, 3)), ((3, 7, 5), (3, 5))])
def test_adaptive_maxima_of_equal_elements(torch, shape, out):
    x, places = RNG.integers(0, 4, shape).astype(float), []

    def pooled(lib, x):
        values, found = lib.nn.functional.adaptive_max_pool2d(x, out, return_indices=True)
        places.append(found.numpy())
        return values

    both(torch, pooled, x)
    np.testing.assert_array_equal(*places)
    both(torch, lambda lib, x: lib.nn.functional.adaptive_max_pool2d(x, out), x)


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_positions_of_scatter_reduce(dtype, reduce):
    x = m.full((3, 300), 2)
    index = m.from_numpy(np.array([[7, 250], [250, 7], [1, 1]], dtype))
    found = x.scatter_reduce(1, index, m.full((3, 2), 5), reduce).numpy()
    expected = np.full((3, 300), 2)
    np.maximum.at(expected, (np.arange(3)[:, None], index.numpy()), {"amax": 5}.get(reduce, 2))
    if reduce == "prod":
        expected[[0, 0, 1, 1], [7, 250, 250, 7]], expected[2, 1] = 10, 50
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, False])
def test_zeros_of_either_sign_fill_arrays_of_any_layout(zero):
    sign = np.signbit(np.float32(zero))
    for view in (lambda x: x, lambda x: x.t(), lambda x: x[:, 1:], lambda x: x[3:]):
        x = m.ones(100, 101)
        view(x).fill_(zero)
        filled = view(x).numpy()
        assert not filled.any()
        assert (np.signbit(filled) == sign).all()
        assert x.numpy().sum() == x.numel() - filled.size
    for again in (zero, -zero) * 3:  # a remembered launch is not that of the other sign
        padded = m.nn.functional.pad(m.ones(2), (1, 1), value=again).numpy()
        sign = np.signbit(np.float32(again))
        assert np.signbit(padded).tolist() == [sign, False, False, sign]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_lerp_at_infinite_and_equal_ends_as_torch(dtype, torch):
    """Weights from a half on count from the end: 1 gives the end itself."""
    ends = [1.0, -2.5, 0.1, 1e30, np.inf, -np.inf, np.nan, 3.3e-5]
    for w in (0.0, 0.2, 0.49, 0.5, 0.7, 1.0, 1.5, -0.6):
        found = []
        for lib in (m, torch):
            a, b = lib.meshgrid(*[lib.tensor(ends, dtype=getattr(lib, dtype))] * 2, indexing="ij")
            weight = lib.full_like(a, w)
            parts = [lib.lerp(a, b, w), lib.lerp(a, b, weight), a.clone().lerp_(b, weight)]
            found.append([p.to(lib.float64).numpy() for p in parts])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, 1e-6 if dtype != "bfloat16" else 1e-2)
            if w == 1 and dtype != "bfloat16":
                finite = np.isfinite(theirs)
                np.testing.assert_array_equal(mine[finite], theirs[finite])


def test_the_gradient_of_roll_copies_once():
    x = m.randn(5, 7, requires_grad=True)
    with kernels.trace() as trace:
        x.roll(3, 1).backward(m.ones(5, 7))
    assert {name for name, _ in trace.rows} == {"pointwise.copy"}  # no sum of two parts


def test_the_gradient_of_dot_multiplies_element_by_element():
    x, y = (m.randn(50, requires_grad=True) for _ in range(2))
    z = x.dot(y)
    with kernels.trace() as trace:
        z.backward(m.tensor(0.5))
    assert "matmul" not in {name for name, _ in trace.rows}
    np.testing.assert_array_equal(x.grad, y.detach().numpy() / 2)
    np.testing.assert_array_equal(y.grad, x.detach().numpy() / 2)


@pytest.mark.parametrize(
    "function",
    (
        lambda x: x.repeat(2, 3),
        lambda x: x.tile(3),
        lambda x: m.nn.functional.interpolate(x[None], scale_factor=2),
    ),
)
def test_repeated_elements_are_copied_once(function):
    x = m.randn(40, 50)
    with kernels.trace() as trace:
        y = function(x)
    assert "pointwise.copy" not in {name for name, version in trace.rows if version == "contiguous"}
    assert not y._is_view() and y.is_contiguous()
    before = x.clone()
    y.zero_()
    assert x.equal(before)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (4, 1, 40), (0, 3), (2, 3, 33)])
def test_repeated_elements_and_their_gradients(shape, rng):
    array = rng.standard_normal(shape)
    x = m.tensor(array, requires_grad=True)
    counts = (2, *rng.integers(1, 4, len(shape)).tolist())
    pairs = [(x.repeat(counts), np.tile(array, counts)), (x.tile(3), np.tile(array, 3))]
    pairs.append((x.T.repeat(2, *[1] * len(shape)), np.tile(array.T, (2, *[1] * len(shape)))))
    pairs += [(x.repeat_interleave(3), array.repeat(3))]
    pairs += [(x.repeat_interleave(3, dim), array.repeat(3, dim)) for dim in range(-len(shape), 0)]
    for found, expected in pairs:
        np.testing.assert_array_equal(found.detach(), expected)
        g = rng.standard_normal(expected.shape)
        (slope,) = m.autograd.grad(found, x, m.tensor(g), retain_graph=True)
        (recorded,) = m.autograd.grad(found, x, m.tensor(g), create_graph=True)
        np.testing.assert_allclose(slope, recorded.detach(), rtol=1e-12, atol=1e-12)
        # Of a linear function f, the product of x and the gradient is that of f(x) and g.
        np.testing.assert_allclose((slope.numpy() * array).sum(), (expected * g).sum(), 1e-9, 1e-9)


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_gradients_of_deviations(dim, keepdim, rng, reference_backend):
    x = m.tensor(rng.standard_normal((4, 3)), requires_grad=True)
    for function in (m.std, m.var):
        call = functools.partial(function, dim=dim, keepdim=keepdim)
        assert m.autograd.gradcheck(call, [x]) and m.autograd.gradgradcheck(call, [x])
    alike = m.ones(4, 3, dtype=m.float64, requires_grad=True)
    (slope,) = m.autograd.grad(alike.std(dim, keepdim=keepdim).sum(), alike, create_graph=True)
    assert not slope.any()
    (second,) = m.autograd.grad(slope.sum(), alike)
    assert not second.any()
    factor = alike.sum(dim, keepdim=keepdim)  # which the slope of a product with std depends on
    product = (alike.std(dim, keepdim=keepdim) * factor).sum()
    (slope,) = m.autograd.grad(product, alike, create_graph=True)
    (second,) = m.autograd.grad(slope.square().sum(), alike)
    assert not slope.any() and not second.any()


def test_combinations_beside_itertools():
    for n, r, again in ((5, 3, False), (2, 3, False), (3, 2, True), (0, 1, False)):
        found = m.combinations(m.arange(n), r, again)
        choose = combinations_with_replacement if again else combinations
        expected = np.array([*choose(range(n), r)]).reshape(-1, r)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_positions_of_triangles(name):
    for rows, columns, offset in product((0, 1, 4), (0, 1, 5), (-5, -1, 0, 2, 6)):
        found = getattr(m, name)(rows, columns, offset, dtype=m.int32)
        expected = getattr(np, name)(rows, offset, columns)
        np.testing.assert_array_equal(found.numpy(), np.stack(expected))
        assert found.dtype == m.int32


def test_an_equation_of_einsum_is_read_once_for_shapes(rng):
    """And calls leave what was read as it is."""
    a, b = rng.standard_normal((3, 3, 4)), rng.standard_normal((4, 5))
    for equation in ("iij,jk->ki", "iij,jk"):
        before = einsum._plan.cache_info()
        for _ in range(3):
            found = m.einsum(equation, m.from_numpy(a), m.from_numpy(b))
            np.testing.assert_allclose(found.numpy(), np.einsum(equation, a, b), rtol=1e-12)
        after = einsum._plan.cache_info()
        assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)
