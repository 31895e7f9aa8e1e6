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
    half = getattr(minigrad, dtype), getattr(torch, dtype)

    def programs(t, low):
        F, x = t.nn.functional, t.eye(3)
        y, square, cube = x.to(low), x[None, None], t.ones(1, 1, 3, 3, 3)
        place, label = t.tensor([0, 1, 2]), t.tensor([[1]])
        return {
            "linear": lambda: F.linear(x, x),
            "matmul": lambda: x @ x,
            "bmm": lambda: t.bmm(x[None], x[None]),
            "addmm": lambda: t.addmm(x, x, x),
            "baddbmm": lambda: t.baddbmm(x[None], x[None], x[None]),
            "addbmm": lambda: t.addbmm(x, x[None], x[None]),
            "mixed": lambda: y @ x,
            "float64": lambda: x.double() @ x.double(),
            "conv": lambda: F.conv2d(square, square),
            "conv1d": lambda: F.conv1d(x[None], x[None]),
            "conv3d": lambda: F.conv3d(cube, cube),
            "conv_transpose1d": lambda: F.conv_transpose1d(x[None], x[:, None].to(low)),
            "conv_transpose2d": lambda: F.conv_transpose2d(square, square),
            "conv_transpose3d": lambda: F.conv_transpose3d(cube.to(low), cube),
            "prelu": lambda: F.prelu(x, t.ones(1)),
            "add": lambda: (x @ x) + x,
            "relu": lambda: t.relu(x @ x),
            "softmax": lambda: y.softmax(-1),
            "log_softmax": lambda: y.log_softmax(-1),
            "cumsum": lambda: y.cumsum(0),
            "sum": lambda: y.sum(),
            "prod": lambda: y.prod(),
            "layer_norm": lambda: F.layer_norm(y, (3,)),
            "LayerNorm": lambda: t.nn.LayerNorm(3)(y),
            "GroupNorm": lambda: t.nn.GroupNorm(1, 1)(square.to(low)),
            "InstanceNorm": lambda: t.nn.InstanceNorm2d(1, affine=True)(square.to(low)),
            "BatchNorm": lambda: t.nn.BatchNorm1d(3)(y),
            "cross_entropy": lambda: F.cross_entropy(y, place),
            "cross_entropy with shares": lambda: F.cross_entropy(y, y),
            "nll": lambda: F.nll_loss(y, place),
            "ctc": lambda: F.ctc_loss(y[:, None], label, t.tensor([3]), t.tensor([1])),
            "interpolate": lambda: F.interpolate(square, scale_factor=2, mode="bilinear"),
            "grid_sample": lambda: F.grid_sample(square.to(low), t.zeros(1, 2, 2, 2).to(low)),
            "cdist": lambda: t.cdist(y, y),
            "pool3d": lambda: F.adaptive_avg_pool3d(cube, 2),
            "cat": lambda: t.cat([x @ x, x]),
            "pinv": lambda: t.cholesky_inverse(x),
            "inv": lambda: t.linalg.inv(y),
            "inverse": lambda: y.inverse(),
            "solve": lambda: t.linalg.solve(y, y),
            "cholesky": lambda: t.linalg.cholesky(y),
            "cholesky_ex": lambda: t.linalg.cholesky_ex(y)[0],
            "svd": lambda: t.linalg.svd(y)[1],
            "svdvals": lambda: t.linalg.svdvals(y),
            "qr": lambda: t.linalg.qr(y)[0],
            "eigh": lambda: t.linalg.eigh(y)[1],
            "eigvals": lambda: t.linalg.eigvals(y),
            "lstsq": lambda: t.linalg.lstsq(y, y)[0],
            "cond": lambda: t.linalg.cond(y),
            "matrix_rank": lambda: t.linalg.matrix_rank(y),
            "linalg.norm": lambda: t.linalg.norm(y),
            "multi_dot": lambda: t.linalg.multi_dot([y, y, y]),
            "inv of float64": lambda: t.linalg.inv(y.double()),
            "fft": lambda: t.fft.fft(y),
            "rfft2": lambda: t.fft.rfft2(y),
            "irfft": lambda: t.fft.irfft(y),
            "ihfft": lambda: t.fft.ihfft(y),
            "fftn of float64": lambda: t.fft.fftn(y.double()),
            "stft": lambda: t.stft(y.flatten(), 4, return_complex=True),
            "trace": lambda: y.trace(),
            "quantile": lambda: y.quantile(0.5),
            "polar": lambda: t.polar(y, y),
            "avg_pool3d": lambda: F.avg_pool3d(cube.to(low), 1),
            "gru": lambda: t.nn.GRU(3, 2)(x)[0],
            "gru cell": lambda: t.nn.GRUCell(3, 2)(x),
            "lstm cell": lambda: t.nn.LSTMCell(3, 2)(x)[1],
            "attention": lambda: t.nn.MultiheadAttention(3, 1)(x, x, x)[1],
            "attention of mixed": lambda: F.scaled_dot_product_attention(y, x, x),
            "mv": lambda: t.mv(x, x[0]),
            "matrix @ vector": lambda: x @ x[0],
            "dot": lambda: t.dot(x[0], x[0]),
            "vdot": lambda: x[0].vdot(x[0]),
            "vector @ vector": lambda: x[0] @ x[0],
            "inner": lambda: t.inner(x[0], x[0]),
            "tensordot": lambda: t.tensordot(x, x, 2),
            "vecdot": lambda: t.linalg.vecdot(x, y),
            "multi_dot of float32": lambda: t.linalg.multi_dot([x, x, x]),
            "matrix_power": lambda: t.linalg.matrix_power(x, 3),
            "geqrf": lambda: t.geqrf(y)[0],
            "ormqr": lambda: t.ormqr(y, y[0], y),
            "max_pool3d": lambda: F.max_pool3d(cube.to(low), 1),
            "max_pool3d with places": lambda: F.max_pool3d(cube.to(low), 1, return_indices=True)[0],
            "adaptive_max_pool3d": lambda: F.adaptive_max_pool3d(cube.to(low), 1),
            "fractional": lambda: F.fractional_max_pool2d(square.to(low), 2, output_size=1),
            "unpool": lambda: F.max_unpool2d(square.to(low), t.arange(9).reshape(1, 1, 3, 3), 1),
            "normalised channels": lambda: F.local_response_norm(y[None], 1),
            "normalised channels of images": lambda: F.local_response_norm(square.to(low), 1),
            "reflect": lambda: F.pad(y, (1, 1), "reflect"),
            "reflect volumes": lambda: F.pad(cube.to(low), (1,) * 6, "reflect"),
            "replicate volumes": lambda: F.pad(cube.to(low), (1,) * 6, "replicate"),
            "circular": lambda: F.pad(y, (1, 1), "circular"),
            **{
                name: lambda name=name: getattr(F, name)(y, y)
                for name in (
                    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy "
                    "binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss "
                    "hinge_embedding_loss"
                ).split()
            },
        }

    for (name, ours), theirs in zip(
        programs(minigrad, half[0]).items(), programs(torch, half[1]).values(), strict=True
    ):
        found = []
        for t, program, low in ((minigrad, ours, half[0]), (torch, theirs, half[1])):
            with t.autocast("cpu", dtype=low):
                found.append(str(program().dtype).partition(".")[2])
        assert found[0] == found[1], name


def test_recurrent_layers_in_a_block(rng):
    """Products in 16 bits, states of GRU in float32; gradients reach the weights in float32."""
    x = minigrad.tensor(rng.standard_normal((4, 2, 3)), dtype=minigrad.float32)
    low, full = minigrad.bfloat16, minigrad.float32
    for make, dtype in ((nn.RNN, low), (nn.LSTM, low), (nn.GRU, full)):
        layer = make(3, 5, bidirectional=True)
        expected = layer(x)[0]
        with autocast("cpu", dtype=minigrad.bfloat16):
            found = layer(x)[0]
            loss = F.mse_loss(found, minigrad.zeros(4, 2, 10))
        loss.backward()
        assert layer.weight_ih_l0.grad.dtype == full and found.dtype == dtype
        assert 0 < (found - expected).abs().max() < 0.03


# Of float32 inputs: those of LSTM in 16 bits unless sequences are packed; most cells' as given.
STATES = {
    "packed": ["float32", "float32"],
    "padded": ["bfloat16", "bfloat16"],
    "projected": ["bfloat16", "float32"],
    "RNNCell": ["bfloat16"],
    "GRUCell": ["float32"],
    "LSTMCell": ["float32", "float32"],
}


def dtypes_of_states(t, kind, narrow):
    """Those of the last states in a block of `autocast`, by minigrad or torch (`t`)."""
    options = {"proj_size": 2} if kind == "projected" else {}
    layer = getattr(t.nn, kind, t.nn.LSTM)(3, 4, **options)
    x = t.zeros(2, 2, 3, dtype=t.bfloat16 if narrow else t.float32)
    if kind.endswith("Cell"):
        x = x[0]
    elif kind == "packed":
        x = t.nn.utils.rnn.pack_padded_sequence(x, [2, 1])
    with t.autocast("cpu", dtype=t.bfloat16):
        states = layer(x) if kind.endswith("Cell") else layer(x)[1]
    states = states if isinstance(states, tuple) else (states,)
    return [str(s.dtype).partition(".")[2] for s in states]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("kind", STATES)
def test_states_in_a_block(kind, narrow):
    expected = ["bfloat16"] * len(STATES[kind]) if narrow else STATES[kind]
    assert dtypes_of_states(minigrad, kind, narrow) == expected


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("kind", STATES)
def test_states_in_a_block_as_torch(torch, kind, narrow):
    if kind == "padded" and not narrow and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN's LSTM computes in bfloat16 on processors with AVX-512 alone")
    assert dtypes_of_states(minigrad, kind, narrow) == dtypes_of_states(torch, kind, narrow)


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
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.25)
        scaler.set_growth_interval(5)
        history.append(scaler.state_dict())
        found.append(history)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "program",
    [
        lambda t, s, o: (s.unscale_(o), s.unscale_(o)),
        lambda t, s, o: (s.step(o), s.unscale_(o)),
        lambda t, s, o: (s.step(o), s.step(o)),
        lambda t, s, o: (o.zero_grad(), s.step(o)),
        lambda t, s, o: (o.zero_grad(), s.unscale_(o), s.update()),
        lambda t, s, o: s.load_state_dict({}),
        lambda t, s, o: t.amp.GradScaler("cpu", growth_factor=1.0),
        lambda t, s, o: t.amp.GradScaler("cpu", backoff_factor=1.0),
        lambda t, s, o: s.scale(3),
    ],
    ids=range(9),
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
