"""Parameters and gradients that minigrad and torch are given alike."""

from __future__ import annotations

from typing import Any

import numpy as np

SHAPES = [(3, 4), (5,), (), (2, 3, 3), (33,), (1, 31)]


def parameters(t: Any, seed: int, dtype: Any = np.float32) -> list[Any]:
    """Leaf tensors of namespace `t`, with values that depend on the seed only."""
    rng = np.random.default_rng(seed)
    return [t.nn.Parameter(t.tensor(rng.normal(size=s).astype(dtype))) for s in SHAPES]


def set_gradients(t: Any, params: list[Any], seed: int, skip: tuple[int, ...] = ()) -> None:
    """Give every parameter a gradient; those in `skip` get None."""
    rng = np.random.default_rng(seed)
    for i, p in enumerate(params):
        g = rng.normal(size=tuple(p.shape))
        p.grad = None if i in skip else t.tensor(g, dtype=p.dtype)


def values(params: list[Any]) -> list[np.ndarray]:
    """The parameters as arrays (copies)."""
    return [p.detach().numpy().copy() for p in params]


def assert_equal(mine: list[Any], theirs: list[Any], tolerance: float, what: str = "") -> None:
    """Assert that two lists of tensors hold the same numbers."""
    for i, (a, b) in enumerate(zip(values(mine), values(theirs), strict=True)):
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance, err_msg=f"parameter {i} {what}"
        )
