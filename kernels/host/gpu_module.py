"""CUDA C on a GPU: compiled by NVRTC, kept in the cache folder, loaded by CuPy.

CuPy's own compiler puts `-ftz=true` behind all options, so that float32 numbers below 1.2e-38 are
taken as zero, which neither Numba's dialect nor the CPU does. What is kept is found by the source,
the options, the compute capability and the compiler.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from kernels.host import nvrtc
from kernels.support import cache, nvidia
from kernels.support.errors import CompileError

_ARCHITECTURE = re.compile(r"--?(?:gpu-architecture|arch)=(.*)")
_OWN_FILE = re.compile(r'^\s*#\s*include\s*"', re.MULTILINE)
_INCLUDES = re.compile(r"--?(?:I|include|pre-include)")


class GpuModule:
    """The kernels `names` and the variables of a source, for GPUs of one compute capability ("80").

    Raises CompileError with the compiler's messages.
    """

    def __init__(
        self,
        code: str,
        options: tuple[str, ...],
        names: tuple[str, ...],
        capability: str,
        cooperative: bool = False,
    ) -> None:
        import cupy

        if not nvrtc.available():
            major = cupy.cuda.runtime.runtimeGetVersion() // 1000
            raise CompileError(nvrtc.missing("NVRTC and CUDA's headers", major))
        given = tuple(o for o in options if not _ARCHITECTURE.fullmatch(o))
        alone = not (any(map(_INCLUDES.match, given)) or _OWN_FILE.search(code))
        given += ("--device-as-default-execution-space", *_headers(cupy))
        path, self._entries = _file(code, given, names, _target(options, capability), alone)
        self._module = cupy.RawModule(path=str(path), enable_cooperative_groups=cooperative)

    def get_function(self, name: str) -> Any:
        """CuPy's kernel, loaded into the current device."""
        return self._module.get_function(self._entries[name])

    def get_global(self, name: str) -> Any:
        """CuPy's pointer to a variable."""
        return self._module.get_global(name)


def _target(options: tuple[str, ...], capability: str) -> str:
    """What to compile for: "sm_80" for machine code, "compute_80" for PTX."""
    asked = [match[1] for match in map(_ARCHITECTURE.fullmatch, options) if match]
    return asked[-1] if asked else nvrtc.target(capability)


def _headers(cupy: Any) -> list[str]:
    """Options by which CuPy's headers are found, and those of CCCL that it brings."""
    own = Path(cupy.__file__).parent / "_core" / "include"
    parts = [own / "cupy" / "_cccl" / part for part in ("cub", "thrust", "libcudacxx")]
    return [f"-I{folder}" for folder in (*parts, own) if folder.is_dir()]


def _file(
    code: str, options: tuple[str, ...], names: tuple[str, ...], target: str, alone: bool
) -> tuple[Path, dict[str, str]]:
    """The file that the driver loads, and the kernels' names in it; `alone`: the source includes no
    files of the caller's, which may change."""
    told = code, options, names, target, nvidia.libraries("nvrtc")
    stem = _digest(repr(told).encode())
    found = _stored(stem) if alone else None
    if found is not None:
        return found
    with cache.alone(cache.cache_folder() / f"{stem}.names"):
        return (_stored(stem) if alone else None) or _made(stem, *told[:-1])


def _stored(stem: str) -> tuple[Path, dict[str, str]] | None:
    found = cache.kept(f"{stem}.names")
    if found is not None:
        image, entries = json.loads(found)
        if cache.kept(image) is not None:
            return cache.cache_folder() / image, entries
    return None


def _made(
    stem: str, code: str, options: tuple[str, ...], names: tuple[str, ...], target: str
) -> tuple[Path, dict[str, str]]:
    lowered, _, ptx, cubin = nvrtc.translate(code, list(names), target, options)
    content, entries = cubin or ptx.encode(), dict(zip(names, lowered))
    image = f"{_digest(content)}.image"
    cache.keep(image, content)
    cache.keep(f"{stem}.names", json.dumps([image, entries]).encode())
    return cache.cache_folder() / image, entries


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]
