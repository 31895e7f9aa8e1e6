"""The kernels of softmax.cu: x (rows, n), or (outer, n, inner) for the strided ones."""

from __future__ import annotations

import functools
from collections.abc import Callable

from kernels.cuda_c.common import Kernel, family

_kernel = family("softmax.cu")


def _row_a_block(*arrays):
    return *arrays, arrays[0].shape[1]


def _row_a_warp(*arrays):
    return *arrays, *arrays[0].shape


def _row_a_thread(*arrays):
    return *arrays, *arrays[0].shape[1:]


def _by_block(name: str, acc_t: str, log: bool, block: int) -> Kernel:
    return _kernel(name, (0,), (acc_t, log, block), _row_a_block)


def _by_thread(name: str, acc_t: str, log: bool) -> Kernel:
    return _kernel(name, (0,), (acc_t, log), _row_a_thread)


def warp(acc_t: str, log: bool, held: int) -> Kernel:
    """kernel(x, y): a warp per row, `held` elements per lane."""
    return _kernel("warp", (0,), (acc_t, log, held), _row_a_warp)


def warp_backward(acc_t: str, log: bool) -> Kernel:
    """kernel(g, y, dx): a warp per row."""
    return _kernel("warp_backward", (0,), (acc_t, log), _row_a_warp)


def _sums_of_parts(*given):
    (x, *_), sums = given, given[-2]
    return *given, x.shape[1], sums.shape[1]


def _result_of_parts(*given):
    (x, *_), sums = given, given[-3]
    return *given, x.shape[1], sums.shape[1]


def split_sums(acc_t: str, block: int) -> Kernel:
    """kernel(x, tops, totals, span)."""
    return _kernel("split_sums", (0,), (acc_t, block), _sums_of_parts)


def split(acc_t: str, log: bool, block: int) -> Kernel:
    """kernel(x, tops, totals, y, span)."""
    return _kernel("split", (0,), (acc_t, log, block), _result_of_parts)


def split_sums_backward(acc_t: str, log: bool, block: int) -> Kernel:
    """kernel(g, y, sums, span)."""
    return _kernel("split_sums_backward", (0,), (acc_t, log, block), _sums_of_parts)


def split_backward(acc_t: str, log: bool, block: int) -> Kernel:
    """kernel(g, y, sums, dx, span)."""
    return _kernel("split_backward", (0,), (acc_t, log, block), _result_of_parts)


three_pass: Callable = functools.partial(_by_block, "three_pass")
online: Callable = functools.partial(_by_block, "online")
one_read: Callable = functools.partial(_by_block, "one_read")
block_backward: Callable = functools.partial(_by_block, "block_backward")
strided: Callable = functools.partial(_by_thread, "strided")
strided_backward: Callable = functools.partial(_by_thread, "strided_backward")


def shuffles_pay(gpu: bool) -> bool:
    """Whether the versions with shuffles are faster for short rows: a barrier costs more."""
    return True
