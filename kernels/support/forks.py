"""`os.fork` while other threads compute: a child has only the thread that forked.

What the others did stays half done in it. So a fork waits until no other thread is in what must be
done as a whole (`interrupts.deferred`: compilations, shared launches) or imports a module, and work
that comes meanwhile waits for the fork. In the child the locks that are made here and those of
Python's modules are free again: whoever held one is not there to release it.
"""

from __future__ import annotations

import importlib
import logging  # noqa: F401 - its handler of forks takes a lock, which threads in `others` may want
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

_PATIENCE = 20.0  # seconds; then the fork goes on: the others may wait for the thread that forks
_PAUSE = 0.001

_whole: dict[int, int] = {}  # threads in work that is done as a whole, and how deep they are in it
_forking: int | None = None  # the thread that forks
_one_fork = threading.Lock()
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_in_child: list[Callable[[], None]] = []


#: Modules whose import another thread had begun at the fork, in its child.
forgotten: set[str] = set()


def lock() -> Any:
    """A `threading.Lock` that is free in the child of a fork."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> Any:
    """A `threading.RLock` that is free in the child of a fork, unless the thread there has it."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Decorate what is to be called in the child of a fork."""
    _in_child.append(function)
    return function


def begin(waits: bool = True) -> None:
    """This thread begins something that is done as a whole. waits: for a fork, if there is one just
    now; an import does not, since others that the fork waits for may need the module."""
    me = threading.get_ident()
    depth = _whole.get(me, 0)
    _whole[me] = depth + 1
    while waits and not depth and _forking not in (None, me) and me not in _importing():
        del _whole[me]  # not seen by that thread
        time.sleep(_PAUSE)
        _whole[me] = 1


def end() -> None:
    """It has ended."""
    me = threading.get_ident()
    depth = _whole.get(me, 1) - 1
    if depth:
        _whole[me] = depth
    else:
        _whole.pop(me, None)


def _module_locks() -> dict[str, Any]:
    """Python's locks of the modules that threads import just now, by the modules' names."""
    known = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    found = {name: reference() for name, reference in list(known.items())}
    return {name: lock for name, lock in found.items() if hasattr(lock, "owner")}


def _importing() -> set[int]:
    """The threads that import something."""
    return {lock.owner for lock in _module_locks().values()} - {None}


def others() -> set[int]:
    """The other threads for which a fork by this one waits."""
    me, importing = threading.get_ident(), _importing()
    if me in importing:  # others may wait for what this thread imports
        importing = set()
    forking = set() if _forking is None else {_forking}
    return (set(_whole) | importing | forking) - {me}


def _before() -> None:
    global _forking
    _one_fork.acquire()
    _forking, limit = threading.get_ident(), time.monotonic() + _PATIENCE
    while others() and time.monotonic() < limit:
        time.sleep(_PAUSE)


def _after() -> None:
    global _forking
    _forking = None
    _one_fork.release()


def _child() -> None:
    me = threading.get_ident()
    for thread in [thread for thread in _whole if thread != me]:
        del _whole[thread]
    for name, lock in _module_locks().items():
        if lock.owner != me:
            _import_anew(name)
    for one in list(_locks):
        if not getattr(one, "_is_owned", bool)():
            one._at_fork_reinit()
    for function in _in_child:
        function()
    _after()


def _import_anew(name: str) -> None:
    """Forget the import of a module that another thread has begun, and its lock."""
    importlib._bootstrap._module_locks.pop(name, None)  # type: ignore[attr-defined]
    specification = getattr(sys.modules.get(name), "__spec__", None)
    if getattr(specification, "_initializing", False):
        del sys.modules[name]
        forgotten.add(name)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_child)
