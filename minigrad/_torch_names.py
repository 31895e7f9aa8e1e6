"""`as_torch`: programs that import torch run on minigrad, without a change to their source."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import minigrad


class _Loader(importlib.abc.Loader):
    """Gives a module of minigrad as the one that was imported under a name of torch."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it by that of torch's name


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `torch.nn` as `minigrad.nn`, and so on for every submodule."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("torch."):
            return None
        own = "minigrad." + fullname.removeprefix("torch.")
        if own.endswith("._names") or importlib.util.find_spec(own) is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: this program runs on minigrad, which has no {own}",
                name=fullname,
            )
        return ModuleSpec(fullname, _Loader(importlib.import_module(own)))


def as_torch() -> None:
    """From here on `import torch`, `import torch.nn as nn`, ... import minigrad instead.

    For a notebook or the first line of a program; `minigrad run program.py` does it from outside.
    RuntimeError if torch itself has been imported already.
    """
    present = sys.modules.get("torch")
    if present is minigrad:
        return
    if present is not None:
        raise RuntimeError(
            "as_torch: torch has been imported already, and tensors of both cannot be mixed; call "
            "minigrad.as_torch() before the first `import torch` (in a notebook: restart it first)"
        )
    sys.modules["torch"] = minigrad
    sys.meta_path.insert(0, _Finder())
