"""`nn.attention.sdpa_kernel`: which way attention is computed."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad.nn import functional as F
from minigrad.nn.attention import SDPBackend, sdpa_kernel


def _way(**options):
    x = minigrad.ones(1, 2, 5, 8, requires_grad=True)
    return F.scaled_dot_product_attention(x, x, x, **options).grad_fn.name()


def test_the_backends_choose(rng):
    fused = "ScaledDotProductAttentionBackward0"
    assert _way() == fused
    assert str(SDPBackend.MATH) == f"{SDPBackend.MATH}" == "SDPBackend.MATH"
    with sdpa_kernel(SDPBackend.MATH):
        assert _way() != fused
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            assert _way() == fused
        assert _way() != fused

    @sdpa_kernel(SDPBackend.MATH)
    def attend(*qkv):
        return F.scaled_dot_product_attention(*qkv, is_causal=True)

    qkv = [minigrad.from_numpy(rng.standard_normal((2, 3, 7, 5))) for _ in range(3)]
    expected = F.scaled_dot_product_attention(*qkv, is_causal=True)
    np.testing.assert_allclose(attend(*qkv).numpy(), expected.numpy(), atol=1e-12)


def test_what_no_fused_kernel_takes():
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert _way(is_causal=True)
        for options in (
            {"dropout_p": 0.5},
            {"attn_mask": minigrad.zeros(5, 5, requires_grad=True)},
        ):
            with pytest.raises(RuntimeError, match="No available kernel"):
                _way(**options)
    assert _way(dropout_p=0.5)  # the limits have ended, after errors too


@pytest.mark.parametrize("given", [[], "math", [0.5]])
def test_wrong_backends(given):
    with pytest.raises(AssertionError, match="SDPBackend"), sdpa_kernel(given):
        pass


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": True}])
@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (2, 1, 5, 8), (2, 3, 1, 8)])
def test_heads_of_features_are_joined_by_a_view(torch, rng, options, shape):
    """A query whose heads are parts of its features gives a result that lies so, too."""
    n, heads, rows, width = shape
    x = rng.standard_normal((n, rows, 3 * heads * width))
    found = []
    for t in (minigrad, torch):
        given = {k: t.ones(rows, rows, dtype=t.bool) if k == "attn_mask" else v
                 for k, v in options.items()}  # fmt: skip
        leaf = t.from_numpy(x).requires_grad_()
        q, k, v = (p.view(n, rows, heads, width).transpose(1, 2) for p in leaf.chunk(3, dim=-1))
        y = t.nn.functional.scaled_dot_product_attention(q, k, v, **given)
        joined = y.transpose(1, 2).view(n, rows, heads * width)
        (joined**2).sum().backward()
        plain = t.nn.functional.scaled_dot_product_attention(
            q.contiguous(), k.contiguous(), v.contiguous(), **given
        )
        assert plain.is_contiguous()
        found.append((y.stride() if min(shape) > 1 else None, joined, plain, leaf.grad))
    assert found[0][0] == found[1][0]
    for mine, theirs in zip(found[0][1:], found[1][1:]):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), atol=1e-12)


def test_flags_of_the_process_like_torchs(torch):
    def program(t):
        cuda = t.backends.cuda
        names = ("flash", "math", "mem_efficient", "cudnn")

        def flags():
            return [getattr(cuda, f"{name}_sdp_enabled")() for name in names]

        found = [flags()]
        for name in names:
            getattr(cuda, f"enable_{name}_sdp")(False)
            found.append(flags())
            getattr(cuda, f"enable_{name}_sdp")(True)
        with t.nn.attention.sdpa_kernel(t.nn.attention.SDPBackend.MATH):
            found.append(flags())
        with pytest.warns(FutureWarning, match="sdp_kernel"), cuda.sdp_kernel(True, False):
            found.append(flags())
        return [*found, flags()]

    assert program(minigrad) == program(torch)


def test_flags_choose():
    cuda, fused = minigrad.backends.cuda, "ScaledDotProductAttentionBackward0"
    flags = (cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_cudnn_sdp)
    try:
        for enable in flags:
            assert _way() == fused
            enable(False)
        assert _way() != fused
        cuda.enable_math_sdp(False)
        with pytest.raises(RuntimeError, match="No available kernel"):
            _way()
    finally:
        for enable in (*flags, cuda.enable_math_sdp):
            enable(True)


def test_further_keys_may_be_vectors(torch):
    """bias_k and bias_v of shape (embed_dim,), as torch's function takes them."""
    draw = np.random.default_rng(0)
    found = []
    for t in (minigrad, torch):
        draw = np.random.default_rng(0)
        x, w, b, key, value, out = (
            t.tensor(draw.standard_normal(shape))
            for shape in ((3, 2, 4), (12, 4), 12, 4, 4, (4, 4))
        )
        parts = t.nn.functional.multi_head_attention_forward(
            *(x, x, x, 4, 2, w, b, key, value, True, 0.0, out, None)
        )
        found.append([part.numpy() for part in parts])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
