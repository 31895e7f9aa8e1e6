"""Batch normalisation and its gradient against float64."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import kernels
from kernels import reference
from kernels.launchers.plans import Plans
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
SHAPES = [
    (33, 5, 7, 9), (4, 31), (257, 33), (2, 3, 1025), (1, 2, 255), (3, 4, 1, 1), (8, 1),
    (33, 5, 7, 7), (70, 40, 2), (1, 400, 3, 4), (90, 1, 49),
]  # fmt: skip


def put_all(device, *arrays):
    return [None if a is None else put(a, device) for a in arrays]


def wide_all(*arrays):
    return [None if a is None else wide(a) for a in arrays]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_forward_and_backward(device, shape, affine, rng):
    x, g = 2 + 3 * normal(rng, shape), normal(rng, shape)
    weight = normal(rng, shape[1]) if affine else None
    bias = normal(rng, shape[1]) if affine else None
    arrays = put_all(device, x, weight, bias)
    y, mean, invstd = kernels.batch_norm(*arrays, 1e-5, backend="numba")
    expected = reference.batch_norm(*wide_all(x, weight, bias), 1e-5)
    count = x.size // shape[1]
    assert_close(mean, expected[1], 8, terms=count)
    assert_close(invstd, expected[2], 8 * expected[2], terms=count)
    assert_close(y, expected[0], 20 + 8 * expected[2].max(), terms=count)
    dx, dweight, dbias = kernels.batch_norm_backward(
        put(g, device), arrays[0], mean, invstd, arrays[1], backend="numba"
    )
    wide_stats = wide_all(g, x, mean, invstd, weight)
    expected_dx, expected_dweight, expected_dbias = reference.batch_norm_backward(*wide_stats)
    scale = 8 * np.sqrt(count)
    assert_close(dbias, expected_dbias, scale, terms=count)
    assert_close(dweight, expected_dweight, scale * (1 + wide(invstd).max()), terms=count)
    assert_close(dx, expected_dx, 20 * (1 + wide(invstd).max()) ** 2, terms=count)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.float64, (90, 5, 3, 4)), (np.float16, (33, 7)), (BFLOAT16, (90, 5, 3, 4))],
)
def test_dtypes(device, dtype, shape, rng):
    x, weight, bias = normal(rng, shape, dtype), normal(rng, shape[1], dtype), None
    arrays = put_all(device, x, weight, bias)
    y, mean, invstd = kernels.batch_norm(*arrays, 1e-5, backend="numba")
    assert y.dtype == dtype
    assert mean.dtype == invstd.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert_close(y, reference.batch_norm(*wide_all(x, weight, bias), 1e-5)[0], 30)
    dx, _, _ = kernels.batch_norm_backward(arrays[0], arrays[0], mean, invstd, arrays[1])
    assert dx.dtype == dtype
    expected = reference.batch_norm_backward(*wide_all(x, x, mean, invstd, weight))
    assert_close(dx, expected[0], 60)


def test_a_cpu_takes_small_planes_side_by_side(device, rng):
    for shape, small in (((20, 5, 7, 7), True), ((500, 5, 2), True), ((20, 5, 50), False)):
        x, vector = put(normal(rng, shape), device), put(normal(rng, 5), device)
        with kernels.trace() as trace:
            kernels.batch_norm(x, vector, vector, 1e-5, backend="numba")
            kernels.batch_norm_backward(x, x, vector, vector, vector, backend="numba")
        taken = "pointwise.batch_norm_gradient" in {family for family, _ in trace.rows}
        assert taken == (small and device == "cpu")


@pytest.mark.parametrize("shape", [(64, 3, 10, 10), (200, 3, 5, 5)])
def test_large_mean_does_not_cancel(device, shape, rng):
    x = (1e4 + normal(rng, shape)).astype(np.float32)
    _, _, invstd = kernels.batch_norm(put(x, device), None, None, 1e-5, backend="numba")
    expected = reference.batch_norm(wide(x), None, None, 1e-5)[2]
    np.testing.assert_allclose(get(invstd), expected, rtol=1e-4)


def test_apply_with_running_statistics(device, rng):
    for shape in [(50, 33, 6), (40, 35), (5, 33, 60)]:
        arrays = [normal(rng, shape), *(normal(rng, shape[1]) for _ in range(4))]
        for given in (arrays, [*arrays[:3], None, None], [*arrays[:4], None]):
            y = kernels.batch_norm_apply(*put_all(device, *given), backend="numba")
            assert_close(y, reference.batch_norm_apply(*wide_all(*given)), 50)


def test_views_and_empty(device, rng):
    x = normal(rng, (7, 5, 4)).transpose(1, 2, 0)
    on_device = put(x.base, device).transpose(1, 2, 0)
    y, _, _ = kernels.batch_norm(on_device, None, None, 1e-5, backend="numba")
    assert_close(y, reference.batch_norm(wide(x), None, None, 1e-5)[0], 30)
    empty = put(np.zeros((3, 0, 4), np.float32), device)
    y, mean, _ = kernels.batch_norm(empty, None, None, 1e-5, backend="numba")
    assert y.shape == (3, 0, 4)
    assert mean.shape == (0,)


def test_errors(device, rng):
    x = put(normal(rng, (4, 3, 5)), device)
    three, four = put(normal(rng, 3), device), put(normal(rng, 4), device)
    with pytest.raises(ValueError, match="expected 3 channels"):
        kernels.batch_norm(x, four, None, 1e-5, backend="numba")
    with pytest.raises(ValueError, match=r"expected x \(N, C, ...\)"):
        kernels.batch_norm_apply(three, three, three, None, None, backend="numba")
    with pytest.raises(TypeError, match="floating dtype"):
        kernels.batch_norm(x.astype(np.int32), None, None, 1e-5, backend="numba")
    with pytest.raises(ValueError, match="expected g like x"):
        kernels.batch_norm_backward(x[:2], x, three, three, None, backend="numba")


@pytest.mark.parametrize("shape", [(4, 3, 9, 8), (33, 5)])
def test_gradients_of_given_statistics(shape, device, rng):
    g, x = normal(rng, shape), normal(rng, shape)
    mean, weight = normal(rng, shape[1]), normal(rng, shape[1])
    invstd = rng.uniform(0.5, 2, shape[1]).astype(np.float32)
    arrays = put_all(device, g, x, mean, invstd, weight)
    found = map(get, kernels.batch_norm_backward(*arrays, backend="numba", fixed=True))
    axes, per = (0, *range(2, len(shape))), (slice(None), *[None] * (len(shape) - 2))
    wanted = (
        g * (invstd * weight)[per],
        (g * (x - mean[per]) * invstd[per]).sum(axes),
        g.sum(axes),
    )
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("shape", [(3, 6, 9, 8), (5, 12, 33), (2, 6), (7, 6, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_of_groups(shape, groups, dtype, device, rng):
    import torch

    g, x = normal(rng, shape, dtype), normal(rng, shape, dtype)
    weight = normal(rng, shape[1], dtype)
    rows = wide(x).reshape(shape[0], groups, -1)
    mean, invstd = rows.mean(2), 1 / np.sqrt(rows.var(2) + 0.1)
    arrays = [g, x, mean.astype(dtype), invstd.astype(dtype)]
    for scale in (weight, None):
        factors = np.ones_like(weight) if scale is None else scale
        leaves = [torch.tensor(wide(a), requires_grad=True) for a in (x, factors, weight)]
        y = torch.nn.functional.group_norm(leaves[0], groups, *leaves[1:], 0.1)
        wanted = torch.autograd.grad(y, leaves, torch.tensor(wide(g)))
        for backend in ("numba", "numpy"):
            where = device if backend == "numba" else "cpu"
            given = put_all(where, *arrays, scale)
            found = kernels.group_norm_backward(*given, backend=backend)
            for ours, theirs in zip(found, wanted, strict=True):
                assert ours.dtype == dtype
                assert_close(ours, theirs.numpy(), 300, terms=x.size)


@pytest.mark.parametrize("shape", [(70, 6), (3, 6, 1), (2, 6, 5)])
def test_groups_again_and_again(shape, device, rng):
    """Remembered, too; and channels of one element, which a CPU takes as rows of layer norm."""
    for weight in (normal(rng, 6), None):
        for _ in range(4):
            g, x = normal(rng, shape), normal(rng, shape)
            statistics = normal(rng, (shape[0], 2)), rng.random((shape[0], 2), np.float32)
            given = put_all(device, g, x, *statistics, weight)
            found = kernels.group_norm_backward(*given, backend="numba")
            wide_all = [None if a is None else wide(get(a)) for a in given]
            expected = reference.group_norm_backward(*wide_all)
            for ours, wanted in zip(found, expected, strict=True):
                assert ours.shape == wanted.shape
                assert_close(ours, wanted, 300, terms=x.size)


def test_groups_of_other_shapes(device, rng):
    x, per = normal(rng, (4, 6, 5), BFLOAT16), normal(rng, (4, 2))
    given = put_all(device, x, x, per, per, normal(rng, 6, BFLOAT16))
    found = kernels.group_norm_backward(*given, backend="numba")
    expected = reference.group_norm_backward(*map(wide, map(get, given)))
    assert [str(a.dtype) for a in found] == ["bfloat16", "float32", "float32"]
    assert_close(found[0], expected[0], 100)
    nothing = put(np.zeros((0, 6, 5), np.float32), device)
    none = put(np.zeros((0, 2), np.float32), device)
    dx, dweight, dbias = kernels.group_norm_backward(nothing, nothing, none, none, None)
    assert dx.shape == (0, 6, 5) and not get(dweight).any() and get(dbias).shape == (6,)
    with pytest.raises(ValueError, match="groups that divide 6"):
        kernels.group_norm_backward(
            given[0], given[1], *[put(normal(rng, (4, 4)), device)] * 2, None
        )
    with pytest.raises(ValueError, match="expected g like x"):
        kernels.group_norm_backward(given[0][:2], *given[1:])


@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_the_blocks_of_a_plane_follow_each_other(device, backend, rng, monkeypatch):
    """A CPU runs blocks in the order of x: of all planes' first blocks first, it would read memory
    in steps of a plane."""
    launchers = importlib.import_module("kernels.launchers.norm")
    launcher, grids = launchers.launcher, []

    def noted(name, version, kernel, grid, block):
        grids.append(grid)
        return launcher(name, version, kernel, grid, block)

    monkeypatch.setattr(launchers, "launcher", noted)
    monkeypatch.setattr(launchers, "_plans", Plans())
    x, g = normal(rng, (2, 3, 5003)), normal(rng, (2, 3, 5003))
    mean, invstd, weight, bias = (normal(rng, 3) for _ in range(4))
    y = kernels.batch_norm_apply(*put_all(device, x, mean, invstd, weight, bias), backend=backend)
    assert_close(y, reference.batch_norm_apply(*wide_all(x, mean, invstd, weight, bias)), 50)
    dx, _, _ = kernels.batch_norm_backward(
        *put_all(device, g, x, mean, invstd, weight), backend=backend
    )
    expected = reference.batch_norm_backward(*wide_all(g, x, mean, invstd, weight))
    assert_close(dx, expected[0], 2000)
    assert type(grids[0]) is int and type(grids[-1]) is int, grids  # of one dimension
