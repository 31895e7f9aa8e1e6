"""The same table of operations on a GPU: values and gradients equal those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from tests.engine.samples_layers import SAMPLES

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SAMPLES])
def test_gpu_equals_cpu(sample):
    results = []
    for place in ("cpu", "cuda"):
        inputs = [mg.tensor(a, device=place) for a in sample.arrays(np.float32)]
        for i, x in enumerate(inputs):
            x.requires_grad = sample.grad and x.is_floating_point() and i not in sample.frozen
        out = sample.call(mg, *inputs)
        assert out.device.type == place
        if out.requires_grad:
            out.backward(mg.ones_like(out))
        grads = [x.grad for x in inputs if x.grad is not None]
        assert all(g.device.type == place for g in grads)
        results.append([t.detach().cpu().numpy() for t in (out, *grads)])
    eps = np.finfo(np.float32).eps
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1000 * eps, atol=1000 * eps)


def test_moving_is_explicit_and_differentiable():
    x = mg.ones(3, requires_grad=True)
    y = x.cuda() * 2
    assert y.is_cuda and y.device == mg.device("cuda", 0)
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        y.detach().numpy()
    y.sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [2, 2, 2]


def test_in_place_and_indexing():
    x = mg.zeros(4, 3, device="cuda")
    x[1] = 5
    x[mg.tensor([0, 3], device="cuda")] += 1
    x.add_(1).t()[0].mul_(2)
    expected = np.array([[4, 2, 2], [12, 6, 6], [2, 1, 1], [4, 2, 2]], np.float32)
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    mg.manual_seed(0)
    a = mg.rand(5, device="cuda").cpu()
    mg.manual_seed(0)
    assert a.equal(mg.rand(5))
