"""Values of images at points: both dialects beside the reference, and beside torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernels
import minigrad as m
from kernels import dispatch, reference
from kernels.launchers.grid_sample import BACKWARD, MODES, PADDING
from minigrad.autograd import gradgradcheck
from tests.kernels.helpers import BFLOAT16, DEVICES, get, normal, put

OPTIONS = list(itertools.product(MODES, PADDING, (False, True)))
SHAPES = [((2, 3, 5, 7), (3, 4)), ((1, 9, 33, 31), (31, 33)), ((3, 17, 1, 1), (1, 5))]


def points(rng, *shape: int) -> np.ndarray:
    return (rng.random((*shape, 2)) * 5 - 2.5).astype(np.float32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("mode, padding, aligned", OPTIONS)
def test_both_dialects(backend, mode, padding, aligned, device, rng):
    dialect = dispatch.dialect(backend)
    for shape, size in SHAPES:
        x, grid = normal(rng, shape), points(rng, shape[0], *size)
        want = reference.grid_sample(x, grid, mode, padding, aligned)
        got = dialect.grid_sample(put(x, device), put(grid, device), mode, padding, aligned)
        np.testing.assert_allclose(get(got), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16])
def test_other_dtypes_and_layouts(dtype, device, rng):
    x, grid = normal(rng, (2, 6, 8, 5)).astype(dtype), points(rng, 2, 4, 3).astype(dtype)
    views = x[:, ::2].transpose(0, 1, 3, 2), grid[:, :, ::-1]
    want = reference.grid_sample(*views).astype(float)
    for backend in ("numba", "cupy"):
        got = dispatch.dialect(backend).grid_sample(*[put(v, device) for v in views])
        assert got.dtype == dtype
        tolerance = 1e-9 if dtype == np.float64 else 2e-2
        np.testing.assert_allclose(get(got).astype(float), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_that_are_none_and_nothing(device, rng):
    """No number gives no number; outside nothing is read, not even a NaN."""
    x = np.full((1, 1, 2, 2), np.nan, np.float32)
    far = np.full((1, 1, 1, 2), 9, np.float32)
    for backend in ("numba", "cupy"):
        dialect = dispatch.dialect(backend)
        assert get(dialect.grid_sample(put(x, device), put(far, device))) == 0
        none = dialect.grid_sample(put(np.ones_like(x), device), put(far * np.nan, device))
        assert np.isnan(get(none)).all()
        empty = dialect.grid_sample(put(x, device), put(far[:, :0], device))
        assert empty.shape == (1, 1, 0, 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_no_number_is_the_first_place_where_nothing_is_outside(backend, device, rng):
    x, none = normal(rng, (1, 2, 3, 4)), np.full((1, 1, 1, 2), np.nan, np.float32)
    dialect = dispatch.dialect(backend)
    for mode, padding, aligned in itertools.product(MODES, PADDING[1:], (False, True)):
        options = mode, padding, aligned
        given = put(x, device), put(none, device)
        expected = reference.grid_sample(x, none, *options)
        np.testing.assert_array_equal(expected[..., 0, 0], x[..., 0, 0])
        np.testing.assert_array_equal(
            get(dialect.grid_sample(*given, *options))[..., 0, 0], x[..., 0, 0]
        )
        ones = put(np.ones((1, 2, 1, 1), np.float32), device)
        dx, dgrid = dialect.grid_sample_backward(ones, *given, *options)
        assert get(dx)[..., 0, 0].tolist() == [[1, 1]] and np.abs(get(dx)).sum() == 2
        assert not get(dgrid).any()
        assert not reference.grid_sample_backward(expected, x, none, *options)[1].any()


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_no_number_is_the_first_place_of_a_volume(backend, rng):
    x = normal(rng, (1, 2, 3, 4))
    every = itertools.product(MODES, PADDING[1:], (False, True))
    for options in every if backend == "numpy" else [("bilinear", "reflection", False)]:
        with m.backends.use(backend):
            volume = m.tensor(x).unsqueeze(2).requires_grad_()
            grid = m.full((1, 1, 1, 1, 3), np.nan, requires_grad=True)
            found = m.nn.functional.grid_sample(volume, grid, *options)
            np.testing.assert_array_equal(found.detach()[..., 0, 0, 0], x[..., 0, 0])
            assert not m.autograd.grad(found.sum(), grid)[0].any()


def test_what_does_not_fit():
    x, grid = np.ones((2, 3, 4, 5), np.float32), np.ones((2, 3, 4, 2), np.float32)
    for args in ((x, grid[:1]), (x, grid[..., :1]), (x, grid, "cubic"), (x, grid, "nearest", "no")):
        with pytest.raises(ValueError, match="grid_sample: "):
            kernels.grid_sample(*args)
    with pytest.raises(TypeError, match="one dtype"):
        kernels.grid_sample(x, grid.astype(np.float64))


@pytest.mark.parametrize("mode, padding, aligned", OPTIONS)
@pytest.mark.parametrize("device", DEVICES)
def test_values_and_gradients_are_torchs(torch, device, mode, padding, aligned, rng):
    x, grid, g = normal(rng, (2, 11, 5, 7)), points(rng, 2, 4, 6), normal(rng, (2, 11, 4, 6))
    grid[0, 0, :3] = [[-1, 1], [1, 0], [-0.6, -1]]  # on edges, of which torch leaves out slopes
    options = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    found = []
    for lib, place in ((torch, "cpu"), (m, "cuda" if device == "gpu" else "cpu")):
        image, at = (lib.tensor(a, requires_grad=True, device=place) for a in (x, grid))
        with dispatch.trace() as trace:
            y = lib.nn.functional.grid_sample(image, at, **options)
            grads = lib.autograd.grad(y, (image, at), lib.tensor(g, device=place))
        found.append([t.detach().cpu().numpy() for t in (y, *grads)])
    names = {name for name, _ in trace.rows}
    assert {"grid_sample", "grid_sample_backward"} <= names and "gather" not in names
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("mode, padding, aligned", OPTIONS)
def test_gradients_of_both_dialects(backend, mode, padding, aligned, device, rng):
    dialect = dispatch.dialect(backend)
    for shape, size in SHAPES:
        arrays = normal(rng, (*shape[:2], *size)), normal(rng, shape), points(rng, shape[0], *size)
        options, wide = (mode, padding, aligned), [a.astype(float) for a in arrays]
        wanted = reference.grid_sample_backward(*wide, *options)
        for version in (None, *BACKWARD):
            given = [put(a, device) for a in arrays]
            found = dialect.grid_sample_backward(*given, *options, version=version)
            for got, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(get(got), want, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16])
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_other_dtypes_and_of_nothing(dtype, device, rng):
    arrays = [normal(rng, (2, 3, 4, 3)), normal(rng, (2, 3, 5, 8)), points(rng, 2, 4, 3)]
    arrays = [a.astype(dtype) for a in arrays]
    wanted = reference.grid_sample_backward(*[a.astype(float) for a in arrays])
    for backend in ("numba", "cupy"):
        dialect = dispatch.dialect(backend)
        found = dialect.grid_sample_backward(*[put(a, device) for a in arrays])
        for got, want in zip(found, wanted, strict=True):
            assert got.dtype == dtype
            tolerance = 1e-9 if dtype == np.float64 else 0.1
            np.testing.assert_allclose(get(got).astype(float), want, rtol=tolerance, atol=tolerance)
        nothing = arrays[0][:, :, :0], arrays[1], arrays[2][:, :0]
        none = dialect.grid_sample_backward(*[put(a, device) for a in nothing])
        assert not get(none[0]).any() and none[1].shape == (2, 0, 3, 2)
    with pytest.raises(ValueError, match="grid_sample_backward: expected g of shape"):
        kernels.grid_sample_backward(arrays[0][:, :2], *arrays[1:])


def test_second_derivatives_of_points(rng, reference_backend):
    x = m.tensor(rng.random((2, 2, 4, 5)), requires_grad=True)
    grid = m.tensor(rng.random((2, 3, 2, 2)) * 3 - 1.5, requires_grad=True)
    for padding in PADDING:
        assert gradgradcheck(
            lambda x, grid, padding=padding: m.nn.functional.grid_sample(
                x, grid, padding_mode=padding, align_corners=False
            ),
            (x, grid),
        )


@pytest.mark.parametrize("mode, padding, aligned", [*OPTIONS, ("bicubic", "zeros", False)])
@pytest.mark.parametrize("needed", [False, True])
def test_an_infinite_element_is_not_read_by_points_outside(torch, mode, padding, aligned, needed):
    x = np.ones((1, 1, 3, 3), np.float32)
    x[0, 0, 0, 0] = np.inf
    grid = np.float32([[-3, -3], [0.9, 0.9], [1.5, 0.2], [0.4, -9]]).reshape(1, 2, 2, 2)
    options = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    sample = torch.nn.functional.grid_sample
    want = sample(torch.from_numpy(x), torch.from_numpy(grid), **options).numpy()
    image = m.tensor(x, requires_grad=needed)
    got = m.nn.functional.grid_sample(image, m.from_numpy(grid), **options).detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
