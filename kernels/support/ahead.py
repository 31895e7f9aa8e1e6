"""Kernels that will soon be needed are compiled by other processes meanwhile.

LLVM and Numba compile one kernel at a time in a process, and a program waits for each. But what the
forward pass records says what the backward pass will launch. So where this process must compile a
kernel, it forks a child for another core. The child rehearses what has been recorded so far
(`rehearse`): its launches compile and do not run. What it compiles it leaves in the cache, where
this process finds it. For each kernel one process compiles and the others wait, or take another.

Only where a fork is cheap and usual (Linux), and where a launch may use several threads.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from kernels.support import cache, forks, processor, thread_pool

_MOST = 3  # children at a time
_SECONDS = 300  # after which a child ends: it compiles on a slow machine, or waits in vain
_DIES_WITH_PARENT = 1  # of prctl: PR_SET_PDEATHSIG

#: Launches what the program will need, as far as it is known; None: nobody knows.
rehearse: Callable[[], None] | None = None
#: Whether there is more of it than at the last call.
has_more: Callable[[], bool] = bool
#: Whether this process is such a child.
rehearsing = False

_children: set[int] = set()


class Busy(Exception):
    """Another process compiles this kernel just now."""


@contextlib.contextmanager
def compiling(path: Path) -> Iterator[None]:
    """This process compiles the kernel that will be kept at `path`; Busy in a child that would have
    to wait for another that does."""
    if not rehearsing:
        _start()
    with cache.alone(path, waits=not rehearsing) as mine:
        if not mine:
            raise Busy
        yield


def _start() -> None:
    """Fork a child, if there is something for it to do and a core to do it on."""
    _reap()
    room = min(thread_pool.get_num_threads(), processor.cores(), _MOST + 1) - 1
    if rehearse is None or sys.platform != "linux" or len(_children) >= room:
        return
    if "mpi4py.MPI" in sys.modules or forks.others() or not has_more():
        return  # MPI's network may use memory that a fork moves
    with warnings.catch_warnings(), contextlib.suppress(OSError):  # too many processes
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads run, if not here
        child = os.fork()
        if not child:
            _work(rehearse)
        _children.add(child)


def _work(rehearse: Callable[[], None]) -> None:
    """What a child does. It ends here, and leaves what the program has open alone."""
    global rehearsing
    rehearsing = True
    try:
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(one, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2:
                with contextlib.suppress(OSError):  # what listed them
                    os.close(number)
        rehearse()
    finally:
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


@atexit.register
def _end() -> None:
    """Children do not outlive the process: nobody needs what they would compile."""
    _reap()
    for child in _children:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@forks.in_child
def _forget() -> None:
    _children.clear()
