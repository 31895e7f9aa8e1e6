"""The kernels of distance.cu for a line of the reduction table."""

from __future__ import annotations

import numpy as np

from kernels.cuda_c.common import Kernel, source
from kernels.cuda_c.reduction import line_text
from kernels.launchers.distance import TILE


def _arguments(a, b, out):
    return a, b, out, a.shape[1], b.shape[1], a.shape[2]


def tiled(line: str, dtype: np.dtype, pairs: bool) -> Kernel:
    """kernel(a, b, out): block (TILE, TILE), one result per thread."""
    text = line_text(line, dtype, dtype, True, True) + source("distance.cu")
    return Kernel(text, "tiled", (), (TILE, pairs), _arguments)
