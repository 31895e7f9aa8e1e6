"""Every layer beside torch: same repr, same output, same gradients, in float64."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigrad
from minigrad import nn
from tests.nn.helpers import as_torch, close, plain

# name, arguments, keyword arguments, input shape
LAYERS = [
    ("Linear", (5, 3), {}, (4, 5)),
    ("Linear", (5, 3), {"bias": False}, (2, 4, 5)),
    ("Identity", (5,), {"anything": 1}, (4, 5)),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, (2, 4, 11)),
    ("Conv1d", (4, 6, 3), {"dilation": 2, "groups": 2, "bias": False}, (4, 11)),
    ("Conv2d", (3, 4, 3), {}, (2, 3, 7, 6)),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "padding": (1, 0), "groups": 2}, (2, 4, 7, 6)),
    ("Conv2d", (3, 2, 3), {"padding": "same", "dilation": 2}, (2, 3, 9, 8)),
    ("Conv2d", (3, 2, 3), {"padding": "valid", "bias": False}, (3, 9, 8)),
    ("Conv2d", (2, 3, 3), {"padding": (1, 2), "padding_mode": "reflect"}, (2, 2, 6, 7)),
    ("Conv1d", (2, 3, 3), {"padding": 2, "padding_mode": "circular"}, (2, 2, 7)),
    ("ConvTranspose1d", (4, 3, 3), {"stride": 2, "output_padding": 1}, (2, 4, 6)),
    ("ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 5, 6)),
    ("ConvTranspose2d", (3, 2, (2, 3)), {"dilation": 2, "bias": False}, (2, 3, 5, 6)),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, (2, 3, 10)),
    ("MaxPool2d", (2,), {}, (2, 3, 7, 8)),
    ("MaxPool2d", ((3, 2),), {"stride": 1, "padding": 1, "ceil_mode": True}, (2, 3, 7, 8)),
    ("AvgPool1d", (2,), {"ceil_mode": True}, (2, 3, 9)),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, (2, 3, 7, 8)),
    ("AdaptiveAvgPool1d", (4,), {}, (2, 3, 10)),
    ("AdaptiveAvgPool2d", ((2, 4),), {}, (2, 3, 6, 8)),
    ("AdaptiveAvgPool2d", ((3, None),), {}, (2, 3, 7, 5)),
    ("AdaptiveMaxPool1d", (3,), {}, (2, 3, 8)),
    ("AdaptiveMaxPool2d", ((3, 2),), {}, (2, 3, 7, 5)),
    ("Upsample", (), {"scale_factor": 2}, (2, 3, 5)),
    ("Upsample", ((7, 3),), {"mode": "bilinear"}, (2, 3, 5, 4)),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "bicubic"}, (2, 3, 5, 4)),
    ("UpsamplingNearest2d", (), {"scale_factor": 3}, (2, 3, 5, 4)),
    ("UpsamplingBilinear2d", (), {"size": 9}, (2, 3, 5, 4)),
    ("Unfold", (3,), {"padding": 1, "stride": 2}, (2, 3, 5, 4)),
    ("Fold", ((5, 4), 2), {}, (2, 12, 12)),
    ("BatchNorm1d", (5,), {}, (6, 5)),
    ("BatchNorm1d", (5,), {"momentum": None, "affine": False}, (4, 5, 3)),
    ("BatchNorm2d", (3,), {"eps": 1e-3}, (4, 3, 2, 5)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (4, 3, 2, 5)),
    ("InstanceNorm1d", (3,), {"affine": True}, (2, 3, 6)),
    ("InstanceNorm2d", (3,), {"track_running_stats": True}, (2, 3, 4, 5)),
    ("LayerNorm", (6,), {}, (4, 3, 6)),
    ("LayerNorm", ((3, 6),), {"bias": False}, (4, 3, 6)),
    ("LayerNorm", (1,), {}, (4, 1)),
    ("GroupNorm", (2, 6), {}, (3, 6, 4, 2)),
    ("RMSNorm", (6,), {"eps": 1e-5}, (4, 3, 6)),
    ("Flatten", (), {}, (2, 3, 4)),
    ("Flatten", (0, 1), {}, (2, 3, 4)),
    ("Unflatten", (1, (2, 3)), {}, (4, 6, 2)),
    ("PixelShuffle", (2,), {}, (2, 8, 3, 4)),
    ("ZeroPad2d", ((1, 2, 0, 3),), {}, (2, 3, 4, 5)),
    ("ConstantPad1d", (2, 1.5), {}, (2, 3, 5)),
    ("ConstantPad2d", (1, -2.0), {}, (3, 4, 5)),
    ("ReflectionPad1d", (2,), {}, (2, 3, 5)),
    ("ReflectionPad2d", ((1, 2, 2, 1),), {}, (2, 3, 4, 5)),
    ("ReplicationPad2d", (2,), {}, (2, 3, 4, 5)),
    ("CircularPad2d", (1,), {}, (2, 3, 4, 5)),
    ("Dropout", (0.0,), {}, (4, 5)),
    ("ReLU", (), {}, (4, 5)),
    ("ReLU", (True,), {}, (4, 5)),
    ("ReLU6", (), {}, (4, 5)),
    ("LeakyReLU", (0.2,), {}, (4, 5)),
    ("LeakyReLU", (0.2, True), {}, (4, 5)),
    ("ELU", (), {"alpha": 0.7}, (4, 5)),
    ("SELU", (), {}, (4, 5)),
    ("CELU", (0.6,), {}, (4, 5)),
    ("GELU", (), {}, (4, 5)),
    ("GELU", (), {"approximate": "tanh"}, (4, 5)),
    ("SiLU", (), {"inplace": True}, (4, 5)),
    ("Mish", (), {}, (4, 5)),
    ("Sigmoid", (), {}, (4, 5)),
    ("LogSigmoid", (), {}, (4, 5)),
    ("Tanh", (), {}, (4, 5)),
    ("Tanhshrink", (), {}, (4, 5)),
    ("Softplus", (2.0, 1.0), {}, (4, 5)),
    ("Softsign", (), {}, (4, 5)),
    ("Softshrink", (0.3,), {}, (4, 5)),
    ("Hardshrink", (0.3,), {}, (4, 5)),
    ("Hardtanh", (-0.5, 0.7), {}, (4, 5)),
    ("Hardsigmoid", (), {}, (4, 5)),
    ("Hardswish", (), {}, (4, 5)),
    ("Threshold", (0.1, 7.0), {}, (4, 5)),
    ("PReLU", (), {}, (4, 5)),
    ("PReLU", (3,), {"init": 0.1}, (2, 3, 4)),
    ("GLU", (1,), {}, (3, 4, 2)),
    ("Softmax", (-1,), {}, (4, 5)),
    ("LogSoftmax", (0,), {}, (4, 5)),
    ("Softmin", (1,), {}, (4, 5)),
]
# torch computes these with constants rounded to float32.
ROUNDED = {"CELU": 1e-6, "Hardsigmoid": 1e-6}
IDS = [f"{i}-{row[0]}" for i, row in enumerate(LAYERS)]

pytestmark = pytest.mark.usefixtures("reference_backend")


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAYERS, ids=IDS)
def test_layer_as_torch(name, args, kwargs, shape, rng, torch):
    mine = getattr(nn, name)(*args, **kwargs).double()
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    tolerance = ROUNDED.get(name, 1e-9)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for (key, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert tuple(a.shape) == tuple(b.shape), key
    theirs.load_state_dict({k: as_torch(v) for k, v in mine.state_dict().items()})

    for step in range(2):  # twice: running statistics move
        data = rng.normal(size=shape)
        x = minigrad.tensor(data, requires_grad=True)
        y = torch.tensor(data, requires_grad=True)
        out, wanted = mine(x + 0), theirs(y + 0)  # + 0: an in-place layer may not change a leaf
        close(out, wanted, tolerance, "forward")
        g = rng.normal(size=out.shape)
        out.backward(minigrad.tensor(g))
        wanted.backward(torch.tensor(g))
        close(x.grad, y.grad, tolerance, "input gradient")
        for (key, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            close(a.grad, b.grad, what=key)
        for (key, a), b in zip(mine.named_buffers(), theirs.buffers(), strict=True):
            close(a, b, what=f"{key} after step {step}")
    mine.eval(), theirs.eval()
    data = rng.normal(size=shape)
    close(mine(minigrad.tensor(data)), theirs(torch.tensor(data)), tolerance, "eval")


def test_bilinear_and_embedding_as_torch(rng, torch):
    mine, theirs = nn.Bilinear(3, 4, 5).double(), torch.nn.Bilinear(3, 4, 5).double()
    assert repr(mine) == repr(theirs)
    theirs.load_state_dict({k: as_torch(v) for k, v in mine.state_dict().items()})
    a, b = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 4))
    close(mine(minigrad.tensor(a), minigrad.tensor(b)), theirs(torch.tensor(a), torch.tensor(b)))
    table, their_table = nn.Embedding(7, 3, padding_idx=-2), torch.nn.Embedding(7, 3, 5)
    assert repr(table) == repr(their_table)
    assert float(table.weight[5].abs().sum()) == 0
    their_table.load_state_dict({"weight": as_torch(table.weight)})
    index = rng.integers(0, 7, (2, 5))
    index[0, :2] = 5
    out, wanted = table(minigrad.tensor(index)), their_table(torch.tensor(index))
    close(out, wanted)
    (out * out + out).sum().backward()  # + out: the padding row, all zeros, must get nothing of it
    (wanted * wanted + wanted).sum().backward()
    close(table.weight.grad, their_table.weight.grad, 1e-6)


@pytest.mark.parametrize(
    ("options", "masks", "how"),
    [
        ({}, (), {}),
        ({"batch_first": True, "bias": False}, ("padding",), {"average_attn_weights": False}),
        ({"kdim": 4, "vdim": 6}, ("causal",), {"need_weights": False}),
        ({"batch_first": True}, ("padding", "heads"), {"need_weights": False}),
        ({"add_bias_kv": True, "add_zero_attn": True}, ("padding", "causal"), {}),
        ({"add_bias_kv": True, "batch_first": True}, (), {"average_attn_weights": False}),
        ({"add_zero_attn": True, "kdim": 4}, ("padding",), {"need_weights": False}),
    ],
)
def test_multihead_attention_as_torch(options, masks, how, rng, torch):
    mine, theirs = (m.nn.MultiheadAttention(8, 2, **options).double() for m in (minigrad, torch))
    assert list(mine.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict({k: as_torch(v) for k, v in mine.state_dict().items()})
    n, queries, keys = 3, 4, 5
    shapes = [(queries, n, 8), (keys, n, options.get("kdim", 8)), (keys, n, options.get("vdim", 8))]
    if options.get("batch_first"):
        shapes = [(b, a, c) for a, b, c in shapes]
    arrays = [rng.normal(size=shape) for shape in shapes]
    given = {}
    if "padding" in masks:
        given["key_padding_mask"] = np.arange(keys) >= np.array([[5], [2], [4]])
    if "causal" in masks:
        given["attn_mask"] = np.triu(np.ones((queries, keys), bool), 1)
    if "heads" in masks:
        given["attn_mask"] = rng.random((2 * n, queries, keys)) > 0.8
        given["attn_mask"][..., 0] = False
    results = []
    for m, layer in ((minigrad, mine), (torch, theirs)):
        inputs = [m.tensor(a, requires_grad=True) for a in arrays]
        out, weights = layer(*inputs, **{k: m.tensor(v) for k, v in given.items()}, **how)
        (out * out).sum().backward()
        results.append(
            (out, weights, *(x.grad for x in inputs), *(p.grad for p in layer.parameters()))
        )
    for a, b in zip(*results, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


def test_tables_from_weights_as_torch(rng, torch):
    table, words = rng.normal(size=(5, 3)), [[1, 1, 2], [3, 1, 4]]

    def made(t):
        weights = t.tensor(table)
        layers = [
            t.nn.Embedding.from_pretrained(weights.clone(), False, 1, 1.0, 1.0, True),
            t.nn.Embedding.from_pretrained(weights.clone(), max_norm=0.5),
            t.nn.EmbeddingBag.from_pretrained(weights.clone(), False, mode="max", padding_idx=1),
            t.nn.EmbeddingBag.from_pretrained(weights.clone(), max_norm=0.5),
        ]
        results = [repr(layer) + str(layer.weight.requires_grad) for layer in layers]
        for layer in layers:
            out = layer(t.tensor(words))
            if out.requires_grad:
                (out * out).sum().backward()
            results += [out.tolist(), layer.weight.tolist()]
            results.append(None if layer.weight.grad is None else layer.weight.grad.tolist())
        tree = t.nn.ModuleList([layers[0], layers[0]])
        return results, [len(list(tree.modules(remove_duplicate=flag))) for flag in (True, False)]

    (mine, counts), (theirs, their_counts) = made(minigrad), made(torch)
    assert counts == their_counts == [2, 3]
    for a, b in zip(mine, theirs, strict=True):
        assert a == b if isinstance(b, str | None) else np.allclose(a, b, atol=1e-12)


def test_attention_from_given_weights_as_torch(rng, torch):
    """As CLIP pools: three projections, one bias; and with keys and values that are projected."""
    x = rng.normal(size=(5, 3, 8))
    w = {name: rng.normal(size=(8, 8)) for name in ("q", "k", "v", "out")}
    bias, own = rng.normal(size=(24,)), rng.normal(size=(6, 4, 4))
    results = []
    for m in (minigrad, torch):
        given = {k: m.tensor(v) for k, v in w.items()}
        fixed = (None, m.tensor(bias), None, None, False, 0.0, given["out"], m.zeros(8).double())
        for more in ({}, {"static_k": m.tensor(own), "static_v": m.tensor(own) * 2}):
            results += m.nn.functional.multi_head_attention_forward(
                *(m.tensor(x[:1]), m.tensor(x), m.tensor(x), 8, 2, *fixed),
                use_separate_proj_weight=True,
                q_proj_weight=given["q"],
                k_proj_weight=given["k"],
                v_proj_weight=given["v"],
                need_weights=bool(more),
                **more,
            )
    for mine, theirs in zip(results[:4], results[4:], strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            close(mine, theirs, 1e-9)


def test_multihead_attention_errors_and_unbatched(rng):
    layer = nn.MultiheadAttention(8, 2)
    x = minigrad.tensor(rng.normal(size=(4, 1, 8)).astype(np.float32))
    close(layer(x[:, 0], x[:, 0], x[:, 0])[0], layer(x, x, x)[0][:, 0].detach().numpy(), 1e-5)
    with pytest.raises(AssertionError, match="divisible by num_heads"):
        nn.MultiheadAttention(7, 2)
    with pytest.raises(AssertionError, match="embedding dimension of 8, but got 5"):
        layer(x, x[..., :5], x)
    with pytest.raises(RuntimeError, match="is_causal hint"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match=r"attn_mask is \(4, 3\), but should be \(4, 4\)"):
        layer(x, x, x, attn_mask=minigrad.zeros(4, 3))
    with pytest.raises(AssertionError, match="only bool and floating types of key_padding_mask"):
        layer(x, x, x, key_padding_mask=minigrad.zeros(1, 4).int())


def test_attention_and_norm_errors_as_torch(torch):

    def message(m, call):
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            call(m, m.nn.functional)
        return plain(str(caught.value))

    for call in (
        lambda m, F: F.layer_norm(m.ones(2, 4), (5,)),
        lambda m, F: F.layer_norm(m.ones(2, 4), ()),
        lambda m, F: F.layer_norm(m.ones(2, 4), (4,), m.ones(3)),
        lambda m, F: F.layer_norm(m.ones(2, 4), (4,), None, m.ones(3)),
        lambda m, F: F.layer_norm(m.ones(2, 4).long(), (4,)),
        lambda m, F: F.rms_norm(m.ones(2, 4), (4,), m.ones(3)),
        lambda m, F: F.scaled_dot_product_attention(*[m.ones(3)] * 3),
        lambda m, F: F.scaled_dot_product_attention(*[m.ones(3, 2)] * 3, dropout_p=1.5),
    ):
        assert message(minigrad, call) == message(torch, call)
    x, F = minigrad.ones(2, 3, 4), minigrad.nn.functional
    for match, args, named in (
        ("same dtype", (x, x.double(), x), {}),
        ("attn_mask dtype to be bool or float", (x, x, x, minigrad.ones(3, 3).long()), {}),
        ("does not broadcast to the scores", (x, x, x, minigrad.ones(4, 2, 3, 3)), {}),
        (r"expected query \(..., L, E\)", (x, x[..., :2], x), {}),
        ("must divide the number of heads", (x, x[:0], x[:0]), {"enable_gqa": True}),
    ):
        with pytest.raises(RuntimeError, match=match):
            F.scaled_dot_product_attention(*args, **named)


def test_max_pool_indices(rng, torch):
    data = rng.normal(size=(2, 3, 6, 7))
    for name, size in (("MaxPool2d", 2), ("AdaptiveMaxPool2d", (4, 3))):
        values, where = getattr(nn, name)(size, return_indices=True)(minigrad.tensor(data))
        theirs = getattr(torch.nn, name)(size, return_indices=True)
        wanted, index = theirs(torch.tensor(data))
        close(values, wanted)
        close(where, index)


def test_linear_formula(rng):
    layer = nn.Linear(4, 3)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    close(layer(minigrad.tensor(x)), x @ weight.T + bias, 1e-6)


def test_batch_norm_formula(rng):
    layer = nn.BatchNorm2d(3).double()
    x = rng.normal(2.0, 3.0, size=(4, 3, 5, 2))
    y = layer(minigrad.tensor(x)).detach().numpy()
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    shape = (1, 3, 1, 1)
    wanted = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5)
    np.testing.assert_allclose(y, wanted, rtol=1e-10, atol=1e-10)
    count = x.size // 3
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * mean, rtol=1e-10)
    unbiased = var * count / (count - 1)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * unbiased, rtol=1e-10)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    before = layer.running_mean.numpy().copy()
    layer(minigrad.tensor(x))
    assert (layer.running_mean.numpy() == before).all()


@pytest.mark.parametrize("affine", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("has_weight", [True, False])
def test_gradients_of_batch_norm_with_fixed_statistics(rng, has_weight, affine):
    """In evaluation, with parameters that are trained or are not: g * weight / sqrt(var + eps)."""
    x, g = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 3, 5))
    mean, var, scale, shift = rng.standard_normal(3), rng.uniform(0.5, 2, 3), *rng.random((2, 3))
    placed = minigrad.tensor(x, requires_grad=True)
    weight, bias = (minigrad.tensor(v, requires_grad=a) for v, a in zip((scale, shift), affine))
    given = (weight, bias) if has_weight else (None, None)
    statistics = minigrad.tensor(mean), minigrad.tensor(var)
    y = nn.functional.batch_norm(placed, *statistics, *given, training=False)
    y.backward(minigrad.tensor(g))
    inverse = 1 / np.sqrt(var + 1e-5)
    factor = inverse * scale if has_weight else inverse
    np.testing.assert_allclose(placed.grad.numpy(), g * factor[:, None], rtol=1e-9)
    normal = (x - mean[:, None]) * inverse[:, None]
    for parameter, slope in ((weight, (g * normal).sum((0, 2))), (bias, g.sum((0, 2)))):
        if has_weight and parameter.requires_grad:
            np.testing.assert_allclose(parameter.grad.numpy(), slope, rtol=1e-9, atol=1e-12)
        else:
            assert parameter.grad is None


def test_dropout_keeps_the_mean_and_evaluates_to_the_identity():
    minigrad.manual_seed(0)
    layer = nn.Dropout(0.3)
    x = minigrad.ones(200, 100)
    y = layer(x).numpy()
    values = np.unique(y)
    np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
    # 20000 draws: four standard deviations of the share of zeros.
    assert abs((y == 0).mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 20000)
    assert not (layer(x).numpy() == y).all()
    layer.eval()
    assert (layer(x).numpy() == 1).all()


def test_dropout2d_drops_whole_channels():
    minigrad.manual_seed(1)
    y = nn.Dropout2d(0.5)(minigrad.ones(8, 16, 3, 3)).numpy()
    per_channel = y.reshape(8 * 16, 9)
    assert (per_channel.min(1) == per_channel.max(1)).all()
    assert 0.3 < (per_channel[:, 0] == 0).mean() < 0.7


def test_inplace_activation_changes_its_input():
    x = minigrad.tensor([-1.0, 2.0])
    for layer in (nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True)):
        y = layer(x)
        assert y is x
    assert x.tolist() == [0.0, 2.0]


def test_softmax_without_dim_warns():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        y = nn.Softmax()(minigrad.tensor([[1.0, 1.0]]))
    assert y.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.Conv2d(3, 4, 3, groups=2),
        lambda t: t.nn.Conv2d(4, 3, 3, groups=2),
        lambda t: t.nn.Conv2d(4, 3, 3, groups=0),
        lambda t: t.nn.Conv2d(4, 3, 3, stride=2, padding="same"),
        lambda t: t.nn.Dropout(1.5),
        lambda t: t.nn.GroupNorm(4, 6),
        lambda t: t.nn.Embedding(3, 2, padding_idx=3),
        lambda t: t.nn.Hardtanh(1.0, -1.0),
        lambda t: t.nn.Bilinear(0, 2, 3),
        lambda t: t.nn.BatchNorm1d(3)(t.zeros(2)),
        lambda t: t.nn.BatchNorm2d(3)(t.zeros(2, 3)),
        lambda t: t.nn.BatchNorm1d(3)(t.zeros(1, 3)),
        lambda t: t.nn.InstanceNorm2d(3)(t.zeros(2, 3)),
        lambda t: t.nn.functional.dropout(t.zeros(2), p=-0.1),
        lambda t: t.nn.functional.gelu(t.zeros(2), approximate="erf"),
        lambda t: t.nn.functional.one_hot(t.zeros(2)),
        lambda t: t.nn.functional.one_hot(t.tensor([3]), 3),
    ],
    ids=range(17),
)
def test_layer_errors_as_torch(program, same_error):
    same_error(program)


@pytest.mark.parametrize(
    ("shape", "program"),
    [
        ((3, 0, 4), lambda n, x: n.MultiheadAttention(4, 2)(x, x, x)[0]),
        ((0, 3, 4), lambda n, x: n.TransformerEncoderLayer(4, 2, 8)(x)),
        ((0, 3, 4, 4), lambda n, x: n.Upsample(scale_factor=2)(x)),
        ((0, 3, 2, 2), lambda n, x: n.MaxUnpool2d(2)(x, x.long())),
    ],
)
def test_batches_of_nothing_as_torch(shape, program, torch):
    shapes = []
    for t in (minigrad, torch):
        x = t.zeros(shape, requires_grad=True)
        found = program(t.nn, x)
        found.sum().backward()
        assert found.numel() == 0 and x.grad.shape == shape
        shapes.append(tuple(found.shape))
    assert shapes[0] == shapes[1]


def test_features_of_instance_norm_as_torch(torch):
    """The number of channels counts where there are parameters; else a wrong one warns."""
    for t in (minigrad, torch):
        with pytest.raises(ValueError, match=r"match num_features \(3\), but got: 4"):
            t.nn.InstanceNorm1d(3, affine=True)(t.ones(2, 4, 5))
        with pytest.warns(UserWarning, match="does not match num_features"):
            t.nn.InstanceNorm1d(3)(t.ones(2, 4, 5))


def test_softshrink_needs_a_width():
    with pytest.raises(RuntimeError, match="lambda must be"):
        nn.functional.softshrink(minigrad.zeros(2), -1.0)


def test_repr_of_a_network(torch):

    def build(n):
        return n.Sequential(
            n.Conv2d(1, 8, 3, padding=1),
            n.ModuleList([n.Linear(2, 3), n.Sequential(n.ReLU(), n.Dropout(0.2))]),
            n.ModuleDict({"pool": n.MaxPool2d(2)}),
            n.CrossEntropyLoss(label_smoothing=0.1),
            n.Sequential(),
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert plain(repr(build(nn))) == plain(repr(build(torch.nn)))
        assert repr(build(nn)) == repr(build(torch.nn))


@pytest.mark.parametrize(
    ("name", "args"),
    [("CosineSimilarity", (-1,)), ("CosineSimilarity", (0, 1e-3)), ("PairwiseDistance", (1.0,))],
)
def test_distance_layers_match_torch(name, args, torch, rng):
    values = rng.standard_normal((2, 4, 5))
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    assert repr(ours) == repr(theirs)
    close(ours(*map(minigrad.tensor, values)), theirs(*map(torch.tensor, values)))


@pytest.mark.parametrize(
    "options",
    [{"scale_grad_by_freq": True}, {"max_norm": 0.7}, {"max_norm": 2.0, "norm_type": 1.0}],
    ids=str,
)
def test_embedding_options_match_torch(options, torch, rng):
    table, index = rng.standard_normal((5, 3)), np.array([[0, 2, 2], [4, 2, 0]])
    seed = rng.standard_normal((2, 3, 3))
    results = []
    for m in (minigrad, torch):
        layer = m.nn.Embedding(5, 3, padding_idx=4, _weight=m.tensor(table), **options)
        y = layer(m.tensor(index))
        y.backward(m.tensor(seed))
        results.append((repr(layer), y, layer.weight, layer.weight.grad))
    assert results[0][0] == results[1][0]
    for ours, theirs in zip(results[0][1:], results[1][1:], strict=True):
        close(ours, theirs)


def test_instance_norm_without_momentum_or_samples():
    norm = nn.InstanceNorm1d(2, momentum=None, track_running_stats=True)
    norm(minigrad.rand(2, 2, 3))
    assert norm.running_mean.tolist() == [0, 0]
    assert nn.InstanceNorm2d(4, affine=True)(minigrad.zeros(0, 4, 7, 8)).shape == (0, 4, 7, 8)


def test_rms_norm_promotes():
    x = minigrad.rand(2, 4, dtype=minigrad.float64)
    assert nn.RMSNorm(4)(x).dtype == minigrad.float64


def test_hardswish_has_one_slope_where_it_bends():
    x = minigrad.tensor([-3.0, 3.0], requires_grad=True)
    nn.functional.hardswish(x).sum().backward()
    assert x.grad.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.BatchNorm1d(4)(x), RuntimeError, "mixed dtype"),
        (lambda x: nn.InstanceNorm1d(4, affine=True)(x), RuntimeError, "mixed dtype"),
        (lambda x: nn.GroupNorm(2, 4)(x), RuntimeError, "mixed dtype"),
        (lambda x: nn.LSTM(5, 3)(x), ValueError, "does not match weight dtype"),
        (
            lambda x: nn.functional.nll_loss(x[0], x[0, :, 0].long(), minigrad.ones(5)),
            RuntimeError,
            "a weight of input's dtype",
        ),
    ],
)
def test_inputs_of_another_dtype_than_the_parameters(call, error, match):
    with pytest.raises(error, match=match):
        call(minigrad.zeros(3, 4, 5, dtype=minigrad.float64))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda F, x: F.embedding_bag(x.long(), x, mode="max", sparse=True),
            ValueError,
            "max mode does not support sparse",
        ),
        (lambda F, x: F.triplet_margin_loss(x, x, x[0]), RuntimeError, "as many dimensions"),
        (lambda F, x: F.margin_ranking_loss(x, x, x[0]), RuntimeError, "as many dimensions"),
        (lambda F, x: F.cosine_embedding_loss(x, x, x), RuntimeError, "at most one"),
        (lambda F, x: F.celu(x, 0), RuntimeError, "alpha cannot be 0"),
        (
            lambda F, x: F.scaled_dot_product_attention(x, x, x, x[:, :2], is_causal=True),
            RuntimeError,
            "should not be set when is_causal=True",
        ),
        (lambda F, x: nn.utils.rnn.pad_sequence([]), RuntimeError, "an empty list"),
        (
            lambda F, x: nn.MultiheadAttention(4, 2)(x, x, x, attn_mask=x[:, :2].long()),
            AssertionError,
            "only bool and floating types of attn_mask",
        ),
    ],
)
def test_calls_that_torch_refuses(call, error, match):
    with pytest.raises(error, match=match):
        call(nn.functional, minigrad.zeros(2, 4))


def test_a_window_of_padding_alone_has_no_maximum():
    """Its place would lie outside of the image."""
    x = minigrad.ones(1, 1, 1, 4)
    with pytest.raises(RuntimeError, match="windows that have no element of an image"):
        nn.functional.max_pool2d(x, 2, 1, 1, dilation=2)
    assert nn.functional.max_pool2d(x, (1, 2), 1, (0, 1), dilation=2).shape == (1, 1, 1, 4)
