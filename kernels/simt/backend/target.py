"""What is registered for CUDA only: `overload(f, target="cuda")` and its like.

Numba picks among the registrations of a function by the target that it compiles for. Kernels are
compiled for a target of their own, which is the CPU and has CUDA's registrations besides; code of
`numba.njit` does not see them. Numba's own registrations for CUDA call functions of a GPU, and are
left alone.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, NamedTuple

from numba import jit
from numba.core import target_extension, types
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typing.templates import builtin_registry
from numba.np import linalg

from kernels.simt.store import fingerprint

NAME = "minigrad simt"


def _defer_blas() -> None:
    """Import Numba's `arraymath` without SciPy's BLAS, a third of the time that all imports for a
    first kernel take. Numba asks for it again where a function needs it."""
    ensure = linalg.ensure_blas
    if importlib.util.find_spec("scipy") is not None:
        linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure


_defer_blas()


class Simt(target_extension.CPU):
    """The target of kernels that are compiled for a CPU."""


class _Registered(NamedTuple):
    """What a user has registered with Numba: under which name, a digest, the names it uses."""

    name: str | None  # None: an operator, for instance, which any kernel may use
    digest: str
    uses: set[str]


class ForKernels:
    """A mixin for Numba's compilers: they compile for the target of kernels."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.targetctx.target = Simt  # the context is this compilation's own copy

    def _compile_core(self) -> Any:
        with target_extension.target_override(NAME):  # what is looked up while code is made
            return super()._compile_core()


class DeviceFunctions(ForKernels, Compiler):
    """Numba's pipeline for functions that kernels call."""


def _jit(*args: Any, **options: Any) -> Any:
    return jit(*args, pipeline_class=DeviceFunctions, **options)


target_extension.target_registry[NAME] = Simt
target_extension.dispatcher_registry[Simt] = CPUDispatcher
target_extension.jit_registry[Simt] = _jit

_seen = {"functions": 0, "attributes": 0, "globals": 0}  # how many registrations were looked at
_of_users: list[_Registered] = []
_FOREIGN = {"numba", "numba_cuda", "kernels", "numpy", *sys.stdlib_module_names}


def adopt() -> None:
    """Make what was registered for CUDA since the last call known to the compiler of kernels."""
    _look()
    _offer()


def _offer() -> None:
    """Have the typing context take what is registered for kernels: each registration is offered
    once, and dropped if it is for another target than that of the function being compiled."""
    with target_extension.target_override(NAME):
        cpu_target.typing_context.refresh()


def extensions(names: set[str]) -> str:
    """A digest of what users have registered, for any target, that code with `names` may use."""
    _look()
    known, found, left = set(names), [], list(_of_users)
    while used := [one for one in left if one.name is None or one.name in known]:
        left = [one for one in left if one not in used]
        found += used
        known.update(*(one.uses for one in used))
    return "\n".join(sorted(one.digest for one in found))


def _look() -> None:
    before = {kind: len(getattr(builtin_registry, kind)) for kind in _seen}
    for kind, seen in list(_seen.items()):
        items = getattr(builtin_registry, kind)
        for item in items[seen:]:
            _adopt(items, item)
        _seen[kind] = len(items)
    if before != _seen:  # before a function of `njit` is compiled, which would be offered them
        _offer()


def _adopt(items: list, item: Any) -> None:
    """Register `item` for our target too, if it is a user's for CUDA."""
    value, kind = item if isinstance(item, tuple) else (None, None)
    for template in [item] if kind is None else getattr(kind, "templates", ()):
        written = getattr(template, "_overload_func", None)
        if _is_foreign(template, written):
            continue
        _of_users.append(_registered(template, written))
        metadata = getattr(template, "metadata", None) or {}
        if metadata.get("target") in ("cuda", "CUDA", "gpu", "GPU"):
            ours = {"metadata": {**metadata, "target": NAME}}
            copy = type(template)(template.__name__, (template,), ours)
            items.append(copy if kind is None else (value, types.Function(copy)))


def _registered(template: Any, written: Any) -> _Registered:
    key = getattr(template, "key", None)
    name = getattr(template, "_attr", None) or getattr(key, "__name__", None)
    if (getattr(key, "__module__", None) or "").strip("_") in ("operator", "builtins"):
        name = None
    if written is None:  # what it does is not known: it is as none before
        return _Registered(name, f"{os.getpid()} {id(template)}", set())
    return _Registered(name, fingerprint.of(written), fingerprint.names(written))


def _is_foreign(template: Any, written: Any) -> bool:
    """Whether a registration is Numba's own, or one of ours."""
    home = getattr(written or getattr(template, "key", None), "__module__", None) or "numba"
    ours = getattr(template, "metadata", None) or {}
    if written is None and not callable(getattr(template, "generic", None)):
        return True  # attributes of a type, which a kernel has by another registration
    return home.partition(".")[0] in _FOREIGN or ours.get("target") == NAME
