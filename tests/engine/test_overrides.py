"""`__torch_function__`: classes that are no tensors, as arguments of functions and methods."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad


def program(t):
    """What torch's functions and methods give for an object that overrides some of them."""
    asked = []

    class Scaled:
        """The matrix c I."""

        def __init__(self, factor, size):
            self.factor, self.size = factor, size

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append((func.__name__, types == (cls,), len(args), sorted(kwargs or {})))
            if func is t.trace:
                return t.tensor(float(args[0].factor * args[0].size))
            if func in (t.matmul, t.Tensor.matmul):
                return args[0] * args[1].factor
            if func is t.cat:
                return len(args[0])
            if func is t.linalg.det:
                return args[0].factor ** args[0].size
            return NotImplemented

    class Smaller(Scaled):
        pass

    x, scaled = t.ones(2, 2), Scaled(3.0, 2)
    found = [t.trace(scaled), t.matmul(x, scaled).sum(), x.matmul(scaled).sum()]
    found += [t.cat([x, scaled], dim=0), t.linalg.det(scaled), t.linalg.det(Smaller(2.0, 3))]
    errors = []
    for call in (
        lambda: t.exp(scaled),
        lambda: x.add(scaled),
        lambda: t.nn.functional.relu(scaled),
    ):
        with pytest.raises(TypeError, match="__torch_function__") as caught:
            call()
        errors.append("Scaled" in str(caught.value))
    like = t.overrides.is_tensor_like
    answers = [like(x), like(scaled), like([x]), t.overrides.has_torch_function((x, None)),
               t.overrides.has_torch_function((x, scaled))]  # fmt: skip
    return [float(value) for value in found], asked[:6], errors, answers


def test_objects_of_overriding_classes(torch):
    ours, theirs = program(minigrad), program(torch)
    assert ours[0] == theirs[0] == [6, 12, 12, 2, 9, 8]
    assert [call[1:] for call in ours[1]] == [call[1:] for call in theirs[1]]
    assert ours[2:] == theirs[2:]


def test_a_subclass_is_asked_before_its_base():
    order = []

    class Base:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append(cls.__name__)
            return NotImplemented

    class Derived(Base):
        pass

    with pytest.raises(TypeError, match="minigrad.*add"):
        minigrad.add(Base(), Derived())
    assert order == ["Derived", "Base"]


def test_programs_can_dispatch_functions_of_their_own():
    class Number:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, types, args, kwargs

    def own(x, scale=1):
        if minigrad.overrides.has_torch_function((x,)):
            return minigrad.overrides.handle_torch_function(own, (x,), x, scale=scale)
        return x * scale

    number = Number()
    assert own(number, 2) == ("own", (Number,), (number,), {"scale": 2})
    np.testing.assert_array_equal(own(minigrad.ones(2), 2), [2, 2])


def test_errors_of_other_arguments_stay():
    for call in (lambda: minigrad.exp(None), lambda: minigrad.clamp(minigrad.ones(2), "a", None)):
        with pytest.raises(TypeError) as caught:
            call()
        assert "__torch_function__" not in str(caught.value) and "NoneType;" not in str(
            caught.value
        )
