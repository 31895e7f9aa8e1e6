"""Weighted sums of neighbours along a dimension: what interpolation and adaptive averages are."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import dispatch
from kernels.launchers.resample import Taps
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.backends import array_module
from minigrad.ops.matmul import matmul
from minigrad.tensor import Tensor, wrap


class Resample(Op):
    """x with weighted sums of its elements along dim in place of them."""

    repeats = True
    saves = ()

    @staticmethod
    def forward(x: Any, dim: int, taps: Taps) -> Any:
        return dispatch.active.resample(x, dim, taps)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int, taps: Taps) -> tuple:
        return (Resample.apply(g, dim=dim, taps=taps.transposed),)


def resampled(x: Tensor, dim: int, taps: Taps) -> Tensor:
    """x with weighted sums of its elements along dim in place of them."""
    if taps.keeps:
        return x
    if mode.observer is None:
        return Resample.apply(x, dim=dim, taps=taps)
    rows = np.zeros((taps.results, taps.size))  # a program of other operations (`onnx.export`)
    for k, weights in enumerate(taps.weights):
        adds = k < taps.count
        rows[adds, taps.first[adds] + k] = weights[adds]
    matrix = wrap(array_module(x._array).asarray(rows.T.astype(x._array.dtype)))
    return matmul(x.movedim(dim, -1), matrix).movedim(-1, dim)
