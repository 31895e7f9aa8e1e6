"""Objects of SciPy that hold arrays (sparse matrices, interpolators, trees) as objects of CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from kernels.cupy import _generate
from kernels.cupy._absent import unknown
from kernels.cupy._array import fresh, ndarray
from kernels.cupy._index import entries
from kernels.cupy._ufunc import ufunc
from kernels.cupyx._dropped import FUNCTIONS

_classes: dict[type, type] = {}  # SciPy's class -> ours


class Proxy:
    """An object of SciPy's whose methods and attributes take and give device arrays."""

    _class: type
    __array_ufunc__ = None  # so that `array * sparse` asks the sparse matrix
    __array_priority__ = 101

    def __init__(self, *args: Any, **options: Any) -> None:
        self._theirs = self._class(*map(inputs, args), **{k: inputs(v) for k, v in options.items()})

    @property
    def __host_value__(self) -> Any:
        return self._theirs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._theirs, name)
        return _method(value) if callable(value) else results(value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_theirs":
            object.__setattr__(self, name, value)
        else:
            setattr(self._theirs, name, inputs(value))

    def __repr__(self) -> str:
        return repr(self._theirs)

    def __reduce__(self) -> tuple:
        return results, (self._theirs,)


def _method(bound: Callable) -> Callable:
    def call(*args: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            found = bound(*map(inputs, args), **{k: inputs(v) for k, v in options.items()})
        return results(found)

    call.__name__, call.__doc__ = getattr(bound, "__name__", "call"), bound.__doc__
    return call


def _operator(name: str) -> None:
    def compute(self: Proxy, *args: Any) -> Any:
        method = getattr(self._theirs, name, None)
        return NotImplemented if method is None else _method(method)(*args)

    compute.__name__ = name
    setattr(Proxy, name, compute)


for _name in (
    "add radd sub rsub mul rmul truediv matmul rmatmul neg pow abs getitem setitem call lt le gt ge"
    " ne eq iadd isub imul itruediv"
).split():
    _operator(f"__{_name}__")
Proxy.__hash__ = object.__hash__


def inputs(value: Any) -> Any:
    """An argument for SciPy: NumPy's arrays, and functions that take and give them."""
    if isinstance(value, FunctionType):
        return lambda *args, **options: inputs(value(*map(results, args), **options))
    return _generate.inputs(value)


def results(value: Any) -> Any:
    """What SciPy gave: arrays and NumPy's numbers on the device, known objects as ours."""
    if isinstance(value, np.ndarray | np.generic):
        return fresh(value)
    ours = _classes.get(type(value)) or _class_of(value)
    if ours is not None:
        return made(ours, value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(results, value))
    if isinstance(value, tuple | list):
        return type(value)(map(results, value))
    if type(value) is dict:
        return {key: results(part) for key, part in value.items()}
    return value


def _class_of(value: Any) -> type | None:
    """A new proxy class for an object of a class of SciPy's that no module has named yet."""
    theirs = type(value)
    of_scipy = theirs.__module__.startswith("scipy.") or theirs.__name__ == "SuperLU"
    if not of_scipy or isinstance(value, tuple | dict | Exception):
        return None
    return proxy(theirs.__name__, theirs.__module__, theirs)


def made(ours: type, theirs: Any) -> Any:
    """An object of a proxy class for one of SciPy's."""
    proxy = ours.__new__(ours)
    object.__setattr__(proxy, "_theirs", theirs)
    return proxy


def proxy(name: str, module: str, theirs: type, bases: tuple[type, ...] = (Proxy,)) -> type:
    """The class of CuPy for a class of SciPy."""
    made = type(name, bases, {"_class": theirs, "__module__": module, "__doc__": theirs.__doc__})
    _classes[theirs] = made
    return made


def of_scipy(
    module: str, given: dict[str, Any], submodules: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module of cupyx.scipy: SciPy's functions and classes."""
    library = module.removeprefix("cupyx.")

    def get(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"kernels.{module}.{name}")
        entry = entries(module).get(name)
        if entry is None or name.startswith("__"):
            raise unknown(module, name, entries(module))
        theirs = FUNCTIONS.get(f"{library}.{name}") or getattr(_library(library), name, None)
        if theirs is None:
            raise AttributeError(
                f"{module}.{name} is not on the CPU: SciPy has no such function; compute it from"
                " cupy.asnumpy(array)"
            )
        if entry.kind == "ufunc":
            value = ufunc(name, theirs, entry.text)
        elif isinstance(theirs, type) and not issubclass(theirs, Warning):
            value = proxy(name, module, theirs)
        elif callable(theirs) and not isinstance(theirs, type):
            value = _generate.function(name, entry.text, theirs, module, _call)
        else:
            value = theirs
        given[name] = value
        return value

    return get, lambda: sorted({*given, *entries(module)})


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "scipy":
            raise ModuleNotFoundError(
                f"cupyx.{name} needs SciPy on the CPU: pip install scipy", name="scipy"
            ) from None
        raise


def _call(name: str, function: Callable, args: tuple, options: dict[str, Any]) -> Any:
    """Call SciPy's function on device arrays."""
    out = options.get("output") if "output" in options else options.get("out")
    with np.errstate(all="ignore"):
        found = function(*map(inputs, args), **{k: inputs(v) for k, v in options.items()})
    return out if isinstance(out, ndarray) else results(found)
