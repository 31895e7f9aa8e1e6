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
_WIDE = re.compile(r"\bld\.(?:global|shared)[\w.:]*?\.(?:v4\.\w32|v2\.\w64)")


@dataclass(frozen=True)
class Facts:
    """What the assembler says of a kernel.

    registers and stack, spill_stores and spill_loads (bytes) per thread; shared: static bytes per
    block; wide_loads: how many load instructions of 16 bytes its PTX has; opcodes: the instructions
    of its machine code, if they were asked for.
    """

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    wide_loads: int
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
        name: _facts(log, entry, len(_WIDE.findall(bodies[entry])), opcodes.get(entry, ()))
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


def _facts(log: str, entry: str, wide_loads: int, opcodes: Iterable[str]) -> Facts:
    report = log[log.index(f"Compiling entry function '{entry}'") :]
    frame = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report
    )
    used = re.search(r"Used (\d+) registers([^\n]*)", report)
    shared = re.search(r"(\d+)(?:\+0)? bytes smem", used[2])
    stack, stores, loads = map(int, frame.groups())
    static = int(shared[1]) if shared else 0
    return Facts(int(used[1]), static, stack, stores, loads, wide_loads, tuple(sorted(opcodes)))
