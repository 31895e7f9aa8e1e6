"""The dialect in use, and the trace of launches.

A dialect is a module with the functions of `kernels.reference`. `active` is the one in use: callers
write `dispatch.active.matmul(...)` and must not keep it, since `set_backend` replaces it. The
default is `kernels.by_device`, which hands each call to a dialect. Dialects are imported at their
first use, so that importing `kernels` stays fast.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from kernels.support import forks, launches
from kernels.support.interrupts import deferred  # imported before NumPy, whose import it protects

DIALECTS = {
    "numba": "kernels.numba_cuda",
    "numpy": "kernels.reference",
    "cupy": "kernels.cuda_c",
}
BY_DEVICE = "auto"  # the default: "numba" for arrays on the CPU, "cupy" for those on a GPU
MODULES = DIALECTS | {BY_DEVICE: "kernels.by_device"}


class _Unloaded:
    """Stands for the default dialect until its first use."""

    def __getattr__(self, name: str):
        return getattr(set_backend(_name), name)


def relaunch(tracer: Any, active: Any, operation: Any, *operands: Any) -> Any:
    """A remembered launch again (`kernels.launchers.relaunch`), or None: nothing is remembered yet.

    The first launch that is replaces this function, so callers must not keep it.
    """
    return None


def together(function: Callable, *operands: Any) -> Any:
    """function(*operands), an array or a tuple of arrays that operations of the active dialect make
    of arrays and numbers, or the first operand, which they have changed in place: from its third
    call on as one remembered launch."""
    found = relaunch(tracer, active, function, *operands)
    return run_together(function, operands) if found is None else found


def run_together(function: Callable, operands: tuple) -> Any:
    """A call of `together` that is not remembered yet.

    `kernels.launchers.relaunch` replaces this function, so callers must not keep it.
    """
    return function(*operands)


_names: dict[tuple, tuple] = {}


def named(*parts: Any) -> Any:
    """The name of an operation for `relaunch`: one object for equal parts."""
    return _names.setdefault(parts, parts)


_name: str = os.environ.get("MINIGRAD_BACKEND") or BY_DEVICE
active: ModuleType | _Unloaded = _Unloaded()


def installed(name: str) -> bool:
    """Whether this installation has the dialect."""
    return importlib.util.find_spec(MODULES[name]) is not None


def dialect(name: str) -> ModuleType:
    """The module of a dialect: "numba", "numpy" or "cupy", or of the default, "auto".

    Raises ValueError for an unknown name, and for one that this installation does not have.
    """
    if name not in MODULES:
        raise ValueError(f"backend: expected one of {sorted(MODULES)}, got {name!r}")
    if not installed(name):
        raise ValueError(
            f"backend: {name!r} is not part of this version; use "
            + " or ".join(repr(n) for n in DIALECTS if installed(n))
        )
    with deferred():
        return importlib.import_module(MODULES[name])


def backend() -> str:
    """The name of the dialect in use, or "auto"."""
    return _name


def set_backend(name: str) -> ModuleType:
    """Make a dialect the one in use, and return its module."""
    global active, _name
    active = dialect(name)
    _name = name
    return active


def gpu_found() -> None:
    """Called by whoever makes or takes the first array on a GPU."""
    if MODULES[BY_DEVICE] in sys.modules:  # or it sees CuPy when it is imported
        importlib.import_module(MODULES[BY_DEVICE]).look()


class Trace:
    """Launches by (family, version): how many, and the seconds they took."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[float]] = {}
        self._on_gpu: list[tuple] = []  # (family, version, event before, event after, host's time)

    def add(self, family: str, version: str, seconds: float, began: float | None = None) -> None:
        """Count a launch. began: when, by time.perf_counter, for one that has ended before now."""
        row = self.rows.setdefault((family, version), [0, 0.0])
        row[0] += 1
        row[1] += seconds

    def add_on_gpu(self, family: str, version: str, start: Any, end: Any) -> None:
        """Count a launch between two events; `finish` asks them for the time."""
        self._on_gpu.append((family, version, start, end, time.perf_counter()))

    def finish(self) -> None:
        """Wait for the launches on a GPU, and add their times."""
        waiting, self._on_gpu = self._on_gpu, []
        for family, version, start, end, _ in waiting:
            end.synchronize()
            _, _, first, _, origin = waiting[0]
            self.add(family, version, _elapsed(start, end), origin + _elapsed(first, start))

    def takes(self, family: str, version: str, kernel, grid, block, args: tuple) -> bool:
        """Called before each launch; True if the trace has handled it, so that it is not run."""
        return False

    def has_numbers(self) -> bool:
        """Whether what launches write can be looked at: not where none of them runs."""
        return True

    def contiguous(self, a: Any) -> Any:
        """A contiguous copy that an operation makes of an argument."""
        return a.copy(order="C")

    def filled(self, zeros: Any) -> Any:
        """The zeros that an operation begins with."""
        return zeros

    def scratch(self, memory: Any) -> Any:
        """Uninitialised memory that launches of an operation write."""
        return memory

    def table(self) -> str:
        """A text table by cost: family, version, launches, milliseconds, share of the time."""
        total = sum(seconds for _, seconds in self.rows.values()) or 1.0
        lines = [f"{'family':<28} {'version':<18} {'launches':>8} {'ms':>10} {'share':>6}"]
        for (family, version), (count, seconds) in sorted(
            self.rows.items(), key=lambda item: -item[1][1]
        ):
            cost = f"{seconds * 1e3:>10.1f} {seconds / total:>6.1%}"
            lines.append(f"{family:<28} {version:<18} {count:>8} {cost}")
        return "\n".join(lines)

    __str__ = table


def _elapsed(start: Any, end: Any) -> float:
    """Seconds between two of CuPy's events."""
    import cupy

    return cupy.cuda.get_elapsed_time(start, end) / 1e3


tracer: Trace | None = None  # the one that has begun last
_tracers: list[Trace] = []
_changing = forks.rlock()
begun = 0  # how many traces there have been


@contextmanager
def tracing(own: Trace) -> Iterator[None]:
    """Let a trace see the launches of the block. Those of several threads end in any order."""
    global tracer, begun
    with _changing:
        _tracers.append(own)
        tracer, begun = own, begun + 1
    try:
        yield
    finally:
        with _changing:
            _tracers.remove(own)
            tracer = _tracers[-1] if _tracers else None


def has_numbers() -> bool:
    """Whether what launches write can be looked at."""
    current = tracer
    return current is None or current.has_numbers()


def runs_unseen() -> bool:
    """Whether launches run, and are counted at most, so that another may replace one for now."""
    return launches.watcher is None and type(tracer) in (type(None), Trace)


def record(family: str, version: str, seconds: float) -> None:
    """Count one launch in the trace that is on, if any: that of another thread may have ended."""
    current = tracer
    if current is not None:
        current.add(family, version, seconds)


@contextmanager
def timed(family: str, version: str) -> Iterator[None]:
    """Time a block as one launch of the trace that is on."""
    started = time.perf_counter()
    yield
    record(family, version, time.perf_counter() - started)


@contextmanager
def timed_on_gpu(family: str, version: str) -> Iterator[None]:
    """As `timed`, for a launch on a GPU, where the call returns before the kernel has begun."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    yield
    end.record()
    current = tracer
    if current is not None:
        current.add_on_gpu(family, version, start, end)


@contextmanager
def trace(using: Trace | None = None) -> Iterator[Trace]:
    """Collect every kernel launch of the block: `with kernels.trace() as t: ...; print(t)`.

    Launches on a GPU are timed by events, and counted at the end of the block.
    """
    outer, own = tracer, using or Trace()
    with tracing(own):
        try:
            yield own
        finally:
            own.finish()
            if outer is not None:
                for (family, version), (count, seconds) in own.rows.items():
                    outer.add(family, version, seconds)
                    outer.rows[family, version][0] += count - 1
