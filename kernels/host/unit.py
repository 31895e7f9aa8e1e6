"""The C++ text that is compiled for kernels of a source, and what is left out of it.

A whole program may be pasted. Functions of the host (main, `<<< >>>` launches, cudaMalloc) are left
out before the compiler sees them. What it refuses is left out as well and it is asked again, unless
a kernel that is wanted needs it: one construct that is not available on the CPU keeps no other
kernel of its file from running.
"""

from __future__ import annotations

import re

from . import launch_bounds, source
from .declarations import (
    Declaration,
    declarations,
    is_for_the_host,
    needed,
    unsupported,
    without,
    without_lines,
)

_MISSING = re.compile(r"(\S+): No such file or directory|'(\S+)' file not found")


class Unit:
    """Kernels and variables of a source, exported by number.

    stem: the source is called `stem`.cu in messages. gnu: whether it is for g++.
    """

    def __init__(
        self, code: str, kernels: tuple[str, ...], variables: tuple[str, ...], stem: str, gnu: bool
    ) -> None:
        self.code, self.stem, self.gnu = code, stem, gnu
        self.kernels = kernels
        plain = [name.removeprefix("::") for name in kernels]
        self.exports = [f"MGH_KERNEL({i}, {name})" for i, name in enumerate(plain)]
        self.exports += [f"MGH_GLOBAL({i}, {name})" for i, name in enumerate(variables)]
        bounded = launch_bounds.bounded(code)
        self.exports += [launch_bounds.export(i, name, bounded) for i, name in enumerate(plain)]
        self.declarations = declarations(code)
        self.left_out = [one for one in self.declarations if is_for_the_host(one)]
        self.headers: dict[int, str] = {}  # those that were not found, by line

    def text(self) -> str:
        """What is compiled now."""
        kept = without_lines(without(self.code, self.left_out), set(self.headers))
        text, declared = source.rewrite(launch_bounds.with_bounds(kept), self.gnu)
        return (
            "\n".join(declared) + "\n"
            f'#line 1 "{self.stem}.cu"\n{text}\n'
            f'#line 1 "the launch of {self.stem}"\n' + "\n".join(self.exports) + "\n"
        )

    def smaller(self, messages: str) -> str | None:
        """The text without what the compiler refuses; None where that leaves no kernel."""
        lines = self._lines(messages, f"{self.stem}.cu")
        found = self._note_headers(messages, lines)
        refused = [one for one in self.declarations if any(line in one.lines for line in lines)]
        exports = {number - 1 for number in self._lines(messages, f"the launch of {self.stem}")}
        kept = [i for i in range(len(self.kernels)) if self.exports[i]]
        exports.update(i for i in kept if self._needs({self.kernels[i]}, refused))
        if not set(kept) <= exports:
            for number in exports:
                found |= bool(self.exports[number])
                self.exports[number] = ""
            kept = [i for i in kept if i not in exports]
        wanted = {self.kernels[i] for i in kept}
        for one in refused:
            if one not in self.left_out and not self._needs(wanted, [one]):
                self.left_out.append(one)
                found = True
        return self.text() if found else None

    def _needs(self, kernels: set[str], refused: list[Declaration]) -> bool:
        """Whether kernels use what is refused."""
        plain = {re.sub(r"<.*", "", name).rpartition("::")[2].strip() for name in kernels}
        words = needed(self.code, plain) if refused else set()
        return any(one.name in words or one.name == "static_assert" for one in refused)

    def _note_headers(self, messages: str, lines: list[int]) -> bool:
        """Notes which headers were not found; whether there are new ones."""
        before = len(self.headers)
        for line in lines:
            told = re.search(rf"\.cu:{line}:.*fatal error: (.*)", messages)
            if header := told and _MISSING.search(told[1]):
                self.headers[line] = header[1] or header[2]
        return len(self.headers) > before

    def _lines(self, messages: str, file: str) -> list[int]:
        """The lines of a file that errors name, or that use the macros which they name."""
        place = rf"^{re.escape(file)}:(\d+):(?:\d+:)? (?:(?:fatal )?error:|note: in expansion of)"
        return [int(line) for line in re.findall(place, messages, re.MULTILINE)]

    def explain(self, messages: str) -> str:
        """What the compiler says, after what is known to be missing on the CPU."""
        known = [unsupported(self.code, self._lines(messages, f"{self.stem}.cu"))]
        known += [
            f"line {line}: <{name}> is not available on the CPU"
            for line, name in self.headers.items()
        ]
        if re.search("unable to deduce|overloaded function", messages):
            known += self._templates()
        refused = re.search(r"declared with .*error.*?: (line \d+: inline PTX: .*)", messages)
        if refused:
            return f"{self.stem}: {refused[1]}"
        return "\n".join(filter(None, [f"{self.stem} does not compile:", *known, messages]))

    def _templates(self) -> list[str]:
        """What to say of wanted kernels that are templates."""
        found = []
        for name in self.kernels:
            plain = re.sub(r"<.*", "", name).rpartition("::")[2].strip()
            head = rf"\btemplate\s*<([^;{{}}]*)>[^;{{}}]*\b{re.escape(plain)}\s*\("
            made = re.search(head, source.masked(self.code))
            if made:
                parameters = " ".join(made[1].split())
                found.append(
                    f"{plain} is a template of <{parameters}>: name an instance that gives all of"
                    f' them, as in raw_kernel(code, "{plain}<...>")'
                )
        return found
