"""`utils.swap_tensors`: two tensors exchange what they are."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import minigrad


def program(t):
    layer, other = t.nn.Linear(3, 2), t.arange(6.0)
    parameter, values = layer.weight, layer.weight.detach().numpy().copy()
    parameter.note = "first"
    parameter.grad = t.ones(2, 3)
    t.utils.swap_tensors(parameter, other)
    assert layer.weight is parameter and type(parameter) is t.Tensor
    assert isinstance(other, t.nn.Parameter) and other.note == "first"
    assert not hasattr(parameter, "note")
    assert other.requires_grad and not parameter.requires_grad
    np.testing.assert_array_equal(other.detach().numpy(), values)
    kept = weakref.ref(other)
    with pytest.raises(RuntimeError, match="weakref"):
        t.utils.swap_tensors(parameter, other)
    assert kept() is other
    return parameter.numpy().tolist(), other.grad.numpy().tolist()


def test_like_torch(torch):
    assert program(minigrad) == program(torch)
