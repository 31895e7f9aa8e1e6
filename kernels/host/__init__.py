"""The second dialect, CUDA C: kernels as source text, on a GPU or on the CPU at hand.

`raw_kernel(code, name)` is called like `cupy.RawKernel`. With NumPy arrays the unmodified source
is compiled by the machine's C++ compiler against the headers in `include/`, which declare what
nvcc declares; `runtime/` runs the threads of a block as fibers that run one at a time.
"""

from .launch import RawKernel, RawModule, raw_kernel, raw_module

__all__ = ["RawKernel", "RawModule", "raw_kernel", "raw_module"]
