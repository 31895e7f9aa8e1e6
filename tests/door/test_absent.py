"""What a program asks for that is not there: each error names it, and what to do instead."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernels import door

pytestmark = pytest.mark.skipif(door.no_gpu() is None, reason="there is a GPU: nothing changes")

#: a program's statement, the error's type, what its text has
ASKED = [
    # a second device
    ("cp.cuda.Device(1).use()", "CUDARuntimeError", "device 1 does not exist; there is one"),
    ("cp.cuda.runtime.setDevice(1)", "CUDARuntimeError", "device 1 does not exist"),
    ("cuda.select_device(1)", "CudaAPIError", "device 1 does not exist; there is only device 0"),
    ("cuda.gpus[1]", "IndexError", "device 1 does not exist"),
    # peer access
    ("cp.cuda.runtime.deviceEnablePeerAccess(1)", "CUDARuntimeError", "there is one device"),
    ("cp.cuda.runtime.memcpyPeer(0, 0, 0, 1, 8)", "CUDARuntimeError", "use memcpy"),
    ("cuda.current_context().enable_peer_access(1)", "CudaAPIError", "keep all arrays on it"),
    # cuBLAS and other libraries
    ("cp.cuda.get_cublas_handle()", "CUDARuntimeError", "cupy.linalg"),
    ("cp.cuda.Device().cublas_handle", "CUDARuntimeError", "cupy.linalg"),
    ("from cupy.cuda import cublas; cublas.sgemm()", "ImportError", "use cupy.linalg"),
    ("import cupy.cuda.cublas; cupy.cuda.cublas.sgemm", "ImportError", "use cupy.linalg"),
    ("from cupy_backends.cuda.libs import cublas; cublas.create()", "ImportError", "cupy.linalg"),
    ("from cupy_backends.cuda.libs.cufft import C2C", "ImportError", "use cupy.fft"),
    ("from cupyx import cutensor; cutensor.contraction()", "ImportError", "use cupy.einsum"),
    ("from cupyx.distributed import init_process_group", "ImportError", "there is one device"),
    ("from cupy.cuda.texture import TextureObject", "ImportError", "index the array"),
    ("cp.cuda.nccl.NcclCommunicator(2, 0, 0)", "ImportError", "NCCL has nobody to talk to"),
    # other things of a GPU
    ("cp.cuda.Stream(non_blocking=True).begin_capture()", "CUDARuntimeError", "the work itself"),
    ("cp.cuda.runtime.ipcGetMemHandle(0)", "CUDARuntimeError", "multiprocessing.shared_memory"),
    ("cuda.to_device([1.0]).get_ipc_handle()", "CudaAPIError", "multiprocessing.shared_memory"),
    ("cuda.open_ipc_array", "AttributeError", "multiprocessing.shared_memory"),
    ("cuda.current_context().open_ipc_handle(0, 8)", "CudaAPIError", "shared_memory"),
    ("cuda.declare_device", "AttributeError", "write it in Python"),
    ("cp.RawModule(path='x.cubin')", "NotImplementedError", "x.cubin holds code for a GPU"),
    ("cp.RawModule(code='').get_texref('t')", "NotImplementedError", "index the array instead"),
    ("cp.RawKernel('#include <curand_kernel.h>\\n"
     "extern \"C\" __global__ void f(curandStateSobol32* s) {}', 'f').compile()",
     "CompileException", "cuRAND beyond XORWOW, Philox and MRG32k3a"),
    # functions that are missing, or whose arguments are
    ("cupyx.GeneralizedUFunc", "AttributeError", "cupy.einsum"),
    ("cp.make_aligned_dtype([])", "AttributeError", "make_aligned_dtype is not on the CPU"),
    ("cupyx.scipy.fft.get_fft_plan", "AttributeError", "get_fft_plan is not on the CPU"),
    ("cp.vectorize(abs, otypes=[float])", "NotImplementedError", "otypes is not supported"),
    ("cp.zeros(3, 'O')", "ValueError", "Unsupported dtype object"),
    # names that do not exist
    ("cp.arrange(3)", "AttributeError", "'arrange'; did you mean 'arange'?"),
    ("cp.linalg.sovle", "AttributeError", "did you mean 'solve'?"),
    ("cp.fft.ftt", "AttributeError", "module 'cupy.fft' has no attribute 'ftt'; did you mean"),
    ("cp.random.unifrom(3)", "AttributeError", "module 'cupy.random' has no attribute 'unifrom'"),
    ("cp.cuda.Steam()", "AttributeError", "did you mean 'Stream'?"),
    ("cp.cuda.runtime.getDeviceCont()", "AttributeError", "did you mean 'getDeviceCount'?"),
    ("cupyx.scater_add", "AttributeError", "did you mean 'scatter_add'?"),
    ("cupyx.scipy.ndimage.gausian_filter", "AttributeError", "did you mean 'gaussian_filter'?"),
    ("cupyx.scipy.special.gammalnn", "AttributeError", "did you mean 'gammaln'?"),
    ("cupyx.jit.atomic_addd", "AttributeError", "did you mean 'atomic_add'?"),
    ("import cupyx.scipy.signall", "ModuleNotFoundError", "did you mean cupyx.scipy.signal?"),
    ("import cupy.nothing", "ModuleNotFoundError", "cupy.nothing is not available on the CPU"),
    ("cuda.synchronise()", "AttributeError", "did you mean cuda.synchronize?"),
    ("cuda.atomic.addd", "AttributeError", "did you mean cuda.atomic.add?"),
]  # fmt: skip


def test_errors_name_what_is_missing_and_what_to_do_instead():
    program = f"""
import kernels
kernels.install(announce=False)
import cupy as cp, cupyx, cupyx.jit, cupyx.scipy.fft, cupyx.scipy.ndimage, cupyx.scipy.special
from numba import cuda
for statement in {[statement for statement, *_ in ASKED]!r}:
    try:
        exec(statement)
        print("no error")
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        print(" ".join(kinds), "|", str(error).replace("\\n", " "))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(ASKED), done.stderr
    wrong = []
    for (statement, kind, text), line in zip(ASKED, lines):
        kinds, _, message = line.partition(" | ")
        if kind not in kinds.split() or text not in message:
            wrong.append(f"{statement}\n    {line}")
    assert not wrong, "\n".join(wrong)


def test_what_asks_whether_a_library_is_there_is_told_no():
    code = """
import kernels
kernels.install(announce=False)
import cupy
print(cupy.cuda.nccl.available, cupy.cuda.thrust.available, cupy.cuda.cub.available)
from cupy_backends.cuda.api import runtime
print(runtime is cupy.cuda.runtime, runtime.deviceCanAccessPeer(0, 1))
from numba import cuda
print(cuda.current_context().can_access_peer(1))
"""
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.splitlines() == ["False False False", "True 0", "False"]
