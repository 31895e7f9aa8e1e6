"""How arrays of any strides are seen as flat memory."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.launchers.layout import window

NUMBERS = np.arange(12.0)
ARRAYS = {
    "expanded_number": np.broadcast_to(NUMBERS[3], (4,)),
    "expanded_rows": np.broadcast_to(NUMBERS[:4], (3, 4)),
    "expanded_columns": np.broadcast_to(NUMBERS[:4, None], (2, 4, 3)),
    "expanded_transpose": np.broadcast_to(NUMBERS.reshape(3, 4).T[:, None], (4, 2, 3)),
    "expanded_steps": np.broadcast_to(NUMBERS[::2], (3, 6)),
    "expanded_backwards": np.broadcast_to(NUMBERS[::-1], (3, 12)),
    "backwards": NUMBERS.reshape(3, 4)[::-1, ::-1],
    "steps": NUMBERS.reshape(3, 4)[:, 1:3],
    "empty": np.broadcast_to(np.ones(0), (3, 0)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_window(name):
    """Each element lies in the flat view where the strides say."""
    a = ARRAYS[name]
    view, start = window("test", a)
    flat = view(a)
    assert flat.ndim == 1
    assert not a.size or np.shares_memory(flat, a)
    at = np.full(a.shape, start)
    for axis, stride in enumerate(a.strides):
        steps = np.arange(a.shape[axis]) * (stride // a.itemsize)
        at += steps.reshape([-1 if d == axis else 1 for d in range(a.ndim)])
    assert np.array_equal(flat[at], a)
