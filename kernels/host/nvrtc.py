"""CUDA C compiled by NVRTC, NVIDIA's compiler as a library: PTX and machine code, with no GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kernels.support.errors import CompileError

NEEDS = "needs NVIDIA's compilers, not a GPU: pip install 'minigrad[cuda13]'"
FILE = "kernel.cu"  # the file name that a source gets


def available() -> bool:
    """Whether NVRTC is installed (the extra `cuda13` or `cuda12`); no GPU is needed."""
    try:
        from cuda.bindings import nvrtc

        return nvrtc.nvrtcVersion()[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
    except (ImportError, RuntimeError):  # RuntimeError: the bindings without the library
        return False


def missing(what: str, major: int) -> str:
    """That CUDA C on a GPU lacks something, and what to do. major: the CUDA version in use."""
    return (
        f"CUDA C on a GPU needs {what}, which are not installed: pip install"
        f" 'minigrad[cuda{major}]', or run operations in Numba's dialect: MINIGRAD_BACKEND=numba"
    )


def target(capability: str) -> str:
    """What to compile for a GPU of compute capability "80": its machine code ("sm_80"), or PTX
    ("compute_80") where the compiler is older than the GPU. Raises CompileError."""
    from cuda.bindings import nvrtc

    _, known = nvrtc.nvrtcGetSupportedArchs()
    if int(capability) in known:
        return f"sm_{capability}"
    older = [number for number in known if number < int(capability)]
    if not older:
        raise CompileError(f"NVRTC compiles for {known}, not for compute capability {capability}")
    return f"compute_{max(older)}"


def _room(size: int) -> bytes:
    """Memory that NVRTC writes to: never one byte, since all of Python shares those objects."""
    return bytes(size + 1) if size else b""


def translate(
    code: str, names: list[str], architecture: str, options: tuple[str, ...] = ()
) -> tuple[list[str], str, str, bytes]:
    """Compile for "sm_80" or "compute_80": the kernels' names in the PTX, the log, the PTX, and for
    "sm_80" the machine code."""
    if not available():
        raise CompileError(f"NVRTC: {NEEDS}")
    from cuda.bindings import nvrtc

    program, folders = None, _include_folders()

    def call(function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            text = log() or status
            if "open source file" in str(text) and not _has_headers(folders):
                text = f"{text}\n" + missing("CUDA's headers", nvrtc.nvrtcVersion()[1])
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
        given = [f"--gpu-architecture={architecture}", *standard, *options]
        given += [f"--include-path={folder}" for folder in folders]
        # Where there is a driver, NVRTC 12.9 and later finds code that it made of the same source
        # before, whether or not with -ftz=true (seen with 13.0).
        given += ["--no-cache"] if nvrtc.nvrtcVersion()[1:] >= (12, 9) else []
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


def _include_folders() -> list[Path]:
    """Where the headers of the CUDA wheels are; behind them those of a CUDA toolkit, where the
    wheel with `crt/mma.h` is missing."""
    from cuda.pathfinder import find_nvidia_header_directory

    found = [find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    folders = [Path(folder) for folder in found if folder]
    if not any((folder / "crt" / "mma.h").exists() for folder in folders):
        roots = (os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME"))
        folders += [Path(root) / "include" for root in (*roots, "/usr/local/cuda") if root]
    return [folder for folder in folders if folder.is_dir()]


def _has_headers(folders: list[Path]) -> bool:
    names = ("cuda_fp16.h", "crt/mma.h")
    return all(any((folder / name).exists() for folder in folders) for name in names)
