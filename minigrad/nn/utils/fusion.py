"""Batch norm in evaluation mode as a part of the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import Any

import minigrad
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that also does the batch norm after it; both in evaluation mode."""
    return _fused(conv, bn, fuse_conv_bn_weights, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a linear layer that also does the batch norm after it; both in evaluation mode."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    return _fused(linear, bn, fuse_linear_bn_weights)


def _fused(layer: Any, bn: Any, fuse: Any, *options: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    found = copy.deepcopy(layer)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    found.weight, found.bias = fuse(found.weight, found.bias, *statistics, *options)
    return found


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a convolution with the batch norm after it; transpose: its channels are the
    second dimension of the weight."""
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a linear layer with the batch norm after it."""
    return _weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _weights(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    shape: list[int],
) -> tuple[Parameter, Parameter]:
    bias = minigrad.zeros_like(mean) if bias is None else bias
    factor = (var + eps).rsqrt() * (1 if scale is None else scale)
    moved = (bias - mean) * factor + (0 if shift is None else shift)
    both = (weight * factor.reshape(shape)).to(weight.dtype), moved.to(bias.dtype)
    needs = weight.requires_grad, bias.requires_grad
    fused = [Parameter(x.detach(), need) for x, need in zip(both, needs, strict=True)]
    return fused[0], fused[1]
