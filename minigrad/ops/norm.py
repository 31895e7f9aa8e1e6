"""Batch, layer and RMS norm, fused; recorded gradients are composed of plain operations."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import Expr
from minigrad import dtypes
from minigrad.autograd.mode import autocasts, mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.pointwise import POINTWISE, Pointwise, check_floating, is_narrow, rounded_once
from minigrad.tensor import Tensor, functions, wrap

VARIANCE = Pointwise(
    Expr(
        "variance_of_invstd", ("invstd",), "(1 / (invstd * invstd) - eps) * factor",
        params=("eps", "factor"),
    )
)  # fmt: skip
"""The variance that 1 / sqrt(variance + eps) was computed from, times a factor."""


class BatchNorm(Op):
    """Normalise x (N, C, ...) by the statistics of the batch: (y, mean, invstd)."""

    saves = (0, 1)
    saves_outputs = (1, 2)
    repeats = True
    grad_name = "NativeBatchNormBackward0"

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return dispatch.active.batch_norm(x, weight, bias, eps)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, eps: float) -> tuple:
        x, weight, mean, invstd = ctx.tensors()
        if mode.enabled:
            return _recorded_gradients(ctx, g, x, weight, eps)
        scale = None if weight is None else weight._array
        grads = dispatch.active.batch_norm_backward(
            g._array, x._array, mean._array, invstd._array, scale
        )
        return _wanted(ctx, grads)


def _recorded_gradients(ctx: Any, g: Tensor, x: Tensor, weight: Tensor | None, eps: float) -> tuple:
    """The gradients as tensors that can be differentiated again."""
    axes = [0, *range(2, x._array.ndim)]
    centred = x - x.mean(axes, keepdim=True)
    invstd = POINTWISE["rsqrt"]((centred * centred).mean(axes, keepdim=True) + eps)
    normal = centred * invstd
    scaled = g if weight is None else g * per_channel(weight, x)
    inner = scaled - scaled.mean(axes, keepdim=True)
    inner = inner - normal * (scaled * normal).mean(axes, keepdim=True)
    return (
        inner * invstd,
        (g * normal).sum(axes) if ctx.needs[1] else None,
        g.sum(axes) if ctx.needs[2] else None,
    )


class BatchNormApply(Op):
    """(x - mean) * invstd * weight + bias, with given statistics."""

    saves = (0, 1, 2, 3)
    repeats = True
    grad_name = "NativeBatchNormBackward0"

    @staticmethod
    def forward(x: Any, mean: Any, invstd: Any, weight: Any, bias: Any) -> Any:
        return dispatch.active.batch_norm_apply(x, mean, invstd, weight, bias)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        x, mean, invstd, weight = ctx.tensors()
        need = ctx.needs
        if not (mode.enabled or need[1] or need[2]):
            return _fixed_gradients(ctx, g, x, mean, invstd, weight)
        axes = [0, *range(2, x._array.ndim)]
        scale = invstd if weight is None else invstd * weight
        normal = (x - per_channel(mean, x)) * per_channel(invstd, x)
        gx = g * per_channel(scale, x) if need[0] else None
        gmean = -(g.sum(axes) * scale) if need[1] else None
        ginvstd = None
        if need[2]:
            ginvstd = (g * (x - per_channel(mean, x))).sum(axes)
            ginvstd = ginvstd if weight is None else ginvstd * weight
        gweight = (g * normal).sum(axes) if need[3] else None
        return (gx, gmean, ginvstd, gweight, g.sum(axes) if need[4] else None)


def _fixed_gradients(
    ctx: Any, g: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None
) -> tuple:
    """The gradients of x, weight and bias, by kernels."""
    scale = None if weight is None else weight._array
    if not (ctx.needs[3] or ctx.needs[4]):
        zeros = functions.zeros_like(mean)._array
        gx = dispatch.active.batch_norm_apply(g._array, zeros, invstd._array, scale, None)
        return wrap(gx), None, None, None, None
    arrays = g._array, x._array, mean._array, invstd._array, scale
    gx, gweight, gbias = dispatch.active.batch_norm_backward(*arrays, fixed=True)
    return _wanted(ctx, (gx, None, None, gweight, gbias))


def per_channel(v: Tensor, x: Tensor) -> Tensor:
    """v (C,) shaped to broadcast over x (N, C, ...)."""
    return v.reshape((1, -1) + (1,) * (x._array.ndim - 2))


def check_channels(name: str, x: Tensor, **vectors: Tensor | None) -> None:
    """Errors unless x has channels, and each vector an element for each of them."""
    if x._array.ndim < 2:
        raise ValueError(f"{name}: expected input (N, C, ...), got {x._array.ndim}D input")
    channels = x._array.shape[1]
    for what, v in vectors.items():
        if v is not None and v._array.shape != (channels,):
            raise RuntimeError(
                f"{name}: {what} should contain {channels} elements not {v._array.size}"
            )


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, invstd): x (N, C, ...) normalised by the batch, and its statistics per channel.

    The gradient flows through the statistics; mean and invstd (biased variance) are detached.
    """
    check_channels("batch_norm", x, weight=weight, bias=bias)
    if x._array.size == x._array.shape[1]:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {x.shape}"
        )
    return BatchNorm.apply(x, weight, bias, eps=eps)


def batch_norm_apply(
    x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """(x - mean) * invstd * weight + bias per channel of x (N, C, ...)."""
    check_channels("batch_norm", x, running_mean=mean, running_var=invstd, weight=weight, bias=bias)
    return BatchNormApply.apply(x, mean, invstd, weight, bias)


class LayerNorm(Op):
    """Normalise x over its last dimensions, which are `shape`: (y, mean, invstd)."""

    saves = (0, 1)
    saves_outputs = (1, 2)
    first_only = True
    repeats = True
    grad_name = "NativeLayerNormBackward0"

    @staticmethod
    def rule(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, shape: tuple
    ) -> None:
        _check_normalized(x, shape, weight, bias)
        check_mixed(x, weight, bias)
        check_floating("LayerNormKernelImpl", x)

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any, eps: float, shape: tuple) -> Any:
        return dispatch.active.layer_norm(x, weight, bias, eps, len(shape))

    @staticmethod
    def vjp(ctx: Any, g: Tensor, eps: float, shape: tuple) -> tuple:
        x, weight, mean, invstd = ctx.tensors()
        if mode.enabled:
            axes, rest = _axes(x, shape)
            centred = x - x.mean(axes, keepdim=True)
            inv = POINTWISE["rsqrt"]((centred * centred).mean(axes, keepdim=True) + eps)
            normal = centred * inv
            scaled = g if weight is None else g * weight
            inner = scaled - scaled.mean(axes, keepdim=True)
            inner = inner - normal * (scaled * normal).mean(axes, keepdim=True)
            return (
                inner * inv,
                _sum(g * normal, rest) if ctx.needs[1] else None,
                _sum(g, rest) if ctx.needs[2] else None,
            )
        scale = None if weight is None else weight._array
        arrays = (g._array, x._array, mean._array, invstd._array, scale)
        affine = ctx.needs[1] or ctx.needs[2]
        return _wanted(ctx, dispatch.active.layer_norm_backward(*arrays, len(shape), affine))


class RMSNorm(Op):
    """x * weight / sqrt(mean(x * x) + eps) over its last dimensions, `shape`: (y, invrms)."""

    saves = (0, 1)
    saves_outputs = (1,)
    first_only = True
    repeats = True
    grad_name = "FusedRmsNormBackward0"

    @staticmethod
    def forward(x: Any, weight: Any, eps: float, shape: tuple) -> Any:
        return dispatch.active.rms_norm(x, weight, eps, len(shape))

    @staticmethod
    def vjp(ctx: Any, g: Tensor, eps: float, shape: tuple) -> tuple:
        x, weight, invrms = ctx.tensors()
        if mode.enabled:
            axes, rest = _axes(x, shape)
            inv = POINTWISE["rsqrt"]((x * x).mean(axes, keepdim=True) + eps)
            normal = x * inv
            scaled = g if weight is None else g * weight
            inner = scaled - normal * (scaled * normal).mean(axes, keepdim=True)
            return inner * inv, _sum(g * normal, rest) if ctx.needs[1] else None
        scale = None if weight is None else weight._array
        arrays = (g._array, x._array, invrms._array, scale)
        return _wanted(ctx, dispatch.active.rms_norm_backward(*arrays, len(shape), ctx.needs[1]))


def _axes(x: Tensor, shape: tuple) -> tuple[list[int], list[int]]:
    """The last dimensions of x, which are `shape`, and those before."""
    first = x._array.ndim - len(shape)
    return list(range(first, x._array.ndim)), list(range(first))


def _sum(x: Tensor, dims: list[int]) -> Tensor:
    """Sum over the dimensions; the identity if there are none."""
    return x.sum(dims) if dims else x


def _wanted(ctx: Any, arrays: tuple) -> tuple:
    """The gradients of the inputs that need one, as tensors."""
    wanted = zip(arrays, ctx.needs, strict=True)
    return tuple([wrap(a) if need and a is not None else None for a, need in wanted])


def _check_normalized(
    input: Tensor,
    shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> None:
    """torch's errors unless `shape` is that of the parameters, and of input's last dimensions."""
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    for what, v in (("weight", weight), ("bias", bias)):
        if v is not None and v._array.shape != shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{list(v.shape)} and normalized_shape = {list(shape)}"
            )
    first = input._array.ndim - len(shape)
    if first < 0 or input._array.shape[first:] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def check_mixed(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Parameters have the input's dtype, or are float32 beside a 16-bit input."""
    own = input._array.dtype
    if (weight is None or weight._array.dtype is own) and (
        bias is None or bias._array.dtype is own
    ):
        return
    given = {v.dtype for v in (weight, bias) if v is not None}
    wide = {dtypes.float32} if input.dtype.itemsize == 2 else set()
    if len(given) > 1 or not given <= {input.dtype} | wide:
        found = ", ".join(sorted(d.name for d in given))
        raise RuntimeError(
            f"mixed dtype: expected weight and bias of the input's dtype, {input.dtype.name}, "
            f"got {found}"
        )


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions, which are `normalized_shape` (Ba et al. 2016).

    weight and bias have that shape and the input's dtype (or float32 beside a 16-bit input).
    """
    return LayerNorm.apply(input, weight, bias, eps=eps, shape=_shape(normalized_shape))


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input * weight / sqrt(mean(input**2) + eps) over the last dimensions, which are
    `normalized_shape` (Zhang & Sennrich 2019).

    eps: by default the machine epsilon of the compute dtype.
    """
    shape = _shape(normalized_shape)
    _check_normalized(input, shape, weight)
    if input.is_complex():
        eps = float(np.finfo(input._array.dtype).eps) if eps is None else eps
        dims = tuple(range(-len(shape), 0))
        y = input * (input.square().mean(dims, keepdim=True) + eps).rsqrt()
        return y if weight is None else y * weight
    check_floating("rms_norm", input)
    if (
        weight is not None
        and weight._array.dtype is not input._array.dtype
        and {weight.dtype, input.dtype} == {dtypes.float32, dtypes.float64}
    ):
        input, weight = input.double(), weight.double()
    check_mixed(input, weight, None)
    if eps is None:
        wide = input._array.dtype == np.float64
        eps = float(np.finfo(np.float64 if wide else np.float32).eps)
    return RMSNorm.apply(input, weight, eps=eps, shape=shape)


class GroupNorm(Op):
    """Normalise x (N, C, ...) over each of `groups` groups of channels: (y, mean, invstd)."""

    repeats = True
    saves = (0, 1)
    saves_outputs = (1, 2)
    first_only = True
    grad_name = "NativeGroupNormBackward0"

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any, eps: float, groups: int) -> Any:
        active, n = dispatch.active, x.shape[0]
        rows = x.reshape(n * groups, -1)
        y, mean, invstd = active.layer_norm(rows, None, None, eps, 1)
        y = y.reshape(x.shape)
        if weight is not None or bias is not None:
            xp, channels = array_module(x), x.shape[1]
            constants = _kept if xp is np else _zeros_and_ones
            y = active.batch_norm_apply(y, *constants(xp, channels, mean.dtype), weight, bias)
        return y, mean.reshape(n, groups), invstd.reshape(n, groups)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, eps: float, groups: int) -> tuple:
        x, weight, mean, invstd = ctx.tensors()
        if not mode.enabled:
            scale = None if weight is None else weight._array
            arrays = (g._array, x._array, mean._array, invstd._array, scale)
            return _wanted(ctx, dispatch.active.group_norm_backward(*arrays))
        grouped = (x._array.shape[0], groups, x._array.shape[1] // groups, -1)
        z, h = x.reshape(grouped), g.reshape(grouped)
        centred = z - z.mean((2, 3), keepdim=True)
        inv = POINTWISE["rsqrt"]((centred * centred).mean((2, 3), keepdim=True) + eps)
        normal = centred * inv
        scaled = h if weight is None else h * weight.reshape(groups, -1, 1)
        inner = scaled - scaled.mean((2, 3), keepdim=True)
        inner = inner - normal * (scaled * normal).mean((2, 3), keepdim=True)
        return (
            (inner * inv).reshape(x.shape),
            (h * normal).sum((0, 3)).reshape(-1) if ctx.needs[1] else None,
            h.sum((0, 3)).reshape(-1) if ctx.needs[2] else None,
        )


def _zeros_and_ones(xp: Any, n: int, dtype: np.dtype) -> tuple[Any, Any]:
    return xp.zeros(n, dtype), xp.ones(n, dtype)


_kept = functools.lru_cache(_zeros_and_ones)  # which remembered launches read again


@autocasts
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each of num_groups groups of channels of (N, C, ...)."""
    if input._array.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input._array.ndim}"
        )
    check_floating("GroupNormKernelImpl", input)
    n, channels = input._array.shape[:2]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input.shape)} and num_groups={num_groups}"
        )
    rows = input.reshape(n * num_groups, -1) if input._array.size else input
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v._array.shape != (channels,):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(v.shape)} and input of shape {list(input.shape)}"
            )
    check_mixed(input, weight, bias)
    if is_narrow(rows._array):
        return rounded_once(group_norm, input, num_groups, weight, bias, eps)
    if mode.observer is None and input._array.size:
        return GroupNorm.apply(input, weight, bias, eps=eps, groups=num_groups)
    width = rows._array.shape[1:]
    y = LayerNorm.apply(rows, None, None, eps=eps, shape=width).reshape(input._array.shape)
    return affine(y, weight, bias)


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x * weight + bias per channel of x (N, C, ...), in x's dtype."""
    given = [v for v in (weight, bias) if v is not None]
    if given and x._array.size and all(v._array.dtype is x._array.dtype for v in given):
        like = dtypes.float32 if is_narrow(x._array) else x.dtype
        mean = functions.zeros(x._array.shape[1], dtype=like, device=x.device)
        return BatchNormApply.apply(x, mean, functions.ones_like(mean), weight, bias)
    y = x if weight is None else x * per_channel(weight, x)
    y = y if bias is None else y + per_channel(bias, x)
    return y.to(x.dtype)  # with parameters in float32 beside a 16-bit input
