"""`autograd.forward_ad`: tangents of dual tensors, compared with torch's forward mode."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import minigrad


def program(t):
    """(primal, tangent) of results of dual tensors, and the types of errors."""
    fwd = importlib.import_module(f"{t.__name__}.autograd.forward_ad")
    rng = np.random.default_rng(3)
    p, dp, w, q, dq = (t.tensor(rng.standard_normal(n)) for n in [(3, 4)] * 2 + [(4, 5)] * 3)
    w.requires_grad_()
    found = []
    with t.no_grad(), fwd.dual_level():
        x, y = fwd.make_dual(p, dp), fwd.make_dual(q, dq)
        changed = p.clone()
        changed.mul_(x)
        x2 = fwd.make_dual(p.clone(), dp.clone())
        x2.mul_(3).add_(1)
        for result in (x, x.tanh() @ y, x.sum(0), x[1:].exp(), changed, x2, x * 0 + 1):
            found.append(fwd.unpack_dual(result))
        found.append(fwd.unpack_dual(t.nn.functional.softmax(x @ y, -1).log()))
        assert fwd.unpack_dual(p * 2).tangent is None
        assert type(fwd.unpack_dual(x)).__name__ == "UnpackedDualTensor"
    with fwd.dual_level():
        primal, tangent = fwd.unpack_dual((fwd.make_dual(p, dp) @ w).sin())
        found.append((primal, tangent))
        found.append((tangent, t.autograd.grad(tangent.square().sum(), w)[0]))
    assert fwd.unpack_dual(x * 2).tangent is None
    errors = [
        lambda: fwd.make_dual(p, dp),  # no level is open
        lambda: fwd.exit_dual_level(),
    ]
    within = [
        fwd.enter_dual_level,
        lambda: fwd.make_dual(p, dp[0]),
        lambda: fwd.make_dual(p.long(), dp),
        lambda: fwd.make_dual(p, dp.long()),
    ]
    types = [raised(call) for call in errors]
    with fwd.dual_level():
        types += [raised(call) for call in within]
    return [tuple(part.numpy(force=True) for part in pair) for pair in found], types


def raised(call):
    with pytest.raises(Exception) as error:
        call()
    return error.type


def test_like_torch(torch):
    found, types = program(minigrad)
    expected, theirs = program(torch)
    for ours, other in zip(found, expected, strict=True):
        for a, b in zip(ours, other, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, 1e-9, 1e-12)
    assert types == theirs


def test_grad_mode_is_as_before_the_level():
    from minigrad.autograd import forward_ad

    with minigrad.no_grad():
        with forward_ad.dual_level():
            assert minigrad.is_grad_enabled()
        assert not minigrad.is_grad_enabled()
