"""Custom operations: autograd.Function."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from minigrad import autograd
from minigrad.autograd import Function, gradcheck, gradgradcheck
from minigrad.autograd.function import once_differentiable


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Scaled(Function):
    """x * w * scale, with setup_context and an argument that is not a tensor."""

    @staticmethod
    def forward(x, w, scale):
        return x * w * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.scale = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, True, False)
        return g * w * ctx.scale, g * x * ctx.scale, None


def inputs(*shapes):
    rng = np.random.default_rng(5)
    return [mg.tensor(rng.standard_normal(s), requires_grad=True) for s in shapes]


def test_first_and_second_derivatives():
    (x,) = inputs((3, 2))
    assert gradcheck(Exp.apply, x)
    assert gradgradcheck(Exp.apply, x)


def test_the_node_shows_what_it_saved(torch):
    """Its printed name is that of torch's class, and `saved_tensors` is no method."""
    for m in (mg, torch):

        class Cube(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

        node = Cube.apply(m.ones(2, requires_grad=True)).grad_fn
        assert node.saved_tensors[0].tolist() == [1, 1]
        assert repr(node).startswith(f"<{m.__name__}.autograd.function.CubeBackward object at 0x")


def test_setup_context_and_plain_arguments():
    x, w = inputs((3,), (3,))
    assert gradcheck(lambda x, w: Scaled.apply(x, w, 2.5), (x, w))
    assert gradgradcheck(lambda x, w: Scaled.apply(x, w, 2.5), (x, w))
    assert Scaled.apply(x, w, 1.0).grad_fn.name() == "ScaledBackward"


def test_gradient_is_reduced_to_the_input_shape():
    class Add(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, g

    a, b = inputs((3, 2), (2,))
    Add.apply(a, b).sum().backward()
    assert b.grad.tolist() == [3.0, 3.0]
    assert not np.shares_memory(a.grad.numpy(), b.grad.numpy())


def test_several_outputs_and_missing_gradients():
    seen = []

    class Both(Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            index = x.argmax()
            ctx.mark_non_differentiable(index)
            return x * 2, x * 3, index

        @staticmethod
        def backward(ctx, a, b, _):
            seen.append((a, b))
            return (a if a is not None else 0 * b) * 2 + b * 3, None

    (x,) = inputs((2,))
    _, three, index = Both.apply(x, True)
    assert not index.requires_grad and three.requires_grad
    three.sum().backward()
    assert seen[-1][0].tolist() == [0, 0] and x.grad.tolist() == [3, 3]
    Both.apply(x, False)[1].sum().backward()
    assert seen[-1][0] is None


def test_backward_twice_needs_retain_graph():
    (x,) = inputs((2,))
    y = Exp.apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_saved_tensor_changed_in_place():
    (x,) = inputs((2,))
    y = Exp.apply(x * 1)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_mark_dirty_changes_the_input():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    (leaf,) = inputs((2,))
    x = leaf * 3
    y = Double.apply(x)
    assert y is x
    y.sum().backward()
    assert leaf.grad.tolist() == [6.0, 6.0]
    leaf.grad = None
    x = leaf * 3
    part = x[:1]
    assert Double.apply(part) is part and part.grad_fn is not None
    (x * x).sum().backward()  # to which the part belongs
    assert leaf.grad.tolist() == (leaf * mg.tensor([72.0, 18.0])).tolist()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        Double.apply(leaf[:1])


def test_once_differentiable():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    (x,) = inputs((2,))
    (g,) = autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach(), 3 * x.detach().numpy() ** 2)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


@pytest.mark.parametrize(
    ("result", "message"),
    [((1, 2), "incorrect number of gradients"), (mg.zeros(7), "invalid gradient at index 0")],
)
def test_wrong_gradients(result, message):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return result

    (x,) = inputs((2,))
    with pytest.raises(RuntimeError, match=message):
        Wrong.apply(x).sum().backward()


def test_not_recorded_without_gradients():
    x = mg.ones(2)
    assert Exp.apply(x).grad_fn is None
    with mg.no_grad():
        assert Exp.apply(x.requires_grad_()).grad_fn is None
    with pytest.raises(RuntimeError, match="apply"):
        Exp()


def test_returning_the_input_gives_another_tensor():
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return 5 * g

    (x,) = inputs((2,))
    y = Identity.apply(x)
    assert y is not x and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_a_function_that_saves_for_forward_mode(torch):
    def run(t):
        class Cube(t.autograd.Function):
            @staticmethod
            def forward(x):
                return x**3

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)
                ctx.save_for_forward(*inputs)

            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.saved_tensors[0] ** 2 * g

            @staticmethod
            def jvp(ctx, tangent):
                return 3 * ctx.saved_tensors[0] ** 2 * tangent

        x = t.tensor([1.0, 2.0], requires_grad=True)
        Cube.apply(x).sum().backward()
        value, slope = t.func.jvp(Cube.apply, (x.detach(),), (t.ones(2),))
        return x.grad.tolist(), value.tolist(), slope.tolist()

    assert run(mg) == run(torch)


def test_a_function_without_results():
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return ()

        @staticmethod
        def backward(ctx):
            raise AssertionError("nothing has a gradient")

    assert Nothing.apply(mg.ones(2, requires_grad=True)) == ()
