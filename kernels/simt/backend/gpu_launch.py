"""Launches of numba-cuda's kernels on CuPy arrays, with little work on the host.

numba-cuda types and wraps the arguments of every launch, which takes 50 to 90 us, and waits for the
stream of each CuPy array. Here a launch writes into a buffer what changed, and calls the driver
(`kernels.support.driver_launch`).

numba-cuda's kernels take an array as numbers of 64 bits: two pointers that stay null, the elements,
the bytes of an element, the address, the shape and the strides (numba-cuda's `_Kernel.launch`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from kernels.simt.backend import gpu_code
from kernels.simt.ir.safety import Safety
from kernels.support.driver_launch import Address, DriverLaunch
from kernels.support.errors import ArgumentError
from kernels.support.limits import launch_dimensions

_ADDRESS, _SHAPE = 4, 5  # positions among the numbers of an array


def bind(kernel: Any, grid: Any, block: Any, args: tuple) -> Callable:
    """A function that launches `kernel` on CuPy's current stream.

    It takes contiguous CuPy arrays and numbers of the types of `args`. Types and layouts are not
    checked again; an array elsewhere than those of `args` is an ArgumentError. Raises LaunchError
    for dimensions that the hardware refuses.
    """
    grid, block = launch_dimensions(kernel.__name__, grid, block)
    if kernel.safety is Safety.DEBUG:
        return _checked(kernel.on_gpu(), grid, block)
    return _Launch(gpu_code.function(kernel, args), kernel.__name__, grid, block, args)


def repeat(
    kernel: Any, grid: Any, block: Any, args: tuple, source: Callable
) -> Callable[[tuple], None] | None:
    """As `bind`, a function of the values that the arguments come from: `source` says of an
    argument which value that is, and how many bytes it lies behind the address of an array, or None
    for one that is the same in each launch. None where each launch is checked.
    """
    launch = bind(kernel, grid, block, args)
    return launch.repeat(args, source) if isinstance(launch, _Launch) else None


def _checked(dispatcher: Any, grid: tuple, block: tuple) -> Callable:
    """What launches a kernel compiled with `debug=True`: after each launch numba-cuda asks for the
    exception that it raised."""
    import cupy
    from numba import cuda
    from numba.cuda.core.errors import NumbaPerformanceWarning

    def launch(*args: Any) -> None:
        stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            dispatcher[grid, block, stream](*args)

    return launch


class _Launch:
    """A kernel with its grid, block and buffer of arguments."""

    def __init__(
        self, function: gpu_code.Function, name: str, grid: tuple, block: tuple, args: tuple
    ) -> None:
        counts = [_numbers(kind) for kind in function.parameters]
        self.name, self._starts = name, [sum(counts[:i]) for i in range(len(counts))]
        self._launch = DriverLaunch(function.handle, name, (*grid, *block), 0, [1] * sum(counts))
        device = next(a.data.device_id for a in args if hasattr(a, "__cuda_array_interface__"))
        self._writers = [
            self._array_writer(word, device)
            if kind.startswith("array")
            else self._launch.writer(word, kind)
            for kind, word in zip(function.parameters, self._starts)
        ]

    def __call__(self, *args: Any) -> None:
        with self._launch.lock:
            try:
                for write, arg in zip(self._writers, args, strict=True):
                    write(arg)
            except AttributeError:  # a NumPy array has no address on a GPU
                raise ArgumentError(
                    f"{self.name}: expected arrays on the GPU, got one of NumPy; move it first"
                ) from None
            self._launch.run()

    def repeat(self, args: tuple, source: Callable) -> Callable[[tuple], None]:
        """What `gpu_launch.repeat` returns."""
        arrays, numbers, kept = [], [], []
        for word, write, arg in zip(self._starts, self._writers, args, strict=True):
            write(arg)
            found = source(arg)
            if found is None:
                kept.append(arg)
            elif hasattr(arg, "__cuda_array_interface__"):
                arrays.append(Address(word + _ADDRESS, *found))
            else:
                numbers.append((write, found[0]))
        return self._launch.repeat(arrays, numbers, kept)

    def _array_writer(self, at: int, device: int) -> Callable[[Any], None]:
        buffer, name, shape = self._launch.buffer, self.name, None

        def write(array: Any) -> None:
            nonlocal shape
            memory = array.data
            if memory.device_id != device:
                raise ArgumentError(
                    f"{name}: an array on GPU {memory.device_id} among arrays on GPU {device};"
                    " move it first"
                )
            buffer[at + _ADDRESS] = memory.ptr
            if array.shape != shape:
                shape = array.shape
                numbers = (0, 0, array.size, array.itemsize, memory.ptr, *shape, *array.strides)
                buffer[at : at + len(numbers)] = numbers

        return write


def _numbers(kind: str) -> int:
    """How many numbers of 64 bits a parameter takes."""
    return _SHAPE + 2 * int(kind.removeprefix("array")) if kind.startswith("array") else 1
