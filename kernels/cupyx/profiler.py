"""`cupyx.profiler`: how long a function takes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class _PerfCaseResult:
    """Times in seconds: `cpu_times`, and `gpu_times` of one device."""

    def __init__(self, name: str, times: np.ndarray) -> None:
        self.name, self.cpu_times, self.gpu_times = name, times, times[None]

    def __repr__(self) -> str:
        micro = self.cpu_times * 1e6
        return (
            f"{self.name:<20}: CPU: {micro.mean():9.3f} us   +/- {micro.std():6.3f}"
            f" (min: {micro.min():9.3f} / max: {micro.max():9.3f}) us"
        )


def benchmark(
    func: Callable,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    n_repeat: int = 10000,
    *,
    name: str | None = None,
    n_warmup: int = 10,
    max_duration: float = math.inf,
    devices: Any = None,
) -> _PerfCaseResult:
    """Call func(*args) until `n_repeat` times or `max_duration` seconds are over; the times."""
    kwargs = kwargs or {}
    for _ in range(n_warmup):
        func(*args, **kwargs)
    times: list[float] = []
    while len(times) < n_repeat and sum(times) < max_duration:
        start = time.perf_counter()
        func(*args, **kwargs)
        times.append(time.perf_counter() - start)
    return _PerfCaseResult(name or func.__name__, np.array(times))


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """A block that NVIDIA's profiler would record. There is none here."""
    yield


class time_range(contextlib.ContextDecorator):
    """A block or function that NVIDIA's profiler would show by name. There is none here."""

    def __init__(
        self, message: str | None = None, color_id: int | None = None,
        argb_color: int | None = None, sync: bool = False,
    ) -> None:  # fmt: skip
        self.message = message

    def __enter__(self) -> time_range:
        return self

    def __exit__(self, *error: object) -> None:
        return None
