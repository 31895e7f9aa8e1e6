"""Exchange of tensors by DLPack capsules, with torch.utils.dlpack's names."""

from __future__ import annotations

from typing import Any

from minigrad import from_dlpack as from_dlpack
from minigrad._names import namespace
from minigrad.tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of a tensor's memory, for one `from_dlpack`."""
    return tensor.__dlpack__()


__getattr__, __dir__ = namespace(__name__)
