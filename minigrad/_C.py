"""What libraries take from the C extension of torch: they announce to it that they are used, ask
whether they are traced, and read arguments as `Module.to` does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from minigrad._names import namespace
from minigrad.autograd.mode import batching
from minigrad.devices import device
from minigrad.nn.modules import module
from minigrad.overrides import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from minigrad.overrides import disabled as _disabled_torch_function_impl  # noqa: F401
from minigrad.tensor import Tensor

__all__: list[str] = []

_TensorMeta = type(Tensor)


def _log_api_usage_once(event: str) -> None:
    """Nothing: minigrad keeps no record of what is used, as torch does unless it is built to."""


def _get_tracing_state() -> None:
    """None: `jit.trace` returns what it is given, and traces nothing."""


def _parse_to(*args: Any, **kwargs: Any) -> tuple:
    """(device, dtype, non_blocking, memory_format) of the arguments of `Module.to`; None for a
    device, dtype or format that they do not name."""
    where, dtype = module._parse_to(*args, **kwargs)
    place = where if where is None else device(where)
    return place, dtype, bool(kwargs.get("non_blocking")), kwargs.get("memory_format")


def _are_functorch_transforms_active() -> bool:
    """Whether this runs inside of `vmap`; gradients of functions run on tensors as they are."""
    return bool(batching)


class PyTorchFileReader:
    """The reader of a file's records; NotImplementedError where one would be made."""

    def __init__(self, *args: Any) -> None:
        raise NotImplementedError(
            "PyTorchFileReader: minigrad reads no single records of a file; fix: minigrad.load"
        )


_nn = SimpleNamespace(_parse_to=_parse_to)

__getattr__, __dir__ = namespace(__name__)
