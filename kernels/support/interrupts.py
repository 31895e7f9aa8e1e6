"""Ctrl-C does not cut in two what must be done as a whole: imports, compilations, shared launches.

Python raises what a signal's handler raises between any two bytecodes of the main thread. An import
that ends there leaves modules half initialised, and a compilation may leave half a table of types:
later calls then fail in strange ways. Inside of `deferred` the handler runs at once, but what it
raises waits for the end, or for the next `check`.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from kernels.support import forks

_print = builtins.print
_outermost: deferred | None = None  # of the main thread


class deferred:
    """Raises at its end what a handler of SIGINT raises inside.

    `stop` is called as soon as there is something to raise. With `again`, the signal comes once
    more a moment after the end, and nothing is raised at the end itself. Off the main thread, where
    no handler runs, and where SIGINT has no handler, this does nothing.
    """

    def __init__(self, stop: Callable[[], None] | None = None, again: bool = False) -> None:
        self.stops, self.again = [stop] if stop else [], again
        self.raised: BaseException | None = None
        self.handler: Any = None
        self.thread = threading.get_ident()

    def __enter__(self) -> None:
        global _outermost
        if threading.current_thread() is threading.main_thread():
            if _outermost is not None:
                _outermost.stops += self.stops
            else:
                self.handler = signal.getsignal(signal.SIGINT)
                if callable(self.handler):
                    signal.signal(signal.SIGINT, self.note)  # may raise what came before
                    _outermost = self
        forks.begin(waits=not self.again)

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler meanwhile: runs the program's own, and keeps what it raises."""
        try:
            self.handler(number, frame)
        except BaseException as error:
            self.raised = error
            for stop in self.stops:
                stop()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        global _outermost
        forks.end()
        if _outermost is not self:
            return
        _outermost = None
        if signal.getsignal(signal.SIGINT) == self.note:  # else what ran inside has set another
            signal.signal(signal.SIGINT, self.handler)
        if self.raised is not None and self.again:
            self.raised = None
            threading.Timer(0.01, signal.raise_signal, (signal.SIGINT,)).start()
        self.check()

    def check(self) -> None:
        error, self.raised = self.raised, None
        if error is not None:
            raise error


@forks.in_child
def _forget() -> None:
    """A child that another thread than the main one has forked: that one's block is not there."""
    global _outermost
    left, _outermost = _outermost, None
    if left is None or left.thread == threading.get_ident():
        _outermost = left
    elif signal.getsignal(signal.SIGINT) == left.note:
        signal.signal(signal.SIGINT, left.handler)


_fork: deferred | None = None  # of the main thread; Python drops what a function at a fork raises


def _before_fork() -> None:
    global _fork
    if threading.current_thread() is threading.main_thread():
        _fork = deferred(again=True)
        _fork.__enter__()


def _after_fork() -> None:
    global _fork
    if _fork is not None and _fork.thread == threading.get_ident():
        block, _fork = _fork, None
        block.__exit__(None, None, None)


def _after_fork_in_child() -> None:
    if _fork is not None:
        _fork.raised = None  # it is the parent's
    _after_fork()


if hasattr(os, "register_at_fork"):  # registered after those of `forks`, around which they are
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )


def check() -> None:
    """A place at which a deferred interrupt may be raised."""
    if _outermost is not None and threading.current_thread() is threading.main_thread():
        _outermost.check()


class _WholeImports(importlib.abc.MetaPathFinder):
    """Finds packages whose import, once begun, ends: they cannot be imported again after half.
    Among them are this project's modules, whose imports a fork must wait for, and packages whose
    import a fork has cut off."""

    packages = ("numpy", "ml_dtypes", "llvmlite", "numba")
    own = ("kernels.", "minigrad.")

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        known = name in self.packages or name.startswith(self.own) or name in forks.forgotten
        if not known:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute: Callable[[ModuleType], None] = spec.loader.exec_module
            if name == "numba":
                execute = python_s_print()(execute)
            spec.loader.exec_module = _whole(execute)  # type: ignore[method-assign, assignment]
        return spec


def _whole(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        if module.__name__ in forks.forgotten:
            _bind_parts(module)
        with deferred(again=True):  # Python would take an import that raises for one that failed
            execute(module)

    return exec_module


def _bind_parts(package: ModuleType) -> None:
    """Make modules that were imported whole attributes of their package, which is imported anew:
    Python does so only where it imports them."""
    for name, module in list(sys.modules.items()):
        parent, _, last = name.rpartition(".")
        if parent == package.__name__:
            setattr(package, last, module)


@contextlib.contextmanager
def python_s_print() -> Iterator[None]:
    """Numba registers `print`, and fails where that is another: a step that is recorded has one."""
    replaced, builtins.print = builtins.print, _print
    try:
        yield
    finally:
        builtins.print = replaced


sys.meta_path.insert(0, _WholeImports())
