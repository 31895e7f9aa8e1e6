"""The CUDA C that `ElementwiseKernel` and `ReductionKernel` become: parameters, types, loops.

A launch has a table of numbers, `_m`: how many elements there are, how far the loops go and the
strides of each array. The innermost dimension of an array has a step of one element ("1"), of none
("0", broadcast) or of any number of bytes ("s"): each combination is compiled by itself, so that
the compiler can make vectors of the loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
    "uint64": "unsigned long long", "float16": "float16", "float32": "float", "float64": "double",
    "complex64": "complex<float>", "complex128": "complex<double>", "bfloat16": "__nv_bfloat16",
}  # fmt: skip
_HEADERS = (
    (r"float16|__half|\bhalf\b", "#include <cuda_fp16.h>\ntypedef __half float16;\n"),
    (r"__nv_bfloat16", "#include <cuda_bf16.h>\n"),
    (r"\bcomplex\b|\bthrust::", "#include <cupy/complex.cuh>\n"),
)
_RAW = r"""
template <typename T, int D, bool contiguous> struct Raw {
    T* data; ptrdiff count, extent[D < 1 ? 1 : D], step[D < 1 ? 1 : D];
    __device__ Raw(T* first, const ptrdiff* m) : data(first), count(m[0]) {
        for (int d = 0; d < D; d++) { extent[d] = m[1 + d]; step[d] = m[1 + D + d]; }
    }
    __device__ ptrdiff size() const { return count; }
    __device__ const ptrdiff* shape() const { return extent; }
    __device__ const ptrdiff* strides() const { return step; }
    __device__ T& operator[](ptrdiff i) const {
        if (contiguous) return data[i];
        ptrdiff offset = 0;
        for (int d = D - 1; d >= 0; d--) { offset += i % extent[d] * step[d]; i /= extent[d]; }
        return *(T*)((char*)data + offset);
    }
    template <typename I> __device__ T& operator[](const I* index) const {
        ptrdiff offset = 0;
        for (int d = 0; d < D; d++) offset += index[d] * step[d];
        return *(T*)((char*)data + offset);
    }
};
"""
_INDEXER = r"""
template <int D> struct Indexer {
    ptrdiff count, extent[D < 1 ? 1 : D], index[D < 1 ? 1 : D];
    __device__ Indexer(ptrdiff n, const ptrdiff* m) : count(n) {
        for (int d = 0; d < D; d++) extent[d] = m[d];
    }
    __device__ ptrdiff size() const { return count; }
    __device__ const ptrdiff* get() const { return index; }
    __device__ void set(ptrdiff i) {
        for (int d = D - 1; d >= 0; d--) { index[d] = i % extent[d]; i /= extent[d]; }
    }
};
"""
_OFFSET = r"""
__device__ inline ptrdiff _offset(ptrdiff row, const ptrdiff* extent, const ptrdiff* step, int D) {
    ptrdiff offset = 0;
    for (int d = D - 1; d >= 0; d--) { offset += row % extent[d] * step[d]; row /= extent[d]; }
    return offset;
}
"""


class Parameter(NamedTuple):
    """A parameter of a kernel: its type as written ("T", "float32"), its name, its modifiers."""

    type: str
    name: str
    raw: bool
    mutable: bool = False


class Described(NamedTuple):
    """A parameter in a call: its dtype and its kind, "scalar", "raw", "flat" (raw, and its elements
    lie one after the other) or the step of an array: "1", "0", "s"."""

    parameter: Parameter
    dtype: np.dtype
    kind: str
    ndim: int = 0
    output: bool = False

    @property
    def key(self) -> tuple:
        return self.dtype.char, self.kind, self.ndim


def parse(text: str) -> list[Parameter]:
    """The parameters of "T x, raw float32 y". Raises ValueError for what is none."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        words = part.split()
        raw, mutable = "raw" in words, "_non_const" in words
        words = [w for w in words if w not in ("raw", "const", "__restrict__", "_non_const")]
        if len(words) != 2 or not words[1].isidentifier():
            raise ValueError(f"Syntax error: {part}; expected a type and a name")
        if words[1] in ("n", "i") or words[1].startswith("_"):
            raise ValueError(f"Can't use {words[1]!r} as a parameter")
        found.append(Parameter(words[0], words[1], raw, mutable))
    return found


def c_type(dtype: np.dtype) -> str:
    """The type of CUDA C for a dtype. Raises TypeError where there is none."""
    if dtype.name not in TYPES:
        raise TypeError(f"kernels from expressions have no type {dtype} on the CPU")
    return TYPES[dtype.name]


def _head(text: str, aliases: str, preamble: str) -> str:
    """What stands before a kernel: the headers and types that the text uses."""
    everything = text + aliases + preamble
    parts = [header for pattern, header in _HEADERS if re.search(pattern, everything)]
    parts.append("typedef long long ptrdiff;\n")
    parts += [
        code
        for word, code in (("Raw<", _RAW), ("Indexer<", _INDEXER), (r"_offset\(", _OFFSET))
        if re.search(word, text)
    ]
    return "".join([*parts, aliases, preamble, "\n"])


def _signature(described: Sequence[Described]) -> tuple[str, str]:
    """The parameters of a kernel, and what makes the raw ones variables."""
    heads, code = [], ""
    for d in described:
        const = "" if d.output or d.parameter.mutable else "const "
        kind, name = const + c_type(d.dtype), d.parameter.name
        if d.kind == "scalar":
            heads.append(f"const {c_type(d.dtype)} {name}")
        elif d.kind in ("raw", "flat"):
            heads.append(f"{kind}* _p_{name}, const ptrdiff* _l_{name}")
            view = f"Raw<{kind}, {d.ndim}, {str(d.kind == 'flat').lower()}>"
            code += f"{view} {name}(_p_{name}, _l_{name});\n"
        else:
            heads.append(f"{kind}* _p_{name}")
    return ", ".join([*heads, "const ptrdiff* _m"]), code


def _loaded(d: Described, index: str, step: str) -> str:
    """The variable of a parameter at an element of the innermost dimension."""
    name = d.parameter.name
    kind = c_type(d.dtype) if d.output or d.parameter.mutable else f"const {c_type(d.dtype)}"
    at = {
        "1": f"_b_{name}[{index}]",
        "0": f"_b_{name}[0]",
        "s": f"*({kind}*)((char*)_b_{name} + {index} * {step})",
    }[d.kind]
    return f"{kind}{'' if kind.startswith('const') else '&'} {name} = {at};\n"


def _begin(d: Described, offset: str) -> str:
    """The place of a row of an array."""
    const = "" if d.output or d.parameter.mutable else "const "
    kind, name = f"{const}{c_type(d.dtype)}", d.parameter.name
    return f"{kind}* _b_{name} = ({kind}*)((char*)_p_{name} + {offset});\n"


def arrays(described: Sequence[Described]) -> list[Described]:
    """Those that are indexed by the element."""
    return [d for d in described if d.kind in "10s"]


# --- element by element: _m = n, the row's length, the chunk's, R, R extents, then for each array
# R strides of rows and the step in a row; the indexer's extents


def elementwise(
    name: str, described: Sequence[Described], operation: str, aliases: str, preamble: str,
    loop_prep: str, after_loop: str, dimensions: int, chunked: bool,
) -> str:  # fmt: skip
    """The source of an elementwise kernel. `chunked`: a thread computes a range of elements, not
    every 128th, which is what a CPU wants."""
    heads, raws = _signature(described)
    indexed = "_ind" in operation + loop_prep + after_loop
    rows = loads = prepared = ""
    for number, d in enumerate(arrays(described)):
        steps = f"_m + 4 + _R + {number} * (_R + 1)"
        rows += _begin(d, f"_offset(_row, _m + 4, {steps}, _R)")
        if d.kind == "s":
            prepared += f"const ptrdiff _s_{d.parameter.name} = ({steps})[_R];\n"
        if d.kind == "0" and not (d.output or d.parameter.mutable):
            rows += _loaded(d, "_j", "")
        else:
            loads += _loaded(d, "_j", f"_s_{d.parameter.name}")
    indexer = f"Indexer<{dimensions}> _ind(n, _m + 4 + _R + {len(arrays(described))} * (_R + 1));\n"
    body = f"{'_ind.set(i);' if indexed else ''}\n{loads}{operation};\n"
    if chunked:
        loop = f"""ptrdiff _first = blockIdx.x * _m[2];
const ptrdiff _stop = _first + _m[2] < n ? _first + _m[2] : n;
while (_first < _stop) {{
const ptrdiff _row = _first / _len, _at = _first - _row * _len;
const ptrdiff _last = _len - _at < _stop - _first ? _len : _at + _stop - _first;
{rows}#pragma GCC ivdep
for (ptrdiff _j = _at; _j < _last; _j++) {{
const ptrdiff i = _first - _at + _j;
{body}}}
_first += _last - _at;
}}
"""
    else:
        loop = f"""const ptrdiff _total = (ptrdiff)blockDim.x * gridDim.x;
for (ptrdiff i = (ptrdiff)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += _total) {{
const ptrdiff _row = i / _len, _j = i - _row * _len;
{rows}{body}}}
"""
    text = (
        f'extern "C" __global__ void {name}({heads}) {{\n'
        f"const ptrdiff n = _m[0], _len = _m[1]; const int _R = _m[3];\n"
        f"{indexer if indexed else ''}{raws}{prepared}{loop_prep};\n{loop}{after_loop};\n}}\n"
    )
    return _head(text, aliases, preamble) + text


# --- reductions: _m = results, elements, K, R, K extents of what is kept, R + 1 extents of what is
# reduced, then for each array K, R and 1 strides

PARTS = 512  # partial results, as of a block's threads


def reduction(
    name: str, described: Sequence[Described], outputs: Sequence[Described], expressions: tuple,
    held: str, identity: str, aliases: str, preamble: str,
) -> str:  # fmt: skip
    """The source of a reduction: `expressions` are what maps, combines and stores."""
    mapped, combined, stored = expressions
    heads, raws = _signature([*described, *outputs])
    begins = rows = loads = prepared = ""
    for number, d in enumerate(arrays(described)):
        steps = f"_m + 4 + _K + _R + 1 + {number} * (_K + _R + 1)"
        name_ = d.parameter.name
        begins += f"const ptrdiff _k_{name_} = _offset(i, _m + 4, {steps}, _K);\n"
        rows += _begin(d, f"_k_{name_} + _offset(_row, _m + 4 + _K, {steps} + _K, _R)")
        if d.kind == "s":
            prepared += f"const ptrdiff _s_{name_} = ({steps})[_K + _R];\n"
        loads += _loaded(d, "_j", f"_s_{name_}")
    stores = "".join(
        f"{c_type(o.dtype)}& {o.parameter.name} = _p_{o.parameter.name}[i];\n" for o in outputs
    )
    begin = f"_held({identity})" if identity else "_held()"
    text = f"""typedef {held} _held;
typedef {held} _type_reduce;
__device__ inline _held _reduce(_held a, _held b) {{ return {combined}; }}
extern "C" __global__ void {name}({heads}) {{
const int _K = _m[2], _R = _m[3];
const ptrdiff _n = _m[1], _in_size = _n, _out_size = _m[0], _len = _m[4 + _K + _R];
{raws}{prepared}
for (ptrdiff i = (ptrdiff)blockIdx.x * blockDim.x + threadIdx.x; i < _out_size;
     i += (ptrdiff)blockDim.x * gridDim.x) {{
{begins}
const ptrdiff _parts = _n < {PARTS} ? _n : {PARTS};
_held _s[{PARTS}];
for (ptrdiff _t = 0; _t < _parts; _t++) _s[_t] = {begin};
ptrdiff _done = 0;
for (ptrdiff _row = 0; _done < _n; _row++) {{
{rows}
for (ptrdiff _from = 0; _from < _len;) {{
const ptrdiff _t = _done % {PARTS};
const ptrdiff _more = {PARTS} - _t < _len - _from ? {PARTS} - _t : _len - _from;
{
        ""
        if identity
        else f'''if (_done < {PARTS}) {{
#pragma GCC ivdep
for (ptrdiff _u = 0; _u < _more; _u++) {{
const ptrdiff _j = _from + _u;
{loads}_s[_t + _u] = {mapped};
}}
}} else'''
    }
#pragma GCC ivdep
for (ptrdiff _u = 0; _u < _more; _u++) {{
const ptrdiff _j = _from + _u;
{loads}const _held a = {mapped};
_s[_t + _u] = _reduce(_s[_t + _u], a);
}}
_from += _more; _done += _more;
}}
}}
_held _a = _n ? _s[0] : {begin};
for (ptrdiff _t = 1; _t < _parts; _t++) _a = _reduce(_a, _s[_t]);
{stores}const _held a = _a;
{stored};
}}
}}
"""
    return _head(text, aliases, preamble) + text


# --- the shapes of loops

NONE = -1  # the step of what has one element


def collapsed(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[list[int], list[list[int]]]:
    """The extents and strides of a loop over `shape` with as few dimensions as there can be: those
    of one element are dropped, those that follow each other in all arrays are merged."""
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        last = [s[-1] for s in steps] if extents else []
        if extents and all(b == s[axis] * extent for b, s in zip(last, strides)):
            extents[-1] *= extent
            for kept, s in zip(steps, strides):
                kept[-1] = s[axis]
        else:
            extents.append(extent)
            for kept, s in zip(steps, strides):
                kept.append(s[axis])
    if not extents:
        return [1], [[NONE] for _ in strides]
    return extents, steps


def step_kind(step: int, itemsize: int) -> str:
    """The kind of an array whose innermost dimension has this step in bytes."""
    return "1" if step in (itemsize, NONE) else "0" if step == 0 else "s"


def described_array(p: Parameter, dtype: np.dtype, step: int, output: bool = False) -> Described:
    return Described(p, dtype, step_kind(step, dtype.itemsize), 0, output)


def described_raw(p: Parameter, value: np.ndarray, output: bool = False) -> Described:
    kind = "flat" if value.flags.c_contiguous else "raw"
    return Described(p, value.dtype, kind, value.ndim, output)


def raw_table(value: np.ndarray) -> list[int]:
    """The table of a raw array: count, shape, strides."""
    return [value.size, *value.shape, *value.strides]
