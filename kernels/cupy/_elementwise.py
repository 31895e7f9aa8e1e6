"""`cupy.ElementwiseKernel` and `cupy.ReductionKernel`: kernels from expressions in CUDA C.

The expressions become a `__global__` function (`_expressions`), which the compiler of `_raw` takes,
once for each set of types and steps. How a call's arrays are laid out is worked out once for each
set of shapes and strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernels import host
from kernels.host.arguments import ByValue
from kernels.support import launches

from . import _raw
from ._array import SCALARS, fresh, ndarray, operand
from ._expressions import (
    TYPES,
    Described,
    Parameter,
    c_type,
    collapsed,
    described_array,
    described_raw,
    elementwise,
    parse,
    raw_table,
    reduction,
)

_CHUNK = 16384  # elements of a thread, at least: less is not worth another one
_CHUNKS = 16  # threads, at most
_PLANS = 512  # layouts that a kernel remembers


class Types:
    """The types that letters stand for in a call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[str, np.dtype] = {}

    def see(self, parameter: Parameter, value: Any) -> None:
        """Note an array's type. Raises TypeError where it is not the parameter's."""
        if not isinstance(value, np.ndarray):
            return
        variable = len(parameter.type) == 1
        wanted = self.found.get(parameter.type) if variable else np.dtype(parameter.type)
        if wanted is None:
            self.found[parameter.type] = value.dtype
        elif wanted != value.dtype:
            also = f", but {parameter.type} is {wanted}" if variable else f", not {wanted}"
            raise TypeError(
                f"Type is mismatched. {self.name}: {parameter.name} is {value.dtype}{also}"
            )

    def of(self, parameter: Parameter, value: Any) -> np.dtype:
        """The type of a parameter. A number decides only where no array does."""
        if len(parameter.type) > 1:
            return np.dtype(parameter.type)
        if parameter.type not in self.found:
            if value is None:
                raise TypeError(
                    f"{self.name}: the type {parameter.type} of {parameter.name} is not known: no"
                    " input has it; pass the output, or write its type"
                )
            self.found[parameter.type] = np.asarray(value).dtype
        return self.found[parameter.type]

    def aliases(self) -> str:
        return "".join(f"typedef {c_type(t)} {name};\n" for name, t in self.found.items())


class Plan(NamedTuple):
    """What does not change between calls of the same types, shapes and strides."""

    launch: Callable | None  # of the kernel's arguments; None: there is nothing to compute
    dtypes: list[np.dtype]
    shape: tuple[int, ...]  # of the outputs
    tables: list[Any]  # in the order of the parameters, then the launch's own


class _Kernel:
    """What the two kinds of kernels share."""

    def __init__(self, in_params: str, out_params: str, name: str, options: Any) -> None:
        self.in_params, self.out_params = tuple(parse(in_params)), tuple(parse(out_params))
        self.name, self.options = name, tuple(options)
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.nargs = self.nin + self.nout
        self.params = (*self.in_params, *self.out_params)
        self._kernels: dict[Any, Any] = {}
        self._plans: dict[Any, Plan] = {}
        self.cached_codes: dict[Any, str] = {}  # the sources so far, by types and layouts
        # Only what is indexed in the expression can be indexed wrongly.
        self._checked = any(p.raw for p in self.params)
        if not name.isidentifier():
            raise ValueError(f"Invalid kernel name: {name!r}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def cached_code(self) -> str:
        """The one source so far. Raises RuntimeError where there are several, or none."""
        if len(self.cached_codes) != 1:
            raise RuntimeError(f"{self.name} has {len(self.cached_codes)} sources: cached_codes")
        return next(iter(self.cached_codes.values()))

    def _split(self, args: tuple, out: Any = None) -> tuple[list[Any], list[Any]]:
        """(the inputs as NumPy's arrays and numbers, the outputs that are given)."""
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or"
                f" {self.nargs} (with outputs), but given {len(args)}."
            )
        outs = args[self.nin :]
        if out is not None:
            outs = out if isinstance(out, tuple) else (out,)
        for one in outs:
            if not isinstance(one, ndarray):
                raise TypeError(f"{self.name}: an output must be a cupy.ndarray, not {type(one)}")
        values = [arg._array if type(arg) is ndarray else operand(arg) for arg in args[: self.nin]]
        for parameter, value in zip(self.in_params, values):
            if parameter.raw and not isinstance(value, np.ndarray):
                raise TypeError(
                    f"{self.name}: the raw argument {parameter.name} must be a cupy.ndarray, not a"
                    " number"
                )
        return values, list(outs)

    def _typed(self, values: list[Any], outs: list[np.ndarray]) -> tuple[Types, list[np.dtype]]:
        """The types of the letters, and of each parameter."""
        types = Types(self.name)
        given = [*values, *outs]
        for parameter, value in zip(self.params, given):
            types.see(parameter, value)
        given += [None] * (self.nargs - len(given))
        return types, [types.of(p, v) for p, v in zip(self.params, given)]

    def _described(
        self, given: list[Any], dtypes: list[np.dtype], steps: list[int]
    ) -> tuple[list[Described], list[Any]]:
        """How the kernel sees each parameter, and the table of each raw one (None for others)."""
        described: list[Described] = []
        tables: list[Any] = []
        rest = iter(steps)
        for number, (p, dtype, value) in enumerate(zip(self.params, dtypes, given)):
            output = number >= self.nin
            tables.append(None)
            if not isinstance(value, np.ndarray):
                described.append(Described(p, dtype, "scalar"))
            elif p.raw:
                described.append(described_raw(p, value, output))
                tables[-1] = fresh(np.array(raw_table(value), np.int64))
            else:
                described.append(described_array(p, dtype, next(rest), output))
        return described, tables

    def _plan(self, key: tuple, make: Callable[[], Plan]) -> Plan:
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            found = self._plans[key] = make()
        return found

    def _kernel(self, key: tuple, source: Callable[[], str]) -> Any:
        """The compiled kernel whose source source() writes."""
        kernel = self._kernels.get(key)
        if kernel is None:
            code = self.cached_codes[key] = source()
            kernel = self._kernels[key] = _compiled(code, self.name, self.options, self._checked)
        return kernel


def _compiled(code: str, name: str, options: tuple, checked: bool) -> Any:
    """A kernel called as f(grid, block, args). Raises CompileException."""
    module = _raw.RawModule(code=code, options=options)
    if _raw.compile_module is _raw._on_host and not checked:
        module._module = host.raw_module(code, options, debug=False)
    kernel = module.get_function(name).kernel
    module._compiled(lambda _: kernel.compile())
    return kernel


def _chunked() -> bool:
    """Whether threads compute ranges of elements: on the CPU, and where nobody watches accesses."""
    return _raw.compile_module is _raw._on_host and launches.watcher is None


def _layout(value: Any) -> Any:
    """What a plan depends on."""
    return (value.dtype, value.shape, value.strides) if isinstance(value, np.ndarray) else None


def _window(array: np.ndarray) -> np.ndarray:
    """The memory of an array from its lowest address on, for a kernel that knows its strides."""
    if array.flags.c_contiguous:
        return array
    if array.flags.f_contiguous:
        return array.T
    count = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides)) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (count if array.size else 0,), (array.itemsize,))


def _forward(array: np.ndarray) -> np.ndarray:
    """The array itself, or a copy where its first element is not at its lowest address."""
    return array if min(array.strides, default=0) >= 0 else array.copy()


def _store(arrays: list[ndarray], computed: list[np.ndarray]) -> None:
    """Copy what was computed beside an array into it."""
    for array, values in zip(arrays, computed):
        if values is not array._array:
            array._array[...] = values


class ElementwiseKernel(_Kernel):
    """An element-wise kernel: ElementwiseKernel("T x, T y", "T z", "z = x * y", "product").

    `raw` parameters are indexed in the expression, `i` is the element's index, `_ind.get()` its
    indices, `n` the number of elements, which `size=` gives where all parameters are raw. Raises
    TypeError for arrays whose types do not fit.
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        loop_prep: str = "",
        after_loop: str = "",
        options: Any = (),
        **ignored: Any,
    ) -> None:
        super().__init__(in_params, out_params, name, options)
        self.operation, self.preamble, self.no_return = operation, preamble, no_return
        self.return_tuple, self.loop_prep, self.after_loop = return_tuple, loop_prep, after_loop
        self.reduce_dims = reduce_dims

    def __call__(
        self, *args: Any, size: int | None = None, block_size: int = 128, stream: Any = None
    ) -> Any:
        """Compute; the outputs are new arrays unless they are passed after the inputs."""
        values, outs = self._split(args)
        plain = [_forward(one._array) for one in outs]
        values = [_forward(v) if isinstance(v, np.ndarray) else v for v in values]
        chunked = _chunked()
        layouts = tuple(map(_layout, (*values, *plain)))
        numbers = tuple(type(v) for v, known in zip(values, layouts) if known is None)
        plan = self._plan(
            (layouts, numbers, size, chunked), lambda: self._planned(values, plain, size, chunked)
        )
        if not outs:
            outs = [fresh(np.empty(plan.shape, t)) for t in plan.dtypes[self.nin :]]
            plain = [one._array for one in outs]
        if plan.launch is not None:
            plan.launch(_arguments(plan, [*values, *plain]))
        written = [arg for p, arg in zip(self.in_params, args) if p.mutable]
        computed = [value for p, value in zip(self.in_params, values) if p.mutable]
        _store([*written, *outs], [*computed, *plain])
        if self.no_return:
            return None
        return tuple(outs) if self.nout != 1 or self.return_tuple else outs[0]

    def _planned(
        self, values: list[Any], outs: list[np.ndarray], size: int | None, chunked: bool
    ) -> Plan:
        types, dtypes = self._typed(values, outs)
        shape = self._shape(values, outs, size)
        new = [np.empty(shape, t) for t in dtypes[self.nin + len(outs) :]]
        given = [*values, *outs, *new]
        indexed = [
            np.broadcast_to(v, shape)
            for p, v in zip(self.params, given)
            if isinstance(v, np.ndarray) and not p.raw
        ]
        extents, steps = collapsed(shape, [v.strides for v in indexed])
        described, tables = self._described(given, dtypes, [s[-1] for s in steps])
        loop = extents if self.reduce_dims else list(shape)
        count = int(np.prod(shape, dtype=int))
        chunk = max(_CHUNK, -(-count // _CHUNKS))
        table = [count, extents[-1], chunk, len(extents) - 1, *extents[:-1]]
        for one in steps:
            table += one
        tables.append(fresh(np.array([*table, *loop], np.int64)))
        if not count:
            return Plan(None, dtypes, shape, tables)
        key = (tuple(d.key for d in described), len(loop), chunked, tuple(types.found.items()))
        kernel = self._kernel(key, lambda: self.source(types, described, len(loop), chunked))
        grid, block = (-(-count // chunk), 1) if chunked else (min(-(-count // 128), 65535), 128)
        return Plan(_launcher(kernel, grid, block), dtypes, shape, tables)

    def _shape(
        self, values: list[Any], outs: list[np.ndarray], size: int | None
    ) -> tuple[int, ...]:
        shapes = [
            v.shape
            for p, v in zip(self.params, (*values, *outs))
            if isinstance(v, np.ndarray) and not p.raw
        ]
        if size is not None:
            if shapes:
                raise ValueError(
                    "Specified 'size' can be used only if all of the ndarray are 'raw'."
                )
            return (size,)
        if not shapes:
            raise ValueError("Loop size is undecided.")
        shape = np.broadcast_shapes(*shapes)
        for p, out in zip(self.out_params, outs):
            if not p.raw and out.shape != shape:
                raise ValueError(
                    f"Out shape is mismatched: {self.name}: {p.name} is {out.shape}, the loop"
                    f" {shape}"
                )
        return shape

    def source(self, types: Types, described: list, dimensions: int, chunked: bool = True) -> str:
        """The CUDA C for these types and steps."""
        return elementwise(
            self.name, described, self.operation, types.aliases(), self.preamble, self.loop_prep,
            self.after_loop, dimensions, chunked,
        )  # fmt: skip


def _launcher(kernel: Any, grid: int, block: int) -> Callable:
    return lambda args: kernel((grid,), (block,), args)


def _arguments(plan: Plan, given: list[Any]) -> tuple[Any, ...]:
    """A launch's arguments: memory and tables of arrays, typed numbers."""
    args: list[Any] = []
    for value, dtype, table in zip(given, plan.dtypes, plan.tables):
        if not isinstance(value, np.ndarray):
            args.append(dtype.type(value) if type(value) in SCALARS else value.astype(dtype))
            continue
        args.append(_window(value))
        if table is not None:
            args.append(_by_value(table))
    args.append(_by_value(plan.tables[-1]))
    return tuple(args)


def _by_value(table: ndarray) -> np.ndarray:
    """A table as an argument: whoever watches sees no array of the program's in it."""
    return table._array if launches.watcher is None else table._array.view(ByValue)


class ReductionKernel(_Kernel):
    """A reduction: ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm").

    `map_expr` of each element is combined by `reduce_expr` of a and b, beginning with `identity`;
    `post_map_expr` stores `a`. Elements are combined in 512 interleaved parts, as by a block.
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Any = (),
    ) -> None:
        super().__init__(in_params, out_params, name, options)
        self.map_expr, self.reduce_expr, self.post_map_expr = map_expr, reduce_expr, post_map_expr
        self.identity = "" if identity is None else str(identity)
        self.reduce_type, self.preamble = reduce_type, preamble
        if not self.nout:
            raise ValueError("Output argument is required.")

    def __call__(
        self, *args: Any, out: Any = None, axis: Any = None, keepdims: bool = False,
        stream: Any = None,
    ) -> Any:  # fmt: skip
        """Reduce along `axis` (default: all)."""
        values, outs = self._split(args, out)
        values = [_forward(v) if isinstance(v, np.ndarray) else v for v in values]
        arrays = [one._array for one in outs]
        axis = tuple(axis) if isinstance(axis, list) else axis
        layouts = tuple(map(_layout, (*values, *arrays)))
        numbers = tuple(type(v) for v, known in zip(values, layouts) if known is None)
        plan = self._plan(
            (layouts, numbers, axis, keepdims),
            lambda: self._planned(values, arrays, axis, keepdims),
        )
        if not outs:
            outs = [fresh(np.empty(plan.shape, t)) for t in plan.dtypes[self.nin :]]
        plain = [one._array if one._array.flags.c_contiguous else one._array.copy() for one in outs]
        if plan.launch is not None:
            plan.launch(_arguments(plan, [*values, *plain]))
        _store(outs, plain)
        return outs[0] if self.nout == 1 else tuple(outs)

    def _planned(
        self, values: list[Any], outs: list[np.ndarray], axis: Any, keepdims: bool
    ) -> Plan:
        types, dtypes = self._typed(values, outs)
        looped = [
            v for p, v in zip(self.in_params, values) if isinstance(v, np.ndarray) and not p.raw
        ]
        if not looped:
            raise ValueError("Loop size is undecided.")
        shape = np.broadcast_shapes(*(v.shape for v in looped))
        axes, kept = _axes(self.name, axis, len(shape))
        final = tuple(shape[a] for a in kept)
        result = tuple(1 if a in axes else n for a, n in enumerate(shape)) if keepdims else final
        for p, out in zip(self.out_params, outs):
            if out.shape != result:
                raise ValueError(
                    f"Output shape mismatch: {self.name}: {p.name} is {out.shape}, the result"
                    f" {result}"
                )
        elements = int(np.prod([shape[a] for a in axes], dtype=int))
        if not elements and not self.identity:
            raise ValueError("zero-size array to reduction operation without identity")
        strides = [np.broadcast_to(v, shape).strides for v in looped]
        outer, outer_steps = collapsed(final, [tuple(s[a] for a in kept) for s in strides])
        inner, inner_steps = collapsed(
            tuple(shape[a] for a in axes), [tuple(s[a] for a in axes) for s in strides]
        )
        described, tables = self._described(values, dtypes, [s[-1] for s in inner_steps])
        results = int(np.prod(final, dtype=int))
        table = [results, elements, len(outer), len(inner) - 1, *outer, *inner]
        for one, other in zip(outer_steps, inner_steps):
            table += [*one, *other]
        tables += [None] * self.nout
        tables.append(fresh(np.array(table, np.int64)))
        if not results:
            return Plan(None, dtypes, result, tables)
        key = (tuple(d.key for d in described), tuple(dtypes), tuple(types.found.items()))
        kernel = self._kernel(key, lambda: self.source(types, described, dtypes))
        grid, block = (min(results, 64), 1) if _chunked() else (-(-results // 128), 128)
        return Plan(_launcher(kernel, grid, block), dtypes, result, tables)

    def source(self, types: Types, described: list, dtypes: list[np.dtype]) -> str:
        """The CUDA C for these types and steps."""
        outputs = [
            Described(p, t, "1", 0, True) for p, t in zip(self.out_params, dtypes[self.nin :])
        ]
        held = self.reduce_type or c_type(dtypes[self.nin])
        return reduction(
            self.name, described, outputs, (self.map_expr, self.reduce_expr, self.post_map_expr),
            TYPES.get(held, held), self.identity, types.aliases(), self.preamble,
        )  # fmt: skip


def _axes(name: str, axis: Any, ndim: int) -> tuple[tuple[int, ...], list[int]]:
    """(the axes that are reduced, those that are kept). Raises AxisError."""
    given = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for one in given:
        if not -ndim <= one < ndim:
            raise np.exceptions.AxisError(one, ndim, name)
    axes = tuple(sorted(one % ndim for one in given))
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: duplicate value in 'axis': {axis}")
    return axes, [a for a in range(ndim) if a not in axes]
