# ruff: noqa: F401
"""The namespace of `numba.cuda`, always able to run kernels on the CPU.

    from kernels.simt import cuda

    @cuda.jit
    def double(x): ...
    double[blocks, threads](array)

Importing it is quick: Numba is loaded by the first name that needs it (a type such as
`cuda.float32`) or by the first launch. `kernels.cuda` is this module where there is no GPU.
"""

from __future__ import annotations

from typing import Any

from kernels.simt.api.inspection import compile_ptx, compile_ptx_for_current_device
from kernels.simt.api.launch import jit
from kernels.simt.device.arrays import (
    CudaAPIError,
    DeviceNDArray,
    In,
    InOut,
    Out,
    as_cuda_array,
    device_array,
    device_array_like,
    from_cuda_array_interface,
    is_cuda_array,
    managed_array,
    mapped,
    mapped_array,
    mapped_array_like,
    pinned,
    pinned_array,
    pinned_array_like,
    to_device,
)
from kernels.simt.device.context import (
    Event,
    Stream,
    close,
    cuda_error,
    current_context,
    default_stream,
    defer_cleanup,
    detect,
    event,
    event_elapsed_time,
    external_stream,
    get_current_device,
    gpus,
    is_available,
    is_bfloat16_supported,
    is_float16_supported,
    is_fp8_supported,
    is_supported_version,
    legacy_default_stream,
    list_devices,
    per_thread_default_stream,
    profile_start,
    profile_stop,
    profiling,
    require_context,
    select_device,
    stream,
    synchronize,
)
from kernels.simt.ir import stubs
from kernels.simt.ir.stubs import (
    activemask,
    all_sync,
    any_sync,
    atomic,
    ballot_sync,
    blockDim,
    blockIdx,
    brev,
    cbrt,
    cg,
    clz,
    const,
    eq_sync,
    ffs,
    fma,
    fp16,
    grid,
    gridDim,
    gridsize,
    laneid,
    lanemask_lt,
    libdevice,
    local,
    match_all_sync,
    match_any_sync,
    nanosleep,
    popc,
    selp,
    shared,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    syncthreads,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    syncwarp,
    threadfence,
    threadfence_block,
    threadfence_system,
    threadIdx,
    warpsize,
)

globals().update(stubs.CACHE_HINTS, **stubs.VECTOR_TYPES)

# names from a module that loads Numba, and that module
_LAZY = {
    "Reduce": "kernels.simt.api.reduce",
    "reduce": "kernels.simt.api.reduce",
    "vectorize": "kernels.simt.api.vectorize",
    "guvectorize": "kernels.simt.api.vectorize",
    "bfloat16": "kernels.simt.devlib.half",
    "types": "numba",
    "runtime": "kernels.simt.device.cudadrv",
    "CudaSupportError": "kernels.simt.device.cudadrv",
    "literally": "numba",
    "literal_unroll": "numba",
}
# modules of the namespace
_MODULES = {
    "random": "kernels.simt.api.xoroshiro",
    "testing": "kernels.simt.api.testing",
    "bf16": "kernels.simt.api.bf16",
    "extending": "kernels.simt.api.extending",
    "vectorizers": "kernels.simt.api.vectorize",
    **dict.fromkeys(("cudadrv", "devicearray", "devices", "driver"), "kernels.simt.device.cudadrv"),
    # what extensions of numba-cuda build on
    **dict.fromkeys(("cudadecl", "cudaimpl", "models"), "kernels.simt.backend.registries"),
    **{name: f"numba.core.{name}" for name in ("cgutils", "datamodel", "typing")},
    "core": "numba.core",
}
# what only makes sense with NVIDIA's compiler and driver, and what to do instead
_ABSENT = {
    "declare_device": "a foreign device function is machine code for a GPU; write it in Python",
    "compile": "use kernel.ptx(signature, cc=...) of a cuda.jit kernel",
    "compile_for_current_device": "use kernel.ptx(signature, cc=...) of a cuda.jit kernel",
    "open_ipc_array": "there is no device memory to share; use multiprocessing.shared_memory",
    "set_memory_manager": "device memory is NumPy's here",
    **dict.fromkeys(
        ("Archive", "CUSource", "Cubin", "Fatbin", "LTOIR", "LinkableCode", "PTXSource"),
        "code to link is machine code for a GPU; write the function in Python",
    ),
    **dict.fromkeys(
        ("BaseCUDAMemoryManager", "HostOnlyCUDAMemoryManager", "GetIpcHandleMixin"),
        "device memory is NumPy's here",
    ),
    "compile_all": "use kernel.ptx(signature, cc=...) of a cuda.jit kernel",
}


def _near(name: str) -> str:
    """What may have been meant by a name that is not there."""
    import difflib

    if hasattr(libdevice, name):
        return f"it has cuda.libdevice.{name}"
    known = [known for known in (*globals(), *_LAZY, *_MODULES) if known[0] != "_"]
    nearest = difflib.get_close_matches(name, known, 1)
    return f"did you mean cuda.{nearest[0]}?" if nearest else "numba.cuda documents what it has"


def __getattr__(name: str) -> Any:
    if name in _LAZY or name in _MODULES:
        import importlib

        module = importlib.import_module(_MODULES.get(name) or _LAZY[name])
        value = module if name in _MODULES else getattr(module, name)
    elif name in _ABSENT:
        raise AttributeError(f"cuda.{name} needs a GPU's toolchain: {_ABSENT[name]}")
    elif name.startswith("_"):
        raise AttributeError(name)
    else:
        from numba import types

        value = getattr(types, name, None)
        if value is None:
            raise AttributeError(f"cuda has no {name!r}; {_near(name)}")
    globals()[name] = value
    return value
