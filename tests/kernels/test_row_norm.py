"""Layer norm, RMS norm and their gradients against float64, at the lengths where versions end."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import reference
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
LENGTHS = (1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025)
slow = pytest.mark.slow


def wide_all(*arrays):
    return [wide(a) if hasattr(a, "dtype") else a for a in arrays]


NAMES = ("layer_norm", "rms_norm")


def compare(device, x, weight, bias, forward=None, backward=None, dims=1, names=NAMES):
    """Norms of x, their statistics and gradients, against the reference in float64."""
    g = normal(np.random.default_rng(5), x.shape, x.dtype)
    xd, gd, wd, bd = (None if a is None else put(a, device) for a in (x, g, weight, bias))
    n, affine = int(np.prod(x.shape[x.ndim - dims :])), weight is not None
    for name in names:
        given = (weight, bias) if name == "layer_norm" else (weight,)
        on_device = (wd, bd)[: len(given)]
        y, *stats = getattr(kernels, name)(
            xd, *on_device, 1e-5, dims, backend="numba", version=forward
        )
        expected = getattr(reference, name)(*wide_all(x, *given), 1e-5, dims)
        assert y.dtype == x.dtype and {s.dtype for s in stats} == {
            np.promote_types("f", stats[0].dtype)
        }
        for mine, oracle in zip(stats, expected[1:]):
            assert_close(mine, oracle, 8 * (1 + np.abs(oracle)), terms=n)
        assert_close(y, expected[0], 20, terms=n)
        args = (*stats, wd, dims, affine)
        grads = getattr(kernels, f"{name}_backward")(
            gd, xd, *args, backend="numba", version=backward
        )
        wanted = getattr(reference, f"{name}_backward")(
            *wide_all(g, x, *map(get, stats), weight), dims, affine
        )
        assert_close(grads[0], wanted[0], 20 * (1 + wide(stats[-1]).max(initial=0)), terms=n)
        for mine, oracle in zip(grads[1:], wanted[1:]):
            assert (mine is None) == (oracle is None)
            if mine is not None:
                assert_close(mine, oracle, 8 * np.sqrt(len(x)), terms=len(x))


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(device, n, rng):
    compare(device, 2 + 3 * normal(rng, (9, n)), normal(rng, n), normal(rng, n))


@pytest.mark.parametrize(
    ("forward", "backward", "lengths", "names"),
    [
        ("online", "block", (33, 4099), NAMES[:1]),
        ("warp", "warp", (1, 31, 32), NAMES[:1]),
        pytest.param("online", "block", LENGTHS, NAMES, marks=slow),
        pytest.param("warp", "warp", LENGTHS[:-1], NAMES, marks=slow),
    ],
)
def test_versions(device, forward, backward, lengths, names, rng):
    for n in lengths:
        x, weight, bias = 2 + 3 * normal(rng, (9, n)), normal(rng, n), normal(rng, n)
        compare(device, x, weight, bias, forward, backward, names=names)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_many_short_rows(device, dtype, rng):
    """On a CPU a thread takes each, in copies; elsewhere and otherwise laid out, the same."""
    for shape in ((64, 1), (300, 3), (9, 8, 24)):
        n = shape[-1]
        x, weight, bias = 2 + 3 * normal(rng, shape, dtype), normal(rng, n, dtype), None
        x = x.astype(dtype)
        with kernels.trace() as trace:
            compare(device, x, weight, normal(rng, n, dtype))
        taken = [
            ("layer_norm", "thread") in trace.rows,
            ("rms_norm_backward", "thread") in trace.rows,
        ]
        assert taken == [device == "cpu"] * 2
        compare(device, x.swapaxes(0, -2), None, bias)
        compare(device, x[::-1], weight, None)
    x[0, 0], x[1, 0, 3], x[2, 1, 0] = 7, np.nan, np.inf
    y = kernels.layer_norm(put(x, device), None, None, 1e-5, backend="numba")[0]
    finite = np.isfinite(x).all(-1)
    assert not get(y)[0, 0].any() and (np.isfinite(get(y)).all(-1) == finite).all()


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        (np.float16, NAMES[:1]),
        *(pytest.param(d, NAMES, marks=slow) for d in (np.float64, np.float16, BFLOAT16)),
    ],
)
def test_dtypes(device, dtype, names, rng):
    x, weight, bias = normal(rng, (5, 65), dtype), normal(rng, 65, dtype), normal(rng, 65, dtype)
    compare(device, x, weight, bias, names=names)


def test_float32_parameters_of_a_16_bit_input(device, rng):
    x, weight = normal(rng, (5, 33), np.float16), normal(rng, 33)
    y, _ = kernels.rms_norm(put(x, device), put(weight, device), 1e-5, backend="numba")
    assert y.dtype == np.float16
    assert_close(y, reference.rms_norm(*wide_all(x, weight), 1e-5)[0], 20)


def test_dimensions_and_views(device, rng):
    x = normal(rng, (7, 5, 4)).transpose(1, 0, 2)
    compare(device, x, normal(rng, (7, 4)), normal(rng, (7, 4)), dims=2)


def test_empty(device):
    for shape, dims in (((0, 5), 1), ((3, 0), 1), ((2, 0, 4), 2)):
        x = put(np.zeros(shape, np.float32), device)
        weight = put(np.ones(shape[-dims:], np.float32), device)
        y, mean, invstd = kernels.layer_norm(x, weight, weight, 1e-5, dims, backend="numba")
        assert y.shape == shape and mean.shape == invstd.shape == shape[: len(shape) - dims]
        grads = kernels.layer_norm_backward(x, x, mean, invstd, weight, dims, backend="numba")
        assert [a.shape for a in grads] == [shape, weight.shape, weight.shape]
        assert not get(grads[1]).any()


def test_large_mean_does_not_cancel(device, rng):
    x, one = (1e4 + normal(rng, (6, 300))).astype(np.float32), np.ones(300, np.float32)
    expected = reference.layer_norm(wide(x), None, None, 1e-5)[2]
    for version in ("online", "one_read"):
        *_, invstd = kernels.layer_norm(
            put(x, device),
            put(one, device),
            put(one, device),
            1e-5,
            backend="numba",
            version=version,
        )
        np.testing.assert_allclose(get(invstd), expected, rtol=1e-4)


def test_errors(device, rng):
    x, three = put(normal(rng, (4, 5)), device), put(normal(rng, 3), device)
    with pytest.raises(ValueError, match=r"expected weight and bias of shape \(5,\), got \(3,\)"):
        kernels.layer_norm(x, three, None, 1e-5, backend="numba")
    with pytest.raises(TypeError, match="floating dtype"):
        kernels.rms_norm(x.astype(np.int32), None, 1e-5, backend="numba")
    with pytest.raises(TypeError, match="of one dtype, float32, got float64"):
        kernels.rms_norm(x, x[0].astype(np.float64), 1e-5, backend="numba")
    with pytest.raises(ValueError, match="expected 1 to 2 dimensions"):
        kernels.rms_norm(x, None, 1e-5, 3, backend="numba")
    with pytest.raises(ValueError, match="expected g like x"):
        kernels.rms_norm_backward(x[:2], x, x[:, 0], None, backend="numba")
    with pytest.raises(ValueError, match=r"expected statistics of shape \(4,\), got \(3,\)"):
        kernels.rms_norm_backward(x, x, three, None, backend="numba")
    with pytest.raises(ValueError, match="takes rows of up to 1024"):
        row = put(np.zeros((1, 1025), np.float32), device)
        kernels.rms_norm(row, None, 1e-5, backend="numba", version="warp")
