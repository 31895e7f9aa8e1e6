"""Arguments of a compiled step that share memory, and gradients through changes in place."""

import numpy as np
import pytest

import minigrad
from minigrad import backends

from .test_compile import close


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


def _through_a_view(x, p):
    rows = x.view(2, 3)
    rows[0] = p
    return x


def _beside_a_view(x, p):
    end = x[2:]
    x[:3] = p
    return minigrad.cat([end, end[:2]])


CHANGES = {
    "assigned": lambda x, p: x.__setitem__(slice(0, 3), p) or x,
    "added": lambda x, p: x.add_(p.repeat(2)),
    "at places": lambda x, p: x.index_put_((minigrad.tensor([0, 4, 2]),), p),
    "as out": lambda x, p: minigrad.mul(p.repeat(2), 3, out=x),
    "through a view": _through_a_view,
    "beside a view": _beside_a_view,
}
MADE = {
    "zeros": lambda: minigrad.zeros(6),
    "numbers": lambda: minigrad.tensor([1.0, 2, 3, 4, 5, 6]),
    "range": lambda: minigrad.arange(6.0),
}
BY_NUMPY = {
    "sort": lambda x: x.sort()[0],
    "svdvals": lambda x: minigrad.linalg.svdvals(x.reshape(2, 3)),
    "fft": lambda x: minigrad.fft.fft(x).abs(),
    "i0e": minigrad.special.i0e,
}


@pytest.mark.parametrize("function", BY_NUMPY)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("made", MADE)
def test_what_the_step_makes_and_changes_is_no_constant(made, change, function, rng):
    """Also for what NumPy and SciPy compute, to which a replay gives the changed numbers."""

    def step(p):
        return BY_NUMPY[function](CHANGES[change](MADE[made](), p))

    compiled = minigrad.compile(step)  # not all of these can be recorded
    for _ in range(3):
        p = minigrad.from_numpy(rng.standard_normal(3).astype(np.float32))
        close(compiled(p), step(p))


@pytest.mark.parametrize("backend", ["numpy", "numba", "cupy"])
def test_a_gradient_that_is_a_constant_where_another_is_not(backend, rng):
    """Complex numbers written into zeros, transformed and read by their absolute values."""

    def step(p):
        whole = minigrad.zeros(6, 5, dtype=minigrad.complex64)
        whole[:4, :4] = p
        return minigrad.fft.irfft(whole, 8).square().sum() + minigrad.fft.ifft(whole).abs().sum()

    with backends.use(backend):
        compiled = minigrad.compile(step, fullgraph=True)
        for _ in range(3):
            p = rng.standard_normal((2, 4, 4)).astype(np.float32)
            p, q = (minigrad.from_numpy(p[0] + 1j * p[1]).requires_grad_() for _ in range(2))
            compiled(p).backward()
            step(q).backward()
            close(p.grad, q.grad)


class Twice(minigrad.autograd.Function):
    """Its gradient is a constant, whatever comes."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return minigrad.tensor([2.0, 2.0])


def test_a_gradient_that_is_made_out_of_numbers():
    compiled = minigrad.compile(Twice.apply, fullgraph=True)
    for _ in range(3):
        x = minigrad.ones(2, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [2, 2]
