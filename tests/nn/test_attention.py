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
