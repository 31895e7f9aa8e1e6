"""Layouts, repetitions and borders on a GPU beside torch: values, gradients, and how many launches
they take."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as m
from kernels import dispatch

pytestmark = pytest.mark.gpu


def split(lib, a):
    return lib.nn.functional.pixel_shuffle(a[:, :4], 2)


# name: (call, shape of the argument, kernels of ours that it launches)
CASES = {
    "stack": (lambda lib, a: lib.stack([a, a + 1], -1), (31, 33), ("concat", "parts")),
    "cat": (lambda lib, a: lib.cat([a, a[:, :1]], 1), (31, 33), ("pointwise.copy", "strided")),
    "roll": (lambda lib, a: a.roll(5, 0), (31, 33), ("concat", "parts")),
    "repeat": (lambda lib, a: a.repeat(2, 2), (31, 33), ("pointwise.copy", "strided")),
    "interleave": (
        lambda lib, a: a.repeat_interleave(3, 1),
        (31, 33),
        ("pointwise.copy", "strided"),
    ),
    "interleave flat": (
        lambda lib, a: a.repeat_interleave(2),
        (31, 33),
        ("pointwise.copy", "strided"),
    ),
    "pixel_shuffle": (split, (3, 5, 7, 9), ("pointwise.copy", "strided")),
    "nearest": (
        lambda lib, a: lib.nn.functional.interpolate(a, scale_factor=2),
        (3, 5, 7, 9),
        ("pointwise.copy", "strided"),
    ),
    "nearest exact": (
        lambda lib, a: lib.nn.functional.interpolate(a, size=(14, 13), mode="nearest-exact"),
        (3, 5, 7, 9),
        ("pointwise.copy", "strided"),
    ),
    "copy_": (
        lambda lib, a: lib.zeros_like(a.t()).contiguous().copy_(a.t()),
        (70, 33),
        ("pointwise.copy", "tiled"),
    ),
    "set": (
        lambda lib, a: (a * 1)[:, 1:].copy_(a[:, :-1]),
        (31, 33),
        ("pointwise.copy", "strided"),
    ),
    "tril": (lambda lib, a: a.tril(1), (2, 31, 33), ("triangle", "elements")),
    "triu": (lambda lib, a: a.triu(-2), (2, 31, 32), ("triangle", "elements")),
    "pad": (
        lambda lib, a: lib.nn.functional.pad(a, (3, 2, -1, 1), value=1.5),
        (3, 5, 7, 9),
        ("pad", "elements"),
    ),
    "reflect": (
        lambda lib, a: lib.nn.functional.pad(a, (3, 2, 1, 1), mode="reflect"),
        (3, 5, 7, 9),
        ("pad", "elements"),
    ),
    "adaptive": (
        lambda lib, a: lib.nn.functional.adaptive_max_pool2d(a, (3, 4)),
        (2, 3, 7, 9),
        ("adaptive_max_pool2d", "window"),
    ),
    "max_pool1d": (
        lambda lib, a: lib.nn.functional.max_pool1d(a, 2),
        (2, 3, 1025),
        ("max_pool2d", "window"),
    ),
    "max_pool3d": (
        lambda lib, a: lib.nn.functional.max_pool3d(a, 2),
        (2, 3, 5, 6, 8),
        ("max_pool2d", "window"),
    ),
    "glu": (lambda lib, a: lib.nn.functional.glu(a), (31, 34), ("pointwise.glu", "strided")),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(torch, name, rng):
    call, shape, kernel = CASES[name]
    values = rng.standard_normal(shape).astype(np.float32)
    ours = m.tensor(values, device="cuda", requires_grad=True)
    theirs = torch.tensor(values, requires_grad=True)
    with dispatch.trace() as trace:
        got = call(m, ours)
    want = call(torch, theirs)
    assert kernel in trace.rows
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-5)
    g = rng.standard_normal(want.shape).astype(np.float32)
    got.backward(m.tensor(g, device="cuda"))
    want.backward(torch.from_numpy(g))
    np.testing.assert_allclose(ours.grad.cpu().numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_zeros_of_every_dtype():
    for name in ("float32", "float16", "bfloat16", "bool", "int64", "complex64"):
        x = m.zeros(3, 5, dtype=getattr(m, name), device="cuda")
        assert x.shape == (3, 5) and x.dtype == getattr(m, name) and not x.cpu().to(m.bool).any()
        assert not m.zeros_like(x).cpu().to(m.bool).any()


def test_places_of_adaptive_maxima(torch, rng):
    """Of the first of equal ones; a NaN wins."""
    values = rng.integers(0, 3, (2, 5, 31, 33)).astype(np.float32)
    values[0, 0, 20, 17] = np.nan
    for size in ((7, 7), (30, 32), (1, 40)):
        got = m.nn.functional.adaptive_max_pool2d(m.tensor(values, device="cuda"), size, True)
        want = torch.nn.functional.adaptive_max_pool2d(torch.tensor(values), size, True)
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(ours.cpu().numpy(), theirs.numpy())


def test_a_reshape_copies_once(rng):
    x = m.tensor(rng.standard_normal((300, 701)), device="cuda").t()
    m.cuda.reset_peak_memory_stats()
    before = m.cuda.memory_allocated()
    y = x.reshape(-1)
    assert m.cuda.max_memory_allocated() - before < 1.5 * y.nbytes
    with pytest.raises(RuntimeError, match="view"):
        x.view(-1)
    assert m.cuda.max_memory_allocated() - before < 1.5 * y.nbytes
    np.testing.assert_array_equal(y.cpu().numpy(), x.cpu().numpy().reshape(-1))
