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
import mmap
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from kernels.support import cache, forks, processor, thread_pool

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_MOST = 3  # children at a time
_SECONDS = 300  # after which a child ends: it compiles on a slow machine, or waits in vain
_DIES_WITH_PARENT = 1  # of prctl: PR_SET_PDEATHSIG

#: What a child begins with: it sees to it that launches from now on compile only, and that `leave`
#: is called in the end. None: nobody knows what comes next.
begin: Callable[[], None] | None = None
#: Whether a child can learn something now.
may_begin: Callable[[], bool] = bool
#: Whether this process is such a child.
rehearsing = False

#: Launches whose kernels `postponing` has left to children, for when they have nothing else to do.
postponed: dict[Any, Callable[[], object]] = {}

_children: set[int] = set()
_postponing: set[int] = set()  # threads


class Busy(Exception):
    """Another process compiles this kernel just now, or it is to be compiled later."""


class LeftOut(Exception):
    """The launch that needs this kernel does not run here: this is a child, which goes on."""


@contextlib.contextmanager
def compiling(path: Path) -> Iterator[None]:
    """This process compiles the kernel that will be kept at `path`; Busy in a child that would have
    to wait for another that does."""
    if not rehearsing:
        if threading.get_ident() in _postponing and _room():
            raise Busy
        if _start():
            raise LeftOut
    with cache.alone(path, waits=not rehearsing) as mine:
        if not mine:
            raise Busy
        yield


@contextlib.contextmanager
def postponing() -> Iterator[None]:
    """Launches here that need a kernel which is not compiled raise Busy, where children can compile
    it: the caller has another way, and puts the launch into `postponed`."""
    me = threading.get_ident()
    _postponing.add(me)
    try:
        yield
    finally:
        _postponing.discard(me)


def _room() -> int:
    """How many children there may be at a time."""
    if begin is None or sys.platform != "linux":
        return 0
    return min(thread_pool.get_num_threads(), processor.cores(), _MOST + 1) - 1


def _start() -> bool:
    """Fork a child, if there may be something for it to do and a core to do it on. True in it."""
    _reap()
    if len(_children) >= _room():
        return False
    if "mpi4py.MPI" in sys.modules or forks.others() or not may_begin():
        return False  # MPI's network may use memory that a fork moves
    with warnings.catch_warnings(), contextlib.suppress(OSError):  # too many processes
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads run, if not here
        child = os.fork()
        if not child:
            _become_child()
            return True
        _children.add(child)
    return False


def _become_child() -> None:
    """Leave alone what the program has open, and begin."""
    global rehearsing
    rehearsing = True
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        _protect_shared(libc)
        sys.settrace(None)  # a debugger is the program's
        with contextlib.suppress(OSError):  # where memory is short, rather this than the program
            Path("/proc/self/oom_score_adj").write_text("1000")
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
        if begin is not None:
            begin()
    except BaseException:
        leave()


def _protect_shared(libc: ctypes.CDLL) -> None:
    """Memory that is shared with other processes, the program's among them, cannot be written: a
    child that tries ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights = line.split()[:2]
        if rights.startswith("rw") and rights.endswith("s"):
            first, last = (int(place, 16) for place in places.split("-"))
            libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.PROT_READ)


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


@atexit.register
def _end() -> None:
    """Children do not outlive the process: nobody needs what they would compile."""
    _reap()
    for child in _children:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if _children:
        cache.sweep()


@forks.in_child
def _forget() -> None:
    _children.clear()
    _postponing.clear()
