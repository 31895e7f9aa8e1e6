"""The dialect in use, and the trace of launches.

A dialect is a module with the functions of `kernels.reference`. `active` is the one in use: callers
write `dispatch.active.matmul(...)` and must not keep it, since `set_backend` replaces it. Dialects
are imported at their first use, so that importing `kernels` stays fast.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

DIALECTS = {
    "numba": "kernels.numba_cuda",
    "numpy": "kernels.reference",
    "cupy": "kernels.cuda_c",
}


class _Unloaded:
    """Stands for the default dialect until its first use."""

    def __getattr__(self, name: str):
        return getattr(set_backend(_name), name)


_name: str = os.environ.get("MINIGRAD_BACKEND", "numba")
active: ModuleType | _Unloaded = _Unloaded()


def installed(name: str) -> bool:
    """Whether this installation has the dialect."""
    return importlib.util.find_spec(DIALECTS[name]) is not None


def dialect(name: str) -> ModuleType:
    """The module of a dialect: "numba", "numpy" or "cupy".

    Raises ValueError for an unknown name, and for one that this installation does not have.
    """
    if name not in DIALECTS:
        raise ValueError(f"backend: expected one of {sorted(DIALECTS)}, got {name!r}")
    if not installed(name):
        raise ValueError(
            f"backend: {name!r} is not part of this version; use "
            + " or ".join(repr(n) for n in DIALECTS if installed(n))
        )
    return importlib.import_module(DIALECTS[name])


def backend() -> str:
    """The name of the dialect in use."""
    return _name


def set_backend(name: str) -> ModuleType:
    """Make a dialect the one in use, and return its module."""
    global active, _name
    active = dialect(name)
    _name = name
    return active


class Trace:
    """Launches by (family, version): how many, and the seconds they took."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[float]] = {}

    def add(self, family: str, version: str, seconds: float) -> None:
        row = self.rows.setdefault((family, version), [0, 0.0])
        row[0] += 1
        row[1] += seconds

    def takes(self, family: str, version: str, kernel, grid, block, args: tuple) -> bool:
        """Called before each launch; True if the trace has handled it, so that it is not run."""
        return False

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


tracer: Trace | None = None


def record(family: str, version: str, seconds: float) -> None:
    """Count one launch in the trace that is on; callers test `tracer is not None` first."""
    tracer.add(family, version, seconds)


@contextmanager
def timed(family: str, version: str) -> Iterator[None]:
    """Time a block as one launch of the trace that is on."""
    started = time.perf_counter()
    yield
    if tracer is not None:
        record(family, version, time.perf_counter() - started)


@contextmanager
def trace(using: Trace | None = None) -> Iterator[Trace]:
    """Collect every kernel launch of the block: `with kernels.trace() as t: ...; print(t)`."""
    global tracer
    outer, tracer = tracer, using or Trace()
    try:
        yield tracer
    finally:
        if outer is not None:
            for (family, version), (count, seconds) in tracer.rows.items():
                outer.add(family, version, seconds)
                outer.rows[family, version][0] += count - 1
        tracer = outer
