"""`nn.attention.bias`: causal masks as tensors, as torch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import minigrad
from minigrad.nn.attention import bias


@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize("size", [(2, 5), (5, 2), (3, 3)])
def test_causal_biases_as_torch(torch, rng, name, size):
    found = []
    q, k = (rng.standard_normal((1, 2, n, 4)) for n in size)
    if name == "causal_lower_right":
        q, k = q[:, :, : size[1]], k[:, :, : max(size)]  # torch has NaN for queries without keys
    for t in (minigrad, torch):
        module = importlib.import_module(f"{t.__name__}.nn.attention.bias")
        made = getattr(module, name)(q.shape[2], k.shape[2])
        assert (
            isinstance(made, t.Tensor) and made.variant.name == name.removeprefix("causal_").upper()
        )
        given = [t.from_numpy(np.ascontiguousarray(a)) for a in (q, k, k)]
        found.append((repr(made), t.nn.functional.scaled_dot_product_attention(*given, made)))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1].numpy(), found[1][1].numpy(), atol=1e-10)


def test_a_bias_has_two_lengths():
    with pytest.raises(AssertionError, match="2D"):
        bias.causal_upper_left(2, 3, 4)
    with pytest.raises(AssertionError, match="CausalVariant"):
        bias.CausalBias("upper", 2, 3)
