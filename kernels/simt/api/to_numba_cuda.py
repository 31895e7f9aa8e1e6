"""Lowers a kernel of ours to numba-cuda: to launch it on a GPU, or to compile PTX without one.

A kernel names our stubs (`cuda.threadIdx`, a device function made by our `jit`). The function is
copied, and in the copy those names stand for numba-cuda's own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from kernels.simt.backend import ptx as ptx_backend
from kernels.simt.backend.inference import parsed
from kernels.simt.devlib import half
from kernels.simt.frontend import resolve
from kernels.simt.frontend.resolve import DYNAMIC
from kernels.simt.ir import stubs
from kernels.simt.ir.jitted import Jitted
from kernels.simt.ir.safety import Safety
from kernels.simt.transforms import gpu_source
from kernels.support.errors import CompileError

_MODULES = {
    "kernels.simt.api.bf16": "numba.cuda.bf16",
    "kernels.simt.api.xoroshiro": "numba.cuda.random",
}


def dispatcher(kernel: Any) -> Any:
    """numba-cuda's dispatcher for `kernel`."""
    return _lowering(None).kernel(kernel)


@functools.cache
def _lowering(cc: tuple[int, int] | None) -> _Lowering:
    """The lowering for a compute capability (None: the GPU's), with the functions lowered so far.

    numba-cuda compiles a device function once, for the capability of its first use."""
    return _Lowering()


class _Lowering:
    """Copies of functions that name numba-cuda where the originals name us."""

    def __init__(self) -> None:
        self.cuda = ptx_backend.numba_cuda()
        self.made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def kernel(self, kernel: Any) -> Any:
        checked = kernel.safety is Safety.DEBUG
        made = self.made.setdefault(kernel, {})  # by whether it is checked
        if checked not in made:
            options = dict(kernel.gpu_options)
            options |= {"device": kernel.device, "fastmath": kernel.fastmath}
            if checked:
                options |= {"debug": True, "opt": False}
            function, bind = self.copied(kernel.py_func if checked else optimised(kernel.py_func))
            arguments = () if kernel.device else tuple(filter(None, [parsed(kernel.signature)]))
            if arguments:  # an explicit signature compiles at once
                bind()
            made[checked] = self.cuda.jit(*arguments, **options)(function)
            bind()
        return made[checked]

    def function(self, func: FunctionType) -> FunctionType:
        """A copy of `func` whose globals and closure are numba-cuda's."""
        copy, bind = self.copied(optimised(func))
        bind()
        return copy

    def copied(self, func: FunctionType) -> tuple[FunctionType, Callable[[], None]]:
        """A copy of `func`, and what binds its names (later: `func` may be recursive)."""
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
        if isinstance(value, Jitted):
            return self.kernel(value)
        if isinstance(value, ModuleType) and value.__name__.startswith("kernels"):
            if value.__name__ in ("kernels.simt.cuda", "kernels.simt.ir.stubs"):
                return self.cuda
            theirs = _MODULES.get(value.__name__)
            return importlib.import_module(theirs) if theirs else value
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
        if name.startswith("bf16."):  # a module that numba.cuda does not import by itself
            importlib.import_module("numba.cuda.bf16")
        for part in name.split("."):
            found = getattr(found, part, DYNAMIC)
            if found is DYNAMIC:
                raise CompileError(f"numba-cuda {self.cuda.__version__} has no cuda.{name}")
        return found


def optimised(func: FunctionType) -> FunctionType:
    """The function as it is compiled for a GPU. This project's own kernels are rewritten; those of
    others are compiled as they are, so that the lab shows what numba-cuda makes of them."""
    return gpu_source.rewritten(func) if func.__module__.startswith("kernels.") else func


def _names_in(code: Any) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= _names_in(constant)
    return found


def ptx(kernel: Any, signature: Any, cc: tuple[int, int], lineinfo: bool = False) -> str:
    """PTX of `kernel`, ours or numba-cuda's own, for compute capability `cc`; `signature` as
    numba-cuda takes it."""
    return library(kernel, signature, cc, lineinfo).get_asm_str(cc=cc)


def library(kernel: Any, signature: Any, cc: tuple[int, int], lineinfo: bool = False) -> Any:
    """numba-cuda's code library of `kernel`, for compute capability `cc` and above."""
    return _library(kernel, signature, min(cc, ptx_backend.SAME_LOWERING), lineinfo)


def compile_ptx(function: Any, signature: Any, cc: tuple[int, int], options: dict) -> tuple:
    """numba-cuda's `compile_ptx` of a function that names us."""
    python = getattr(function, "py_func", function)
    lowering = _lowering(min(cc, ptx_backend.SAME_LOWERING))
    with ptx_backend.compiling_for(cc, (cc, *map(repr, options.items()))):
        return lowering.cuda.compile_ptx(
            lowering.function(python), parsed(signature), cc=cc, **options
        )


@functools.lru_cache(maxsize=8)
def _library(kernel: Any, signature: Any, cc: tuple[int, int], lineinfo: bool) -> Any:
    """`kernel` as numba-cuda's code library, of which libNVVM makes PTX for `cc` and above."""
    options = getattr(kernel, "targetoptions", None)
    function = kernel.py_func if options else _lowering(cc).function(kernel.py_func)
    options = options or {**kernel.gpu_options, "fastmath": kernel.fastmath}
    return ptx_backend.library(
        function,
        parsed(signature),
        cc,
        lineinfo=lineinfo,
        fastmath=bool(options.get("fastmath")),
        launch_bounds=options.get("launch_bounds"),
    )
