"""Generated modules on disk, so that the next process does not compile again.

A module's name carries a digest of all that its machine code depends on; the code is in a file
beside it (`backend/machine_code.py`) or in `__pycache__`, where Numba keeps it. A module is sealed
when all of its files are there, and only then found by other processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernels.support import cache
from kernels.support.cache import cache_folder, write

# What the environment can tell Numba about the code that it makes
_NUMBA_SETTINGS = ("NUMBA_CPU", "NUMBA_OPT", "NUMBA_ENABLE_AVX", "NUMBA_LOOP", "NUMBA_SLP")


@lru_cache(maxsize=1)
def toolchain() -> str:
    """A digest of the compiler for the CPU: our sources, Numba, LLVM, Python, the processor."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    parts = sources(), llvm.get_host_cpu_name(), features
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1)
def sources() -> str:
    """A digest of what compiles for every target: our sources, Numba, LLVM, Python, NumPy."""
    import llvmlite

    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted([*(root / "simt").rglob("*.py"), *(root / "support").glob("*.py")]):
        digest.update(path.read_bytes())
    numba = importlib.util.find_spec("numba").origin  # importing it would take too long
    digest.update(Path(numba).with_name("_version.py").read_bytes())
    asked = sorted((k, v) for k, v in os.environ.items() if k.startswith(_NUMBA_SETTINGS))
    for part in (llvmlite.__version__, sys.version, np.__version__, repr(asked)):
        digest.update(part.encode())
    return digest.hexdigest()


def save(name: str, text: str, constants: dict[str, np.ndarray]) -> Path:
    """Store a generated module and its constant arrays; the module's path. Not yet sealed."""
    path = cache_folder() / f"{name}.py"
    if constants:
        buffer = io.BytesIO()
        np.savez(buffer, **constants)
        write(path.with_suffix(".npz"), buffer.getvalue())
    write(path, text.encode())
    return path


def seal(path: Path) -> None:
    """The module at `path` is complete: other processes may load it as it is now."""
    cache.seal(path, filter(Path.exists, _files(path)))


def find(name: str) -> Path | None:
    """The module of that name, if it is stored, complete and undamaged."""
    path = cache_folder() / f"{name}.py"
    if cache.is_intact(path):
        return path
    if cache.is_sealed(path):
        discard(path)
    return None


def discard(path: Path) -> None:
    """Remove a stored module that cannot be used, so that it is made again."""
    cache.break_seal(path)
    for stored in _files(path):
        with contextlib.suppress(OSError):
            stored.unlink()


def _files(path: Path) -> list[Path]:
    """What a stored module may consist of: its text, arrays, facts, and machine code."""
    beside = [path.with_suffix(suffix) for suffix in (".py", ".npz", ".o", ".pickle")]
    return [*beside, *(path.parent / "__pycache__").glob(f"{path.stem}.*")]


def constants_of(path: Path) -> dict[str, np.ndarray]:
    """The constant arrays stored with a module, in the order of its hidden arguments."""
    stored = path.with_suffix(".npz")
    if not stored.exists():
        return {}
    with np.load(stored) as arrays:
        return {name: frozen(arrays[name]) for name in arrays.files}


def frozen(array: np.ndarray) -> np.ndarray:
    """A copy that nothing can write to: a global array, as a kernel was compiled with it."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def load(path: Path, given: dict[str, Any]) -> ModuleType:
    """Run a generated module; `given` are objects that it uses but cannot import.

    Not by an import: that would run what `__pycache__` holds, which is not sealed yet.
    """
    module = ModuleType(f"minigrad_kernels.{path.stem}")
    module.__file__ = str(path)
    module.__dict__.update(given)
    sys.modules[module.__name__] = module
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module
