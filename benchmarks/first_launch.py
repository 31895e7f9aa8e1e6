"""A process that launches one kernel and prints the time at its end; `simt.py` runs it.

With --numba it imports Numba as well, as programs do that use its types.
"""

import sys
import time

import numpy as np

from kernels import cuda

if "--numba" in sys.argv:
    import numba  # noqa: F401


@cuda.jit
def rotate(a):
    tile = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    tile[t] = a[t] + np.float32(1)
    cuda.syncthreads()
    a[t] = tile[(t + 1) % 32]


a = np.arange(32, dtype=np.float32)
rotate[1, 32](a)
assert a[0] == 2 and a[31] == 1
print(time.time())
