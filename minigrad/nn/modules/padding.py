"""Padding layers: each stores the widths and the mode of `functional.pad`."""

from __future__ import annotations

from typing import Any

from minigrad.nn import functional as F
from minigrad.nn.modules.module import Module
from minigrad.nn.modules.utils import ntuple
from minigrad.tensor import Tensor

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    """`padding`: one width for all sides, or (left, right) and for 2-D (top, bottom)."""

    _dims: int
    _mode = "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self._dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ConstantPadNd(_PadNd):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise ValueError(
                f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.dim()}D input)"
            )
        return super().forward(input)


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`."""

    _dims = 2


class ZeroPad2d(_PadNd):
    """Pads the last two dimensions with zeros."""

    _dims = 2


class ReflectionPad1d(_PadNd):
    """Pads by reflecting the input at its ends."""

    _dims = 1
    _mode = "reflect"


class ReflectionPad2d(_PadNd):
    """Pads by reflecting the input at its borders."""

    _dims = 2
    _mode = "reflect"


class ReplicationPad1d(_PadNd):
    """Pads by repeating the values at the ends."""

    _dims = 1
    _mode = "replicate"


class ReplicationPad2d(_PadNd):
    """Pads by repeating the values at the borders."""

    _dims = 2
    _mode = "replicate"


class CircularPad1d(_CircularPadNd):
    """Pads with the values of the opposite end."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Pads with the values of the opposite border."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`."""

    _dims = 3


class ZeroPad1d(_PadNd):
    """Pads the last dimension with zeros."""

    _dims = 1


class ZeroPad3d(_PadNd):
    """Pads the last three dimensions with zeros."""

    _dims = 3


class ReflectionPad3d(_PadNd):
    """Pads by reflecting the input at its faces."""

    _dims = 3
    _mode = "reflect"


class ReplicationPad3d(_PadNd):
    """Pads by repeating the values at the faces."""

    _dims = 3
    _mode = "replicate"


class CircularPad3d(_CircularPadNd):
    """Pads with the values of the opposite face."""

    _dims = 3
