"""Recurrent layers as kernels: sizes that differ by step, limits, empty sequences, errors."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels.simt.driver import specialise
from tests.kernels.helpers import assert_close, normal, wide


def arguments(rng, steps, batch, h, mode="lstm", parts=4):
    weight = (normal(rng, (parts * h, h)) / np.sqrt(max(h, 1))).astype(np.float32)
    x, bias = normal(rng, (steps, batch, parts * h)), normal(rng, parts * h)
    return x, weight, bias, normal(rng, (batch, h)), normal(rng, (batch, h)), mode


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.slow), 6])
def test_blocks_of_one_two_and_four_sequences(batch, rng):
    """The last block of `sequence` is not full; a step of no sequence at all is the last one."""
    args = arguments(rng, 3, batch, 33)
    sizes = np.array([batch, 1, 0])
    exact = kernels.recurrent(*map(as_wide, args), sizes, backend="numpy")
    found = kernels.recurrent(*args, sizes, version="sequence")
    for a, b in zip(found, exact):
        assert_close(a, b, 20)
    assert np.array_equal(found[0][:, 2], found[0][:, 3])
    g = normal(rng, found[0].shape)
    given = g, args[1], *found, "lstm", sizes
    exact = kernels.recurrent_backward(*map(as_wide, given), backend="numpy")
    for a, b in zip(kernels.recurrent_backward(*given, version="sequence"), exact):
        assert_close(a, b, 60)


@pytest.mark.parametrize("mode, parts", [("lstm", 4), ("gru", 3)])
def test_steps_run_as_compiled(mode, parts, rng, monkeypatch):
    """No launch on a CPU is repeated, as one is whose number has another sign than the first's."""
    repeated = []
    failed = specialise.Specialisation.failed
    monkeypatch.setattr(
        specialise.Specialisation,
        "failed",
        lambda self, *args: (repeated.append(self.kernel.__name__), failed(self, *args)),
    )
    args = arguments(rng, 3, 2, 33, mode, parts)
    given = (*args[:4], args[4] if mode == "lstm" else None, mode)
    found = kernels.recurrent(*given, version="cell")
    g = normal(rng, found[0].shape)
    kernels.recurrent_backward(g, args[1], *found, mode, version="cell")
    assert not repeated


def as_wide(value):
    return wide(value) if getattr(value, "dtype", None) == np.float32 else value


def test_states_too_large_for_one_launch(rng):
    args = arguments(rng, 1, 1, 1025)
    with pytest.raises(ValueError, match="'sequence' takes states of up to 1024, not 1025"):
        kernels.recurrent(*args, version="sequence")


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3)])
def test_empty(shape, backend, rng):
    args = arguments(rng, *shape)
    states, gates = kernels.recurrent(*args, backend=backend)
    assert states.shape == (2, shape[0] + 1, *shape[1:])
    assert np.array_equal(states[0, 0], args[3]) and np.array_equal(states[1, 0], args[4])
    g = normal(rng, states.shape)
    dx, dr, first = kernels.recurrent_backward(g, args[1], states, gates, "lstm", backend=backend)
    assert dx.shape == dr.shape == (*shape[:2], 4 * shape[2])
    assert np.allclose(first, g.sum(1))


def test_errors(rng):
    x, weight, bias, h, c, mode = arguments(rng, 2, 3, 4)
    for changed, kind, message in (
        ({"mode": "elu"}, ValueError, "a mode among"),
        ({"weight": weight[:5]}, ValueError, r"a weight \(4 \* H, H\)"),
        ({"x": x[0]}, ValueError, r"x \(T, B, 16\)"),
        ({"bias": bias[:3]}, ValueError, "a bias of shape"),
        ({"c": None}, ValueError, "the cell's state of 'lstm'"),
        ({"h": h[:2]}, ValueError, r"states of shape \(3, 4\)"),
        ({"sizes": np.array([4, 1])}, ValueError, "sizes of 0 to 3"),
        ({"sizes": np.array([1])}, ValueError, "2 integers as sizes"),
        ({"h": h.astype(np.float64)}, TypeError, "arrays of one dtype"),
        ({"version": "fast"}, ValueError, "a version among"),
    ):
        given = {"x": x, "weight": weight, "bias": bias, "h": h, "c": c, "mode": mode, **changed}
        with pytest.raises(kind, match=message):
            kernels.recurrent(**given)
    states, gates = kernels.recurrent(x, weight, bias, h, c, mode, backend="numpy")
    with pytest.raises(ValueError, match="g and states of shape"):
        kernels.recurrent_backward(states[:1], weight, states, gates, mode)
