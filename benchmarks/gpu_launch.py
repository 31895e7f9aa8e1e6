"""Host time of a launch through numba-cuda, without a GPU: on the driver library of the tests.

    python benchmarks/gpu_launch.py [--json]

`bound` is `kernel.bind_on_gpu`, which the launchers use; `driver` the driver call in it alone;
`numba-cuda` its own launch on its own arrays. The driver queues launches and the kernel does
nothing, so that what remains is the host's part. Arrays of CuPy are stood in for by objects that
have the five attributes that a launch reads, as fast as CuPy's.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import measure
import numpy as np


class Array:
    """The attributes of a CuPy array that a launch reads."""

    __slots__ = ("data", "itemsize", "shape", "size", "strides")

    def __init__(self, of: Any) -> None:
        self.data = SimpleNamespace(ptr=of.data.ptr, device_id=0)
        self.shape, self.size, self.strides = of.shape, of.size, of.strides
        self.itemsize = of.itemsize


def kernel_of(arrays: int) -> Any:
    """A kernel with so many arrays and a number, which does nothing."""
    from numba import types

    from kernels.simt import cuda

    names = ", ".join(f"a{i}" for i in range(arrays))
    space = {"cuda": cuda, "__name__": __name__}
    exec(f"def idle({names}, n):\n    i = cuda.grid(1)\n    if i < n:\n        a0[i] = n", space)
    signature = types.void(*[types.Array(types.float32, 1, "C")] * arrays, types.int64)
    return cuda.jit(signature)(space["idle"])


def ways(arrays: int) -> dict[str, Callable[[], None]]:
    """The launches that are compared."""
    import cupy
    from cuda.bindings import driver
    from numba import cuda

    kernel = kernel_of(arrays)
    there = [cupy.zeros(64, np.float32) for _ in range(arrays)]
    bound = kernel.bind_on_gpu(1, 32, *there, 0)
    launch, plain = bound._launch, SimpleNamespace(ptr=0)
    launch._current_stream = lambda: plain
    fast, own = [Array(a) for a in there], [cuda.device_array(64, np.float32) for _ in there]
    configured, call, before = kernel.on_gpu()[1, 32], driver.cuLaunchKernel, launch._before
    bound(*fast, 0)  # fills the buffer that `driver` passes
    return {
        "bound": lambda: bound(*fast, 0),
        "driver": lambda: call(*before, 0, launch._parameters, 0),
        "numba-cuda": lambda: configured(*own, 0),
    }


def microseconds(launch: Callable[[], None], finish: Callable[[], None]) -> float:
    """The least of 40 turns of 200 launches, which is less than a stream holds."""
    found = []
    for _ in range(40):
        finish()
        found.append(measure._time(launch, 200))
    return min(found) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="also write benchmarks/results/...")
    given = parser.parse_args()
    from tests import software_gpu

    software_gpu.install()
    warnings.simplefilter("ignore")
    rows = []
    for arrays in (1, 3, 16):
        times = {name: microseconds(f, software_gpu.finish) for name, f in ways(arrays).items()}
        rows.append({"arrays": arrays, **{f"{k} us": round(v, 2) for k, v in times.items()}})
        print(f"{arrays:>2} arrays  " + "  ".join(f"{k} {v:6.2f} us" for k, v in times.items()))
    if given.json:
        measure.write_json(measure.results_path("gpu_launch"), 1, rows)


if __name__ == "__main__":
    main()
