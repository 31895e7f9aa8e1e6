"""CUDA threads as coroutines on operating-system threads, one running at a time.

Python cannot suspend a call in the middle of a stack, so every CUDA thread that has to wait holds an
OS thread, and a baton passes between them. A CUDA thread that never waits costs nothing: the OS
thread that finished one runs the next. The order is fixed (the lowest ready thread of the earliest
block first), so a kernel gives the same result each time, races included.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from typing import Any

SPIN_LIMIT = 20_000  # yields of one thread before it counts as endless


class Abandoned(BaseException):
    """Unwinds the waiting threads of a launch that has failed."""


class Task:
    """A unit of work that can wait: `order` decides who goes first, `body` is the work."""

    __slots__ = ("baton", "body", "order", "outcome", "yields")

    def __init__(self, order: int, body: Callable[[], None]) -> None:
        self.order, self.body = order, body
        self.baton: _Baton | None = None  # the OS thread that holds its suspended stack
        self.outcome: Any = None
        self.yields = 0

    def __lt__(self, other: Task) -> bool:
        return self.order < other.order


class _Baton:
    """An OS thread's place to sleep."""

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
    """Runs tasks drawn from `source`, in order, until all are done or one raises.

    `stuck` is called when every started task waits and none is left to start: it must make one
    ready, or raise.
    """

    def __init__(self, source: Iterator[Task], stuck: Callable[[], None]) -> None:
        self._source = source
        self._stuck = stuck
        self._ready: list[Task] = []
        self._spinning: list[Task] = []
        self._waiting: set[Task] = set()
        self._idle: list[_Baton] = []
        self._main = _Baton()
        self._failure: BaseException | None = None
        self._ending = False
        self._workers: list[threading.Thread] = []

    # --- called by whoever launches

    def run(self) -> None:
        """Run everything; re-raises what a task raised."""
        try:
            self._drive(self._main)
        finally:
            self._unwind()
        if self._failure is not None:
            raise self._failure

    def _unwind(self) -> None:
        """Let every suspended stack and idle worker end, one at a time."""
        self._ending = True
        for task in sorted(self._waiting | set(self._ready) | set(self._spinning)):
            if task.baton is not None and task.baton is not self._main:
                task.baton.wake()
                self._main.sleep()
        for baton in self._idle:
            baton.wake()
        for worker in self._workers:
            worker.join()

    # --- called by running tasks

    def wait(self, task: Task) -> Any:
        """Suspend the running `task` until `resume(task, outcome)`; returns the outcome."""
        self._waiting.add(task)
        self._suspend(task)
        return task.outcome

    def resume(self, task: Task, outcome: Any = None) -> None:
        """Make a waiting task ready."""
        self._waiting.discard(task)
        task.outcome = outcome
        heapq.heappush(self._ready, task)

    def give_way(self, task: Task) -> bool:
        """Let the others run first; False when the task has done so too often."""
        task.yields += 1
        if task.yields > SPIN_LIMIT:
            return False
        self._spinning.append(task)
        self._suspend(task)
        return True

    def _suspend(self, task: Task) -> None:
        baton = task.baton
        following = self._next()
        if following is task:
            return
        self._hand_over(following)
        baton.sleep()
        if self._ending:
            raise Abandoned

    # --- passing the baton

    def _next(self) -> Task | None:
        """Who runs now; None when all is done or has failed."""
        while self._failure is None:
            if self._ready:
                return heapq.heappop(self._ready)
            task = next(self._source, None)
            if task is not None:
                return task
            if self._spinning:
                self._ready, self._spinning = self._spinning, []
                heapq.heapify(self._ready)
            elif self._waiting:
                try:
                    self._stuck()
                except Exception as failure:
                    self._failure = failure
            else:
                return None
        return None

    def _hand_over(self, task: Task | None) -> None:
        if task is None:
            self._main.wake()
        elif task.baton is not None:
            task.baton.wake()
        else:
            self._worker(task)

    def _worker(self, task: Task) -> None:
        if self._idle:
            baton = self._idle.pop()
            baton.task = task
            baton.wake()
            return
        baton = _Baton()
        baton.task = task
        worker = threading.Thread(target=self._work, args=(baton,), daemon=True)
        self._workers.append(worker)
        worker.start()

    def _work(self, baton: _Baton) -> None:
        while True:
            self._drive(baton)
            if self._ending:
                return
            baton.sleep()
            if self._ending:
                return

    def _drive(self, baton: _Baton) -> None:
        """Run tasks on this OS thread while the next one has no stack elsewhere."""
        task = baton.task
        baton.task = None
        while not self._ending:
            if task is None:
                task = self._next()
            if task is None or task.baton is not None:
                if baton is not self._main:
                    self._idle.append(baton)
                    self._hand_over(task)
                elif task is not None:
                    self._hand_over(task)
                    baton.sleep()
                    task = baton.task
                    baton.task = None
                    if task is not None:
                        continue
                return
            self._execute(task, baton)
            task = None

    def _execute(self, task: Task, baton: _Baton) -> None:
        task.baton = baton
        try:
            task.body()
        except Abandoned:
            self._main.wake()
        except BaseException as failure:
            if self._failure is None:
                self._failure = failure
        finally:
            task.baton = None
