"""numba-cuda as a compiler to PTX on a machine without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from kernels.simt.backend.numba_frontend import CachedTyping
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
        from numba import cuda
    except ImportError as error:
        raise CompileError(NOT_INSTALLED) from error
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
        with cached_typing(flags):
            yield
    finally:
        module.get_current_device = real


@contextlib.contextmanager
def cached_typing(flags: tuple) -> Iterator[None]:
    """numba-cuda caches the signatures of operations per `flags`, as our own pipeline does: it then
    compiles a kernel with a fifth fewer steps."""
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.target_context.typing_context
    cuda_target._typingctx = CachedTyping(context, flags)
    try:
        yield
    finally:
        cuda_target._typingctx = context


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
