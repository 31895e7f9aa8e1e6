"""Attention and its gradients against float64, at lengths around the tiles."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import reference
from kernels.launchers.attention import TRIANGULAR
from kernels.launchers.attention import VERSIONS as OF_BOTH
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
slow = pytest.mark.slow
VERSIONS = (*OF_BOTH, *TRIANGULAR)
LENGTHS = ((1, 1), (31, 33), (32, 1), (33, 64), (63, 65), (65, 63), (127, 129))


def wide_all(*arrays):
    return [wide(a) if hasattr(a, "dtype") and a.dtype != bool else a for a in arrays]


def compare(device, rng, lengths, mask=None, dtype=np.float32, version=None, heads=(2, 2), **how):
    """Result, log-sum-exp and gradients against the reference in float64."""
    (queries, keys), (h, shared), width = lengths, heads, how.pop("width", 16)
    shapes = (2, h, queries, width), (2, shared, keys, width), (2, shared, keys, width - 5)
    q, k, v = (normal(rng, shape, dtype) for shape in shapes)
    g = normal(rng, (2, h, queries, width - 5), dtype)
    on_device = [None if a is None else put(a, device) for a in (q, k, v, g, mask)]
    qd, kd, vd, gd, md = on_device
    out, lse = kernels.attention(qd, kd, vd, md, backend="numba", version=version, **how)
    expected, expected_lse = reference.attention(*wide_all(q, k, v, mask), **how)
    assert out.dtype == dtype
    assert lse.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert np.array_equal(np.isinf(get(lse)), np.isinf(expected_lse))
    seen = np.isfinite(expected_lse)
    assert_close(get(lse)[seen], expected_lse[seen], 9)
    assert_close(out, expected, 9)
    assert not get(out)[~seen].any()
    given = (gd, qd, kd, vd, out, lse, md)
    grads = kernels.attention_backward(*given, backend="numba", version=version, **how)
    wanted = reference.attention_backward(*wide_all(g, q, k, v, get(out), get(lse), mask), **how)
    for mine, oracle in zip(grads, wanted):
        assert_close(mine, oracle, 30, terms=queries)


def biased(rng, lengths):
    """A mask of numbers to add, of which some queries see nothing."""
    mask = np.where(rng.random(lengths) < 0.4, -np.inf, normal(rng, lengths))
    mask[lengths[0] // 2] = -np.inf
    return mask.astype(np.float32)


@pytest.mark.few_on_gpu("causal", True)  # two to three kernels each, of seconds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(device, version, causal, rng):
    for lengths in LENGTHS:
        compare(device, rng, lengths, biased(rng, lengths), version=version, causal=causal)


@pytest.mark.parametrize("version", ["three_step", pytest.param("tiled", marks=slow)])
@pytest.mark.parametrize("kind", ["none", "keep"])
def test_masks(device, version, kind, rng):
    for lengths in LENGTHS[1:5]:
        mask = None if kind == "none" else biased(rng, lengths) > -1
        compare(device, rng, lengths, mask, version=version, causal=kind == "none", scale=0.3)


@pytest.mark.parametrize("shape", [(2, 1, 1, 33), (1, 4, 31, 33), (2, 4, 1, 1), (4, 1, 33), (33,)])
def test_broadcast_masks_of_grouped_heads(device, shape, rng):
    mask = normal(rng, shape)
    compare(device, rng, (31, 33), mask, version="three_step", heads=(4, 2))
    compare(device, rng, (31, 33), mask, version="tiled", heads=(4, 2))


@slow
@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16])
@pytest.mark.parametrize("version", VERSIONS)
def test_dtypes(device, version, dtype, rng):
    compare(device, rng, (33, 65), None, dtype, version)


@pytest.mark.parametrize("width", [pytest.param(w, marks=slow) for w in (32, 40, 64, 96, 128)])
def test_widths(device, width, rng):
    for version in VERSIONS:
        compare(device, rng, (33, 65), None, version=version, width=width, causal=True)


@pytest.mark.parametrize("lengths", [(33, 65), (65, 33)])
def test_triangular_products(device, lengths, rng):
    """Wide and narrow heads, 16-bit floats, and heads that share keys, which skip nothing."""
    compare(device, rng, lengths, None, version="triangular", width=40, causal=True)
    compare(device, rng, lengths, None, np.float16, "triangular", width=8, causal=True)
    compare(device, rng, lengths, None, version="triangular", heads=(4, 2), causal=True)


def test_skipped_tiles_are_not_read(device, rng):
    """What queries of other tiles would make NaN of the sums."""
    q, k, v, g = (normal(rng, (1, 1, 64, 16)) for _ in range(4))
    k[:, :, 32:], v[:, :, 32:] = np.nan, np.nan
    q, k, v, g = (put(a, device) for a in (q, k, v, g))
    how = {"causal": True, "version": "triangular", "backend": "numba"}
    out, lse = kernels.attention(q, k, v, **how)
    assert np.isfinite(get(out)[:, :, :32]).all()
    dq, *_ = kernels.attention_backward(g, q, k, v, out, lse, **how)
    assert np.isfinite(get(dq)[:, :, :32]).all()


def test_causal_attention_on_the_cpu_skips_tiles(device, rng):
    q = put(normal(rng, (1, 2, 40, 16)), device)
    for causal in (False, True):
        with kernels.trace() as trace:
            out, lse = kernels.attention(q, q, q, None, causal, backend="numba")
            kernels.attention_backward(out, q, q, q, out, lse, None, causal, backend="numba")
        skipped = [version for _, version in trace.rows if version == "triangular"]
        assert bool(skipped) == (causal and isinstance(q, np.ndarray))
        assert "matmul" not in dict(trace.rows) or not skipped


def test_heads_of_no_elements(device, rng):
    q, v = put(np.zeros((2, 1, 5, 0), np.float32), device), put(normal(rng, (2, 1, 5, 3)), device)
    for causal in (False, True):
        out, lse = kernels.attention(q, q, v, None, causal, backend="numba")
        if not causal:
            assert_close(out, np.broadcast_to(get(v).mean(2, keepdims=True), out.shape), 9)
        grads = kernels.attention_backward(out, q, q, v, out, lse, None, causal, backend="numba")
        assert [d.shape for d in grads] == [q.shape, q.shape, v.shape]


def test_wide_heads_are_taken_in_three_steps(device, rng):
    compare(device, rng, (9, 33), None, width=300)
    with pytest.raises(ValueError, match="no tile for heads of 4000 elements of float32"):
        q = put(np.zeros((1, 1, 2, 4000), np.float32), device)
        kernels.attention(q, q, q, backend="numba", version="tiled")


def test_halves_are_summed_in_float32(device, rng):
    compare(device, rng, (33, 65), None, np.float16, "three_step", heads=(4, 2))


def test_empty(device):
    q, k = np.zeros((2, 3, 5, 4), np.float32), np.zeros((2, 3, 0, 4), np.float32)
    for a, b in ((q, k), (k, q), (q[:0], q[:0])):
        a, b = put(a.copy(), device), put(b.copy(), device)
        out, lse = kernels.attention(a, b, b, backend="numba")
        assert out.shape == a.shape and lse.shape == a.shape[:3]
        assert not get(out).any() and np.isinf(get(lse)).all()
        grads = kernels.attention_backward(out, a, b, b, out, lse, backend="numba")
        assert [d.shape for d in grads] == [a.shape, b.shape, b.shape]
        assert not any(get(d).any() for d in grads)


def test_large_scores_do_not_overflow(device, rng):
    q = put(1e3 * normal(rng, (1, 1, 5, 16)), device)
    for version in VERSIONS:
        mask = put(np.zeros((5, 5), np.float32), device)
        out, _ = kernels.attention(q, q, q, mask, backend="numba", version=version)
        np.testing.assert_allclose(get(out), get(q), rtol=1e-5)


def test_errors(device, rng):
    q, k = (put(normal(rng, (2, 4, n, 8)), device) for n in (5, 7))

    def wrong(match, *args, error=ValueError):
        with pytest.raises(error, match=match):
            kernels.attention(*args, backend="numba")

    wrong(r"expected q \(N, H, L, E\)", q[0], k, k)
    wrong("do not fit", q, k, k[:, :, :3])
    wrong("do not fit", q, k[..., :3], k)
    wrong("the 3 heads of k and v must divide the 4 of q", q, k[:, :3], k[:, :3])
    wrong(r"a mask \(5, 6\) does not broadcast", q, k, k, put(np.zeros((5, 6), np.float32), device))
    wrong(
        "expected a mask of bool, float32",
        q, k, k, put(np.zeros((5, 7), np.int32), device), error=TypeError,
    )  # fmt: skip
    wrong("floating dtype", *(a.astype(np.int32) for a in (q, k, k)), error=TypeError)
    out, lse = kernels.attention(q, k, k, backend="numba")
    with pytest.raises(ValueError, match=r"expected g and out \(2, 4, 5, 8\)"):
        kernels.attention_backward(out[:1], q, k, k, out, lse, backend="numba")
