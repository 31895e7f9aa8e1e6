"""The operations in plain NumPy: the oracle of the tests and the `numpy` backend.

Every dialect has functions with these names and arguments. Clarity first: nothing here knows about
threads. Arrays in, new arrays out; a name that ends in `_` works in place. Integer, float and
(through `ml_dtypes`) bfloat16 arrays of any strides; float16 and bfloat16 are storage types that
are computed in float32.
"""

from __future__ import annotations

from kernels.reference.attention import attention, attention_backward
from kernels.reference.conv import conv2d, conv2d_backward_data, conv2d_backward_weight
from kernels.reference.embedding import (
    embedding,
    embedding_backward,
    gather,
    scatter_add,
    take,
    take_backward,
)
from kernels.reference.matmul import matmul
from kernels.reference.norm import batch_norm, batch_norm_apply, batch_norm_backward
from kernels.reference.optim import adam_, sgd_
from kernels.reference.pointwise import pointwise
from kernels.reference.pool import avg_pool2d, avg_pool2d_backward, max_pool2d, max_pool2d_backward
from kernels.reference.random import dropout, normal, philox_uint32, uniform
from kernels.reference.reduction import reduce
from kernels.reference.row_norm import (
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)
from kernels.reference.scan import cumsum
from kernels.reference.softmax import (
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from kernels.reference.transpose import cast, concat, copy, transpose

__all__ = [
    "adam_",
    "attention",
    "attention_backward",
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
    "layer_norm",
    "layer_norm_backward",
    "log_softmax",
    "log_softmax_backward",
    "matmul",
    "max_pool2d",
    "max_pool2d_backward",
    "normal",
    "philox_uint32",
    "pointwise",
    "reduce",
    "rms_norm",
    "rms_norm_backward",
    "scatter_add",
    "sgd_",
    "softmax",
    "softmax_backward",
    "take",
    "take_backward",
    "transpose",
    "uniform",
]

CATALOG = [(name, "numpy", "plain NumPy: the oracle") for name in __all__]
