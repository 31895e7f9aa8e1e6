"""Gradients of parts of a tensor are added up in one array, which nothing else may see before."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from minigrad.autograd import engine, part

SHAPE = (4, 5, 3)


def losses(rng):
    """Functions of a tensor: parts that overlap, come twice, are empty or come between others."""
    w = [mg.from_numpy(rng.standard_normal(s)) for s in ((4, 3), (5, 3), (4, 5, 3))]
    return {
        "a loop": lambda x: sum((x[:, t] * w[0]).sum() ** 2 for t in range(5)),
        "twice": lambda x: (x[1] * w[1]).sum() + (x[1] ** 2).sum() + x[1, 2].sum() ** 2,
        "overlapping": lambda x: (x[:, 1:4] ** 3).sum() + (x[1:, ::2] ** 2).sum(),
        "between others": lambda x: (
            (x**2).sum() + (x[0] ** 3).sum() + (x * w[2]).sum() + (x[:, 2] ** 2).sum() + x.sum()
        ),
        "others first": lambda x: (x[0] ** 3).sum() + (x[2] * 2).sum() + (x * w[2] * x).sum(),
        "empty": lambda x: x[:0].sum() + x[..., 3:].sum() + (x[0, 0] ** 2).sum(),
        "parts of parts": lambda x: (x[1:][0, 1:3] ** 2).sum() + (x[1:, 2][..., 0] ** 3).sum(),
        "chunks": lambda x: sum((c**2).sum() * i for i, c in enumerate(x.split(2, 1))),
        "a part of a chunk": lambda x: (
            (x.chunk(2, 1)[1][:, 0] ** 2).sum() + (x.unbind(0)[2][1:] ** 3).sum()
        ),
        "in place": lambda x: _changed(x).sum() ** 2,
        "a sum of parts": lambda x: ((x[0] + x[1]) * (x[2] + x[3]) * x[0]).sum(),
    }


def _changed(x):
    y = x * 1
    y[0] = y[1].clone() * y[2].clone()
    y[:, 1].mul_(2)
    return y[:3] * y[1:]


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("name", losses(np.random.default_rng()))
def test_as_with_arrays_of_zeros(name, leaf, rng, monkeypatch):
    loss = losses(rng)[name]
    values = rng.standard_normal(SHAPE)
    found = []
    for parts in (True, False):
        with monkeypatch.context() as patch:
            if not parts:  # each becomes a tensor where it is made
                patch.setattr(engine, "Part", type("Nothing", (), {}))
            x = mg.from_numpy(values.copy()).requires_grad_()
            loss(x if leaf else x * 1).backward()
            (alone,) = mg.autograd.grad(loss(x if leaf else x * 1), x)
            found.append((x.grad.numpy(), alone.numpy()))
    for ours in (*found[0], found[1][1]):
        np.testing.assert_allclose(ours, found[1][0], rtol=1e-12, atol=1e-12)
    x = mg.from_numpy(values).requires_grad_()
    assert mg.autograd.gradcheck(loss, x)
    assert mg.autograd.gradgradcheck(loss, x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "complex128"])
def test_of_other_dtypes(dtype, rng):
    x = mg.from_numpy(rng.integers(-4, 5, SHAPE).astype(np.float64)).to(getattr(mg, dtype))
    x.requires_grad_()
    sum((x[:, t] * (t + 1)).sum() for t in range(5)).real.backward()
    expected = np.broadcast_to(np.arange(1, 6)[:, None], SHAPE)
    np.testing.assert_array_equal(x.grad.real.to(mg.float64).numpy(), expected)
    assert x.grad.dtype == x.dtype


def test_what_has_seen_a_gradient_keeps_it():
    """Hooks, `retain_grad` and requested gradients get sums that do not grow any more."""
    x = mg.ones(3, 2, requires_grad=True)
    y = x * 1
    y.retain_grad()
    seen = []
    y.register_hook(lambda g: seen.append((g, g.tolist())))
    x.register_hook(lambda g: seen.append((g, g.tolist())))
    z = y * 1  # whose gradient, the sum of two parts, is that of y, too, and not to be written
    loss = (z[0] * 2).sum() + (z[1] * 3).sum() + (y[2] * 5).sum() + (y[0] * 7).sum() + x[1].sum()
    (requested,) = mg.autograd.grad(loss, z, retain_graph=True)
    loss.backward()
    assert requested.tolist() == [[2, 2], [3, 3], [0, 0]]
    assert y.grad.tolist() == [[9, 9], [3, 3], [5, 5]]
    assert x.grad.tolist() == [[9, 9], [4, 4], [5, 5]]
    assert len(seen) == 2 and all(g.tolist() == then for g, then in seen)
    assert all(type(g) is mg.Tensor for g, _ in seen) and type(x.grad) is mg.Tensor


def test_a_gradient_that_goes_two_ways_is_not_written():
    """The sum of parts of `z` is handed on to both inputs as it is."""
    a, b = (mg.ones(3, requires_grad=True) for _ in range(2))
    before = a[2:].sum() * 5 + b[1:2].sum() * 11  # whose nodes run after those of z
    z = a + b
    loss = before + z[:1].sum() * 2 + z[1:2].sum() * 3
    loss = loss + a[:1].sum() * 7 + b[2:].sum() * 13
    loss.backward()
    assert a.grad.tolist() == [9, 3, 5]
    assert b.grad.tolist() == [2, 14, 13]
    a.grad.zero_()
    assert b.grad.tolist() == [2, 14, 13]


def test_a_sum_that_was_handed_on_is_not_written():
    """The parts of `a` and `b` come after the sum of parts of `z`, which is that of both so far."""
    a, b = (mg.ones(3, requires_grad=True) for _ in range(2))
    first, second = a[2:] * 5, b[1:2] * 11
    z = a + b
    (first.sum() + second.sum() + z[:1].sum() * 2 + z[1:2].sum() * 3).backward()
    assert a.grad.tolist() == [2, 3, 5]
    assert b.grad.tolist() == [2, 14, 0]


def test_outputs_of_other_shapes_than_the_first():
    """Of a node with several outputs: a function of the program, and a hook, see their shapes."""

    class Same(mg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = mg.ones(4, 3, requires_grad=True)
    _, second = x.split([1, 3])
    seen = []
    y = Same.apply(second)
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs[0].shape))
    y.sum().backward()
    assert seen == [(3, 3)] and x.grad.sum() == 18


def test_hooks_after_a_node_get_tensors():
    x = mg.ones(3, 2, requires_grad=True)
    y = (x * 1)[1]
    kinds = []
    y.grad_fn.register_hook(lambda inputs, outputs: kinds.extend(map(type, (*inputs, *outputs))))
    (y * 2).sum().backward()
    assert kinds == [mg.Tensor, mg.Tensor] and x.grad.tolist() == [[0, 0], [2, 2], [0, 0]]


def test_memory_grows_with_the_tensor_not_with_its_parts(monkeypatch):
    """One array of zeros for a loop over all positions."""
    made = []
    zeros = np.zeros
    monkeypatch.setattr(part.np, "zeros", lambda *args: made.append(args) or zeros(*args))
    x = mg.ones(50, 4, requires_grad=True)
    y = x * 1
    sum(y[t].sum() for t in range(50)).backward()
    assert made.count(((50, 4), np.dtype(np.float32))) == 1
    assert x.grad.tolist() == mg.ones(50, 4).tolist()


def test_parts_beside_gradients_of_each_element():
    """Within `vmap` a tensor that all elements share gets both kinds."""

    def loss(x, c):
        y = x * 1
        shared = (y[0] ** 2).sum() + (y[2] * 3).sum()
        return shared + (y[1] * c).sum() + (y * c).sum() + (y[0] * 2).sum()

    x = mg.arange(6.0).reshape(3, 2)
    c = mg.tensor([1.0, 2.0, 3.0])
    found = mg.func.vmap(mg.func.grad(loss), in_dims=(None, 0))(x, c)
    each = mg.stack([mg.func.grad(loss)(x, one) for one in c])
    assert found.tolist() == each.tolist()
    leaf = x.clone().requires_grad_()
    mg.func.vmap(loss, in_dims=(None, 0))(leaf, c).sum().backward()
    assert leaf.grad.tolist() == each.sum(0).tolist()
