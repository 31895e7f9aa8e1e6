"""Where tensors live: the class that `minigrad.device` is, and arrays on their way."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from kernels.support import wrong_index
from minigrad import _pinned
from minigrad._meta import MetaArray
from minigrad.autograd.mode import batching
from minigrad.backends import current, device_module, every_element

# Of torch: programs compare with them. `current.at` and `device_module` refuse them.
_OTHERS = "ipu xpu opengl opencl ideep hip ve fpga maia xla lazy vulkan mps hpu mtia privateuseone"


class device:
    """Where a tensor lives: `device("cpu")`, `device("cuda")`, `device("cuda:1")`.

    A device may be named on any machine; moving a tensor to a missing one raises. In a block `with
    device("cuda"): ...` tensors are made there unless `device=` says otherwise.
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: str | int | device, index: int | None = None) -> None:
        if isinstance(type, device):
            self.type, self.index = type.type, type.index
            return
        if isinstance(type, int):
            self.type, self.index = "cuda", type
            return
        if ":" in type:
            type, _, number = type.partition(":")
            if not number.isdecimal():
                raise RuntimeError(f"Invalid device string: '{type}:{number}'")
            index = int(number)
        if type not in ("cpu", "cuda", "meta", *_OTHERS.split()):
            raise RuntimeError(
                f"Expected one of cpu, cuda, meta device type at start of device string: {type}"
            )
        self.type, self.index = type, index

    def __enter__(self) -> device:
        _Default.stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _Default.stack.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self) -> tuple:
        return (device, (self.type, self.index))


CPU, META = device("cpu"), device("meta")
_class = device


class _Defaults(threading.local):
    """stack: of the `with` blocks in force; chosen: by `set_default_device`, for all threads."""

    chosen = CPU

    def __init__(self) -> None:
        self.stack: list[device] = []


_Default = _Defaults()


def set_default_device(device: Any) -> None:
    """Make tensors on this device unless `device=` says otherwise (None: on the CPU)."""
    _Defaults.chosen = CPU if device is None else _class(device)


def get_default_device() -> device:
    """Where tensors are made without `device=`."""
    return _Default.stack[-1] if _Default.stack else _Default.chosen


def address(array: Any) -> int:
    """Where the first element of an array lies."""
    if batching:
        array = every_element(array)
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0]
    return 0 if isinstance(array, MetaArray) else array.data.ptr


def read(array: Any, method: str) -> Any:
    """`array.item()`, `.tolist()` or `.get()`: what the host waits for a GPU for. Raises the error
    of a wrong index that the GPU has found until then."""
    value = getattr(array, method)()
    if not isinstance(array, np.ndarray):
        wrong_index.raise_found()
    return value


def move_array(array: Any, where: device, non_blocking: bool = False) -> Any:
    """The array on a device: itself if it is there.

    non_blocking: out of pinned memory, the copy runs beside the program and other kernels.
    """
    if isinstance(array, MetaArray) and where.type != "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if where.type == "meta":
        return MetaArray(array.shape, array.dtype)
    if where.type == "cpu":
        return array if isinstance(array, np.ndarray) else read(array, "get")
    with current.at(where):
        return _to_gpu(array, non_blocking)


def _to_gpu(array: Any, non_blocking: bool) -> Any:
    """The array on the current GPU."""
    if isinstance(array, np.ndarray):
        if non_blocking and _pinned.is_pinned(array) and array.size and array.flags.c_contiguous:
            return _pinned.to_gpu(array)
        return device_module("cuda").asarray(array)
    return _between_gpus(array)


def _between_gpus(array: Any) -> Any:
    """A copy on the current GPU of an array on another; itself where it is on that.

    The streams of both GPUs wait for each other: the copy comes after what computes the array, and
    before its memory is used again.
    """
    cuda = device_module("cuda").cuda
    if array.device == cuda.Device():
        return array
    here, there = cuda.get_current_stream(), array.device
    with there:
        computed = cuda.get_current_stream().record()
    here.wait_event(computed)
    copied = array.copy()
    read = here.record()
    with there:
        cuda.get_current_stream().wait_event(read)
    return copied
