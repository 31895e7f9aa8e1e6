"""Losses: beside torch with every option, and by their formulas."""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import numpy as np
import pytest

import kernels
import minigrad
from minigrad import backends, nn
from minigrad.nn import _linear_loss
from minigrad.nn import functional as F
from tests.nn.helpers import close

pytestmark = pytest.mark.usefixtures("reference_backend")


def real(rng, *shape):
    return rng.normal(size=shape)


def probability(rng, *shape):
    return rng.uniform(0.01, 0.99, size=shape)


def classes(rng, *shape, count=5):
    return rng.integers(0, count, shape)


def distribution(rng, *shape):
    values = rng.uniform(0.1, 1, size=shape)
    return values / values.sum(1, keepdims=True)


def sign(rng, *shape):
    return rng.choice([-1.0, 1.0], size=shape)


W5 = np.array([0.5, 1.0, 2.0, 0.0, 1.5])

# function, inputs, keyword arguments (arrays become tensors)
LOSSES = [
    ("mse_loss", [(real, 4, 3), (real, 4, 3)], {}),
    ("mse_loss", [(real, 4, 3), (real, 4, 3)], {"weight": np.arange(1.0, 13).reshape(4, 3)}),
    ("l1_loss", [(real, 4, 3), (real, 4, 3)], {}),
    ("smooth_l1_loss", [(real, 4, 3), (real, 4, 3)], {}),
    ("smooth_l1_loss", [(real, 4, 3), (real, 4, 3)], {"beta": 0.3}),
    ("smooth_l1_loss", [(real, 4, 3), (real, 4, 3)], {"beta": 0.0}),
    ("huber_loss", [(real, 4, 3), (real, 4, 3)], {"delta": 0.6}),
    ("cross_entropy", [(real, 6, 5), (classes, 6)], {}),
    ("cross_entropy", [(real, 6, 5), (classes, 6)], {"weight": W5}),
    ("cross_entropy", [(real, 6, 5), (classes, 6)], {"ignore_index": 2, "label_smoothing": 0.1}),
    (
        "cross_entropy",
        [(real, 6, 5), (classes, 6)],
        {"weight": W5, "ignore_index": 1, "label_smoothing": 0.3},
    ),
    ("cross_entropy", [(real, 2, 5, 3, 4), (classes, 2, 3, 4)], {"weight": W5}),
    ("cross_entropy", [(real, 5), (classes,)], {}),
    ("cross_entropy", [(real, 6, 5), (distribution, 6, 5)], {}),
    (
        "cross_entropy",
        [(real, 2, 5, 3), (distribution, 2, 5, 3)],
        {"weight": W5, "label_smoothing": 0.2},
    ),
    ("cross_entropy", [(real, 5), (lambda rng: distribution(rng, 1, 5)[0],)], {}),
    ("nll_loss", [(real, 6, 5), (classes, 6)], {}),
    ("nll_loss", [(real, 6, 5), (classes, 6)], {"weight": W5, "ignore_index": 3}),
    ("nll_loss", [(real, 2, 5, 3), (classes, 2, 3)], {"ignore_index": 0}),
    ("binary_cross_entropy", [(probability, 4, 3), (probability, 4, 3)], {}),
    ("binary_cross_entropy", [(probability, 4, 3), (probability, 4, 3)], {"weight": W5[:3]}),
    ("binary_cross_entropy_with_logits", [(real, 4, 3), (probability, 4, 3)], {}),
    (
        "binary_cross_entropy_with_logits",
        [(real, 4, 3), (probability, 4, 3)],
        {"weight": W5[:3], "pos_weight": np.array([1.0, 2.0, 3.0])},
    ),
    ("kl_div", [(real, 4, 5), (distribution, 4, 5)], {}),
    ("kl_div", [(real, 4, 5), (real, 4, 5)], {"log_target": True}),
    ("margin_ranking_loss", [(real, 6), (real, 6), (sign, 6)], {"margin": 0.2}),
    ("cosine_embedding_loss", [(real, 6, 3), (real, 6, 3), (sign, 6)], {"margin": 0.1}),
    ("triplet_margin_loss", [(real, 6, 3)] * 3, {"margin": 0.7}),
    ("triplet_margin_loss", [(real, 6, 3)] * 3, {"swap": True, "p": 1.0}),
]
CASES = [
    pytest.param(*row, reduction, id=f"{i}-{row[0]}-{reduction}")
    for i, row in enumerate(LOSSES)
    for reduction in ("mean", "sum", "none", *(["batchmean"] if row[0] == "kl_div" else []))
]


@pytest.mark.parametrize(("name", "inputs", "kwargs", "reduction"), CASES)
def test_loss_as_torch(name, inputs, kwargs, reduction, rng, torch):
    arrays = [make(rng, *shape) for make, *shape in inputs]
    results = []
    for t in (minigrad, torch):
        first = t.tensor(arrays[0], requires_grad=True)
        rest = [t.tensor(a) for a in arrays[1:]]
        options = {k: t.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = getattr(t.nn.functional, name)(first, *rest, reduction=reduction, **options)
        (loss * loss).sum().backward()
        results.append((loss, first.grad))
    close(results[0][0], results[1][0], what="loss")
    close(results[0][1], results[1][1], what="gradient")


def test_modules_pass_their_options(rng, torch):
    x, target = real(rng, 6, 5), classes(rng, 6)
    rows = [
        ("MSELoss", {}, real(rng, 6, 5)),
        ("L1Loss", {"reduction": "sum"}, real(rng, 6, 5)),
        ("SmoothL1Loss", {"beta": 0.5}, real(rng, 6, 5)),
        ("HuberLoss", {"delta": 0.5}, real(rng, 6, 5)),
        ("CrossEntropyLoss", {"label_smoothing": 0.2, "ignore_index": 1}, target),
        ("CrossEntropyLoss", {"weight": W5}, target),
        ("NLLLoss", {"weight": W5, "reduction": "none"}, target),
        ("BCEWithLogitsLoss", {"pos_weight": W5 + 1}, probability(rng, 6, 5)),
        ("KLDivLoss", {"reduction": "batchmean", "log_target": True}, real(rng, 6, 5)),
    ]
    for name, kwargs, y in rows:
        losses = []
        for t in (minigrad, torch):
            options = {
                k: t.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()
            }
            module = getattr(t.nn, name)(**options)
            losses.append((module(t.tensor(x), t.tensor(y)), repr(module), list(module.buffers())))
        close(losses[0][0], losses[1][0], what=name)
        assert losses[0][1] == losses[1][1]
        assert len(losses[0][2]) == len(losses[1][2])
    p = probability(rng, 6, 5)
    mine = nn.BCELoss()(minigrad.tensor(p), minigrad.tensor(p))
    close(mine, torch.nn.BCELoss()(torch.tensor(p), torch.tensor(p)))
    triple = [real(rng, 4, 3) for _ in range(3)]
    close(
        nn.TripletMarginLoss(0.3, swap=True)(*map(minigrad.tensor, triple)),
        torch.nn.TripletMarginLoss(0.3, swap=True)(*map(torch.tensor, triple)),
    )


def test_cross_entropy_formula(rng):
    x, target = real(rng, 7, 5), classes(rng, 7)
    log_p = x - np.log(np.exp(x).sum(1, keepdims=True))
    wanted = -log_p[np.arange(7), target]
    t, y = minigrad.tensor(x, requires_grad=True), minigrad.tensor(target)
    np.testing.assert_allclose(F.cross_entropy(t, y, reduction="none").detach().numpy(), wanted)
    loss = F.cross_entropy(t, y)
    np.testing.assert_allclose(loss.item(), wanted.mean())
    loss.backward()
    np.testing.assert_allclose(
        t.grad.numpy(), (np.exp(log_p) - np.eye(5)[target]) / 7, rtol=1e-9, atol=1e-12
    )


def test_losses_of_extreme_logits_are_finite():
    x = minigrad.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    assert F.cross_entropy(x, minigrad.tensor([0, 1])).item() == 0
    assert F.cross_entropy(x, minigrad.tensor([1, 0])).item() == 2e4
    y = minigrad.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert F.binary_cross_entropy_with_logits(x, y).item() == 0
    p = minigrad.tensor([0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, minigrad.tensor([1.0, 1.0]), reduction="sum")
    assert loss.item() == 100
    loss.backward()
    assert np.isfinite(p.grad.numpy()).all()


def test_everything_ignored_is_nan_as_in_torch():
    x = minigrad.zeros(2, 3)
    assert math.isnan(F.cross_entropy(x, minigrad.tensor([-100, -100])).item())
    x[0, 0] = -math.inf
    target = minigrad.tensor([0, 1])
    assert F.nll_loss(x, target, ignore_index=0).item() == 0


def test_second_derivative_of_a_loss(rng):
    x = minigrad.tensor(real(rng, 3, 4), requires_grad=True)
    y = minigrad.tensor(classes(rng, 3, count=4))
    (g,) = minigrad.autograd.grad(F.cross_entropy(x, y), x, create_graph=True)
    (h,) = minigrad.autograd.grad((g * g).sum(), x)
    step = 1e-5

    def value(data):
        t = minigrad.tensor(data, requires_grad=True)
        (g,) = minigrad.autograd.grad(F.cross_entropy(t, y), t)
        return float((g * g).sum())

    base = x.detach().numpy()
    for i, j in ((0, 0), (1, 3), (2, 2)):
        up, down = base.copy(), base.copy()
        up[i, j] += step
        down[i, j] -= step
        slope = (value(up) - value(down)) / (2 * step)
        np.testing.assert_allclose(h.numpy()[i, j], slope, rtol=1e-5, atol=1e-9)


def test_warnings():
    a, b = minigrad.zeros(3, 1), minigrad.zeros(3)
    with pytest.warns(UserWarning, match="different to the input size"):
        F.mse_loss(a, b)
    with pytest.warns(UserWarning, match="reduction='sum'"):
        loss = nn.MSELoss(size_average=False)
    assert loss.reduction == "sum"
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(a, a)
    with pytest.warns(UserWarning, match="has no effect"):
        assert F.gumbel_softmax(a, eps=float("nan")).sum().isfinite()


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.functional.mse_loss(t.zeros(2), t.zeros(2), reduction="average"),
        lambda t: t.nn.functional.cross_entropy(t.zeros(2, 3), t.tensor([0, 3])),
        lambda t: t.nn.functional.cross_entropy(t.zeros(2, 3), t.tensor([0, 1, 2])),
        lambda t: t.nn.functional.nll_loss(t.zeros(2, 3), t.tensor([0, -1])),
        lambda t: t.nn.functional.binary_cross_entropy(t.zeros(2), t.zeros(3)),
        lambda t: t.nn.functional.binary_cross_entropy_with_logits(t.zeros(2), t.zeros(3)),
        lambda t: t.nn.functional.huber_loss(t.zeros(2), t.zeros(2), delta=0.0),
        lambda t: t.nn.functional.smooth_l1_loss(t.zeros(2), t.zeros(2), beta=-1.0),
        lambda t: t.nn.functional.cross_entropy(t.zeros(2, 3), t.zeros(2, 3), ignore_index=0),
        lambda t: t.nn.functional.cross_entropy(
            t.zeros(2, 3), t.tensor([0, 1]), label_smoothing=1.5
        ),
        lambda t: t.nn.functional.cross_entropy(t.zeros(3), t.tensor([0, 1])),
        lambda t: t.nn.functional.cross_entropy(t.zeros(2, 3), t.tensor([[0], [1]])),
        lambda t: t.nn.functional.nll_loss(t.zeros(()), t.tensor(0)),
        lambda t: t.nn.functional.nll_loss(
            t.zeros(2, 3), t.tensor([0, 1]), t.ones(3, requires_grad=True)
        ),
        lambda t: t.nn.functional.cross_entropy(
            t.zeros(2, 3, 1), t.tensor([[0], [1]]), t.ones(3, requires_grad=True)
        ),
        lambda t: t.nn.BCEWithLogitsLoss()(t.zeros(2), t.tensor([0, 1])),
        lambda t: t.nn.functional.binary_cross_entropy(t.tensor([1]), t.tensor([1])),
        lambda t: t.nn.functional.soft_margin_loss(t.zeros(2), t.ones(2, requires_grad=True)),
        lambda t: t.nn.functional.soft_margin_loss(t.zeros(2, 1), t.ones(2)),
        lambda t: t.nn.functional.soft_margin_loss(t.tensor([1]), t.tensor([1])),
        lambda t: t.cosine_similarity(t.tensor([1]), t.tensor([1]), 0),
    ],
    ids=range(21),
)
def test_errors_as_torch(program, same_error):
    same_error(program)


def test_errors_with_our_own_words():
    x = minigrad.zeros(2, 3)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(minigrad.tensor([1.5]), minigrad.tensor([1.0]))
    with pytest.raises(RuntimeError, match="all 3 classes"):
        F.cross_entropy(x, minigrad.tensor([0, 1]), weight=minigrad.ones(2))
    with pytest.raises(RuntimeError, match="long"):
        F.cross_entropy(x, minigrad.zeros(2))
    with pytest.raises(RuntimeError, match=r"Long or Byte, but got .*int32; use target.long"):
        F.cross_entropy(x, minigrad.zeros(2, dtype=minigrad.int32))
    with pytest.raises(RuntimeError, match="Expected target size"):
        F.cross_entropy(minigrad.zeros(2, 3, 4), minigrad.zeros(2, 5).long())


def test_a_class_in_a_vector():
    """It is what one row of classes may be given as, too; the loss has no dimension."""
    x = minigrad.tensor([1.0, 2.0, 4.0])
    for function in (F.cross_entropy, F.nll_loss):
        found = function(x, minigrad.tensor([1]), reduction="none")
        assert found.shape == () and found == function(x, minigrad.tensor(1))


def test_dtypes_of_results_as_torch(torch):
    for t in (minigrad, torch):
        single, double = t.full((2,), 0.5), t.full((2,), 0.5).double()
        assert t.nn.functional.binary_cross_entropy_with_logits(double, single).dtype == t.float32
        assert t.nn.functional.binary_cross_entropy_with_logits(single, double).dtype == t.float64
        assert t.nn.functional.soft_margin_loss(single, double).dtype == t.float32
        assert t.nn.functional.soft_margin_loss(single, single > 0).dtype == t.float32


@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.01, 1.0])
def test_the_cosine_of_a_short_vector_as_torch(scale, rng, torch):
    """Its norm counts as eps, but its gradient is that of a longer one."""
    a, b = rng.normal(size=(3, 4)) * scale, rng.normal(size=(3, 4))
    found = []
    for t in (minigrad, torch):
        x, y = (t.tensor(v, requires_grad=True) for v in (a, b))
        cosine = t.nn.functional.cosine_similarity(x, y, eps=0.1)
        found.append((cosine, *t.autograd.grad(cosine.sum(), (x, y))))
    for mine, theirs in zip(*found, strict=True):
        close(mine, theirs)


def test_classes_are_those_of_the_input():
    found = F.multilabel_soft_margin_loss(minigrad.zeros(3, 1), minigrad.ones(3, 4))
    assert found.item() == pytest.approx(4 * math.log(2))


def test_a_target_of_another_dtype():
    half = minigrad.full((2,), 0.5)
    with pytest.raises(RuntimeError, match="a target of input's dtype"):
        F.binary_cross_entropy(half, half.double())


@pytest.mark.parametrize("shape", [(2, 3, 12, 9), (3, 2, 150), (2, 5, 3, 2), (4, 3)])
@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_classes_in_the_second_dimension_as_torch(shape, reduction, rng, torch):
    logits = rng.standard_normal(shape)
    target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    target.reshape(-1)[0] = 1
    weights = rng.random(shape[1]) + 0.5
    for options in ({}, {"ignore_index": 1}, {"ignore_index": 1, "weight": weights}):
        found = []
        for m in (minigrad, torch):
            x = m.from_numpy(logits.copy()).requires_grad_()
            given = {k: v if k == "ignore_index" else m.from_numpy(v) for k, v in options.items()}
            given |= {"reduction": reduction}
            loss = m.nn.functional.cross_entropy(x, m.from_numpy(target), **given)
            likelihood = m.nn.functional.nll_loss(x * 2, m.from_numpy(target), **given)
            (loss + likelihood).square().sum().backward()
            found.append([v.detach().numpy() for v in (loss, likelihood, x.grad)])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_losses_of_planes_copy_no_logits():
    x, target = minigrad.randn(2, 3, 20, 20), minigrad.zeros(2, 20, 20, dtype=minigrad.int64)
    with backends.use("numba"), kernels.trace() as trace:
        F.cross_entropy(x, target)
        F.nll_loss(x, target)
    assert not {"transpose", "pointwise.copy"} & {name for name, _ in trace.rows}


@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3), (4,)])
def test_nll_loss_is_one_node_with_derivatives(shape, rng):
    x = minigrad.tensor(real(rng, *shape), requires_grad=True)
    target = minigrad.tensor(classes(rng, *shape[:1], *shape[2:], count=4).reshape(-1))
    target = target.reshape(*shape[:1], *shape[2:]) if len(shape) > 1 else target[0] % 3
    weight = minigrad.rand(4, dtype=minigrad.float64)
    ignored = {"ignore_index": 3}
    for given in ({}, ignored, {"weight": weight}, {"weight": weight, **ignored}):
        loss = F.nll_loss(x, target, reduction="none", **given)
        if len(shape) > 1:
            assert loss.grad_fn.next_functions[0][0].name() == "AccumulateGrad"
        assert minigrad.autograd.gradcheck(
            functools.partial(F.nll_loss, target=target, **given), [x]
        )

        def square(x, given=given):
            return F.nll_loss(x, target, reduction="none", **given) ** 2

        assert minigrad.autograd.gradgradcheck(square, [x])
        assert minigrad.autograd.gradgradcheck(
            lambda x, given=given: F.nll_loss(x.sin(), target, **given), [x]
        )
        (plain,) = minigrad.autograd.grad(square(x).sum(), x)
        (recorded,) = minigrad.autograd.grad(square(x).sum(), x, create_graph=True)
        close(plain, recorded)
    loss = F.nll_loss(x, target)
    target.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("ignored", (-100, 2, 7))
@pytest.mark.parametrize("weighted", (False, True))
def test_ignored_targets_that_change(ignored, weighted, rng):
    """The launches are remembered from the third call on."""
    x = minigrad.tensor(real(rng, 6, 4), requires_grad=True)
    weight = rng.random(4) + 0.5 if weighted else np.ones(4)
    given = {"ignore_index": ignored, "weight": minigrad.tensor(weight) if weighted else None}
    for _ in range(5):
        target = rng.choice([0, 1, 3, ignored], 6)
        target[:2] = 1, ignored
        scale = np.where(target == ignored, 0, weight[np.where(target == ignored, 0, target)])
        slope = np.zeros((6, 4))
        slope[np.arange(6), target % 4] = -scale / scale.sum()
        loss = F.nll_loss(x, minigrad.tensor(target), **given)
        close(loss.item(), (slope * x.detach().numpy()).sum())
        close(minigrad.autograd.grad(loss, x)[0], slope)
        logits = F.cross_entropy(x, minigrad.tensor(target), **given)
        close(logits, F.nll_loss(x.log_softmax(1), minigrad.tensor(target), **given))
        with pytest.raises(IndexError, match="Target 4 is out of bounds"):
            F.nll_loss(x, minigrad.full((6,), 4), **given)


def test_nll_loss_of_a_batch(rng):
    x, target = real(rng, 5, 6, 4), classes(rng, 5, 6, count=4)
    arrays = minigrad.tensor(x), minigrad.tensor(target), minigrad.rand(4, dtype=minigrad.float64)
    for given in ({}, {"ignore_index": 2}, {"weight": arrays[2]}):
        slope = minigrad.func.grad(functools.partial(F.nll_loss, **given))
        found = minigrad.vmap(slope)(*arrays[:2])
        close(found, minigrad.stack([slope(*row) for row in zip(*arrays[:2])]))


def test_one_variance_for_each_group(rng):
    x, target = (minigrad.from_numpy(rng.standard_normal((2, 3, 4))) for _ in range(2))
    for shape in ((2, 1, 4), (1, 3, 4), (2, 3, 1), (2, 3)):
        var = minigrad.from_numpy(rng.random(shape))
        whole = (var if var.dim() == 3 else var[..., None]).expand(2, 3, 4).clone()
        close(F.gaussian_nll_loss(x, target, var), F.gaussian_nll_loss(x, target, whole))
    for shape in ((1, 1, 4), (4,), (2, 2, 4)):
        with pytest.raises(ValueError, match="var is of incorrect size"):
            F.gaussian_nll_loss(x, target, minigrad.ones(shape))


def test_a_mean_over_weights_of_zero_is_nan_and_so_are_its_gradients():
    """Smoothed targets have a loss of other classes, whose weights are not zero."""
    x = minigrad.randn(2, 3, requires_grad=True)
    weight = minigrad.tensor([1.0, 0.0, 1.0])
    loss = F.cross_entropy(x, minigrad.tensor([1, 1]), weight, label_smoothing=0.1)
    (g,) = minigrad.autograd.grad(loss, x, create_graph=True)
    (plain,) = minigrad.autograd.grad(loss, x)
    assert loss.isnan() and plain.isnan().all() and g.isnan().all()


@pytest.mark.parametrize("places", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kwargs", [{}, {"reduction": "none"}, {"reduction": "sum", "bias": True},
    {"weight": W5, "ignore_index": 2, "bias": True}, {"label_smoothing": 0.1}])  # fmt: skip
def test_linear_cross_entropy_as_torch(places, kwargs, rng, torch):
    """Classes, probabilities where no class is ignored, and one row alone where it may be."""
    rows, target = real(rng, 6, 4), classes(rng, 6, *places)
    given = [(rows, target)]
    if "ignore_index" not in kwargs:
        given.append((rows, np.moveaxis(distribution(rng, 6, *places, 5), -1, 1)))
    if not places:
        given.append((rows[0], target[0]))
    state = None
    for x, y in given:
        found = []
        for t in (torch, minigrad):
            options = {k: t.tensor(v) if v is W5 else v for k, v in kwargs.items()}
            module = t.nn.LinearCrossEntropyLoss(4, 5, out_features=places, **options).double()
            state = state or {k: v.numpy() for k, v in module.state_dict().items()}
            module.load_state_dict({k: t.tensor(v) for k, v in state.items()})
            leaf = t.tensor(x, requires_grad=True)
            loss = module(leaf, t.tensor(y))
            (loss * loss).sum().backward()
            found.append((repr(module), loss, leaf.grad, *(p.grad for p in module.parameters())))
        assert found[0][0] == found[1][0]
        for expected, own in zip(found[0][1:], found[1][1:], strict=True):
            close(own, expected)


def test_linear_cross_entropy_refuses(torch):
    def refused(t, x, w, y, **kwargs) -> str:
        made = {k: t.zeros(v) if isinstance(v, tuple) else v for k, v in kwargs.items()}
        with pytest.raises((RuntimeError, ValueError)) as error:
            t.nn.functional.linear_cross_entropy(t.zeros(x), t.zeros(w), y(t), **made)
        return type(error.value).__name__

    def number(shape):
        return lambda t: t.zeros(shape, dtype=t.int64)

    for case in [
        ((2, 3, 4), (5, 4), number((2,)), {}),
        ((2, 4), (4,), number((2,)), {}),
        ((2, 4), (5, 3), number((2,)), {}),
        ((2, 4), (5, 4), number((2,)), {"linear_bias": (4,)}),
        ((4,), (5, 2, 4), number((2,)), {}),
        ((2, 4), (5, 4), lambda t: t.zeros(2, 5), {"ignore_index": 1}),
        ((2, 4), (5, 4), lambda t: t.zeros(3, 5), {}),
        ((2, 4), (5, 4), number((3,)), {}),
    ]:
        *given, kwargs = case
        assert refused(minigrad, *given, **kwargs) == refused(torch, *given, **kwargs)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_cross_entropy_in_parts(reduction, rng, monkeypatch):
    """The loss and the gradients of the whole batch; never the logits of more than a part."""
    heights = []

    def linear(x, *rest):
        heights.append(len(x))
        return F.linear(x, *rest)

    monkeypatch.setattr(_linear_loss, "linear", linear)
    target = minigrad.tensor([0, 2, 4, 2, 1, 1, 3])
    given = [real(rng, 7, 4), real(rng, 5, 4), real(rng, 5)]
    found = []
    for options in (None, nn.LinearCrossEntropyOptions(batch_chunk_size=3)):
        x, w, b = (minigrad.tensor(a, requires_grad=True) for a in given)
        kwargs = {"weight": minigrad.tensor(W5), "ignore_index": 2, "reduction": reduction}
        heights.clear()
        loss = F.linear_cross_entropy(x, w, target, linear_bias=b, options=options, **kwargs)
        (loss * loss).sum().backward(retain_graph=True)
        assert heights == ([7] if options is None else [3, 3, 1, 1, 3, 3])
        found.append([t.numpy(force=True).copy() for t in (loss, x.grad, w.grad, b.grad)])
        (loss * loss).sum().backward()  # the logits once more
        close(x.grad, 2 * found[-1][1])
    for whole, parts in zip(*found, strict=True):
        close(parts, whole)


@pytest.mark.filterwarnings("error")
def test_linear_cross_entropy_options_as_torch(torch):
    """Rows of a part, refusals, and what a part cannot be; 16 bits have larger parts."""
    methods = [None, "", "auto", "auto:2", "aspect", "aspect_ratio"]
    methods += [f"aspect_ratio:{n}" for n in ("", "0", "1", "3", "-1", "2:2")]
    shapes = [(7, 4, 5), (1000, 64, 50000), (1, 3, 2), (513, 16, 33), (0, 4, 5), (64, 128, 10)]

    def outcome(call, *args, **kwargs):
        try:
            return call(*args, **kwargs)
        except (ValueError, TypeError) as error:
            return type(error).__name__

    for method, size in itertools.product(methods, (None, 1, 5, 0, -2, 2.0)):
        kwargs = {"chunking_method": method, "batch_chunk_size": size}
        theirs = outcome(torch.nn.LinearCrossEntropyOptions, **kwargs)
        own = outcome(nn.LinearCrossEntropyOptions, **kwargs)
        assert str(own) == str(theirs)
        for (n, f, c), name in itertools.product(shapes, ("float32", "bfloat16")):
            if not isinstance(theirs, str):
                kind = getattr(torch, name), torch.device("cpu")
                adjusted = outcome(theirs._adjust, n, f, c, *kind)
                expected = getattr(adjusted, "batch_chunk_size", adjusted)
                x = minigrad.empty(n, f, dtype=getattr(minigrad, name))
                assert outcome(own.rows, x, c) == expected, (kwargs, n, f, c)
    for kwargs in ({"acc_policy": "fast"}, {"acc_dtype": "int64"}):
        for t in (torch, minigrad):
            made = {k: getattr(t, v, v) for k, v in kwargs.items()}
            with pytest.raises(ValueError, match="acc_"):
                t.nn.LinearCrossEntropyOptions(**made)
    options = nn.LinearCrossEntropyOptions()
    x, w, y = minigrad.zeros(2, 4), minigrad.zeros(5, 4), minigrad.tensor([0, 1])
    with pytest.warns(UserWarning, match="label_smoothing") as seen:
        F.linear_cross_entropy(x, w, y, options=options, label_smoothing=0.1)
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="not of int64"):
        F.linear_cross_entropy(x, w, minigrad.zeros(2, 5), options=options)
    with pytest.warns(UserWarning, match="several places"):
        F.linear_cross_entropy(x, w.reshape(5, 1, 4), y[:, None], options=options)
    with pytest.raises(ValueError, match="batch_size"):
        F.linear_cross_entropy(x, w, y[:1], options=options)
