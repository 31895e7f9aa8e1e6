"""Results that come later: `Future`, with callbacks and chains, as in torch.futures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from kernels.support import forks
from minigrad._names import namespace

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A result that another thread, or a later part of the program, sets once.

    devices: those of the tensors in the result; they need no waiting of their own here.
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        self._state = threading.Condition()
        self._done, self._result = False, None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._done

    def wait(self) -> T:
        """The result, once it is there; an error is raised."""
        with self._state:
            self._state.wait_for(lambda: self._done)
        return self._outcome()

    def value(self) -> T:
        """The result, which must be there; an error is raised. RuntimeError before that."""
        if not self._done:
            raise RuntimeError("Future.value: there is no result yet; wait() waits for it")
        return self._outcome()

    def set_result(self, result: T) -> None:
        """End with a result, and run the callbacks. RuntimeError if it has ended before."""
        self._end(result, None)

    def set_exception(self, result: BaseException) -> None:
        """End with an error, which `wait` and `value` raise. AssertionError for other types."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._end(None, result)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A Future of what the callback makes of this one, once this one has ended."""
        after: Future[S] = Future()

        def run(before: Future[T]) -> None:
            try:
                result = callback(before)
            except Exception as error:  # whatever it is: it is raised where the result is asked for
                failed = RuntimeError(f"Future.then: the callback raised {error!r}")
                failed.__cause__ = error
                after.set_exception(failed)
            else:
                after.set_result(result)

        self.add_done_callback(run)
        return after

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call this with the Future when it has ended; at once if it has. What it raises is logged:
        it doesn't concern the thread that sets the result."""
        with self._state:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _call(self, callback: Callable[[Future[T]], Any]) -> None:
        try:
            callback(self)
        except Exception:
            logging.getLogger(__name__).exception("Future: a callback failed")

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def _end(self, result: Any, error: BaseException | None) -> None:
        with self._state:
            if self._done:
                raise RuntimeError("Future: its result can be set once only, and has been set")
            self._result, self._error, self._done = result, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._state.notify_all()
        for callback in callbacks:
            self._call(callback)


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A Future of the list itself, which ends when all of its Futures have."""
    everything: Future[list[Future]] = Future()
    waiting = len(futures)
    lock = forks.lock()

    def one_less(_: Future) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            last = waiting == 0
        if last:
            everything.set_result(futures)

    if not futures:
        everything.set_result(futures)
    for future in futures:
        future.add_done_callback(one_less)
    return everything


def wait_all(futures: list[Future]) -> list:
    """The results of all, in their order, once all have ended; the first error is raised."""
    return [future.wait() for future in collect_all(futures).wait()]


__getattr__, __dir__ = namespace(__name__)
