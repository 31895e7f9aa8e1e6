"""torch's samples of its optimisers (`optim_db`), on minigrad's: steps, groups and errors."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minigrad
from tests.engine import op_db

pytestmark = pytest.mark.needs("torch", "expecttest")

# LBFGS takes 20 steps in one, in which differences of rounding grow.
STEPS, STEPS_OF_LBFGS = 6, 2
TOLERANCE = {"ASGD": 1e-6, "Muon": 1e-3}  # Muon multiplies matrices of bfloat16
# Of their arguments; minigrad looks at the parameters first.
OTHER_ORDER = "lr as a Tensor is not supported|betas.* as a Tensor is not|betas must be either"


def entries() -> list[Any]:
    return importlib.import_module("torch.testing._internal.common_optimizers").optim_db


def _values(rng) -> tuple[list, Any, Any]:
    """Two layers' weights, inputs and targets."""
    shapes = (10, 5), (5, 6), (16, 10), (16, 6)
    *weights, x, y = (rng.standard_normal(shape) for shape in shapes)
    return weights, x, y


def _trained(space: Any, name: str, options: dict, values: tuple) -> tuple[list, list, Any]:
    """(losses, parameters, optimiser) after a few steps."""
    weights, *batch = values
    parameters = [space.tensor(w).requires_grad_() for w in weights]
    optimizer = getattr(space.optim, name)(parameters, **options)
    x, y = map(space.tensor, batch)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((space.tanh(x @ parameters[0]) @ parameters[1] - y) ** 2).mean()
        loss.backward()
        return loss

    steps = STEPS_OF_LBFGS if name == "LBFGS" else STEPS
    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    return losses, parameters, optimizer


def _of_sample(name: str, options: dict, values: tuple) -> Iterator[str]:
    import torch

    mine = op_db.from_torch(options, [])
    expected, refusal = op_db.outcome(lambda: _trained(torch, name, options, values))
    result, error = op_db.outcome(lambda: _trained(minigrad, name, mine, values))
    if refusal is not None or error is not None:
        if not isinstance(error, type(refusal)):
            yield f"{type(error).__name__}: {error}, torch has {type(refusal).__name__}: {refusal}"
        return
    tensors = any(isinstance(value, torch.Tensor) for value in options.values())
    # torch computes with tensors of float32, and ASGD's step too.
    tolerance = TOLERANCE.get(name, 1e-6 if tensors else 1e-9)
    for a, b in zip([result[0], *result[1]], [expected[0], *expected[1]], strict=True):
        a, b = (np.asarray(getattr(x, "detach", lambda x=x: x)()) for x in (a, b))
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance):
            yield f"values differ by {np.abs(a - b).max()}"
    ours, theirs = result[2], expected[2]
    for group, wanted in zip(ours.param_groups, theirs.param_groups, strict=True):
        if list(group) != list(wanted):
            yield f"options {list(group)}, torch has {list(wanted)}"
    if repr(ours) != repr(theirs):
        yield f"repr {ours!r}, torch has {theirs!r}"


def _of_error(name: str, refused: Any) -> Iterator[str]:
    import torch

    sample = refused.optimizer_error_input
    made: dict[int, Any] = {}  # the same tensor twice stays the same

    def translated(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in made:
                made[id(value)] = op_db.from_torch(value.detach(), [])
            return made[id(value)]
        if isinstance(value, dict):
            return {key: translated(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([translated(part) for part in value])
        return op_db.from_torch(value, [])

    try:
        params, options = translated(sample.params), translated(sample.kwargs)
    except TypeError:  # sparse parameters
        return
    _, refusal = op_db.outcome(lambda: getattr(torch.optim, name)(sample.params, **sample.kwargs))
    _, error = op_db.outcome(lambda: getattr(minigrad.optim, name)(params, **options))
    if refusal is None or re.search(OTHER_ORDER, str(refusal)):
        return
    if not isinstance(error, type(refusal)) or not re.search(refused.error_regex, str(error)):
        yield f"{type(error).__name__}: {error}, torch has {type(refusal).__name__}: {refusal}"


def test_all_samples(rng):
    wrong, values, count = [], _values(rng), 0
    for entry in entries():
        name = entry.optim_cls.__name__
        for sample in entry.optim_inputs_func(device="cpu"):
            for more in ({}, {"foreach": True}, {"maximize": True}):
                options = {**sample.kwargs, **more}
                count += 1
                wrong += [f"{name}, {options}: {w}" for w in _of_sample(name, options, values)]
        for refused in entry.optim_error_inputs_func(device="cpu", dtype=None):
            count += 1
            described = refused.optimizer_error_input.desc
            wrong += [f"{name}, {described}: {w}" for w in _of_error(name, refused)]
    assert count > 300
    assert not wrong, wrong


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_a_wrong_optimizer_is_found(name, rng, monkeypatch):
    right = getattr(minigrad.optim, name)
    values = _values(rng)
    assert not list(_of_sample(name, {"lr": 0.01}, values))
    monkeypatch.setattr(minigrad.optim, name, lambda p, lr: right(p, lr=1.001 * lr))
    assert list(_of_sample(name, {"lr": 0.01}, values))
