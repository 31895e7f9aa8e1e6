"""The SIMT compiler: CUDA kernels written for Numba, compiled for the CPU at hand.

    from kernels.simt import cuda

`cache_folder()` says where compiled kernels are kept; `set_num_threads(n)` limits the OS threads
that share the blocks of a launch.
"""

from kernels.support.cache import cache_folder
from kernels.support.thread_pool import get_num_threads, set_num_threads

__all__ = ["cache_folder", "get_num_threads", "set_num_threads"]
