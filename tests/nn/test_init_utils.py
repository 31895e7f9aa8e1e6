"""`nn.init` and `nn.utils`."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad.nn import init
from tests.nn.helpers import close

pytestmark = pytest.mark.usefixtures("reference_backend")


@pytest.fixture(autouse=True)
def seeded(seed):
    minigrad.manual_seed(seed)


def moments(values):
    values = values.detach().numpy()
    return values.mean(), values.std(), values.min(), values.max()


SHAPE = (64, 32, 3, 3)
FAN_IN, FAN_OUT = 32 * 9, 64 * 9
COUNT = math.prod(SHAPE)


@pytest.mark.parametrize(
    ("fill", "std"),
    [
        (lambda w: init.kaiming_normal_(w, nonlinearity="relu"), math.sqrt(2 / FAN_IN)),
        (lambda w: init.kaiming_normal_(w, a=0.3, mode="fan_out"), math.sqrt(2 / 1.09 / FAN_OUT)),
        (lambda w: init.kaiming_uniform_(w, a=1), math.sqrt(1 / FAN_IN)),
        (lambda w: init.xavier_normal_(w, gain=2), 2 * math.sqrt(2 / (FAN_IN + FAN_OUT))),
        (lambda w: init.xavier_uniform_(w), math.sqrt(2 / (FAN_IN + FAN_OUT))),
        (lambda w: init.uniform_(w, -2, 2), 4 / math.sqrt(12)),
        (lambda w: init.normal_(w, 0, 0.5), 0.5),
    ],
    ids=range(7),
)
def test_spread(fill, std):
    w = nn.Parameter(minigrad.empty(SHAPE))
    assert fill(w) is w and w.requires_grad and w.grad_fn is None
    mean, got, low, high = moments(w)
    # Five standard errors of the mean and (roughly) of the standard deviation.
    assert abs(mean) < 5 * std / math.sqrt(COUNT)
    assert abs(got / std - 1) < 5 / math.sqrt(COUNT)
    assert max(-low, high) < 6 * std


def test_uniform_bounds():
    w = init.kaiming_uniform_(minigrad.empty(300, 50), a=math.sqrt(5))
    _, _, low, high = moments(w)
    bound = 1 / math.sqrt(50)
    assert -bound <= low < -0.98 * bound and 0.98 * bound < high <= bound


def test_truncated_normal():
    _, _, low, high = moments(init.trunc_normal_(minigrad.empty(100, 100), 1.0, 2.0, -1.0, 2.0))
    assert -1 <= low < -0.95 and 1.95 < high <= 2


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (4, 9), (5, 2, 3)])
def test_orthogonal(shape):
    w = init.orthogonal_(minigrad.empty(shape).double(), gain=2).numpy().reshape(shape[0], -1)
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-10)


def test_fixed_values():
    assert init.eye_(minigrad.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.constant_(minigrad.empty(2), 0.5).tolist() == [0.5, 0.5]
    assert init.ones_(minigrad.empty(2)).tolist() == [1, 1]
    assert init.zeros_(minigrad.empty(2)).tolist() == [0, 0]
    kernel = init.dirac_(minigrad.empty(4, 2, 3, 3), groups=2)
    x = minigrad.arange(2.0 * 25).reshape(1, 2, 5, 5)
    y = nn.functional.conv2d(minigrad.cat([x, x], 1), kernel, padding=1, groups=2)
    assert (y.numpy() == np.concatenate([x.numpy()] * 2, 1)).all()
    sparse = init.sparse_(minigrad.empty(10, 7), 0.35).numpy()
    assert ((sparse == 0).sum(0) == 4).all()
    with pytest.warns(FutureWarning, match="xavier_uniform_"):
        init.xavier_uniform(minigrad.empty(3, 3))


def test_gains_as_torch(torch):
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.init.calculate_gain("softer"),
        lambda t: t.nn.init.calculate_gain("leaky_relu", "steep"),
        lambda t: t.nn.init.xavier_normal_(t.zeros(3)),
        lambda t: t.nn.init.kaiming_normal_(t.zeros(3, 3), mode="fan"),
        lambda t: t.nn.init.eye_(t.zeros(3)),
        lambda t: t.nn.init.dirac_(t.zeros(3, 3)),
        lambda t: t.nn.init.orthogonal_(t.zeros(3)),
    ],
    ids=range(7),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def gradients(rng, t=minigrad, dtype=np.float64):
    params = [t.zeros(3, 4), t.zeros(5), t.zeros(2)]
    for p in params[:2]:
        p.grad = t.tensor(rng.normal(size=tuple(p.shape)).astype(np.float32))
    return params


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad_norm(seed, norm_type, max_norm):
    params = gradients(np.random.default_rng(seed))
    before = [p.grad.numpy().copy() for p in params[:2]]
    flat = np.concatenate([g.ravel() for g in before])
    total = nn.utils.clip_grad_norm_(params, max_norm, norm_type)
    wanted = np.linalg.norm(flat, norm_type)
    np.testing.assert_allclose(total.item(), wanted, rtol=1e-5)
    scale = min(1, max_norm / (wanted + 1e-6))
    for p, g in zip(params, before, strict=False):
        np.testing.assert_allclose(p.grad.numpy(), g * scale, rtol=1e-5)
    assert params[2].grad is None


def test_clip_grad_as_torch(seed, torch):
    mine = gradients(np.random.default_rng(seed))
    theirs = gradients(np.random.default_rng(seed), torch)
    a = nn.utils.clip_grad_norm_(iter(mine), 1.0)
    b = torch.nn.utils.clip_grad_norm_(iter(theirs), 1.0)
    close(a, b, 1e-6)
    close(mine[0].grad, theirs[0].grad, 1e-6)
    nn.utils.clip_grad_value_(mine, 0.1)
    torch.nn.utils.clip_grad_value_(theirs, 0.1)
    close(mine[0].grad, theirs[0].grad, 1e-6)
    mine[0].grad.fill_(math.nan)
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0


def test_parameters_as_a_vector():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (13,)
    nn.utils.vector_to_parameters(minigrad.arange(13.0), net.parameters())
    assert net[0].weight.tolist() == [[0, 1], [2, 3], [4, 5]] and net[1].bias.tolist() == [12]
    assert net[0].weight.requires_grad
    with pytest.raises(TypeError):
        nn.utils.vector_to_parameters([1.0], net.parameters())
    with pytest.raises(RuntimeError, match="fewer"):
        nn.utils.vector_to_parameters(minigrad.zeros(3), net.parameters())
