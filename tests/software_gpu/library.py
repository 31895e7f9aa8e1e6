"""The driver library: compiled by the C compiler into the cache folder, loaded with types."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

from kernels.support.cache import cache_folder

SOURCES = Path(__file__).parent / "driver"
FLAGS = (
    "-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-unused-parameter -fPIC -shared"
    " -fvisibility=hidden -lpthread"
).split()
# Arguments of 64 bits: ctypes passes a number as an int.
TYPES = {
    "cuMemAlloc": (c_void_p, c_size_t),
    "cuMemFreeAsync": (c_void_p, c_void_p),
    "cuPointerGetAttribute": (c_void_p, c_int, c_void_p),
    "cuStreamCreate": (c_void_p, c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuStreamIsCapturing": (c_void_p, c_void_p),
    "cuStreamBeginCapture": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, c_void_p),
    "cuGraphInstantiate": (c_void_p, c_void_p, c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphGetNodes": (c_void_p, c_void_p, c_void_p),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (c_void_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuCtxSetCurrent": (c_void_p,),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuModuleLoadData": (c_void_p, c_char_p),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuModuleGetGlobal": (c_void_p, c_void_p, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuLaunchCooperativeKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p),
    "cuGetErrorName": (c_int, c_void_p),
    "software_gpu_finish_stream": (c_void_p,),
    "cuMemcpyHtoD": (c_void_p, c_void_p, c_size_t),
    "cuMemcpyDtoH": (c_void_p, c_void_p, c_size_t),
    "cuMemcpyDtoHAsync": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemFree": (c_void_p,),
    "cuMemHostAlloc": (c_void_p, c_size_t, c_uint),
    "software_gpu_memory": (c_int, c_size_t),
}


def load(soname: str) -> ctypes.CDLL:
    """The library under a name by which later calls of dlopen find it. Raises RuntimeError without
    a C compiler."""
    library = ctypes.CDLL(str(compiled(soname)), mode=ctypes.RTLD_GLOBAL)
    for name, types in TYPES.items():
        getattr(library, name).argtypes = types
    library.software_gpu_launches.restype = ctypes.c_ulong
    library.software_gpu_waits.restype = ctypes.c_ulong
    return library


def compiled(soname: str) -> Path:
    """The library's file."""
    files = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(" ".join(FLAGS).encode() + b"".join(f.read_bytes() for f in files))
    folder = cache_folder() / "software_gpu" / digest.hexdigest()[:16]
    made = folder / soname
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            path = Path(temporary) / soname
            _compile([f for f in files if f.suffix == ".c"], path)
            os.replace(path, made)  # another process may do the same
    return made


def _compile(files: list[Path], path: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise RuntimeError("the software GPU needs a C compiler: install gcc, or set CC")
    command = [compiler, *map(str, files), *FLAGS, f"-Wl,-soname,{path.name}", "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
