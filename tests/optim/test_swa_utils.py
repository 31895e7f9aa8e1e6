"""Averages of weights, beside torch."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest

import minigrad
from minigrad.optim import swa_utils
from tests.nn.helpers import close

pytestmark = pytest.mark.usefixtures("reference_backend")


@pytest.fixture
def torch(torch):
    importlib.import_module("torch.optim.swa_utils")  # torch.optim does not
    return torch


def network(t, state=None):
    net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.Linear(4, 2)).double()
    if state is not None:
        net.load_state_dict({k: t.tensor(v) for k, v in state.items()})
    return net


@pytest.mark.parametrize(
    "options",
    [
        lambda t: {},
        lambda t: {"use_buffers": True},
        lambda t: {"multi_avg_fn": t.optim.swa_utils.get_ema_multi_avg_fn(0.7)},
        lambda t: {"avg_fn": t.optim.swa_utils.get_ema_avg_fn(0.7), "use_buffers": True},
        lambda t: {"multi_avg_fn": t.optim.swa_utils.get_swa_multi_avg_fn()},
        lambda t: {"avg_fn": t.optim.swa_utils.get_swa_avg_fn()},
    ],
    ids=range(6),
)
def test_averaged_model_as_torch(options, rng, torch):
    start = {k: v.numpy() for k, v in network(torch).state_dict().items()}
    steps = [
        {k: v + rng.normal(size=v.shape).astype(v.dtype) for k, v in start.items()}
        for _ in range(4)
    ]
    found = []
    for t in (minigrad, torch):
        net = network(t, copy.deepcopy(start))
        average = t.optim.swa_utils.AveragedModel(net, **options(t))
        for step in steps:
            net.load_state_dict({k: t.tensor(v) for k, v in step.items()})
            average.update_parameters(net)
        found.append(average)
    mine, theirs = found[0].state_dict(), found[1].state_dict()
    assert list(mine) == list(theirs)
    for name, value in theirs.items():
        close(mine[name], value, 1e-7, name)  # torch rounds 1 / count to float32
    found[0].eval(), found[1].eval()
    x = rng.normal(size=(5, 3))
    close(found[0](minigrad.tensor(x)), found[1](torch.tensor(x)), 1e-6)


def test_update_bn_as_torch(rng, torch):
    start = {k: v.numpy() for k, v in network(torch).state_dict().items()}
    batches = [rng.normal(size=(8, 3)) for _ in range(3)]
    found = []
    for t in (minigrad, torch):
        net = network(t, copy.deepcopy(start)).eval()
        t.optim.swa_utils.update_bn([(t.tensor(x), None) for x in batches], net)
        assert not net.training and net[1].momentum == 0.1
        found.append(net)
    close(found[0][1].running_mean, found[1][1].running_mean)
    close(found[0][1].running_var, found[1][1].running_var)
    assert not np.allclose(found[0][1].running_mean, 0)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 5])
def test_swalr_as_torch(strategy, epochs, torch):
    rates = []
    for t in (minigrad, torch):
        a, b = t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.ones(2))
        optimizer = t.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.3}], lr=0.1)
        first = t.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        second = t.optim.swa_utils.SWALR(optimizer, [0.05, 0.02], epochs, strategy)
        seen = []
        for epoch in range(10):
            optimizer.step()
            (first if epoch < 2 else second).step()
            seen.append([group["lr"] for group in optimizer.param_groups])
        rates.append(seen)
    np.testing.assert_allclose(*rates, rtol=1e-12)


@pytest.mark.parametrize(
    "program",
    [
        lambda s, o, t: s.get_ema_avg_fn(1.5),
        lambda s, o, t: s.SWALR(o, 0.1, anneal_strategy="step"),
        lambda s, o, t: s.SWALR(o, 0.1, anneal_epochs=-1),
        lambda s, o, t: s.SWALR(o, [0.1, 0.2]),
        lambda s, o, t: s.AveragedModel(t.nn.Linear(1, 1), None, s.get_swa_avg_fn(), lambda *a: 0),
    ],
    ids=range(5),
)
def test_errors_as_torch(program, same_error):
    def call(t):
        program(t.optim.swa_utils, t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1), t)

    same_error(call)


def test_ema_smooths_a_noisy_trajectory(rng):
    weight = minigrad.nn.Linear(1, 1, bias=False)
    ema = swa_utils.AveragedModel(weight, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.95))
    for value in rng.normal(2, 1, size=400):
        weight.weight.data.fill_(float(value))
        ema.update_parameters(weight)
    assert abs(ema.module.weight.item() - 2) < 1  # five standard errors: sqrt(0.05 / 1.95)
