"""Which launches several OS threads share: those that are long, where it was faster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernels.simt import cuda
from kernels.simt.api import launch
from kernels.support import thread_pool


@cuda.jit
def nothing(x):
    pass


class Compiled:
    """Machine code that takes the seconds that it is told to, on a clock of its own."""

    def __init__(self, alone: float, together: float) -> None:
        self.alone, self.together = alone, together
        self.one_thread, self.cost, self.now = False, 0.0, 100.0
        self.ways: list[str] = []

    def run(self, *_) -> None:
        self.now += self.alone
        self.ways.append("alone")

    def run_parallel(self, *_) -> None:
        self.now += self.together
        self.ways.append("together")


@pytest.fixture
def launched(monkeypatch):
    def launched(compiled: Compiled, count: int, launcher=None):
        clock = SimpleNamespace(perf_counter=lambda: compiled.now)
        monkeypatch.setattr(launch, "time", clock)
        monkeypatch.setattr(thread_pool, "get_num_threads", lambda: 2)
        launcher = launcher or nothing.configure(8, 32)
        for _ in range(count):
            launcher.run(compiled, ())
        return launcher

    return launched


def test_short_launches_stay_on_one_thread(launched):
    compiled = Compiled(1e-5, 1e-6)
    launched(compiled, 20)
    assert set(compiled.ways) == {"alone"}


@pytest.mark.parametrize("together", [6e-4, 2e-3])
def test_long_launches_are_run_the_faster_way(launched, together):
    compiled = Compiled(1e-3, together)
    launched(compiled, 200)
    assert compiled.ways[:2] == ["alone", "together"]
    other = "alone" if together < 1e-3 else "together"
    assert 4 < compiled.ways.count(other) < 10  # tried at first, and again now and then


def test_very_long_launches_are_shared_without_a_trial(launched):
    compiled = Compiled(1e-2, 9e-3)
    launched(compiled, 100)
    assert compiled.ways == ["alone"] + 99 * ["together"]


def test_a_change_is_noticed_and_a_disturbance_forgotten(launched):
    compiled = Compiled(1e-3, 6e-4)
    launcher = launched(compiled, 20)
    compiled.together = 1.0  # once: the thread was not there
    launched(compiled, 1, launcher)
    compiled.together, compiled.ways = 6e-4, []
    launched(compiled, 200, launcher)
    assert compiled.ways.count("together") > 120
    compiled.together, compiled.ways = 5e-3, []  # for good: other work has the core
    launched(compiled, 200, launcher)
    assert compiled.ways.count("alone") > 180
