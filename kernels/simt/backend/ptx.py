"""numba-cuda as a compiler to PTX on a machine without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from numba.core.types import BaseFunction

from kernels.simt.backend.numba_frontend import CachedTyping, are_cacheable
from kernels.support import nvidia
from kernels.support.errors import CompileError

# numba-cuda's own code asks for the compute capability in two places: for atomic additions of
# doubles (6.0) and the approximate tanh (7.5). From there on only libNVVM heeds it.
SAME_LOWERING = (7, 5)
NOT_INSTALLED = (
    "numba-cuda is not installed; install the extra `cuda13` (or `cuda12`) of this project"
)


def numba_cuda() -> ModuleType:
    """`numba.cuda`; an error that says what to install where it is missing."""
    try:
        cuda = nvidia.numba_cuda()
    except ImportError as error:
        raise CompileError(NOT_INSTALLED) from error
    if cuda.__name__.startswith("kernels."):
        raise CompileError(
            "numba.cuda is minigrad's in this process, so PTX cannot be made; ask for it in one"
            " without kernels.install() and `minigrad run`, of kernels written with"
            " `from kernels import cuda`"
        )
    return cuda


def library(
    function: FunctionType,
    signature: Any,
    cc: tuple[int, int],
    lineinfo: bool,
    fastmath: bool,
    launch_bounds: Any,
) -> Any:
    """A kernel as numba-cuda's code library, of which libNVVM makes PTX for `cc` and above."""
    numba_cuda()
    try:
        from numba.cuda.compiler import _compile_pyfunc_with_fixup
    except ImportError as error:  # the CUDA target that Numba itself came with
        raise CompileError(NOT_INSTALLED) from error

    with compiling_for(cc, (cc, lineinfo, fastmath)):
        made, _ = _compile_pyfunc_with_fixup(
            function, signature, cc=cc, device=False, abi="numba", lineinfo=lineinfo,
            fastmath=fastmath, launch_bounds=launch_bounds,
        )  # fmt: skip
    return made


@contextlib.contextmanager
def compiling_for(cc: tuple[int, int], flags: tuple) -> Iterator[None]:
    """numba-cuda types device functions for the current GPU; here for capability `cc`."""
    from numba.cuda import dispatcher as module

    class Device:
        compute_capability = cc

    real, module.get_current_device = module.get_current_device, Device
    try:
        with fewer_steps(flags):
            yield
    finally:
        module.get_current_device = real


@contextlib.contextmanager
def fewer_steps(flags: tuple) -> Iterator[None]:
    """numba-cuda compiles in three quarters of its time, to the same code.

    It caches the signatures of operations per `flags`, as our own pipeline does. So it does when it
    lowers them, where it types each operation up to four times more. And it computes where each
    variable is last used when something asks for that, not after each of its passes.
    """
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.core.postproc import PostProcessor, VariableLifetime
    from numba.cuda.core.transforms import canonicalize_cfg
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.target_context.typing_context
    functions: Any = BaseFunction
    run, call_type = PostProcessor.run, functions.get_call_type

    def run_late(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        if emit_dels or self.func_ir.is_generator:
            return run(self, emit_dels, extend_lifetimes)
        self.func_ir.blocks = canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = VariableLifetime(self.func_ir.blocks)  # computes on demand
        self.func_ir.generator_info = None
        return None

    def cached_call_type(self: Any, asking: Any, args: tuple, kws: dict) -> Any:
        if asking is not context or kws or not are_cacheable(args):
            return call_type(self, asking, args, kws)
        key = flags, self, tuple(args)
        if key not in _call_types:
            _call_types[key] = call_type(self, asking, args, kws)
        return _call_types[key]

    with global_compiler_lock:  # nothing else compiles meanwhile
        cuda_target._typingctx = CachedTyping(context, flags)
        PostProcessor.run, functions.get_call_type = run_late, cached_call_type
        try:
            yield
        finally:
            PostProcessor.run, functions.get_call_type = run, call_type
            cuda_target._typingctx = context


_call_types: dict[tuple, Any] = {}  # the signatures of numba-cuda's functions for their arguments


@contextlib.contextmanager
def loading_later() -> Iterator[None]:
    """numba-cuda loads a kernel into the driver as soon as it is compiled; here, when it launches
    it, if it ever does."""
    from numba.cuda.dispatcher import _Kernel

    bind, _Kernel.bind = _Kernel.bind, lambda self: None
    try:
        yield
    finally:
        _Kernel.bind = bind
