"""The kernels of norm.cu: `planes` for x (N, C, S), `columns` for x (N, C)."""

from __future__ import annotations

import functools
from collections.abc import Callable

from kernels.cuda_c.common import Kernel, family

_kernel = family("norm.cu")
OF_PLANES = 4  # elements of a plane that a thread of `apply_planes` and `gradient_planes` takes


def _sized_by_x(*given):
    return *given, *given[0].shape


def _sized_by_g(*given):
    return *given, *given[1].shape


def statistics_planes(acc_t: str, block: int) -> Kernel:
    """kernel(x, mean, invstd, eps)."""
    return _kernel("statistics_planes", (0,), (acc_t, block), _sized_by_x)


def statistics_columns(acc_t: str) -> Kernel:
    """kernel(x, mean, invstd, eps)."""
    return _kernel("statistics_columns", (0,), (acc_t,), _sized_by_x)


def split_planes(acc_t: str, block: int) -> Kernel:
    """kernel(x, sizes, means, squares, pieces, span)."""
    return _kernel("split_planes", (0,), (acc_t, block), _sized_by_x)


def split_columns(acc_t: str) -> Kernel:
    """kernel(x, sizes, means, squares, pieces, span)."""
    return _kernel("split_columns", (0,), (acc_t,), _sized_by_x)


def merge(acc_t: str) -> Kernel:
    """kernel(means, squares, sizes, mean, invstd, eps)."""
    return _kernel("merge", (), (acc_t,), _sized_by_x)


def _apply(planes: bool, acc_t: str, has_weight: bool, has_bias: bool) -> Kernel:
    """kernel(x, mean, invstd, weight, bias, y)."""

    def arguments(x, mean, *others):
        return x, mean, *others, mean.size, x.shape[planes]

    return _kernel("apply", (0, 1), (acc_t, planes, has_weight, has_bias), arguments)


def sums_planes(acc_t: str, block: int) -> Kernel:
    """kernel(g, x, mean, invstd, dweight, dbias)."""
    return _kernel("sums_planes", (0, 2), (acc_t, block), _sized_by_g)


def sums_columns(acc_t: str) -> Kernel:
    """kernel(g, x, mean, invstd, dweight, dbias)."""
    return _kernel("sums_columns", (0, 2), (acc_t,), _sized_by_g)


def split_sums_planes(acc_t: str, block: int) -> Kernel:
    """kernel(g, x, mean, invstd, dweight, dbias, pieces, span)."""
    return _kernel("split_sums_planes", (0, 2), (acc_t, block), _sized_by_g)


def split_sums_columns(acc_t: str) -> Kernel:
    """kernel(g, x, mean, invstd, dweight, dbias, pieces, span)."""
    return _kernel("split_sums_columns", (0, 2), (acc_t,), _sized_by_g)


def _gradient(planes: bool, acc_t: str, has_weight: bool) -> Kernel:
    """kernel(g, x, mean, invstd, weight, dweight, dbias, count, dx)."""

    def arguments(g, x, mean, *others):
        return g, x, mean, *others, mean.size, x.shape[planes]

    return _kernel("gradient", (0, 2), (acc_t, planes, has_weight), arguments)


def group_gradient(acc_t: str, has_weight: bool, warps: int) -> Kernel:
    """kernel(g, x, mean, invstd, weight, dweight, dbias, dx)."""

    def arguments(g, x, mean, invstd, weight, *others):
        return g, x, mean, invstd, weight, *others, len(weight), *x.shape[1:]

    return _kernel("group_gradient", (0, 2), (acc_t, has_weight, warps), arguments)


apply_planes: Callable = functools.partial(_apply, True)
apply_columns: Callable = functools.partial(_apply, False)
gradient_planes: Callable = functools.partial(_gradient, True)
gradient_columns: Callable = functools.partial(_gradient, False)
