"""`minigrad.multiprocessing`: the standard library's module, and `spawn`.

Tensors that are sent to another process are copied; they do not share memory.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403 - what the standard library names
from multiprocessing.connection import wait
from typing import Any

from minigrad._names import namespace

__all__ = [*multiprocessing.__all__, "spawn"]


def _run(fn: Callable, index: int, args: tuple) -> None:
    fn(index, *args)


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> list[Any] | None:
    """Run `fn(i, *args)` in processes 0 .. nprocs-1.

    Waits for them and raises RuntimeError where one fails, after it has ended the others, which may
    wait for that one; without `join` returns the processes.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes = [
        context.Process(target=_run, args=(fn, i, args), daemon=daemon) for i in range(nprocs)
    ]
    for process in processes:
        process.start()
    if not join:
        return processes
    failed = _failed(processes)
    if failed:
        raise RuntimeError(f"spawn: processes ended with an error, by number: {failed}")
    return None


def _failed(processes: list[Any]) -> dict[int, int]:
    """Wait for processes; the exit codes of the first that failed, by number."""
    running: dict[Any, int] = {p.sentinel: i for i, p in enumerate(processes)}
    failed: dict[int, int] = {}
    try:
        while running and not failed:
            for sentinel in wait(list(running)):
                number = running.pop(sentinel)
                processes[number].join()
                if processes[number].exitcode:
                    failed[number] = processes[number].exitcode
    finally:
        for number in running.values():
            processes[number].terminate()
        for number in running.values():
            processes[number].join()
    return failed


__getattr__, __dir__ = namespace(__name__)
