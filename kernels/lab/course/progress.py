"""What a learner has solved, kept in a file: `minigrad course` shows it.

The file is `progress.json` in MINIGRAD_DATA_DIR (default `~/.local/share/minigrad`). A folder that
cannot be written costs the record only: a check never fails for it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path

from kernels.support.cache import user_folder, write


def path() -> Path:
    """The file; it need not exist."""
    return user_folder("MINIGRAD_DATA_DIR", "~/.local/share/minigrad") / "progress.json"


def solved() -> dict[str, str]:
    """When each solved exercise was first solved (ISO date), by name; a damaged file is empty."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: when for name, when in found.items() if isinstance(when, str)}


def record(name: str) -> None:
    """Note that an exercise is solved."""
    known = solved()
    if name in known:
        return
    text = json.dumps({**known, name: datetime.date.today().isoformat()}, indent=1)
    with contextlib.suppress(OSError):
        write(path(), text.encode())
