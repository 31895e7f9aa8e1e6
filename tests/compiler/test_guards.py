"""A recording holds only while the Python state that the step reads is as it was."""

from __future__ import annotations

import functools
import random
import time
import types

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad.compiler.guards import Watch

SCALE = 1.0
HELPERS = types.ModuleType("helpers_of_a_test")
HELPERS.factor = 1.0


class Slots:
    __slots__ = ("value",)


class Scaled(nn.Module):
    factor = 1.0

    def forward(self, x):
        return self.act(x) * self.factor

    def act(self, x):
        return x * SCALE


class Helper:
    def scaled(self, x):
        return x * SCALE


def from_a_list():
    values = [[1.0]]
    return (lambda x: x * values[0][0]), lambda v: values[0].__setitem__(0, v)


def from_a_slot():
    held = Slots()
    held.value = 1.0
    return (lambda x: x * held.value), lambda v: setattr(held, "value", v)


def from_an_array():
    array = np.ones(3, np.float32)
    return (lambda x: x * minigrad.tensor(array)), lambda v: array.fill(v)


def from_a_masked_array():
    array = np.ma.masked_array([1.0, 3.0, 5.0], [False, False, False])
    place, masked = {1.0: 0, 3.0: 1, 5.0: 2}, np.ma.masked

    def change(value):  # all but one number are masked
        array.mask[:] = True
        array.mask[place[value]] = False

    return (lambda x: x * float(array.sum()) if array is not masked else x), change


def from_a_default():
    def step(x, factors=(), *, more={"factor": 1.0}):  # noqa: B006
        return x * more["factor"]

    return step, lambda v: step.__kwdefaults__["more"].update(factor=v)


def from_a_class():
    class Config:
        factor = 1.0

    return (lambda x: x * Config.factor), lambda v: setattr(Config, "factor", v)


def from_the_class_of_a_module():
    class Own(Scaled):
        pass

    return Own(), lambda v: setattr(Own, "factor", v)


def from_a_method():
    class Own(Scaled):
        pass

    return Own(), lambda v: setattr(Own, "act", lambda self, x: x * v)


def from_an_own_forward():
    model = Scaled()
    return model, lambda v: setattr(model, "forward", lambda x: x * v)


def set_scale(value):
    global SCALE
    SCALE = value


def from_a_global_of_a_method():
    return Scaled(), set_scale


def from_a_global_of_a_helper():
    helper = Helper()
    return (lambda x: helper.scaled(x)), set_scale


def from_an_inner_function():
    def step(x):
        def inner(y):
            return y * SCALE

        return inner(x)

    return step, set_scale


def from_a_module():
    return (lambda x: x * HELPERS.factor), lambda v: setattr(HELPERS, "factor", v)


def from_a_partial():
    values = [1.0]
    step = functools.partial(lambda v, x: x * v[0], values)
    return (lambda x: step(x)), lambda v: values.__setitem__(0, v)


def from_a_forward_hook():
    model, handles = Scaled(), []

    def change(value):
        for handle in handles:
            handle.remove()
        handles[:] = [model.register_forward_hook(lambda m, given, out: out * value)]

    return model, change


def from_a_hook_of_the_state():
    model, handles = nn.Linear(1, 1), []

    def change(value):
        for handle in handles:
            handle.remove()

        def scale(module, state, prefix, metadata):
            state["scale"] = value

        handles[:] = [model.register_state_dict_post_hook(scale)]

    return (lambda x: x * model.state_dict()["scale"]), change


CHANGES = [value for name, value in list(globals().items()) if name.startswith("from_")]


@pytest.mark.parametrize("make", CHANGES, ids=lambda f: f.__name__)
def test_a_change_is_noticed(make):
    step, change = make()
    compiled = minigrad.compile(step)
    try:
        for value in (1.0, 1.0, 1.0, 3.0, 3.0, 5.0):
            change(value)
            assert compiled(minigrad.ones(3)).tolist() == [value] * 3, compiled.report()
    finally:
        set_scale(1.0)
    assert compiled.report().count("replayed, 0 eager")


def test_what_is_not_used_may_change():
    class Trainer:
        def __init__(self):
            self.scale, self.history, self.batches = 2.0, [], iter(range(9))

        def step(self, x):
            return x * self.scale

    trainer = Trainer()
    compiled = minigrad.compile(trainer.step)
    for _ in range(5):
        assert compiled(minigrad.ones(2)).tolist() == [2, 2]
        trainer.history.append(next(trainer.batches))
    assert (compiled.recorded, compiled.replayed) == (1, 4)


def test_what_python_writes_into_a_class_is_not_watched():
    class Trainer:
        scale = 2.0

        def __init__(self):
            self.history = []

        def step(self, x):
            return x * self.scale

    watch = Watch(Trainer().step)
    assert [name for _, name, _ in (*watch._values, *watch._same)] == ["scale"]


@pytest.mark.parametrize("changed", [None, "scale", "count", "name", "function"])
def test_equal_values_in_other_objects_are_no_change(changed):
    class Trainer:
        def __init__(self):
            self.scale, self.count, self.name = 1000.5, 10**6, "n" * 30
            self.function = minigrad.sin

        def step(self, x):
            return self.function(x) * self.scale + self.count + len(self.name)

    trainer = Trainer()
    compiled = minigrad.compile(trainer.step)
    for _ in range(3):
        compiled(minigrad.ones(2))
    before = compiled.recorded
    trainer.scale, trainer.count, trainer.name = (
        float("1000.5"),
        int("1000000"),
        "n" * len("n" * 30),
    )
    other = {"scale": 1000.25, "count": 5, "name": "n", "function": minigrad.cos}
    if changed is not None:
        setattr(trainer, changed, other[changed])
    for _ in range(3):
        x = minigrad.ones(2)
        assert compiled(x).tolist() == trainer.step(x).tolist()
    assert (compiled.recorded > before) == (changed is not None)


@pytest.mark.parametrize(
    "number",
    [random.random, lambda: float(np.random.rand()), time.perf_counter, iter(range(1, 9)).__next__],
    ids=["random", "numpy", "time", "iterator"],
)
def test_numbers_that_differ_from_call_to_call_are_not_replayed(number):
    compiled = minigrad.compile(lambda x: x * number())
    found = {compiled(minigrad.ones(1, dtype=minigrad.float64)).item() for _ in range(4)}
    assert len(found) == 4 and compiled.replayed == 0 and "eager:" in compiled.report()


def test_zeros_and_types_of_numbers_are_told_apart():
    value = 0.0
    one, two = minigrad.compile(lambda x: x / value), minigrad.compile(lambda x, v: x / v)
    for value in (0.0, -0.0, 0.0, -0.0):
        wanted = float(np.copysign(np.inf, value))
        assert one(minigrad.ones(1)).item() == two(minigrad.ones(1), value).item() == wanted
    product = minigrad.compile(lambda x: x * value)
    for value in (1, 1.0, True, 1):
        x = minigrad.ones(1, dtype=minigrad.int64)
        assert product(x).dtype == (x * value).dtype
    same = minigrad.compile(lambda x, v: x * v)
    for _ in range(3):
        assert np.isnan(same(minigrad.ones(1), float("nan")).item())
    assert same.replayed == 2


def test_hooks_of_a_parameter():
    weight, seen = nn.Parameter(minigrad.ones(2)), []

    def step(x):
        weight.grad = None
        (weight * x).sum().backward()
        return weight.grad.clone()

    compiled = minigrad.compile(step)
    for _ in range(3):
        assert compiled(minigrad.ones(2)).tolist() == [1, 1]
    handle = weight.register_hook(lambda grad: grad * 10)
    for _ in range(3):
        assert compiled(minigrad.ones(2)).tolist() == [10, 10]
    handle.remove()
    weight.register_hook(lambda grad: grad * 3)
    assert compiled(minigrad.ones(2)).tolist() == [3, 3]
    weight.register_post_accumulate_grad_hook(lambda p: seen.append(1))
    for count in (1, 2, 3):
        compiled(minigrad.ones(2))
        assert len(seen) == count


def test_the_version_of_an_argument_that_a_replay_changes():
    compiled = minigrad.compile(lambda x: x.add_(1).sum())
    for _ in range(3):
        x = minigrad.ones(2)
        y = minigrad.ones(2, requires_grad=True) * x
        compiled(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert compiled.replayed == 2


def test_three_arguments_of_which_two_share_memory():
    compiled = minigrad.compile(lambda a, b, c: (a + c, b.sum()))
    for _ in range(3):
        x, y = minigrad.randn(3, 4), minigrad.ones(3, 4)
        found, total = compiled(x, y, x[:1])
        np.testing.assert_allclose(found.numpy(), (x + x[:1]).numpy())
        assert total.item() == 12
    assert compiled.replayed == 2


def test_a_step_that_cannot_be_differentiated_may_still_be_called():
    weight = nn.Parameter(minigrad.ones(2))

    def step(x):
        y = (weight * x).tanh()
        z = y * y
        y.detach().add_(1)
        return z

    compiled = minigrad.compile(step)
    for _ in range(3):
        found = compiled(minigrad.ones(2))
        np.testing.assert_allclose(found.detach().numpy(), np.tanh(np.ones(2)) ** 2, rtol=1e-6)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.sum().backward()
    assert "its backward pass fails" in compiled.report()
