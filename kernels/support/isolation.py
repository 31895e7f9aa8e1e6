"""A child of a fork that leaves alone what the program has: files, memory, signals, processes."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_DIES_WITH_PARENT = 1  # of prctl: PR_SET_PDEATHSIG
_FRAMES = 1000  # which what watches a child needs, also deep in a recursion of the program's
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FAMILIES = ("os.", "shutil.", "socket.", "sqlite3.", "subprocess.")  # of events of `sys.audit`
_READING = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")


def isolate(parent: int, folder: Path, seconds: int) -> None:
    """Keep this child of the process `parent` from whatever others would notice, but for files in
    `folder`. It ends with its parent, and after so many seconds.

    Signals are blocked when it begins. Raises an exception where something of that is impossible.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number != nothing:  # not closed: objects of the program's would use what gets its number
            with contextlib.suppress(OSError):  # what listed them
                os.dup2(nothing, number)
    sys.settrace(None)  # a debugger is the program's
    sys.setprofile(None)
    sys.setrecursionlimit(sys.getrecursionlimit() + _FRAMES)
    sys.dont_write_bytecode = True
    libc = ctypes.CDLL(None)
    libc.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent or threading.active_count() > 1:  # the program's hooks of forks
        raise RuntimeError
    _protect_shared(libc)
    with contextlib.suppress(OSError):  # where memory is short, rather this than the program
        Path("/proc/self/oom_score_adj").write_text("1000")
    _let_signals_end()
    signal.alarm(seconds)
    _refuse_outside(str(folder) + os.sep)


def _protect_shared(libc: ctypes.CDLL) -> None:
    """Memory that is shared with other processes, the program's among them, cannot be written: a
    child that tries ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        places, rights = line.split()[:2]
        if rights.startswith(b"rw") and rights.endswith(b"s"):
            first, last = (int(place, 16) for place in places.split(b"-"))
            libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.PROT_READ)


def _let_signals_end() -> None:
    """No handler of the program's is called."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _refuse_outside(folder: str) -> None:
    """PermissionError where Python's library, which no profiler watches, would change files outside
    of a folder, or start or reach another process: finalizers do, when an object goes."""

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            acts = isinstance(args[0], str | bytes) and (args[2] or 0) & _WRITING
        else:
            acts = event.startswith(_FAMILIES) and event not in _READING
        if acts and not _is_below(args, folder):
            raise PermissionError(f"{event} in a child that compiles")

    sys.addaudithook(heard)


def _is_below(args: tuple[Any, ...], folder: str) -> bool:
    place = args[0] if args else None
    return isinstance(place, str | bytes | os.PathLike) and os.fsdecode(place).startswith(folder)
