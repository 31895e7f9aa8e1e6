"""Pages of the documentation as programs: their blocks in order, and what they should print."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NEW_FILE = re.compile(r"(?:#|//) ([\w/]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and text."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is about: one that it edits or creates."""
        if self.language == "diff":
            return self.text.partition("\n")[0].removeprefix("+++ ")
        new = _NEW_FILE.match(self.text)
        return new[1] if new else None


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page)]


def sections(page: str) -> dict[str, str]:
    """The parts of a page by their headings of the second level."""
    parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def apply(block: Block, root: Path) -> None:
    """Create or edit the block's file below `root`. ValueError where its context is not there."""
    path = root / block.file
    if block.language != "diff":
        if path.exists():
            raise ValueError(f"{block.file} exists already: choose another name")
        path.write_text(block.text.partition("\n")[2])
        return
    lines = block.text.splitlines()[1:]
    before = [line[1:] for line in lines if not line.startswith("+")]
    after = [line[1:] for line in lines if not line.startswith("-")]
    text = path.read_text()
    old = "".join(f"{line}\n" for line in before)
    if text.count(old) != 1:
        raise ValueError(f"{block.file} has these lines {text.count(old)} times, not once:\n{old}")
    path.write_text(text.replace(old, "".join(f"{line}\n" for line in after)))


def run(command: list[str], root: Path, folder: Path) -> str:
    """What a command prints that imports the packages below `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def check_programs(program: list[tuple[str, str]], root: Path, folder: Path) -> None:
    """Run (code, expected output) pairs as one program: kernels need a file to be read from."""
    separator = "=== end of block {} ==="
    text = "\n".join(
        f"{code}\nprint({separator.format(number)!r})" for number, (code, _) in enumerate(program)
    )
    path = folder / "page.py"
    path.write_text(text)
    rest = run([sys.executable, str(path)], root, folder)
    for number, (code, expected) in enumerate(program):
        got, _, rest = rest.partition(separator.format(number) + "\n")
        matches = doctest.OutputChecker().check_output(expected, got, OPTIONS)
        assert matches, f"{code}\nprinted\n{got}\nand the page says\n{expected}"


def programs(found: list[Block]) -> list[tuple[str, str]]:
    """(code, expected output) of each Python block that is no file; "" where no output follows."""
    pairs = zip(found, [*found[1:], Block("", "")])
    return [
        (block.text, after.text if after.language == "text" else "")
        for block, after in pairs
        if block.language == "python" and block.file is None
    ]
