"""The kernels of grid_sample.cu."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, as_passed, family, scalar_type, storage_type

_kernel = family("grid_sample.cu")


def kernel(dtype: np.dtype, linear: bool, padding: int, aligned: bool) -> Kernel:
    """kernel(x, grid, out, blocks, points, channels, height, width), all arrays flat."""
    constants = (storage_type(dtype), scalar_type(dtype), linear, padding, aligned)
    return _kernel("grid_sample", (), constants, as_passed)


def image_gradient(
    dtype: np.dtype, linear: bool, padding: int, aligned: bool, version: str
) -> Kernel:
    """kernel(g, grid, dx, blocks, points, channels, height, width), all arrays flat."""
    constants = (storage_type(dtype), scalar_type(dtype), linear, padding, aligned)
    return _kernel("image_gradient", (), (*constants, version == "ordered"), as_passed)


def points_gradient(dtype: np.dtype, padding: int, aligned: bool) -> Kernel:
    """kernel(g, x, grid, dgrid, blocks, points, channels, height, width), all arrays flat."""
    constants = (storage_type(dtype), scalar_type(dtype), padding, aligned)
    return _kernel("points_gradient", (), constants, as_passed)
