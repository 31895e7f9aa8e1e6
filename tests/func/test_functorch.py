"""`minigrad.functorch`: modules as functions of their parameters, as programs before torch.func
wrote them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigrad
from minigrad import functorch, nn


def _model(t, seed):
    model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.Linear(4, 2)).double()
    draw = np.random.default_rng(seed)
    with t.no_grad():
        for p in model.parameters():
            p.copy_(t.from_numpy(draw.standard_normal(tuple(p.shape))))
    return model.eval()


def _program(t, module):
    """Gradients for each sample, and an ensemble."""
    x = t.from_numpy(np.random.default_rng(3).standard_normal((5, 3)))
    f, params, buffers = module.make_functional_with_buffers(_model(t, 0))

    def loss(p, b, sample):
        return f(p, b, sample.unsqueeze(0)).pow(2).sum()

    each = module.vmap(module.grad(loss), in_dims=(None, None, 0))(params, buffers, x)
    g, own = module.make_functional(_model(t, 0)[0], disable_autograd_tracking=True)
    h, stacked, state = module.combine_state_for_ensemble([_model(t, i) for i in range(3)])
    every = module.vmap(h, in_dims=(0, 0, None))(stacked, state, x)
    flags = [p.requires_grad for p in (*params, *own, *stacked)]
    return flags, [*each, g(own, x), every, *stacked]


def test_modules_as_functions_as_torch(torch):
    import functorch as theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        flags, wanted = _program(torch, theirs)
    mine, found = _program(minigrad, functorch)
    assert mine == flags and len(found) == len(wanted)
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_the_functions_have_parameters_of_their_own():
    model = nn.Linear(2, 2)
    f, params = functorch.make_functional(model)
    before = f(params, minigrad.ones(1, 2))
    with minigrad.no_grad():
        model.weight.zero_()
    assert minigrad.equal(f(params, minigrad.ones(1, 2)), before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: functorch.make_functional(nn.BatchNorm1d(2)), "has buffers"),
        (lambda: functorch.combine_state_for_ensemble([]), "at least one"),
        (lambda: functorch.combine_state_for_ensemble([nn.ReLU(), nn.Tanh()]), "same class"),
        (lambda: functorch.combine_state_for_ensemble([nn.ReLU(), nn.ReLU().eval()]), "mode"),
    ],
)
def test_what_is_refused(wrong, message):
    with pytest.raises(RuntimeError, match=message):
        wrong()
