"""How long a statement takes: torch.utils.benchmark's `Timer`, `Measurement` and `Compare`.

Example::

    t = Timer("x.softmax(-1)", globals={"x": x}, label="softmax", description="rows of 1000")
    print(t.blocked_autorange(min_run_time=1))
"""

from __future__ import annotations

import math
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import minigrad
from minigrad._names import namespace

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "timer"]

__getattr__, __dir__ = namespace(__name__)

_UNITS = (("s", "seconds", 1.0), ("ms", "milliseconds", 1e-3), ("us", "microseconds", 1e-6),
          ("ns", "nanoseconds", 1e-9))  # fmt: skip
_SPREAD = 0.1  # of the median: a measurement whose quartiles differ by more has a warning
_GREEN, _RED, _PLAIN = "\033[32m\033[1m", "\033[31m\033[1m", "\033[0m"


def timer() -> float:
    """Seconds, once the work that was given to a GPU is done."""
    if minigrad.cuda.is_available():
        minigrad.cuda.synchronize()
    return time.perf_counter()


def _unit(seconds: float) -> tuple[str, str, float]:
    """The largest unit of which `seconds` is at least one: (short, long name, its seconds)."""
    return next((unit for unit in _UNITS if seconds >= unit[2]), _UNITS[-1])


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class TaskSpec:
    """What is measured, and by which names a table shows it."""

    stmt: str
    setup: str = "pass"
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label with its sub-label; without one the statement."""
        return (self.label or self.stmt) + (f": {self.sub_label}" if self.sub_label else "")

    def summarize(self) -> str:
        """Title, setup and description, a line each."""
        setup = "" if self.setup.strip() in ("", "pass") else f"setup: {self.setup.strip()}"
        return "\n".join(part for part in (self.title, setup, self.description or "") if part)


@dataclass
class Measurement:
    """The times of several runs of a statement, of `number_per_run` repetitions each."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """Seconds per repetition, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """Of `times`."""
        return statistics.median(self._some())

    @property
    def mean(self) -> float:
        """Of `times`."""
        return statistics.fmean(self._some())

    @property
    def iqr(self) -> float:
        """The upper quartile of `times` minus the lower one."""
        lower, upper = self._quartiles()
        return upper - lower

    @property
    def has_warnings(self) -> bool:
        """Whether the times vary so much that another measurement may come to another median."""
        return self.iqr > _SPREAD * self.median

    @property
    def title(self) -> str:
        """That of the task."""
        return self.task_spec.title

    @property
    def stmt(self) -> str:
        """That of the task."""
        return self.task_spec.stmt

    @property
    def label(self) -> str | None:
        """That of the task."""
        return self.task_spec.label

    @property
    def sub_label(self) -> str | None:
        """That of the task."""
        return self.task_spec.sub_label

    @property
    def description(self) -> str | None:
        """That of the task."""
        return self.task_spec.description

    @property
    def env(self) -> str | None:
        """That of the task."""
        return self.task_spec.env

    @property
    def num_threads(self) -> int:
        """That of the task."""
        return self.task_spec.num_threads

    @property
    def as_row_name(self) -> str:
        """What a row of `Compare` is called."""
        return self.sub_label or self.stmt

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the quartiles differ by less than this part of the median."""
        return self.iqr < threshold * self.median

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the runs of all that are given."""
        runs: dict[tuple[int, TaskSpec], list[float]] = {}
        for one in measurements:
            runs.setdefault((one.number_per_run, one.task_spec), []).extend(one.raw_times)
        return [Measurement(number, times, spec) for (number, spec), times in runs.items()]

    def _some(self) -> list[float]:
        if not self.raw_times:
            raise RuntimeError("Measurement: expected times of at least one run, got none")
        return self.times

    def _quartiles(self) -> tuple[float, float]:
        times = self._some()
        if len(times) == 1:
            return times[0], times[0]
        lower, _, upper = statistics.quantiles(times, n=4, method="inclusive")
        return lower, upper

    def __repr__(self) -> str:
        short, _, scale = _unit(self.median)
        lines = [f"<{type(self).__module__}.Measurement object at {hex(id(self))}>"]
        lines.append(self.task_spec.summarize())
        runs, threads = len(self.raw_times), _plural(self.num_threads, "thread")
        if runs == 1:
            lines.append(f"  {self.median / scale:.2f} {short}")
        else:
            lower, upper = (q / scale for q in self._quartiles())
            lines.append(f"  Median: {self.median / scale:.2f} {short}")
            lines.append(f"  IQR:    {upper - lower:.2f} {short} ({lower:.2f} to {upper:.2f})")
        each = _plural(self.number_per_run, "run") + (" per measurement" if runs > 1 else "")
        lines.append(f"  {_plural(runs, 'measurement')}, {each}, {threads}")
        if self.has_warnings:
            lines.append(f"  WARNING: the quartiles differ by {self.iqr / self.median:.0%} of the "
                         "median; measure for longer")  # fmt: skip
        return "\n".join(lines)


class Timer:
    """Measures a statement (a text, as in `timeit`), with a number of threads.

    stmt sees `globals` and, as `torch`, this package. setup runs before each run of repetitions.
    label, sub_label, description and env name the table, row, column and variant of `Compare`.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError(
                f"Timer: stmt must be a text, got {type(stmt).__name__}; write the call"
            )
        if str(language).lower() not in ("python", "py"):
            raise NotImplementedError(f"Timer: only statements in Python are timed, not {language}")
        if global_setup:
            raise ValueError("Timer: global_setup is for C++; use setup for statements in Python")
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )
        space = {"torch": minigrad, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, space)

    def _run(self, number: int) -> float:
        before = minigrad.get_num_threads()
        minigrad.set_num_threads(self._task_spec.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            minigrad.set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One run of `number` repetitions, after a hundredth of them, at least two, to warm up."""
        self._run(max(number // 100, 2))
        return Measurement(number, [self._run(number)], self._task_spec)

    def _block(self, seconds: float) -> int:
        """Repetitions that take a thousandth of `seconds`, at least 0.1 ms, once all is warm: the
        first may compile kernels."""
        self._run(2)
        number, least = 1, max(seconds / 1000, 1e-4)
        while (took := self._run(number)) < least:
            number = max(number * 2, min(math.ceil(number * least / took), number * 100))
        return number

    def blocked_autorange(
        self,
        callback: Callable[[int, float], Any] | None = None,
        min_run_time: float = 0.2,
    ) -> Measurement:
        """Runs until they have taken min_run_time seconds, each of as many repetitions as make the
        clock's own time negligible. callback(number, seconds) hears of each."""
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """`blocked_autorange` for 0.2 seconds."""
        return self.blocked_autorange(callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Runs until the quartiles differ by less than `threshold` of the median, or they have
        taken max_run_time seconds."""
        number = self._block(min_run_time)
        times: list[float] = []
        found = Measurement(number, times, self._task_spec)
        while sum(times) < max_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
            if len(times) > 3 and sum(times) >= min_run_time and found.meets_confidence(threshold):
                break
        return found


class Compare:
    """A table for each label: a row for each sub-label, a column for each description."""

    def __init__(self, results: Sequence[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._whole = self._colours = self._by_row = self._warn = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """More measurements for the tables."""
        for one in results:
            if not isinstance(one, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(one)} instead.")
            self._results.append(one)

    def trim_significant_figures(self) -> None:
        """Show times without digits that their spread makes meaningless."""
        self._whole = True

    def colorize(self, rowwise: bool = False) -> None:
        """Show the shortest time of a column (of a row) green, those of twice as much red."""
        self._colours, self._by_row = True, rowwise

    def highlight_warnings(self) -> None:
        """Mark times that vary much."""
        self._warn = True

    def print(self) -> None:
        """Print the tables."""
        print(self)

    def __str__(self) -> str:
        tables: dict[str, list[Measurement]] = {}
        for one in Measurement.merge(self._results):
            tables.setdefault(one.label or one.stmt, []).append(one)
        return "\n".join(self._table(label, found) for label, found in tables.items())

    def _table(self, label: str, found: list[Measurement]) -> str:
        columns = list(dict.fromkeys(m.description or "" for m in found))
        _, long, scale = _unit(min(m.median for m in found))
        cells = {(m.num_threads, m.env, m.as_row_name, m.description or ""): m for m in found}
        rows = sorted(dict.fromkeys(key[:3] for key in cells), key=lambda row: row[0])
        several = len({env for _, env, _ in rows}) > 1
        names = {row: f"      {f'({row[1]}) ' if several else ''}{row[2]}" for row in rows}
        texts = {key: self._text(m, scale) for key, m in cells.items()}
        first = max(map(len, names.values()))
        widths = [
            max([len(column), *(len(t) for key, t in texts.items() if key[3] == column)]) + 2
            for column in columns
        ]
        heads = [f"{column:^{width}}" for column, width in zip(columns, widths)]
        head = " |".join([" " * first, *heads])
        lines, threads = [f"[{f' {label} ':-^{len(head) - 2}}]", head], None
        for row in rows:
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(len(head), "-"))
            shown = [
                self._coloured((*row, column), cells, f"{texts.get((*row, column), ''):>{width}}")
                for column, width in zip(columns, widths)
            ]
            lines.append(" |".join([f"{names[row]:<{first}}", *shown]))
        lines += ["", f"Times are in {long} ({_unit(scale)[0]}).", ""]
        if self._warn and any(m.has_warnings for m in found):
            lines.insert(
                -1, "(! XX%) Measurement has high variance, where XX is IQR / median * 100."
            )
        return "\n".join(lines)

    def _text(self, one: Measurement, scale: float) -> str:
        value = one.median / scale
        text = f"{value:.1f}"
        if self._whole and one.iqr > 0:
            digits = 1 - math.floor(math.log10(one.iqr / scale))
            text = f"{round(value, digits):.{max(0, min(digits, 1))}f}"
        if self._warn and one.has_warnings:
            text = f"(! {one.iqr / one.median:.0%}) {text}"
        return text

    def _coloured(self, key: tuple, cells: dict[tuple, Measurement], text: str) -> str:
        if not self._colours or key not in cells:
            return text
        alike = slice(0, 3) if self._by_row else slice(3, 4)
        least = min(m.median for other, m in cells.items() if other[alike] == key[alike])
        ratio = cells[key].median / least
        colour = _GREEN if ratio == 1 else _RED if ratio >= 2 else ""
        return f"{colour}{text}{_PLAIN}" if colour else text
