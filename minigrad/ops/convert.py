"""Conversions between dtypes, devices and tensor types."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad import _pinned, dlpack, dtypes
from minigrad._foreign import check_tensors
from minigrad.autograd.mode import Unversioned
from minigrad.backends import current, device_module
from minigrad.devices import device
from minigrad.ops.pointwise import POINTWISE
from minigrad.ops.views import Cast, Clone, Move, Pin
from minigrad.tensor import FUNCTIONS, Tensor, export, type_name, wrap


@export(function=False)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`to(dtype)`, `to(device)`, `to(device, dtype)` or `to(other)`: itself if nothing changes.

    Keywords: dtype, device, copy (always copy), non_blocking (a copy out of pinned memory to a GPU
    runs beside the program and other kernels; later ones wait for it) and memory_format (no effect:
    tensors are row-major).
    """
    if len(args) == 1 and not kwargs:  # the usual call
        if isinstance(args[0], dtypes.dtype):
            return _as(self, args[0].numpy)
        if isinstance(args[0], np.dtype):
            return _as(self, args[0])
        if isinstance(args[0], Tensor) and _beside(self, args[0]):
            return _as(self, args[0]._array.dtype)
        if args[0] == self.device if isinstance(args[0], device) else _names_cpu(self, args[0]):
            return self
    target, where, flags = _destination(args, kwargs)
    non_blocking, copy = flags["non_blocking"], flags["copy"]
    result = self
    if where is not None and where.type == "cuda" and where.index is None:
        where = device("cuda", device_module("cuda").cuda.Device().id)
    if where is not None and where != self.device:
        result = Move.apply(result, where=where, origin=self.device, non_blocking=non_blocking)
    with current.of((result._array,)):
        if target is not None and target != self._array.dtype:
            return _as(result, target)
        return Clone.apply(result) if copy and result is self else result


def _names_cpu(x: Tensor, where: Any) -> bool:
    """Whether it is "cpu", where x is."""
    return isinstance(where, str) and where == "cpu" and isinstance(x._array, np.ndarray)


def _beside(x: Tensor, other: Tensor) -> bool:
    return isinstance(x._array, np.ndarray) and isinstance(other._array, np.ndarray)


def _as(x: Tensor, dtype: np.dtype) -> Tensor:
    if dtype == x._array.dtype:
        return x
    if dtype.kind in "bui":  # integers have no gradient
        x = x.detach()
    return Cast.apply(x, dtype=dtype)


def _destination(args: tuple, kwargs: dict) -> tuple[Any, device | None, dict[str, bool]]:
    """The dtype and the device that are meant, and the flags."""
    target = where = None
    positional = [value for value in args[1:] if isinstance(value, bool)]
    flags = {"non_blocking": False, "copy": False} | dict(zip(("non_blocking", "copy"), positional))
    flags |= {name: bool(kwargs[name]) for name in flags if name in kwargs}
    named = [kwargs.get(k) for k in ("dtype", "device", "other") if kwargs.get(k) is not None]
    for i, value in enumerate((*args, *named)):
        if isinstance(value, dtypes.dtype):
            target = value.numpy
        elif isinstance(value, np.dtype):
            target = value
        elif value in (float, int, bool, complex):
            target = dtypes.to_numpy_dtype(value)
        elif isinstance(value, str | device | int) and not isinstance(value, bool):
            where = device(value)
        elif isinstance(value, Tensor):
            target, where = value._array.dtype, value.device
        elif value is not None and not (isinstance(value, bool) and i > 0):
            raise TypeError(f"to() expects a dtype, a device or a tensor, got {value!r}")
    unknown = set(kwargs) - {"dtype", "device", "other", "copy", "non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument '{unknown.pop()}'")
    return target, where, flags


@export(function=False)
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """This tensor in page-locked memory of the host (itself if it is there), from which
    `to("cuda", non_blocking=True)` copies beside the program. RuntimeError without a GPU."""
    if self.device.type != "cpu":
        raise RuntimeError(
            f"cannot pin a tensor on {self.device}: only dense CPU tensors can be pinned"
        )
    try:
        device_module("cuda")
    except RuntimeError as error:
        raise RuntimeError(
            f"Cannot access accelerator device when none is available: pin_memory: {error}"
        ) from None
    return self if _pinned.is_pinned(self._array) else Pin.apply(self)


@export(function=False)
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether this tensor is in page-locked memory."""
    return _pinned.is_pinned(self._array)


def _caster(name: str, target: dtypes.dtype) -> None:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        return to(self, target)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"This tensor as {target.name} (itself if it is)."
    setattr(Tensor, name, method)


for _name, _target in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16,
    "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_,
    "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}.items():  # fmt: skip
    _caster(_name, _target)


@export(function=False)
def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The legacy type name, or this tensor as another type ("torch.FloatTensor" or a dtype)."""
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, dtypes.dtype):
        return to(self, dtype)
    name = dtype if isinstance(dtype, str) else dtype.__name__
    legacy = name.rpartition(".")[2]
    for candidate in dtypes.ALL:
        if candidate.legacy_name == legacy:
            return to(self, candidate)
    raise ValueError(
        f"type: expected a dtype or a name such as 'minigrad.FloatTensor', got {name!r}"
    )


@export(function=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor with the dtype of another, on the device of that."""
    check_tensors("type_as", other=other)
    return to(self, other)


@export(method=False)
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating."""
    return input.is_floating_point()


@export()
def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made inside of `inference_mode`."""
    return isinstance(input._counter, Unversioned)


@export(method=False)
def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Tensor)


@export(method=False)
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@export(method=False)
def detach(input: Tensor) -> Tensor:
    """A tensor of the same memory without a graph."""
    return input.detach()


@export(method=False)
def result_type(*operands: Any, **named: Any) -> dtypes.dtype:
    """The dtype that arithmetic between two tensors or numbers gives.

    named: as `tensor` and `other`, `scalar` and `tensor`, or `scalar1` and `scalar2`.
    """
    for names in (("tensor", "other"), ("scalar", "tensor"), ("scalar1", "scalar2")):
        if len(operands) + len(named) == 2 and named.keys() == set(names[len(operands) :]):
            pair = (*operands, *[named[name] for name in names[len(operands) :]])
            return dtypes.from_numpy_dtype(POINTWISE["add"]._promoted(pair))
    raise TypeError(
        "result_type() received an invalid combination of arguments: expected two tensors or "
        f"numbers, got {len(operands)} and the names {list(named)}"
    )


@export(method=False)
def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor that shares memory with any object that has `__dlpack__`, or with a capsule."""
    ext_tensor = dlpack.exporter_of(ext_tensor)
    place = ext_tensor.__dlpack_device__()[0]
    if place != 1:  # kDLCPU
        return wrap(device_module("cuda").from_dlpack(ext_tensor))
    array = dlpack.array_of(ext_tensor)
    dtypes.from_numpy_dtype(array.dtype)
    return wrap(array)


@export()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero."""
    if input._array.size != 1:
        count = "more than one value" if input._array.size else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
    return bool(input)


@export(method=False)
def typename(obj: Any) -> str:
    """The full name of a type: of a tensor with its dtype, such as `minigrad.FloatTensor`."""
    if isinstance(obj, Tensor):
        return type_name(obj)
    named = obj if hasattr(obj, "__qualname__") else obj.__class__  # `type` is an operation here
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


FUNCTIONS["is_signed"] = Tensor.is_signed
