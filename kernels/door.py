"""`kernels.install()`: where there is no GPU, `numba.cuda`, `cupy` and `cupyx` are found here.

A program that its author wrote for a GPU then runs as it is: the import statements find the
compiler of `kernels.simt` under `numba.cuda`, and NumPy-backed arrays under `cupy`, whether or not
numba-cuda and CuPy are installed. Child processes inherit it through the environment.

This file imports the standard library only: child processes load it before anything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

#: packages that are found here, and where
PACKAGES = {
    "numba.cuda": "kernels.simt.cuda",
    "cupy": "kernels.cupy",
    "cupyx": "kernels.cupyx",
    "cupy_backends": "kernels.cupy.backends",
}
#: modules of numba.cuda that are elsewhere, or names of modules there
_NUMBA = {
    "random": "kernels.simt.api.xoroshiro",
    **dict.fromkeys(("testing", "tests", "tests.support"), "kernels.simt.api.testing"),
    **{
        f"cudadrv{part}": "kernels.simt.device.cudadrv"
        for part in ("", ".devicearray", ".devices", ".driver", ".drvapi", ".error")
    },
}
_VARIABLE = "MINIGRAD_INSTALL"
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")


def no_gpu() -> str | None:
    """Why kernels cannot run on a GPU here, or None where there is one."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
        count = ctypes.c_int()
        status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    except (OSError, AttributeError):
        return f"there is no NVIDIA driver ({name})"
    if status or not count.value:
        return f"the NVIDIA driver finds no GPU (status {status})"
    return None


def install(*, announce: bool = True, force: bool = False) -> bool:
    """Let `import numba.cuda`, `import cupy`, `import cupyx` find minigrad's, if there is no GPU.

    Returns whether they do. With a GPU nothing changes, unless `force` is true. Says once, on
    standard error, what it did (`announce=False`: nothing). Python processes that this one starts,
    by `multiprocessing` too, do the same. Modules that were imported before keep the old ones: call
    it first.
    """
    reason = no_gpu() or ("as was asked for" if force else None)
    if reason is None:
        return False
    if any(getattr(finder, "is_minigrads", False) for finder in sys.meta_path):
        return True
    sys.meta_path.insert(0, Finder())
    for name in [name for name in sys.modules if _target(name)]:
        del sys.modules[name]
    if "numba" in sys.modules and hasattr(sys.modules["numba"], "cuda"):
        sys.modules["numba"].cuda = importlib.import_module("numba.cuda")
    if announce and not os.environ.get(_VARIABLE):
        print(
            f"minigrad: {reason}: numba.cuda and cupy run on the CPU, through minigrad",
            file=sys.stderr,
        )
    os.environ[_VARIABLE] = "cuda"
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if _SITE not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([_SITE, *paths])
    return True


def _target(name: str) -> str | None:
    """The module that an import of `name` finds here, or None where it is not ours to answer."""
    for package, ours in PACKAGES.items():
        if name == package:
            return ours
        if name.startswith(f"{package}."):
            rest = name[len(package) + 1 :]
            elsewhere = _NUMBA.get(rest) if package == "numba.cuda" else None
            return elsewhere or f"{ours}.{rest}"
    return None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of the packages above with modules of `kernels`."""

    is_minigrads = True

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        ours = _target(name)
        if ours is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=ours, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        _make_importable()
        module = _module(spec.name, spec.origin)
        self._own = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run; it keeps its own spec, by which its imports work."""
        with contextlib.suppress(AttributeError):
            if self._own is not None:
                module.__spec__ = self._own
            if not hasattr(module, "__path__"):
                module.__path__ = []
        if module.__name__ == "kernels.cupy":
            module.__name__ = module.ndarray.__module__ = "cupy"


def _module(name: str, ours: str) -> Any:
    """The module `ours`. Raises ModuleNotFoundError that says so where there is none."""
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("kernels.") and "is not a package" not in str(error):
            raise
    parent, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(parent), last, None)  # a namespace, such as cuda.libdevice
    if found is None:
        import difflib

        known = [one for one in dir(sys.modules.get(parent)) if one[0] != "_"]
        near = difflib.get_close_matches(last, known, 1)
        raise ModuleNotFoundError(
            f"{name} is not available on the CPU, where minigrad answers imports of"
            f" {parent}" + (f"; did you mean {parent}.{near[0]}?" if near else ""),
            name=name,
        )
    return found


def _make_importable() -> None:
    """Let child processes import `kernels` where the parent could."""
    if "kernels" not in sys.modules and importlib.util.find_spec("kernels") is None:
        sys.path.append(os.path.dirname(os.path.dirname(_SITE)))
