"""What the process of a submission may not do: an audit hook that refuses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_FORBIDDEN = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"),
    *("os.kill", "os.killpg", "signal.pthread_kill", "pty.spawn"),
}
_NETWORK = ("socket.connect", "socket.bind")
#: events that change the file system: the positions of their paths, and of those paths' dir_fd
_CHANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.mkdir": ((0, 2),), "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),), "os.utime": ((0, 3),), "os.truncate": ((0, -1),),
    "os.rename": ((0, 2), (1, 3)), "os.link": ((0, 2), (1, 3)), "os.symlink": ((0, -1), (1, 2)),
    "shutil.rmtree": ((0, 1),),
}  # fmt: skip


def guard(scratch: str, own: list[Path], every: Path) -> Callable[[str, tuple], None]:
    """The hook. scratch: the folder that a submission may change; own: its files; every: the
    folder of all submissions, of which it may read no others."""
    from kernels.support.cache import cache_folder

    may_change = tuple(_inside(p) for p in (scratch, str(cache_folder()), "/dev"))
    secret = _inside(str(Path(__file__).with_name("solutions")))
    others, mine = _inside(str(every)), {str(path) for path in own}

    def changes(path: Any, folder: int | None = None) -> None:
        target = _real(path, folder)
        if not target.startswith(may_change):
            raise PermissionError(f"a submission may not write {target}")

    def hook(event: str, args: tuple) -> None:
        if event in _NETWORK:
            raise PermissionError(f"a submission may not use the network ({event})")
        if event in _FORBIDDEN and not _by_compiler():
            raise PermissionError(f"a submission may not start or end programs ({event})")
        for path, folder in _CHANGES.get(event, ()):
            changes(args[path], args[folder] if 0 <= folder < len(args) else None)
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            target = os.path.realpath(os.fsdecode(args[0]))
            inside = target + os.sep
            if inside.startswith(secret):
                raise PermissionError("a submission may not read the solutions")
            if args[1] is None and os.path.isdir(target) and not inside.startswith(may_change):
                # by os.open: paths from there would be opened unseen
                raise PermissionError(f"a submission may not open the folder {target}")
            if _writes(args):
                changes(target)
            elif target.startswith(others) and target not in mine:
                raise PermissionError("a submission may not read other submissions")

    return hook


def _inside(folder: str) -> str:
    """How the paths in a folder begin."""
    return os.path.realpath(folder) + os.sep


def _real(path: Any, folder: int | None) -> str:
    """A path, also one from an open folder, without links on its way; as the folder's own paths
    begin where it is one."""
    if isinstance(path, int):
        path, folder = os.readlink(f"/proc/self/fd/{path}"), None
    path = os.fsdecode(path)
    if folder is not None and folder >= 0:
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


def _by_compiler() -> bool:
    """Whether the call comes from `kernels.host`, which starts compiler and disassembler."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("kernels.host."):
            return True
        frame = frame.f_back
    return False


def _writes(args: tuple) -> bool:
    mode, flags = args[1], args[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
