"""CuPy's ufuncs: NumPy's loops with CuPy's types (those of `index.txt`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from . import _trace
from ._array import SCALARS, fresh, ndarray, operand
from ._index import entries
from ._quiet import quietly

_WEAK = {bool: 0, int: 1, float: 2, complex: 3}  # Python's numbers, by kind
_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}


@cache
def dtype_of(char: str) -> np.dtype:
    if char == "E":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(char)


class ufunc:
    """An element-wise function of device arrays and numbers, with `out=`, `where=`, `dtype=` and
    `casting=`. A type that CuPy's table does not have raises TypeError."""

    def __init__(self, name: str, function: Callable, types: str, nin: int = 0) -> None:
        self.__name__, self._function = name, function
        self.name = f"cupy_{name}"
        self.types = types.split()
        ins, outs = self.types[0].split("->")
        self.nin, self.nout = nin or len(ins), len(outs)
        self.nargs = self.nin + self.nout
        self._plans: dict[Any, Callable] = {}
        self._results: dict[Any, str] = {}  # the types of the results of plans that are NumPy's
        self.__doc__ = f"{name}: element by element, as NumPy's, for the types {types}."

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    def __reduce__(self) -> str:
        return self.__name__

    def __call__(self, *args: Any, **options: Any) -> Any:
        if _trace.active and (history := _trace.recording()) is not None:
            found = history.ufunc(self, args, options)
            if found is not NotImplemented:
                return found
        if options or len(args) != self.nin:
            if len(options) == 1 and len(args) == self.nin and self.nout == 1:
                out = options.get("out")
                if type(out) is ndarray and self._into(out, args):
                    return out
            return self._general(args, **options)
        values, key = self._operands(args)
        result = quietly(self._plans.get(key) or self._planned(key), *values)
        return fresh(result) if type(result) is not tuple else tuple(map(fresh, result))

    def _operands(self, args: tuple) -> tuple[list[Any], tuple]:
        """The operands for NumPy, and their types: dtypes, and Python's for its numbers."""
        values, key = [], []
        for value in args:
            kind = type(value)
            if kind is ndarray:
                value = value._array
                kind = value.dtype
            elif kind not in SCALARS:
                value = operand(value)
                kind = getattr(value, "dtype", kind)
            values.append(value)
            key.append(kind)
        return values, tuple(key)

    def _planned(self, key: tuple) -> Callable:
        plan = self._plans[key] = self._plan(key)
        return plan

    def _into(self, out: ndarray, args: tuple) -> bool:
        """Compute straight into an array; False where its dtype is not the result's."""
        values, key = self._operands(args)
        plan = self._plans.get(key) or self._planned(key)
        if plan is not self._function or out._array.dtype.char != self._results.get(key):
            return False
        quietly(plan, *values, out=out._array)
        return True

    def in_place(self, target: ndarray, other: Any) -> ndarray:
        """target = self(target, other) in its memory: `target += other`."""
        values, key = self._operands((target, other))
        plan = self._plans.get(key) or self._planned(key)
        if plan is not self._function:
            return self._general((target, other), out=target)
        quietly(plan, *values, out=values[0])
        return target

    def _resolve(self, key: tuple) -> tuple[str, str]:
        """The types in and out for dtypes and Python's numbers."""
        for entry in self.types:
            ins, outs = entry.split("->")
            if all(map(_takes, ins, key)):
                return ins, outs
        raise self._wrong(key)

    def _wrong(self, key: tuple) -> TypeError:
        given = ", ".join(t.name if isinstance(t, np.dtype) else t.__name__ for t in key)
        return TypeError(f"Wrong type ({given}) of arguments for {self.name}")

    def _plan(self, key: tuple) -> Callable:
        """What computes the function for these types."""
        ins, outs = self._resolve(key)
        function = self._function
        special = _SPECIAL.get((self.__name__, ins))
        if special is not None:
            return special
        if any(isinstance(t, type) for t in key):  # Python's numbers: NumPy's rules are CuPy's
            return function
        wanted = [dtype_of(char) for char in outs]
        samples = [np.ones(1, t) for t in key]
        try:
            got = quietly(function, *samples)
            got = [r.dtype for r in (got if isinstance(got, tuple) else (got,))]
        except TypeError:  # NumPy has no loop for them
            got = []
        if got == wanted:
            self._results[key] = wanted[0].char
            return function
        dtypes = [dtype_of(char) for char in ins]

        def cast(*values: Any) -> Any:
            try:
                result = function(*(np.asarray(v).astype(t) for v, t in zip(values, dtypes)))
            except TypeError:
                raise self._wrong(key) from None
            if isinstance(result, tuple):
                return tuple(r.astype(t, copy=False) for r, t in zip(result, wanted))
            return result.astype(wanted[0], copy=False)

        return cast

    def _general(
        self,
        args: tuple,
        out: Any = None,
        where: Any = None,
        dtype: Any = None,
        casting: str = "same_kind",
    ) -> Any:
        """A call with options, or with outputs among the arguments."""
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(
                f"{self.__name__}() takes from {self.nin} to {self.nargs} positional arguments but"
                f" {len(args)} were given"
            )
        if len(args) > self.nin:
            if out is not None:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            out = args[self.nin :]
        outs = out if isinstance(out, tuple) else (out,)
        for one in outs:
            if one is not None and not isinstance(one, ndarray):
                raise TypeError(f"return arrays must be of cupy.ndarray type, not {type(one)}")
        values, key = self._operands(args[: self.nin])
        if dtype is not None:
            values = [np.asarray(value).astype(dtype) for value in values]
            key = tuple(value.dtype for value in values)
        plan = self._plans.get(key) or self._planned(key)
        result = quietly(plan, *values)
        results = result if isinstance(result, tuple) else (result,)
        given = []
        for one, target in zip(results, (*outs, *[None] * len(results))):
            given.append(self._store(one, target, where, casting))
        return given[0] if self.nout == 1 else tuple(given)

    def _store(self, result: Any, out: ndarray | None, where: Any, casting: str) -> ndarray:
        result = np.asarray(result)
        if out is None:
            if where is None:
                return fresh(result)
            out = fresh(np.empty(np.broadcast_shapes(result.shape, where.shape), result.dtype))
        if not np.can_cast(result.dtype, out.dtype, casting):
            raise TypeError(
                f"output (typecode '{result.dtype.char}') could not be coerced to provided output"
                f" parameter (typecode '{out.dtype.char}') according to the casting rule"
                f' "{casting}"'
            )
        if np.broadcast_shapes(result.shape, out.shape) != out.shape:
            raise ValueError(f"Out shape is mismatched: {out.shape} for a result {result.shape}")
        condition = True if where is None else operand(where)
        quietly(np.copyto, out._array, result, casting=casting, where=condition)
        return out

    # --- methods that CuPy has for some ufuncs

    def outer(self, A: Any, B: Any, **options: Any) -> Any:
        """The function of each element of A with each one of B."""
        first, second = (np.asarray(operand(x)) for x in (A, B))
        first = first.reshape(first.shape + (1,) * second.ndim)
        return self(fresh(first), fresh(second), **options)

    def reduce(
        self, array: ndarray, axis: Any = 0, dtype: Any = None, out: Any = None,
        keepdims: bool = False,
    ) -> ndarray:  # fmt: skip
        self._only("reduce", "add", "multiply")
        return self._method("reduce", array, out, axis=axis, dtype=dtype, keepdims=keepdims)

    def accumulate(
        self, array: ndarray, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> ndarray:
        self._only("accumulate", "add", "multiply")
        return self._method("accumulate", array, out, axis=axis, dtype=dtype)

    def reduceat(
        self, array: ndarray, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> ndarray:
        self._only("reduceat", "add")
        indices = indices._array if isinstance(indices, ndarray) else indices
        return self._method("reduceat", array, out, indices, axis=axis, dtype=dtype)

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        self._only("at", *"add subtract maximum minimum bitwise_and bitwise_or bitwise_xor".split())
        parts = indices if isinstance(indices, tuple) else (indices,)
        index = tuple(p._array if isinstance(p, ndarray) else p for p in parts)
        self._function.at(a._array, index, operand(b))

    def _only(self, method: str, *names: str) -> None:
        if self.__name__ not in names:
            raise NotImplementedError(f"`{self.name}.{method}` is not supported yet")

    def _method(self, name: str, array: Any, out: Any, *args: Any, **options: Any) -> ndarray:
        result = quietly(getattr(self._function, name), operand(array), *args, **options)
        return fresh(result) if out is None else self._store(result, out, None, "same_kind")


def _takes(char: str, given: Any) -> bool:
    """Whether an input type of CuPy's table takes a dtype or a kind of Python number."""
    dtype = dtype_of(char)
    if isinstance(given, np.dtype):
        return given == dtype or np.can_cast(given, dtype)
    return _WEAK[given] <= _RANK[dtype.kind]


#: by name and input types: where CuPy computes what NumPy refuses
_SPECIAL: dict[tuple[str, str], Callable] = {
    ("subtract", "??"): np.logical_xor,
    ("negative", "?"): np.logical_not,
    ("gcd", "??"): np.logical_or,
    ("lcm", "??"): np.logical_and,
    ("positive", "?"): lambda x: np.array(x),
    **{
        ("reciprocal", char): lambda x: np.where(x == 0, x, np.reciprocal(x))
        for char in "bBhHiIlLqQ"
    },
}


def _i0(x: Any) -> Any:
    return np.i0(x).astype(np.asarray(x).dtype) if np.asarray(x).dtype.kind == "f" else np.i0(x)


#: functions whose names differ from NumPy's ufuncs, or that are none in NumPy; its `fix` warns
_OTHERS = {"i0": _i0, "abs": np.absolute, "fix": np.trunc, "pow": np.power}


def make(name: str, module: str = "cupy") -> ufunc:
    """The ufunc `name` of CuPy's index."""
    function = _OTHERS.get(name) or getattr(np, name)
    return ufunc(name, function, entries(module)[name].text)
