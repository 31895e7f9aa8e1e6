"""Remembered launches and the lock of Python's interpreter (GIL)."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import minigrad
from kernels.support import thread_pool


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(thread_pool.wanted, "value", 1)


@pytest.mark.parametrize("rows, times, released", [(96, 2000, False), (1024, 1, True)])
def test_only_launches_that_take_longer_than_a_switch_release_the_gil(rng, rows, times, released):
    """Python takes the GIL from nobody here: a thread that waits runs where it is released."""
    x = minigrad.from_numpy(rng.normal(size=(rows, rows)).astype(np.float32))

    def operation() -> None:
        for _ in range(times):
            x @ x if released else x + x

    operation()
    operation()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        seen = [_another_thread_runs(operation) for _ in range(20)]
    finally:
        sys.setswitchinterval(interval)
    assert any(seen) if released else sum(seen) < 10  # a launch may have lost its processor


def _another_thread_runs(operation) -> bool:
    """Whether a thread that is woken runs before the operation has ended."""
    woken, ran = threading.Event(), []

    def wait() -> None:
        woken.wait()
        ran.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    woken.set()
    operation()
    found = bool(ran)
    thread.join()
    return found
