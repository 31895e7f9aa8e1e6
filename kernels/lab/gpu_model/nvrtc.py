"""CUDA C through NVRTC, whole sources at a time: PTX and machine code facts, with no GPU.

One program holds many kernels of a source, so that its headers are read once. `lab.compiled` looks
closely at a single kernel; this is for tables and tests of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernels.lab.gpu_model import sass
from kernels.support.errors import CompileError

NEEDS = "needs NVIDIA's compilers, not a GPU: pip install 'minigrad[cuda13]'"
FILE = "kernel.cu"  # the file name that a source gets
TARGETS = ("75", "80", "90")  # what sources must compile for that do not say what they need
_NEEDED = re.compile(r"\bneeds sm_(\d+)(a?)\b")
_LABEL = re.compile(r"(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")
_DIVISION = re.compile(r"\b(?:div|rem)\.[su]64\b")
_WIDE = re.compile(r"\bld\.(?:global|shared)[\w.:]*?\.(?:v4\.\w32|v2\.\w64)")


@dataclass(frozen=True)
class Facts:
    """What the assembler says of a kernel.

    registers and stack, spill_stores and spill_loads (bytes) per thread; shared: static bytes per
    block; wide_loads: how many load instructions of 16 bytes its PTX has; divisions: those of
    64-bit integers in its innermost loops, each a subroutine; opcodes: the instructions of its
    machine code, if they were asked for.
    """

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    wide_loads: int
    divisions: int
    opcodes: tuple[str, ...] = ()


def available() -> bool:
    """Whether NVRTC is installed (the extra `cuda13` or `cuda12`); no GPU is needed."""
    try:
        from cuda.bindings import nvrtc

        return nvrtc.nvrtcVersion()[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
    except (ImportError, RuntimeError):  # RuntimeError: the bindings without the library
        return False


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


def _room(size: int) -> bytes:
    """Memory that NVRTC writes to: never one byte, since all of Python shares those objects."""
    return bytes(size + 1) if size else b""


def translate(
    code: str, names: list[str], architecture: str, options: tuple[str, ...] = ()
) -> tuple[list[str], str, str, bytes]:
    """Compile for "sm_80" or "compute_80": the kernels' names in the PTX, the log, the PTX, and for
    "sm_80" the machine code."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompileError(f"NVRTC: {NEEDS}") from error
    program = None

    def call(function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            text = log() or status
            raise CompileError(f"NVRTC for {architecture}, {', '.join(names)}: {text}")
        return results[0] if results else None

    def log() -> str:
        if program is None:
            return ""
        text = _room(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, text)
        return text.rstrip(b"\0").decode().strip()

    program = call(nvrtc.nvrtcCreateProgram, code.encode(), FILE.encode(), 0, [], [])
    try:
        for name in names:
            call(nvrtc.nvrtcAddNameExpression, program, name.encode())
        standard = () if any("std=" in option for option in options) else ("-std=c++17",)
        given = [f"--gpu-architecture={architecture}", *standard, *options, *_include_folders()]
        encoded = [option.encode() for option in given]
        call(nvrtc.nvrtcCompileProgram, program, len(encoded), encoded)
        entries = [call(nvrtc.nvrtcGetLoweredName, program, n.encode()).decode() for n in names]
        text = _room(call(nvrtc.nvrtcGetPTXSize, program))
        call(nvrtc.nvrtcGetPTX, program, text)
        cubin = _room(call(nvrtc.nvrtcGetCUBINSize, program))
        if cubin:
            call(nvrtc.nvrtcGetCUBIN, program, cubin)
        return entries, log(), text.rstrip(b"\0").decode(), cubin[:-1]
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _include_folders() -> list[str]:
    """Where the headers of the CUDA wheels are, as options."""
    from cuda.pathfinder import find_nvidia_header_directory

    found = (find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    return [f"--include-path={folder}" for folder in found if folder]


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
    return Facts(
        int(used[1]), static, stack, stores, loads, wide, divisions, tuple(sorted(opcodes))
    )
