"""The kernels of row_norm.cu: x (rows, n); mean is not looked at where `centred` is false."""

from __future__ import annotations

import functools
from collections.abc import Callable

from kernels.cuda_c.common import Kernel, family

_kernel = family("row_norm.cu")


def _row_a_block(x, *others):
    return x, *others, x.shape[1]


def _row_a_warp(x, *others):
    return x, *others, *x.shape


def _row_a_thread(x, *others):
    return x, *others, x.shape[1]


def _by_block(
    name: str, acc_t: str, centred: bool, has_weight: bool, has_bias: bool, block: int
) -> Kernel:
    """kernel(x, weight, bias, mean, invstd, y, eps)."""
    constants = (acc_t, centred, has_weight, has_bias, block)
    return _kernel(name, (0, 1 if has_weight else 2), constants, _row_a_block)


def warp(acc_t: str, centred: bool, has_weight: bool, has_bias: bool, held: int) -> Kernel:
    """kernel(x, weight, bias, mean, invstd, y, eps): `held` elements per lane."""
    constants = (acc_t, centred, has_weight, has_bias, held)
    return _kernel("warp", (0, 1 if has_weight else 2), constants, _row_a_warp)


def thread(acc_t: str, centred: bool, has_weight: bool, has_bias: bool, n: int) -> Kernel:
    """kernel(x, weight, bias, mean, invstd, y, eps): x and y (n, rows)."""
    constants = (acc_t, centred, has_weight, has_bias, n)
    return _kernel("thread", (0, 1 if has_weight else 2), constants, _row_a_thread)


def block_backward(acc_t: str, centred: bool, has_weight: bool, block: int) -> Kernel:
    """kernel(g, x, mean, invstd, weight, dx)."""
    return _kernel("block_backward", (0, 3, 4), (acc_t, centred, has_weight, block), _row_a_block)


def warp_backward(acc_t: str, centred: bool, has_weight: bool, held: int) -> Kernel:
    """kernel(g, x, mean, invstd, weight, dx): `held` elements per lane."""
    constants = (acc_t, centred, has_weight, held)
    return _kernel("warp_backward", (0, 3, 4), constants, _row_a_warp)


def thread_backward(acc_t: str, centred: bool, has_weight: bool, affine: bool, n: int) -> Kernel:
    """kernel(g, x, mean, invstd, weight, dx, terms): g, x, dx and terms (n, rows)."""
    constants = (acc_t, centred, has_weight, affine, n)
    return _kernel("thread_backward", (0, 3, 4), constants, _row_a_thread)


def parameter_sums(acc_t: str, centred: bool, shape: tuple[int, int]) -> Kernel:
    """kernel(g, x, mean, invstd, dweight, dbias): block `shape`."""
    return _kernel("parameter_sums", (0, 3), (acc_t, centred, *shape), _row_a_warp)


def split_sums(acc_t: str, centred: bool, block: int) -> Kernel:
    """kernel(x, means, squares, span)."""

    def arguments(*given):
        return *given, given[0].shape[1], given[1].shape[1]

    return _kernel("split_sums", (0,), (acc_t, centred, block), arguments)


def split(acc_t: str, centred: bool, has_weight: bool, has_bias: bool, block: int) -> Kernel:
    """kernel(x, weight, bias, means, squares, mean, invstd, y, eps, span)."""

    def arguments(*given):
        return *given, given[0].shape[1], given[3].shape[1]

    constants = (acc_t, centred, has_weight, has_bias, block)
    return _kernel("split", (0, 1 if has_weight else 2), constants, arguments)


def split_sums_backward(acc_t: str, centred: bool, has_weight: bool, block: int) -> Kernel:
    """kernel(g, x, mean, weight, plain, scaled, span)."""

    def arguments(*given):
        return *given, given[0].shape[1], given[4].shape[1]

    constants = (acc_t, centred, has_weight, block)
    return _kernel("split_sums_backward", (0, 2, 3), constants, arguments)


def split_backward(acc_t: str, centred: bool, has_weight: bool, block: int) -> Kernel:
    """kernel(g, x, mean, invstd, weight, plain, scaled, dx, span)."""

    def arguments(*given):
        return *given, given[0].shape[1], given[5].shape[1]

    constants = (acc_t, centred, has_weight, block)
    return _kernel("split_backward", (0, 3, 4), constants, arguments)


online: Callable = functools.partial(_by_block, "online")
one_read: Callable = functools.partial(_by_block, "one_read")
