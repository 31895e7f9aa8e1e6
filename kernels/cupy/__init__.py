"""CuPy's names on NumPy: device arrays, CUDA C kernels, streams and memory, on the CPU.

`kernels.install()` makes it what `import cupy` finds on a machine with no GPU. Array functions are
NumPy's with CuPy's signatures, dtypes and refusals; kernels run through `kernels.host`. Names come
into being at their first use. docs/cupy.md lists what is there and what is not.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as _np

from . import _creation, _functions, _methods
from ._absent import library, unknown
from ._array import ndarray
from ._generate import function as _function
from ._index import entries as _entries
from ._memory import MemoryPointer
from ._ufunc import ufunc

__version__ = "14.2.0"
__all__ = ["ndarray", "ufunc"]

_SUBMODULES = "cuda exceptions fft lib linalg polynomial random testing typing".split()
_LAZY = {
    **dict.fromkeys(("RawKernel", "RawModule"), "_raw"),
    **dict.fromkeys(("ElementwiseKernel", "ReductionKernel"), "_elementwise"),
    "fuse": "_fusion",
    "flatiter": "_methods",
    **dict.fromkeys("c_ r_ s_ index_exp mgrid ogrid broadcast poly1d".split(), "_grids"),
}
_ELSEWHERE = {
    **dict.fromkeys(
        "AxisError ComplexWarning ModuleDeprecationWarning RankWarning TooHardError"
        " VisibleDeprecationWarning".split(),
        "numpy.exceptions",
    ),
    "DataSource": "numpy.lib.npyio",
    "format_parser": "numpy.rec",
}
_ALIASES = {
    "alltrue": "all", "sometrue": "any", "product": "prod", "cumproduct": "cumprod",
    "in1d": "isin", "row_stack": "vstack", "trapz": "trapezoid", "concat": "concatenate",
    "permute_dims": "transpose", "float_": "float64", "complex_": "complex128",
    "cfloat": "complex128", "singlecomplex": "complex64", "Inf": "inf", "Infinity": "inf",
    "PINF": "inf", "infty": "inf", "NAN": "nan", "NaN": "nan",
}  # fmt: skip
_VALUES = {"NINF": -_np.inf, "PZERO": 0.0, "NZERO": -0.0, "newaxis": None}
disable_experimental_feature_warning = False


def _make(name: str) -> Any:
    """What a name of CuPy stands for. Raises KeyError for one that is not here."""
    for module in (_functions, _creation):
        found = vars(module).get(name)
        if getattr(found, "__module__", None) == module.__name__:
            return found
    if name in _ALIASES:
        return getattr(importlib.import_module(__name__), _ALIASES[name])
    if name in _VALUES:
        return _VALUES[name]
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    kind, text = _entries("cupy")[name]
    if kind == "ufunc":
        return _methods.ufunc_named(name)
    theirs = getattr(_np, name)
    if kind == "function" and name not in _FROM_NUMPY:
        return _function(name, text, theirs)
    return theirs


#: functions of dtypes and of printing, which are NumPy's own
_FROM_NUMPY = frozenset(
    "base_repr binary_repr broadcast_shapes get_printoptions isdtype issubdtype iterable"
    " mintypecode printoptions promote_types set_printoptions typename".split()
)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    else:
        try:
            value = _make(name)
        except (KeyError, AttributeError):
            if found := library("cupy", name):
                return found
            if name in _entries("cupy"):
                raise AttributeError(f"cupy.{name} is not on the CPU") from None
            raise unknown("cupy", name, __dir__()) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_entries("cupy"), *_SUBMODULES})


def _array_function(self: ndarray, called: Any, types: Any, args: tuple, options: dict) -> Any:
    """NumPy's functions of device arrays are CuPy's."""
    module = called.__module__.replace("numpy", __name__, 1).split("._")[0]
    found = getattr(importlib.import_module(module), called.__name__, None)
    return NotImplemented if found is None else found(*args, **options)


def _device(self: Any) -> Any:
    """The device that has the memory."""
    return importlib.import_module(f"{__name__}.cuda").Device()


ndarray.__array_function__ = _array_function
for _kind in (ndarray, MemoryPointer):
    setattr(_kind, "device", property(_device))  # noqa: B010
