"""Which expression of a line an access comes from: columns in the line table of machine code."""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
from functools import lru_cache

_COLUMN = re.compile(r"Set column to (\d+)")
_ROW = re.compile(r"advance Address by \d+ to 0x([0-9a-f]+) and Line by -?\d+ to (\d+)")
_NAME = re.compile(r"[\w.>-]*\w$")


@lru_cache(8)
def _table(library: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Ascending offsets, and (line, column) of the code from each on; empty without objdump."""
    tool = shutil.which("objdump")
    if tool is None:
        return [], []
    done = subprocess.run(
        [tool, "--dwarf=rawline", library], capture_output=True, encoding="utf-8", errors="replace"
    )
    column, rows = 0, []
    for text in done.stdout.splitlines():
        if match := _COLUMN.search(text):
            column = int(match[1])
        elif match := _ROW.search(text):
            rows.append((int(match[1], 16), int(match[2]), column))
    rows.sort(key=lambda row: row[0])
    return [at for at, *_ in rows], [(line, column) for _, line, column in rows]


def subscript(library: str, offset: int, line: int, text: str) -> str | None:
    """The expression `a[i]` of line number `line`, which reads `text`, that the call which returns
    to `offset` accesses; None where the compiler names the place of something larger."""
    offsets, places = _table(library)
    at = bisect.bisect_right(offsets, offset - 1) - 1
    if at < 0 or places[at][0] != line:
        return None
    end = places[at][1] - 1  # g++ names the closing bracket
    depth = 0
    for start in range(end, -1, -1):
        if end >= len(text) or text[end] != "]":
            return None
        depth += {"]": 1, "[": -1}.get(text[start], 0)
        if depth == 0 and (name := _NAME.search(text[:start].rstrip())):
            return name[0] + " ".join(text[start : end + 1].split())
    return None
