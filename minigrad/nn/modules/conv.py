"""Convolution layers (cross-correlation, as everywhere in this field)."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.modules._sizes import ntuple
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor

_PADDING_STRINGS = {"same", "valid"}
_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    """What Conv1d and Conv2d share: checks, parameters, initial values, repr."""

    _dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        dims = self._dims
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = ntuple(kernel_size, dims)
        self.stride = ntuple(stride, dims)
        self.padding = padding if isinstance(padding, str) else ntuple(padding, dims)
        self.dilation = ntuple(dilation, dims)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        kind = {"device": device, "dtype": dtype}
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(minigrad.empty(shape, **kind))
        if bias:
            self.bias = Parameter(minigrad.empty(out_channels, **kind))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.out_channels % self.groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in _PADDING_STRINGS:
                raise ValueError(
                    f"Invalid padding string {self.padding!r}, should be one of "
                    f"{sorted(_PADDING_STRINGS)}"
                )
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {sorted(_PADDING_MODES)}, but got "
                f"padding_mode='{self.padding_mode}'"
            )
        if self.padding_mode != "zeros":
            raise NotImplementedError(
                f"{self._get_name()}: padding_mode='{self.padding_mode}' is not available; "
                "use padding_mode='zeros' or pad the input first"
            )

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in ``+-1/sqrt(fan_in)``."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        dims = self._dims
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * dims:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * dims:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text


class Conv1d(_ConvNd):
    """1-D convolution.

    Shapes: input (N, in_channels, L) or (in_channels, L), weight
    (out_channels, in_channels / groups, kernel_size), bias (out_channels,).
    """

    _dims = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.conv1d(
            *(input, self.weight, self.bias),
            *(self.stride, self.padding, self.dilation, self.groups),
        )


class Conv2d(_ConvNd):
    """2-D convolution.

    Shapes: input (N, in_channels, H, W) or (in_channels, H, W), weight
    (out_channels, in_channels / groups, kh, kw), bias (out_channels,).
    """

    _dims = 2

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(
            *(input, self.weight, self.bias),
            *(self.stride, self.padding, self.dilation, self.groups),
        )
