"""Optimisers beside torch over many steps, and by their formulas."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad import backends, nn, optim
from tests.optim.helpers import SHAPES, assert_equal, parameters, set_gradients, values

CONFIGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.2}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1, "alpha": 0.9}),
    ("RMSprop", {"momentum": 0.9, "eps": 1e-3}),
    ("RMSprop", {"centered": True, "maximize": True, "lr": 0.05}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.05}),
    ("ASGD", {"lr": 0.05, "t0": 10, "weight_decay": 0.1}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.5, "d": 2, "weight_decay": 0.1, "eps": (1e-3, 0.1), "maximize": True}),
]
IDS = [f"{i}-{name}" for i, (name, _) in enumerate(CONFIGS)]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize(("name", "options"), CONFIGS, ids=IDS)
def test_trajectory_as_torch(name, options, backend, seed, torch):
    mine, theirs = parameters(minigrad, seed), parameters(torch, seed)
    with backends.use(backend):
        a, b = getattr(optim, name)(mine, **options), getattr(torch.optim, name)(theirs, **options)
        for step in range(40):
            skip = {7: (1,), 8: (1, 4), 20: (0,)}.get(step, ())  # step counts drift apart
            set_gradients(minigrad, mine, seed + step, skip)
            set_gradients(torch, theirs, seed + step, skip)
            a.step(), b.step()
            # Rounding differs and accumulates; a wrong term is off by 1e-2 after a few steps.
            assert_equal(mine, theirs, 2e-5, f"after step {step}")
    mine_state, their_state = a.state_dict()["state"], b.state_dict()["state"]
    for i, entry in their_state.items():
        if their_state[i]:
            assert set(mine_state[i]) == set(entry)
        for key, wanted in entry.items():
            got = mine_state[i][key]
            assert tuple(got.shape) == tuple(wanted.shape), key
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), CONFIGS, ids=IDS)
def test_float64_trajectory_as_torch(name, options, seed, torch):
    mine = parameters(minigrad, seed, np.float64)
    theirs = parameters(torch, seed, np.float64)
    a, b = getattr(optim, name)(mine, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(100):
        set_gradients(minigrad, mine, seed + step)
        set_gradients(torch, theirs, seed + step)
        a.step(), b.step()
    assert_equal(mine, theirs, 1e-11)


@pytest.mark.parametrize(("name", "options"), CONFIGS, ids=IDS)
def test_complex_parameters_as_torch(name, options, rng, torch):
    shapes, every = [(3, 4), (5,), ()], {"mine": minigrad, "theirs": torch}
    start = [rng.normal(size=(*shape, 2)) for shape in shapes]
    grads = [[rng.normal(size=(*shape, 2)) for shape in shapes] for _ in range(20)]
    found = {}
    for who, t in every.items():
        leaves = [t.nn.Parameter(t.view_as_complex(t.tensor(x))) for x in start]
        leaves.append(t.nn.Parameter(t.view_as_complex(t.tensor(start[0])).T))  # not contiguous
        o = getattr(t.optim, name)(leaves, **options)
        for step in grads:
            for p, g in zip(leaves, [*step, step[0]], strict=True):
                grad = t.view_as_complex(t.tensor(g))
                p.grad = grad if p.shape == grad.shape else grad.T
            if name == "Adafactor":
                with pytest.raises(RuntimeError, match="does not support complex parameters"):
                    o.step()
                break
            o.step()
        found[who] = values(leaves), o.state_dict()["state"]
    for a, b in zip(found["mine"][0], found["theirs"][0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    for i, entry in found["theirs"][1].items():
        for key, wanted in entry.items():
            if wanted is not None:
                got = found["mine"][1][i][key]
                assert str(got.dtype) == str(wanted.dtype).replace("torch", "minigrad")
                np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_options_and_state_dict_keys_as_torch(seed, torch):
    for name, options in CONFIGS:
        a = getattr(optim, name)(parameters(minigrad, seed), **options)
        b = getattr(torch.optim, name)(parameters(torch, seed), **options)
        theirs = b.state_dict()["param_groups"][0]
        got = a.state_dict()["param_groups"][0]
        assert {k: got[k] for k in theirs if k in got} == theirs, name
        assert repr(a) == repr(b)


def test_adagrad_has_its_state_from_the_beginning_as_torch(torch):
    """Also that of parameters without a gradient; what a state dict had before a step stays."""
    found = []
    for t in (minigrad, torch):
        p, q = (t.nn.Parameter(t.ones(n)) for n in (2, 3))
        optimizer = t.optim.Adagrad([p, q], lr=0.5, initial_accumulator_value=0.25)
        before = optimizer.state_dict()["state"]
        sums = [before[i]["sum"].tolist() for i in before]
        p.grad = t.ones(2)
        optimizer.step()
        steps = [entry["step"].item() for entry in optimizer.state.values()]
        found.append((sums, steps, optimizer.state[p]["sum"].tolist(), p.tolist(), list(before[0])))
    assert found[0][:3] == found[1][:3] and found[0][4] == found[1][4]
    assert found[0][3] == pytest.approx(found[1][3])


def test_checkpoints_with_integers_as_steps(torch):
    """torch wrote such ones before its version 1.12."""
    for name in ("Adam", "NAdam", "RAdam", "Rprop", "ASGD", "Adafactor"):
        found = []
        for t in (minigrad, torch):
            p = t.nn.Parameter(t.arange(6.0).reshape(2, 3))
            optimizer = getattr(t.optim, name)([p], lr=0.1)
            p.grad = t.ones(2, 3)
            optimizer.step()
            saved = optimizer.state_dict()
            saved["state"][0]["step"] = 1
            optimizer.load_state_dict(saved)
            optimizer.step()
            assert optimizer.state[p]["step"].item() == 2
            found.append(p.tolist())
        np.testing.assert_allclose(*found, rtol=1e-5)


def test_groups_with_their_own_options(seed, torch):
    optimisers = []
    for t in (minigrad, torch):
        p = parameters(t, seed)
        groups = [{"params": p[:2]}, {"params": p[2:4], "lr": 0.5}]
        o = t.optim.SGD(groups, lr=0.1, momentum=0.5)
        o.add_param_group({"params": p[4:], "momentum": 0.0})
        for step in range(10):
            set_gradients(t, p, seed + step)
            o.step()
            o.param_groups[0]["lr"] *= 0.9
        optimisers.append((p, o))
    assert_equal(optimisers[0][0], optimisers[1][0], 1e-5)
    assert [len(g["params"]) for g in optimisers[0][1].param_groups] == [2, 2, 2]


def test_sgd_formula(seed):
    (p,) = [nn.Parameter(minigrad.tensor([1.0, -2.0]))]
    o = optim.SGD([p], lr=0.5, momentum=0.9, weight_decay=0.1)
    value, buffer = np.array([1.0, -2.0]), None
    for step in range(5):
        g = np.array([step + 1.0, -1.0])
        p.grad = minigrad.tensor(g).float()
        o.step()
        d = g + 0.1 * value
        buffer = d if buffer is None else 0.9 * buffer + d
        value = value - 0.5 * buffer
        np.testing.assert_allclose(p.detach().numpy(), value, rtol=1e-5)


def test_adam_formula():
    p = nn.Parameter(minigrad.tensor([1.0, -2.0, 3.0]))
    o = optim.AdamW([p], lr=0.1, weight_decay=0.1)
    value, m, v = np.array([1.0, -2.0, 3.0]), 0.0, 0.0
    for step in range(1, 6):
        g = np.array([step, -1.0, 0.5])
        p.grad = minigrad.tensor(g).float()
        o.step()
        value = value * (1 - 0.1 * 0.1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        value = value - 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(p.detach().numpy(), value, rtol=1e-5)


def test_closure_runs_with_gradients():
    p = nn.Parameter(minigrad.tensor([4.0]))
    o = optim.SGD([p], lr=0.25)

    def closure():
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with minigrad.no_grad():
        loss = o.step(closure)
    assert loss.item() == 16 and p.item() == 2


def test_training_a_network_as_torch(rng, torch):
    with backends.use("numpy"):
        _train_both(torch, rng)


def _train_both(torch, rng):
    x, y = rng.normal(size=(32, 6)), rng.integers(0, 3, 32)
    losses, start = [], None
    for t in (minigrad, torch):
        net = t.nn.Sequential(
            t.nn.Linear(6, 8), t.nn.BatchNorm1d(8), t.nn.Tanh(), t.nn.Linear(8, 3)
        ).double()
        if start is None:
            start = {k: v.numpy().copy() for k, v in net.state_dict().items()}
        net.load_state_dict({k: t.tensor(v) for k, v in start.items()})
        o = t.optim.Adam(net.parameters(), lr=0.01)
        schedule = t.optim.lr_scheduler.CosineAnnealingLR(o, 30)
        history = []
        for _ in range(30):
            o.zero_grad()
            loss = t.nn.functional.cross_entropy(net(t.tensor(x)), t.tensor(y))
            loss.backward()
            t.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            o.step()
            schedule.step()
            history.append(loss.item())
        losses.append(history)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert losses[0][-1] < 0.9 * losses[0][0]


@pytest.mark.parametrize(
    "program",
    [
        lambda t, p: t.optim.SGD(p, lr=-1),
        lambda t, p: t.optim.SGD(p, momentum=-1),
        lambda t, p: t.optim.SGD(p, weight_decay=-1),
        lambda t, p: t.optim.SGD(p, nesterov=True),
        lambda t, p: t.optim.SGD(p, momentum=0.9, dampening=0.1, nesterov=True),
        lambda t, p: t.optim.Adam(p, lr=-1),
        lambda t, p: t.optim.Adam(p, eps=-1),
        lambda t, p: t.optim.Adam(p, betas=(1.0, 0.9)),
        lambda t, p: t.optim.Adam(p, betas=(0.9, -0.1)),
        lambda t, p: t.optim.Adam(p, weight_decay=-1),
        lambda t, p: t.optim.Adam(p, foreach=True, fused=True),
        lambda t, p: t.optim.RMSprop(p, alpha=-1),
        lambda t, p: t.optim.Adagrad(p, lr_decay=-1),
        lambda t, p: t.optim.Adadelta(p, rho=2.0),
        lambda t, p: t.optim.Adamax(p, betas=(0.9, 1.0)),
        lambda t, p: t.optim.Adafactor(p, beta2_decay=0.1),
        lambda t, p: t.optim.Adafactor(p, d=0.5),
        lambda t, p: t.optim.Adafactor(p, eps=(None, -1)),
        lambda t, p: t.optim.Muon(p),
        lambda t, p: t.optim.Muon(p[:1], momentum=-1),
        lambda t, p: t.optim.Muon(p[:1], adjust_lr_fn="none"),
        lambda t, p: t.optim.Adam(p, lr="0.1"),
        lambda t, p: t.optim.SGD([]),
        lambda t, p: t.optim.SGD([3]),
        lambda t, p: t.optim.SGD([p[0] * 2]),
        lambda t, p: t.optim.SGD([{"params": p}, {"params": p[:1]}]),
        lambda t, p: t.optim.SGD([{"params": set(p)}]),
        lambda t, p: t.optim.SGD(p).add_param_group([1]),
        lambda t, p: t.optim.SGD([("a", p[0]), p[1]]),
        lambda t, p: t.optim.SGD([{"params": p[:1]}, {"params": [("b", p[1])]}]),
        lambda t, p: t.optim.SGD([{"params": [("a", p[0])]}, {"params": p[1:]}]),
        lambda t, p: t.optim.SGD(p).load_state_dict({"state": {}, "param_groups": []}),
        lambda t, p: t.optim.SGD(p).load_state_dict(t.optim.SGD(p[:1]).state_dict()),
    ],
    ids=range(33),
)
def test_errors_as_torch(program, same_error):
    same_error(lambda t: program(t, parameters(t, 0)))


def test_a_tensor_is_not_a_list_of_parameters():
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(minigrad.zeros(2))
    with pytest.raises(NotImplementedError, match="differentiable"):
        optim.SGD([nn.Parameter(minigrad.zeros(1))], differentiable=True)


def test_shapes_cover_a_scalar():
    assert () in SHAPES and len(values(parameters(minigrad, 0))) == len(SHAPES)
