"""Hooks on the tensors that operations save for backward, as torch calls them."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad
from minigrad import backends

PROGRAMS = {
    "product": lambda m, x, w: (x * w).sum(),
    "output": lambda m, x, w: (x.exp() + w.sigmoid()).sum(),
    "matmul": lambda m, x, w: (x @ w.t()).relu().sum(),
    "in place": lambda m, x, w: (x * 1).mul_(w).exp_().sum(),
    "softmax": lambda m, x, w: (m.softmax(x * w, 1) ** 2).sum(),
    "loss": lambda m, x, w: m.nn.functional.cross_entropy(x * w, m.tensor([1, 0, 2])),
    "views": lambda m, x, w: (x[:, 1:] * w[:, :-1].clone()).norm(),
    "scatter": lambda m, x, w: x.gather(1, m.tensor([[0], [1], [3]])).prod() * w[0, 0],
}


def gradients(m, program, hooks=None, **options):
    x, w = (m.tensor(a, requires_grad=True) for a in np.random.default_rng(0).random((2, 3, 4)))
    if hooks is None:
        return m.autograd.grad(program(m, x, w), [x, w], **options)
    with hooks:
        loss = program(m, x, w)
    return m.autograd.grad(loss, [x, w], **options)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_come_from_the_unpacked_tensors(program, torch):
    """A hook that doubles what is saved changes gradients as torch's do; one that does not, not."""

    def hooks(m, factor):
        return m.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(),), lambda p: p[0] * factor)

    with backends.use("numpy"):
        plain, kept = gradients(minigrad, program), gradients(minigrad, program, hooks(minigrad, 1))
        theirs = gradients(torch, program, hooks(torch, 1))
    for a, b, c in zip(plain, kept, theirs, strict=True):
        np.testing.assert_allclose(a, b, 1e-12)
        np.testing.assert_allclose(b, c, 1e-9)


def test_hooks_change_what_backward_sees(torch):
    for m in (minigrad, torch):
        hooks = m.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2)
        a, b = gradients(m, PROGRAMS["product"])
        c, d = gradients(m, PROGRAMS["product"], hooks)
        np.testing.assert_allclose(c, 2 * a)
        np.testing.assert_allclose(d, 2 * b)


def test_second_derivatives_go_through_unpacked_tensors(torch):
    found = []
    for m in (minigrad, torch):
        x = m.tensor([0.3, -0.7], requires_grad=True)
        with m.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            y = (x * 2).tanh() * x
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
        found.append(m.autograd.grad((g * g).sum(), x)[0].numpy())
    np.testing.assert_allclose(*found, 1e-5)


def test_custom_functions_save_through_hooks(torch):
    for m in (minigrad, torch):

        class Square(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                return 2 * g * ctx.saved_tensors[0]

        seen = []
        x = m.tensor([3.0], requires_grad=True)

        def pack(t, seen=seen):
            seen.append(t)
            return 5.0

        with m.autograd.graph.saved_tensors_hooks(pack, lambda v, x=x: x + v):
            y = Square.apply(x)
        y.backward()
        assert len(seen) == 1 and x.grad.item() == 16


def test_nested_disabled_and_wrong_hooks(torch):
    for m in (minigrad, torch):
        graph = m.autograd.graph
        x = m.ones(2, requires_grad=True)
        calls = []

        def hook(name, calls=calls):
            return lambda t: calls.append(name) or t

        with graph.saved_tensors_hooks(hook("outer"), hook("-")):
            with graph.saved_tensors_hooks(hook("inner"), hook("-")):
                (x * x).exp()
            x.exp()
        x.exp()
        assert set(calls[:-1]) == {"inner"} and calls[-1] == "outer"
        refuse = graph.disable_saved_tensors_hooks("not here")
        with pytest.raises(RuntimeError, match="not here"), refuse:
            graph.saved_tensors_hooks(hook, hook).__enter__()
        with graph.disable_saved_tensors_hooks("in this thread"), ThreadPoolExecutor(1) as pool:
            pool.submit(graph.saved_tensors_hooks(hook, hook).__enter__).result()
        with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
            y = x.exp().sum()
        with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
            y.backward()


def test_what_is_saved_on_the_cpu_may_be_overwritten(torch):
    for m in (minigrad, torch):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        y = x * 1
        with m.autograd.graph.save_on_cpu():
            z = (y * y).sum()
        (g,) = m.autograd.grad(z, x)
        assert g.tolist() == [2, 4]


def test_edges(torch):
    for m in (minigrad, torch):
        x = m.ones(2, requires_grad=True)
        y = x.exp()
        edge = m.autograd.graph.get_gradient_edge(y)
        assert edge.output_nr == 0 and edge.node.name() == "ExpBackward0"
        assert m.autograd.graph.get_gradient_edge(x).node.name().endswith("AccumulateGrad")
        with pytest.raises(RuntimeError, match="gradient edge"):
            m.autograd.graph.get_gradient_edge(m.ones(2))


def test_gradients_of_edges(torch):
    found = []
    for m in (minigrad, torch):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        y = x * x
        total = (y * 3).sum()
        edge = m.autograd.graph.get_gradient_edge
        of_y, of_x, of_total = edge(y), edge(x), edge(total)
        del y
        grads = m.autograd.grad(total, (of_y, of_x, x), retain_graph=True)
        grads += m.autograd.grad(of_total, of_y, m.tensor(2.0), retain_graph=True)
        m.autograd.backward(total, inputs=of_x)
        found.append([g.tolist() for g in (*grads, x.grad)])
    assert found[0] == found[1] == [[3, 3], [6, 12], [6, 12], [6, 6], [6, 12]]


@pytest.mark.gpu
def test_saved_on_the_cpu_and_used_on_the_gpu():
    x = minigrad.arange(4.0, device="cuda").requires_grad_()
    seen = []
    for pinned in (False, True):
        hooks = minigrad.autograd.graph.save_on_cpu(pin_memory=pinned)
        pack = hooks.pack_hook
        hooks.pack_hook = lambda t, pack=pack: seen.append(pack(t)) or seen[-1]
        with hooks:
            y = (x.exp() * x).sum()
        assert all(kept.device.type == "cpu" for _, kept in seen)
        (g,) = minigrad.autograd.grad(y, x)
        assert g.is_cuda
        wanted = np.exp(np.arange(4)) * (1 + np.arange(4))
        np.testing.assert_allclose(g.cpu(), wanted, 1e-6)


SHOWN = {
    "output": lambda m, x, w: (x * 2).exp(),
    "leaf": lambda m, x, w: m.square(x),
    "result": lambda m, x, w: (x + 1) * (w * 2),
    "product": lambda m, x, w: (x + 1) @ w.transpose(0, 1),
    "softmax": lambda m, x, w: x.softmax(-1),
    "in place": lambda m, x, w: (x + 1).tanh_(),
    "several": lambda m, x, w: x.prod(),
    "constant": lambda m, x, w: x * m.ones(3, 4),
}


@pytest.mark.parametrize("program", SHOWN.values(), ids=SHOWN)
def test_pack_sees_tensors_with_their_place_in_the_graph(program, torch):
    def seen(m):
        found = []

        def pack(t):
            node = t.grad_fn and t.grad_fn.name()
            found.append((tuple(t.shape), t.requires_grad, t.is_leaf, node or ""))
            return t

        x, w = (m.ones(3, 4, requires_grad=True) for _ in range(2))
        with m.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = program(m, x, w)
        y.sum().backward()
        return sorted(found), x.grad.tolist()

    mine, theirs = seen(minigrad), seen(torch)
    assert mine[0] == theirs[0]
    np.testing.assert_allclose(mine[1], theirs[1], 1e-6)


def test_pack_of_a_function_sees_its_output(torch):
    def seen(m):
        class Exp(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = x.exp()
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx, g):
                return g * ctx.saved_tensors[0]

        found = []
        with m.autograd.graph.saved_tensors_hooks(
            lambda t: (found.append((t.requires_grad, t.grad_fn.name())), t)[1], lambda t: t
        ):
            y = Exp.apply(m.ones(2, requires_grad=True))
        y.sum().backward()
        return found

    assert seen(minigrad) == seen(torch) == [(True, "ExpBackward")]


def test_a_hook_that_keeps_the_tensor_makes_no_cycle():
    gc.collect()
    gc.disable()
    try:
        with minigrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = (minigrad.ones(3, requires_grad=True) * 2).exp()
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()
