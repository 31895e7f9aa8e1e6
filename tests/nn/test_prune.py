"""Pruning: the masks, values and errors of torch."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minigrad
from minigrad import nn

pytestmark = pytest.mark.usefixtures("reference_backend")


def _net(t, rng):
    net = t.nn.Sequential(
        t.nn.Conv2d(1, 4, 3), t.nn.Flatten(), t.nn.Linear(4, 6), t.nn.Linear(6, 2)
    )
    with t.no_grad():
        for p in net.parameters():
            p.copy_(t.tensor(rng.standard_normal(tuple(p.shape)), dtype=t.float32))
    return net


def _chain(t, prune, net):
    layer = net[2]
    prune.l1_unstructured(layer, name="weight", amount=0.3)
    yield layer.weight
    prune.l1_unstructured(layer, "bias", amount=3)
    prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
    prune.ln_structured(net[0], "weight", 1, n=1, dim=-1)
    yield layer.weight_mask
    yield [type(h).__name__ for h in layer._forward_pre_hooks.values()]
    net(t.ones(2, 1, 3, 3)).sum().backward()
    yield layer.weight_orig.grad
    yield list(net.state_dict()), prune.is_pruned(net), prune.is_pruned(net[3])
    prune.remove(layer, "weight")
    yield layer.weight.data, list(layer._parameters), list(layer._buffers)


def _whole(t, prune, net):
    pairs = [(net[2], "weight"), (net[3], "weight")]
    prune.l1_unstructured(net[3], "weight", 2)
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=0.4)
    yield net[2].weight_mask, net[3].weight_mask
    prune.custom_from_mask(net[2], "bias", mask=t.tensor([1, 0, 1, 0, 1, 0]))
    prune.identity(net[3], "bias")
    yield net[2].bias, net[3].bias_mask
    scores = t.arange(12.0).view(2, 6)
    yield prune.l1_unstructured(net[3], "weight", 3, importance_scores=scores).weight_mask
    yield prune.L1Unstructured(0.5).prune(t.tensor([1.0, -3.0, 2.0, 0.5]))


def _random(t, prune, net):
    prune.random_unstructured(net[2], "weight", amount=4)
    prune.random_structured(net[0], "weight", amount=1, dim=0)
    yield net[2].weight_mask.sum(), net[0].weight_mask.sum((1, 2, 3)).sort()[0]


def _own(t, prune, net):
    class Even(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, tensor, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    Even.apply(net[2], "bias")
    optimiser = t.optim.SGD(net.parameters(), 0.1)
    net(t.ones(1, 1, 3, 3)).sum().backward()
    optimiser.step()
    net(t.ones(1, 1, 3, 3))
    yield net[2].bias, net[2].bias_orig


def _errors(t, prune, net):
    for program in (
        lambda: prune.remove(net[2], "weight"),
        lambda: prune.l1_unstructured(net[2], "weight", amount=1.5),
        lambda: prune.l1_unstructured(net[2], "weight", amount=-1),
        lambda: prune.l1_unstructured(net[2], "weight", amount="a"),
        lambda: prune.l1_unstructured(net[2], "weight", amount=100),
        lambda: prune.l1_unstructured(net[2], "foo", amount=1),
        lambda: prune.ln_structured(net[2], "bias", 1, 2, 0),
        lambda: prune.ln_structured(net[2], "weight", 1, 2, 5),
        lambda: prune.BasePruningMethod(),
    ):
        try:
            program()
        except Exception as error:
            yield type(error).__name__


@pytest.mark.parametrize("program", [_chain, _whole, _random, _own, _errors])
def test_as_torch(program, seed, torch):
    import torch.nn.utils.prune as theirs

    results = []
    for t, prune in ((minigrad, nn.utils.prune), (torch, theirs)):
        net = _net(t, np.random.default_rng(seed))
        plain = [r if isinstance(r, tuple | list) else (r,) for r in program(t, prune, net)]
        results.append(
            [[x.detach().numpy() if hasattr(x, "detach") else x for x in row] for row in plain]
        )
    for ours, torchs in zip(*results, strict=True):
        for a, b in zip(ours, torchs, strict=True):
            np.testing.assert_equal(a, b) if isinstance(b, str | bool | list) else (
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            )


def test_copies_are_pruned():
    net = nn.Linear(3, 3)
    with minigrad.no_grad():
        nn.utils.prune.l1_unstructured(net, "weight", 4)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert nn.utils.prune.is_pruned(other) and (other.weight == 0).sum() == 4
        nn.utils.prune.remove(other, "weight")
        assert sorted(other.state_dict()) == ["bias", "weight"]
