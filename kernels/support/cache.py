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
_LONGEST = 60  # letters of a kernel's name in that of a file
_LEFT = 3600  # seconds after which a half-made file is a leftover
_substitutes: dict[Path, Path] = {}  # by the folder that could not be used


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    return _usable(user_folder("MINIGRAD_CACHE_DIR", "~/.cache/minigrad") / "kernels")


def user_folder(variable: str, default: str) -> Path:
    """The folder that an environment variable names, else `default`. Where that is in a home folder
    and there is none (a container runs under any number of a user): one of this user's beside other
    temporary files."""
    try:
        return Path(os.environ.get(variable) or default).expanduser().absolute()
    except RuntimeError:
        user = getattr(os, "getuid", int)()
        return Path(tempfile.gettempdir(), f"minigrad-{user}")


@lru_cache(maxsize=8)
def _usable(folder: Path) -> Path:
    """`folder`, or one for this process alone where it cannot be made, written or trusted."""
    if folder in _substitutes:
        return _substitutes[folder]
    try:
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
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
        atexit.register(_remove, folder, os.getpid())
        return folder
    raise failure


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a child that was forked
        shutil.rmtree(folder, ignore_errors=True)


def stem(name: str, digest: str) -> str:
    """The name of a file for a kernel: systems allow 255 bytes, and not each locale each letter."""
    return f"{name[:_LONGEST].encode('ascii', 'ignore').decode()}_{digest}"


def fits(name: str) -> bool:
    """Whether a kernel's name can be part of a file's as it is."""
    return name.isascii() and len(name) <= _LONGEST


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
    """While this process makes the file `path` of the cache, others that would make it wait here.
    What it takes seconds to make is then made once.

    Yields False, at once, where another process makes it and this one does not wait; and True after
    a minute: that process may be stopped, and what is made twice is the same.
    """
    _sweep_once(cache_folder())
    with turn(path, _PATIENCE if waits else 0) as mine:
        yield mine or waits


@contextlib.contextmanager
def turn(path: Path, seconds: float) -> Iterator[bool]:
    """Hold the lock of the file `path`, for which this waits so long: whether it came. Where there
    can be none, it did. A lock ends with the process that holds it."""
    lock = path.with_name(path.name + ".lock")
    with contextlib.ExitStack() as stack:
        mine = True
        with contextlib.suppress(OSError):  # a full disk, a file system without locks
            if fcntl is not None:
                mine = _hold(lock, seconds, stack)
                if mine:  # who waits for it finds `path` made
                    stack.callback(lock.unlink, missing_ok=True)
        yield mine


def _hold(lock: Path, seconds: float, stack: contextlib.ExitStack) -> bool:
    """Lock a file, within so many seconds; one that another process has removed before it was
    locked keeps nobody out."""
    while True:
        file = stack.enter_context(lock.open("wb"))
        if not _locked(file, seconds):
            return False
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return True


@lru_cache(maxsize=8)
def _sweep_once(folder: Path) -> None:
    sweep()


def sweep() -> None:
    """Remove what killed processes left: locks that none holds, half-made files of an hour ago."""
    top = cache_folder()
    for folder in (top, top / "host", top / "__pycache__"):
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    _sweep(entry)


def _sweep(entry: os.DirEntry[str]) -> None:
    path = Path(entry.path)
    if path.suffix == ".lock" and fcntl is not None:
        with path.open("wb") as file:
            if _locked(file, 0):
                path.unlink()
        return
    half_made = ".tmp" in path.name or path.name.startswith("build-")
    if half_made and entry.stat().st_mtime < time.time() - _LEFT:
        (shutil.rmtree if entry.is_dir() else os.unlink)(path)


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
        lines = _seal_of(path).read_text(encoding="utf-8").splitlines()
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
