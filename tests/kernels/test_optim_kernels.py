"""Optimiser kernels against the reference, several steps each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernels
from kernels import numba_cuda, reference
from tests.kernels.helpers import DEVICES, assert_close, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
SIZES = [0, 1, 31, 257, 1025, 10_001]


def run(name: str, n: int, dtype, device: str, rng, step_kwargs) -> None:
    """Three steps of both dialects from the same state; then the same numbers everywhere."""
    state = [rng.standard_normal(n).astype(dtype), *(np.zeros(n, dtype) for _ in range(3))]
    gradients = [rng.standard_normal(n).astype(dtype) for _ in range(3)]
    on_device = [put(s.copy(), device) for s in state]
    wanted = [wide(s) for s in state]
    for step, g in enumerate(gradients, 1):
        for dialect, (p, *slots), gradient in (
            (numba_cuda, on_device, put(g, device)),
            (reference, wanted, wide(g)),
        ):
            args, kwargs = step_kwargs(step, slots)
            getattr(dialect, name)(p, gradient, *args, **kwargs)
    for got, want in zip(on_device, wanted):
        assert_close(got, want, np.abs(want) + 1, terms=9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sgd(dtype, device, rng):
    options = itertools.product(
        [(0.0, False), (0.9, False), (0.9, True)], [(0.0, False), (0.01, True)]
    )
    for (momentum, nesterov), (decay, maximize) in options if dtype is np.float32 else ():

        def step(step, slots, how=(momentum, decay, nesterov, maximize)):
            momentum, decay, nesterov, maximize = how
            buf = slots[0] if momentum else None
            damp = 0.0 if nesterov else 0.3
            options = dict(nesterov=nesterov, maximize=maximize, first=step == 1)
            return (buf, 0.1, momentum, damp, decay), options

        run("sgd_", 33, dtype, device, rng, step)
    for n in SIZES:
        run("sgd_", n, dtype, device, rng, lambda step, s: ((s[0], 0.1, 0.9), {}))


@pytest.mark.parametrize(
    ("dtype", "amsgrad", "decoupled"),
    [*itertools.product([np.float32], [False, True], [False, True]), (np.float64, True, True)],
)
def test_adam(dtype, amsgrad, decoupled, device, rng):
    options = [(n, False, 0.1) for n in SIZES] + [(33, amsgrad, 0.0)]
    for n, maximize, decay in options:

        def step(step, slots, maximize=maximize, decay=decay):
            m, v, top = slots
            args = (m, v, top if amsgrad else None, 0.01, 0.9, 0.999, 1e-8, decay, step)
            return args, dict(decoupled=decoupled, maximize=maximize)

        run("adam_", n, dtype, device, rng, step)


def test_errors(device):
    p, short = (put(np.ones(n, np.float32), device) for n in (4, 3))
    with pytest.raises(ValueError, match="momentum needs a buffer"):
        kernels.sgd_(p, p, None, 0.1, 0.9, backend="numba")
    with pytest.raises(ValueError, match="expected 4 elements as in p, got 3"):
        kernels.sgd_(p, short, None, 0.1, backend="numba")
    with pytest.raises(TypeError, match="expected dtype float32 as in p, got float64"):
        kernels.sgd_(p, p.astype(np.float64), None, 0.1, backend="numba")
    with pytest.raises(ValueError, match="flat contiguous"):
        kernels.sgd_(p.reshape(2, 2), p, None, 0.1, backend="numba")
    with pytest.raises(ValueError, match="step counts from 1"):
        kernels.adam_(p, p, p, p, None, 0.1, 0.9, 0.999, 1e-8, 0, 0, backend="numba")
    with pytest.raises(TypeError, match="expected a floating dtype, got int64"):
        i = p.astype(np.int64)
        kernels.sgd_(i, i, None, 0.1, backend="numba")
