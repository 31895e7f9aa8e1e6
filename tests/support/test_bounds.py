"""Indices are inside of their bounds, in every integer dtype and layout."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.support.bounds import all_below

DTYPES = [np.dtype(f"{order}{kind}{n}") for order in "<>" for kind in "iu" for n in (1, 2, 4, 8)]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: f"{d.byteorder}{d.str[1:]}")
def test_bounds_of_all_integers(dtype):
    index = np.arange(24, dtype=dtype).reshape(4, 6)
    for layout in (index, index[:, ::-2], index.T, index[2, 3], index[:0]):
        layout = np.asarray(layout)
        largest = int(layout.max(initial=0))
        assert all_below(layout, largest + 1)
        assert all_below(layout, largest) is (layout.size == 0)
    index[1, 2] = np.iinfo(dtype).max
    assert not all_below(index, 100)
    if dtype.kind == "i":
        for wrong in (-1, np.iinfo(dtype).min):
            index[1, 2] = wrong
            assert not all_below(index, 100)


def test_what_is_repeated_counts_once():
    index = np.broadcast_to(np.array([[3], [7]]), (2, 5))
    assert all_below(index, 8) and not all_below(index, 7)
    assert all_below(np.broadcast_to(np.int64(2), (4, 4)), 3)
    assert all_below(np.broadcast_to(np.int64(9), (0, 4)), 3)
