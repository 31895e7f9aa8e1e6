"""The names a kernel uses (`threadIdx`, `shared.array`, `atomic.add`, ...) as objects.

The compiler recognises them by identity, so any spelling works (`from kernels.cuda import grid as
g`), and each has a `.name` such as "atomic.add". Used outside a kernel they raise
`KernelOnlyError`; inside the per-thread interpreter they act for real, through the thread object
that `entered` puts in place for the operating-system thread that runs it.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kernels.simt.devlib.bf16_names import second_name

WARP_SIZE = 32


class KernelOnlyError(NotImplementedError):
    """A name that only means something inside a kernel was used from host code."""


class Thread(Protocol):
    """What a running CUDA thread offers to the stubs (see `kernels.simt.interpreter`)."""

    def special(self, name: str) -> Any: ...

    def call(self, name: str, args: tuple, kwargs: dict) -> Any: ...


_active = threading.local()


@contextmanager
def entered(thread: Thread) -> Iterator[None]:
    """Within this context the stubs act for `thread`."""
    outer = getattr(_active, "thread", None)
    _active.thread = thread
    try:
        yield
    finally:
        _active.thread = outer


def active_thread() -> Thread | None:
    """The CUDA thread that the interpreter runs on this OS thread, or None in host code."""
    return getattr(_active, "thread", None)


def _thread(name: str) -> Thread:
    thread = getattr(_active, "thread", None)
    if thread is None:
        raise KernelOnlyError(
            f"cuda.{name} only works inside a kernel or device function;"
            " decorate the function with @cuda.jit and launch it as kernel[grid, block](...)"
        )
    return thread


class Stub:
    """A function that exists inside kernels only."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _thread(self.name).call(self.name, args, kwargs)

    def __repr__(self) -> str:
        return f"<cuda.{self.name}>"

    def __reduce__(self) -> tuple:
        return (by_name, (self.name,))  # identity survives pickling


class Dim3Stub(Stub):
    """`threadIdx` and its like: three int32 attributes."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"cuda.{self.name} is not a function; use cuda.{self.name}.x, .y or .z")

    @property
    def x(self) -> Any:
        return _thread(self.name).special(self.name)[0]

    @property
    def y(self) -> Any:
        return _thread(self.name).special(self.name)[1]

    @property
    def z(self) -> Any:
        return _thread(self.name).special(self.name)[2]


class ScalarStub(Stub):
    """`laneid` and `warpsize`: names that are numbers inside a kernel."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's scalars leave arithmetic with it to the methods below

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"cuda.{self.name} is a number, not a function; drop the parentheses")

    def value(self) -> Any:
        return _thread(self.name).special(self.name)

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    __index__ = __int__
    __hash__ = object.__hash__


def _forward(method: str, function: Any, swapped: bool) -> None:
    def direct(self: ScalarStub, other: Any) -> Any:
        return function(self.value(), other)

    def reflected(self: ScalarStub, other: Any) -> Any:
        return function(other, self.value())

    def compare(self: ScalarStub, other: Any) -> Any:
        if active_thread() is None:  # in host code a stub equals itself, as any object does
            return self is other if method == "__eq__" else self is not other
        return function(self.value(), other)

    chosen = reflected if swapped else direct
    setattr(ScalarStub, method, compare if method in ("__eq__", "__ne__") else chosen)


_ARITHMETIC = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift"
for _op in _ARITHMETIC.split():
    _name = _op.rstrip("_")
    _forward(f"__{_name}__", getattr(operator, _op), swapped=False)
    _forward(f"__r{_name}__", getattr(operator, _op), swapped=True)
for _op in ("lt", "le", "gt", "ge", "eq", "ne"):
    _forward(f"__{_op}__", getattr(operator, _op), swapped=False)
for _op in ("neg", "pos", "invert", "abs"):
    _unary = getattr(operator, _op)
    setattr(ScalarStub, f"__{_op}__", lambda self, _unary=_unary: _unary(self.value()))


class Namespace:
    """A dotted group of stubs: `cuda.atomic`, `cuda.shared`, ..."""

    def __init__(self, name: str, members: str) -> None:
        self.name = name
        for member in members.split():
            setattr(self, member, _register(Stub(f"{name}.{member}")))

    def __getattr__(self, member: str) -> Any:
        import difflib

        name = f"cuda.{self.__dict__.get('name', '?')}"
        near = difflib.get_close_matches(member, self.__dict__, 1) if member[0] != "_" else []
        hint = f"; did you mean {name}.{near[0]}?" if near else ""
        raise AttributeError(f"{name} has no {member!r}{hint}")

    def __repr__(self) -> str:
        return f"<cuda.{self.name}>"


class VectorType(Stub):
    """`float4` and its like: a constructor of small vectors with fields x, y, z, w.

    `base` is the scalar type's name ("float32") and `count` the number of fields. Called with
    scalars and smaller vectors that together fill it, or with one vector of the same length.
    """

    __slots__ = ("aliases", "base", "count")

    def __init__(self, base: str, count: int, aliases: tuple[str, ...]) -> None:
        super().__init__(f"{base}x{count}")
        self.base, self.count, self.aliases = base, count, aliases


_stubs: dict[str, Stub] = {}


def _register(stub: Stub) -> Stub:
    _stubs[stub.name] = stub
    return stub


def by_name(name: str) -> Stub:
    """The stub of that dotted name, `by_name("atomic.add") is cuda.atomic.add`."""
    return _stubs[name]


def all_stubs() -> dict[str, Stub]:
    """Every stub by its dotted name."""
    return dict(_stubs)


threadIdx = _register(Dim3Stub("threadIdx"))
blockIdx = _register(Dim3Stub("blockIdx"))
blockDim = _register(Dim3Stub("blockDim"))
gridDim = _register(Dim3Stub("gridDim"))
laneid = _register(ScalarStub("laneid"))
warpsize = _register(ScalarStub("warpsize"))

grid = _register(Stub("grid"))
gridsize = _register(Stub("gridsize"))

syncthreads = _register(Stub("syncthreads"))
syncthreads_count = _register(Stub("syncthreads_count"))
syncthreads_and = _register(Stub("syncthreads_and"))
syncthreads_or = _register(Stub("syncthreads_or"))
syncwarp = _register(Stub("syncwarp"))
threadfence = _register(Stub("threadfence"))
threadfence_block = _register(Stub("threadfence_block"))
threadfence_system = _register(Stub("threadfence_system"))
nanosleep = _register(Stub("nanosleep"))

shfl_sync = _register(Stub("shfl_sync"))
shfl_up_sync = _register(Stub("shfl_up_sync"))
shfl_down_sync = _register(Stub("shfl_down_sync"))
shfl_xor_sync = _register(Stub("shfl_xor_sync"))
all_sync = _register(Stub("all_sync"))
any_sync = _register(Stub("any_sync"))
eq_sync = _register(Stub("eq_sync"))
ballot_sync = _register(Stub("ballot_sync"))
match_any_sync = _register(Stub("match_any_sync"))
match_all_sync = _register(Stub("match_all_sync"))
activemask = _register(Stub("activemask"))
lanemask_lt = _register(Stub("lanemask_lt"))

popc = _register(Stub("popc"))
brev = _register(Stub("brev"))
clz = _register(Stub("clz"))
ffs = _register(Stub("ffs"))
fma = _register(Stub("fma"))
cbrt = _register(Stub("cbrt"))
selp = _register(Stub("selp"))

# loads and stores with a cache hint: the hint steers a GPU's caches and changes no result
LOADS = ("ldca", "ldcg", "ldcs", "ldlu", "ldcv")
STORES = ("stcg", "stcs", "stwb", "stwt")
CACHE_HINTS = {name: _register(Stub(name)) for name in LOADS + STORES}

shared = Namespace("shared", "array")
local = Namespace("local", "array")
const = Namespace("const", "array_like")
atomic = Namespace(
    "atomic", "add sub and_ or_ xor inc dec exch max min nanmax nanmin cas compare_and_swap"
)
cg = Namespace("cg", "this_grid")
grid_group_sync = _register(Stub("cg.GridGroup.sync"))  # what `.sync()` on a grid group resolves to

fp16 = Namespace(
    "fp16",
    "hadd hsub hmul hdiv hfma hneg habs hmin hmax heq hne hlt hle hgt hge hsin hcos htanh hexp"
    " hexp2 hexp10 hlog hlog2 hlog10 hsqrt hrsqrt hrcp hfloor hceil htrunc hrint",
)

_BF16_CONVERSIONS = [
    f"{name}_{mode}"
    for kind in ("short", "ushort", "int", "uint", "ll", "ull")
    for name in (f"{kind}2bfloat16", f"bfloat162{kind}")
    for mode in ("rn", "rz", "rd", "ru")
]
_BF16 = (
    "habs hadd hsub hmul hadd_rn hsub_rn hmul_rn hdiv hadd_sat hsub_sat hmul_sat hfma hfma_sat hneg"
    " hfma_relu heq hne hge hgt hle hlt hmax hmin hmax_nan hmin_nan hisinf hisnan hequ hneu hgeu"
    " hgtu hleu hltu bfloat162float float2bfloat16 double2bfloat16 float2bfloat16_rn"
    " float2bfloat16_rz float2bfloat16_rd float2bfloat16_ru bfloat162char_rz bfloat162uchar_rz"
    " bfloat16_as_short bfloat16_as_ushort short_as_bfloat16 ushort_as_bfloat16 htrunc hceil hfloor"
    " hrint hsqrt hrsqrt hrcp hlog hlog2 hlog10 hcos hsin hexp hexp2 hexp10 htanh htanh_approx "
    + " ".join(_BF16_CONVERSIONS)
)
bf16 = Namespace("bf16", " ".join([_BF16, *filter(None, map(second_name, _BF16.split()))]))

# libdevice's functions
_BOTH_WIDTHS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc exp"
    " exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod hypot ldexp lgamma log log10 log1p"
    " log2 nearbyint nextafter pow powi rcbrt remainder rint round rsqrt sin sinh sinpi sqrt tan"
    " tanh tgamma trunc erfinv erfcinv erfcx normcdf normcdfinv ilogb logb scalbn frexp modf remquo"
    " sincos sincospi llrint llround j0 j1 jn y0 y1 yn"
)
_ONE_WIDTH = (
    "fast_cosf fast_exp10f fast_expf fast_fdividef fast_log10f fast_log2f fast_logf fast_powf"
    " fast_sinf fast_tanf saturatef finitef isfinited isinff isinfd isnanf isnand"
    " float_as_int int_as_float double_as_longlong longlong_as_double"
    " abs llabs max min llmax llmin umax umin ullmax ullmin mul24 umul24 mulhi umulhi mul64hi"
    " umul64hi popc popcll clz clzll ffs ffsll brev brevll fast_sincosf byte_perm double2hiint"
    " double2loint hiloint2double half2float signbitd signbitf hadd rhadd uhadd urhadd sad usad"
    " frsqrt_rn int2double_rn uint2double_rn float2half_rn"
)
_ROUNDED = (  # with a rounding mode at the end
    "dadd dmul ddiv drcp dsqrt fadd fsub fmul fdiv frcp fsqrt fma fmaf double2float double2int"
    " double2uint double2ll double2ull float2int float2uint float2ll float2ull int2float uint2float"
    " ll2float ull2float ll2double ull2double"
)
_libdevice = [_ONE_WIDTH, *(f"{name} {name}f" for name in _BOTH_WIDTHS.split())]
_libdevice += [f"{name}_{mode}" for name in _ROUNDED.split() for mode in ("rn", "rd", "ru", "rz")]
libdevice = Namespace("libdevice", " ".join(_libdevice))

_C_NAMES = {
    "int8": ("char",),
    "int16": ("short",),
    "int32": ("int",),
    "int64": ("long", "longlong"),
    "uint8": ("uchar",),
    "uint16": ("ushort",),
    "uint32": ("uint",),
    "uint64": ("ulong", "ulonglong"),
    "float32": ("float",),
    "float64": ("double",),
}
VECTOR_TYPES: dict[str, VectorType] = {}  # by every name: "float32x4" and "float4" are one object
for _base, _aliases in _C_NAMES.items():
    for _count in (1, 2, 3, 4):
        _vector = VectorType(_base, _count, tuple(f"{alias}{_count}" for alias in _aliases))
        _register(_vector)
        VECTOR_TYPES |= dict.fromkeys((_vector.name, *_vector.aliases), _vector)


def vector_type(name: str | None) -> VectorType | None:
    """The vector type of that canonical name."""
    stub = _stubs.get(name)
    return stub if isinstance(stub, VectorType) else None


NAMESPACES = (shared, local, const, atomic, cg, fp16, bf16, libdevice)


def is_namespace(candidate: Any) -> bool:
    """Whether attributes of `candidate` may be stubs: a group here, or numba.cuda's own."""
    return isinstance(candidate, Namespace) or id(candidate) in _counterparts()[1]


def canonical(candidate: Any) -> str | None:
    """The dotted name of a stub, ours or numba-cuda's, found by identity; None for others."""
    if isinstance(candidate, Stub):
        return candidate.name
    return _counterparts()[0].get(id(candidate))


def _counterparts() -> tuple[dict[int, str], set[int]]:
    """Names of numba.cuda's stubs by id, and the ids of its namespaces; empty before its import."""
    module = sys.modules.get("numba.cuda")
    if module is None:
        return {}, set()
    later = ("libdevice", "fp16", "bf16")  # submodules that may be imported later
    key = tuple(name in vars(module) for name in later)
    if key not in _known_counterparts:
        found = {name: _resolve(module, name) for name in _stubs}
        names = {id(stub): name for name, stub in found.items() if stub is not None}
        groups = (_resolve(module, group.name) for group in NAMESPACES)
        _known_counterparts[key] = names, {id(module), *(id(group) for group in groups if group)}
    return _known_counterparts[key]


_known_counterparts: dict[tuple[bool, ...], tuple[dict[int, str], set[int]]] = {}


def _resolve(module: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        module = getattr(module, part, None)
    return module
