"""`cupy.lib.stride_tricks`: views with other strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._array import ndarray, view


def as_strided(x: ndarray, shape: Any = None, strides: Any = None) -> ndarray:
    """A view with a shape and strides in bytes, which are not checked."""
    return view(x, np.lib.stride_tricks.as_strided(x._array, shape, strides))


def sliding_window_view(x: ndarray, window_shape: Any, axis: Any = None, **options: Any) -> ndarray:
    """A view of all windows of a shape."""
    options["writeable"] = options.get("writeable", False)
    return view(
        x, np.lib.stride_tricks.sliding_window_view(x._array, window_shape, axis, **options)
    )
