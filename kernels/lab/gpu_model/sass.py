"""Machine code as text (SASS), by NVIDIA's `nvdisasm`: the extra `cuda13` has it, or a toolkit."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from shutil import which

from kernels.support.errors import CompileError


def find_nvdisasm() -> str:
    """The path of the program. Raises CompileError, with how to get it."""
    found = which("nvdisasm")
    if found is None:
        try:
            from cuda.pathfinder import find_nvidia_binary_utility

            found = find_nvidia_binary_utility("nvdisasm")
        except ImportError:
            pass
    if found is None:
        raise CompileError("SASS needs nvdisasm: pip install nvidia-cuda-nvdisasm (PTX does not)")
    return found


def sass(cubin: bytes, *options: str) -> str:
    """The code of all kernels of a cubin. Raises CompileError."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [find_nvdisasm(), "-c", "-ndf", *options, file.name]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise CompileError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


def instructions(text: str, name: str) -> list[str]:
    """The opcodes of a kernel without their modifiers, in order; without what fills its end."""
    part = re.search(rf"^\.text\.{re.escape(name)}:(.*?)(?=^\.text\.|\Z)", text, re.M | re.S)
    found = re.findall(r"^\s+/\*\w+\*/\s+(?:@!?\w+\s+)?([A-Z]\w*)", part[1] if part else "", re.M)
    while found and found[-1] == "NOP":
        found.pop()
    return found


def opcodes(text: str) -> dict[str, set[str]]:
    """The instructions, such as "LDG.E.128", that each kernel of SASS has, by its name there."""
    found: dict[str, set[str]] = {}
    for part in re.split(r"^\.text\.(?=[$\w]+:$)", text, flags=re.MULTILINE)[1:]:
        name, _, code = part.partition(":")
        found[name] = set(re.findall(r"^\s+/\*\w+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", code, re.M))
    return found


_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s+/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
# Integers of 64 bits: with a carry of 32 bits, as a product, or shifted.
_WIDE = re.compile(r"U?(?:IADD3|LEA|IMAD)\S*\.(?:X|WIDE)\b|U?ISETP\S*\.EX\b|U?SHF\S*\.[SU]64\b")


def _loops(text: str) -> list[list[str]]:
    """The instructions of each innermost loop of one kernel's SASS, with their modifiers.

    A loop reaches from a label to the last branch back to it.
    """
    found: list[str] = []
    labels: dict[str, int] = {}
    loops: dict[int, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(found)
        elif instruction := _INSTRUCTION.match(line):
            name, operands = instruction.groups()
            target = re.search(r"\.L_x_\d+", operands) if name == "BRA" else None
            if target and target[0] in labels:
                loops[labels[target[0]]] = len(found) + 1
            found.append(name)
    inner = [
        (a, b) for a, b in loops.items() if not any(a < c < b and d <= b for c, d in loops.items())
    ]
    return [found[a:b] for a, b in inner]


def innermost_loops(text: str) -> list[Counter[str]]:
    """The instructions of each innermost loop of one kernel's SASS, by name ("FFMA": 64)."""
    return [Counter(name.partition(".")[0] for name in loop) for loop in _loops(text)]


def wide_share(text: str) -> float:
    """How much of the instructions computes integers of 64 bits, in the innermost loop of a kernel
    with most multiply-adds; the longest where none has any."""

    def weight(loop: list[str]) -> tuple[int, int]:
        return sum(name.startswith(("FFMA", "HMMA", "HGMMA")) for name in loop), len(loop)

    loop = max(_loops(text), key=weight, default=[])
    return sum(1 for name in loop if _WIDE.match(name)) / len(loop) if loop else 0.0


def share(text: str, name: str = "FFMA") -> float:
    """How much of a kernel's instructions are `name`, in the innermost loop with most of them."""
    loop = max(innermost_loops(text), key=lambda loop: loop[name], default=Counter())
    return loop[name] / loop.total() if loop else 0.0
