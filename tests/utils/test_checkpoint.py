"""Recomputation, fused batch norm, modules without initial values, Functions under autocast."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import minigrad
from minigrad import backends


def arrays(rng, *shapes):
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("second", [False, True])
def test_tensors_in_containers_and_keywords_have_gradients(torch, rng, second):
    data = arrays(rng, (3, 4), (3, 4), (4, 2))
    found = []
    for m in (minigrad, torch):
        x, y, w = (m.tensor(a, requires_grad=True) for a in data)

        def block(pair, *, weight, m=m):
            return {"out": m.tanh((pair["a"][0] * pair["b"]) @ weight) ** 2}

        pair = {"a": [x * 2], "b": y}
        with backends.use("numpy"):
            made = m.utils.checkpoint.checkpoint(block, pair, weight=w, use_reentrant=False)
            grads = m.autograd.grad(made["out"].sum(), [x, y, w], create_graph=second)
            if second:
                grads = m.autograd.grad(sum((g * g).sum() for g in grads), [x, y, w])
        found.append([g.detach().numpy() for g in grads])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-9)


def test_contexts_random_numbers_and_repeated_backward(torch):
    for m in (minigrad, torch):
        runs, entered = [], []

        @contextlib.contextmanager
        def noted(name, entered=entered):
            entered.append(name)
            yield

        def block(x, m=m, runs=runs, entered=entered):
            kept = m.nn.functional.dropout(x, 0.5)
            runs.append(kept.detach())
            y = kept.exp()
            entered.append("end")
            return y.sum()

        x = m.ones(20, requires_grad=True)
        y = m.utils.checkpoint.checkpoint(
            block, x, use_reentrant=False, context_fn=lambda n=noted: (n("first"), n("second"))
        )
        (g,) = m.autograd.grad(y, x)
        assert entered == ["first", "end", "second"] and runs[0].equal(runs[1])
        assert sorted(set(g.round().tolist())) == [0, 15]  # 2 e**2, where nothing was dropped
        with m.no_grad():
            m.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        assert len(runs) == 3


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_backward_pass_inside(torch, early_stop):
    found = []
    for m in (minigrad, torch):
        x, w = (m.tensor(v, requires_grad=True) for v in ([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]))

        def block(x, m=m, w=w):
            (slope,) = m.autograd.grad((x**3).sum(), x, create_graph=True)
            return (slope * w).sin()

        how = {"early_stop": early_stop} if m is minigrad else {}
        y = m.utils.checkpoint.checkpoint(block, x, use_reentrant=False, **how).sum()
        y.backward()
        found.append((x.grad.detach().numpy(), w.grad.detach().numpy()))
    np.testing.assert_allclose(found[0], found[1], 1e-5)


def test_a_function_that_changes_is_found(torch):
    for m in (minigrad, torch):
        calls = []

        def block(x, calls=calls):
            calls.append(0)
            return x.exp().sum() if len(calls) == 1 else x[:1].exp().sum()

        x = m.ones(3, requires_grad=True)
        checkpoint = m.utils.checkpoint
        y = checkpoint.checkpoint(block, x, use_reentrant=False)
        with pytest.raises(checkpoint.CheckpointError):
            y.backward()
        with pytest.raises(ValueError, match="Unexpected keyword"):
            checkpoint.checkpoint(block, x, use_reentrant=True, other=3)
        with pytest.raises(ValueError, match="determinism_check"):
            checkpoint.checkpoint(block, x, use_reentrant=False, determinism_check="?")


LAYERS = {
    "conv": lambda nn: (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), (1, 2, 4, 4)),
    "transposed": lambda nn: (nn.ConvTranspose2d(2, 3, 2), nn.BatchNorm2d(3), (1, 2, 4, 4)),
    "plain": lambda nn: (
        *(nn.Conv1d(2, 3, 2, bias=False), nn.BatchNorm1d(3, affine=False), (1, 2, 4)),
    ),
    "linear": lambda nn: (nn.Linear(4, 3), nn.BatchNorm1d(3), (5, 4)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_fused_batch_norm_gives_what_the_layers_give(kind, torch):
    for m in (minigrad, torch):
        m.manual_seed(0)
        layer, norm, shape = LAYERS[kind](m.nn)
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        x = m.randn(shape)
        fuse = m.nn.utils.fuse_linear_bn_eval if kind == "linear" else m.nn.utils.fuse_conv_bn_eval
        with pytest.raises(AssertionError):
            fuse(layer, norm)
        options = (True,) if kind == "transposed" else ()
        fused = fuse(layer.eval(), norm.eval(), *options)
        assert type(fused) is type(layer) and isinstance(fused.bias, m.nn.Parameter)
        with m.no_grad():
            np.testing.assert_allclose(fused(x), norm(layer(x)), rtol=1e-4, atol=1e-5)


def test_skip_init(torch):
    for m in (minigrad, torch):
        layer = m.nn.utils.skip_init(m.nn.Linear, 3, 2, dtype=m.float64)
        assert layer.weight.shape == (2, 3) and layer.weight.device.type == "cpu"
        assert isinstance(layer.weight, m.nn.Parameter) and layer.bias.dtype == m.float64
        with pytest.raises(RuntimeError, match="device"):
            m.nn.utils.skip_init(m.nn.ReLU)
        with pytest.raises(RuntimeError, match="Expected a Module"):
            m.nn.utils.skip_init(int)


def test_functions_under_autocast(torch):
    for m in (minigrad, torch):
        seen = []
        fwd = m.amp.custom_fwd(device_type="cpu", cast_inputs=m.float32)
        bwd = m.amp.custom_bwd(device_type="cpu")

        class Product(m.autograd.Function):
            @staticmethod
            @fwd
            def forward(ctx, a, b, m=m, seen=seen):
                ctx.save_for_backward(a, b)
                seen.append((a.dtype == m.float32, (a @ b).dtype == m.float32))
                return a @ b

            @staticmethod
            @bwd
            def backward(ctx, g, m=m, seen=seen):
                seen.append(m.is_autocast_enabled("cpu"))
                a, b = ctx.saved_tensors
                return g @ b.t(), a.t() @ g

        class Plain(m.autograd.Function):
            @staticmethod
            @m.amp.custom_fwd(device_type="cpu")
            def forward(ctx, a, m=m):
                return a * 2

            @staticmethod
            @m.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g, m=m, seen=seen):
                seen.append((m.is_autocast_enabled("cpu"), m.get_autocast_dtype("cpu")))
                return g * 2

        a = m.ones(2, 2, dtype=m.bfloat16, requires_grad=True)
        with m.autocast("cpu", dtype=m.bfloat16):
            y = Plain.apply(Product.apply(a, a)).sum()
        y.backward()
        assert seen == [(True, True), (True, m.bfloat16), False]
        assert Product.apply(a, a).dtype == m.bfloat16
