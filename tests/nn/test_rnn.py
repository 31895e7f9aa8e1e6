"""Recurrent layers, cells and packed sequences: values and gradients against torch, and finite
differences."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigrad
from minigrad import backends, nn
from minigrad.autograd import gradcheck, gradgradcheck
from minigrad.nn.utils import rnn as utils
from tests.nn.helpers import close

CELLS = {"RNN": "RNNCell", "LSTM": "LSTMCell", "GRU": "GRUCell"}


def pair(torch, name, *args, **kwargs):
    """The layer of torch and that of minigrad with the same parameters, in float64."""
    theirs = getattr(torch.nn, name)(*args, **kwargs, dtype=torch.float64)
    mine = getattr(nn, name)(*args, **kwargs, dtype=minigrad.float64)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    state = {k: minigrad.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    mine.load_state_dict(state)
    return mine, theirs


def both(torch, rng, *shape):
    """A random tensor of each library that requires a gradient."""
    values = rng.standard_normal(shape)
    return minigrad.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


def flat(outputs):
    """The tensors of nested tuples; of a packed sequence the data."""
    if not isinstance(outputs, tuple):
        return [outputs]
    if hasattr(outputs, "batch_sizes"):
        return [outputs.data]
    return [tensor for part in outputs for tensor in flat(part)]


def agree(rng, mine, theirs, layers, inputs):
    """The outputs, and after a backward pass the gradients of inputs and parameters, are equal."""
    (mine, theirs) = flat(mine), flat(theirs)
    losses = [0, 0]
    for own, other in zip(mine, theirs, strict=True):
        close(own, other, 1e-9)
        seed = rng.standard_normal(tuple(other.shape))
        losses[0] = losses[0] + (own * minigrad.from_numpy(seed)).sum()
        losses[1] = losses[1] + (other * other.new_tensor(seed)).sum()
    for loss in losses:
        loss.backward()
    for own, other in inputs:
        close(own.grad, other.grad, 1e-8)
    for (name, own), other in zip(layers[0].named_parameters(), layers[1].parameters()):
        close(own.grad, other.grad, 1e-8, name)


OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"batch_first": True, "bias": False},
]


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("name", CELLS)
def test_layers_as_torch(torch, rng, name, options, backend):
    """With and without first states and a batch."""
    with backends.use(backend):
        layers = pair(torch, name, 5, 7, **options)
        x = both(torch, rng, 4, 3, 5)
        agree(rng, layers[0](x[0]), layers[1](x[1]), layers, [x])
        layers = pair(torch, name, 5, 7, **options)
        count = 4 if len(options) == 2 and "num_layers" in options else 1
        first = [both(torch, rng, count, 7) for _ in range(2 if name == "LSTM" else 1)]
        x = both(torch, rng, 4, 5)
        mine, theirs = (tuple(state) if name == "LSTM" else state[0] for state in zip(*first))
        agree(rng, layers[0](x[0], mine), layers[1](x[1], theirs), layers, [x, *first])


def test_relu_and_projections_as_torch(torch, rng):
    for name, options in (
        ("RNN", {"nonlinearity": "relu"}),
        ("LSTM", {"num_layers": 2, "proj_size": 3, "bidirectional": True}),
    ):
        layers = pair(torch, name, 5, 7, **options)
        x = both(torch, rng, 4, 3, 5)
        agree(rng, layers[0](x[0]), layers[1](x[1]), layers, [x])


@pytest.mark.parametrize("name", CELLS.values())
def test_cells_as_torch(torch, rng, name):
    for options, shape in (({}, (3,)), ({"bias": False}, ())):
        layers = pair(torch, name, 5, 7, **options)
        x = both(torch, rng, *shape, 5)
        first = [both(torch, rng, *shape, 7) for _ in range(2 if name == "LSTMCell" else 1)]
        mine, theirs = (tuple(s) if name == "LSTMCell" else s[0] for s in zip(*first))
        agree(rng, layers[0](x[0], mine), layers[1](x[1], theirs), layers, [x, *first])
        layers = pair(torch, name, 5, 7, **options)
        x = both(torch, rng, *shape, 5)
        agree(rng, layers[0](x[0]), layers[1](x[1]), layers, [x])


@pytest.mark.parametrize("name", CELLS)
def test_packed_sequences_as_torch(torch, rng, name):
    """Lengths that are not sorted, both directions, first states in the order of the batch."""
    lengths = [2, 5, 3]
    layers = pair(torch, name, 4, 6, 2, bidirectional=True)
    x = both(torch, rng, 5, 3, 4)
    first = [both(torch, rng, 4, 3, 6) for _ in range(2 if name == "LSTM" else 1)]
    results = []
    for t, side in ((minigrad, 0), (torch, 1)):
        state = tuple(s[side] for s in first) if name == "LSTM" else first[0][side]
        pack = t.nn.utils.rnn.pack_padded_sequence
        packed, last = layers[side](pack(x[side], lengths, enforce_sorted=False), state)
        padded, found = t.nn.utils.rnn.pad_packed_sequence(packed, padding_value=2, total_length=6)
        assert found.tolist() == lengths
        results.append((packed, padded, last))
    agree(rng, *results, layers, [x, *first])


@pytest.mark.parametrize("mode", ["tanh", "relu", "lstm", "gru"])
def test_gradients_by_finite_differences(mode, rng):
    """Of the fused operation, its second derivatives, with sequences that end early."""
    from minigrad.ops.recurrent import recurrent

    parts = {"lstm": 4, "gru": 3}.get(mode, 1)

    def leaf(*shape):
        return minigrad.tensor(rng.standard_normal(shape), requires_grad=True)

    first = [leaf(2, 2) for _ in range(2 if mode == "lstm" else 1)]
    inputs = leaf(2, 2, 2 * parts), leaf(2 * parts, 2), leaf(2 * parts), *first

    def function(x, weight, bias, h, c=None):
        return recurrent(x, weight, bias, h, c, mode, np.array([2, 1]))

    assert gradcheck(function, inputs)
    with backends.use("numpy"):  # of operations that have tests of their own
        assert gradgradcheck(function, inputs)


def test_dropout_between_layers():
    minigrad.manual_seed(0)
    layer = nn.GRU(3, 8, 2, dropout=0.5)
    x = minigrad.randn(4, 2, 3)
    assert not minigrad.allclose(layer(x)[0], layer(x)[0])
    layer.eval()
    assert minigrad.allclose(layer(x)[0], layer(x)[0])
    with pytest.warns(UserWarning, match="non-zero dropout expects num_layers greater than 1"):
        nn.LSTM(3, 4, dropout=0.5)


def test_half_precision(rng):
    """States in float16, computed in float32."""
    layer = nn.LSTM(3, 8)
    x = minigrad.tensor(rng.standard_normal((5, 2, 3)), dtype=minigrad.float32)
    wide = layer(x)[0]
    narrow = layer.half()(x.half())[0]
    assert narrow.dtype == minigrad.float16
    assert (narrow.float() - wide).abs().max() < 6 * minigrad.finfo(minigrad.float16).eps


def test_utilities_as_torch(torch, rng):
    shapes = [(4, 2), (1, 2), (3, 2)]
    values = [rng.standard_normal(shape) for shape in shapes]
    mine, theirs = [minigrad.tensor(v) for v in values], [torch.tensor(v) for v in values]
    own, other = utils, torch.nn.utils.rnn
    for options in ({}, {"batch_first": True, "padding_value": 3.0}, {"padding_side": "left"}):
        close(own.pad_sequence(mine, **options), other.pad_sequence(theirs, **options))
    a, b = (f.pack_sequence(x, enforce_sorted=False) for f, x in ((own, mine), (other, theirs)))
    for x, y in zip(a, b, strict=True):
        close(x, y)
    for x, y in zip(own.unpack_sequence(a), other.unpack_sequence(b), strict=True):
        close(x, y)
    assert a.double().data.dtype == minigrad.float64 and a.cpu().batch_sizes is a.batch_sizes
    assert isinstance(a, tuple) and not a.is_cuda


def states(t, *shape):
    return t.zeros(shape)


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.RNN(3, 0),
        lambda t: t.nn.RNN(3, 4, 0),
        lambda t: t.nn.RNN(3, 4.0),
        lambda t: t.nn.GRU(3, 4, dropout=2),
        lambda t: t.nn.RNN(3, 4, nonlinearity="sigmoid"),
        lambda t: t.nn.LSTM(3, 4, proj_size=-1),
        lambda t: t.nn.LSTM(3, 4, proj_size=4),
        lambda t: t.nn.LSTM(3, 4)(t.zeros(2, 2, 2, 3)),
        lambda t: t.nn.GRU(3, 4)(t.zeros(2, 2, 5)),
        lambda t: t.nn.GRU(3, 4)(t.zeros(2, 2, 3), t.zeros(1, 3, 4)),
        lambda t: t.nn.GRU(3, 4)(t.zeros(2, 2, 3), t.zeros(1, 4)),
        lambda t: t.nn.LSTM(3, 4)(t.zeros(2, 2, 3), (t.zeros(1, 2, 4), t.zeros(1, 2, 5))),
        lambda t: t.nn.LSTM(3, 4)(t.zeros(2, 2, 3), (t.zeros(1, 4), t.zeros(1, 4))),
        lambda t: t.nn.LSTM(3, 4)(t.zeros(0, 2, 3)),
        lambda t: t.nn.LSTMCell(3, 4)(t.zeros(1, 2, 3)),
        lambda t: t.nn.utils.rnn.pack_padded_sequence(t.zeros(3, 2, 1), [1, 2]),
        lambda t: t.nn.utils.rnn.pack_padded_sequence(t.zeros(3, 2, 1), [2, 0]),
        lambda t: t.nn.utils.rnn.pack_padded_sequence(t.zeros(3, 2, 1), [2]),
        lambda t: t.nn.utils.rnn.pad_sequence([t.zeros(1)], padding_side="up"),
        lambda t: t.nn.GRU(3, 4, proj_size=2),
        lambda t: t.nn.RNN(3, 4, proj_size=0),
        lambda t: t.nn.GRU(3, 4)(t.zeros(2, 2, 3), t.zeros(1, 2, 4).double()),
        lambda t: t.nn.GRU(3, 4)(t.zeros(2, 2, 3), (t.zeros(1, 2, 4),)),
        lambda t: t.nn.LSTM(3, 4)(t.zeros(2, 2, 3), t.zeros(1, 2, 4)),
        lambda t: t.nn.LSTM(3, 4)(t.zeros(2, 2, 3), (t.zeros(1, 2, 4),) * 3),
        lambda t: t.nn.LSTMCell(3, 4)(t.zeros(2, 3), t.zeros(2, 4)),
        lambda t: t.nn.LSTMCell(3, 4)(t.zeros(2, 3), (t.zeros(2, 4),)),
        lambda t: t.nn.LSTMCell(3, 4)(t.zeros(2, 3), (t.zeros(2, 4), t.zeros(2, 5))),
        lambda t: t.nn.GRUCell(3, 4)(t.zeros(2, 3), t.zeros(3, 4)),
        lambda t: t.nn.RNNCell(3, 4)(t.zeros(2, 4)),
        lambda t: t.nn.LSTM(3, 4, batch_first="False"),
        lambda t: t.nn.GRU(3, 4, bias=0),
        lambda t: t.nn.RNN(0, 4),
        lambda t: t.nn.LSTM(3.0, 4),
    ],
    ids=range(34),
)
def test_errors_as_torch(program, same_error):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_error(program)
