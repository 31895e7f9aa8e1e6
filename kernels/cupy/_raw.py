"""`cupy.RawKernel` and `cupy.RawModule`: CUDA C on device arrays.

`compile_module` is where a source becomes kernels. On a CPU that is `kernels.host`; a device with
code of its own (a software GPU) replaces it: what it returns has `get_function(name)`, which is
called as f(grid, block, args, shared_mem=) with NumPy arrays, numbers and None, and
`get_global(name, "cpu")`, the bytes of a variable as a NumPy array. `load_module` does the same for
a file of compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels import host
from kernels.support.errors import CompileError, LaunchError

from ._array import ndarray, operand
from ._memory import MemoryPointer, UnownedMemory
from .cuda.compiler import CompileException
from .cuda.driver import CUDADriverError


class LaunchRefused(CUDADriverError, LaunchError):
    """A launch that the hardware would refuse."""


def _on_host(
    code: str, options: tuple[str, ...], name_expressions: tuple[str, ...], cooperative: bool
) -> Any:
    return host.raw_module(code, options, name_expressions, enable_cooperative_groups=cooperative)


def _not_on_host(path: str, cooperative: bool) -> Any:
    raise NotImplementedError(
        f"RawModule: {path} holds code for a GPU, which a CPU cannot run; pass code="
    )


#: compile_module(code, options, name_expressions, cooperative), see above
compile_module: Callable[[str, tuple, tuple, bool], Any] = _on_host
#: load_module(path, cooperative)
load_module: Callable[[str, bool], Any] = _not_on_host


class RawKernel:
    """The kernel `name` of CUDA C source: `kernel(grid, block, args, shared_mem=0)`.

    Numbers are passed as CuPy passes them: a Python int as 8 bytes, a Python float as a double.
    One whose type is not the parameter's raises TypeError, where a GPU would read garbage.
    Raises cupy.cuda.compiler.CompileException for source that does not compile.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        module = RawModule(
            code=code,
            options=options,
            backend=backend,
            translate_cucomplex=translate_cucomplex,
            enable_cooperative_groups=enable_cooperative_groups,
            jitify=jitify,
            name_expressions=(name,) if "<" in name else None,
        )
        self._init(module, name)

    def _init(self, module: RawModule, name: str) -> None:
        self.module, self.name = module, name
        self.code, self.options, self.backend = module.code, module.options, module.backend
        self.enable_cooperative_groups = module.enable_cooperative_groups
        self._function = self._types = None
        self._dynamic = 48 * 1024

    @classmethod
    def _of(cls, module: RawModule, name: str) -> RawKernel:
        made = cls.__new__(cls)
        made._init(module, name)
        return made

    @property
    def file_path(self) -> None:
        return None

    @property
    def kernel(self) -> Any:
        """The compiled kernel."""
        if self._function is None:
            self._function = self.module._compiled(lambda m: m.get_function(self.name))
        return self._function

    def compile(self, log_stream: Any = None) -> None:
        """Compile now."""
        self.module._compiled(lambda m: m.get_function(self.name).compile())

    def __call__(self, grid: tuple, block: tuple, args: tuple, *, shared_mem: int = 0) -> None:
        """Launch over `grid` blocks of `block` threads."""
        if not isinstance(args, tuple | list):
            raise TypeError(f"{self.name}: args must be a tuple, not {type(args).__name__}")
        if shared_mem > self._dynamic:
            raise LaunchRefused(
                f"CUDA_ERROR_INVALID_VALUE: {self.name}: {shared_mem} bytes of dynamic shared"
                f" memory; set kernel.max_dynamic_shared_size_bytes = {shared_mem} first"
            )
        values = tuple(argument(self.name, i, value) for i, value in enumerate(args))
        kernel = self.kernel
        try:
            if self._types is None:
                self._types = getattr(kernel, "number_types", list)()
            check_numbers(self.name, self._types, values)
            kernel(_three(grid), _three(block), values, shared_mem=shared_mem)
        except CompileError as error:
            raise self.module._explained(error) from None
        except LaunchError as error:
            if isinstance(error, TypeError):
                raise
            raise LaunchRefused(f"CUDA_ERROR_INVALID_VALUE: {error}") from None

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self._dynamic

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        if size > 163 * 1024:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: at most 166912 bytes")
        self._dynamic = max(self._dynamic, int(size))

    preferred_shared_memory_carveout = -1
    const_size_bytes = local_size_bytes = 0
    binary_version = ptx_version = 80
    cache_mode_ca = 0

    @property
    def max_threads_per_block(self) -> int:
        """1024, or what `__launch_bounds__` says."""
        try:
            return getattr(self.kernel, "most_threads", lambda: 1024)()
        except CompileError as error:
            raise self.module._explained(error) from None

    @property
    def attributes(self) -> dict[str, int]:
        """What is known of the kernel without a GPU's compiler."""
        return {
            "max_threads_per_block": self.max_threads_per_block,
            "max_dynamic_shared_size_bytes": self._dynamic,
            "ptx_version": self.ptx_version,
            "binary_version": self.binary_version,
        }

    def __getattr__(self, name: str) -> Any:
        if name in ("num_regs", "shared_size_bytes"):
            raise AttributeError(
                f"{name}: a GPU's compiler would tell; kernels.lab.compiled(kernel) asks NVIDIA's"
            )
        raise AttributeError(f"'RawKernel' object has no attribute {name!r}")


def _three(sizes: Any) -> tuple[int, ...]:
    return tuple(map(int, sizes)) if isinstance(sizes, tuple | list) else (int(sizes),)


def argument(name: str, index: int, value: Any) -> Any:
    """A kernel's argument for `compile_module`'s kernels: the memory of arrays, typed numbers."""
    if isinstance(value, ndarray):
        return value._array if value._array.flags.c_contiguous else _span(value._array)
    if isinstance(value, MemoryPointer):
        return _bytes_at(value)
    if value is None or isinstance(value, np.generic):
        return value
    if type(value) in _PASSED_AS:
        return _PASSED_AS[type(value)](value)
    if isinstance(value, np.ndarray):
        if value.size == 1:
            return value.reshape(()) if value.dtype.names is None else value
        raise TypeError(
            f"You are trying to pass a numpy.ndarray of shape {value.shape} as a kernel parameter."
            f" Only numpy.ndarrays of size one can be passed by value: {name}, argument"
            f" {index + 1}; pass cupy.asarray(array)"
        )
    if hasattr(value, "__cuda_array_interface__"):
        return operand(value)
    raise TypeError(f"Unsupported type {type(value)}")


def check_numbers(name: str, types: list[tuple[str, str] | None], values: tuple) -> None:
    """Raise TypeError for a number that a GPU would read as another one.

    The bytes of a number are copied to the parameter: a wider integer gives its low bytes, and
    everything else of another type is garbage.
    """
    for i, (wanted, value) in enumerate(zip(types, values)):
        if wanted is None or not isinstance(value, np.generic):
            continue
        parameter, type_name = wanted
        dtype = np.dtype(type_name)
        if value.dtype == dtype:
            continue
        integers = value.dtype.kind in "iub" and dtype.kind in "iub"
        if not integers or value.dtype.itemsize < dtype.itemsize:
            raise TypeError(
                f"{name}: argument {i + 1} ({parameter}) is of type {type_name}, but CuPy passes"
                f" the bytes of a {value.dtype}; pass cupy.{type_name}({value!s})"
            )


_PASSED_AS = {int: np.int64, float: np.float64, bool: np.bool_, complex: np.complex128}


def _bytes_at(pointer: MemoryPointer) -> np.ndarray:
    from ._memory import array_at

    size = pointer.mem.size - (pointer.ptr - pointer.mem.ptr)
    return array_at(pointer, size, np.uint8)


def _span(array: np.ndarray) -> np.ndarray:
    """The memory from the first element to the last of a strided array: a kernel gets a pointer."""
    if array.flags.f_contiguous or not array.size:
        return array.T
    count = sum((n - 1) * s for n, s in zip(array.shape, array.strides) if s > 0) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (count + 1,), (array.itemsize,))


class RawModule:
    """Kernels and variables of one CUDA C source; see `RawKernel`."""

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if isinstance(options, str):
            raise TypeError(f"options is a tuple of strings, not the string {options!r}")
        if backend not in ("nvrtc", "nvcc"):
            raise ValueError(f"Invalid backend: {backend}")
        self.code, self.options, self.backend = code, tuple(options), backend
        self.enable_cooperative_groups = bool(enable_cooperative_groups)
        self.name_expressions = tuple(name_expressions) if name_expressions is not None else None
        self.file_path = path
        self._module = None if path is None else load_module(path, self.enable_cooperative_groups)

    def _compiled(self, use: Callable[[Any], Any]) -> Any:
        """use(module); CUDA C that does not compile raises CompileException."""
        try:
            if self._module is None:
                names = self.name_expressions or ()
                self._module = compile_module(
                    self.code, self.options, names, self.enable_cooperative_groups
                )
            return use(self._module)
        except CompileError as error:
            raise self._explained(error) from None

    def _explained(self, error: CompileError) -> CompileException:
        return CompileException(str(error), self.code, "module.cu", self.options, self.backend)

    def compile(self, log_stream: Any = None) -> None:
        """Compile now."""
        self._compiled(lambda module: module.compile())

    @property
    def module(self) -> Any:
        return self._compiled(lambda module: module)

    def get_function(self, name: str) -> RawKernel:
        """The kernel `name`, or an instance of a template in `name_expressions`."""
        kernel = RawKernel._of(self, name)
        self._compiled(lambda module: module.get_function(name))
        return kernel

    def get_global(self, name: str) -> MemoryPointer:
        """A pointer to a `__device__` or `__constant__` variable."""
        memory = self._compiled(lambda module: module.get_global(name, "cpu"))
        address = memory.__array_interface__["data"][0]
        return MemoryPointer(UnownedMemory(address, memory.nbytes, (self, memory)), 0)

    def get_texref(self, name: str) -> None:
        raise NotImplementedError("texture references are not on the CPU; index the array instead")
