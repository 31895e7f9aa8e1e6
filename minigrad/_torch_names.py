"""`as_torch`: programs that import torch run on minigrad, without a change to their source."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import minigrad

# What stands for other packages: the longest name that fits counts.
_OWN = {
    "torch": "minigrad",
    "torchvision": "minigrad.vision",
    "torchvision.models": "minigrad.models",
    "functorch": "minigrad.functorch",
    "safetensors.torch": "minigrad.safetensors",
    "torch._tensor": "minigrad.tensor",
    "torch.autograd.gradcheck": "minigrad.autograd.check",
    "torch.cuda.amp.autocast_mode": "minigrad.cuda.amp",
    "torch.cuda.amp.grad_scaler": "minigrad.amp.grad_scaler",
    "torch.distributed.distributed_c10d": "minigrad.distributed",
    "torch.nn.modules.channelshuffle": "minigrad.nn.modules.pixelshuffle",
    "torch.nn.modules.instancenorm": "minigrad.nn.modules.batchnorm",
    "torch.optim.adadelta": "minigrad.optim.adaptive",
    "torch.optim.adagrad": "minigrad.optim.adaptive",
    "torch.optim.adamax": "minigrad.optim.adaptive",
    "torch.optim.adamw": "minigrad.optim.adam",
    "torch.optim.asgd": "minigrad.optim.per_parameter",
    "torch.optim.nadam": "minigrad.optim.per_parameter",
    "torch.optim.radam": "minigrad.optim.per_parameter",
    "torch.optim.rmsprop": "minigrad.optim.adaptive",
    "torch.optim.rprop": "minigrad.optim.per_parameter",
    "torch.utils.data._utils": "minigrad.utils.data",
}

# The torch whose names, defaults and errors minigrad has; the part after + says what it really is.
TORCH_VERSION = "2.13.0+minigrad"


def own_name(name: str) -> str | None:
    """The module of minigrad for an import: `minigrad.nn` for `torch.nn`; None for others."""
    fitting = [other for other in _OWN if name == other or name.startswith(f"{other}.")]
    if not fitting:
        return None
    longest = max(fitting, key=len)
    return _OWN[longest] + name.removeprefix(longest)


class _Loader(importlib.abc.Loader):
    """Gives a module of minigrad as the one that was imported under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it by that of torch's name


class _SafetensorsLoader(importlib.abc.Loader):
    """Loads the package safetensors, whose `safe_open` then gives tensors of minigrad."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _give_own_open(module)


def _give_own_open(safetensors: Any) -> None:
    safetensors.safe_open = importlib.import_module(_OWN["safetensors.torch"]).safe_open


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `torch.nn` as `minigrad.nn`, and so on for every submodule."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname == "safetensors":
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None:
                spec.loader = _SafetensorsLoader(spec.loader)
            return spec
        own = own_name(fullname)
        if own is None:
            return None
        if own.endswith("._names") or importlib.util.find_spec(own) is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: this program runs on minigrad, which has no {own}",
                name=fullname,
            )
        return ModuleSpec(fullname, _Loader(importlib.import_module(own)))

    def find_distributions(self, context: Any) -> list[Distribution]:
        """The installed package "torch", whose version libraries ask before they import it."""
        return [_TorchsMetadata()] if context.name in (None, "torch") else []


class _TorchsMetadata(Distribution):
    """What `importlib.metadata` knows of a package: its name and its version."""

    def read_text(self, filename: str) -> str | None:
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\n",
            "top_level.txt": "torch\n",
        }
        return files.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(minigrad.__file__).parent / path


def as_torch() -> None:
    """From here on `import torch`, `import torch.nn as nn`, ... import minigrad instead, and
    `torchvision`, `functorch` and `safetensors.torch` the parts of minigrad that stand for them.
    Programs ask `torch.__version__` what they may use: it is then that of the torch whose names
    minigrad has. `torch.__name__` is "torch", by which programs tell what they patch or got.

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
    vars(minigrad)["torch"] = minigrad  # torch imports itself, and programs write `torch.torch`
    minigrad.__version__, minigrad.__name__ = TORCH_VERSION, "torch"
    if "safetensors" in sys.modules:
        _give_own_open(sys.modules["safetensors"])
    sys.meta_path.insert(0, _Finder())
