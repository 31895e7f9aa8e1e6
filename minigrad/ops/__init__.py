"""Operations on tensors, one file per family.

Importing this package gives `Tensor` its methods and fills the table of torch-level functions.
"""

from minigrad.ops import (
    activation,
    attention,
    combine,
    conv,
    convert,
    elementwise,
    index,
    inplace,
    matmul,
    norm,
    pool,
    random,
    recurrent,
    reduce,
    scan,
    shape,
    softmax,
    sort,
    sparse,
    volume,
)
from minigrad.ops.pointwise import POINTWISE

__all__ = [
    "POINTWISE",
    "activation",
    "attention",
    "combine",
    "conv",
    "convert",
    "elementwise",
    "index",
    "inplace",
    "matmul",
    "norm",
    "pool",
    "random",
    "recurrent",
    "reduce",
    "scan",
    "shape",
    "softmax",
    "sort",
    "sparse",
    "volume",
]
