"""Attention of 16-bit elements on tensor cores: lengths around the tiles, masks, grouped heads,
rows of any width, keys split over blocks; and when it is taken."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import kernels
from kernels import lab, reference
from kernels.lab.gpu_model import resources
from kernels.launchers.plans import Plans
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, normal, put, wide
from tests.kernels.test_attention import biased

F16 = np.dtype(np.float16)
launchers = importlib.import_module("kernels.launchers.attention")
tiles = importlib.import_module("kernels.launchers.attention_tiles")


def compare(device, rng, lengths, width=16, mask=None, dtype=F16, heads=(2, 2), less=0, **how):
    """Result, log-sum-exp and gradients against float64; values have `less` elements fewer."""
    (queries, keys), (h, shared), more = lengths, heads, width - less
    shapes = (1, h, queries, width), (1, shared, keys, width), (1, shared, keys, more)
    q, k, v, g = (normal(rng, s, dtype) for s in (*shapes, (1, h, queries, more)))
    qd, kd, vd, gd, md = [None if a is None else put(a, device) for a in (q, k, v, g, mask)]
    which = {"backend": "cupy", "version": "mma_sync"}
    out, lse = kernels.attention(qd, kd, vd, md, **which, **how)
    exact = [None if a is None else a if a.dtype == bool else wide(a) for a in (q, k, v, mask)]
    expected, expected_lse = reference.attention(*exact, **how)
    assert out.dtype == dtype and lse.dtype == np.float32
    seen = np.isfinite(expected_lse)
    assert np.array_equal(np.isinf(get(lse)), ~seen)
    assert_close(get(lse)[seen], expected_lse[seen], 9)
    assert_close(out, expected, 3)
    assert not get(out)[~seen].any()
    grads = kernels.attention_backward(gd, qd, kd, vd, out, lse, md, **which, **how)
    given = wide(g), *exact[:3], wide(out), wide(lse), exact[3]
    for mine, oracle in zip(grads, reference.attention_backward(*given, **how)):
        assert mine.dtype == dtype
        assert_close(mine, oracle, np.abs(oracle).max() + width**0.5)


LENGTHS = ((1, 1), (31, 33), (64, 64), (63, 129), (129, 63))


@pytest.mark.few_on_gpu("causal", True)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_cuda_c(device, causal, rng, monkeypatch):
    for order in ("forward", "reversed"):
        monkeypatch.setenv("MINIGRAD_THREAD_ORDER", order)
        for lengths in LENGTHS:
            compare(device, rng, lengths, mask=biased(rng, lengths), causal=causal)
    if causal:
        compare(device, rng, (40, 70), dtype=BFLOAT16, causal=causal)


@pytest.mark.few_on_gpu("width", 24)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width, less", [
    (24, 3), (128, 8), *(pytest.param(n, 0, marks=pytest.mark.slow) for n in (5, 64, 100)),
])  # fmt: skip
def test_widths_cuda_c(device, width, less, rng):
    """Rows that are multiples of 16 bytes (`cp.async`) and others; rows of odd lengths."""
    compare(device, rng, (70, 75), width, less=less, causal=True)


@pytest.mark.parametrize("device", DEVICES)
def test_masks_of_grouped_heads_cuda_c(device, rng):
    for shape in ((1, 4, 31, 33), (1, 4, 1, 1), (33,)):
        compare(device, rng, (31, 33), mask=normal(rng, shape), heads=(4, 2))
    compare(device, rng, (31, 33), mask=biased(rng, (31, 33)) > -1, heads=(6, 2), scale=0.3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_keys_in_parts_cuda_c(device, causal, rng, monkeypatch):
    """Parts of one tile; with `causal` the last of them have no key for any query."""
    monkeypatch.setattr(launchers, "_plans", Plans())
    monkeypatch.setattr(tiles, "LEAST_KEYS", 1)
    for lengths in ((1, 300), (70, 200)):
        compare(device, rng, lengths, mask=biased(rng, lengths), causal=causal)


def planned(queries, keys, width=64, dtype=F16) -> str:
    """The version, as on a GPU, where nothing is launched."""
    q, k = np.ones((1, 1, queries, width), dtype), np.ones((1, 1, keys, width), dtype)
    with resources.noting() as rows:
        kernels.attention(q, k, k, backend="cupy")
        kernels.attention_backward(q, q, k, k, q, q[..., 0].astype(np.float32), backend="cupy")
    versions = {v for operation, v in rows if operation.startswith("attention")}
    assert len(versions) == 1
    return versions.pop()


def test_the_version_that_ships(monkeypatch):
    assert planned(33, 65) == planned(33, 65, 128) == planned(33, 65, dtype=BFLOAT16) == "mma_sync"
    assert planned(33, 65, dtype=np.float32) == "tiled"
    assert planned(33, 65, 136) != "mma_sync"
    with resources.noting() as rows, monkeypatch.context() as patch:
        patch.setattr(launchers, "compute_capability", lambda a: (7, 5))
        q = np.ones((1, 1, 33, 64), F16)
        kernels.attention(q, q, q, backend="cupy")
        assert [version for _, version in rows] == ["tiled"]
        with pytest.raises(ValueError, match=r"'mma_sync' needs compute capability 8.0, .* 7.5"):
            kernels.attention(q, q, q, backend="cupy", version="mma_sync")


def test_errors_cuda_c():
    q = np.ones((1, 1, 4, 136), F16)
    with pytest.raises(ValueError, match="takes heads of at most 128 elements, not 136"):
        kernels.attention(q, q, q, backend="cupy", version="mma_sync")
    q = q[..., :16].astype(np.float32)
    with pytest.raises(ValueError, match="'mma_sync' takes float16 and bfloat16, not float32"):
        kernels.attention(q, q, q, backend="cupy", version="mma_sync")
    with pytest.raises(
        ValueError,
        match=r"expected a version among \('three_step', 'tiled', 'split', 'triangular'\)",
    ):
        kernels.attention(q, q, q, backend="numba", version="mma_sync")


def test_no_races_cuda_c(rng):
    q, k = normal(rng, (1, 1, 70, 16), F16), normal(rng, (1, 1, 140, 16), F16)
    how = {"backend": "cupy", "version": "mma_sync"}
    with lab.profiled() as launches:
        out, lse = kernels.attention(q, k, k, **how)
        kernels.attention_backward(out, q, k, k, out, lse, **how)
    reports = [launch.report for launch in launches if launch.version == "mma_sync"]
    assert len(reports) == 4
    assert not any(report.races or report.errors for report in reports)
