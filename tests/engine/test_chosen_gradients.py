"""`autograd.grad` for some inputs computes no other gradients, and the same ones as for all."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from kernels import dispatch
from minigrad import backends
from minigrad.autograd import grad
from tests.engine.samples_more import ALL as SAMPLES
from tests.engine.test_operations import leaves

SEVERAL = [s for s in SAMPLES if s.grad and len(s.inputs) - len(s.frozen) > 1]


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SEVERAL])
def test_each_gradient_alone(sample):
    with backends.use("numpy"):
        inputs = leaves(sample)
        chosen = [x for x in inputs if x.requires_grad]
        output = sample.call(minigrad, *inputs)
        gradient = minigrad.ones_like(output)
        together = grad(output, chosen, gradient, retain_graph=True, allow_unused=True)
        for x, expected in zip(chosen, together, strict=True):
            (found,) = grad(output, x, gradient, retain_graph=True, allow_unused=True)
            if expected is None:
                assert found is None
            else:
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
        again = grad(output, chosen, gradient, allow_unused=True)
        for one, other in zip(together, again, strict=True):
            assert one is None if other is None else one.equal(other)


def launched(output, *inputs) -> set[str]:
    with dispatch.trace() as trace:
        grad(output, inputs, minigrad.ones_like(output), retain_graph=True)
    return {family for family, _ in trace.rows}


def test_no_other_gradient_is_computed():
    x, kernel = (minigrad.randn(*s, requires_grad=True) for s in ((2, 3, 8, 8), (4, 3, 3, 3)))
    with backends.use("numba"):
        y = minigrad.nn.functional.conv2d(x, kernel, padding=1)
        assert "conv2d_backward_weight" not in launched(y, x)
        assert "conv2d_backward_data" not in launched(y, kernel)
        z = y.relu()
        assert launched(z, y).isdisjoint({"conv2d_backward_weight", "conv2d_backward_data"})
        assert launched(z, x, kernel) > {"conv2d_backward_weight", "conv2d_backward_data"}


def test_anomalies_name_the_line_of_the_forward_pass():
    x, w = minigrad.full((2, 2), 3.0, requires_grad=True), minigrad.eye(2, requires_grad=True)
    with minigrad.autograd.detect_anomaly():
        y = x @ w  # this line
        with pytest.raises(RuntimeError, match="(?s)nan values in its 0th output.*this line"):
            grad(y, x, minigrad.full((2, 2), float("nan")))


def test_backward_into_some_leaves():
    x, w = minigrad.randn(3, 4, requires_grad=True), minigrad.randn(5, 4, requires_grad=True)
    y = minigrad.nn.functional.linear(x, w)
    y.sum().backward(inputs=[w], retain_graph=True)
    assert x.grad is None
    np.testing.assert_allclose(w.grad.numpy(), x.detach().numpy().sum(0)[None].repeat(5, 0), 1e-6)
    y.sum().backward()
    assert x.grad is not None


def test_hooks_after_a_node_see_all_gradients():
    x, w = minigrad.randn(3, 4, requires_grad=True), minigrad.randn(4, 5, requires_grad=True)
    y = x @ w
    seen = []
    y.grad_fn.register_hook(lambda given, made: seen.append([g is not None for g in given]))
    grad(y.sum(), x)
    assert seen == [[True, True]]


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SEVERAL if s.gradgrad])
def test_a_gradient_with_a_graph_leads_to_all_inputs(sample):
    """Also where the graph goes through the operation's own result."""
    with backends.use("numpy"):
        inputs = leaves(sample)
        chosen = [x for x in inputs if x.requires_grad]
        output = sample.call(minigrad, *inputs)
        gradient = minigrad.ones_like(output)
        for x in chosen:
            first = [
                grad(output, asked, gradient, create_graph=True, allow_unused=True)[0]
                for asked in ([x], [x, *chosen])
            ]
            if first[0] is None or not first[0].requires_grad:
                assert first[1] is None or not first[1].requires_grad
                continue
            options = {"retain_graph": True, "allow_unused": True}
            second = [grad(f.square().sum(), chosen, **options) for f in first]
            for one, other in zip(*second, strict=True):
                if one is None or other is None:
                    assert one is other
                else:
                    np.testing.assert_allclose(one.numpy(), other.numpy(), 1e-10, 1e-10)
