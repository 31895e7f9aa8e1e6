"""Creating tensors: from data, filled with a value, and the legacy constructors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from minigrad import dtypes, layouts
from minigrad._literals import as_array
from minigrad._names import kind
from minigrad._out import into
from minigrad.autograd.mode import batching
from minigrad.backends import array_module, current, device_module, is_batched
from minigrad.devices import CPU, device, get_default_device, move_array
from minigrad.tensor import Size, Tensor, export, functions, wrap


def place(where: Any) -> device:
    """The device that a `device=` argument names."""
    if where is None:
        return get_default_device()
    return where if isinstance(where, device) else device(where)


def placed(array: Any, where: Any) -> Any:
    """A NumPy array on the device that a `device=` argument names."""
    found = place(where)
    with current.at(found):
        return device_module(found.type).asarray(array)


def finish(
    array: Any, requires_grad: bool, pinned: bool = False, layout: layouts.layout | None = None
) -> Tensor:
    """A leaf tensor with a new array, which is moved to page-locked memory if that is asked for.
    NotImplementedError for a layout that is not strided."""
    layouts.check_strided(layout)
    result = wrap(array)
    if pinned:
        result = result.pin_memory()
    if requires_grad:
        if dtypes.category(array.dtype) < dtypes.FLOATING:
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        result._requires_grad = True
    return result


@export(method=False)
def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf with a copy of `data`: floats become the default dtype, integers int64.

    device: by default that of `data` where it is a tensor or an array on a GPU."""
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or sourceTensor.detach().clone().requires_grad_(True), "
            "rather than tensor(sourceTensor).",
            UserWarning,
            stacklevel=3,
        )
    elif _is_on_gpu(data):
        data = wrap(device_module("cuda").asarray(data))
    if isinstance(data, Tensor) and device is None:
        device = data.device
    array = as_array(data, None if dtype is None else dtypes.to_numpy_dtype(dtype))
    return finish(placed(array, device), requires_grad, pin_memory)


@export(method=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory where dtype and device allow it."""
    if isinstance(data, np.ndarray):
        data = from_numpy(data)
    elif _is_on_gpu(data):
        data = wrap(device_module("cuda").asarray(data))
    if not isinstance(data, Tensor):
        return tensor(data, dtype=dtype, device=device)
    return data.to(device=device, dtype=dtype)


@export(method=False)
def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor; bytes and other buffers as by `frombuffer`, of the default dtype.

    copy: True for memory of its own; with False, ValueError where memory cannot be shared.
    requires_grad: by default that of `obj`.
    """
    if isinstance(obj, bytes | bytearray | memoryview):
        obj = frombuffer(obj, dtype=dtypes.get_default_dtype() if dtype is None else dtype)
    if isinstance(obj, Tensor | np.ndarray) or _is_on_gpu(obj):
        made = as_tensor(obj)
        moved = made.to(device=device, dtype=dtype, copy=copy is True)
        if copy is False and moved is not made:
            raise _not_shared(made, moved)
        made = moved
    elif copy is False:
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    else:
        made = tensor(obj, dtype=dtype, device=device)
    if requires_grad is False and not made.is_leaf:
        return made.detach()
    if requires_grad is not None and made.is_leaf:
        made.requires_grad = requires_grad
    return made


def _not_shared(given: Tensor, wanted: Tensor) -> ValueError:
    """What keeps one tensor from being another without a copy."""
    if given.device != wanted.device:
        return ValueError(f"can't alias tensor from device '{given.device}' to '{wanted.device}'.")
    names = [t.dtype.legacy_name.removesuffix("Tensor") for t in (given, wanted)]
    return ValueError(f"can't alias tensor with dtype '{names[0]}' into dtype '{names[1]}'.")


def _is_on_gpu(data: Any) -> bool:
    """Whether `data` is an array of CuPy's or numba-cuda's on a GPU, whose memory tensors share."""
    on_gpu = hasattr(data, "__cuda_array_interface__") and not hasattr(data, "__host_memory__")
    return on_gpu and not isinstance(data, Tensor)


@export(method=False)
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares memory with a NumPy array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {kind(ndarray)})")
    if ndarray.dtype.byteorder not in "=|" and ndarray.dtype != ndarray.dtype.newbyteorder("="):
        raise ValueError(
            "given numpy array has byte order different from the native byte order; convert it by"
            " .astype(array.dtype.newbyteorder('='))"
        )
    if min(ndarray.strides, default=0) < 0:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array with array.copy().)"
        )
    dtypes.from_numpy_dtype(ndarray.dtype)
    if type(ndarray) in (np.matrix, np.ma.MaskedArray):  # which compute otherwise
        ndarray = np.asarray(ndarray)
    return wrap(ndarray)


def _shape(size: tuple, named: Any = None) -> tuple[int, ...]:
    if named is not None:
        size = (named,)
    elif not size:
        raise TypeError('missing 1 required positional argument: "size"')
    if len(size) == 1 and isinstance(size[0], list | tuple):
        size = tuple(size[0])
    shape = size
    for s in size:
        if type(s) is not int:
            shape = _integers_of(size)
            break
    if shape and min(shape) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(shape)}")
    return shape


def _integers_of(size: tuple) -> tuple[int, ...]:
    for i, s in enumerate(size):
        if (isinstance(s, bool) and not i) or not hasattr(s, "__index__"):
            raise TypeError(
                "argument 'size' must be tuple of ints, but found element of type "
                f"{type(s).__name__} at pos {i}: expected sizes as integers, got {size}"
            )
    return tuple([s.__index__() for s in size])


def _listed(name: str, size: Any) -> tuple[int, ...]:
    """The sizes of a function that takes them as a sequence only."""
    if not isinstance(size, list | tuple):
        raise TypeError(
            f"{name}(): argument 'size' must be tuple of ints, not {type(size).__name__}"
        )
    return _shape((size,))


def _array_of(value: int | None, shape: tuple[int, ...], dtype: np.dtype, where: device) -> Any:
    """A new array of zeros, ones, or with None anything."""
    if where is CPU:
        if value == 0:
            return np.zeros(shape, dtype)
        array = np.empty(shape, dtype)
        if value is not None:
            array.fill(value)
        return array
    with current.at(where):
        xp = device_module(where.type)
        if value == 0:
            return xp.zeros(shape, dtype)  # by memset
        return xp.empty(shape, dtype) if value is None else xp.full(shape, value, dtype)


def _filled(name: str, value: int | None) -> None:
    """zeros, ones, empty and their `_like` and `new_` forms."""

    def function(
        *size: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        out: Any = None,
        layout: Any = None,
        pin_memory: bool = False,
        memory_format: Any = None,
        **named: Any,
    ) -> Tensor:
        given = named.pop("size", None) if named else None
        if named:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
        shape = _shape(size, given)
        if out is not None:
            dtype, device = dtype or out.dtype, device or out.device
        target = dtypes.default_numpy() if dtype is None else dtypes.to_numpy_dtype(dtype)
        made = finish(_array_of(value, shape, target, place(device)), requires_grad, pin_memory)
        if layout is not None and layout is not layouts.strided:
            if value != 0:
                layouts.check_strided(layout)
            made = made.detach().to_sparse(layout=layout).requires_grad_(requires_grad)
        return made if out is None else into(name, out, made)

    def like(
        input: Tensor,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        array = input._array
        if dtype is device is layout is None and type(array) is np.ndarray:
            made = _array_of(value, array.shape, array.dtype, CPU)
            return finish(made, requires_grad, pin_memory)
        made = function(
            array.shape,
            dtype=dtype or input.dtype,
            layout=layout,
            device=device or input.device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
        )
        return _for_elements(input, made) if batching else made

    def new(
        self: Tensor,
        *size: Any,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        **named: Any,
    ) -> Tensor:
        made = function(
            *size,
            dtype=dtype or self.dtype,
            layout=layout,
            device=device or self.device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
            **named,
        )
        return _for_elements(self, made) if batching else made

    what = "uninitialised memory" if value is None else f"{value:d}s"
    for fn, fn_name, text in (
        (function, name, f"A tensor of {what}; sizes one by one or as a sequence."),
        (like, f"{name}_like", f"A tensor of {what} with the shape and dtype of another."),
        (new, f"new_{name}", f"A tensor of {what} with the dtype and device of this one."),
    ):
        fn.__name__ = fn.__qualname__ = fn_name
        fn.__doc__ = text
    export(method=False)(function)
    export(method=False)(like)
    export(function=False)(new)


def _for_elements(like: Tensor, made: Tensor) -> Tensor:
    """A new tensor with memory for each element of `vmap` where the one that it is made like has
    elements: the values of elements may be written there."""
    if is_batched(like._array):
        array = array_module(like._array).empty(made._array.shape, made._array.dtype)
        array[...] = made._array
        made._array = array
    return made


_filled("zeros", 0)
_filled("ones", 1)
_filled("empty", None)


@export(method=False)
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value; the dtype follows the value unless given."""
    return _full("full", size, fill_value, dtype, layout, device, requires_grad, pin_memory)


def _full(
    name: str,
    size: Any,
    fill_value: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
    pinned: bool,
) -> Tensor:
    shape = _listed(name, size)
    value = fill_value
    if isinstance(fill_value, Tensor):
        if fill_value._array.ndim:
            raise TypeError(f"{name}(): argument 'fill_value' must be Number, not Tensor")
        value = fill_value.item()
    target = dtypes.scalar_dtype(value) if dtype is None else dtypes.to_numpy_dtype(dtype)
    number = np.asarray(dtypes.fitting(value, target)).astype(target)
    number = number[()]  # a scalar: CuPy takes no arrays of NumPy's
    where = place(device)
    with current.at(where):
        array = device_module(where.type).full(shape, number, target)
    return finish(array, requires_grad, pinned, layout)


@export(method=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of one value with the shape and dtype of another."""
    kind, where = dtype or input.dtype, device or input.device
    shape = input._array.shape
    made = _full("full_like", shape, fill_value, kind, layout, where, requires_grad, pin_memory)
    return _for_elements(input, made) if batching else made


@export(function=False)
def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value with the dtype and device of this one."""
    kind, where = dtype or self.dtype, device or self.device
    made = _full("new_full", size, fill_value, kind, layout, where, requires_grad, pin_memory)
    return _for_elements(self, made) if batching else made


@export(function=False)
def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A copy of data with the dtype and device of this tensor, unless others are given."""
    layouts.check_strided(layout)
    kind, where = dtype or self.dtype, device or self.device
    return tensor(
        data, dtype=kind, device=where, requires_grad=requires_grad, pin_memory=pin_memory
    )


@export(function=False)
def new(self: Tensor, *args: Any) -> Tensor:
    """The legacy constructor of this tensor's type."""
    return wrap(legacy_array(args, self._array.dtype, self.device))


@export(method=False)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Ones on the diagonal of an n by m matrix (square if m is left out)."""
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"eye: expected sizes >= 0, got {n} and {m}")
    target = dtypes.default_numpy() if dtype is None else dtypes.to_numpy_dtype(dtype)
    return finish(placed(np.eye(n, m, dtype=target), device), requires_grad, pin_memory, layout)


@export(method=False)
def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uninitialised memory with these strides, in elements."""
    layouts.check_strided(layout)
    shape, steps = tuple(size), tuple(stride)
    if len(shape) != len(steps):
        raise RuntimeError(
            f"mismatch in length of strides and shape: {len(steps)} strides for {list(shape)}"
        )
    if min((*shape, *steps), default=0) < 0:
        raise RuntimeError(f"empty_strided: negative size or stride: {list(shape)}, {list(steps)}")
    last = sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    count = 0 if 0 in shape else last + 1
    memory = functions.empty(count, dtype=dtype, device=device, pin_memory=pin_memory)
    return memory.as_strided(shape, steps).detach().requires_grad_(requires_grad)


@export(function=False)
def new_empty_strided(
    self: Tensor,
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`empty_strided` with the dtype and device of this tensor."""
    kind, where = dtype or self.dtype, device or self.device
    return empty_strided(
        *(size, stride),
        dtype=kind,
        layout=layout,
        device=where,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )


@export(method=False)
def frombuffer(
    buffer: Any,
    *,
    dtype: dtypes.dtype,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A vector of the memory behind an object such as bytes, a bytearray or an array.

    count: of elements, all that fit unless given. offset: in bytes. ValueError where they do not
    fit.
    """
    length, width = memoryview(buffer).nbytes, dtype.itemsize
    if not length or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({length} bytes) minus 1"
        )
    if count < 0 and (length - offset) % width:
        raise ValueError(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({width})"
        )
    if count > 0 and offset + count * width > length:
        raise ValueError(
            f"requested buffer length ({count} * {width} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({length} bytes)"
        )
    array = np.frombuffer(buffer, dtype.numpy, max(count, -1), offset)
    return finish(array, requires_grad)


@export(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns: from N - 1 to 0, or from 0 if `increasing`."""
    if x._array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x._array.size if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    kind = x.dtype if x.is_floating_point() or x.is_complex() else dtypes.int64
    found = functions.ones((x._array.size, count), dtype=kind, device=x.device)
    if count > 1:
        powers = x.to(kind).unsqueeze(1).expand(-1, count - 1).cumprod(1)
        found = functions.cat([found[:, :1], powers], 1)
    return found if increasing else found.flip(1)


def legacy_array(args: tuple, target: np.dtype, where: Any) -> Any:
    """The array of `Tensor(...)`: uninitialised for sizes, a copy of a sequence or array."""
    where = place(where)
    shape: tuple[int, ...] = (0,)
    if len(args) == 1 and not isinstance(args[0], int):
        data = args[0]
        if isinstance(data, Tensor) and data._array.dtype == target:
            return move_array(data._array, where)
        if not isinstance(data, Size):
            if isinstance(data, float | complex):
                raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
            return placed(as_array(data, target), where)
        shape = tuple(data)
    elif args:
        shape = _shape(args)
    with current.at(where):
        return device_module(where.type).empty(shape, target)


class _Legacy(type):
    """The metaclass of `FloatTensor` etc.: isinstance checks the dtype and the device."""

    dtype: dtypes.dtype
    place: str

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, Tensor):
            return False
        return instance.dtype is cls.dtype and instance.device.type == cls.place


def legacy_class(target: dtypes.dtype, where: str) -> type:
    """`FloatTensor` etc., on the CPU or (`minigrad.cuda.FloatTensor`) on a GPU."""

    def make(cls: type, *args: Any) -> Tensor:
        return wrap(legacy_array(args, target.numpy, where))

    text = f"`Tensor` with dtype {target.name} on device {where}."
    body = {"__new__": make, "dtype": target, "place": where, "__doc__": text}
    return _Legacy(target.legacy_name, (), body)


_WITHOUT_LEGACY_NAME = (
    *(dtypes.uint16, dtypes.uint32, dtypes.uint64, dtypes.complex64, dtypes.complex128),
)


def legacy_classes(where: str) -> dict[str, Any]:
    """The class of each dtype on a device, by name."""
    named = (d for d in dtypes.ALL if d not in _WITHOUT_LEGACY_NAME)
    return {d.legacy_name: legacy_class(d, where) for d in named}


LEGACY = legacy_classes("cpu")
