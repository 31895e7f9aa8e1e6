"""Connectionist temporal classification: losses and gradients against float64."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import numba_cuda, reference
from kernels.launchers.ctc import sequences
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
DTYPES = [np.float32, np.float64, np.float16, BFLOAT16]
SHAPES = [  # steps, sequences, classes, labels
    (1, 1, 2, 0),
    (1, 1, 1, 0),
    (7, 33, 5, 3),
    (33, 2, 31, 15),
    (34, 2, 33, 16),
    (140, 1, 257, 127),
    (141, 2, 6, 128),
    (520, 1, 4, 512),
]


def run(module, device, g, given, blank=0, zero_infinity=False):
    """Losses, prefixes and gradient; the backward pass has the same module's results."""
    g, *given = (put(a, device) for a in (g, *given))
    losses, prefixes = module.ctc(*given, blank)
    g = g.astype(losses.dtype)
    return losses, prefixes, module.ctc_backward(g, *given, losses, prefixes, blank, zero_infinity)


def compare(device, rng, given, **options) -> np.ndarray:
    """Returns the losses."""
    log_probs, *others = given
    g = rng.standard_normal(len(given[1]))
    found = run(numba_cuda, device, g, given, **options)
    expected = run(reference, "cpu", g, (wide(log_probs), *others), **options)
    longest = np.abs(expected[1][np.isfinite(expected[1])]).max(initial=1)
    assert_close(found[0], expected[0], longest, terms=len(log_probs))
    assert_close(found[1], expected[1], longest, terms=len(log_probs))
    # an error of a logarithm is one of the whole number
    assert_close(found[2], expected[2], np.abs(g)[:, None] * longest, terms=len(log_probs))
    assert found[2].dtype == log_probs.dtype
    return get(found[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients(shape, device, rng):
    compare(device, rng, sequences(rng, *shape), zero_infinity=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_another_blank(dtype, device, rng):
    log_probs, targets, *spans = sequences(rng, 24, 5, 7, 6)
    targets = (targets + 3) % 7  # never class 3
    compare(device, rng, (log_probs.astype(dtype), targets, *spans), blank=3, zero_infinity=True)


def test_arrays_with_gaps_and_labels_beyond_a_length(device, rng):
    log_probs, targets, times, lengths = sequences(rng, 20, 6, 5, 8)
    lengths[:] = [8, 0, 1, 3, 4, 2]
    beyond = np.arange(8) >= lengths[:, None]
    marked = np.where(beyond, -(10**9), targets)  # never read
    first = run(numba_cuda, device, np.ones(6), (log_probs, targets, times, lengths))
    gaps = log_probs.transpose(2, 0, 1).copy().transpose(1, 2, 0)
    second = run(numba_cuda, device, np.ones(6), (gaps, marked, times, lengths))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(get(a), get(b))


def test_without_time_and_without_a_path(device, rng):
    """Twice the same label needs a blank between: three steps."""
    log_probs, *_ = sequences(rng, 3, 4, 5, 2)
    targets = np.array([[1, 1], [1, 1], [1, 2], [2, 2]])
    times, lengths = np.array([3, 2, 0, 0]), np.array([2, 2, 2, 0])
    given = log_probs, targets, times, lengths
    losses = compare(device, rng, given)
    assert np.isfinite(losses).tolist() == [True, False, False, True]
    assert losses[3] == 0
    gradient = get(run(numba_cuda, device, np.ones(4), given)[2])
    assert np.isnan(gradient[:2, 1]).all()  # of the steps that it has
    assert (gradient[2, 1] == 0).all()
    gradient = get(run(numba_cuda, device, np.ones(4), given, zero_infinity=True)[2])
    assert (gradient[:, 1:] == 0).all()
    assert (gradient[:, 0] != 0).any()


def test_symbols_that_never_occur(device, rng):
    """A probability of zero has a logarithm of -inf, and no gradient becomes NaN by it."""
    log_probs, targets, times, lengths = sequences(rng, 9, 3, 6, 2)
    targets[:], lengths[:] = [[1, 2], [2, 1], [3, 3]], 2
    log_probs[:, :, 5] = log_probs[2:4, 1, 1] = -np.inf
    losses = compare(device, rng, (log_probs, targets, times, lengths))
    assert np.isfinite(losses).all()


def test_the_gradient_by_finite_differences(device, rng):
    """Of log_probs that are normalised at each step, which the gradient is made for."""
    scores = rng.standard_normal((7, 2, 4))
    rest = np.array([[1, 1, 2], [3, 0, 0]]), np.array([7, 5]), np.array([3, 1])

    def log_softmax(x):
        return x - np.log(np.exp(x).sum(2, keepdims=True))

    slope = get(run(numba_cuda, device, np.ones(2), (log_softmax(scores), *rest))[2])
    gradient = slope - np.exp(log_softmax(scores)) * slope.sum(2, keepdims=True)
    h, found = 1e-6, np.zeros_like(scores)
    for place in np.ndindex(scores.shape):
        for sign in (1, -1):
            moved = scores.copy()
            moved[place] += sign * h
            found[place] += sign * reference.ctc(log_softmax(moved), *rest)[0].sum() / (2 * h)
    np.testing.assert_allclose(gradient, found, atol=1e-7)
    assert not np.allclose(1.01 * gradient, found, atol=1e-7)


def test_errors(device, rng):
    given = [put(a, device) for a in sequences(rng, 4, 3, 5, 2)]
    for wrong in range(4):
        cut = [
            a[:, :2] if i == wrong == 0 else a[:2] if i == wrong else a for i, a in enumerate(given)
        ]
        with pytest.raises(ValueError, match=r"ctc: expected log_probs \(T, N, C\), targets"):
            kernels.ctc(*cut, backend="numba")
    with pytest.raises(TypeError, match="targets, times and lengths of int64, got int32"):
        kernels.ctc(given[0], given[1].astype(np.int32), *given[2:], backend="numba")
    with pytest.raises(TypeError, match="expected a floating dtype, got int64"):
        kernels.ctc(given[0].astype(np.int64), *given[1:], backend="numba")
    with pytest.raises(ValueError, match="expected 0 <= blank < 5, got 5"):
        kernels.ctc(*given, 5, backend="numba")
    losses, prefixes = kernels.ctc(*given, backend="numba")
    for wrong in ((losses[:2], losses, prefixes), (losses, losses, prefixes[:, 1:])):
        with pytest.raises(ValueError, match="ctc_backward: expected .* of shape .*, got"):
            kernels.ctc_backward(wrong[0], *given, *wrong[1:], backend="numba")
    with pytest.raises(ValueError, match="expected g of shape .* and float32, got .* float64"):
        wide_g = losses.astype(np.float64)
        kernels.ctc_backward(wide_g, *given, losses, prefixes, backend="numba")
    with pytest.raises(ValueError, match="at most 65535 steps and sequences, got .* take parts"):
        many = np.zeros((65536, 1, 2), np.float32)
        one = [put(np.zeros(shape, np.int64), device) for shape in ((1, 0), (1,), (1,))]
        kernels.ctc(put(many, device), *one, backend="numba")


def test_numbers_that_are_too_large(device, rng):
    if device == "gpu":
        pytest.skip("a GPU would have to wait for them")
    for place, number, words in (
        (1, 5, "target 5 is out of bounds for 5 classes"),
        (1, -1, "target -1 is out of bounds"),
        (2, 5, "expected every time in 0 .. 4, got 5"),
        (2, -1, "expected every time in 0 .. 4, got -1"),
        (3, 3, "expected every length in 0 .. 2, got 3"),
        (3, -1, "expected every length in 0 .. 2, got -1"),
    ):
        given = sequences(rng, 4, 3, 5, 2)
        losses, prefixes = kernels.ctc(*given, backend="numba")
        for _ in range(5):  # a remembered launch looks, too
            kernels.ctc(*given, backend="numba")
        given[place][0] = number
        with pytest.raises(IndexError, match=f"ctc: {words}"):
            kernels.ctc(*given, backend="numba")
        with pytest.raises(IndexError, match=f"ctc_backward: {words}"):
            kernels.ctc_backward(losses, *given, losses, prefixes, backend="numba")
