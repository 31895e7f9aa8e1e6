"""`cupy.ElementwiseKernel` and `cupy.ReductionKernel`: kernels from expressions in CUDA C.

The expressions become a `__global__` function (`source`), which `RawModule` compiles, once for each
set of types and layouts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._array import SCALARS, fresh, ndarray, operand
from ._raw import RawModule

_TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
    "uint64": "unsigned long long", "float16": "__half", "float32": "float", "float64": "double",
}  # fmt: skip
_PREAMBLE = r"""
#include <cuda_fp16.h>
typedef long long ptrdiff;
template <typename T, int D> struct Raw {
    T* data; ptrdiff count, extent[D < 1 ? 1 : D], step[D < 1 ? 1 : D];
    __device__ ptrdiff size() const { return count; }
    __device__ const ptrdiff* shape() const { return extent; }
    __device__ const ptrdiff* strides() const { return step; }
    __device__ ptrdiff at(ptrdiff i) const {
        ptrdiff offset = 0;
        for (int d = D - 1; d >= 0; d--) { offset += i % extent[d] * step[d]; i /= extent[d]; }
        return offset / (ptrdiff)sizeof(T);
    }
    __device__ T& operator[](ptrdiff i) const { return data[at(i)]; }
    __device__ T& operator[](const ptrdiff* index) const {
        ptrdiff offset = 0;
        for (int d = 0; d < D; d++) offset += index[d] * step[d];
        return data[offset / (ptrdiff)sizeof(T)];
    }
};
template <int D> struct Indexer {
    ptrdiff count, extent[D < 1 ? 1 : D], index[D < 1 ? 1 : D];
    __device__ ptrdiff size() const { return count; }
    __device__ const ptrdiff* get() const { return index; }
    __device__ void set(ptrdiff i) {
        for (int d = D - 1; d >= 0; d--) { index[d] = i % extent[d]; i /= extent[d]; }
    }
};
"""


class Parameter(NamedTuple):
    """A parameter of a kernel: its type as written ("T", "float32", "raw T"), its name."""

    type: str
    name: str
    raw: bool


def parse(text: str) -> list[Parameter]:
    """The parameters of "T x, raw float32 y". Raises ValueError for what is none."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        words = [word for word in part.split() if word != "const"]
        raw = words[0] == "raw"
        words = words[raw:]
        if words and words[0] in ("__restrict__", "_non_const"):
            words = words[1:]
        if len(words) != 2 or not words[1].isidentifier():
            raise ValueError(f"Syntax error: {part}; expected a type and a name")
        if words[1] in ("n", "i") or words[1].startswith("_"):
            raise ValueError(f"Can't use {words[1]!r} as a parameter")
        found.append(Parameter(words[0], words[1], raw))
    return found


def c_type(dtype: np.dtype) -> str:
    """The type of CUDA C for a dtype. Raises TypeError where there is none."""
    if dtype.name not in _TYPES:
        raise TypeError(f"kernels from expressions have no type {dtype} on the CPU")
    return _TYPES[dtype.name]


def is_variable(type_name: str) -> bool:
    """Whether a type is a letter that stands for one."""
    return len(type_name) == 1


class Types:
    """The types that letters stand for in a call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[str, np.dtype] = {}

    def see(self, parameter: Parameter, value: Any) -> np.dtype:
        """The type of a parameter given a value. Raises TypeError where letters disagree."""
        given = value.dtype if hasattr(value, "dtype") else None
        if not is_variable(parameter.type):
            return np.dtype(parameter.type)
        known = self.found.get(parameter.type)
        if known is None and given is not None:
            known = self.found[parameter.type] = given
        if given is not None and given != known:
            raise TypeError(
                f"Type is mismatched. {self.name}: {parameter.name} is {given}, but"
                f" {parameter.type} is {known}"
            )
        return known

    def default(self, parameter: Parameter, value: Any) -> np.dtype:
        """The type of a parameter that is a Python number, or an output."""
        if not is_variable(parameter.type):
            return np.dtype(parameter.type)
        if parameter.type not in self.found:
            if value is None:
                raise TypeError(f"{self.name}: the type {parameter.type} of an output is not known")
            self.found[parameter.type] = np.asarray(value).dtype
        return self.found[parameter.type]

    def aliases(self) -> str:
        return "".join(f"typedef {c_type(t)} {name};\n" for name, t in self.found.items())


def _values(name: str, parameters: list[Parameter], args: tuple) -> list[Any]:
    """The arguments: NumPy arrays and numbers."""
    values = [operand(arg) for arg in args]
    for parameter, value in zip(parameters, values):
        if parameter.raw and not isinstance(value, np.ndarray):
            raise TypeError(f"{name}: the raw argument {parameter.name} must be a cupy.ndarray")
    return values


class _Kernel:
    """What the two kinds of kernels share."""

    def __init__(self, in_params: str, out_params: str, name: str, options: Any) -> None:
        self.in_params, self.out_params = parse(in_params), parse(out_params)
        self.name, self.options = name, tuple(options)
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.nargs = self.nin + self.nout
        self._kernels: dict[Any, Any] = {}
        if not name.isidentifier():
            raise ValueError(f"Invalid kernel name: {name!r}")

    params = property(lambda self: (*self.in_params, *self.out_params))

    def _split(self, args: tuple, out: Any = None) -> tuple[tuple, tuple]:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name}: {self.nin} inputs, {self.nout} outputs"
                f" (optional), {len(args)} given"
            )
        outs = args[self.nin :] or (
            out if isinstance(out, tuple) else (out,) if out is not None else ()
        )
        for one in outs:
            if not isinstance(one, ndarray):
                raise TypeError(f"{self.name}: an output must be a cupy.ndarray, not {type(one)}")
        return args[: self.nin], outs

    def _types(self, ins: list[Any], outs: tuple) -> tuple[Types, list[np.dtype]]:
        """The types of the letters, and of each parameter."""
        types = Types(self.name)
        for parameter, value in zip(self.params, (*ins, *outs)):
            types.see(parameter, value)
        values = [*ins, *outs, *[None] * (self.nargs - len(ins) - len(outs))]
        return types, [types.default(p, v) for p, v in zip(self.params, values)]

    def _launch(self, key: Any, source: Any, count: int, args: list[Any]) -> None:
        """Compile the source that source() writes, once per key, and launch `count` threads."""
        kernel = self._kernels.get(key)
        if kernel is None:
            module = RawModule(code=source(), options=self.options)
            kernel = self._kernels[key] = module.get_function(self.name)
        if count:
            kernel(((count + 255) // 256,), (256,), tuple(args))


def _declare(
    p: Parameter, dtype: np.dtype, ndim: int, scalar: bool, output: bool
) -> tuple[str, str]:
    """The parameters of a kernel for one of an expression, and what makes it a variable."""
    kind = c_type(dtype) if scalar or output else f"const {c_type(dtype)}"
    if scalar:
        return f"{kind} {p.name}", ""
    arg, layout = f"{kind}* _p_{p.name}, ", f"const ptrdiff* _l_{p.name}"
    code = f"Raw<{kind}, {ndim}> _r_{p.name}; _r_{p.name}.data = _p_{p.name};"
    code += f" _r_{p.name}.count = _l_{p.name}[0];"
    code += f" for (int d = 0; d < {ndim}; d++) {{ _r_{p.name}.extent[d] = _l_{p.name}[1 + d];"
    code += f" _r_{p.name}.step[d] = _l_{p.name}[{1 + ndim} + d]; }}\n"
    if p.raw:
        code += f"auto& {p.name} = _r_{p.name};\n"
    return arg + layout, code


def _memory(value: np.ndarray) -> tuple[ndarray, ndarray]:
    """The memory of an array, from its lowest address, and its layout: count, shape, strides."""
    if any(stride < 0 for stride in value.strides):  # a kernel's pointer is the lowest address
        value = np.ascontiguousarray(value)
    layout = np.array([value.size, *value.shape, *value.strides], np.int64)
    made = ndarray.__new__(ndarray)
    made._array, made._pool, made.base = value, None, None
    return made, fresh(layout)


def _packed(
    params: list[Parameter], dtypes: list, values: list[Any], shape: tuple, order: Any = None
) -> tuple[list[Any], list[tuple]]:
    """A kernel's arguments, and (parameter, dtype, dimensions, is a scalar) of each.

    What is not raw is broadcast to `shape`, its dimensions in `order`.
    """
    args, described = [], []
    for p, dtype, value in zip(params, dtypes, values):
        scalar = type(value) in SCALARS or isinstance(value, np.generic)
        if scalar:
            args.append(dtype.type(value))
        else:
            if not p.raw:
                value = value if value.dtype == dtype else value.astype(dtype)
                value = np.broadcast_to(value, shape) if value.shape != shape else value
                value = value if order is None else value.transpose(order)
            args += _memory(value)
        described.append((p, dtype, 0 if scalar else value.ndim, scalar))
    return args, described


class ElementwiseKernel(_Kernel):
    """An element-wise kernel: ElementwiseKernel("T x, T y", "T z", "z = x * y", "product").

    `raw` parameters are indexed in the expression, `i` is the element's index, `_ind.get()` its
    indices, `n` the number of elements, which `size=` gives where all parameters are raw.
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

    def __call__(
        self, *args: Any, size: int | None = None, block_size: int = 128, **kw: Any
    ) -> Any:
        """Compute; the outputs are new arrays unless they are passed after the inputs."""
        ins, outs = self._split(args)
        values = _values(self.name, self.in_params, ins)
        types, dtypes = self._types(values, outs)
        shape = self._shape(values, outs, size)
        results = outs or tuple(fresh(np.empty(shape, dtype)) for dtype in dtypes[self.nin :])
        plain = [
            one._array if min(one.strides, default=0) >= 0 else one._array.copy() for one in results
        ]
        self._run(types, dtypes, [*values, *plain], shape)
        for one, computed in zip(results, plain):
            if computed is not one._array:
                one._array[...] = computed
        if self.no_return:
            return None
        return results if self.nout != 1 or self.return_tuple else results[0]

    def _shape(self, values: list[Any], outs: tuple, size: int | None) -> tuple[int, ...]:
        shapes = [
            v.shape
            for p, v in zip(self.params, (*values, *(o._array for o in outs)))
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
        return np.broadcast_shapes(*shapes)

    def _run(self, types: Types, dtypes: list, arrays: list[Any], shape: tuple) -> None:
        args, described = _packed(self.params, dtypes, arrays, shape)
        extent = fresh(np.array([int(np.prod(shape)), *shape], np.int64))
        key = (tuple((d.char, n, s) for _, d, n, s in described), len(shape))
        source = lambda: self.source(types, described, len(shape))  # noqa: E731
        self._launch(key, source, int(np.prod(shape)), [*args, extent])

    def source(self, types: Types, described: list, ndim: int) -> str:
        """The CUDA C for these types and dimensions."""
        heads, codes, before = [], [], ""
        outputs = {p.name for p in self.out_params}
        for p, dtype, dims, scalar in described:
            head, code = _declare(p, dtype, dims, scalar, p.name in outputs)
            heads.append(head)
            codes.append(code)
            if not scalar and not p.raw:
                before += f"auto& {p.name} = _r_{p.name}[i];\n"
        return (
            f"{_PREAMBLE}{types.aliases()}{self.preamble}\n"
            f'extern "C" __global__ void {self.name}('
            f"{', '.join(heads)}, const ptrdiff* _extent) {{\n"
            f"const ptrdiff n = _extent[0]; Indexer<{ndim}> _ind; _ind.count = n;\n"
            f"for (int d = 0; d < {ndim}; d++) _ind.extent[d] = _extent[1 + d];\n"
            f"{''.join(codes)}{self.loop_prep};\n"
            "ptrdiff i = (ptrdiff)blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"if (i < n) {{ _ind.set(i);\n{before}{self.operation};\n}}\n"
            f"{self.after_loop};\n}}\n"
        )


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
        ins, outs = self._split(args, out)
        values = _values(self.name, self.in_params, ins)
        types, dtypes = self._types(values, outs)
        shape = np.broadcast_shapes(
            *(v.shape for p, v in zip(self.in_params, values)
              if isinstance(v, np.ndarray) and not p.raw)
        )  # fmt: skip
        axes = tuple(range(len(shape))) if axis is None else axis
        axes = tuple(a % len(shape) for a in (axes if isinstance(axes, tuple) else (axes,)))
        kept = [a for a in range(len(shape)) if a not in axes]
        order = (*kept, *axes)
        final = tuple(shape[a] for a in kept)
        wide = tuple(1 if a in axes else shape[a] for a in range(len(shape)))
        if not outs:
            outs = (fresh(np.empty(wide if keepdims else final, dtypes[-1])),)
        elements = int(np.prod([shape[a] for a in axes]))
        if not elements and not self.identity:
            raise ValueError("zero-size array to reduction operation without identity")
        self._run(types, dtypes, values, outs[0], shape, order, int(np.prod(final)), elements)
        return outs[0]

    def _run(
        self, types: Types, dtypes: list, values: list[Any], out: ndarray, shape: tuple,
        order: tuple, results: int, elements: int,
    ) -> None:  # fmt: skip
        args, described = _packed(self.in_params, dtypes, values, shape, order)
        flat = np.ascontiguousarray(out._array).reshape(-1)
        extent = fresh(np.array([results, elements], np.int64))
        key = tuple((d.char, n, s) for _, d, n, s in described), dtypes[-1].char
        source = lambda: self.source(types, described, dtypes[-1])  # noqa: E731
        target = fresh(flat)
        self._launch(key, source, results, [*args, target, extent])
        out._array[...] = target._array.reshape(out.shape)

    def source(self, types: Types, described: list, result: np.dtype) -> str:
        """The CUDA C for these types and dimensions."""
        heads, codes, loads = [], [], ""
        for p, dtype, dims, scalar in described:
            head, code = _declare(p, dtype, dims, scalar, False)
            heads.append(head)
            codes.append(code)
            if not scalar and not p.raw:
                loads += f"auto& {p.name} = _r_{p.name}[_j];\n"
        (output,) = self.out_params
        kind = c_type(result)
        held = self.reduce_type or kind
        held = _TYPES.get(held, held)
        begin = f"{held}({self.identity})" if self.identity else f"{held}()"
        skip = "" if self.identity else "if (!_any) { _any = true; _s = a; } else "
        return (
            f"{_PREAMBLE}{types.aliases()}{self.preamble}\n"
            f"typedef {held} _held;\n"
            f"__device__ _held _reduce(_held a, _held b) {{ return {self.reduce_expr}; }}\n"
            f'extern "C" __global__ void {self.name}({", ".join(heads)}, {kind}* _out,'
            " const ptrdiff* _extent) {\n"
            f"{''.join(codes)}"
            "ptrdiff i = (ptrdiff)blockIdx.x * blockDim.x + threadIdx.x;\n"
            "if (i >= _extent[0]) return;\n"
            "const ptrdiff _n = _extent[1], _in_size = _n, _parts = _n < 512 ? _n : 512;\n"
            f"_held _a = {begin}; bool _first = {str(not self.identity).lower()};\n"
            "for (ptrdiff _part = 0; _part < _parts; _part++) {\n"
            f"_held _s = {begin}; bool _any = {str(bool(self.identity)).lower()};\n"
            "for (ptrdiff _k = _part; _k < _n; _k += 512) {\n"
            "const ptrdiff _j = i * _n + _k;\n"
            f"{loads}const _held a = {self.map_expr};\n{skip}_s = _reduce(_s, a);\n}}\n"
            "if (_first) { _first = false; _a = _s; } else _a = _reduce(_a, _s);\n}\n"
            f"{kind}& {output.name} = _out[i]; const _held a = _a;\n{self.post_map_expr};\n}}\n"
        )
