"""`minigrad.cuda`: queries about GPUs. Tensors on a GPU are CuPy arrays."""

from __future__ import annotations

import importlib.util
from typing import Any

from minigrad import dtypes, random
from minigrad.creation import legacy_class

FloatTensor = legacy_class(dtypes.float32, "cuda")
DoubleTensor = legacy_class(dtypes.float64, "cuda")
LongTensor = legacy_class(dtypes.int64, "cuda")
ByteTensor = legacy_class(dtypes.uint8, "cuda")


def is_available() -> bool:
    """Whether tensors can live on a GPU here: CuPy is installed and finds a GPU."""
    return device_count() > 0


def device_count() -> int:
    """The number of GPUs that tensors can live on."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def _cupy() -> Any:
    from minigrad.backends import device_module

    return device_module("cuda")


def current_device() -> int:
    """The number of the GPU in use."""
    return _cupy().cuda.Device().id


def set_device(device: Any) -> None:
    """Use this GPU from now on."""
    from minigrad.tensor import device as Device

    where = Device(device)
    _cupy().cuda.Device(where.index or 0).use()


def get_device_name(device: Any = None) -> str:
    """The GPU's name."""
    number = current_device() if device is None else device
    return _cupy().cuda.runtime.getDeviceProperties(number)["name"].decode()


def synchronize(device: Any = None) -> None:
    """Wait until the GPU has finished everything that was launched."""
    _cupy().cuda.Device().synchronize()


def empty_cache() -> None:
    """Free unused GPU memory (no effect without a GPU)."""
    if is_available():
        _cupy().get_default_memory_pool().free_all_blocks()


def manual_seed(seed: int) -> None:
    """Seed the default generator, which all devices share."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def is_bf16_supported() -> bool:
    """Whether the GPU computes in bfloat16 (kernels here store it and compute in float32)."""
    return is_available()
