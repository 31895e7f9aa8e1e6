"""How the benchmarks measure: side by side in one process, in turns, medians and spreads.

Import this first: it makes the source tree importable where the project is not installed.
"""

from __future__ import annotations

import datetime
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

SETTINGS = (  # that make libraries imitate another processor
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "OPENBLAS_CORETYPE"),
    *("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY"),
)
PAUSE = 0.01  # seconds before a turn: threads of the last one that look for work go to sleep
PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "torch", "jax", "jaxlib")
GPU_PACKAGES = ("numba-cuda", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc", "nvidia-nvvm")


@dataclass
class Timing:
    """Seconds per call: the median of the turns, and the interquartile range divided by it."""

    median: float
    spread: float
    turns: int

    def __str__(self) -> str:
        return f"{format_seconds(self.median):>9} ±{self.spread:4.0%}"


def format_seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def side_by_side(
    functions: dict[Any, Callable[[], object]],
    turns: int = 15,
    turn_seconds: float = 0.2,
    finish: Callable[[], object] = lambda: None,
) -> dict[Any, Timing]:
    """Time the functions in turns, each turn as many calls as fill `turn_seconds`.

    Every function is called before the clock starts until two calls in a row take about the same
    (a first call compiles). Garbage is collected between turns, never in one. `finish()`, at the
    end of each turn, waits for what the calls have launched.
    """
    turns_of = _take_turns(functions, turns, turn_seconds, finish)
    return {name: _summary(values) for name, values in turns_of.items()}


def ratio(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    turns: int = 15,
    turn_seconds: float = 0.2,
) -> tuple[Timing, Timing, Timing]:
    """Timings of both, and of their ratio theirs / ours turn by turn: above 1, ours is faster.

    Other load on the machine affects neighbouring turns alike, so their ratio varies less than the
    ratio of two medians.
    """
    taken = _take_turns({"ours": ours, "theirs": theirs}, turns, turn_seconds)
    ratios = [b / a for a, b in zip(taken["ours"], taken["theirs"], strict=True)]
    return _summary(taken["ours"]), _summary(taken["theirs"]), _summary(ratios)


def least_processor_time(
    functions: dict[Any, Callable[[], object]], turns: int = 9, turn_seconds: float = 0.002
) -> dict[Any, float]:
    """The least processor time per call of this thread, over turns that are taken in turns: what
    else runs on the machine can only make one longer."""
    counts, least = {}, dict.fromkeys(functions, math.inf)
    for name, function in functions.items():
        for _ in range(20):  # compiled, remembered
            function()
        counts[name] = 1
        while _processor_time(function, counts[name]) * counts[name] < turn_seconds:
            counts[name] *= 2
    for _ in range(turns):
        for name, function in functions.items():
            least[name] = min(least[name], _processor_time(function, counts[name]))
    return least


def _processor_time(function: Callable[[], object], count: int) -> float:
    started = time.thread_time()
    for _ in range(count):
        function()
    return (time.thread_time() - started) / count


def _take_turns(
    functions: dict[Any, Callable[[], object]],
    turns: int,
    turn_seconds: float,
    finish: Callable[[], object] = lambda: None,
) -> dict[Any, list[float]]:
    counts = {name: _calibrate(f, turn_seconds, finish) for name, f in functions.items()}
    seconds: dict[Any, list[float]] = {name: [] for name in functions}
    names = list(functions)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(turns):
            gc.collect()
            for name in names if turn % 2 == 0 else reversed(names):
                time.sleep(PAUSE)
                seconds[name].append(_time(functions[name], counts[name], finish))
    finally:
        if collecting:
            gc.enable()
    return seconds


def _time(
    function: Callable[[], object], count: int, finish: Callable[[], object] = lambda: None
) -> float:
    started = time.perf_counter()
    for _ in range(count):
        function()
    finish()
    return (time.perf_counter() - started) / count


def _calibrate(
    function: Callable[[], object], turn_seconds: float, finish: Callable[[], object]
) -> int:
    before = _time(function, 1, finish)
    for _ in range(20):
        now = _time(function, 1, finish)
        if now > 0.7 * before:
            break
        before = now
    count = 1
    while (spent := _time(function, count, finish) * count) < turn_seconds / 2:
        count = max(2 * count, int(count * turn_seconds / 2 / max(spent, 1e-9)))
    return max(1, round(count * turn_seconds / max(spent, 1e-9)))


def _summary(values: list[float]) -> Timing:
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (median,) * 3
    return Timing(median, (high - low) / median, len(values))


def environment(threads: int) -> dict:
    """The machine, the date and the versions, without which a figure means nothing."""
    from minigrad.commands import doctor, gpu

    cards = ", ".join(card.name for card in gpu.query().gpus)
    versions = {"python": platform.python_version()}
    for name in (*PACKAGES, *(GPU_PACKAGES if cards else ())):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "machine": f"{doctor.cpu_name()}, {doctor.cores()} cores, {platform.machine()}",
        **({"gpu": f"{cards}, driver {gpu.driver_version()}"} if cards else {}),
        "date": datetime.date.today().isoformat(),
        "threads": threads,
        "command": f"python -m benchmarks.{Path(sys.argv[0]).stem} {' '.join(sys.argv[1:])}",
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "versions": versions,
    }


def results_path(name: str) -> str:
    """The file for a benchmark's figures of today; of another processor than that of the machine,
    which NUMBA_CPU_NAME asks for, in a file of its own."""
    asked = os.environ.get("NUMBA_CPU_NAME")
    name += f"-{asked}" if asked else ""
    return str(ROOT / "benchmarks" / "results" / f"{name}-{datetime.date.today()}.json")


def plain(rows: list[dict]) -> list[dict]:
    """The rows, with objects for their Timing values."""
    return [
        {key: asdict(value) if isinstance(value, Timing) else value for key, value in row.items()}
        for row in rows
    ]


def write_json(path: str, threads: int, rows: list[dict]) -> None:
    """Write rows, whose Timing values become objects, with the environment of the measurement."""
    text = json.dumps({**environment(threads), "rows": plain(rows)}, indent=1)
    Path(path).write_text(text + "\n")
    print(f"written: {path}")
