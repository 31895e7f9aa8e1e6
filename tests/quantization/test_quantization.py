"""Inference in 8-bit integers: close to float32, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad import backends, nn
from minigrad.quantization import QuantizedConv2d, QuantizedLinear, quantize_dynamic


def trained(steps: int = 100) -> tuple[nn.Module, minigrad.Tensor, minigrad.Tensor]:
    """A small network after a few epochs on digits, and the test images and classes."""
    minigrad.manual_seed(0)
    images, classes = minigrad.datasets.digits().tensors
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding="same"), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 16, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = minigrad.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        batch = slice(step * 128 % 1408, step * 128 % 1408 + 128)
        loss = nn.functional.cross_entropy(model(images[batch]), classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), *minigrad.datasets.digits(train=False).tensors


def accuracy(model: nn.Module, images, classes) -> float:
    with minigrad.no_grad():
        return (model(images).argmax(1) == classes).float().mean().item()


@pytest.fixture(scope="module")
def digits():
    with backends.use("numpy"):
        return trained()


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_digits_within_half_a_point(digits, backend):
    model, images, classes = digits
    with backends.use(backend):
        small = quantize_dynamic(model)
        assert isinstance(small[0], QuantizedConv2d) and isinstance(small[-1], QuantizedLinear)
        assert isinstance(model[0], nn.Conv2d), "the model itself stays"
        full, rounded = accuracy(model, images, classes), accuracy(small, images, classes)
    assert full > 0.9
    assert abs(full - rounded) <= 0.005
    weights = sum(b.nbytes for n, b in small.named_buffers() if n.endswith("weight"))
    assert weights * 4 == sum(p.nbytes for n, p in model.named_parameters() if "weight" in n)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(19, 7), (3, 5, 19)),
        (lambda: nn.Linear(8, 4, bias=False), (8,)),
        (lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 9, 7)),
        (lambda: nn.Conv2d(4, 6, (3, 1), groups=2, dilation=2), (2, 4, 9, 7)),
        (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect", bias=False), (2, 6, 6)),
        (lambda: nn.Conv2d(2, 3, 4, padding="same"), (1, 2, 6, 6)),
    ],
)
def test_layers(layer, shape, rng):
    minigrad.manual_seed(1)
    layer = layer()
    x = minigrad.from_numpy(rng.standard_normal(shape).astype(np.float32))
    small = quantize_dynamic(layer)
    with minigrad.no_grad(), backends.use("numpy"):
        exact, rounded = layer(x), small(x)
    assert rounded.shape == exact.shape and rounded.dtype == exact.dtype
    error = (exact - rounded).abs().max() / exact.abs().max()
    assert 0 < error < 0.03
    width = layer.weight.abs().reshape(layer.weight.shape[0], -1).amax(1) / 254
    gap = (small.dequantized() - layer.weight).abs().reshape(layer.weight.shape[0], -1).amax(1)
    assert (gap <= width * 1.001).all()


def test_only_some_layers_and_in_place():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    found = minigrad.quantization.quantize_dynamic(model, {nn.Linear}, minigrad.qint8, inplace=True)
    assert found is model
    assert type(model[0]) is nn.Conv2d and type(model[2]) is QuantizedLinear
    other = quantize_dynamic(
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), {nn.Linear}
    )
    other.load_state_dict(model.state_dict())
    x = minigrad.rand(1, 1, 4, 4)
    with minigrad.no_grad():
        assert other(x).equal(model(x))


def test_what_it_refuses():
    layer = quantize_dynamic(nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match=r"no gradient; call `eval\(\)` on the model"):
        layer(minigrad.ones(2, 3, requires_grad=True))
    assert not layer.eval()(minigrad.ones(2, 3, requires_grad=True)).requires_grad  # as torch
    layer.train()
    with pytest.raises(RuntimeError, match=r"expected input \(..., 3\)"):
        layer(minigrad.ones(2, 4))
    with pytest.raises(NotImplementedError, match="not of LSTM"):
        quantize_dynamic(nn.LSTM(2, 2), {nn.LSTM})
    with pytest.raises(NotImplementedError, match="qint8 only"):
        quantize_dynamic(nn.Linear(2, 2), dtype=minigrad.float16)
