"""What a tensor keeps when it is changed in place: the wish for its gradient, its views."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

pytestmark = pytest.mark.usefixtures("reference_backend")

RETAINED = {
    "line": (lambda y: y.pow_(2), [1, 1, 1]),
    "part": (lambda y: y[0].fill_(5), [1, 1, 1]),
    "number": (lambda y: y.fill_(2), [1, 1, 1]),
    "leaf": (lambda y: y.copy_(mg.ones(3, requires_grad=True)), [1, 1, 1]),
    "not_recorded": (lambda y: y.detach().add_(1), [1, 1, 1]),
    "shape": (lambda y: y.unsqueeze_(0), [[1, 1, 1]]),
    "used_before": (lambda y: (y * 1).add_(1), [1, 1, 1]),
}


@pytest.mark.parametrize("name", RETAINED)
def test_the_gradient_that_is_retained_is_that_of_the_new_value(name):
    change, wanted = RETAINED[name]
    y = mg.tensor([1.0, 2.0, 3.0], requires_grad=True) * 2
    y.retain_grad()
    change(y)
    assert y.retains_grad
    y.sum().backward()
    assert y.grad.tolist() == wanted


def test_a_view_keeps_its_gradient_when_its_base_changes():
    y = mg.tensor([1.0, 2.0, 3.0], requires_grad=True) * 1
    view, other = y[:2], y[1:]
    view.retain_grad()
    y.mul_(3)
    assert view.retains_grad and not other.retains_grad and not y.retains_grad
    (view * view).sum().backward()
    assert view.grad.tolist() == [6, 12]


def test_hooks_stay_with_the_value_that_they_were_registered_for():
    seen = []
    y = mg.ones(3, requires_grad=True) * 1
    y.register_hook(lambda g: seen.append(("old", g.tolist())))
    y.mul_(2)
    y.register_hook(lambda g: seen.append(("new", g.tolist())))
    y.sum().backward()
    assert seen == [("new", [1, 1, 1]), ("old", [2, 2, 2])]


RESULTS = {
    "reshape": lambda x: x.transpose(0, 1).reshape(3, 8),
    "flatten": lambda x: x.mT.flatten(1),
    "expanded": lambda x: x[0, :1].expand(3, 4).reshape(-1),
    "roll": lambda x: x.roll(1),
    "batch of matrices": lambda x: x @ x[0].t(),
    "matrix @ vector": lambda x: x[0] @ x[0, 0],
    "vector @ matrix": lambda x: x[0, 0] @ x[0].t(),
    "dot": lambda x: x[0, 0].dot(x[0, 1]),
    "linear": lambda x: nn.functional.linear(x, x[0]),
    "LSTM": lambda x: nn.LSTM(4, 2)(x)[0],
    "GRU": lambda x: nn.GRU(4, 2, batch_first=True)(x)[0],
    "LSTMCell": lambda x: nn.LSTMCell(4, 2)(x[0])[1],
    "GRUCell": lambda x: nn.GRUCell(4, 2)(x[0]),
    "RNNCell": lambda x: nn.RNNCell(4, 2)(x[0]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_share_no_memory_are_no_views(name):
    """So that `detach_` takes them, as torch's."""
    x = mg.arange(24.0).reshape(2, 3, 4).clone().requires_grad_()
    y = RESULTS[name](x)
    assert y.requires_grad and not y._is_view() and not np.shares_memory(y.detach(), x.detach())
    if not name.endswith(("Cell", "LSTM", "GRU")):
        y.mul_(2)
    y.sum().backward()
    assert (x.grad != 0).any()
    assert y.detach_() is y and not y.requires_grad


def _transposed_base(y):
    row = y[0]
    y.t_()
    y.mul_(2)
    return row * y[0]


def _write_after_transposing(y):
    row = y[0]
    y.t_()
    row.mul_(2)
    y[1].mul_(3)
    return y * row


def _longer_base(y):
    rows = y[1:]
    y.unsqueeze_(0)
    y.mul_(2)
    return rows * y[0, 1:]


def _twice(y):
    row = y.t()[1]
    y.squeeze_().transpose_(0, 1)
    y[0] = 5.0
    return row * y


def _into_zeros(y):
    zeros = mg.zeros(3, 3, dtype=y.dtype)
    row = zeros[0]
    zeros.t_()
    zeros.add_(y)
    return row * 2


def _view_of_a_view(y):
    rows = y[1:]
    row = rows[0]
    rows.t_()
    rows.mul_(2)
    row.add_(1)
    return row + y


@pytest.mark.parametrize(
    "program",
    [
        _transposed_base,
        _write_after_transposing,
        _longer_base,
        _twice,
        _into_zeros,
        _view_of_a_view,
    ],
)
def test_views_of_a_base_that_gets_another_shape(program):
    x = mg.arange(9.0, dtype=mg.float64).reshape(3, 3).clone().requires_grad_()
    assert mg.autograd.gradcheck(lambda x: program(x * 1), x)
    y = x * 1
    y.t_()
    assert not y._is_view()


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "silu", "softplus", "gelu", "leaky_relu"])
def test_results_of_activations_may_change_as_in_torch(name):
    """Their gradients need the input alone, so that a residual can be added in place."""
    x = mg.linspace(-2, 2, 5).requires_grad_()
    wanted = mg.autograd.grad(getattr(nn.functional, name)(x).sum(), x)[0]
    y = getattr(nn.functional, name)(x)
    y += 1
    y.sum().backward()
    assert x.grad.equal(wanted)


def test_recorded_gradients_have_memory_of_their_own():
    """Later passes add to `.grad` in place, which is neither that of another leaf nor expanded."""
    x, y = (mg.ones(3, requires_grad=True) for _ in range(2))
    (x + y).sum().backward(create_graph=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [3, 3, 3] and y.grad.tolist() == [1, 1, 1]


def test_a_gradient_that_changes_later_was_not_saved_for_others():
    x, v = (mg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    y = x + v * v
    (y * y).sum().backward(create_graph=True)  # dy = 2 y is the gradient of x, and dv = 2 v dy
    x.sum().backward()
    assert x.grad.tolist() == [5, 13]
    (second,) = mg.autograd.grad(v.grad.sum(), v)  # of 4 v (x + v * v)
    assert second.tolist() == [16, 56]


def test_hooks_of_a_node_come_after_what_was_asked_for():
    x = mg.ones(2, requires_grad=True)
    y = x * 1
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
    asked, leaf = mg.autograd.grad(y.sum(), (y, x), retain_graph=True)
    assert asked.tolist() == y.grad.tolist() == [2, 2] and leaf.tolist() == [6, 6]
    y.grad = None
    y.sum().backward()
    assert y.grad.tolist() == [2, 2] and x.grad.tolist() == [6, 6]


def test_a_view_of_a_leaf_that_has_changed_before_belongs_to_it():
    x = mg.ones(3)
    view, other = x[:2], mg.ones(2)
    x.mul_(3)
    x.requires_grad_()
    assert view.grad_fn is not None
    (view * other).sum().backward()
    assert x.grad.tolist() == [1, 1, 0]


@pytest.mark.parametrize("name", ["mul_", "div_", "pow_", "atan2_", "hypot_", "fmod_", "xlogy_"])
def test_the_old_value_is_kept_where_the_result_is_converted(name):
    """Computed in float64, written into a tensor of float32."""
    grads = []
    for dtype in (mg.float64, mg.float32):
        x = mg.tensor([1.5, 2.5], dtype=dtype, requires_grad=True)
        b = mg.tensor([0.5, 2.0], dtype=mg.float64, requires_grad=True)
        y = x * 1
        getattr(y, name)(b)
        assert y.dtype is dtype
        y.sum().backward()
        grads.append((x.grad.double().numpy(), b.grad.numpy()))
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-6)


def test_ravel_lies_side_by_side_in_memory():
    x = mg.arange(6.0).clone()
    for apart in (x[::2], x[:1].expand(3), x.reshape(2, 3).t()):
        assert (
            apart.ravel().is_contiguous() and apart.reshape(-1).tolist() == apart.ravel().tolist()
        )
        apart.ravel().zero_()
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    x.reshape(2, 3).ravel().zero_()
    assert not x.any()


def test_a_copy_of_the_same_elements_has_their_gradient(torch):
    """Views that were made before learn of it, too."""
    found = []
    for m in (mg, torch):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        result = x * 3
        shared = result.detach()
        view = shared.unsqueeze(1)
        shared.copy_(result)
        found.append(
            [
                g.tolist()
                for y in (shared, view)
                for g in m.autograd.grad(y.sum(), x, retain_graph=True)
            ]
        )
    assert found[0] == found[1] == [[3, 3], [3, 3]]


def test_a_tensor_copied_onto_itself_is_left_alone():
    x = mg.ones(3).expand(2, 3)  # of which several elements are one
    assert x.copy_(x) is x and x._version == 0
    y = mg.ones(2, requires_grad=True) * 2
    node = y.grad_fn
    assert y.copy_(y).grad_fn is node
