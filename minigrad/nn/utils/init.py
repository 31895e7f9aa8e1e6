"""Modules without the time that initial values take."""

from __future__ import annotations

import inspect
from typing import Any

from minigrad.nn.modules.module import Module


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """`module_cls(*args, **kwargs)` whose parameters and buffers are uninitialised memory.

    RuntimeError for what is no Module, or takes no `device`.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
