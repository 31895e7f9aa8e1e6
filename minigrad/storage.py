"""The types of the memory behind tensors, as `Tensor.untyped_storage()` and `storage()` give it."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.ops.storage import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]

__getattr__, __dir__ = namespace(__name__)
