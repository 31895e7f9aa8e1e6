"""Schedules: equal to torch's, number by number, and by their formulas."""

from __future__ import annotations

import math
import warnings

import pytest

import minigrad
from minigrad import nn, optim
from minigrad.optim import lr_scheduler

SCHEDULES = [
    ("StepLR", {"step_size": 3}),
    ("StepLR", {"step_size": 4, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9]}),
    ("ConstantLR", {}),
    ("LinearLR", {"total_iters": 7, "end_factor": 0.9}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 31}),
    (
        "OneCycleLR",
        {
            "max_lr": [1.0, 2.0],
            "epochs": 4,
            "steps_per_epoch": 8,
            "three_phase": True,
            "anneal_strategy": "linear",
            "pct_start": 0.25,
        },
    ),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": [1.0, 2.0], "step_size_up": 4}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3, "mode": "triangular2"}),
    (
        "CyclicLR",
        {
            "base_lr": [0.1, 0.2],
            "max_lr": 1.0,
            "step_size_up": 3,
            "step_size_down": 5,
            "mode": "exp_range",
            "gamma": 0.9,
            "max_momentum": 0.95,
        },
    ),
    (
        "CyclicLR",
        {
            "base_lr": 0.1,
            "max_lr": 1.0,
            "step_size_up": 3,
            "cycle_momentum": False,
            "scale_fn": lambda x: 1 / (1 + x),
            "scale_mode": "iterations",
        },
    ),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.95**epoch}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: 0.95**epoch, lambda epoch: 1 / (1 + epoch)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.95}),
]
IDS = [f"{i}-{name}" for i, (name, _) in enumerate(SCHEDULES)]


def optimiser(t=minigrad, cls="SGD"):
    params = [t.nn.Parameter(t.ones(2)) for _ in range(2)]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.3}]
    options = {"momentum": 0.9} if cls == "SGD" else {}
    return getattr(t.optim, cls)(groups, lr=0.1, **options)


def rates(o):
    return [(g["lr"], g.get("momentum"), g.get("betas")) for g in o.param_groups]


@pytest.mark.parametrize("cls", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "kwargs"), SCHEDULES, ids=IDS)
def test_rates_as_torch(name, kwargs, cls, torch):
    pair = [optimiser(minigrad, cls), optimiser(torch, cls)]
    mine = getattr(lr_scheduler, name)(pair[0], **kwargs)
    theirs = getattr(torch.optim.lr_scheduler, name)(pair[1], **kwargs)
    for epoch in range(30):
        assert rates(pair[0]) == rates(pair[1]), epoch
        assert mine.get_last_lr() == theirs.get_last_lr()
        for o, schedule in zip(pair, (mine, theirs), strict=True):
            o.step()
            schedule.step()


@pytest.mark.parametrize(("name", "kwargs"), SCHEDULES, ids=IDS)
def test_resuming_from_a_state_dict(name, kwargs):
    a, b = optimiser(), optimiser()
    first = getattr(lr_scheduler, name)(a, **kwargs)
    second = getattr(lr_scheduler, name)(b, **kwargs)
    for _ in range(6):
        a.step()
        first.step()
    b.load_state_dict(a.state_dict())
    second.load_state_dict(first.state_dict())
    for _ in range(8):
        assert rates(a) == rates(b)
        for o, schedule in ((a, first), (b, second)):
            o.step()
            schedule.step()


class Tenth:
    """A rate as a callable object, whose attributes are part of the state."""

    def __init__(self):
        self.factor = 0.1

    def __call__(self, epoch):
        return self.factor


MORE_STATES = [
    ("ReduceLROnPlateau", {"patience": 0}),
    ("LambdaLR", {"lr_lambda": Tenth()}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2, "scale_fn": Tenth()}),
]


@pytest.mark.parametrize(("name", "kwargs"), [*SCHEDULES, *MORE_STATES])
def test_states_are_exchanged_with_torch(name, kwargs, torch):
    def run(t, steps, o, schedule):
        for _ in range(steps):
            o.step()
            schedule.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        return o, schedule

    def build(t):
        o = optimiser(t)
        return o, getattr(t.optim.lr_scheduler, name)(o, **kwargs)

    ours, theirs = (run(t, 5, *build(t)) for t in (minigrad, torch))
    assert ours[1].state_dict() == theirs[1].state_dict()
    assert ours[1].optimizer is ours[0]
    for t, saved in ((minigrad, theirs), (torch, ours)):
        o, schedule = build(t)
        o.load_state_dict({**o.state_dict(), "param_groups": saved[0].state_dict()["param_groups"]})
        schedule.load_state_dict(saved[1].state_dict())
        run(t, 4, o, schedule)
        run(t, 4, *saved)
        assert rates(o) == rates(saved[0])


def test_a_schedule_reads_whether_step_calls_it_as_torch(torch):
    def run(t):
        seen, o = [], optimiser(t)

        class Own(t.optim.lr_scheduler._LRScheduler):
            def get_lr(self):
                seen.append((self._get_lr_called_within_step, self._is_initial))
                return self.base_lrs

        schedule = Own(o)
        o.step()
        schedule.step()
        schedule.get_lr()
        new = t.optim.lr_scheduler.StepLR(o, 1)
        return seen, schedule.state_dict(), isinstance(new, t.optim.lr_scheduler._LRScheduler)

    assert run(minigrad) == run(torch)


@pytest.mark.parametrize("name", ["StepLR", "ExponentialLR", "CosineAnnealingLR", "LinearLR"])
def test_starting_in_the_middle_as_torch(name, torch):
    kwargs = dict(SCHEDULES)[name]
    results = []
    for t in (minigrad, torch):
        o = optimiser(t)
        for group in o.param_groups:
            group["initial_lr"] = group["lr"]
        schedule = getattr(t.optim.lr_scheduler, name)(o, **kwargs, last_epoch=4)
        seen = []
        for _ in range(5):
            seen.append(rates(o))
            o.step()
            schedule.step()
        results.append(seen)
    assert results[0] == results[1]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau_as_torch(mode, threshold_mode, rng, torch):
    pair = [optimiser(minigrad), optimiser(torch)]
    kwargs = {
        "mode": mode,
        "threshold_mode": threshold_mode,
        "patience": 2,
        "cooldown": 1,
        "factor": 0.5,
        "threshold": 0.01,
        "min_lr": [0.001, 0.02],
    }
    mine = lr_scheduler.ReduceLROnPlateau(pair[0], **kwargs)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(pair[1], **kwargs)
    for i in range(60):
        metric = rng.uniform() * (1 - i / 100)
        mine.step(minigrad.tensor(metric, dtype=minigrad.float64))
        theirs.step(metric)
        assert mine.get_last_lr() == theirs.get_last_lr() and mine.best == theirs.best
    assert rates(pair[0])[1][0] == 0.02
    again = lr_scheduler.ReduceLROnPlateau(optimiser())
    again.load_state_dict(mine.state_dict())
    assert again.best == mine.best and again.min_lrs == mine.min_lrs


def test_sequences_and_chains_as_torch(torch):

    def sequence(t, o):
        s = t.optim.lr_scheduler
        parts = [s.LinearLR(o, total_iters=4), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 10)]
        return s.SequentialLR(o, parts, [4, 9])

    def chain(t, o):
        s = t.optim.lr_scheduler
        return s.ChainedScheduler([s.LinearLR(o, total_iters=4), s.ExponentialLR(o, 0.9)])

    for build in (sequence, chain):
        pair = [optimiser(minigrad), optimiser(torch)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about its own closed forms
            schedules = [build(minigrad, pair[0]), build(torch, pair[1])]
            for epoch in range(25):
                assert rates(pair[0]) == rates(pair[1]), epoch
                for o, schedule in zip(pair, schedules, strict=True):
                    o.step()
                    schedule.step()
        copied_optimiser = optimiser()
        copied = build(minigrad, copied_optimiser)
        assert schedules[0].state_dict() == schedules[1].state_dict()
        copied.load_state_dict(schedules[0].state_dict())
        assert copied.get_last_lr() == schedules[0].get_last_lr()


@pytest.mark.parametrize(
    "make",
    [
        lambda s, o: s.StepLR(o, 2),
        lambda s, o: s.LinearLR(o),
        lambda s, o: s.CosineAnnealingLR(o, 5),
        lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
        lambda s, o: s.CyclicLR(o, 0.1, 0.2, 3),
        lambda s, o: s.OneCycleLR(o, 0.3, 10),
    ],
)
def test_tensors_as_rates_as_torch(make, torch):
    """A schedule writes into the tensor; get_last_lr gives copies."""
    found = []
    for t in (minigrad, torch):
        given = t.tensor(0.1)
        optimizer = t.optim.SGD([t.ones(2)], lr=given, momentum=0.5)
        schedule, last, rates = make(t.optim.lr_scheduler, optimizer), [], []
        for _ in range(3):
            optimizer.step()
            schedule.step()
            last += schedule.get_last_lr()
            rates.append(given.item())
        assert optimizer.param_groups[0]["lr"] is given
        assert rates == [rate.item() for rate in last]
        found.append(rates)
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("name", ["StepLR", "ExponentialLR", "PolynomialLR", "CosineAnnealingLR"])
def test_a_group_added_in_between_as_torch(name, torch):
    """As when layers are trained later than others."""
    options = {"StepLR": (2,), "ExponentialLR": (0.9,), "CosineAnnealingLR": (7,)}.get(name, ())
    found = []
    for t in (minigrad, torch):
        optimizer = t.optim.SGD([t.ones(2)], lr=0.1)
        schedule = getattr(t.optim.lr_scheduler, name)(optimizer, *options)
        for step in range(4):
            optimizer.step()
            schedule.step()
            if step == 1:
                optimizer.add_param_group({"params": [t.ones(3)], "lr": 0.3})
        found.append(schedule.get_last_lr())
    assert len(found[0]) == 2 and found[0] == pytest.approx(found[1])


def test_formulas():
    o = optimiser()
    cosine = lr_scheduler.CosineAnnealingLR(o, 10, eta_min=0.02)
    for epoch in range(1, 11):
        o.step()
        cosine.step()
        wanted = 0.02 + (0.1 - 0.02) * (1 + math.cos(math.pi * epoch / 10)) / 2
        assert o.param_groups[0]["lr"] == pytest.approx(wanted)
    o = optimiser()
    step = lr_scheduler.StepLR(o, 2, 0.1)
    seen = []
    for _ in range(5):
        seen.append(o.param_groups[0]["lr"])
        o.step()
        step.step()
    assert seen == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])


def test_warnings():
    o = optimiser()
    schedule = lr_scheduler.StepLR(o, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step\\(\\)`"):
        schedule.step()
    o = optimiser()
    schedule = lr_scheduler.StepLR(o, 1)
    o.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()
    with pytest.warns(UserWarning, match="epoch parameter"):
        schedule.step(7)
    assert o.param_groups[0]["lr"] == pytest.approx(0.1 * 0.1**7)
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()


def test_a_schedule_written_by_a_user():
    class Halving(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    o = optim.SGD([nn.Parameter(minigrad.zeros(1))], lr=0.8)
    schedule = Halving(o)
    o.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.4]


@pytest.mark.parametrize(
    "program",
    [
        lambda s, o: s.StepLR(3, 1),
        lambda s, o: s.ConstantLR(o, factor=1.5),
        lambda s, o: s.LinearLR(o, start_factor=0),
        lambda s, o: s.LinearLR(o, end_factor=-1),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 0),
        lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="square"),
        lambda s, o: s.CyclicLR(o, [0.1], 1.0),
        lambda s, o: s.OneCycleLR(o, 0.1),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-1),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=10, pct_start=2),
        lambda s, o: s.OneCycleLR(o, 0.1, total_steps=10, anneal_strategy="steep"),
        lambda s, o: s.LambdaLR(o, [lambda e: 1]),
        lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
        lambda s, o: s.ReduceLROnPlateau(o, mode="best"),
        lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="percent"),
        lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1, 2, 3]),
        lambda s, o: s.SequentialLR(o, [], []),
        lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
        lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
    ],
    ids=range(20),
)
def test_errors_as_torch(program, same_error):
    same_error(lambda t: program(t.optim.lr_scheduler, optimiser(t)))


def test_resuming_without_initial_rates():
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimiser(), 1, last_epoch=3)
