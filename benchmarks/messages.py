"""How long a message takes from one thread to another and back, through a line of the cache.

    python -m benchmarks.messages

It tells whether a machine's processors are near each other when a benchmark runs with several
threads: on a virtual machine, whose host moves them, about 50 ns where they share a cache, 300 and
more where they do not, and thousands where the host gives one of them no time. What one thread
hands to another comes as slowly.
"""

from __future__ import annotations

import threading
import time

import measure  # noqa: F401 - makes the source tree importable
import numpy as np

from kernels import cuda

MESSAGES = 500


@cuda.jit
def answer(flag, turn, messages):
    """Wait for each message of the other thread, and send one."""
    for i in range(messages):
        while cuda.atomic.add(flag, 0, 0) != 2 * i + turn:
            pass
        cuda.atomic.add(flag, 0, 1)


def nanoseconds(messages: int = MESSAGES) -> float:
    """For a message and its answer."""
    flag = np.zeros(1, np.int32)
    other = threading.Thread(target=answer[1, 1], args=(flag, 1, messages))
    other.start()
    started = time.perf_counter()
    answer[1, 1](flag, 0, messages)
    spent = time.perf_counter() - started
    other.join()
    return 1e9 * spent / messages


def now() -> int:
    """The least of three, in nanoseconds."""
    return round(min(nanoseconds() for _ in range(3)))


if __name__ == "__main__":
    nanoseconds(1)  # compiles
    print(f"{now()} ns for a message and its answer")
