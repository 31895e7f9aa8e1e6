"""`minigrad.utils.benchmark`: repetitions are counted, times summarised and tables drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minigrad
from minigrad.utils.benchmark import Compare, Measurement, TaskSpec, Timer


class Clock:
    """Time that passes only in the statement: the given seconds, again and again."""

    def __init__(self, *seconds):
        self.now, self.calls, self.seconds = 0.0, 0, itertools.cycle(seconds)

    def work(self):
        self.calls += 1
        self.now += next(self.seconds)

    def timer(self, stmt="work()", **options):
        return Timer(stmt, timer=lambda: self.now, globals={"work": self.work}, **options)


def measured(*times, number=1, **names):
    return Measurement(number, list(times), TaskSpec("f(x)", **names))


def test_repetitions():
    clock = Clock(0.25)
    found = clock.timer().timeit(300)
    assert clock.calls == 303 and found.times == [0.25] and found.number_per_run == 300
    assert found.raw_times == [75.0] and found.median == found.mean == 0.25 and found.iqr == 0


def test_runs_until_a_time_has_passed():
    heard = []
    clock = Clock(1e-5)
    found = clock.timer().blocked_autorange(lambda *a: heard.append(a), min_run_time=0.5)
    assert 0.5 <= sum(found.raw_times) < 0.51 and found.number_per_run >= 50
    assert [t for _, t in heard] == found.raw_times
    assert found.mean == pytest.approx(1e-5) and not found.has_warnings
    steady = Clock(1e-3).timer().adaptive_autorange()
    assert 0.01 <= sum(steady.raw_times) < 0.02
    wild = Clock(1e-3, 3e-3).timer().adaptive_autorange(max_run_time=0.3)
    assert sum(wild.raw_times) >= 0.3 and wild.has_warnings


def test_the_first_call_does_not_count():
    """It may compile: the repetitions of a run are those of later calls."""
    clock = Clock(1e-6)
    clock.seconds = itertools.chain([5.0], itertools.repeat(1e-6))
    found = clock.timer().blocked_autorange(min_run_time=0.01)
    assert found.number_per_run > 50 and found.mean == pytest.approx(1e-6)


def test_threads_of_the_statement_and_of_the_program():
    before = minigrad.get_num_threads()
    seen = []
    space = {"seen": seen}
    Timer("seen.append(torch.get_num_threads())", globals=space, num_threads=2).timeit(1)
    assert set(seen) == {2} and minigrad.get_num_threads() == before


def test_summaries_as_torch(torch, rng):
    from torch.utils.benchmark import Measurement as theirs
    from torch.utils.benchmark.utils.common import TaskSpec as task

    times = (rng.random(9) * 1e-3).tolist()
    mine = measured(*times, number=10, label="sum", sub_label="10")
    wanted = theirs(10, times, task("f(x)", "pass", label="sum", sub_label="10"))
    for name in ("median", "mean", "iqr", "title", "as_row_name", "env", "has_warnings"):
        found, expected = getattr(mine, name), getattr(wanted, name)
        assert found == (pytest.approx(expected) if name in ("median", "mean", "iqr") else expected)
    np.testing.assert_allclose(mine.times, wanted.times)
    assert mine.meets_confidence(100) and not mine.meets_confidence(1e-9)
    lines = repr(mine).splitlines()
    assert lines[1] == repr(wanted).splitlines()[1] == "sum: 10"
    assert lines[2:4] == repr(wanted).splitlines()[2:4]  # median and quartiles
    assert repr(measured(0.5)).endswith("f(x)\n  500.00 ms\n  1 measurement, 1 run, 1 thread")


def test_tables():
    results = [
        measured(t * 1e-6, label="products", sub_label=f"[{n}]", description=how, num_threads=k)
        for k, n, how, t in (
            (1, 4, "mm", 5),
            (1, 64, "mm", 25),
            (1, 4, "einsum", 10.5),
            (2, 64, "mm", 12.25),
        )
    ]
    compare = Compare(results[:3])
    compare.extend_results(results[3:])
    assert str(compare).splitlines() == [
        "[-------- products --------]",
        "           |  mm   | einsum ",
        "1 threads: -----------------",
        "      [4]  |   5.0 |    10.5",
        "      [64] |  25.0 |        ",
        "2 threads: -----------------",
        "      [64] |  12.2 |        ",
        "",
        "Times are in microseconds (us).",
    ]
    compare.colorize()
    assert "\033[32m\033[1m" in str(compare) and "\033[31m" in str(compare)
    both = Compare([measured(0.1, description="a"), measured(0.3, description="a")])
    assert "200.0" in str(both) and both._results[0].stmt == "f(x)"  # one task: merged


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: Timer(len), ValueError),
        (lambda: Timer("x", language="c++"), NotImplementedError),
        (lambda: Timer("x", global_setup="int x;"), ValueError),
        (lambda: Compare([1.0]), ValueError),
        (lambda: measured().median, RuntimeError),
    ],
)
def test_what_is_refused(wrong, error):
    with pytest.raises(error, match=r"Timer|Measurement"):
        wrong()
