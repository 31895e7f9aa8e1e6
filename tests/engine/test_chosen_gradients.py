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


def test_no_other_gradient_of_a_line_is_computed():
    x, w = (minigrad.randn(4, 3, requires_grad=True) for _ in range(2))
    with backends.use("numba"):
        y = (x * 1) / w
        counts = []
        for inputs in ((x,), (w,), (x, w)):
            with dispatch.trace() as trace:
                grad(y, inputs, minigrad.ones_like(y), retain_graph=True)
            counts.append(sum(f.startswith("pointwise.div.vjp") for f, _ in trace.rows))
    assert counts == [1, 1, 2]


@pytest.mark.parametrize("order", [1, 2])
def test_each_gradient_of_a_line_as_if_it_were_the_only_one(order, rng):
    """In any order of derivatives, whether the other input has a gradient or not."""
    lines = (
        lambda x, y: x / y,
        lambda x, y: x * y,
        lambda x, y: minigrad.atan2(x, y),
        lambda x, y: x.abs() ** y,
        lambda x, y: minigrad.lerp(x, y, 0.3) * minigrad.hypot(x, y),
        lambda x, y: minigrad.where(x > y, x * x, y * x),
        lambda x, y: minigrad.logaddexp(x, y) * minigrad.maximum(x, y),
    )
    for line in lines:
        values = [minigrad.from_numpy(rng.uniform(0.5, 2.0, (2, 3))) for _ in range(2)]
        for chosen in (0, 1):
            found = []
            for others in (True, False):
                xs = [v.clone().requires_grad_(others or i == chosen) for i, v in enumerate(values)]
                result = line(*xs).sum()
                for _ in range(order):
                    (slope,) = grad(result, xs[chosen], create_graph=True, allow_unused=True)
                    slope = minigrad.zeros_like(xs[chosen]) if slope is None else slope
                    result = (slope**2).sum() + xs[chosen].sum()
                found.append(slope.tolist())
            np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


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
