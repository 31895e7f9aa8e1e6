"""Transformer layers and stacks against torch: names, text, values, gradients, masks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kernels
import minigrad
from minigrad import nn
from tests.nn.helpers import close
from tests.nn.test_rnn import agree, both

ENCODER = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}


def pair(torch, make):
    """make(namespace, dtype) of torch and of minigrad, with the same parameters, in float64."""
    theirs, mine = make(torch), make(minigrad)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    assert repr(mine) == repr(theirs)
    state = {k: minigrad.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    assert list(mine.state_dict()) == list(state)
    mine.load_state_dict(state)
    return mine, theirs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_first": True, "activation": "gelu", "bias": False},
        {"batch_first": True},
    ],
    ids=lambda o: "-".join(o) or "plain",
)
def test_encoder_as_torch(torch, rng, options):
    """With a causal and a padding mask; torch's fast path is off while gradients are recorded."""

    def make(t):
        layer = t.nn.TransformerEncoderLayer(**ENCODER, **options, dtype=t.float64)
        norm = t.nn.LayerNorm(8, dtype=t.float64)
        return t.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)

    layers = pair(torch, make)
    shape = (3, 5, 8) if options.get("batch_first") else (5, 3, 8)
    x = both(torch, rng, *shape)
    padding = [[False] * 5, [False, False, False, True, True], [False] * 4 + [True]]
    results = []
    for layer, t, value in zip(layers, (minigrad, torch), x):
        causal = t.nn.Transformer.generate_square_subsequent_mask(5).bool()
        results.append(layer(value, causal, t.tensor(padding)))
    agree(rng, *results, layers, [x])
    for layer in layers:
        layer.zero_grad()
    x = both(torch, rng, *shape)
    agree(rng, layers[0](x[0]), layers[1](x[1]), layers, [x])


@pytest.mark.parametrize("nested", [False, True])
def test_padded_positions_in_evaluation_as_torch(torch, rng, nested):
    """torch's fast path computes no padded positions: they are zeros before the last norm."""

    def make(t):
        layer = t.nn.TransformerEncoderLayer(**ENCODER, batch_first=True, dtype=t.float64)
        norm = t.nn.LayerNorm(8, dtype=t.float64)
        return t.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=nested).eval()

    layers, x = pair(torch, make), both(torch, rng, 3, 5, 8)
    for padding in ([False] * 3 + [True] * 2, [False, True] * 2 + [False]):
        results = []
        for layer, t, value in zip(layers, (minigrad, torch), x):
            with t.no_grad():
                results.append(layer(value, src_key_padding_mask=t.tensor([padding] * 3)))
        close(*results)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_as_torch(torch, rng, norm_first):
    def make(t):
        return t.nn.Transformer(
            *(8, 2, 1, 2, 12, 0.0), norm_first=norm_first, batch_first=True, dtype=t.float64
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has no fast path for norm_first
        layers = pair(torch, make)
    src, tgt = both(torch, rng, 2, 4, 8), both(torch, rng, 2, 3, 8)
    results = []
    for layer, t, a, b in zip(layers, (minigrad, torch), src, tgt):
        mask = t.nn.Transformer.generate_square_subsequent_mask(3, dtype=t.float64)
        results.append(layer(a, b, tgt_mask=mask, memory_key_padding_mask=a.sum(-1) > 3))
    agree(rng, *results, layers, [src, tgt])


def test_causal_mask_as_torch(torch):
    mine = nn.Transformer.generate_square_subsequent_mask(4)
    close(mine, torch.nn.Transformer.generate_square_subsequent_mask(4))


def test_copies_of_a_layer_are_independent():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 4), 2)
    first, second = encoder.layers
    assert first.linear1.weight is not second.linear1.weight
    assert encoder(minigrad.zeros(3, 2, 4)).shape == (3, 2, 4)


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.TransformerEncoderLayer(4, 2, activation="tanh"),
        lambda t: t.nn.Transformer(4, 2, 1, 1, 4)(t.zeros(3, 2, 4), t.zeros(3, 1, 4)),
        lambda t: t.nn.Transformer(4, 2, 1, 1, 4)(t.zeros(3, 2, 5), t.zeros(3, 2, 5)),
    ],
    ids=range(3),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_torchs_module_paths():
    modules = nn.modules
    assert modules.activation.MultiheadAttention is nn.MultiheadAttention
    assert modules.transformer.TransformerEncoderLayer is nn.TransformerEncoderLayer
    assert modules.rnn.LSTM is nn.LSTM and modules.pixelshuffle.PixelShuffle is nn.PixelShuffle
    attention = nn.MultiheadAttention(4, 2)
    assert type(attention.out_proj) is modules.linear.NonDynamicallyQuantizableLinear


def products(run) -> tuple:
    """What it returns, and how many products it launched."""
    with kernels.trace() as trace:
        found = run()
    return found, sum(count for (name, _), (count, _) in trace.rows.items() if name == "matmul")


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("same", "launched"), [("xxx", 1), ("xyy", 2), ("xyx", 3), ("xxy", 3), ("xyz", 3)]
)
def test_inputs_that_are_one_tensor_are_projected_by_one_product(rng, same, launched, biased):
    def leaf(*shape):
        return minigrad.tensor(rng.standard_normal(shape)).requires_grad_()

    w, b, names = leaf(6, 2), leaf(6) if biased else None, sorted(set(same))
    leaves = [leaf(3, 2) for _ in names]
    inputs = [leaves[names.index(name)] for name in same]
    project = nn.functional._in_projection_packed
    found, count = products(lambda: project(*inputs, w, b))
    expected = [
        x @ w[2 * i : 2 * i + 2].t() + (b[2 * i : 2 * i + 2] if biased else 0)
        for i, x in enumerate(inputs)
    ]
    assert count == launched
    scale = minigrad.tensor(rng.standard_normal((3, 3, 2)))
    used = [w, *leaves, *([b] if biased else [])]

    def grads(results):
        return minigrad.autograd.grad((minigrad.stack(list(results)) * scale).sum(), used)

    pairs = [(found, expected), (grads(found), grads(expected))]
    for mine, other in (pair for lists in pairs for pair in zip(*lists, strict=True)):
        np.testing.assert_allclose(mine.detach(), other.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("shape", [(3, 5, 8), (5, 8)])
def test_self_attention_is_four_products(rng, shape, batch_first):
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    x = minigrad.tensor(rng.standard_normal(shape).astype(np.float32))
    (found, _), count = products(lambda: layer(x, x, x))
    assert count == 4  # all projections, scores, what they weigh, the output
    expected, _ = layer(x, x.clone(), x.clone())
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-4, atol=1e-6)
