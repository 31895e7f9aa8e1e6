"""Functions of CuPy made from NumPy's or SciPy's: CuPy's signature, device arrays in and out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _trace
from ._array import fresh, ndarray, view, wrap
from ._quiet import quietly

#: parameters that must be device arrays
_ARRAYS = frozenset("a a1 a2 arr arr1 arr2 ar ar1 ar2 ary array x m z val filt input".split())
#: functions whose first argument may be a number, or anything
_ANY = frozenset(
    "arange linspace logspace tri bartlett blackman hamming hanning kaiser indices fftfreq rfftfreq"
    " diag_indices tril_indices triu_indices mask_indices ndim shape size isscalar iterable"
    " iscomplexobj isrealobj fromfunction base_repr binary_repr typename".split()
)
#: functions whose result is Python's, as it is
_PYTHON = frozenset(
    "ndim shape size isscalar iterable iscomplexobj isrealobj isfortran may_share_memory"
    " shares_memory can_cast issubdtype isdtype mintypecode typename base_repr binary_repr"
    " array_repr array_str array2string format_float_positional format_float_scientific"
    " min_scalar_type result_type common_type broadcast_shapes einsum_path next_fast_len"
    " get_printoptions byte_bounds kaiser_beta kaiser_atten kaiserord choose_conv_method".split()
)


_PLAIN = frozenset((int, float, bool, str, type(None)))


def inputs(value: Any) -> Any:
    """An argument for NumPy: device arrays as NumPy's, also inside of lists and tuples.

    Raises TypeError for a NumPy array: CuPy does not mix the two.
    """
    kind = type(value)
    if kind is ndarray:
        return value._array
    if kind is list or kind is tuple:
        return kind([p._array if type(p) is ndarray else inputs(p) for p in value])
    if kind in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if kind is dict:
        return {key: inputs(part) for key, part in value.items()}
    if hasattr(value, "__host_value__"):  # a sparse matrix and its like
        return value.__host_value__
    return value


def require(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a device array."""
    if not isinstance(value, ndarray | _trace.Traced) and not hasattr(value, "__host_value__"):
        raise TypeError(
            f"{name}: expected a cupy.ndarray, got {type(value).__name__}; use cupy.asarray"
        )


def call(name: str, function: Callable, args: tuple, options: dict[str, Any]) -> Any:
    """Call NumPy's function on device arrays; what it gives as CuPy's."""
    if _trace.active and (history := _trace.recording()) is not None:
        found = history.function(
            name, lambda *a, **k: call(name, function, a, k), args, dict(options)
        )
        if found is not NotImplemented:
            return found
    values = [
        v._array if type(v) is ndarray else v if type(v) in _PLAIN else inputs(v) for v in args
    ]
    out = None
    if options:
        out = options.get("out")
        if out is not None and not isinstance(out, ndarray):
            raise TypeError(f"{name}: out must be a cupy.ndarray, not {type(out).__name__}")
        keywords = {k: v if type(v) in _PLAIN else inputs(v) for k, v in options.items()}
        result = quietly(function, *values, **keywords)
    else:
        result = quietly(function, *values)
    if out is not None:
        return out
    if name in _PYTHON:
        return result
    if type(result) is np.ndarray:
        base = result.base
        if base is None:
            return fresh(result)
        for value in args:
            if type(value) is ndarray and (base is value._array or base is value._array.base):
                return view(value, result)
            if type(value) in (list, tuple):
                break
        else:
            return fresh(result)
    elif isinstance(result, np.generic):
        return fresh(result)
    return wrap(result, *_sources(args), *options.values())


def _sources(args: tuple) -> list[Any]:
    found: list[Any] = []
    for value in args:
        found += value if isinstance(value, list | tuple) else [value]
    return found


def function(
    name: str,
    signature: str,
    numpy_function: Callable,
    module: str = "cupy",
    through: Callable = call,
) -> Callable:
    """A function with CuPy's `signature` that calls `numpy_function`, by `through`.

    Parameters that NumPy's does not have are taken only with their defaults.
    """
    parameters = _declared(name, signature)
    theirs = _parameters(numpy_function)
    own = module == "cupy.ndarray"
    code, args, options = [], [], []
    defaults: dict[str, Any] = {}
    rest = "{}"
    for index, (key, p) in enumerate(parameters.items()):
        required = p.default is p.empty
        if p.kind is p.VAR_KEYWORD:
            rest = f"dict({key})"
        elif p.kind is p.VAR_POSITIONAL:
            args.append(f"*{key}")
        elif theirs is not None and key not in theirs and not required:
            given = f"{key} is not None" if p.default is None else f"{key} != {p.default!r}"
            code.append(f"if {given}: _refuse({name!r}, {key!r}, {key})")
        elif required and index == len(args):
            args.append(key)
        else:
            same = own or (theirs or {}).get(key) is p.default
            options.append(f"if {_given(key, p.default, same)}: _options[{key!r}] = {key}")
            defaults[f"_default_{key}"] = p.default
        if through is call and name not in _ANY and required and key in _ARRAYS:
            code.append(f"if type({key}) is not _ndarray: _require({name!r}, {key})")
    code += [f"_options = {rest}", *options]
    code.append(f"return _call({name!r}, _function, ({''.join(a + ', ' for a in args)}), _options)")
    scope = {
        "_call": through,
        "_function": numpy_function,
        "_ndarray": ndarray,
        "_refuse": refuse,
        "_require": require,
        **defaults,
        "nan": np.nan,
        "inf": np.inf,
    }
    text = "\n    ".join([f"def {name}{signature}:", *code])
    exec(compile(text, f"<{module}.{name}>", "exec"), scope)
    made = scope[name]
    made.__module__ = module
    made.__doc__ = f"{module}.{name}{signature}: {numpy_function.__name__} on device arrays."
    return made


def _declared(name: str, signature: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a signature given as text."""
    scope: dict[str, Any] = {"nan": np.nan, "inf": np.inf}
    exec(compile(f"def {name}{signature}: pass", "<signature>", "exec"), scope)
    return inspect.signature(scope[name]).parameters


def _given(key: str, default: Any, same: bool) -> str:
    """The condition under which an argument is passed on. same: NumPy has the same default."""
    if default is None or default is inspect.Parameter.empty:
        return f"{key} is not None"
    if isinstance(default, bool):
        return f"{key} is not {default!r}"
    if type(default) in (int, str) and same:
        return f"{key} is not _default_{key}"
    return "True"


def refuse(function: str, parameter: str, value: Any) -> None:
    """Raise NotImplementedError for an argument that is not supported."""
    raise NotImplementedError(f"{function}: {parameter}={value!r} is not supported on the CPU")


def _parameters(function: Callable) -> dict[str, Any] | None:
    """A function's parameters and their defaults, or None where they are not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name: p.default for p in parameters}
