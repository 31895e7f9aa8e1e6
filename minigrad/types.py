"""Types for annotations, with the names of torch.types."""

from __future__ import annotations

import os
from typing import IO, TypeAlias

from minigrad._absent import absent
from minigrad._names import namespace
from minigrad.devices import device
from minigrad.ops.storage import TypedStorage, UntypedStorage
from minigrad.tensor import Size, Tensor

__all__ = ["Device", "FileLike", "Number", "Size", "Storage"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage: TypeAlias = UntypedStorage | TypedStorage

_NO_TRACE = "minigrad traces no sizes; a size is an int"
SymBool, SymFloat, SymInt = (absent(n, _NO_TRACE) for n in ("SymBool", "SymFloat", "SymInt"))

_bool, _int, _float, _complex, _device = bool, int, float, complex, device
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | tuple[Tensor, ...]

__getattr__, __dir__ = namespace(__name__)
