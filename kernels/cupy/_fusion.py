"""`cupy.fuse`: a function of arrays, recorded and compiled as one kernel.

The function is called once for each set of dtypes, with arrays that have no values (`_trace`). What
it does becomes one ElementwiseKernel, or one ReductionKernel where a reduction comes last; several
reductions, and views, take a kernel each (`_fusion_plan`). CuPy refuses what is refused here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _trace
from ._array import SCALARS, fresh, ndarray
from ._fusion_code import REDUCTIONS
from ._fusion_plan import Node, Plan, constant, given, operation, reduced, viewed
from ._trace import Traced
from ._ufunc import ufunc

_REDUCE = {"amax": "max", "amin": "min", **{name: name for name in REDUCTIONS}}
#: functions that are no ufuncs, and how many operands they have
_FUNCTIONS = {"where": 3, "clip": 3, "real": 1, "imag": 1, "angle": 1, "rsqrt": 1}
_CONCRETE = "Concrete ndarray is not supported in fusion."


class Fusion:
    """A fused function. A call without arrays runs the function itself."""

    def __init__(self, func: Callable, name: str | None = None) -> None:
        self.func, self.name = func, name or func.__name__
        self._plans: dict[Any, Plan] = {}
        functools.update_wrapper(self, func)

    def __repr__(self) -> str:
        return f"<Fusion name={self.name}>"

    def __call__(self, *args: Any) -> Any:
        if _trace.active and _trace.recording() is not None:
            return self.func(*args)  # part of a larger fused function
        if not any(isinstance(arg, ndarray) for arg in args):
            return self.func(*args)
        key: list[Any] = []
        shapes: list[Any] = []
        for arg in args:
            if isinstance(arg, ndarray):
                key.append((arg.dtype, arg.ndim))
                shapes.append(arg.shape)
            elif type(arg) in SCALARS or arg is None:
                key.append(type(arg))
            elif isinstance(arg, np.generic):
                key.append(arg.dtype)
            elif isinstance(arg, np.ndarray):
                raise TypeError(_CONCRETE)
            else:
                kinds = ", ".join(repr(type(a)) for a in args)
                raise TypeError(f"Invalid argument type for '{self.name}': ({kinds})")
        plan = self._plans.get(tuple(key))
        if plan is None or plan.by_shape:
            key += shapes
            plan = self._plans.get(tuple(key))
            if plan is None:
                plan = self._traced(args)
                self._plans[tuple(key if plan.by_shape else key[: len(args)])] = plan
        return plan(args)

    def _traced(self, args: tuple) -> Plan:
        history = _History()
        values = [
            None if arg is None else Traced(history, given(number, arg))
            for number, arg in enumerate(args)
        ]
        with _trace.into(history):
            found = self.func(*values)
        outputs = found if isinstance(found, tuple) else () if found is None else (found,)
        if not all(isinstance(one, Traced) for one in outputs):
            raise ValueError(
                "The return value of fused functions must be `None`, ndarray or a tuple of ndarrays"
                f" (made of the arguments): {self.name} returned {type(found).__name__}"
            )
        stores = {
            number: value.node
            for number, value in enumerate(values)
            if value is not None and value.node.kind != "input"
        }
        kind = "tuple" if isinstance(found, tuple) else "none" if found is None else "one"
        return Plan(self.name, [one.node for one in outputs], stores, kind, args)

    def clear_cache(self) -> None:
        """Forget the compiled kernels."""
        self._plans.clear()


class _History:
    """Records the operations of a function: functions of this CuPy call it instead of computing."""

    def _node(self, value: Any) -> Node:
        if isinstance(value, Traced):
            return value.node
        if type(value) in SCALARS or isinstance(value, np.generic):
            return constant(value)
        if isinstance(value, ndarray | np.ndarray):
            raise TypeError(_CONCRETE)
        raise TypeError(f"{type(value)} type is not supported")

    def ufunc(self, function: ufunc, args: tuple, options: dict[str, Any]) -> Any:
        """A ufunc. NotImplemented where nothing of the function is among its arguments."""
        if any(isinstance(arg, ndarray) for arg in args) and not any(
            isinstance(arg, Traced) for arg in args
        ):
            return NotImplemented
        out, dtype = options.pop("out", None), options.pop("dtype", None)
        if options:
            raise TypeError(f"Wrong arguments {options}")
        if out is not None and len(args) > function.nin:
            raise ValueError("cannot specify 'out' as both a positional and keyword argument")
        outs = args[function.nin :] if out is None else out if isinstance(out, tuple) else (out,)
        if len(args) < function.nin or len(outs) > function.nout:
            raise ValueError("Invalid number of arguments")
        if not all(isinstance(one, Traced) and not one.node.is_number for one in outs):
            raise TypeError("Return arrays must be of ArrayType")
        nodes = [self._node(arg) for arg in args[: function.nin]]
        if dtype is not None:
            nodes = [operation("astype", None, [node], np.dtype(dtype))[0] for node in nodes]
        made = operation(function.__name__, function, nodes)
        results = [Traced(self, node) for node in made]
        for target, result in zip(outs, results):
            if not np.can_cast(result.dtype, target.dtype, "same_kind"):
                raise TypeError(
                    f"output (typecode '{result.dtype.char}') could not be coerced to provided"
                    f" output parameter (typecode '{target.dtype.char}') according to the casting"
                    ' rule "same_kind"'
                )
            self.store(target, result)
        results = [*outs, *results[len(outs) :]]
        return results[0] if function.nout == 1 else tuple(results)

    def function(self, name: str, compute: Callable, args: tuple, options: dict) -> Any:
        """A function that is no ufunc. NotImplemented where none of its arguments is traced."""
        if not any(isinstance(arg, Traced) for arg in (*args, *options.values())):
            return NotImplemented
        if name in _REDUCE:
            return self.reduce(_REDUCE[name], *args, **options)
        if name == "copy":
            if options.get("order", "K") != "K":
                raise NotImplementedError("cupy.copy does not support `order` in fusion yet.")
            return args[0].copy()
        if name == "copyto":
            return self._copyto(*args, **options)
        if name in ("around", "round", "round_"):
            return self._rounded(compute, *args, **options)
        if name not in _FUNCTIONS:
            raise TypeError(
                f"cupy.fuse: {name} cannot be fused; ufuncs, {', '.join(sorted(_REDUCE))},"
                f" {', '.join(_FUNCTIONS)}, copy, copyto and round can"
            )
        out, deg = options.pop("out", None), options.pop("deg", False)
        args = (*args, *options.values())[: _FUNCTIONS[name]]
        if name == "where" and len(args) < 3:
            raise TypeError("cupy.fuse: where without x and y cannot be fused")
        if name == "clip":
            args = self._limits(*args)
        if name == "angle" and (deg or options):
            raise TypeError("cupy.fuse: angle in degrees cannot be fused; use cupy.rad2deg")
        (node,) = operation(name, compute, [self._node(arg) for arg in args])
        result = Traced(self, node)
        if out is None:
            return result
        self.store(out, result)
        return out

    def _limits(self, a: Traced, low: Any = None, high: Any = None) -> tuple:
        """The operands of clip; a missing limit is the type's own."""
        if a.dtype.kind == "f":
            least, most = -np.inf, np.inf
        elif a.dtype.kind in "iu":
            least, most = np.iinfo(a.dtype).min, np.iinfo(a.dtype).max
        else:
            least, most = False, True
        return a, least if low is None else low, most if high is None else high

    def _rounded(self, compute: Callable, a: Traced, decimals: int = 0, out: Any = None) -> Any:
        (node,) = operation("around", lambda x: compute(x, decimals), [a.node])
        if decimals == 0 and a.dtype.kind in "fc":
            (node,) = operation("rint", compute, [a.node])
        elif a.dtype.kind in "iub" and decimals >= 0:
            node = a.node
        result = Traced(self, node)
        if out is None:
            return result
        self.store(out, result)
        return out

    def _copyto(self, dst: Traced, src: Any, casting: str = "same_kind", where: Any = None) -> None:
        if where is None:
            self.store(dst, src)
            return
        nodes = [self._node(value) for value in (where, src, dst)]
        self.store(dst, Traced(self, operation("where", np.where, nodes)[0]))

    def cast(self, value: Traced, dtype: np.dtype) -> Traced:
        return Traced(self, operation("astype", None, [value.node], dtype)[0])

    def store(self, target: Traced, value: Any) -> None:
        """target[...] = value: an argument of the function is written to when it is called."""
        if target._shared:
            raise NotImplementedError(
                "cupy.fuse: an array cannot be written to that is a view, or that has views"
            )
        node = self._node(value)
        if node.ndim > target.ndim:
            raise ValueError(
                f"non-broadcastable output operand: {node.ndim} dimensions into {target.ndim}"
            )
        target.node = operation("astype", None, [node], target.dtype, target.node.shape)[0]

    def view(self, value: Traced, index: Any) -> Traced:
        """Basic indexing: whole axes, backwards too, integers, None and `...`."""
        parts = index if isinstance(index, tuple) else (index,)
        for part in parts:
            if isinstance(part, Traced | list | np.ndarray | ndarray):
                raise NotImplementedError("Advanced indexing is not supported, currently.")
            if isinstance(part, slice):
                whole = part.start is None and part.stop is None and part.step in (1, -1, None)
                if not whole:
                    raise NotImplementedError(
                        "Only full range ``x[::]`` or reverse ``x[::-1]`` is supported for basic"
                        " slicing in CuPy fusion."
                    )
            elif not (isinstance(part, int) or part is None or part is Ellipsis):
                raise IndexError(
                    "Indices must be integers, slices, ellipsis, None or integer or boolean arrays."
                )
        if sum(isinstance(part, int | slice) for part in parts) > value.ndim:
            raise IndexError("Too many indices for array.")
        result = Traced(self, viewed(value.node, parts))
        value._shared = result._shared = True
        return result

    def reduce(
        self, name: str, a: Traced, axis: Any = None, dtype: Any = None, out: Any = None,
        keepdims: bool = False,
    ) -> Traced:  # fmt: skip
        if keepdims:
            raise NotImplementedError(
                f"cupy.{name} does not support `keepdims` in fusion yet; index the result with None"
            )
        if a.node.is_number:
            raise NotImplementedError("Reduction for scalar arguments is not supported.")
        result = Traced(self, reduced(name, a.node, axis, dtype))
        if out is None:
            return result
        self.store(out, result)
        return out


def fuse(*args: Any, **options: Any) -> Any:
    """Decorate a function whose operations run as one kernel: `@fuse`,
    `@fuse(kernel_name="name")`.

        @cupy.fuse
        def squared_distance(x, y):
            return (x - y) * (x - y)
    """
    name = options.pop("kernel_name", None)
    if options:
        raise TypeError(f"fuse: unexpected arguments {sorted(options)}")
    if len(args) == 1 and callable(args[0]):
        return Fusion(args[0], name)
    if args:
        name = args[0]
    return lambda function: Fusion(function, name)


__all__ = ["Fusion", "fresh", "fuse"]
