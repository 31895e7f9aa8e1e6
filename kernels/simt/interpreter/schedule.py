"""CUDA threads as coroutines on operating-system threads, one running at a time.

Python cannot suspend a call in the middle of its stack, so a CUDA thread that has to wait keeps an
OS thread, and a baton passes between them. A CUDA thread that never waits costs nothing: the OS
thread that finished one runs the next. The order is fixed (the lowest ready thread of the earliest
block first), so a kernel does the same each time, races included.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from typing import Any

FRUITLESS_ROUNDS = 8
"""How often every spinning task is resumed before the launch counts as endless."""


class Abandoned(BaseException):
    """Unwinds the suspended threads of a launch that has failed."""


class Task:
    """Work that can wait: `order` decides who goes first, `body` is what it does."""

    __slots__ = ("baton", "body", "order", "outcome")

    def __init__(self, order: int, body: Callable[[], None]) -> None:
        self.order, self.body = order, body
        self.baton: _Baton | None = None  # the OS thread that holds its stack
        self.outcome: Any = None

    def __lt__(self, other: Task) -> bool:
        return self.order < other.order


class _Baton:
    """Where an OS thread sleeps; `task` is what it starts with when woken."""

    __slots__ = ("lock", "task")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.task: Task | None = None

    def wake(self) -> None:
        self.lock.release()

    def sleep(self) -> None:
        self.lock.acquire()


class Scheduler:
    """Runs the tasks that `source` yields, in order, until all are done or one raises.

    `stuck` is called when every task waits and none is left to start: it makes one ready with
    `resume`, or raises.
    """

    def __init__(self, source: Iterator[Task], stuck: Callable[[], None]) -> None:
        self._source = source
        self._stuck = stuck
        self._ready: list[Task] = []
        self._spinning: list[Task] = []
        self._fruitless = 0
        self._waiting: set[Task] = set()
        self._main = _Baton()
        self._idle: list[_Baton] = []
        self._workers: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._ending = False

    def run(self) -> None:
        """Run everything; raises what a task or `stuck` raised."""
        try:
            following = self._drive(self._main)
            if following is not None:
                self._hand_over(following)
                self._main.sleep()
        finally:
            self._unwind()
        if self._failure is not None:
            raise self._failure

    def _unwind(self) -> None:
        """Let suspended stacks and idle workers end, one at a time."""
        for task in sorted(self._waiting.union(self._ready, self._spinning)):
            if task.baton is not None:
                task.baton.wake()
                self._main.sleep()
        self._ending = True
        for baton in self._idle:
            baton.wake()
        for worker in self._workers:
            worker.join()

    # --- called by the running task

    def wait(self, task: Task) -> Any:
        """Suspend `task` until it is resumed; returns the outcome it is resumed with."""
        self._waiting.add(task)
        self._suspend(task)
        return task.outcome

    def resume(self, task: Task, outcome: Any = None) -> None:
        """Make a waiting task ready, or the running one that is about to wait."""
        self._fruitless = 0
        task.outcome = outcome
        heapq.heappush(self._ready, task)

    def yield_to_others(self, task: Task) -> bool:
        """Let other tasks run. False if all that can run have only yielded for a long time."""
        self._fruitless += 1
        if self._fruitless > FRUITLESS_ROUNDS * (len(self._spinning) + 1):
            return False
        self._spinning.append(task)
        self._suspend(task)
        return True

    def _suspend(self, task: Task) -> None:
        if self._failure is not None:
            raise Abandoned
        following = self._next()
        if following is task:
            return
        self._hand_over(following)
        task.baton.sleep()
        if self._failure is not None:
            raise Abandoned

    # --- passing the baton

    def _next(self) -> Task | None:
        """Who runs now; None when all is done or has failed."""
        while self._failure is None:
            if self._ready:
                task = heapq.heappop(self._ready)
                self._waiting.discard(task)
                return task
            task = next(self._source, None)
            if task is not None:
                return task
            if self._spinning:
                return self._spinning.pop(0)
            if not self._waiting:
                return None
            try:
                self._stuck()
            except Exception as failure:
                self._failure = failure
        return None

    def _hand_over(self, task: Task | None) -> None:
        if task is None:
            self._main.wake()
        elif task.baton is not None:
            task.baton.wake()
        elif self._idle:
            baton = self._idle.pop()
            baton.task = task
            baton.wake()
        else:
            baton = _Baton()
            baton.task = task
            worker = threading.Thread(target=self._work, args=(baton,), daemon=True)
            self._workers.append(worker)
            worker.start()

    def _work(self, baton: _Baton) -> None:
        while not self._ending:
            following = self._drive(baton)
            self._idle.append(baton)
            self._hand_over(following)
            baton.sleep()

    def _drive(self, baton: _Baton) -> Task | None:
        """Run fresh tasks on this OS thread; returns the first that has its stack elsewhere."""
        task, baton.task = baton.task, None
        while True:
            task = task or self._next()
            if task is None or task.baton is not None:
                return task
            self._execute(task, baton)
            task = None

    def _execute(self, task: Task, baton: _Baton) -> None:
        task.baton = baton
        try:
            task.body()
            self._fruitless = 0
        except Abandoned:
            pass
        except BaseException as failure:
            self._failure = self._failure or failure
        finally:
            task.baton = None
