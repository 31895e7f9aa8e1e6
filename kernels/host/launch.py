"""`raw_kernel` and `raw_module`: CUDA C as callables, on a GPU through CuPy, else on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.support import forks, launches
from kernels.support.errors import ArgumentError, CompileError
from kernels.support.memory import is_on_gpu

from . import compiler, source
from .gpu_module import GpuModule
from .library import Library, settings
from .on_gpu import OnGpu


def raw_kernel(
    code: str,
    name: str,
    options: tuple[str, ...] = (),
    *,
    enable_cooperative_groups: bool = False,
    debug: bool | None = None,
) -> RawKernel:
    """The kernel `name` of the CUDA C source `code`, launched as `k(grid, block, args)`.

    `name` may name an instance of a template (`"scale<float, 4>"`) or a kernel in a namespace.
    `options` are NVRTC's (`-DN=4`, `-Ifolder`, `--use_fast_math`). With NumPy arrays the source is
    compiled by the machine's C++ compiler and runs on the CPU; with CuPy arrays on their GPU.
    `enable_cooperative_groups` lets `this_grid().sync()` work: all blocks run at once.
    On the CPU each access is checked: an index outside of its array or variable is a
    KernelIndexError that names the array, the thread and the line. `debug=False` (or
    MINIGRAD_CUDA_DEBUG=0) compiles without the checks: faster, but a wrong index may corrupt or
    end the Python process. On a GPU, `debug=True` only tells compute-sanitizer the lines.
    Nothing is compiled before the first launch (or `compile()`). On the CPU the threads of a block
    run one at a time from the first on; MINIGRAD_THREAD_ORDER=reversed starts with the last, which
    shows many missing barriers. What a shuffle reads from a lane that is not there, and shared
    memory that nothing has written, is poison: NaN as a float, -1 as an integer.

        k = raw_kernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }',
                       "twice")
        k((1,), (32,), (np.ones(32, np.float32),))
    """
    module = RawModule(code, options, (name,), cooperative=enable_cooperative_groups, debug=debug)
    return module.get_function(name)


def raw_module(
    code: str,
    options: tuple[str, ...] = (),
    name_expressions: tuple[str, ...] = (),
    *,
    enable_cooperative_groups: bool = False,
    debug: bool | None = None,
) -> RawModule:
    """The kernels of a CUDA C source that share its variables, like `cupy.RawModule`.

    `name_expressions` are the instances of templates to compile (`"scale<float, 4>"`); all other
    kernels are there by name. `get_global` gives the memory of a `__constant__` or `__device__`
    variable, here as bytes of an array where CuPy has a pointer.

        m = raw_module("__constant__ float w[2]; __global__ void k(float* x) { *x = w[1]; }")
        np.ndarray((2,), np.float32, m.get_global("w"))[:] = 3, 4
        m.get_function("k")((1,), (1,), (x,))
    """
    plain = tuple(n for n in source.plain_kernels(code) if n not in name_expressions)
    names, variables = (*name_expressions, *plain), tuple(source.variables(code))
    return RawModule(
        code, options, names, variables, cooperative=enable_cooperative_groups, debug=debug
    )


class RawModule:
    """Kernels and variables of CUDA C source; see `raw_module`.

    checked_by_default: False for sources that tests check, such as those of this project.
    """

    def __init__(
        self,
        code: str,
        options: tuple[str, ...],
        names: tuple[str, ...],
        variables: tuple[str, ...] = (),
        cooperative: bool = False,
        debug: bool | None = None,
        checked_by_default: bool = True,
    ) -> None:
        if isinstance(options, str):
            raise TypeError(f"options is a tuple of strings, not the string {options!r}")
        self.code, self.options, self.cooperative = code, tuple(options), cooperative
        self.debug, self.checked_by_default = debug, checked_by_default
        self._names, self._variables = names, variables
        self._lock = forks.lock()
        self._on_cpu: dict[str, Library] = {}
        self._on_gpu: dict[str, GpuModule] = {}  # by compute capability

    @property
    def mode(self) -> str:
        """How kernels are compiled for the CPU now: plain or checked."""
        debug = self._asked()
        debug = self.checked_by_default if debug is None else debug
        return compiler.CHECKED if debug else compiler.PLAIN

    def _asked(self) -> bool | None:
        """Whether the caller or MINIGRAD_CUDA_DEBUG asks for checks; None: neither says."""
        setting = settings.get(b"MINIGRAD_CUDA_DEBUG", b"")
        return self.debug if self.debug is not None or not setting else setting != b"0"

    def get_function(self, name: str) -> RawKernel:
        """The kernel `name`. Raises CompileError where the source has none such."""
        if name not in self._names:
            listed = ", ".join(self._names) or "none"
            raise CompileError(
                f"the module has no kernel {name!r}; it has {listed} (instances of templates must"
                " be in name_expressions)"
            )
        return RawKernel(self, name)

    def get_global(self, name: str, device: str | None = None) -> Any:
        """The memory of a variable: bytes of a NumPy array on the CPU, CuPy's pointer on a GPU.

        `device` is "cpu" or "cuda"; None means a GPU where CuPy finds one.
        """
        if name not in self._variables:
            listed = ", ".join(self._variables) or "none"
            raise CompileError(f"the source has no variable {name!r}; it has {listed}")
        if device == "cuda" or (device is None and _has_gpu()):
            return self.on_gpu().get_global(name)
        return self.on_cpu().variable(name)

    def compile(self) -> None:
        """Compile for the CPU now. Raises CompileError with the compiler's messages."""
        self.on_cpu()

    def on_cpu(self, mode: str | None = None) -> Library:
        """The module as a library for the CPU, compiled at the first call."""
        mode = mode or self.mode
        with self._lock:
            if mode not in self._on_cpu:
                self._on_cpu[mode] = Library(
                    self.code, self._names, self._variables, self.options, mode
                )
            return self._on_cpu[mode]

    def compiled_for_cpu(self) -> Library | None:
        """The library that launches use, or None where there was none so far."""
        return self._on_cpu.get(self.mode)

    def on_gpu(self, capability: str | None = None) -> GpuModule:
        """The module for GPUs of a compute capability ("80"; None: the current device's)."""
        capability = capability or _capability()
        with self._lock:
            if capability not in self._on_gpu:
                options = self.options
                if self._asked():
                    warnings.warn(_UNCHECKED, stacklevel=3)
                    options += ("-lineinfo",)
                self._on_gpu[capability] = GpuModule(
                    self.code, options, self._names, capability, self.cooperative
                )
            return self._on_gpu[capability]


_UNCHECKED = (
    "CUDA C is not checked on a GPU: run the program under compute-sanitizer, which names lines,"
    " or pass NumPy arrays, on which every access is checked"
)
_ON_CPU = frozenset((np.ndarray, int, float, bool, np.float32, np.int32))


def _capability() -> str:
    """The compute capability of CuPy's current device."""
    import cupy

    return cupy.cuda.Device().compute_capability


def _has_gpu() -> bool:
    try:
        import cupy

        # Those of kernels.install() are on the CPU.
        return cupy.cuda.is_available() and not hasattr(cupy.ndarray, "__host_memory__")
    except ImportError:
        return False


class RawKernel:
    """A kernel of CUDA C source; see `raw_kernel`."""

    def __init__(self, module: RawModule, name: str) -> None:
        self.module, self.name = module, name
        self.code, self.options = module.code, module.options
        self._launchers: dict[tuple, Callable[[Sequence], None]] = {}
        self._on_gpu: dict[str, OnGpu] = {}  # by compute capability

    def __repr__(self) -> str:
        return f"<raw_kernel {self.name}>"

    def __call__(self, grid: Any, block: Any, args: tuple, *, shared_mem: int = 0) -> None:
        """Launch over `grid` blocks of `block` threads (tuples of 1 to 3 numbers) and wait.

        `shared_mem` is the number of bytes of dynamic shared memory (`extern __shared__`).
        """
        if not isinstance(args, tuple | list):
            raise ArgumentError(f"{self.name}: args is a tuple of arguments, not {type(args)}")
        for arg in args:
            if type(arg) not in _ON_CPU and is_on_gpu(arg):
                return self.on_gpu().launch(grid, block, args, shared_mem)
        if launches.watcher is not None and launches.watcher(self, grid, block, shared_mem, args):
            return None
        self.on_cpu(grid, block, shared_mem)(args)

    def compile(self) -> None:
        """Compile for the CPU now. Raises CompileError with the compiler's messages."""
        self.module.compile()

    def number_types(self) -> list[tuple[str, str] | None]:
        """(name, NumPy's name of the type) of each parameter that is a number, else None."""
        return self.module.on_cpu().kernel(self.name).pack.number_types()

    def most_threads(self) -> int:
        """How many threads a block may have, by `__launch_bounds__`."""
        return self.module.on_cpu().kernel(self.name).most

    def on_cpu(self, grid: Any, block: Any, shared_mem: int = 0) -> Callable[[Sequence], None]:
        """What launches the kernel on NumPy arrays over these dimensions."""
        module = self.module
        key = (module.mode, grid, block, shared_mem)
        try:
            found = self._launchers.get(key)
        except TypeError:  # lists
            found = None
        if found is None:
            compiled = module.on_cpu().kernel(self.name)
            found = compiled.configure(grid, block, shared_mem, module.cooperative)
            if isinstance(grid, tuple) and isinstance(block, tuple):
                if len(self._launchers) > 1000:
                    self._launchers.clear()
                self._launchers[key] = found
        return found

    def on_gpu(self) -> OnGpu:
        """The kernel for CuPy arrays on the current device."""
        capability = _capability()
        if capability not in self._on_gpu:
            function = self.module.on_gpu(capability).get_function(self.name)
            self._on_gpu[capability] = OnGpu(self.name, self.code, function)
        return self._on_gpu[capability]
