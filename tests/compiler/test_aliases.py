"""Arguments of a compiled step that share memory, and gradients through changes in place."""

import numpy as np
import pytest

import minigrad


def change_first(u, v, w):
    u.mul_(2.0)
    v.add_(w)
    return (u * v).sum()


def change_by_gradient(u, v, w):
    u.mul_(w)
    return (u * v).sum()


def change_second(u, v, w):
    v.mul_(w)
    u.add_(1.0)
    return (u * u * v).sum()


def only_read(u, v, w):
    return (u * v * w).sum()


def twice(x):
    y = x[:4] * 1.0
    return y, y


def base_and_view(x):
    y = x[:4] * 1.0
    return y, y.view(2, 2).view(4)


ALIASES = {
    "one tensor twice": twice,
    "one view twice": lambda x: (x[:4],) * 2,
    "two views": lambda x: (x[:4], x[:4]),
    "views that overlap": lambda x: (x[:4], x[2:6]),
    "views apart": lambda x: (x[:4], x[4:]),
    "interleaved": lambda x: (x[::2], x[1::2]),
    "base and view": base_and_view,
    "view and base": lambda x: base_and_view(x)[::-1],
    "view of a view": lambda x: (x.view(2, 4)[0], x.view(4, 2).t()[0]),
}


def run(library, step, arguments, compiled):
    """Losses, gradients and contents of three steps."""
    function = minigrad.compile(step) if compiled else step
    found = []
    for turn in range(3):
        w = library.tensor([1.5, 2.0, 3.0, 0.5], requires_grad=True)
        numbers = np.arange(1, 9, dtype=np.float32) * (turn + 1)
        leaf = library.tensor(numbers, requires_grad=True)
        x = leaf * 1.0
        u, v = arguments(x)
        loss = function(u, v, w)
        (loss + x.sum() * v.sum()).backward()
        parts = (loss, leaf.grad, w.grad, u, v, x)
        found.append([t.detach().numpy().tolist() for t in parts if t is not None])
    return found


@pytest.mark.parametrize("step", [change_first, change_by_gradient, change_second, only_read])
@pytest.mark.parametrize("arguments", ALIASES.values(), ids=ALIASES)
def test_arguments_that_share_memory(step, arguments):
    assert run(minigrad, step, arguments, True) == run(minigrad, step, arguments, False)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("step", [change_first, change_by_gradient, change_second, only_read])
@pytest.mark.parametrize("arguments", ALIASES.values(), ids=ALIASES)
def test_shared_memory_in_torch(step, arguments, torch):
    assert run(minigrad, step, arguments, True) == run(torch, step, arguments, False)


@pytest.mark.parametrize("view", [True, False])
def test_a_base_that_is_no_argument(view):
    def program(compiled):
        leaf = minigrad.arange(1.0, 5.0).requires_grad_()
        x = leaf * 1.0

        def step(u):
            u.mul_(u)
            return (u.sum() * x).sum()

        function = minigrad.compile(step) if compiled else step
        for _ in range(2):
            loss = function(x[:2] if view else x)
        (loss + (x * x).sum()).backward()
        return loss.item(), leaf.grad.tolist()

    assert program(True) == program(False)


@pytest.mark.parametrize("view", [True, False])
def test_a_returned_view_that_changes_later(view):
    def program(compiled):
        function = minigrad.compile(lambda y: y.view(-1)) if compiled else lambda y: y.view(-1)
        found = []
        for _ in range(2):
            leaf = minigrad.arange(1.0, 7.0).requires_grad_()
            y = leaf * 1.0
            argument = y[:4].view(2, 2) if view else y.view(2, 3).clone()
            result = function(argument)
            result.mul_(3.0)
            (argument * argument).sum().backward()
            found.append((argument.tolist(), leaf.grad.tolist()))
        return found

    assert program(True) == program(False)


def test_a_plain_base_becomes_part_of_a_graph():
    def program(compiled):
        w = minigrad.tensor([2.0, 3.0], requires_grad=True)
        x = minigrad.arange(1.0, 5.0)

        def step(u, v):
            u.mul_(w)
            return v.sum()

        (minigrad.compile(step) if compiled else step)(x[:2], x[1:3]).backward()
        return x.requires_grad, w.grad.tolist(), x.tolist()

    assert program(True) == program(False)


def test_a_view_of_a_leaf_is_refused():
    def step(u):
        return u.mul_(2.0).sum()

    for function in (step, minigrad.compile(step)):
        leaf = minigrad.ones(4, requires_grad=True)
        with pytest.raises(RuntimeError, match="view of a leaf Variable"):
            function(leaf[:2])
        assert leaf.tolist() == [1, 1, 1, 1]
        with minigrad.no_grad():
            view = leaf[:2]
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            function(view)
