"""Memory figures: how many bytes tensors take now and took at most.

On a GPU they are those of CuPy's memory pool. Without one, or for device "cpu", they are those of
Python's `tracemalloc`, which NumPy reports its arrays to: `reset_peak_memory_stats` starts it, and
from then on allocations of the program (arrays, and Python's own objects) are counted. It slows
Python down; `stop_counting` ends it.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

from minigrad._names import namespace
from minigrad.backends import device_module
from minigrad.backends.current import OutOfMemoryError  # noqa: F401 - found here, too
from minigrad.devices import device as Device

_peaks: dict[str, int] = {"gpu": 0}
_hook: Any = None


def _pool(where: Any) -> Any:
    """CuPy's pool for a device, None for the CPU."""
    if where is not None and not isinstance(where, int) and Device(where).type == "cpu":
        return None
    try:
        return device_module("cuda").get_default_memory_pool()
    except RuntimeError:  # there is no GPU
        return None


def _of_live_tensors() -> int:
    """The bytes of the memory behind all tensors on the CPU, each counted once."""
    from minigrad.compiler.lift import all_tensors
    from minigrad.tensor import every_attribute

    roots = {}
    for found in all_tensors():
        root: Any = every_attribute(found).get("_array")
        while getattr(root, "base", None) is not None and hasattr(root.base, "nbytes"):
            root = root.base
        if root is not None:
            roots[id(root)] = root.nbytes
    return sum(roots.values())


def memory_allocated(device: Any = None) -> int:
    """Bytes in use: of arrays on the GPU; on the CPU, of all that was allocated since the count
    began (see `reset_peak_memory_stats`), or before that of the tensors that are alive."""
    pool = _pool(device)
    if pool is not None:
        return pool.used_bytes()
    return tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else _of_live_tensors()


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` was since `reset_peak_memory_stats`, which is called here
    if it never was."""
    pool = _pool(device)
    if pool is not None:
        if _hook is None:
            reset_peak_memory_stats(device)
        return max(_peaks["gpu"], pool.used_bytes())
    if not tracemalloc.is_tracing():
        now = _of_live_tensors()
        reset_peak_memory_stats("cpu")
        return now
    return tracemalloc.get_traced_memory()[1]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin to look for the most anew. On the CPU the first call starts to count."""
    global _hook
    pool = _pool(device)
    if pool is None:
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        tracemalloc.reset_peak()
        return
    if _hook is None:
        _hook = _peak_hook(pool)
        _hook.__enter__()
    _peaks["gpu"] = pool.used_bytes()


reset_max_memory_allocated = reset_accumulated_memory_stats = reset_peak_memory_stats


def stop_counting() -> None:
    """End the count on the CPU that `reset_peak_memory_stats` began."""
    tracemalloc.stop()


def _peak_hook(pool: Any) -> Any:
    hook: Any = device_module("cuda").cuda.MemoryHook

    class Peak(hook):
        name = "minigrad.cuda.memory"

        def malloc_postprocess(self, **allocation: Any) -> None:
            _peaks["gpu"] = max(_peaks["gpu"], pool.used_bytes())

    return Peak()


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool holds on the GPU; on the CPU, those in use."""
    pool = _pool(device)
    return memory_allocated(device) if pool is None else pool.total_bytes()


def max_memory_reserved(device: Any = None) -> int:
    """The most that the pool held: pools do not shrink by themselves."""
    pool = _pool(device)
    return max_memory_allocated(device) if pool is None else pool.total_bytes()


def memory_stats(device: Any = None) -> dict[str, int]:
    """The figures under torch's names."""
    return {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device),
        "reserved_bytes.all.peak": max_memory_reserved(device),
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures as text."""
    stats = memory_stats(device)
    return "\n".join(f"{name:<30} {value / 2**20:12.2f} MiB" for name, value in stats.items())


__getattr__, __dir__ = namespace(__name__)
