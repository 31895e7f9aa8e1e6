"""Arguments of a launch: a quick key for the specialisation, Numba types, conversion."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from kernels.simt.device.arrays import (
    DeviceNDArray,
    HostInterface,
    as_cuda_array,
    is_cuda_array,
    kernel_argument,
)
from kernels.support.errors import ArgumentError

_LAYOUT = 0x403  # NumPy's flag bits: C-contiguous, F-contiguous, writeable
_SCALARS = {int: "int", float: "float", bool: "bool", complex: "complex"}


def token(arg: Any) -> Any:
    """A hashable value, cheap to compute, that determines the type of `arg`."""
    kind = type(arg)
    if kind is np.ndarray:
        return arg.dtype, arg.ndim, arg.flags.num & _LAYOUT
    if kind in _SCALARS or arg is None:
        return kind
    if isinstance(arg, np.generic):
        return arg.dtype
    if isinstance(arg, tuple):
        return tuple(token(item) for item in arg)
    if isinstance(arg, enum.Enum) and not isinstance(arg, int):
        return kind
    return None  # needs `normalise` first


class ArrayKind(NamedTuple):
    """What determines the Numba type of an array."""

    dtype: np.dtype
    ndim: int
    layout: str
    writeable: bool

    def __str__(self) -> str:
        constant = "" if self.writeable else "read-only "
        return f"{constant}{self.dtype} array of {self.ndim} dimensions, layout {self.layout}"


class EnumKind(NamedTuple):
    """The class of an enumeration's member; its repr says what a compiled kernel depends on."""

    members: type[enum.Enum]

    def __str__(self) -> str:
        return f"member of {self.members.__name__}"

    def __repr__(self) -> str:
        return repr((str(self.members), tuple((m.name, m.value) for m in self.members)))


_kinds: dict[tuple, ArrayKind] = {}


def describe(arg: Any) -> Any:
    """What determines the Numba type of a normalised argument, with a repr that is stable."""
    if isinstance(arg, np.ndarray):
        key = arg.dtype, arg.ndim, arg.flags.num & _LAYOUT
        found = _kinds.get(key)
        return found or _kinds.setdefault(key, _kind_of(arg))
    if isinstance(arg, tuple):
        return tuple(describe(item) for item in arg)
    if isinstance(arg, enum.Enum):
        return EnumKind(type(arg))
    return None if arg is None else np.asarray(arg).dtype


def _kind_of(array: np.ndarray) -> ArrayKind:
    flags = array.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    return ArrayKind(array.dtype, array.ndim, layout, flags.writeable)


def is_signed(arg: Any) -> bool:
    """Whether a normalised argument is a number of a signed integer type."""
    return isinstance(arg, int | np.signedinteger) and not isinstance(arg, bool)


def has_gpu_memory(arg: Any) -> bool:
    """Whether an argument is memory of a GPU, of any library."""
    return (
        not isinstance(arg, DeviceNDArray | np.ndarray)
        and hasattr(arg, "__cuda_array_interface__")
        and not hasattr(arg, "__host_memory__")
        and not isinstance(arg.__cuda_array_interface__, HostInterface)
    )


def normalise(arg: Any, where: str) -> Any:
    """`arg` as a NumPy array, a number or a tuple of them."""
    arg = kernel_argument(arg)
    if isinstance(arg, np.ndarray):
        return arg.view(np.ndarray)
    if is_cuda_array(arg):
        return as_cuda_array(arg).memory
    if isinstance(arg, tuple):
        items = [normalise(item, where) for item in arg]
        return type(arg)._make(items) if hasattr(arg, "_make") else tuple(items)
    if type(arg) in _SCALARS or arg is None or isinstance(arg, np.generic):
        return arg
    if hasattr(arg, "__array_interface__") or (hasattr(arg, "__array__") and hasattr(arg, "shape")):
        return np.asarray(arg)
    if isinstance(arg, int):  # IntEnum and the like
        return int(arg)
    if isinstance(arg, enum.Enum):
        return arg
    raise ArgumentError(
        f"{where}: {type(arg).__name__} is not a kernel argument; pass NumPy arrays, numbers,"
        " or tuples of them"
    )


def numba_type(arg: Any, where: str):
    """The Numba type of a normalised argument. Half-precision arrays have storage types."""
    from numba import typeof
    from numba.core import types

    if isinstance(arg, np.ndarray) and is_half(describe(arg)):
        from kernels.simt.devlib import half

        plain = typeof(arg.view(np.uint16))
        return plain.copy(dtype=half.STORAGE[arg.dtype][0])
    if isinstance(arg, np.float16):
        return types.float32
    if isinstance(arg, np.ndarray) and arg.dtype.hasobject:
        raise ArgumentError(
            f"{where}: an array of Python objects is not a kernel argument; give it a numeric dtype"
        )
    fields = getattr(getattr(arg, "dtype", None), "fields", None) or {}
    if any(field.base.name in ("float16", "bfloat16") for field, *_ in fields.values()):
        raise ArgumentError(f"{where}: records with 16-bit floats are not compiled for the CPU")
    try:
        return typeof(arg)
    except ValueError as error:
        raise ArgumentError(f"{where}: {error}") from error


def type_of(described: Any):
    """The Numba type of an argument that is known by its description, or by that type."""
    from numba import typeof
    from numba.core import types

    if isinstance(described, ArrayKind):
        dtype, ndim, layout, writeable = described
        example = np.empty((0,) * max(ndim, 1), dtype)
        element = numba_type(example, "").dtype
        return types.Array(element, ndim, layout, readonly=not writeable)
    if isinstance(described, EnumKind):
        return typeof(next(iter(described.members)))
    if isinstance(described, tuple):
        return types.BaseTuple.from_types(list(map(type_of, described)))
    if isinstance(described, types.Type):
        return described
    if described is None:
        return types.none
    return types.float32 if described == np.float16 else typeof(np.zeros((), described)[()])


def storage(kind: Any):
    """(what the generated function takes, intrinsic that views it as `kind`) for half arrays."""
    from numba.core import types

    if isinstance(kind, types.Array) and str(kind.dtype) in ("float16", "bfloat16"):
        from kernels.simt.devlib import half

        for storage_type, view in half.STORAGE.values():
            if kind.dtype == storage_type:
                return kind.copy(dtype=types.uint16), view
    return kind, None


def is_half(kind: Any) -> bool:
    """Whether a description or a Numba type is of an array of half-precision numbers."""
    return str(getattr(kind, "dtype", None)) in ("float16", "bfloat16")
