"""The oracle itself, against PyTorch in float64 (an implementation that shares no code with it)."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import reference


def t(x: np.ndarray, grad: bool = False):
    import torch

    return torch.tensor(x, requires_grad=grad)


def close(got, want):
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-9, atol=1e-11)


@pytest.fixture
def F(torch):
    return torch.nn.functional


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.mark.parametrize(
    "stride, padding, dilation, groups",
    [((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 2), (1, 2), 2), ((3, 2), (2, 1), (2, 1), 4)],
)
def test_conv2d(rng, stride, padding, dilation, groups, F):
    x, w = rng.standard_normal((2, 4, 9, 10)), rng.standard_normal((8, 4 // groups, 3, 2))
    b = rng.standard_normal(8)
    tx, tw = t(x, True), t(w, True)
    y = F.conv2d(tx, tw, t(b), stride, padding, dilation, groups)
    g = rng.standard_normal(y.shape)
    y.backward(t(g))
    how = (stride, padding, dilation, groups)
    close(reference.conv2d(x, w, b, *how), y)
    close(reference.conv2d_backward_data(g, w, x.shape, *how), tx.grad)
    close(reference.conv2d_backward_weight(g, x, w.shape, *how), tw.grad)


POOLS = [
    ((2, 2), (2, 2), (0, 0), False),
    ((3, 2), (2, 1), (1, 1), True),
    ((3, 3), (4, 4), (1, 1), True),
    ((1, 3), (3, 2), (0, 1), False),
]


@pytest.mark.parametrize("kernel, stride, padding, ceil_mode", POOLS)
def test_max_pool2d(rng, kernel, stride, padding, ceil_mode, F):
    x = rng.integers(0, 5, (2, 3, 9, 10)).astype(np.float64)  # ties: the first one wins
    tx = t(x, True)
    y, index = F.max_pool2d(tx, kernel, stride, padding, ceil_mode=ceil_mode, return_indices=True)
    g = rng.standard_normal(y.shape)
    y.backward(t(g))
    got, got_index = reference.max_pool2d(x, kernel, stride, padding, (1, 1), ceil_mode)
    close(got, y)
    assert np.array_equal(got_index, index.numpy())
    close(reference.max_pool2d_backward(g, got_index, x.shape), tx.grad)


@pytest.mark.parametrize("kernel, stride, padding, ceil_mode", POOLS)
@pytest.mark.parametrize("include, divisor", [(True, None), (False, None), (True, 5)])
def test_avg_pool2d(rng, kernel, stride, padding, ceil_mode, include, divisor, F):
    x = rng.standard_normal((2, 3, 9, 10))
    tx = t(x, True)
    how = (kernel, stride, padding, ceil_mode, include, divisor)
    y = F.avg_pool2d(tx, *how)
    g = rng.standard_normal(y.shape)
    y.backward(t(g))
    close(reference.avg_pool2d(x, *how), y)
    close(reference.avg_pool2d_backward(g, x.shape, *how), tx.grad)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_log_softmax(rng, axis, F):
    x, g = rng.standard_normal((2, 3, 4, 5)) * 20
    for name in ("softmax", "log_softmax"):
        tx = t(x, True)
        y = getattr(F, name)(tx, axis)
        y.backward(t(g))
        got = getattr(reference, name)(x, axis)
        close(got, y)
        close(getattr(reference, name + "_backward")(g, got, axis), tx.grad)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(rng, weighted, smoothing, F):
    z, target = rng.standard_normal((7, 5)), np.array([0, 1, 4, 2, -100, 3, 3])
    w = rng.random(5) if weighted else None
    tz, tw = t(z, True), t(w) if weighted else None
    y = F.cross_entropy(tz, t(target), tw, label_smoothing=smoothing, reduction="none")
    g = rng.standard_normal(7)
    y.backward(t(g))
    losses, lse = reference.cross_entropy(z, target, w, -100, smoothing)
    close(losses, y)
    got = reference.cross_entropy_backward(g, z, lse, target, w, -100, smoothing)
    close(got, tz.grad)
    with pytest.raises(IndexError, match="target 9"):
        reference.cross_entropy(z, np.full(7, 9))


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (2, 4, 3, 5)])
def test_batch_norm(rng, shape, F):
    x, w, b = rng.standard_normal(shape), rng.random(4), rng.random(4)
    leaves = tx, tw, tb = t(x, True), t(w, True), t(b, True)
    y = F.batch_norm(tx, None, None, tw, tb, True, 0.1, 1e-5)
    g = rng.standard_normal(shape)
    y.backward(t(g))
    got, mean, invstd = reference.batch_norm(x, w, b, 1e-5)
    close(got, y)
    for grad, leaf in zip(reference.batch_norm_backward(g, x, mean, invstd, w), leaves):
        close(grad, leaf.grad)


def test_indexing(rng, F, torch):
    x, index = rng.standard_normal((5, 4)), rng.integers(0, 5, (3, 4))
    src = rng.standard_normal((3, 4))
    close(reference.gather(x, 0, index), torch.gather(t(x), 0, t(index)))
    close(reference.scatter_add(x, 0, index, src), t(x).scatter_add(0, t(index), t(src)))
    tw = t(x, True)
    rows = F.embedding(t(index), tw)
    g = rng.standard_normal(rows.shape)
    rows.backward(t(g))
    close(reference.embedding(x, index), rows)
    close(reference.embedding_backward(g, index, 5), tw.grad)
    close(reference.take(x, index), torch.take(t(x), t(index)))
    close(
        reference.take_backward(src, index, 20),
        torch.zeros(20, dtype=torch.float64).index_add(0, t(index.ravel()), t(src.ravel())),
    )
    with pytest.raises(IndexError, match="gather: index 5"):
        reference.gather(x, 0, index * 0 + 5)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "amsgrad", "adamw"])
def test_optimisers(rng, name, torch):
    p, steps = rng.standard_normal(50), 6
    tp = t(p, True)
    momentum = dict(momentum=0.9, dampening=0.3, weight_decay=0.01)
    optimiser = {
        "sgd": lambda: torch.optim.SGD([tp], 0.1, weight_decay=0.02),
        "momentum": lambda: torch.optim.SGD([tp], 0.1, **momentum),
        "nesterov": lambda: torch.optim.SGD([tp], 0.1, momentum=0.9, nesterov=True),
        "adam": lambda: torch.optim.Adam([tp], 0.1, weight_decay=0.1),
        "amsgrad": lambda: torch.optim.Adam([tp], 0.1, amsgrad=True, maximize=True),
        "adamw": lambda: torch.optim.AdamW([tp], 0.1, weight_decay=0.1),
    }[name]()
    buf, m, v, vmax = (np.zeros(50) for _ in range(4))
    for step in range(1, steps + 1):
        g = rng.standard_normal(50)
        tp.grad = t(g)
        optimiser.step()
        first = step == 1
        if name == "sgd":
            reference.sgd_(p, g, None, 0.1, weight_decay=0.02)
        elif name == "momentum":
            reference.sgd_(p, g, buf, 0.1, **momentum, first=first)
        elif name == "nesterov":
            reference.sgd_(p, g, buf, 0.1, 0.9, nesterov=True, first=first)
        else:
            decay = 0.0 if name == "amsgrad" else 0.1
            how = dict(decoupled=name == "adamw", maximize=name == "amsgrad")
            top = vmax if name == "amsgrad" else None
            reference.adam_(p, g, m, v, top, 0.1, 0.9, 0.999, 1e-8, decay, step, **how)
    close(p, tp)


def test_philox_known_answers():
    """The vectors that ship with Random123, the authors' own implementation."""
    words = reference.philox_uint32(4, 0, 0)
    assert [hex(w) for w in words] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_random_moments():
    u = reference.uniform((100_001,), 3, 4, np.float64)
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.005
    z = reference.normal((100_001,), 3, 5)
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    x = np.ones(10_000, np.float32)
    y = reference.dropout(x, 0.25, 1, 2)
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02


def test_public_names_dispatch(rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(kernels.exp(x, backend="numpy"), np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(kernels.sum(x, axis=0, backend="numpy"), x.sum(0), rtol=1e-6)
    with pytest.raises(ValueError, match="expected one of"):
        kernels.matmul(x, x.T, backend="torch")
    with kernels.trace() as trace:
        kernels.matmul(x, x.T, backend="numpy")
        with kernels.trace() as inner:
            kernels.matmul(x, x.T, backend="numpy")
    assert trace.rows["matmul", "numpy"][0] == 2 and inner.rows["matmul", "numpy"][0] == 1
    assert "matmul" in str(trace)
