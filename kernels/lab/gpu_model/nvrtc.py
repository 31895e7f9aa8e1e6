"""Facts of CUDA C kernels, PTX and machine code, whole sources at a time, with no GPU.

One program holds many kernels of a source, so that its headers are read once. `lab.compiled` looks
closely at a single kernel; this is for tables and tests of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernels.host.nvrtc import FILE, NEEDS, available, translate
from kernels.lab.gpu_model import sass

__all__ = ["FILE", "NEEDS", "TARGETS", "Facts", "available", "build", "divisions_in_loops"]
__all__ += ["flushes", "targets", "translate"]

TARGETS = ("75", "80", "90")  # what sources must compile for that do not say what they need
_NEEDED = re.compile(r"\bneeds sm_(\d+)(a?)\b")
_LABEL = re.compile(r"(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")
_DIVISION = re.compile(r"\b(?:div|rem)\.[su]64\b")
_FLUSHES = re.compile(r"(?<![\w.])(?!ex2\.approx|rcp\.approx)[a-z]\w*(?:\.\w+)*?\.ftz\b")
_WIDE = re.compile(r"\bld\.(?:global|shared)[\w.:]*?\.(?:v4\.\w32|v2\.\w64)")


@dataclass(frozen=True)
class Facts:
    """What the assembler says of a kernel.

    registers and stack, spill_stores and spill_loads (bytes) per thread; shared: static bytes per
    block; wide_loads: how many load instructions of 16 bytes its PTX has; divisions: those of
    64-bit integers in its innermost loops, each a subroutine; flushes: instructions that take
    small numbers as zero; opcodes: the instructions of its machine code, if they were asked for.
    """

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    wide_loads: int
    divisions: int
    flushes: int = 0
    opcodes: tuple[str, ...] = ()


def targets(code: str) -> tuple[str, ...]:
    """The architectures that a source must compile for: all, or those from the one on that it says
    it needs in a comment, "needs sm_80"; where it needs sm_90a, that one alone."""
    needed = _NEEDED.search(code)
    if needed is None:
        return TARGETS
    if needed[2]:
        return (needed[1] + needed[2],)
    return tuple(target for target in TARGETS if int(target) >= int(needed[1]))


def build(
    code: str,
    names: Iterable[str],
    target: str,
    options: tuple[str, ...] = (),
    *,
    disassemble: bool = False,
) -> dict[str, Facts]:
    """Compile the kernels `names` of a source for "sm_" + target; Facts by name.

    `names` may be instances of templates; `disassemble` asks for opcodes. Raises CompileError with
    NVRTC's messages.
    """
    names = list(dict.fromkeys(names))
    options = ("--ptxas-options=-v", *options)
    entries, log, ptx, cubin = translate(code, names, f"sm_{target}", options)
    opcodes = sass.opcodes(sass.sass(cubin)) if disassemble else {}
    bodies = dict(re.findall(r"\.entry\s+([$\w]+)(.*?)(?=\.entry\s|\Z)", ptx, re.DOTALL))
    return {
        name: _facts(log, entry, bodies[entry], opcodes.get(entry, ()))
        for name, entry in zip(names, entries)
    }


def flushes(ptx: str) -> int:
    """How many instructions take float32 numbers below 1.2e-38 as zero, but for those by which
    `exp`, `tanh` and divisions compute what small numbers do not change."""
    return len(_FLUSHES.findall(ptx))


def divisions_in_loops(ptx: str) -> int:
    """How many divisions of 64-bit integers the innermost loops of one kernel's PTX have.

    A loop reaches from a label to the last branch back to it.
    """
    labels: dict[str, int] = {}
    loops: dict[int, int] = {}
    divisions = []
    for at, line in enumerate(ptx.splitlines()):
        if label := _LABEL.match(line):
            labels[label[1]] = at
        elif (branch := _BRANCH.search(line)) and branch[1] in labels:
            loops[labels[branch[1]]] = at
        elif _DIVISION.search(line):
            divisions.append(at)
    inner = [
        (a, b) for a, b in loops.items() if not any(a < c < b and d <= b for c, d in loops.items())
    ]
    return sum(any(a < at < b for a, b in inner) for at in divisions)


def _facts(log: str, entry: str, ptx: str, opcodes: Iterable[str]) -> Facts:
    report = log[log.index(f"Compiling entry function '{entry}'") :]
    frame = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report
    )
    used = re.search(r"Used (\d+) registers([^\n]*)", report)
    shared = re.search(r"(\d+)(?:\+0)? bytes smem", used[2])
    stack, stores, loads = map(int, frame.groups())
    static = int(shared[1]) if shared else 0
    wide, divisions = len(_WIDE.findall(ptx)), divisions_in_loops(ptx)
    numbers = int(used[1]), static, stack, stores, loads, wide, divisions, flushes(ptx)
    return Facts(*numbers, tuple(sorted(opcodes)))
