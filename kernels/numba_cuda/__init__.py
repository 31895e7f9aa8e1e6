"""Dialect 1: the kernels as Numba CUDA, compiled for the CPU by `kernels.simt` or run on a GPU.

One file a family: its versions in order from naive to fast, each with the one idea it adds, then
the launcher that picks one. The functions are those of `kernels.reference`; where a family has a
ladder they also take `version=`.
"""

from __future__ import annotations

import sys

from kernels.numba_cuda.conv import conv2d, conv2d_backward_data, conv2d_backward_weight
from kernels.numba_cuda.cross_entropy import cross_entropy, cross_entropy_backward
from kernels.numba_cuda.embedding import (
    embedding,
    embedding_backward,
    gather,
    scatter_add,
    take,
    take_backward,
)
from kernels.numba_cuda.matmul import matmul
from kernels.numba_cuda.norm import batch_norm, batch_norm_apply, batch_norm_backward
from kernels.numba_cuda.optim import adam_, sgd_
from kernels.numba_cuda.pointwise import pointwise
from kernels.numba_cuda.pool import (
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from kernels.numba_cuda.random import dropout, normal, philox_uint32, uniform
from kernels.numba_cuda.reduction import reduce
from kernels.numba_cuda.scan import cumsum
from kernels.numba_cuda.softmax import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from kernels.numba_cuda.transpose import cast, concat, copy, transpose

__all__ = [
    "adam_",
    "avg_pool2d",
    "avg_pool2d_backward",
    "batch_norm",
    "batch_norm_apply",
    "batch_norm_backward",
    "cast",
    "concat",
    "conv2d",
    "conv2d_backward_data",
    "conv2d_backward_weight",
    "copy",
    "cross_entropy",
    "cross_entropy_backward",
    "cumsum",
    "dropout",
    "embedding",
    "embedding_backward",
    "gather",
    "log_softmax",
    "log_softmax_backward",
    "matmul",
    "max_pool2d",
    "max_pool2d_backward",
    "normal",
    "philox_uint32",
    "pointwise",
    "reduce",
    "scatter_add",
    "sgd_",
    "softmax",
    "softmax_backward",
    "take",
    "take_backward",
    "transpose",
    "uniform",
]

_FAMILIES = (
    "pointwise reduction transpose scan matmul conv pool softmax cross_entropy norm random"
    " embedding optim"
)
CATALOG = [
    row for family in _FAMILIES.split() for row in sys.modules[f"{__name__}.{family}"].CATALOG
]
