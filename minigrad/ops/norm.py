"""Batch normalisation, fused; with recorded gradients, a composition of plain operations."""

from __future__ import annotations

from typing import Any

from kernels import dispatch
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.ops.pointwise import POINTWISE
from minigrad.tensor import Size, Tensor, wrap


class BatchNorm(Op):
    """Normalise x (N, C, ...) by the statistics of the batch: (y, mean, invstd)."""

    saves = (0, 1)
    saves_outputs = (1, 2)
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
        wanted = zip(grads, ctx.needs, strict=True)
        return tuple([wrap(a) if need and a is not None else None for a, need in wanted])


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
    grad_name = "NativeBatchNormBackward0"

    @staticmethod
    def forward(x: Any, mean: Any, invstd: Any, weight: Any, bias: Any) -> Any:
        return dispatch.active.batch_norm_apply(x, mean, invstd, weight, bias)

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        x, mean, invstd, weight = ctx.tensors()
        axes = [0, *range(2, x._array.ndim)]
        scale = invstd if weight is None else invstd * weight
        normal = (x - per_channel(mean, x)) * per_channel(invstd, x)
        need = ctx.needs
        gx = g * per_channel(scale, x) if need[0] else None
        gmean = -(g.sum(axes) * scale) if need[1] else None
        ginvstd = None
        if need[2]:
            ginvstd = (g * (x - per_channel(mean, x))).sum(axes)
            ginvstd = ginvstd if weight is None else ginvstd * weight
        gweight = (g * normal).sum(axes) if need[3] else None
        return (gx, gmean, ginvstd, gweight, g.sum(axes) if need[4] else None)


def per_channel(v: Tensor, x: Tensor) -> Tensor:
    """v (C,) shaped to broadcast over x (N, C, ...)."""
    return v.reshape((1, -1) + (1,) * (x._array.ndim - 2))


def _check(name: str, x: Tensor, **vectors: Tensor | None) -> None:
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
    _check("batch_norm", x, weight=weight, bias=bias)
    if x._array.size == x._array.shape[1]:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {x.shape}"
        )
    return BatchNorm.apply(x, weight, bias, eps=eps)


def batch_norm_apply(
    x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """(x - mean) * invstd * weight + bias per channel of x (N, C, ...)."""
    _check("batch_norm", x, running_mean=mean, running_var=invstd, weight=weight, bias=bias)
    return BatchNormApply.apply(x, mean, invstd, weight, bias)


def _normalize_rows(x: Tensor, rows: int, eps: float) -> Tensor:
    """x as `rows` rows of zero mean and unit variance: batch norm with rows as channels."""
    if x._array.size == rows:  # one element a row: its own mean
        return x - x
    return BatchNorm.apply(x.reshape(1, rows, -1), None, None, eps=eps)[0].reshape(x._array.shape)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions, which are `normalized_shape`."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    ndim = input._array.ndim
    if input._array.shape[ndim - len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    width = Size(shape).numel()
    y = _normalize_rows(input, input._array.size // width if width else 0, eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each of num_groups groups of channels of (N, C, ...)."""
    n, channels = input._array.shape[:2]
    if channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input.shape)} and num_groups={num_groups}"
        )
    y = _normalize_rows(input, n * num_groups, eps)
    y = y if weight is None else y * per_channel(weight, input)
    return y if bias is None else y + per_channel(bias, input)
