"""Convolution layers (computing cross-correlation, as usual in deep learning)."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.modules.module import Module
from minigrad.nn.modules.utils import ntuple
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

_PADDING_STRINGS = {"same", "valid"}
_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    """Base of Conv1d and Conv2d: checks, parameters, initial values, repr."""

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
        self.weight = Parameter(minigrad.empty(self._weight_shape(), **kind))
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

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """(input, remaining padding): modes other than "zeros" are applied here by `pad`."""
        if self.padding_mode == "zeros":
            return input, self.padding
        if isinstance(self.padding, str):
            reach = [
                d * (k - 1) if self.padding == "same" else 0
                for d, k in zip(self.dilation, self.kernel_size, strict=True)
            ]
            widths = [(total // 2, total - total // 2) for total in reach]
        else:
            widths = [(p, p) for p in self.padding]
        flat = [width for pair in reversed(widths) for width in pair]  # last dimension first
        return F.pad(input, flat, self.padding_mode), 0

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
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class Conv1d(_ConvNd):
    """1-D convolution.

    Shapes: input (N, in_channels, L) or (in_channels, L), weight
    (out_channels, in_channels / groups, kernel_size), bias (out_channels,).
    """

    _dims = 1

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        how: tuple[Any, ...] = (self.stride, padding, self.dilation, self.groups)
        return F.conv1d(input, self.weight, self.bias, *how)


class Conv2d(_ConvNd):
    """2-D convolution.

    Shapes: input (N, in_channels, H, W) or (in_channels, H, W), weight
    (out_channels, in_channels / groups, kh, kw), bias (out_channels,).
    """

    _dims = 2

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        how: tuple[Any, ...] = (self.stride, padding, self.dilation, self.groups)
        return F.conv2d(input, self.weight, self.bias, *how)


class Conv3d(_ConvNd):
    """3-D convolution.

    Shapes: input (N, in_channels, D, H, W) or (in_channels, D, H, W), weight
    (out_channels, in_channels / groups, kd, kh, kw), bias (out_channels,).
    """

    _dims = 3

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        how: tuple[Any, ...] = (self.stride, padding, self.dilation, self.groups)
        return F.conv3d(input, self.weight, self.bias, *how)


class _ConvTransposeNd(_ConvNd):
    """Transposed convolution: the gradient of a convolution with respect to its input."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation),
            *(groups, bias, padding_mode, device, dtype),
        )
        self.output_padding = ntuple(output_padding, self._dims)

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """The padding at the end that gives `output_size`, which is ambiguous with a stride > 1."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self._dims :]
        smallest = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-self._dims :],
                *(self.stride, self.padding, self.dilation, self.kernel_size),
                strict=True,
            )
        ]
        extra = tuple(w - n for w, n in zip(wanted, smallest, strict=True))
        largest = [n + s - 1 for n, s in zip(smallest, self.stride, strict=True)]
        if any(e < 0 or e >= s for e, s in zip(extra, self.stride, strict=True)):
            raise ValueError(
                f"requested an output size of {wanted}, but valid sizes range from {smallest} "
                f"to {largest} (for an input of {list(input.shape[-self._dims :])})"
            )
        return extra

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.output_padding == (0,) * self._dims:
            return text
        # torch shows it before groups and bias.
        at = min([i for i in (text.find(", groups"), text.find(", bias")) if i >= 0] or [len(text)])
        return f"{text[:at]}, output_padding={self.output_padding}{text[at:]}"


class ConvTranspose1d(_ConvTransposeNd):
    """1-D transposed convolution.

    Shapes: input (N, in_channels, L) or (in_channels, L), weight
    (in_channels, out_channels / groups, kernel_size), bias (out_channels,).
    """

    _dims = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return F.conv_transpose1d(
            *(input, self.weight, self.bias, self.stride, self.padding),
            *(self._output_padding(input, output_size), self.groups, self.dilation),
        )


class ConvTranspose2d(_ConvTransposeNd):
    """2-D transposed convolution.

    Shapes: input (N, in_channels, H, W) or (in_channels, H, W), weight
    (in_channels, out_channels / groups, kh, kw), bias (out_channels,).
    """

    _dims = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return F.conv_transpose2d(
            *(input, self.weight, self.bias, self.stride, self.padding),
            *(self._output_padding(input, output_size), self.groups, self.dilation),
        )


class ConvTranspose3d(_ConvTransposeNd):
    """3-D transposed convolution.

    Shapes: input (N, in_channels, D, H, W) or (in_channels, D, H, W), weight
    (in_channels, out_channels / groups, kd, kh, kw), bias (out_channels,).
    """

    _dims = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return F.conv_transpose3d(
            *(input, self.weight, self.bias, self.stride, self.padding),
            *(self._output_padding(input, output_size), self.groups, self.dilation),
        )
