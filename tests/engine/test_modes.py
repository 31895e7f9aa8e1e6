"""Anomaly detection, default devices, memory figures, and shape methods that work in place."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest

import minigrad
from minigrad.autograd import detect_anomaly, set_detect_anomaly
from minigrad.autograd.mode import unusual


def test_a_nan_names_the_line_of_the_forward_pass():
    x = minigrad.tensor([0.0, 4.0], requires_grad=True)
    with detect_anomaly():
        y = (x * 0).sqrt()
        line = inspect.currentframe().f_lineno - 1
        with pytest.raises(RuntimeError, match="SqrtBackward0' returned nan values") as caught:
            (y * 0).sum().backward()
    assert f"test_modes.py, line {line}: y = (x * 0).sqrt()" in str(caught.value)
    (x * 0).sqrt().sum().backward()  # outside of the block nothing is searched for


def test_an_error_in_backward_names_the_line():
    class Broken(minigrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ValueError("broken")

    with set_detect_anomaly(True, check_nan=False):
        y = Broken.apply(minigrad.ones(2, requires_grad=True))
        with pytest.raises(ValueError, match="broken") as caught:
            y.sum().backward()
    assert "y = Broken.apply" in "".join(caught.value.__notes__)
    assert not minigrad.is_anomaly_enabled()


@pytest.mark.parametrize(
    "block",
    [
        lambda: minigrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        lambda: minigrad.autocast("cpu"),
        lambda: detect_anomaly(),
    ],
    ids=["hooks", "autocast", "anomaly"],
)
def test_rare_modes_are_looked_at_while_a_block_lasts(block):
    """Also in another thread, and no longer after an error."""
    seen = []

    def work():
        with block():
            seen.append(len(unusual))

    with pytest.raises(ZeroDivisionError), block():
        assert len(unusual) == 1
        with detect_anomaly():
            seen.append(len(unusual))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen[0] in (1, 2) and seen[1] == 2 and len(unusual) == 1
        raise ZeroDivisionError
    assert not unusual


def test_default_device():
    assert minigrad.get_default_device() == minigrad.device("cpu")
    with minigrad.device("cpu"):
        assert minigrad.zeros(2).device.type == "cpu"
    with minigrad.device("cuda"):
        assert minigrad.get_default_device().type == "cuda"
        assert minigrad.zeros(2, device="cpu").device.type == "cpu"
        assert minigrad.ones_like(minigrad.zeros(2, device="cpu")).device.type == "cpu"
        if not minigrad.cuda.is_available():
            with pytest.raises(RuntimeError, match='device "cuda"'):
                minigrad.zeros(2)
    try:
        minigrad.set_default_device("cuda")
        assert minigrad.get_default_device().type == "cuda"
    finally:
        minigrad.set_default_device(None)
    assert minigrad.rand(2).device.type == "cpu"


def test_memory_figures_on_the_cpu():
    from minigrad.cuda import memory

    kept = minigrad.zeros(1000, 500)
    try:
        assert memory.memory_allocated("cpu") >= kept.nbytes
        memory.reset_peak_memory_stats("cpu")
        before = memory.memory_allocated("cpu")
        big = minigrad.ones(1000, 1000)
        assert memory.memory_allocated("cpu") - before >= big.nbytes
        del big
        assert memory.memory_allocated("cpu") - before < 1e6
        assert memory.max_memory_allocated("cpu") - before >= 4e6
        memory.reset_peak_memory_stats("cpu")
        assert memory.max_memory_allocated("cpu") - before < 1e6
        assert "allocated_bytes.all.peak" in memory.memory_summary("cpu")
    finally:
        memory.stop_counting()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("t", ()), ("transpose", (0, 1)), ("swapaxes", (1, 0)), ("swapdims", (0, 1)),
        ("squeeze", ()), ("unsqueeze", (1,)),
    ],
)  # fmt: skip
def test_shape_methods_in_place(name, args):
    x = minigrad.rand(2, 3, requires_grad=True)
    for requires_grad in (False, True):
        y = x.detach().clone() if not requires_grad else x * 1
        expected = getattr(y, name)(*args)
        assert getattr(y, f"{name}_")(*args) is y
        assert y.shape == expected.shape and y.equal(expected)
    (y * y).sum().backward()
    np.testing.assert_array_equal(x.grad, 2 * x.detach().numpy())
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        getattr(x, f"{name}_")(*args)


def test_shape_methods_share_memory_and_keep_the_graph():
    base = minigrad.arange(6.0).reshape(2, 3)
    base.t_().mul_(2)
    assert base.tolist() == [[0, 6], [2, 8], [4, 10]]
    x = minigrad.ones(2, 3, requires_grad=True)
    y = x * 3
    y.t_()
    y[0] = 5
    y.sum().backward()
    assert x.grad.tolist() == [[0, 3, 3], [0, 3, 3]]


def test_resize():
    x = minigrad.arange(6.0)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_as_(minigrad.zeros(3, 2)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert minigrad.zeros(2).resize_(3, 3).shape == (3, 3)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        minigrad.ones(2, requires_grad=True).resize_(1)


def test_as_strided():
    x = minigrad.arange(12.0).reshape(3, 4)
    view = x.t()[1:]
    assert view.as_strided((2,), (3,)).tolist() == [1, 4]
    view.as_strided((2,), (3,), 0).fill_(7)
    assert x[0].tolist() == [7, 1, 2, 7]
    windows = minigrad.arange(5.0).requires_grad_()
    windows.as_strided((3, 3), (1, 1)).sum().backward()
    assert windows.grad.tolist() == [1, 2, 3, 2, 1]
    for size, stride, offset, message in (
        ((2,), (1, 1), 0, "mismatch in length"),
        ((13,), (1,), 0, "out of bounds for storage of size 12"),
        ((2,), (-1,), 3, "Negative strides"),
        ((2,), (1,), -1, "invalid storage offset"),
    ):
        with pytest.raises(RuntimeError, match=message):
            x.as_strided(size, stride, offset)


def test_models_on_the_device_meta():
    nn = minigrad.nn
    with minigrad.device("meta"):
        model = nn.Sequential(
            nn.Linear(100_000, 100_000), nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LSTM(4, 5)
        )
    weight = model[0].weight
    assert weight.is_meta and weight.device.type == "meta" and not weight.is_cuda
    assert sum(p.numel() for p in model.parameters()) > 10**10
    assert weight.t()[:3].shape == (3, 100_000) and weight.view(-1).numel() == 10**10
    small = nn.Linear(3, 2, device="meta")
    assert "device='meta', size=(2, 3)" in repr(small.weight)
    for call, name in (
        (lambda: (small.weight > 0).nonzero(), "nonzero"),
        (small.weight.unique, ""),
    ):
        with pytest.raises(NotImplementedError, match=f"{name}.*: not implemented .* device meta"):
            call()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        small.to("cpu")
    with pytest.raises(RuntimeError, match="no data"):
        weight[0, 0].item()
    state = {"weight": minigrad.ones(2, 3), "bias": minigrad.zeros(2)}
    small.load_state_dict(state, assign=True)
    assert small(minigrad.ones(1, 3)).tolist() == [[3, 3]]
    empty = nn.Linear(3, 2, device="meta").to_empty(device="cpu")
    empty.load_state_dict(state)
    assert empty(minigrad.ones(1, 3)).tolist() == [[3, 3]]
