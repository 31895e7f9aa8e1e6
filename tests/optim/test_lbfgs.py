"""LBFGS: steps of a fixed length as torch's, and the line search by what it guarantees."""

from __future__ import annotations

import pytest

import minigrad
from minigrad import optim
from tests.nn.helpers import close


def rosenbrock(x):
    return (1 - x[:-1]).square().sum() + 100 * (x[1:] - x[:-1].square()).square().sum()


def minimise(t, steps, function, start, **options):
    """The parameter after some steps, and the losses that `step` returned."""
    x = t.nn.Parameter(t.tensor(start, dtype=t.float64))
    optimizer = t.optim.LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        return loss

    return x, [optimizer.step(closure).item() for _ in range(steps)], optimizer


@pytest.mark.parametrize("options", [{"lr": 0.1}, {"lr": 0.05, "history_size": 3, "max_iter": 7}])
def test_trajectory_as_torch(torch, options):
    def quartic(x):
        return (x**4).sum() / 4 + (x[0] * x[1] - 1) ** 2 + x.square().sum()

    found = [minimise(t, 3, quartic, [1.5, -0.7, 2.0], **options) for t in (minigrad, torch)]
    close(found[0][0], found[1][0], 1e-7)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-7)
    evaluations = [dict(o.state[o.param_groups[0]["params"][0]]) for *_, o in found]
    assert evaluations[0]["n_iter"] == evaluations[1]["n_iter"]
    assert evaluations[0]["func_evals"] == evaluations[1]["func_evals"]
    assert evaluations[0]["prev_loss"] == pytest.approx(evaluations[1]["prev_loss"], rel=1e-7)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_complex_parameters_as_torch(torch, rng, search):
    start, wanted = rng.normal(size=(2, 3, 2, 2))

    def fit(t):
        def loss(x):
            return (x - t.view_as_complex(t.tensor(wanted))).abs().pow(4).sum() + (x * x).real.sum()

        x = t.nn.Parameter(t.view_as_complex(t.tensor(start)))
        o = t.optim.LBFGS([x], lr=0.3, line_search_fn=search)

        def closure():
            o.zero_grad()
            loss(x).backward()
            return loss(x)

        o.step(closure)
        return x

    close(fit(minigrad), fit(torch), 1e-7)


def evaluations(t, function, start, options):
    """The losses of all evaluations of the closure in six steps, and the parameter."""
    x = t.nn.Parameter(t.tensor(start, dtype=t.float64))
    optimizer = t.optim.LBFGS([x], line_search_fn="strong_wolfe", **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = function(x)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(6):
        optimizer.step(closure)
    return losses, x


WELLS = {
    "rosenbrock": (rosenbrock, [-1.2, 1.0, 0.5, 2.0]),
    "waves": (lambda x: (3 * x.sin() + 0.1 * x.square()).sum(), [3.0, 1.0, -4.0]),
    "kinks": (lambda x: x.abs().sqrt().sum(), [3.0, 1.0, -4.0]),
    "steep": (lambda x: (x.exp() - x).sum(), [10.0]),
}


@pytest.mark.parametrize("well", WELLS)
@pytest.mark.parametrize(
    "options", [{}, {"max_iter": 4}, {"lr": 0.1, "history_size": 3}, {"lr": 10.0}, {"max_eval": 7}]
)
def test_each_evaluation_of_a_line_search_as_torch(torch, well, options):
    mine, theirs = (evaluations(t, *WELLS[well], options) for t in (minigrad, torch))
    steps = slice(60)  # rounding errors grow from step to step
    assert mine[0][steps] == pytest.approx(theirs[0][steps], rel=1e-6, abs=1e-12)
    assert len(mine[0]) == len(theirs[0])


def test_a_tensor_as_rate_stays_what_it_is():
    rate = minigrad.tensor(0.5)
    x, losses, _ = minimise(minigrad, 3, rosenbrock, [0.5, 0.5], lr=rate, max_iter=4)
    y, same, _ = minimise(minigrad, 3, rosenbrock, [0.5, 0.5], lr=0.5, max_iter=4)
    assert rate.item() == 0.5 and losses == same and x.tolist() == y.tolist()


def test_a_loss_that_is_not_finite_ends_no_search():
    def overflows(x):
        return (x.square() + minigrad.where(x > 2, minigrad.inf, 0.0)).sum()

    x, losses, _ = minimise(minigrad, 4, overflows, [-3.0], lr=100.0, line_search_fn="strong_wolfe")
    assert losses[-1] < 1e-9, (losses, x)


def test_line_search_finds_the_minimum():
    x, losses, _ = minimise(
        minigrad, 6, rosenbrock, [-1.2, 1.0, 0.5], line_search_fn="strong_wolfe", max_iter=30
    )
    assert all(b <= a for a, b in zip(losses, losses[1:]))  # noqa: RUF007
    assert rosenbrock(x.detach()).item() < 1e-9  # tolerance_change


def test_errors_as_torch(same_error):
    def groups(t):
        a, b = t.nn.Parameter(t.ones(1)), t.nn.Parameter(t.ones(1))
        t.optim.LBFGS([{"params": [a]}, {"params": [b]}])

    same_error(groups)


def test_unknown_line_search():
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optim.LBFGS([minigrad.nn.Parameter(minigrad.ones(1))], line_search_fn="backtracking")
