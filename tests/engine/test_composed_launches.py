"""Functions of several operations whose launches are remembered together on a CPU."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import minigrad as mg
from kernels import dispatch
from minigrad.nn import functional as F
from minigrad.ops import composed, sampling

LABELS = mg.tensor([1, 0, 3])
SETS = mg.tensor([[1, 3, -1, 0], [2, -1, 0, 0], [0, 1, 2, 3]])
SIGNS = mg.tensor([1.0, -1.0, 1.0], dtype=mg.float64)
WEIGHTS = mg.tensor([0.5, 2.0, 1.0, 3.0], dtype=mg.float64)
POINTS = mg.tensor(np.linspace(-1.2, 1.1, 24).reshape(1, 3, 4, 2))
PLACES = mg.tensor(np.linspace(-1.2, 1.1, 36).reshape(1, 2, 3, 2, 3))

# name: (function, the shapes of its float inputs)
CASES = {
    "cosine_similarity": (F.cosine_similarity, [(3, 4), (3, 4)]),
    "cosine_similarity_broadcast": (
        functools.partial(F.cosine_similarity, dim=0),
        [(3, 4), (3, 1)],
    ),
    "cosine_embedding_loss": (
        lambda x, y: F.cosine_embedding_loss(x, y, SIGNS, 0.1),
        [(3, 4), (3, 4)],
    ),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, SIGNS), [(3,)]),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, LABELS, p=2, weight=WEIGHTS), [(3, 4)]),
    "multilabel_margin_loss": (lambda x: F.multilabel_margin_loss(x, SETS), [(3, 4)]),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), [(1, 4, 2, 3)]),
    "pixel_shuffle_by_1": (lambda x: F.pixel_shuffle(x, 1), [(1, 4, 2, 3)]),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), [(1, 1, 2, 4)]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), [(1, 4, 3)]),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1), [(2, 2, 7)]),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), [(2, 2, 7)]),
    "nearest": (lambda x: F.interpolate(x, (3, 2)), [(1, 2, 4, 5)]),
    "index_add": (lambda x, y: x.index_add(0, LABELS, y), [(4, 3), (3, 3)]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1), [(1, 3, 3, 3)]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 1, divisor_override=3), [(1, 1, 3, 3, 3)]),
}
WITHOUT_GRADIENT = {
    "grid_sample_bicubic": (
        lambda x: F.grid_sample(x, POINTS, "bicubic", "reflection", False),
        [(1, 2, 4, 5)],
    ),
    "grid_sample_volume": (
        lambda x: F.grid_sample(x, PLACES, padding_mode="border", align_corners=True),
        [(1, 2, 3, 4, 2)],
    ),
}


def inputs(rng, shapes):
    return [mg.from_numpy(rng.standard_normal(s)).requires_grad_() for s in shapes]


def counted(monkeypatch, owner, name):
    """A list with how often a function is called from now on."""
    count, real = [0], getattr(owner, name)

    def call(*args, **attrs):
        count[0] += 1
        return real(*args, **attrs)

    monkeypatch.setattr(owner, name, call)
    return count


@pytest.mark.parametrize("case", (CASES | WITHOUT_GRADIENT).items(), ids=lambda case: case[0])
def test_values_and_gradients_of_every_call_as_without(case, rng, monkeypatch):
    """The launches are remembered from the third call on; new numbers and layouts each time."""
    _, (function, shapes) = case
    monkeypatch.setattr(composed, "FEW", 0)
    given = [inputs(rng, shapes) for _ in range(6)]
    given.append([x.detach().mT.contiguous().mT.requires_grad_() if x.ndim > 1 else x
                  for x in given[0]])  # fmt: skip
    wanted = []
    for xs in given:
        y = function(*xs)
        g = mg.from_numpy(rng.standard_normal(tuple(y.shape)))
        wanted.append((y, g, mg.autograd.grad(y, xs, g)))
    monkeypatch.undo()
    for xs, (y, g, slopes) in zip(given, wanted, strict=True):
        with mg.no_grad():
            mg.testing.assert_close(function(*xs), y.detach())
        found = function(*xs)
        mg.testing.assert_close(found, y, check_stride=False)
        assert found.grad_fn.name() == y.grad_fn.name()
        for slope, expected in zip(mg.autograd.grad(found, xs, g), slopes, strict=True):
            mg.testing.assert_close(slope, expected)


@pytest.mark.parametrize("case", CASES.items(), ids=lambda case: case[0])
def test_derivatives(case, rng):
    _, (function, shapes) = case
    xs = inputs(rng, shapes)
    assert mg.autograd.gradcheck(function, xs)
    assert mg.autograd.gradgradcheck(function, xs)


@pytest.mark.parametrize("case", (CASES | WITHOUT_GRADIENT).items(), ids=lambda case: case[0])
def test_python_runs_no_longer_from_the_fourth_call_on(case, rng, monkeypatch):
    name, (function, shapes) = case
    if dispatch.backend() not in ("auto", "numba"):
        pytest.skip("this dialect remembers nothing")
    used = counted(monkeypatch, composed.Composed, "apply")
    counts = [
        counted(monkeypatch, *function)
        for function in (
            (dispatch, "run_together"),
            (composed.Composed, "forward"),
            (composed, "grad"),
        )
    ]
    found = []
    for _ in range(7):
        xs = inputs(rng, shapes)
        if name in CASES:
            function(*xs).sum().backward()
        with mg.no_grad():
            function(*xs)
        found.append([count for (count,) in counts])
    assert (used[0] > 6 or name == "index_add") and found[4] == found[5] == found[6]


def test_a_result_is_no_view_of_an_input():
    x = mg.arange(8.0).reshape(2, 4)
    for function in (mg.Tensor.flatten, mg.Tensor.t, lambda x: F.pixel_shuffle(x[None], 1)):
        for _ in range(4):
            composed.composed(function, x).zero_()
    assert x.sum() == 28


def test_targets_are_looked_at_each_time(rng):
    x = mg.from_numpy(rng.standard_normal((3, 4)))
    for wrong in (4, -1):
        for _ in range(4):
            F.multi_margin_loss(x, LABELS)
        with pytest.raises(RuntimeError, match="target out of range"):
            F.multi_margin_loss(x, mg.tensor([0, wrong, 2]))
    for _ in range(4):
        F.multilabel_margin_loss(x, SETS)
    with pytest.raises(RuntimeError, match="'target' is out of range"):
        F.multilabel_margin_loss(x, mg.tensor([[0, -1, 4, 0]] * 3))


def test_zeros_of_remembered_launches_are_new_each_time(rng):
    """The gradient of gather adds to zeros that a launch fills."""
    index = mg.tensor([[0], [0], [2]])
    function = functools.partial(composed.composed, lambda x, i: x.gather(1, i) * 2)
    for _ in range(6):
        x = mg.from_numpy(rng.standard_normal((3, 4))).requires_grad_()
        function(x, index).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [[2, 0, 0, 0], [2, 0, 0, 0], [0, 0, 2, 0]])


def test_a_saved_input_that_changes_is_noticed(rng):
    x, y = inputs(rng, [(3, 4), (3, 4)])
    found = F.cosine_similarity(x, y).sum()
    with mg.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.backward()


def test_an_index_that_changes_before_the_gradient(rng):
    x, y = inputs(rng, [(4, 3), (2, 3)])
    index = mg.tensor([1, 1])
    found = x.index_add(0, index, y)
    index.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()
    index = mg.tensor([1, 2])
    found = (x * 1).index_put_((index,), y, accumulate=True) * mg.arange(4.0)[:, None]
    index.zero_()
    found.sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), [[1] * 3, [2] * 3])


def test_the_points_of_affine_grid_are_made_once(rng, monkeypatch):
    for aligned in (False, True):
        for shape in ((2, 3, 4, 5), (2, 3, 2, 4, 1)):
            dims = len(shape) - 2
            theta = rng.standard_normal((2, dims, dims + 1))
            count = counted(monkeypatch, sampling, "_points")
            for _ in range(3):
                found = F.affine_grid(mg.tensor(theta), shape, align_corners=aligned)
                places = []
                for n in reversed(shape[2:]):
                    span = 1 if aligned else (n - 1) / n
                    places.append(np.linspace(-span, span, n) if n > 1 else np.zeros(1))
                planes = np.meshgrid(*reversed(places), indexing="ij")[::-1]
                points = np.stack([*planes, np.ones(shape[2:])], -1)
                wanted = np.einsum("...k,ndk->n...d", points, theta)
                np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)
                found.zero_()
            assert count[0] <= 1
