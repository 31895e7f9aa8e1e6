"""The errors of compiling CUDA C."""

from __future__ import annotations


class CompileException(Exception):
    """CUDA C that does not compile, with the compiler's messages."""

    def __init__(
        self, msg: str, source: str, name: str, options: tuple, backend: str = "nvrtc"
    ) -> None:
        super().__init__(msg)
        self._msg, self.source, self.name = msg, source, name
        self.options, self.backend = options, backend

    def __reduce__(self) -> tuple:
        return type(self), (self._msg, self.source, self.name, self.options, self.backend)

    def __str__(self) -> str:
        return self._msg

    def get_message(self) -> str:
        return self._msg

    def dump(self, f: object) -> None:
        """Write the source with line numbers, and the messages, to a file."""
        lines = enumerate(self.source.splitlines(), 1)
        print(*(f"{number:4} {line}" for number, line in lines), self._msg, sep="\n", file=f)
