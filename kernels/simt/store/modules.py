"""Generated modules on disk, so that the next process does not compile again.

A module's name carries a digest of all that its machine code depends on; the code is in a file
beside it (`backend/machine_code.py`) and in `__pycache__`, where Numba keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernels.support.cache import cache_folder, write

# What the environment can tell Numba about the code that it makes
_NUMBA_SETTINGS = ("NUMBA_CPU", "NUMBA_OPT", "NUMBA_ENABLE_AVX", "NUMBA_LOOP", "NUMBA_SLP")


@lru_cache(maxsize=1)
def toolchain() -> str:
    """A digest of the compiler itself: our sources, Numba, LLVM, Python, the CPU."""
    import llvmlite
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted([*(root / "simt").rglob("*.py"), *(root / "support").glob("*.py")]):
        digest.update(path.read_bytes())
    numba = importlib.util.find_spec("numba").origin  # importing it would take too long
    digest.update(Path(numba).with_name("_version.py").read_bytes())
    features = llvm.get_host_cpu_features().flatten()
    asked = sorted((k, v) for k, v in os.environ.items() if k.startswith(_NUMBA_SETTINGS))
    for part in (llvmlite.__version__, sys.version, np.__version__, repr(asked)):
        digest.update(part.encode())
    digest.update(f"{llvm.get_host_cpu_name()} {features}".encode())
    return digest.hexdigest()


def save(name: str, text: str, constants: dict[str, np.ndarray]) -> Path:
    """Store a generated module and its constant arrays; the module's path."""
    path = cache_folder() / f"{name}.py"
    if constants:
        import io

        buffer = io.BytesIO()
        np.savez(buffer, **constants)
        write(path.with_suffix(".npz"), buffer.getvalue())
    write(path, text.encode())
    return path


def discard(path: Path) -> None:
    """Remove a stored module that cannot be read, so that it is made again."""
    code = (path.parent / "__pycache__").glob(f"{path.stem}.*")
    for stored in (path, path.with_suffix(".npz"), path.with_suffix(".o"), *code):
        with contextlib.suppress(OSError):
            stored.unlink()


def find(name: str) -> Path | None:
    """The module of that name, if it is stored."""
    path = cache_folder() / f"{name}.py"
    return path if path.exists() else None


def constants_of(path: Path) -> dict[str, np.ndarray]:
    """The constant arrays stored with a module, in the order of its hidden arguments."""
    stored = path.with_suffix(".npz")
    if not stored.exists():
        return {}
    with np.load(stored) as arrays:
        return {name: arrays[name] for name in arrays.files}


def load(path: Path, given: dict[str, Any]) -> ModuleType:
    """Import a generated module; `given` are objects that it uses but cannot import."""
    name = f"minigrad_kernels.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(given)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if not module.__dict__.get("COMPLETE"):
        raise ImportError(f"{path} is not a whole module")
    return module
