"""Subclasses of Tensor in programs, and what their `__torch_function__` is asked; like torch's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minigrad


class Kept(minigrad.Tensor):
    pass


def logged(t):
    log = []

    class Logged(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((func.__name__, [kind.__name__ for kind in types]))
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged, log


CALLS = """
    x + 1
    1 + x
    1 - x
    x + plain
    plain + x
    plain - x
    plain * x
    plain @ x
    plain / x
    plain.add(x)
    x != plain
    x % 2
    2 ** x
    x < 2
    -x
    x.sum()
    x.mean(dim=0)
    x.max(0)
    x.unbind()
    t.cat([plain, x])
    t.stack([x, x])
    t.where(x > 1, x, plain)
    t.nn.functional.relu(x)
    t.nn.functional.softmax(x, dim=-1)
    t.nn.functional.linear(x, plain, plain[0])
    t.norm(x)
    t.outer(x[0], plain[0])
    layer(x)
    x[0]
    x[x > 1]
    x.T
    x.shape
    x.ndim
    x.dtype
    x.requires_grad
    x.size(0)
    x.tolist()
    x.numpy()
    x.detach()
    x.clone().add_(1)
    x.view(-1).mul_(2)
    x.reshape(4).view_as(x)
    x.double()
    x.to(t.float64)
    x.new_zeros(2)
    x.contiguous()
    t.zeros_like(x)
    t.add(x, 1, alpha=2)
    x.T @ plain
    float(x.sum())
    len(x)
""".strip().splitlines()


def program(t):
    """What each call gives: the class of the result, its values, and what the class was asked."""
    kind, log = logged(t)
    found = []
    layer = t.nn.Linear(2, 2)
    with t.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.25)
    for line in map(str.strip, CALLS):
        names = {
            "t": t, "plain": t.tensor([[1.0, 2.0], [3.0, 4.0]]), "layer": layer,
            "x": t.tensor([[2.0, 0.5], [1.5, 3.0]]).as_subclass(kind),
        }  # fmt: skip
        log.clear()
        value = eval(line, names)
        asked = list(log)
        found.append((line, outcome(value, t), asked))
    return found


def outcome(value, t):
    if isinstance(value, tuple | list):
        return [outcome(v, t) for v in value]
    if isinstance(value, t.Tensor):
        with t._C.DisableTorchFunctionSubclass():
            return type(value).__name__, value.detach().numpy().astype(float).round(5).tolist()
    return str(value).replace("minigrad", "torch")


def test_calls_like_torch(torch):
    for ours, theirs in zip(program(minigrad), program(torch), strict=True):
        assert ours == theirs


def test_gradients_reach_and_leave_subclasses(torch):
    def grads(t):
        kind, _ = logged(t)
        rng = np.random.default_rng(0)
        a, b = (t.tensor(rng.standard_normal((3, 3)), requires_grad=True) for _ in range(2))
        x = a.as_subclass(kind)
        assert type(x) is kind and x.requires_grad and not x.is_leaf
        loss = (t.tanh(x) @ b + x[0]).square().sum()
        loss.backward()
        return [g.numpy() for g in (a.grad, b.grad)]

    for ours, theirs in zip(grads(minigrad), grads(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12)


def test_classes_of_results(torch):
    def program(t):
        class A(t.Tensor):
            pass

        class B(A):
            pass

        class C(t.Tensor):
            pass

        class Plain(t.Tensor):
            __torch_function__ = t._C._disabled_torch_function_impl

        a, b, c, p = (t.ones(2).as_subclass(kind) for kind in (A, B, C, Plain))
        names = [type(v).__name__ for v in (a + b, b + a, t.ones(2) + a, p + 1, a + p, a.sum())]
        with pytest.raises(TypeError):
            t.add(a, c)
        has = t.overrides.has_torch_function
        answers = [has((v,)) for v in (a, b, p, t.ones(1), t.nn.Parameter(t.ones(1)))]
        with t._C.DisableTorchFunctionSubclass():
            names.append(type(a + 1).__name__)
        return names, answers

    assert program(minigrad) == program(torch)


def test_other_operands_are_asked():
    class Other:
        def __radd__(self, left):
            return "added"

        def __rmatmul__(self, left):
            return "multiplied"

    x = minigrad.ones(2).as_subclass(Kept)
    assert x + Other() == "added" and x @ Other() == "multiplied"
    with pytest.raises(TypeError):
        _ = x + "text"
    assert (x == "text") is False


def test_copies_keep_class_and_attributes():
    x = minigrad.rand(3).as_subclass(Kept)
    x.note = "mine"
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is Kept and y.note == "mine"
        np.testing.assert_array_equal(y.numpy(), x.numpy())
    assert not hasattr(x + 1, "note")


def test_a_subclass_with_methods_of_its_own(torch):
    def program(t):
        class Image(t.Tensor):
            def __new__(cls, data, scale=1.0):
                found = t.as_tensor(data).as_subclass(cls)
                found.scale = scale
                return found

            def scaled(self):
                return self * self.scale

            def sum(self):
                return "own"

        x = Image([1.0, 2.0], 3.0)
        y = x.scaled()
        return type(y).__name__, y.tolist(), x.sum(), type(x.mean()).__name__, repr(x)

    assert program(minigrad) == program(torch)


def test_the_constructor_of_the_base(torch):
    def program(t):
        class Named(t.Tensor):
            @staticmethod
            def __new__(cls, data, label, *args, **kwargs):
                return super().__new__(cls, data, *args, **kwargs)

            def __init__(self, data, label):
                self.label = label

        x = Named([1.0, 2.0], "x")
        return type(x).__name__, x.label, x.tolist(), type(x * 2).__name__, x.requires_grad

    assert program(minigrad) == program(torch)


def test_super_asks_the_class():
    class Over(minigrad.Tensor):
        def sum(self, *args):
            return super().sum(*args)

        def __add__(self, other):
            return super().__add__(other)

        def __getitem__(self, index):
            return super().__getitem__(index)

    class Doubled(Over):
        def sum(self, *args):
            return super().sum(*args) * 2

    x = minigrad.arange(3.0).as_subclass(Over)
    for found, wanted in ((x.sum(), 3), (x[1], 1), ((x + 1)[2], 3), (minigrad.sum(x), 3)):
        assert type(found) is Over and found.item() == wanted
    y = minigrad.arange(3.0).as_subclass(Doubled)
    assert type(y.sum()) is type(y.t()) is type(x + y) is Doubled and y.sum().item() == 6
    assert issubclass(Doubled, minigrad.Tensor) and isinstance(y, Over)


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("add", lambda x, w: x + w),
        ("add", lambda x, w: w + x),
        ("sub", lambda x, w: x - w),
        ("__rsub__", lambda x, w: w - x),
        ("__rdiv__", lambda x, w: w / x),
        ("matmul", lambda x, w: x @ w),
        ("lt", lambda x, w: x < w),
        ("lt", lambda x, w: w > x),
    ],
)
def test_operators_ask_classes_that_are_no_tensors(name, compute):
    class Held:
        def __init__(self, held):
            self.held = held

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            assert func.__name__ == name and types == (cls,)
            return func(*[a.held if type(a) is cls else a for a in args])

    x, held = minigrad.tensor([1.0, 2.0]), minigrad.tensor([3.0, 5.0])
    assert compute(x, Held(held)).tolist() == compute(x, held).tolist()


@pytest.mark.parametrize("name", "expand_as lerp maximum reshape_as type_as view_as".split())
def test_methods_of_tensors_keep_the_class_of_their_argument(name):
    x, kept = minigrad.zeros(2, 3), minigrad.ones(2, 3).as_subclass(Kept)
    assert type(getattr(x, name)(kept, *[0.5] * (name == "lerp"))) is Kept
