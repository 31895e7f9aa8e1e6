"""The folder of compiled kernels, and files that appear in it whole or not at all.

`cache_folder()` is `kernels/` in MINIGRAD_CACHE_DIR (default `~/.cache/minigrad`). Files are
written under a temporary name and moved into place, so that two processes that compile the same
kernel at the same time end with one good file.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    root = os.environ.get("MINIGRAD_CACHE_DIR")
    base = Path(root).expanduser() if root else Path.home() / ".cache" / "minigrad"
    return _writable(base / "kernels")


@lru_cache(maxsize=8)
def _writable(folder: Path) -> Path:
    """`folder`, or one for this process alone where it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
        reason = "it cannot be written"
    except OSError as error:
        reason = str(error)
    substitute = Path(tempfile.mkdtemp(prefix="minigrad-kernels-"))
    atexit.register(shutil.rmtree, substitute, ignore_errors=True)
    warnings.warn(
        f"compiled kernels are kept for this process only: {folder}: {reason}; set"
        " MINIGRAD_CACHE_DIR to a folder that can be written",
        stacklevel=2,
    )
    return substitute


def write(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all. Keeps a file that is there already."""
    if path.exists():
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
