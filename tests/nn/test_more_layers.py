"""Layers for volumes, further losses, pools and shuffles: as torch's, and what needs no torch."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import kernels
import minigrad
from minigrad import backends, nn

SIGNS = np.array([[1, -1, 1], [-1, 1, 1]], np.float32)
LENGTHS = (np.array([12, 5, 7]), np.array([4, 4, 2]))
WORDS = np.array([[1, 2, 2, 3], [3, 3, 3, 3], [4, 1, 0, 0]])
VOLUME = (2, 2, 5, 6, 7)
STARTS = np.array([0, 4, 4])

LAYERS = [
    (lambda n: n.Conv3d(2, 4, 3, stride=2, padding=1), VOLUME),
    (lambda n: n.Conv3d(2, 4, 3, padding=1, padding_mode="circular"), VOLUME),
    (lambda n: n.ConvTranspose3d(2, 4, 3, stride=2, padding=1, output_padding=1), (2, 3, 4, 3)),
    (lambda n: n.MaxPool3d(2, 1, 1), VOLUME),
    (lambda n: n.AvgPool3d(2, 1, 1, count_include_pad=False), VOLUME),
    (lambda n: n.AdaptiveAvgPool3d((2, 3, None)), VOLUME),
    (lambda n: n.AdaptiveMaxPool3d((2, 3, 4)), VOLUME),
    (lambda n: n.BatchNorm3d(2), VOLUME),
    (lambda n: n.InstanceNorm3d(2, affine=True), VOLUME),
    (lambda n: n.ReflectionPad3d((1, 2, 1, 0, 2, 1)), VOLUME),
    (lambda n: n.ReplicationPad3d(1), VOLUME),
    (lambda n: n.CircularPad3d(1), VOLUME),
    (lambda n: n.ZeroPad3d(1), VOLUME),
    (lambda n: n.ConstantPad3d(1, 2.0), VOLUME),
    (lambda n: n.ZeroPad1d(1), (2, 2, 5)),
    (lambda n: n.LocalResponseNorm(3), (2, 5, 4, 4)),
    (lambda n: n.PixelUnshuffle(2), (2, 3, 4, 6)),
    (lambda n: n.ChannelShuffle(2), (2, 4, 3)),
    (lambda n: n.Softmax2d(), (2, 3, 4, 4)),
    (lambda n: n.RReLU().eval(), (3, 4)),
    (lambda n: n.LPPool1d(3, 3), (2, 3, 8)),
    (lambda n: n.LPPool2d(2, 3, stride=2), (2, 3, 8, 8)),
    (lambda n: n.LPPool3d(2, 2), VOLUME),
    (lambda n: n.Dropout3d().eval(), VOLUME),
    (lambda n: n.AlphaDropout().eval(), (3, 4)),
    (lambda n: n.SoftMarginLoss(), (2, 3), SIGNS),
    (lambda n: n.HingeEmbeddingLoss(0.5), (2, 3), SIGNS),
    (lambda n: n.MultiLabelSoftMarginLoss(), (2, 3), (SIGNS > 0).astype(np.float32)),
    (lambda n: n.MultiMarginLoss(2, 0.5), (2, 3), np.array([1, 2])),
    (lambda n: n.MultiLabelMarginLoss(), (2, 4), np.array([[3, 0, -1, 1], [1, -1, 2, 0]])),
    (lambda n: n.PoissonNLLLoss(full=True), (2, 3), abs(SIGNS) * 3),
    (lambda n: n.GaussianNLLLoss(), (2, 3), SIGNS, abs(SIGNS) + 0.5),
    (lambda n: n.TripletMarginWithDistanceLoss(swap=True), (2, 3), (2, 3), (2, 3)),
    *[
        (lambda n, r=r, z=z: n.CTCLoss(reduction=r, zero_infinity=z), (12, 3, 5), WORDS, *LENGTHS)
        for r in ("none", "mean", "sum")
        for z in (False, True)
    ],
    *[
        (lambda n, m=m: n.EmbeddingBag(10, 3, mode=m, padding_idx=2), np.arange(8), STARTS)
        for m in ("sum", "mean", "max")
    ],
]  # fmt: skip


@pytest.mark.parametrize("case", LAYERS)
def test_like_torch(case, torch, rng):
    make, *specs = case
    arrays = [
        rng.standard_normal(s).astype(np.float32) if isinstance(s, tuple) else s for s in specs
    ]
    ours, theirs = make(nn), make(torch.nn)
    assert repr(ours) == repr(theirs)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    results = []
    for lib, layer in ((minigrad, ours), (torch, theirs)):
        inputs = [lib.tensor(a) for a in arrays]
        if arrays[0].dtype == np.float32:
            inputs[0].requires_grad_()
        first = inputs[0].log_softmax(-1) if "CTC" in repr(layer) else inputs[0]
        y = layer(first, *inputs[1:])
        kept = lib.where(lib.isinf(y), 0.0, y)
        if kept.requires_grad:
            kept.sum().backward()
        results.append([y, *(p.grad for p in layer.parameters()), inputs[0].grad])
    for a, b in zip(*results, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            values = [t.detach().numpy() for t in (a, b)]
            if np.isfinite(values[1]).all() or a is results[0][0]:
                np.testing.assert_allclose(*values, rtol=1e-4, atol=2e-5)


def test_max_unpool_undoes_the_pool(rng, reference_backend):
    for dims, shape in ((1, (2, 3, 8)), (2, (2, 3, 4, 6)), (3, (1, 2, 4, 2, 4))):
        x = minigrad.from_numpy(rng.standard_normal(shape))
        pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
        y, at = pool(x)
        back = getattr(nn, f"MaxUnpool{dims}d")(2)(y, at)
        assert back.shape == x.shape
        assert ((back == x) | (back == 0)).all() and int((back != 0).sum()) == y.numel()
    with pytest.raises(ValueError, match="invalid output_size"):
        nn.functional.max_unpool2d(y[:, :, 0], at[:, :, 0] * 0, 2, output_size=(90, 90))


def test_the_gradients_of_group_norm_are_one_pass(rng):
    x, weight, bias = (
        minigrad.tensor(rng.random(shape), requires_grad=True) for shape in ((2, 6, 5), 6, 6)
    )
    with kernels.trace() as trace:
        nn.functional.group_norm(x, 3, weight, bias).sum().backward()
    backward = {row for row in trace.rows if "backward" in row[0]}
    assert backward == {("group_norm_backward", "groups")}


def test_the_identity_grid_samples_the_image(rng, reference_backend):
    image = minigrad.from_numpy(rng.standard_normal((2, 3, 5, 4)))
    identity = minigrad.tensor([[[1.0, 0, 0], [0, 1, 0]]] * 2, dtype=minigrad.float64)
    for aligned in (False, True):
        grid = nn.functional.affine_grid(identity, image.shape, align_corners=aligned)
        for mode in ("bilinear", "nearest", "bicubic"):
            found = nn.functional.grid_sample(image, grid, mode, align_corners=aligned)
            np.testing.assert_allclose(found, image, atol=1e-12)


def test_ctc_by_enumeration(rng, reference_backend):
    """The probability of a word is the sum over all ways to spell it."""
    import itertools

    probs = minigrad.from_numpy(rng.standard_normal((4, 1, 3))).softmax(-1)
    word, total = [1, 2], 0.0
    for path in itertools.product(range(3), repeat=4):
        spelled = [label for label, _ in itertools.groupby(path) if label]
        if spelled == word:
            total += np.prod([probs[t, 0, label].item() for t, label in enumerate(path)])
    loss = nn.functional.ctc_loss(probs.log(), minigrad.tensor([word]), [4], [2], reduction="sum")
    assert loss.item() == pytest.approx(-np.log(total))
    never = minigrad.tensor([[1, 1, 1]])
    assert nn.functional.ctc_loss(probs.log(), never, [4], [3]).item() == np.inf
    assert nn.functional.ctc_loss(probs.log(), never, [4], [3], zero_infinity=True).item() == 0
    with pytest.raises(RuntimeError, match=r"log_probs tensor must not be empty, got \[0, 1, 3\]"):
        nn.functional.ctc_loss(probs[:0], never, [0], [0])


@pytest.mark.parametrize("word", [[1, 2], [1, 1, 1]])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_has_the_dtype_of_its_input(word, zero_infinity, torch):
    """Whatever the default dtype is; also of a word that cannot be spelled."""
    for m, wide, narrow in ((m, m.float64, m.float32) for m in (minigrad, torch)):
        for default, dtype in ((wide, narrow), (narrow, wide)):
            m.set_default_dtype(default)
            try:
                probs = m.zeros(4, 1, 3, dtype=dtype).log_softmax(-1).requires_grad_()
                labels, lengths = m.tensor([word]), (m.tensor([4]), m.tensor([len(word)]))
                loss = m.nn.functional.ctc_loss(
                    probs, labels, *lengths, zero_infinity=zero_infinity
                )
                loss.backward()
                assert loss.dtype == probs.grad.dtype == dtype
            finally:
                m.set_default_dtype(m.float32)


def test_alpha_dropout_keeps_mean_and_variance(reference_backend):
    minigrad.manual_seed(0)
    x = minigrad.randn(40_000)
    y = nn.AlphaDropout(0.3)(x)
    assert abs(y.mean().item()) < 0.03 and abs(y.var().item() - 1) < 0.05
    channels = nn.FeatureAlphaDropout(0.5)(minigrad.ones(4, 8, 3))
    assert (channels == channels[:, :, :1]).all()


def test_lazy_layers_for_volumes(reference_backend):
    model = nn.Sequential(nn.LazyConv3d(4, 2), nn.LazyBatchNorm3d(), nn.LazyConvTranspose3d(2, 2))
    assert model(minigrad.rand(1, 3, 4, 4, 4)).shape == (1, 2, 4, 4, 4)
    assert type(model[0]) is nn.Conv3d and model[0].in_channels == 3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: nn.Conv3d(2, 2, 3)(x[0, 0]), RuntimeError, "Expected 4D .* or 5D"),
        (lambda x: nn.Conv3d(2, 2, 9)(x), RuntimeError, "Kernel size can't be greater"),
        (lambda x: nn.Conv3d(4, 2, 3)(x), RuntimeError, "to have 4 channels, but got 2"),
        (lambda x: nn.MaxPool3d(2)(x[0, 0]), RuntimeError, "non-empty 4D or 5D"),
        (lambda x: nn.CircularPad1d(1)(x), ValueError, "expected 2D or 3D input .got 5D"),
        (lambda x: nn.BatchNorm3d(2)(x[0]), ValueError, "expected 5D input"),
        (lambda x: nn.PixelUnshuffle(4)(x[0]), RuntimeError, "divisible by downscale_factor"),
        (lambda x: nn.functional.grid_sample(x, x), RuntimeError, "expected 4D or 5D input"),
        (lambda x: nn.functional.affine_grid(x, (1, 1, 2, 2)), ValueError, "affine matrices"),
        (lambda x: nn.functional.embedding_bag(x, x), ValueError, "a vector and offsets"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(minigrad.rand(1, 2, 5, 6, 7))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_images_of_bytes_as_torch(mode, antialias, rng, torch):
    """torch rounds its weights, too: a few bytes differ a little."""
    image = rng.integers(0, 256, (2, 3, 37, 29)).astype(np.uint8)
    for size in ((64, 70), (20, 17), (37, 12)):
        mine, theirs = (
            t.nn.functional.interpolate(t.from_numpy(image), size, mode=mode, antialias=antialias)
            for t in (minigrad, torch)
        )
        assert mine.dtype == minigrad.uint8
        apart = np.abs(mine.int().numpy() - theirs.int().numpy())
        assert apart.max() <= 2 and (apart > 0).mean() < 0.1


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.PReLU().double()(t.ones(2)),
        lambda t: t.nn.functional.prelu(t.ones(2), t.tensor([1])),
        lambda t: t.nn.GroupNorm(4, 4)(t.ones(1, 4)),
        lambda t: t.nn.GroupNorm(2, 2).eval()(t.ones(1, 2, 1)),
        lambda t: t.nn.functional.embedding(t.ones(2).byte(), t.ones(3, 2)),
    ],
    ids=range(5),
)
def test_refused_as_in_torch(program, same_error):
    same_error(program)


@pytest.mark.parametrize(
    ("error", "program"),
    [
        (IndexError, lambda n, x: n.Sequential(n.ReLU()).insert(5, n.ReLU())),
        (AssertionError, lambda n, x: n.Sequential(n.ReLU()).insert(0, 3)),
        (RuntimeError, lambda n, x: n.ParameterList([x])(x)),
        (AttributeError, lambda n, x: n.ParameterDict({"a": x})["b"]),
        (RuntimeError, lambda n, x: n.EmbeddingBag(3, 2)(x.long(), x[:2].long() * 0 + 5)),
        (
            ValueError,
            lambda n, x: n.EmbeddingBag(3, 2, mode="sum")(x.long()[None], None, x[:3][None]),
        ),
        (RuntimeError, lambda n, x: n.PixelShuffle(2)(x[None])),
        (RuntimeError, lambda n, x: n.PixelShuffle(0)(x[None, None])),
        (ValueError, lambda n, x: n.TripletMarginLoss(margin=-1)),
        (ValueError, lambda n, x: n.TripletMarginWithDistanceLoss(margin=0)),
        (ValueError, lambda n, x: n.MultiMarginLoss(weight=x[None])),
        (RuntimeError, lambda n, x: n.KLDivLoss(reduction="sum")(x.long(), x.long())),
        (
            ValueError,
            lambda n, x: n.functional.interpolate(x[None, None], 2, recompute_scale_factor=True),
        ),
    ],
)
def test_refused_with_torchs_class_of_error(error, program, torch):
    for t in (minigrad, torch):
        with pytest.raises(error):
            program(t.nn, t.zeros(4))


@pytest.mark.parametrize("norm", [float("inf"), -float("inf")])
def test_power_pools_of_infinite_power_as_torch(norm, rng, torch):
    """The greatest or the least absolute value."""
    values = rng.standard_normal((1, 2, 4, 6, 4))
    for dims, name in enumerate(("lp_pool1d", "lp_pool2d", "lp_pool3d"), 1):
        index = (slice(None),) * 2 + (0,) * (3 - dims)
        mine, theirs = (
            getattr(t.nn.functional, name)(t.tensor(values)[index], norm, 2, ceil_mode=True)
            for t in (minigrad, torch)
        )
        assert mine.tolist() == theirs.tolist()


def test_kinds_of_errors_as_torch(torch):
    for t in (minigrad, torch):
        with pytest.raises(RuntimeError, match="mixed dtype"):
            t.nn.LayerNorm(2)(t.ones(3, 2).long())
        with pytest.raises(TypeError):
            t.nn.AdaptiveAvgPool2d(None)(t.ones(1, 1, 2, 2))
        assert t.nn.AdaptiveAvgPool2d((None, 1))(t.ones(1, 1, 2, 2)).shape == (1, 1, 2, 1)


def test_maxima_of_bags_of_one_length_take_one_reduction(torch, rng):
    rows = rng.integers(-2, 3, (9, 5)).astype(np.float32)  # with equal ones
    places = rng.integers(0, 9, (7, 4))
    found = []
    for m in (minigrad, torch):
        weight = m.from_numpy(rows.copy()).requires_grad_()
        y = m.nn.functional.embedding_bag(m.from_numpy(places), weight, mode="max")
        (y * y).sum().backward()
        found.append((y.detach().numpy(), weight.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with kernels.trace() as trace, minigrad.no_grad():
        nn.functional.embedding_bag(
            minigrad.from_numpy(places), minigrad.from_numpy(rows), mode="max"
        )
    families = {family for family, _ in trace.rows}
    assert not [name for name in families if "scatter" in name or name == "index_add"], families


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_offset_may_be_where_the_last_bag_ends(mode):
    table = minigrad.tensor([[1.0], [2.0], [4.0], [8.0]])
    words, ends = minigrad.tensor([0, 1, 2, 3]), minigrad.tensor([0, 2, 3])
    bags = nn.functional.embedding_bag(words, table, ends, mode=mode, include_last_offset=True)
    assert bags.tolist() == {"sum": [[3], [4]], "mean": [[1.5], [4]], "max": [[2], [4]]}[mode]
    with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0"):
        nn.functional.embedding_bag(words, table, ends[1:])


@pytest.mark.parametrize("width", [1, 5, 40])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_are_products_with_a_sparse_matrix(mode, width, rng):
    """Without a copy of the rows, also where some do not count or bags are empty."""
    table, words = rng.standard_normal((9, width)).astype("f"), rng.integers(0, 9, 24)
    scales, starts = rng.standard_normal(24).astype("f"), np.array([0, 3, 3, 7, 20])
    bags = np.split(np.arange(24), starts[1:])
    for padding in (None, -2):
        kept = [b if padding is None else b[words[b] != 7] for b in bags]
        factors = scales if mode == "sum" else np.ones(24, "f")
        expected = np.array([(table[words[b]] * factors[b, None]).sum(0) for b in kept])
        if mode == "mean":
            expected /= np.array([[max(len(b), 1)] for b in kept])
        weight = minigrad.tensor(table, requires_grad=True)
        how = {"mode": mode, "padding_idx": padding}
        if mode == "sum":
            how["per_sample_weights"] = minigrad.tensor(scales)
        with kernels.trace() as trace:
            y = nn.functional.embedding_bag(
                minigrad.tensor(words), weight, minigrad.tensor(starts), **how
            )
        assert "spmm" in {family for family, _ in trace.rows}
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-5, atol=1e-5)
        y.sum().backward()
        counts = np.zeros(9)
        for b in kept:
            share = factors[b] if mode == "sum" else np.full(len(b), 1 / max(len(b), 1))
            np.add.at(counts, words[b], share)
        np.testing.assert_allclose(weight.grad[:, 0].numpy(), counts, rtol=1e-5, atol=1e-5)


def test_one_row_as_a_weight():
    x = minigrad.rand(2, 3)
    assert minigrad.equal(nn.functional.linear(x, x[0]), x @ x[0])
    with pytest.raises(RuntimeError, match="expected input"):
        nn.functional.linear(x, x[0], x[0, 0])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_what_is_padded_by_itself(mode, reference_backend):
    pad = nn.functional.pad
    assert pad(minigrad.rand(2, 3), (1, 1), mode).shape == (2, 5)
    assert pad(minigrad.rand(2, 2, 2, 3), (1, 1, 0, 1, 1, 1), mode).shape == (2, 4, 3, 5)
    for shape, lengths in [((3,), 2), ((2, 3), 4), ((2, 3), 6), ((2, 2, 2, 3), 2)]:
        with pytest.raises(NotImplementedError, match=f"Padding size {lengths} is not supported"):
            pad(minigrad.rand(shape), (1,) * lengths, mode)


def test_the_grid_of_nearest_elements_has_a_gradient_of_zeros(reference_backend):
    grid = minigrad.zeros(1, 2, 2, 2, requires_grad=True)
    x = minigrad.ones(1, 1, 3, 3, requires_grad=True)
    y = nn.functional.grid_sample(x, grid, "nearest", align_corners=False)
    y.sum().backward()
    assert grid.grad.tolist() == minigrad.zeros(1, 2, 2, 2).tolist()
    assert x.grad.sum().item() == 4


@pytest.mark.parametrize("options", [{}, {"div_value": 2.0, "head_bias": True}])
def test_adaptive_softmax_as_torch(options, rng, torch):
    data, targets = rng.normal(size=(9, 16)), np.array([0, 3, 4, 11, 12, 19, 2, 13, 0])
    results = []
    for t in (torch, minigrad):
        layer = t.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 12], **options).double()
        if t is torch:
            weights = {k: v.numpy() for k, v in layer.state_dict().items()}
            text = repr(layer)
        else:
            layer.load_state_dict({k: t.tensor(v) for k, v in weights.items()})
            assert repr(layer) == text
        x = t.tensor(data, requires_grad=True)
        found = layer(x, t.tensor(targets))
        found.loss.backward()
        grads = [p.grad for p in layer.parameters()]
        one = layer(x[0], t.tensor(targets[3]))
        head_only = layer(x[:2], t.tensor(targets[:2]))
        results.append([*found, x.grad, *grads, layer.log_prob(x), *one, *head_only])
        results[-1].append(layer.predict(x))
        assert type(found).__name__ == "_ASMoutput" and found._fields == ("output", "loss")
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, []),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2, 1]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2, 2]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [0, 2]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2, 5]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2.5]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(3, 4), m.tensor([1, 2])),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(1, 4), m.tensor([[1]])),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(4), m.tensor([1, 2, 3, 4])),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(1, 4), m.tensor(1)),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(2, 4), m.tensor([1, 5])),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(2, 4), m.tensor([-1, 4])),
    ],
)
def test_errors_of_adaptive_softmax_as_torch(program, same_error):
    same_error(program)


FRACTIONAL = [
    (2, (9, 11), 3, {"output_size": (4, 5)}),
    (2, (9, 11), (2, 3), {"output_ratio": (0.5, 0.7)}),
    (2, (6, 5), 2, {"output_size": 1}),
    (3, (7, 8, 6), 2, {"output_size": (3, 4, 3)}),
]


@pytest.mark.parametrize(("dims", "extent", "kernel", "wanted"), FRACTIONAL, ids=range(4))
def test_fractional_pools_as_torch(dims, extent, kernel, wanted, rng, torch):
    values = rng.standard_normal((2, 3, *extent)).astype(np.float32)
    samples = rng.random((2, 3, dims)).astype(np.float32)
    found = []
    for m in (minigrad, torch):
        x = m.tensor(values, requires_grad=True)
        kind = getattr(m.nn, f"FractionalMaxPool{dims}d")
        layer = kind(kernel, return_indices=True, _random_samples=m.tensor(samples), **wanted)
        y, places = layer(x)
        (y.sin() * y).sum().backward()
        found.append([t.detach().numpy() for t in (y, places, x.grad)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert mine.dtype == theirs.dtype


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.nn.FractionalMaxPool2d(2),
        lambda m: m.nn.FractionalMaxPool2d(2, 3, 0.5),
        lambda m: m.nn.FractionalMaxPool3d(2, output_ratio=2.0),
        lambda m: m.nn.functional.fractional_max_pool2d(m.ones(1, 1, 4, 4), 2),
    ],
    ids=range(4),
)
def test_errors_of_fractional_pools_as_torch(program, same_error):
    same_error(program)


def test_fractional_windows_differ(rng, reference_backend):
    layer = nn.FractionalMaxPool2d(2, output_ratio=0.6)
    x = minigrad.arange(400.0).reshape(1, 1, 20, 20)
    assert layer(x).shape == (1, 1, 12, 12)
    assert len({tuple(layer(x).flatten().tolist()) for _ in range(8)}) > 1
    with pytest.raises(RuntimeError, match="pool size 5 too large relative to input size 9"):
        nn.FractionalMaxPool2d(5, 8)(minigrad.ones(1, 1, 9, 9))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11])
def test_cross_map_lrn_as_torch(size, rng, torch):
    """Its value: torch's gradient leaves out that channel 0 counts for all that follow."""
    values = rng.standard_normal((2, 5, 4, 4)).astype(np.float32)
    mine, theirs = (
        m.nn.CrossMapLRN2d(size, 0.5, 0.7, 1.5)(m.tensor(values)).numpy() for m in (minigrad, torch)
    )
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    x = minigrad.tensor(values[:1, :, :1, :2], dtype=minigrad.float64, requires_grad=True)
    assert minigrad.autograd.gradcheck(nn.CrossMapLRN2d(size, 0.5), (x,))


@pytest.mark.parametrize("longest", (1, 4))
def test_ctc_of_sequences_of_several_lengths_as_torch(longest, rng, torch):
    given, targets = rng.standard_normal((9, 5, 6)), rng.integers(1, 6, (5, longest))
    targets[0] = targets[0, 0]
    lengths, times = np.array([longest, longest - 1, 0, longest, 1]), np.array([9, 7, 3, 8, 2])
    found = []
    for m in (minigrad, torch):
        x = m.from_numpy(given.copy()).requires_grad_()
        rest = (m.from_numpy(a) for a in (targets, times, lengths))
        loss = m.nn.functional.ctc_loss(x.log_softmax(2), *rest, reduction="none")
        loss.square().sum().backward()
        found.append((loss.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (2, 3, 1, 9)])
def test_maxima_of_whole_planes_are_reductions(shape, rng, torch):
    given = np.round(rng.standard_normal(shape), 1)
    given[0, 0, 0, 0] = np.nan
    found = []
    for m in (minigrad, torch):
        x = m.from_numpy(given.copy()).requires_grad_()
        y, index = m.nn.functional.max_pool2d(x, shape[2:], return_indices=True)
        z = m.nn.functional.adaptive_max_pool2d(x * 2, 1)
        (y * z).nansum().backward()
        found.append([t.detach().numpy() for t in (y, index, z, x.grad)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with backends.use("numba"), kernels.trace() as trace:
        nn.functional.adaptive_max_pool2d(minigrad.ones(shape), 1)
    assert "max_pool2d" not in {name for name, _ in trace.rows}


@pytest.mark.parametrize("planes", [(1, 2), (64, 40)], ids=["few", "many"])
@pytest.mark.parametrize("size", [(9, 10), (3, 2), (7, 5), (14, 15)])
def test_nearest_elements_in_all_dimensions(size, planes, rng, reference_backend):
    """By one index where they are few, else one dimension after the other."""
    x = minigrad.tensor(rng.standard_normal((*planes, 7, 5)), requires_grad=True)
    y = nn.functional.interpolate(x, size)
    rows, columns = (np.arange(m) * n // m for m, n in zip(size, (7, 5)))
    np.testing.assert_array_equal(y.detach(), x.detach().numpy()[:, :, rows[:, None], columns])
    y.sum().backward()
    counts = np.outer(np.bincount(rows, minlength=7), np.bincount(columns, minlength=5))
    np.testing.assert_array_equal(x.grad[0, 0], counts)


def test_factors_of_rows_in_bags_have_a_gradient(rng, reference_backend):
    words, starts = rng.integers(0, 4, 7), minigrad.tensor([0, 2, 2])
    weight, factors = (
        minigrad.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((4, 3), 7)
    )
    for padding in (None, 1):

        def bags(weight, factors, padding=padding):
            how = {"mode": "sum", "per_sample_weights": factors, "padding_idx": padding}
            return nn.functional.embedding_bag(minigrad.tensor(words), weight, starts, **how)

        for check in (minigrad.autograd.gradcheck, minigrad.autograd.gradgradcheck):
            assert check(bags, (weight, factors))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode, dims", [("bicubic", 2), ("bilinear", 3)])
def test_points_of_images_by_a_sparse_product(mode, dims, channels, rng, reference_backend):
    """Beside each point alone, in float16, which takes the other way."""
    x = minigrad.tensor(rng.standard_normal((2, channels, *[4] * dims)), requires_grad=True)
    grid = minigrad.tensor(rng.uniform(-1.4, 1.4, (2, *[3] * dims, dims)), requires_grad=True)
    sample = functools.partial(nn.functional.grid_sample, mode=mode, align_corners=False)
    with kernels.trace() as trace:
        y = sample(x, grid)
    assert "spmm" in {family for family, _ in trace.rows} and not y._is_view()
    coarse = sample(x.detach().half(), grid.detach().half())
    np.testing.assert_allclose(y.detach().numpy(), coarse.float().numpy(), atol=0.03)
    y.backward(minigrad.ones_like(y))
    moved = sample(x, grid.detach() + 1e-6).detach() - sample(x, grid.detach() - 1e-6).detach()
    np.testing.assert_allclose(grid.grad.sum().item(), moved.sum().item() / 2e-6, rtol=1e-4)
