"""Inference in 8-bit integers: `quantize_dynamic`, with torch.quantization's name and arguments.

Weights are rounded once, each output channel with its own scale. Activations are rounded at every
call, each row of a Linear's input and each image of a Conv2d's with its own scale; their product is
exact (kernels of the family `int8`), and the result is float32 again. Weights take a quarter of
their memory. There are no gradients.

`fake_quantize_per_tensor_affine` and `fake_quantize_per_channel_affine` are for training: they
round to what integers with a scale can hold, and pass gradients on.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import minigrad
from kernels import dispatch
from minigrad import dtypes
from minigrad._names import namespace
from minigrad.autograd.function import Function
from minigrad.autograd.mode import mode
from minigrad.nn.modules.conv import Conv2d
from minigrad.nn.modules.linear import Linear
from minigrad.nn.modules.module import Module
from minigrad.ops.fold import Im2Col
from minigrad.ops.pointwise import check_floating
from minigrad.tensor import Tensor, wrap

__all__ = [
    "QuantizedConv2d",
    "QuantizedLinear",
    "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine",
    "quantize_dynamic",
]


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 q, float32 scale (m,)) with x (m, k) about q * scale, the largest of a row at 127."""
    q, scale = dispatch.active.quantize_rows(x.detach()._array)
    return wrap(q), wrap(scale)


class _Quantized(Module):
    """Weights as bytes (channels, k), `scale` (channels,), and the bias in float32."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        q, scale = quantized(weight.reshape(weight.shape[0], -1))
        self.register_buffer("weight", q.reshape(weight.shape))
        self.register_buffer("scale", scale)
        bias = layer.bias
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        self.training = layer.training

    def _rows(self) -> Any:
        return self.weight._array.reshape(self.weight.shape[0], -1)

    def dequantized(self) -> Tensor:
        """The weight as the layer computes with it, in float32."""
        shape = (-1,) + (1,) * (self.weight.ndim - 1)
        return self.weight.float() * self.scale.reshape(shape)

    def _check(self, input: Tensor) -> None:
        if self.training and mode.enabled and input.requires_grad:
            raise RuntimeError(
                f"{type(self).__name__}: layers in 8 bits have no gradient; call `eval()` on the "
                "model, or call it in a block `with minigrad.no_grad():`"
            )


class QuantizedLinear(_Quantized):
    """`Linear` in 8 bits: input (..., in_features), result (..., out_features) of its dtype."""

    def __init__(self, layer: Linear) -> None:
        super().__init__(layer)
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        if input.shape[-1] != self.in_features:
            raise RuntimeError(
                f"QuantizedLinear: expected input (..., {self.in_features}), got "
                f"{list(input.shape)}"
            )
        rows = input.detach().reshape(-1, self.in_features)
        q, scale = dispatch.active.quantize_rows(rows._array)
        bias = None if self.bias is None else self.bias._array
        out = dispatch.active.int8_matmul(q, self._rows(), scale, self.scale._array, bias)
        return wrap(out).reshape(*input.shape[:-1], self.out_features).to(input.dtype)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, dtype={self.weight.dtype}"
        )


class QuantizedConv2d(_Quantized):
    """`Conv2d` in 8 bits, as a product of the windows of the input: (N, C, H, W) or (C, H, W)."""

    def __init__(self, layer: Conv2d) -> None:
        super().__init__(layer)
        for name in (
            *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation"),
            *("groups", "padding_mode"),
        ):
            setattr(self, name, getattr(layer, name))

    _dims = 2
    _padded: Any = Conv2d._padded

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        x = input.detach() if input.ndim == 4 else input.detach().unsqueeze(0)
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise RuntimeError(
                f"QuantizedConv2d: expected input (N, {self.in_channels}, H, W), got "
                f"{list(input.shape)}"
            )
        x, padding = self._padded(x)
        x, padding = self._same(x, padding)
        n = x.shape[0]
        q, scale = dispatch.active.quantize_rows(x.reshape(n, -1)._array)
        window = {"kernel": self.kernel_size, "dilation": self.dilation, "stride": self.stride}
        columns = Im2Col.forward(q.reshape(x.shape), x.shape[2:], padding=padding, **window)
        size = [
            (length + 2 * p - d * (k - 1) - 1) // s + 1
            for length, p, d, k, s in zip(
                x.shape[2:], padding, self.dilation, self.kernel_size, self.stride, strict=True
            )
        ]
        y = self._product(columns, scale, n, size)
        return (y if input.ndim == 4 else y.squeeze(0)).to(input.dtype)

    def _product(self, columns: Any, scale: Any, n: int, size: list[int]) -> Tensor:
        """Windows (N, C * kh * kw, windows) of bytes times the weight, group by group."""
        windows = columns.shape[2]
        rows = columns.transpose(0, 2, 1).reshape(n * windows, self.groups, -1)
        scales, weight = scale.repeat(windows), self._rows()
        each, parts = self.out_channels // self.groups, []
        for g in range(self.groups):
            own = slice(g * each, (g + 1) * each)
            bias = None if self.bias is None else self.bias._array[own]
            factor = self.scale._array[own]
            parts.append(
                wrap(dispatch.active.int8_matmul(rows[:, g], weight[own], scales, factor, bias))
            )
        y = parts[0] if len(parts) == 1 else minigrad.cat(parts, 1)
        return y.reshape(n, windows, -1).transpose(1, 2).reshape(n, self.out_channels, *size)

    def _same(self, x: Tensor, padding: Any) -> tuple[Tensor, tuple[int, int]]:
        """(x, padding as a pair) for the paddings that have names."""
        if padding == "valid":
            return x, (0, 0)
        if padding != "same":
            return x, padding if isinstance(padding, tuple) else (padding, padding)
        totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        pads = [p for t in reversed(totals) for p in (t // 2, t - t // 2)]
        return minigrad.nn.functional.pad(x, pads), (0, 0)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, dtype={self.weight.dtype}"
        )


_FORMS: dict[type[Module], type[_Quantized]] = {Linear: QuantizedLinear, Conv2d: QuantizedConv2d}


def quantize_dynamic(
    model: Module,
    qconfig_spec: Iterable[type[Module]] | None = None,
    dtype: Any = dtypes.int8,
    mapping: Any = None,
    inplace: bool = False,
) -> Module:
    """A copy of a trained model (itself if `inplace`) whose Linear and Conv2d layers compute in 8
    bits. qconfig_spec: the types of layers to change (default: both).

    NotImplementedError for other types and for dtypes other than qint8.
    """
    if dtype is not dtypes.int8:
        raise NotImplementedError(f"quantize_dynamic: minigrad has dtype=qint8 only, got {dtype}")
    types = tuple(_FORMS) if qconfig_spec is None else tuple(qconfig_spec)
    for kind in types:
        if kind not in _FORMS:
            raise NotImplementedError(
                f"quantize_dynamic: minigrad has 8-bit forms of "
                f"{', '.join(t.__name__ for t in _FORMS)}, not of {getattr(kind, '__name__', kind)}"
            )
    model = model if inplace else copy.deepcopy(model)
    if type(model) in types:
        return _FORMS[type(model)](model)
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if type(child) in types:
                setattr(part, name, _FORMS[type(child)](child))
    return model


# --- for training ---


class FakeQuantize(Function):
    """x rounded to (q - zero_point) * scale for the integers q from `least` to `most`; the gradient
    passes where x lies between them (Bengio et al. 2013)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero: Tensor, least: int, most: int) -> Tensor:
        q = (x.float() * (1 / scale)).round() + zero
        ctx.save_for_backward((q >= least) & (q <= most))
        return ((q.nan_to_num(least).clamp(least, most) - zero) * scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (inside,) = ctx.saved_tensors
        return g * inside, None, None, None, None


def _check(x: Tensor, zero: Tensor, least: int, most: int) -> None:
    check_floating("fake_quantize_tensor_cachemask_kernel_type_handling", x)
    if least > most:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")
    if bool(((zero < least) | (zero > most)).any()):
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """(clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale."""
    given = [
        value.detach().to(input.device, dtypes.float32)
        if isinstance(value, Tensor)
        else minigrad.tensor(value, dtype=dtypes.float32, device=input.device)
        for value in (scale, zero_point)
    ]
    _check(input, given[1], quant_min, quant_max)
    return FakeQuantize.apply(input, *given, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each index of a
    dimension."""
    if zero_point.dtype not in (dtypes.int32, dtypes.float32, dtypes.float16):
        found = zero_point.dtype.legacy_name.removesuffix("Tensor")
        raise RuntimeError(f"Zero-point must be Int32, Float or Half, found {found}")
    if scale.ndim != 1 or scale.shape != zero_point.shape:
        raise RuntimeError("scale and zero-point need to be vectors with the same dimensions")
    if not 0 <= axis <= input.ndim:
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    if len(scale) != input.size(axis):
        raise RuntimeError(
            "dimensions of scale and zero-point are not consistent with input tensor"
        )
    shape = [1] * input.ndim
    shape[axis] = -1
    scale, zero = (t.detach().float().reshape(shape) for t in (scale, zero_point))
    _check(input, zero, quant_min, quant_max)
    return FakeQuantize.apply(input, scale, zero, quant_min, quant_max)


__getattr__, __dir__ = namespace(__name__)
