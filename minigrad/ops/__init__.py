"""Operations on tensors, one file per family.

Importing this package gives `Tensor` its methods and fills the table of torch-level functions.
"""

import importlib

from minigrad.autograd.titles import entitled
from minigrad.ops import (
    activation,
    attention,
    combine,
    complexes,
    conv,
    convert,
    differences,
    distance,
    eigen,
    einsum,
    elementwise,
    extremes,
    fills,
    index,
    inplace,
    linalg,
    matmul,
    more,
    norm,
    places,
    pool,
    random,
    ranges,
    recurrent,
    reduce,
    scan,
    scatter,
    select,
    shape,
    softmax,
    sort,
    sparse,
    sparse_algebra,
    sparse_make,
    sparse_tensor,
    special,
    spectral,
    storage,
    volume,
)
from minigrad.overrides import METHODS, asking
from minigrad.tensor import FUNCTIONS, Tensor

from minigrad.ops import written  # isort: skip - after all that it names
from minigrad.ops.pointwise import POINTWISE

__all__ = [
    "POINTWISE",
    "activation",
    "attention",
    "combine",
    "complexes",
    "conv",
    "convert",
    "differences",
    "distance",
    "eigen",
    "einsum",
    "elementwise",
    "extremes",
    "fills",
    "index",
    "inplace",
    "linalg",
    "matmul",
    "more",
    "norm",
    "places",
    "pool",
    "random",
    "ranges",
    "recurrent",
    "reduce",
    "scan",
    "scatter",
    "select",
    "shape",
    "softmax",
    "sort",
    "sparse",
    "sparse_algebra",
    "sparse_make",
    "sparse_tensor",
    "special",
    "spectral",
    "storage",
    "volume",
    "written",
]

# After the operations, which call each other without titles.
FUNCTIONS |= entitled(FUNCTIONS)
for _name, _method in entitled(vars(Tensor)).items():
    setattr(Tensor, _name, _method)
for _name in METHODS:
    setattr(Tensor, _name, asking(getattr(Tensor, _name)))
importlib.import_module("minigrad._inherit")  # which takes the methods as they are now
