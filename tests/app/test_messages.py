"""The time of a message between two threads, which benchmarks with several threads show."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import numpy as np


def test_two_threads_answer_each_other(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    messages = importlib.import_module("messages")

    flag = np.zeros(1, np.int32)
    other = threading.Thread(target=messages.answer[1, 1], args=(flag, 1, 20))
    other.start()
    messages.answer[1, 1](flag, 0, 20)
    other.join()
    assert flag[0] == 40  # each has answered every message
    assert messages.nanoseconds(20) > 0
