"""Mixed precision: what runs in which dtype, gradients, training, and the scaler's rules."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad.amp import GradScaler, autocast
from minigrad.nn import functional as F


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_as_torch(torch, dtype):
    """The lists of operations; float64 and integers are left alone."""
    programs = {
        "linear": lambda t, x: t.nn.functional.linear(x, x),
        "matmul": lambda t, x: x @ x,
        "bmm": lambda t, x: t.bmm(x[None], x[None]),
        "mixed": lambda t, x: x.to(getattr(t, dtype)) @ x,
        "float64": lambda t, x: x.double() @ x.double(),
        "conv": lambda t, x: t.nn.functional.conv2d(x[None, None], x[None, None]),
        "add": lambda t, x: (x @ x) + x,
        "relu": lambda t, x: t.relu(x @ x),
        "softmax": lambda t, x: (x @ x).softmax(-1),
        "log_softmax": lambda t, x: (x @ x).log_softmax(-1),
        "layer_norm": lambda t, x: t.nn.functional.layer_norm(x @ x, (3,)),
        "cross_entropy": lambda t, x: t.nn.functional.cross_entropy(x @ x, t.tensor([0, 1, 2])),
        "mse_loss": lambda t, x: t.nn.functional.mse_loss(x @ x, x),
        "cat": lambda t, x: t.cat([x @ x, x]),
    }
    for name, program in programs.items():
        found = []
        for t in (minigrad, torch):
            with t.autocast("cpu", dtype=getattr(t, dtype)):
                found.append(str(program(t, t.eye(3)).dtype).partition(".")[2])
        if name in ("softmax", "log_softmax", "layer_norm", "cross_entropy"):
            found[1] = "float32"  # as torch does on a GPU; its lists for the CPU are shorter
        assert found[0] == found[1], name


def test_blocks():
    """Nested, disabled, as a decorator, by kind of device, left by an error."""
    x = minigrad.ones(2, 2)

    @autocast("cpu", dtype=minigrad.float16)
    def product(x):
        return x @ x

    assert product(x).dtype == minigrad.float16 and (x @ x).dtype == minigrad.float32
    with pytest.raises(ZeroDivisionError), autocast("cpu"):
        assert minigrad.is_autocast_enabled("cpu") and not minigrad.is_autocast_enabled("cuda")
        assert minigrad.get_autocast_dtype("cpu") == (x @ x).dtype == minigrad.bfloat16
        with autocast("cpu", enabled=False):
            assert (x @ x).dtype == minigrad.float32
        _ = 1 / 0
    assert not minigrad.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'tpu'"):
        autocast("tpu")
    with pytest.warns(UserWarning, match="float64 is not supported"):
        assert not autocast("cpu", dtype=minigrad.float64)._enabled


def small_model():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3))


@pytest.mark.parametrize("dtype", [minigrad.float16, minigrad.bfloat16])
def test_a_loss_curve_follows_that_of_float32(dtype, rng):
    """Master weights stay in float32, and so do their gradients."""
    x = minigrad.tensor(rng.standard_normal((32, 8)), dtype=minigrad.float32)
    y = minigrad.tensor(rng.integers(0, 3, 32))
    curves = []
    for enabled in (False, True):
        model = small_model()
        optimizer = minigrad.optim.SGD(model.parameters(), lr=0.2)
        scaler = GradScaler("cpu", init_scale=128.0, enabled=enabled)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            with autocast("cpu", dtype=dtype, enabled=enabled):
                loss = F.cross_entropy(model(x), y)
            assert loss.dtype == minigrad.float32
            scaler.scale(loss).backward()
            assert model[0].weight.grad.dtype == model[0].weight.dtype == minigrad.float32
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(optimizer)
            if enabled:
                scaler.update()
            losses.append(loss.item())
        curves.append(losses)
    assert curves[0][-1] < 0.8 * curves[0][0]
    np.testing.assert_allclose(curves[1], curves[0], rtol=20 * minigrad.finfo(dtype).eps)


def optimizer_of(t, grad):
    parameter = t.nn.Parameter(t.zeros(2))
    parameter.grad = t.tensor(grad)
    return parameter, t.optim.SGD([parameter], lr=1.0)


def test_the_scale_as_torch(torch):
    """Growth, back-off, skipped steps, state; the same numbers at every step."""
    found = []
    for t in (minigrad, torch):
        scaler = t.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        history = []
        for grad in ([4.0, 8.0], [4.0, 0.0], [float("inf"), 0.0], [1.0, 1.0], [float("nan"), 1.0]):
            parameter, optimizer = optimizer_of(t, grad)
            scaler.scale(t.zeros(1))
            scaler.step(optimizer)
            scaler.update()
            history.append((parameter.tolist(), scaler.get_scale(), scaler.state_dict()))
        other = t.amp.GradScaler("cpu")
        other.load_state_dict(scaler.state_dict())
        history.append((other.get_scale(), scaler.scale([t.ones(1)])[0].tolist()))
        found.append(history)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "program",
    [
        lambda t, s, o: (s.unscale_(o), s.unscale_(o)),
        lambda t, s, o: (s.step(o), s.unscale_(o)),
        lambda t, s, o: (s.step(o), s.step(o)),
        lambda t, s, o: s.load_state_dict({}),
        lambda t, s, o: t.amp.GradScaler("cpu", growth_factor=1.0),
        lambda t, s, o: t.amp.GradScaler("cpu", backoff_factor=1.0),
        lambda t, s, o: s.scale(3),
    ],
    ids=range(7),
)
def test_errors_as_torch(program, same_error):
    def run(t):
        scaler = t.amp.GradScaler("cpu")
        scaler.scale(t.zeros(1))
        program(t, scaler, optimizer_of(t, [1.0, 2.0])[1])

    same_error(run)


@pytest.mark.skipif(minigrad.cuda.is_available(), reason="a machine without a GPU")
def test_without_a_gpu_programs_for_one_run_unchanged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler = minigrad.cuda.amp.GradScaler()
        with minigrad.cuda.amp.autocast():
            assert (minigrad.ones(2, 2) @ minigrad.ones(2, 2)).dtype == minigrad.float32
    assert not scaler.is_enabled() and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    assert minigrad.cuda.memory_allocated() >= 0  # of the CPU: there is no GPU
