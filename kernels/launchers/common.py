"""What the launchers share: allocation beside the inputs, dtypes, repeated launches.

A launcher computes a plan once for each combination of shapes, strides and dtypes: which kernel,
which grid, which buffers. Later calls find the plan in a dictionary and only launch, so that a call
costs a few microseconds.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection
from types import ModuleType

import ml_dtypes
import numpy as np

from kernels import dispatch
from kernels.support import ahead, processor
from kernels.support.memory import keep_freed

Pair = tuple[int, int]
GPU_BLOCK, CPU_BLOCK = 256, 64  # threads of a block that walks along a row or a plane
SMALL_BLOCK = 32  # on the CPU, of a block that sums a row in shared memory
MAX_GRID_YZ, MAX_BLOCK = 65535, 1024  # blocks along y or z of a grid, threads of a block
BLOCKS = 264  # two for each multiprocessor of a large GPU; with less than one, sums are split
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
keep_freed()


class Dialect:
    """The kernels of a dialect: `dialect.matmul` is its module of kernels for products, and so on.

    Such a module has a factory for each kernel, with the same arguments in every dialect, and what
    else the launcher of the family asks of it. name: of the dialect, "numba" or "cupy".
    module: of the operations that run it, for which their launches are remembered.
    """

    def __init__(self, package: str, module: ModuleType | None = None) -> None:
        self.name = next(name for name, found in dispatch.DIALECTS.items() if found == package)
        own = importlib.import_module(package)
        self.module = module or own
        for file in pkgutil.iter_modules(own.__path__):
            setattr(self, file.name, importlib.import_module(f"{package}.{file.name}"))

    def __getattr__(self, name: str):
        """Reached where an operation is made of those of a family that the dialect lacks."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"the dialect {self.name!r} lacks the family {name!r}")


def on_gpu(a) -> bool:
    """Whether the array lives in a GPU's memory."""
    if isinstance(a, np.ndarray):
        return False  # CuPy takes 1 us to describe an array, so its arrays are known by their type
    return type(a).__module__ == "cupy" or hasattr(a, "__cuda_array_interface__")


def compute_capability(a) -> tuple[int, int] | None:
    """That of the GPU whose memory the array lives in; None for an array on the CPU."""
    if not on_gpu(a):
        return None
    digits = a.device.compute_capability  # "90", "120"
    return int(digits[:-1]), int(digits[-1])


def namespace(a):
    """The array module that `a` belongs to: NumPy, or CuPy for an array on a GPU."""
    if not on_gpu(a):
        return np
    import cupy

    return cupy


def empty(shape: tuple[int, ...], dtype, like):
    """An uninitialised array where `like` lives."""
    made = namespace(like).empty(shape, dtype)
    tracer = dispatch.tracer  # once: that of another thread may end
    return made if tracer is None else tracer.scratch(made)


def contiguous(a):
    """`a` itself if it is C-contiguous, else a contiguous copy."""
    if a.flags.c_contiguous:
        return a
    tracer = dispatch.tracer
    return namespace(a).ascontiguousarray(a) if tracer is None else tracer.contiguous(a)


def zeros(shape: tuple[int, ...], dtype, like):
    """Zeros where `like` lives."""
    made = namespace(like).zeros(shape, dtype)
    tracer = dispatch.tracer
    return made if tracer is None else tracer.filled(made)


@functools.cache
def compute_dtype(dtype: np.dtype) -> np.dtype:
    """What a kernel computes in: float32 for the 16-bit storage types, else the dtype itself."""
    return np.dtype(np.float32) if dtype in (np.float16, BFLOAT16) else dtype


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def splits(
    blocks: int, terms: int, least: int, enough: int = BLOCKS // 2, wanted: int = BLOCKS
) -> int:
    """Over how many blocks of a GPU each sum of so many terms is split, where one block for each
    would make `blocks`: 1 if those are `enough`, else about `wanted` blocks in all. Each adds up
    `least` terms or more."""
    if not 0 < blocks < enough:
        return 1
    return max(1, min(ceil_div(wanted, blocks), terms // least))


def parts_of(
    blocks: int, terms: int, least: int, forced: bool = False, wanted: int = 4 * BLOCKS
) -> tuple[int, int]:
    """How many parts are made of a sum, none of them empty, and the terms of each but the last.
    forced: some, however short. wanted: how many blocks fill a GPU; of 256 threads a multiprocessor
    holds eight."""
    count = max(splits(blocks, terms, least, wanted=wanted), 3 if forced else 1)
    span = max(ceil_div(terms, count), 1)
    return max(ceil_div(terms, span), 1), span


def warps_a_block(rows: int, most: int, gpu: bool) -> int:
    """Warps, each with a row, of a block: fewer where that would leave a GPU few blocks."""
    while gpu and most > 1 and ceil_div(rows, most) < BLOCKS // 2:
        most //= 2
    return most


def wide_enough(name: str, size: int, block: int) -> int:
    """`block` threads, doubled until tiles of so many cover `size` in the y or z of a grid.

    Raises ValueError where no block is large enough.
    """
    while ceil_div(size, block) > MAX_GRID_YZ:
        if block == MAX_BLOCK:
            raise ValueError(f"{name}: expected at most {MAX_GRID_YZ * block} elements, got {size}")
        block *= 2
    return block


def even_block(height: int, width: int) -> Pair:
    """Block (bx, by) of about 256 threads, one an element of a plane, on a CPU: one that divides
    the plane if it can, for the rows of a block that ends outside are not vectors."""
    height, width = max(height, 1), max(width, 1)
    bx = width if width <= 16 else _even_row(width, 256 // height)
    most = 256 // bx
    return bx, height if height <= most else _divisor(height, max(most // 4, 1), most) or most


def _even_row(width: int, most: int) -> int:
    """How many of more than 16 columns a row of a block has: a part of a vector is cheap with the
    masks of AVX-512, in planes of few columns."""
    step = 1 if width <= 32 and processor.vector_registers().have_masks else 8
    longest = max(most, 16 if width % 32 else 32)
    return _divisor(width, 12, longest, step) or min(width, 32)


def _divisor(n: int, least: int, most: int, step: int = 1) -> int | None:
    """The largest divisor of n from `least` to `most` that is a multiple of `step`."""
    possible = range(most - most % step, least - 1, -step)
    return next((d for d in possible if n % d == 0), None)


def launcher(family: str, version: str, kernel, grid, block) -> Callable[..., None]:
    """A callable that launches `kernel` on arrays, always of the types of its first call.

    Every call is one launch of (family, version) in the trace that is on. A call that fails, such
    as one with arrays on two devices, decides nothing for later ones.
    """
    bound, timed = None, dispatch.timed

    def launch(*args) -> None:
        nonlocal bound, timed
        tracer = dispatch.tracer
        if tracer is not None and tracer.takes(family, version, kernel, grid, block, args):
            return
        run = bound
        if run is None:
            there = any(on_gpu(arg) for arg in args)
            bind, timed = (
                (kernel.bind_on_gpu, dispatch.timed_on_gpu)
                if there
                else (kernel.bind, dispatch.timed)
            )
            try:
                run = bind(grid, block, *args)
            except ahead.LeftOut:
                return
        if tracer is None:
            run(*args)
        else:
            with timed(family, version):
                run(*args)
        bound = run

    launch.of = kernel, grid, block  # type: ignore[attr-defined]
    return launch


def check_version(name: str, version: str | None, versions: Collection[str]) -> None:
    """Raise ValueError unless `version` is None or one of `versions`."""
    if version is not None and version not in versions:
        raise ValueError(f"{name}: expected a version among {tuple(versions)}, got {version!r}")


def refusal_of_mma(dtype: np.dtype, cc: tuple[int, int] | None) -> str | None:
    """Why `mma.sync` on 16-bit elements does not take operands of a dtype, which lie on the CPU
    (None) or on a GPU of some compute capability; None where it does."""
    if dtype not in (np.float16, BFLOAT16):
        return f"takes float16 and bfloat16, not {dtype}"
    if cc is not None and cc < (8, 0):
        return (
            "needs compute capability 8.0, and the operands are on a GPU of compute capability"
            f" {cc[0]}.{cc[1]}"
        )
    return None


def check_floating(name: str, *arrays, or_integers: bool = False) -> None:
    """Raise TypeError unless the arrays share one floating dtype, or one of integers if allowed."""
    dtypes = {a.dtype for a in arrays if a is not None}
    if len(dtypes) != 1:
        names = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"{name}: expected arrays of one dtype, got {names}; cast them first")
    dtype = dtypes.pop()
    if compute_dtype(dtype).kind not in ("fiu" if or_integers else "f"):
        raise TypeError(f"{name}: expected a floating dtype, got {dtype}")
