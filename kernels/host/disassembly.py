"""What a kernel compiled for recording consists of, read from its machine code by objdump.

Compiled without optimisation, code lies as its source does: a loop is what a jump backwards
encloses, and a basic block begins where the compiler has put a call of the recorder.
"""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernels.support.errors import CompileError

PLAIN, ENTRY, SILENT = -1, -2, -3  # mirrored by `Code` in runtime/record.h
Place = tuple[str, int]  # file and line

_HEADERS = Path(__file__).parent / "include"
_FUNCTION = re.compile(r"([0-9a-f]+) <(.*)>:$")
_INSTRUCTION = re.compile(r" +([0-9a-f]+):\t(\S+) *(.*)")
_PLACE = re.compile(r"(\S.*):(\d+)(?: \(discriminator \d+\))?$")
_JUMP = re.compile(r"(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)$")
_TARGET = re.compile(r"([0-9a-f]+) <")
_ARITHMETIC = re.compile(r"v?(?:add|sub|mul|div|sqrt)s[sd]$|f(?:add|sub|mul|div|sqrt|nmul)$")
_FUSED = re.compile(r"vfn?m(?:add|sub)\d*s[sd]$|fn?m(?:add|sub)$")
_BEGIN = "__sanitizer_cov_trace_pc"
_SAYS_SO = (_BEGIN, "__tsan_func_exit")  # calls that stand for nothing in the source
_CALLS = ("call", "bl", "blr")
_OF_FLOATS = (  # functions that count as one operation
    "a?(?:cos|sin|tan)h?(?:pi)?|atan2|cbrt|erfc?x?(?:inv)?|exp(?:2|10|m1)?|fdivide(?:f|_r.)?|fdim"
    "|fmod|hypot|[lt]gamma|log(?:2|10|1p)?|normcdf(?:inv)?|powi?|rcbrt|remainder|rhypot|r?sqrt"
    "|(?:add|sub|mul|div|rcp|f?r?sqrt|f(?:add|sub|mul|div|rcp))(?:_r[nzud])|h(?:2?add|2?sub|2?mul"
    "|2?div)(?:2|_sat|2_sat)?|h2?(?:exp|log|sqrt|rsqrt|rcp|sin|cos|tanh)(?:2|10)?|sincos"
)
_MATHS = re.compile(rf"(?:std::)?(?:__)?(?:{_OF_FLOATS})[fd]?(?:@plt)?(?:\(|$)")
_HALF = re.compile(r".*\boperator ?[-+*/]=?.*\((?:mgh::Small|__half|__nv_bfloat16)[^,]*,")
_FMA = re.compile(r"(?:std::)?_*(?:h|f|hf|f)?ma[fd]?2?(?:_r[nzud]|_relu|_sat)*(?:@plt)?(?:\(|$)")
_TENSOR = ("void nvcuda::wmma::mma_sync<", "void mgh::ptx::mma<")
_SILENT = ("atomics.h", "atomic", "ptx.h")  # they say themselves what they access


@dataclass
class Block:
    """A basic block: what it executes of the source, with the floating-point operations there."""

    function: int
    lines: dict[Place, int] = field(default_factory=dict)


@dataclass
class Code:
    """The code of a library. Offsets are those of its bytes.

    size: where it ends; table: for each offset a number of `blocks`, or PLAIN, ENTRY, SILENT, where
    a call returns to it. innermost and headers: for each block the loop that it is in, and the one
    that it begins; loops: first and last offset, and the loop around.
    """

    size: int
    table: np.ndarray
    blocks: list[Block]
    innermost: list[int]
    headers: list[int]
    loops: list[tuple[int, int, int]]
    entry: int  # the offset of mgh_run_threads_0
    tensor: bool  # whether it multiplies fragments of matrices
    starts: list[int] = field(repr=False)  # of instructions, and for each ...
    places: list[Place | None] = field(repr=False)  # ... its place in the source
    files: list[str] = field(repr=False)  # ... and the shim's header that it is from, or ""

    def place(self, offset: int) -> Place | None:
        """Where in the source the code before `offset` comes from; None for that of headers."""
        at = bisect.bisect_left(self.starts, offset) - 1
        return self.places[at] if at >= 0 else None

    def is_from(self, offset: int, header: str) -> bool:
        """Whether the code before `offset` is that of one of the shim's headers."""
        at = bisect.bisect_left(self.starts, offset) - 1
        return at >= 0 and self.files[at] == header


def disassemble(library: str, main: str) -> Code:
    """The code of a library, whose kernels are in the file `main` of its debug information.

    Raises CompileError where there is no objdump.
    """
    tool = shutil.which("objdump")
    if tool is None:
        raise CompileError(
            "the lab reads machine code with objdump, which is not there: install binutils"
        )
    command = [tool, "-d", "-l", "-C", "--no-show-raw-insn", "-j", ".text", library]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        raise CompileError(f"objdump: {done.stderr.strip()}")
    return _Reader(main).read(done.stdout)


class _Reader:
    def __init__(self, main: str) -> None:
        self.main = main
        self.marks: dict[int, int] = {}  # what a call that returns to an offset means
        self.blocks: list[Block] = []
        self.begins: list[int] = []  # of blocks
        self.jumps: dict[int, int] = {}  # of loops: first offset to last
        self.starts: list[int] = []
        self.places: list[Place | None] = []
        self.files: list[str] = []
        self.entry = self.size = 0
        self.tensor = False

    def read(self, text: str) -> Code:
        function, ours, wrapper = -1, False, False
        known: dict[str, tuple[str | None, str]] = {}
        place: Place | None = None  # of the source, the last there was in this function
        header, first, called, block = "", True, "", None
        for line in text.splitlines():
            if match := _INSTRUCTION.match(line):
                at, name, operands = int(match[1], 16), match[2], match[3]
                if called:
                    block = self._returned(at, called, function, ours, wrapper, header, block)
                    called = ""
                self.starts.append(at)
                self.places.append(place if ours else None)
                self.files.append(header)
                if name.rstrip("q") in _CALLS:
                    target = operands.partition("<")[2].rpartition(">")[0]
                    called = target or "?"
                elif ours and _JUMP.match(name) and (match := _TARGET.match(operands)):
                    target = int(match[1], 16)
                    if target <= at:
                        self.jumps[target] = max(self.jumps.get(target, 0), at)
                if block is not None and not called.startswith(_SAYS_SO):
                    self._execute(block, place, header, self._operations(name, called))
                self.size = at + 1
            elif match := _FUNCTION.match(line):
                function, first, block, called, place = function + 1, True, None, "", None
                wrapper = match[2].startswith(("mgh::Entry<", "void mgh::Entry<"))
                if match[2].startswith("mgh_run_threads_0"):
                    self.entry = int(match[1], 16)
            elif match := _PLACE.match(line):
                if match[1] not in known:
                    known[match[1]] = self._file(match[1])
                source, header = known[match[1]]
                if first:
                    ours, first = source is not None, False
                if source is not None:
                    place = (source, int(match[2]))
        return self._code()

    def _file(self, path: str) -> tuple[str | None, str]:
        """(the file's name if it is the user's, else None; the header's name if not)."""
        name = Path(path).name
        if name == self.main:
            return name, ""
        if path.startswith(("/usr/", str(_HEADERS))) or "the launch of" in path or "." not in name:
            return None, name
        return (None, name) if name == "unit.cpp" else (path, "")

    def _returned(
        self, at: int, called: str, function: int, ours: bool, wrapper: bool, header: str,
        block: Block | None,
    ) -> Block | None:  # fmt: skip
        """After a call: the block that the code is in now."""
        self.tensor |= called.startswith(_TENSOR)
        if called.startswith(_BEGIN):
            if not ours:
                return block
            block = Block(function)
            self.marks[at] = len(self.blocks)
            self.blocks.append(block)
            self.begins.append(at)
        elif wrapper:
            self.marks[at] = ENTRY
        elif header in _SILENT:
            self.marks[at] = SILENT
        return block

    @staticmethod
    def _execute(block: Block, place: Place | None, header: str, operations: int) -> None:
        """An instruction of a block. What is the shim's counts for the line that it stands in."""
        if place in block.lines or (place and not header):
            block.lines[place] = block.lines.get(place, 0) + operations

    @staticmethod
    def _operations(name: str, called: str) -> int:
        if called:
            if _FMA.match(called):
                return 2
            return 1 if _MATHS.match(called) or _HALF.match(called) else 0
        return 1 if _ARITHMETIC.match(name) else 2 if _FUSED.match(name) else 0

    def _code(self) -> Code:
        """All of it, without the blocks that execute nothing of the source."""
        kept = [i for i, block in enumerate(self.blocks) if block.lines]
        number = {old: new for new, old in enumerate(kept)}
        begins = [self.begins[i] for i in kept]
        table = np.full(self.size + 16, PLAIN, np.int32)
        for at, mark in self.marks.items():
            table[at] = number.get(mark, PLAIN) if mark >= 0 else mark
        ranges = sorted(self.jumps.items(), key=lambda r: (r[0], -r[1]))
        loops: list[tuple[int, int, int]] = []
        innermost, headers = [-1] * len(kept), [-1] * len(kept)
        for first, last in ranges:
            around = [i for i, (b, e, _) in enumerate(loops) if b <= first and last <= e]
            inner = min(around, key=lambda i: loops[i][1] - loops[i][0], default=-1)
            loops.append((first, last, inner))
        for i, begin in enumerate(begins):
            around = [n for n, (b, e, _) in enumerate(loops) if b <= begin <= e]
            innermost[i] = min(around, key=lambda n: loops[n][1] - loops[n][0], default=-1)
        for n, (first, last, _) in enumerate(loops):
            i = bisect.bisect_left(begins, first)
            if i < len(begins) and begins[i] <= last:
                headers[i] = n
        blocks = [self.blocks[i] for i in kept]
        return Code(
            self.size, table, blocks, innermost, headers, loops, self.entry, self.tensor,
            self.starts, self.places, self.files,
        )  # fmt: skip
