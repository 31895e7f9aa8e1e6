"""Launches on a GPU through NVIDIA's driver, with little work on the host.

A kernel is bound once to a grid, a block and a buffer of arguments; a launch writes into that
buffer what changed, and calls the driver on CuPy's current stream. CuPy's own launch makes an
object of each argument.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.support import forks
from kernels.support.errors import LaunchError


class Address(NamedTuple):
    """A word of the buffer that gets the address of an array, `offset` bytes behind its first."""

    word: int
    value: int  # which of the values of a launch the array is
    offset: int


class DriverLaunch:
    """A kernel that the driver has loaded, with its grid, its block and a buffer of arguments.

    sizes: words of 64 bits that each of the kernel's parameters takes, from `starts` on.
    """

    def __init__(
        self, function: Any, name: str, dimensions: tuple, shared_mem: int, sizes: Sequence[int]
    ) -> None:
        import cupy
        from cuda.bindings import driver

        self.name, self.dimensions, self.lock = name, dimensions, forks.lock()
        self.buffer = (ctypes.c_uint64 * max(sum(sizes), 1))()
        self.starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self._first = ctypes.addressof(self.buffer)
        self._pointers = (ctypes.c_uint64 * max(len(sizes), 1))(
            *(self._first + 8 * word for word in self.starts)
        )
        self._call, self._current_stream = driver.cuLaunchKernel, cupy.cuda.get_current_stream
        self._before = (function, *dimensions, shared_mem)
        self._parameters = ctypes.addressof(self._pointers)

    def run(self) -> None:
        """Launch with what is in the buffer. The caller holds the lock since it wrote there."""
        stream = self._current_stream().ptr
        (error,) = self._call(*self._before, stream, self._parameters, 0)
        if error:
            raise LaunchError(f"{self.name}: {explain(error, self.dimensions)}")

    def repeat(
        self, arrays: Sequence[Address], numbers: Sequence[tuple[Callable, int]], kept: Any
    ) -> Callable[[tuple], None]:
        """A function of values: it writes the addresses of arrays among them, and numbers by their
        writers, and launches. kept: what the rest of the buffer refers to."""
        buffer, lock, current_stream = self.buffer, self.lock, self._current_stream
        call, before, parameters = self._call, self._before, self._parameters

        def launch(values: tuple) -> None:
            with lock:
                for word, i, offset in arrays:
                    buffer[word] = values[i].data.ptr + offset
                for write, i in numbers:
                    write(values[i])
                (error,) = call(*before, current_stream().ptr, parameters, 0)
            if error:
                raise LaunchError(f"{self.name}: {explain(error, self.dimensions)}")

        launch.kept = self, kept  # type: ignore[attr-defined]
        return launch

    def write(self, word: int, data: bytes) -> None:
        """Write a structure into the buffer."""
        ctypes.memmove(self._first + 8 * word, data, len(data))

    def mapper(self, word: int, bytes_of: Callable[[int], bytes], offset: int) -> Callable:
        """What writes the structure that `bytes_of` makes of the address `offset` bytes behind the
        first of an array."""
        return lambda value: self.write(word, bytes_of(value.data.ptr + offset))

    def writer(self, word: int, kind: str) -> Callable[[Any], None]:
        """What writes a number of a kind into the buffer: an integer, or a float of a dtype."""
        buffer = self.buffer
        if kind == "float16":
            return lambda value: buffer.__setitem__(word, int(np.float16(value).view(np.uint16)))
        if kind == "integer":
            return lambda value: buffer.__setitem__(word, int(value))
        number = ctypes.c_float if kind == "float32" else ctypes.c_double
        place = number.from_buffer(buffer, 8 * word)
        return lambda value: setattr(place, "value", value)


def explain(error: Any, dimensions: tuple) -> str:
    """What the driver says of a launch that it refused, and over what it was."""
    from cuda.bindings import driver

    _, text = driver.cuGetErrorString(error)
    where = f"a grid of {dimensions[:3]} blocks of {dimensions[3:]} threads"
    return f"the driver refused {where}: {error.name} ({(text or b'').decode()})"
