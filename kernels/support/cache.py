"""The folder of compiled kernels, and files that are found in it whole or not at all.

`cache_folder()` is `kernels/` in MINIGRAD_CACHE_DIR (default `~/.cache/minigrad`). Files are
written under a temporary name and moved into place, so that two processes that compile the same
kernel at the same time end with one good file. What runs as code is sealed with the SHA-256 of its
files: a disk that damaged them, or lost the end of one in a power cut, makes the kernel compile
again. Where the folder cannot be used (read-only, full, writable for other users), the process
keeps its kernels in a temporary folder and says so.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

from kernels.support import interrupts

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MEMORY = "/dev/shm"  # a file system in memory, where there is one
_PATIENCE, _PAUSE = 60.0, 0.005  # seconds: how long a lock is waited for, how often tried
_ROOM = 1 << 20  # bytes that a substitute must have
_substitutes: dict[Path, Path] = {}  # by the folder that could not be used


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    root = os.environ.get("MINIGRAD_CACHE_DIR")
    base = Path(root).expanduser().absolute() if root else Path.home() / ".cache" / "minigrad"
    return _usable(base / "kernels")


@lru_cache(maxsize=8)
def _usable(folder: Path) -> Path:
    """`folder`, or one for this process alone where it cannot be made, written or trusted."""
    if folder in _substitutes:
        return _substitutes[folder]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = _distrust(folder)
        if not folder.parent.stat().st_mode & stat.S_ISVTX:  # else it keeps what it holds
            reason = reason or _distrust(folder.parent)
        if reason is None and not os.access(folder, os.W_OK):
            reason = f"{folder} cannot be written"
    except OSError as error:
        reason = str(error)
    return folder if reason is None else _substitute(folder, reason)


def _distrust(folder: Path) -> str | None:
    """Why code from `folder` must not be run: another user could have put it there."""
    if os.name != "posix":
        return None
    status = folder.stat()
    if status.st_uid not in (os.getuid(), 0):
        return f"{folder} belongs to another user (number {status.st_uid})"
    others = status.st_mode & stat.S_IWOTH
    group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    if others or group:
        return f"{folder} can be written by other users: chmod go-w it, or choose another"
    return None


def _is_private_group(number: int) -> bool:
    """Whether a group is this user's alone, as many systems make one for each user."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_gid == number and set(group.gr_mem) <= {user.pw_name}


def fall_back(error: OSError) -> Path:
    """Keep kernels in a temporary folder from now on: a file could not be written.

    Raises `error` where that folder is a substitute already.
    """
    folder = cache_folder()
    if folder in _substitutes.values():
        raise error
    _usable.cache_clear()
    return _substitute(folder, str(error))


def _substitute(folder: Path, reason: str) -> Path:
    _substitutes[folder] = _temporary()
    warnings.warn(
        f"compiled kernels are kept for this process only: {reason}; set MINIGRAD_CACHE_DIR to a"
        " folder of your own that can be written",
        stacklevel=2,
    )
    return _substitutes[folder]


def _temporary() -> Path:
    """A new folder that vanishes with the process, on a file system with room."""
    for place in (None, _MEMORY):
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="minigrad-kernels-", dir=place))
            (folder / "room").write_bytes(bytes(_ROOM))
            (folder / "room").unlink()
        except OSError as error:
            failure = error
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            continue
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
    raise failure


def write(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all. A file with the same content stays as it is."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def alone(path: Path, waits: bool = True) -> Iterator[bool]:
    """While this process makes the file `path`, others that would make it wait here. What it takes
    seconds to make is then made once. A lock ends with the process that holds it.

    Yields False, at once, where another process makes it and this one does not wait; and True after
    a minute: that process may be stopped, and what is made twice is the same.
    """
    lock = path.with_name(path.name + ".lock")
    with contextlib.ExitStack() as stack:
        mine = True
        with contextlib.suppress(OSError):  # a full disk, a file system without locks
            if fcntl is not None:
                file = stack.enter_context(lock.open("wb"))
                mine = _locked(file, _PATIENCE if waits else 0)
                if mine:  # who waits for it finds `path` made
                    stack.callback(lock.unlink, missing_ok=True)
        yield mine or waits


def sweep() -> None:
    """Remove the lock files of processes that were killed."""
    for lock in cache_folder().glob("*.lock"):
        with contextlib.suppress(OSError), lock.open("wb") as file:
            if _locked(file, 0):
                lock.unlink()


def _locked(file: IO, seconds: float) -> bool:
    """Lock an open file, within so many seconds."""
    limit = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= limit:
                return False
            interrupts.check()
            time.sleep(_PAUSE)


def seal(path: Path, files: Iterable[Path]) -> None:
    """Write the SHA-256 of `files`, in the folder of `path` or below it, as `sha256sum` does."""
    lines = [f"{_digest(file)}  {file.relative_to(path.parent)}\n" for file in sorted(files)]
    write(_seal_of(path), "".join(lines).encode())


def is_sealed(path: Path) -> bool:
    """Whether `path` was sealed, damaged since or not."""
    return _seal_of(path).exists()


def is_intact(path: Path) -> bool:
    """Whether `path`, and all files that were sealed with it, are as they were."""
    try:
        lines = _seal_of(path).read_text().splitlines()
        wanted = dict(reversed(line.split("  ", 1)) for line in lines)
        return path.name in wanted and all(
            _digest(path.parent / name) == digest for name, digest in wanted.items()
        )
    except (OSError, ValueError):
        return False


def break_seal(path: Path) -> None:
    """What was sealed with `path` is not to be used again."""
    with contextlib.suppress(OSError):
        _seal_of(path).unlink()


def keep(name: str, content: bytes) -> None:
    """Put a file that stands alone into the folder, sealed; a full disk moves the folder."""
    try:
        _keep(cache_folder() / name, content)
    except OSError as error:
        _keep(fall_back(error) / name, content)


def _keep(path: Path, content: bytes) -> None:
    write(path, content)
    seal(path, [path])


def kept(name: str) -> bytes | None:
    """What `keep` stored, or None where it is not there or damaged."""
    path = cache_folder() / name
    try:
        return path.read_bytes() if is_intact(path) else None
    except OSError:
        return None


def discard(name: str) -> None:
    """What `keep` stored cannot be used: it is to be made again."""
    break_seal(cache_folder() / name)


def _seal_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
