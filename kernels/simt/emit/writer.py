"""Text of the generated module: lines at an indentation, loops with their hints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kernels.simt.ir.hints import Hint, encode

# Where a thread is: the first ones are computed from others
POSITIONS = ("_t", "_ty", "_tz", "_block", "_bx", "_by", "_bz")


class Writer:
    """Lines of Python at a current indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.depth + text if text else "")

    def open(self, header: str) -> None:
        """A header, and what follows inside of it; see `closing`."""
        self.line(header)
        self.depth += 1

    def open_loop(self, counter: str, values: str, hint: Hint | None = None) -> None:
        """The header of a counted loop, whose hint is in the name that counts."""
        counted = encode(counter, hint)
        self.open(f"for {counted} in {values}:")
        if counted != counter:
            self.line(f"{counter} = {counted}")

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Come back to the present indentation, whatever is opened meanwhile."""
        depth = self.depth
        yield
        self.depth = depth

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        before = len(self.lines)
        yield
        if all(line.lstrip().startswith("#") for line in self.lines[before:]):
            self.line("pass")
        self.depth -= 1

    @contextmanager
    def loop(self, counter: str, values: str, hint: Hint | None = None) -> Iterator[None]:
        """A counted loop with what is written meanwhile as its body."""
        counted = encode(counter, hint)
        with self.block(f"for {counted} in {values}:"):
            if counted != counter:
                self.line(f"{counter} = {counted}")
            yield

    def text(self) -> str:
        """All lines but those that compute what nothing reads of where a thread is."""
        lines = self.lines
        for name in POSITIONS:
            computes = re.compile(rf"\s*{name} = (?!.*\b{name}\b)").match
            if not any(re.search(rf"\b{name}\b", line) for line in lines if not computes(line)):
                lines = [line for line in lines if not computes(line)]
        return "\n".join(lines) + "\n"
