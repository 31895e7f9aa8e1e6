"""Machine code as text (SASS), by NVIDIA's `nvdisasm`: the extra `cuda13` has it, or a toolkit."""

from __future__ import annotations

import re
import subprocess
import tempfile
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
        done = subprocess.run(command, capture_output=True, text=True)
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
