"""`minigrad.library`: functions of a program as operations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minigrad

_numbers = itertools.count()


def name():
    """A new one for each definition: those of torch live as long as the process."""
    return f"minigrad_tests::op{next(_numbers)}"


def _values(t, x):
    """Operations with gradients, options and several results."""
    given = {"x": t.Tensor, "return": t.Tensor}

    def sine(x):
        return t.from_numpy(np.sin(x.numpy()))

    sine.__annotations__ = given
    op = t.library.custom_op(name(), sine, mutates_args=())

    @op.register_fake
    def _(x):
        return t.empty_like(x)

    op.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )

    def scaled(x, k=2.0, *, shift=0):
        return x * k + shift, x + k

    scaled.__annotations__ = {"x": t.Tensor, "k": float, "shift": int,
                              "return": tuple[t.Tensor, t.Tensor]}  # fmt: skip
    title = name()
    other = t.library.custom_op(title, mutates_args=())(scaled)
    seen = []

    def setup(ctx, inputs, keyword_only_inputs, output):
        seen.append((len(inputs), keyword_only_inputs, len(output)))
        ctx.k = inputs[1]

    def backward(ctx, g, h):
        return g * ctx.k + h, None

    t.library.register_autograd(title, backward, setup_context=setup)
    leaf = t.from_numpy(x).requires_grad_()
    first, second = other(op(leaf), shift=1)
    (first.sum() + (second**2).sum()).backward()
    space, _, short = title.partition("::")
    again = getattr(getattr(t.ops, space), short)(leaf.detach(), 3.0)
    node = op(leaf).grad_fn.name().replace(title, "")
    return [first, second, leaf.grad, *again], seen, node.startswith("GeneratedBackwardFor_")


def test_operations_as_torch(torch, rng):
    x = rng.standard_normal((3, 4))
    (mine, *others), (theirs, *wanted) = (_values(t, x) for t in (minigrad, torch))
    assert others == wanted
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)


def test_gradients_of_the_second_order(rng):
    op = minigrad.library.custom_op(name(), lambda x: x**3, mutates_args=())
    op.register_autograd(
        lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = minigrad.from_numpy(rng.standard_normal(4)).requires_grad_()
    assert minigrad.autograd.gradcheck(op, x) and minigrad.autograd.gradgradcheck(op, x)


def test_what_is_changed_in_place():
    op = minigrad.library.custom_op(
        name(), lambda x: x.numpy().__iadd__(1) is None or None, mutates_args={"x"}
    )
    x = minigrad.zeros(2, requires_grad=True) * 1
    y = x.exp()
    with minigrad.no_grad():
        op(y)
    assert y.tolist() == [2, 2] and y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="non-functional operator"):
        op.register_autograd(lambda ctx, g: g)


def test_implementations_by_device():
    title = name()
    op = minigrad.library.custom_op(title, lambda x: x + 1, mutates_args=(), device_types="cuda")
    with pytest.raises(NotImplementedError, match="register_kernel"):
        op(minigrad.ones(2))
    minigrad.library.register_kernel(title, "cpu")(lambda x: x + 2)
    assert op(minigrad.ones(2)).tolist() == [3, 3]
    op.register_kernel(None, lambda x: x + 3)
    assert op.default(minigrad.ones(2)).tolist() == [3, 3]


def test_a_compiled_function_calls_it_each_time():
    op = minigrad.library.custom_op(
        name(), lambda x: minigrad.from_numpy(np.sin(x.numpy())), mutates_args=()
    )
    compiled = minigrad.compile(lambda x: op(x * 2) + 1)
    for value in (1.0, 2.0, 3.0, 4.0):
        found = compiled(minigrad.full((2,), value, dtype=minigrad.float64))
        assert found[0].item() == pytest.approx(np.sin(2 * value) + 1)


def _error(t, program):
    x = t.ones(2, requires_grad=True)

    def same(x):
        return x

    same.__annotations__ = {"x": t.Tensor, "return": t.Tensor}
    with pytest.raises(Exception) as caught:
        program(t, t.library.custom_op(name(), same, mutates_args=()), x, same)
    return caught.type


@pytest.mark.parametrize(
    "program",
    [
        lambda t, op, x, _: op(x.detach()),
        lambda t, op, x, _: (
            op.register_kernel(None, lambda x: x.clone()) and op(x).sum().backward()
        ),
        lambda t, op, x, same: t.library.custom_op("nameless", mutates_args=())(same),
        lambda t, op, x, same: t.library.custom_op(name(), same, mutates_args=("y",)),
        lambda t, op, x, _: t.library.register_fake("minigrad_tests::absent")(op),
    ],
)
def test_errors(torch, program):
    mine, theirs = (_error(t, program) for t in (minigrad, torch))
    assert issubclass(mine, theirs) or issubclass(theirs, mine)


def test_tensors_in_lists():
    op = minigrad.library.custom_op(name(), lambda xs: sum(xs), mutates_args=())
    xs = [minigrad.ones(2), minigrad.ones(2)]
    assert op(xs).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="tensors in lists"):
        op([x.requires_grad_() for x in xs])
    with pytest.raises(ValueError, match=r"taken by minigrad\.ops\.linalg"):
        minigrad.library.custom_op("linalg::f", sum, mutates_args=())
