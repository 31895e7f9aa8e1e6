"""Kernels that will soon be needed are compiled by other processes meanwhile.

LLVM and Numba compile one kernel at a time in a process, and a program waits for each. But the call
that needs a kernel has more to launch, and what the forward pass records says what the backward
pass will launch. So where this process must compile a kernel, it forks a child for another core.
The child rehearses what comes next, as far as it is known (`begin`): its launches compile and do
not run. What it compiles it leaves in the cache, where this process finds it. For each kernel one
process compiles and the others wait, or take another.

Only where a fork is cheap and usual (Linux), and where a launch may use several threads.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from kernels.support import cache, forks, isolation, processor, thread_pool

_MOST = 3  # children at a time
_LIBRARIES = (__name__, "multiprocessing.popen_fork", "subprocess")  # wait for their own children
_SECONDS = 300  # after which a child ends: it compiles on a slow machine, or waits in vain
_BUSY, _IDLE = b"minigrad busy", b"minigrad idle"  # names of a child that has compiled something
_SET_NAME = 15  # of prctl: PR_SET_NAME
_MOMENT = 0.1  # seconds

#: What a child begins with: it sees to it that launches from now on compile only, and that `leave`
#: is called in the end. None: nobody knows what comes next.
begin: Callable[[], None] | None = None
#: Whether a child can learn something now.
may_begin: Callable[[], bool] = bool
#: Whether this process is such a child.
rehearsing = False
compiled = 0  # kernels, by this process or, in a child, by those that it is a child of

#: Launches whose kernels `postponing` has left to children, for when they have nothing else to do.
postponed: dict[Any, Callable[[], object]] = {}

_children: set[int] = set()
_forks_itself = False  # the program, without a library that waits for its own children only
_postponing: set[int] = set()  # threads


class Busy(Exception):
    """Another process compiles this kernel just now, or it is to be compiled later."""


class LeftOut(Exception):
    """The launch that needs this kernel does not run here: this is a child, which goes on."""


@contextlib.contextmanager
def compiling(path: Path) -> Iterator[None]:
    """This process compiles the kernel that will be kept at `path`; Busy in a child that would have
    to wait for another that does."""
    global compiled
    if not rehearsing:
        if threading.get_ident() in _postponing and room():
            raise Busy
        if start():
            raise LeftOut
    with cache.alone(path, waits=not rehearsing) as mine:
        if not mine:
            raise Busy
        compiled += 1
        _call_this(_BUSY)
        try:
            yield
        finally:
            _call_this(_IDLE)


@contextlib.contextmanager
def postponing(key: Any, launch: Callable[[], object]) -> Iterator[None]:
    """Launches here that need a kernel which is not compiled raise Busy, where children can compile
    it: the caller has another way, and a child will come to `launch`."""
    me = threading.get_ident()
    _postponing.add(me)
    try:
        yield
    except Busy:
        postponed[key] = launch
        raise
    finally:
        _postponing.discard(me)


def room() -> int:
    """How many children there may be at a time."""
    if begin is None or sys.platform != "linux":
        return 0
    return min(thread_pool.get_num_threads(), processor.cores(), _MOST + 1) - 1


def start() -> bool:
    """Fork a child, if there may be something for it to do and a core to do it on. True in it."""
    _reap()
    if _would_be_noticed():
        return False
    end = time.monotonic() + _MOMENT
    while len(_children) >= room():
        if not any(map(_may_end, _children)) or time.monotonic() > end:
            return False
        time.sleep(_MOMENT / 100)
        _reap()
    if "mpi4py.MPI" in sys.modules or forks.others() or not may_begin():
        return False  # MPI's network may use memory that a fork moves
    with _numba_is_idle() as idle, contextlib.suppress(Exception):  # what forbids or hinders a fork
        return idle and _fork()
    return False


def _fork() -> bool:
    """Fork a child. True in it."""
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads run, if not here
            child = os.fork()
        if not child:
            _become_child(parent)
            return True
        _children.add(child)
    finally:
        if not rehearsing:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return False


def _become_child(parent: int) -> None:
    """Leave alone what the program has, and begin."""
    global rehearsing
    rehearsing = True
    try:
        isolation.isolate(parent, cache.cache_folder(), _SECONDS)
        if begin is not None:
            begin()
    except BaseException:
        leave()


def _would_be_noticed() -> bool:
    """Whether the program hears of each child that ends, or may wait for any."""
    return _forks_itself or callable(signal.getsignal(signal.SIGCHLD))


@contextlib.contextmanager
def _numba_is_idle() -> Iterator[bool]:
    """Whether no other thread compiles with Numba, whose lock nobody would release in a child."""
    module = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(getattr(module, "global_compiler_lock", None), "_lock", None)
    if lock is None:
        yield True
    elif lock.acquire(blocking=False):
        with contextlib.ExitStack() as stack:
            stack.callback(lock.release)
            yield True
    else:
        yield False


def _call_this(name: bytes) -> None:
    """Name a child by what it does, for `_may_end`."""
    if rehearsing:
        ctypes.CDLL(None).prctl(_SET_NAME, name)


def _may_end(child: int) -> bool:
    """Whether a child has compiled something, and compiles nothing just now. Who has waited for its
    last kernel comes to the next one before it has ended."""
    try:
        return Path(f"/proc/{child}/comm").read_bytes().strip() == _IDLE
    except OSError:
        return True


def leave() -> NoReturn:
    """End a child, without what a program does at its end."""
    os._exit(0)


def _reap() -> None:
    """Forget the children that have ended."""
    for child in list(_children):
        try:
            ended = os.waitpid(child, os.WNOHANG)[0]
        except ChildProcessError:  # the program has waited for it
            ended = child
        if ended:
            _children.discard(child)


def _end_children() -> None:
    _reap()
    for child in _children:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@atexit.register
def _end() -> None:
    """Children do not outlive the process: nobody needs what they would compile."""
    _end_children()
    if _children:
        cache.sweep()


def _before_fork() -> None:
    """A program that forks may wait for any child, `os.wait`: it finds none that is not its own."""
    global _forks_itself
    forks_ = sys._getframe(1).f_globals.get("__name__", "")
    if forks_ not in _LIBRARIES:
        _forks_itself = True
        _end_children()
        _children.clear()


@forks.in_child
def _forget() -> None:
    global _forks_itself
    _forks_itself = False
    _children.clear()
    _postponing.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork)
