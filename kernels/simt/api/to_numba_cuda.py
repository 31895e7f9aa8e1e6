"""The same kernel for numba-cuda: to launch on a GPU, or to compile to PTX without one.

A kernel names our stubs (`cuda.threadIdx`, a device function made by our `jit`). Its function is
copied with those names bound to numba-cuda's own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from kernels.simt.devlib import half
from kernels.simt.frontend import resolve
from kernels.simt.frontend.resolve import DYNAMIC
from kernels.simt.ir import stubs
from kernels.support.errors import CompileError

# numba-cuda's own code asks for the compute capability in two places: for atomic additions of
# doubles (6.0) and the approximate tanh (7.5). From there on only libNVVM heeds it.
SAME_LOWERING = (7, 5)
NOT_INSTALLED = (
    "numba-cuda is not installed; install the extra `cuda13` (or `cuda12`) of this project"
)


def _numba_cuda() -> ModuleType:
    try:
        from numba import cuda
    except ImportError as error:
        raise CompileError(NOT_INSTALLED) from error
    return cuda


def dispatcher(kernel: Any) -> Any:
    """numba-cuda's dispatcher for `kernel`."""
    return _rebinder(None).kernel(kernel)


@functools.cache
def _rebinder(cc: tuple[int, int] | None) -> _Rebinder:
    """The one for a capability (None: that of the GPU): device functions are compiled for it."""
    return _Rebinder()


class _Rebinder:
    def __init__(self) -> None:
        self.cuda = _numba_cuda()
        self.made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def kernel(self, kernel: Any) -> Any:
        if kernel not in self.made:
            options = dict(kernel.gpu_options)
            options |= {"device": kernel.device, "fastmath": kernel.fastmath}
            if kernel.debug:
                options |= {"debug": True, "opt": False}
            function, bind = self.copied(kernel.py_func)
            arguments = () if kernel.signature is None or kernel.device else (kernel.signature,)
            if arguments:  # an explicit signature compiles at once
                bind()
            self.made[kernel] = self.cuda.jit(*arguments, **options)(function)
            bind()
        return self.made[kernel]

    def function(self, func: FunctionType) -> FunctionType:
        """A copy of `func` whose globals and closure are numba-cuda's."""
        copy, bind = self.copied(func)
        bind()
        return copy

    def copied(self, func: FunctionType) -> tuple[FunctionType, Callable[[], None]]:
        """A copy of `func`, and what binds its names (later: a function may call itself)."""
        scope = dict(func.__globals__)
        free = resolve.free_variables(func)
        names = func.__code__.co_freevars
        cells = tuple(CellType(free[n]) if n in free else CellType() for n in names)
        copy = FunctionType(
            func.__code__, scope, func.__name__, func.__defaults__, cells if names else None
        )
        copy.__kwdefaults__, copy.__module__ = func.__kwdefaults__, func.__module__
        copy.__qualname__, copy.__doc__ = func.__qualname__, func.__doc__

        def bind() -> None:
            for name in _names_in(func.__code__) & set(scope):
                scope[name] = self.value(scope[name])
            for name, cell in zip(names, cells):
                if name in free:
                    cell.cell_contents = self.value(free[name])

        return copy, bind

    def value(self, value: Any) -> Any:
        """numba-cuda's counterpart of an object of ours; other objects unchanged."""
        from kernels.simt.api.launch import Kernel

        if isinstance(value, Kernel):
            return self.kernel(value)
        if isinstance(value, ModuleType) and value.__name__.startswith("kernels"):
            if value.__name__ in ("kernels.simt.cuda", "kernels.simt.ir.stubs"):
                return self.cuda
            return value
        if isinstance(value, stubs.Namespace):
            return self._attribute(value.name)
        if isinstance(value, stubs.Stub):
            return self._attribute(value.name)
        if value is half.bfloat16:
            return self.cuda.types.bfloat16
        if value is half.float16:
            return self.cuda.types.float16
        return value

    def _attribute(self, name: str) -> Any:
        found: Any = self.cuda
        for part in name.split("."):
            found = getattr(found, part, DYNAMIC)
            if found is DYNAMIC:
                raise CompileError(f"numba-cuda {self.cuda.__version__} has no cuda.{name}")
        return found


def _names_in(code: Any) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= _names_in(constant)
    return found


@contextlib.contextmanager
def _compiling(cc: tuple[int, int], flags: tuple) -> Iterator[None]:
    """numba-cuda types device functions for the current GPU; without one, for capability `cc`.
    What it has typed it remembers (for the same `flags`), as our own front end does."""
    from numba.cuda import dispatcher as module
    from numba.cuda.descriptor import cuda_target

    from kernels.simt.backend.numba_frontend import Remembering

    class Device:
        compute_capability = cc

    real, context = module.get_current_device, cuda_target.target_context.typing_context
    module.get_current_device, cuda_target._typingctx = Device, Remembering(context, flags)
    try:
        yield
    finally:
        module.get_current_device, cuda_target._typingctx = real, context


def ptx(kernel: Any, signature: Any, cc: tuple[int, int], lineinfo: bool = False) -> str:
    """PTX of `kernel`, ours or numba-cuda's own, for compute capability `cc`; `signature` as
    numba-cuda takes it."""
    return _library(kernel, signature, min(cc, SAME_LOWERING), lineinfo).get_asm_str(cc=cc)


@functools.lru_cache(maxsize=8)
def _library(kernel: Any, signature: Any, cc: tuple[int, int], lineinfo: bool) -> Any:
    """`kernel` as numba-cuda's code library, of which libNVVM makes PTX for `cc` and above."""
    _numba_cuda()
    try:
        from numba.cuda.compiler import _compile_pyfunc_with_fixup
    except ImportError as error:  # the CUDA target that Numba itself came with
        raise CompileError(NOT_INSTALLED) from error

    options = getattr(kernel, "targetoptions", None)
    function = kernel.py_func if options else _rebinder(cc).function(kernel.py_func)
    options = options or {**kernel.gpu_options, "fastmath": kernel.fastmath}
    fastmath = bool(options.get("fastmath"))
    with _compiling(cc, (cc, lineinfo, fastmath)):
        library, _ = _compile_pyfunc_with_fixup(
            function, signature, cc=cc, device=False, abi="numba", lineinfo=lineinfo,
            fastmath=fastmath, launch_bounds=options.get("launch_bounds"),
        )  # fmt: skip
    return library
