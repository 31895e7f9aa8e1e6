"""Softmax and its relatives: rows along an axis, and the version for their length."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy import ndarray

import kernels
from kernels import dispatch
from kernels.families import Family, Operation, floats, like_first, normal, ones
from kernels.launchers.common import (
    GPU_BLOCK,
    SMALL_BLOCK,
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    on_gpu,
    parts_of,
    splits,
    warps_a_block,
    wide_enough,
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.relaunch import Single, several
from kernels.launchers.transpose import FEW, copy

FORWARD = {
    "three_pass": "a block per row, read three times",
    "online": "maximum and sum in one pass, read twice",
    "one_read": "the row waits in shared memory, read once",
    "warp": "a warp per row, elements in registers",
    "strided": "other axes: a thread per row",
    "split": "few long rows: several blocks per row, and a second launch merges their sums",
}
BACKWARD = {
    "block": "a block per row",
    "warp": "a warp per row",
    "strided": "a thread per row",
    "split": "few long rows: several blocks per row",
}
ROW_IN_SHARED = 4096
LEAST_ELEMENTS = 1024  # of a row that a block takes where it is split
MANY_ROWS = 256  # of few elements, for which they are copied to columns on a CPU
LONG_COLUMN = 256  # rows along another axis that become rows of the last one, where they are few
ROW_IN_REGISTERS, SHORT_ON_CPU = 1024, 256
ROWS, SHORT_ROW = 16, 256  # rows that a block takes together on a CPU, and their longest


def _rows(name: str, shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, n, inner) for rows along `axis`. Raises IndexError for an axis out of range."""
    ndim = max(len(shape), 1)
    if not -ndim <= axis < ndim:
        raise IndexError(f"{name}: axis {axis} is out of range for {len(shape)} dimensions")
    if not shape:
        return 1, 1, 1
    axis %= ndim
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _plan(dialect: Dialect, name: str, arrays: tuple, axis: int, version: str | None):
    """The function of a tuple of arrays that returns the result, of a kernel over rows; `_PICK` has
    what configures the version."""
    check_floating(name, *arrays)
    first = arrays[0]
    if any(a.shape != first.shape for a in arrays):
        raise ValueError(f"{name}: shapes differ: {[a.shape for a in arrays]}")
    outer, n, inner = _rows(name, first.shape, axis)
    gpu = on_gpu(first)
    if version is None and inner > 1 and n >= LONG_COLUMN:
        columns = outer * ceil_div(inner, 128)  # a CPU wants a vector of them
        few = splits(columns, n, LONG_COLUMN // 2) > 1 if gpu else inner <= FEW
        if few and 0 not in first.shape:
            return _along_last(dialect, name, axis)
    if version is None and not gpu and inner == 1 and n <= FEW and outer >= MANY_ROWS:
        return several(dialect, dispatch.named(name, axis), _side_by_side(dialect, name, n))
    acc_t, (choose, log) = dialect.common.scalar_type(first.dtype), _PICK[name]
    few = gpu and n > ROW_IN_SHARED and splits(outer, n, LEAST_ELEMENTS) > 1
    if version == "split" or (version is None and inner == 1 and few):
        return _plan_split(dialect, name, first, log, outer, n, inner, forced=version is not None)
    chosen, kernel, block = choose(dialect, log, acc_t, outer, n, inner, gpu, version)
    if chosen == "strided":
        view, grid = (outer, n, inner), (outer, ceil_div(inner, block))
    else:
        rows_a_block = block[1] if isinstance(block, tuple) else 1
        view, grid = (outer, n), ceil_div(outer, rows_a_block)
    launch = launcher(name, chosen, kernel, grid, block)
    allocate = functools.partial(namespace(first).empty, first.shape, first.dtype)
    if 0 in first.shape:
        return lambda arrays: allocate()
    operation = None if version else dispatch.named(name, axis)

    def rows(arrays, out):
        return (*(contiguous(a).reshape(view) for a in arrays), out.reshape(view))

    return Single(launch, allocate, rows, dialect, operation)


def _along_last(dialect: Dialect, name: str, axis: int):
    """As `_plan`, for few rows along another axis: copies have them along the last one."""

    def run(arrays):
        rows = (copy(dialect, a.swapaxes(axis, -1)) for a in arrays)
        return copy(dialect, _run(dialect, name, tuple(rows), -1, None).swapaxes(axis, -1))

    return run


def _side_by_side(dialect: Dialect, name: str, n: int):
    """As `_plan`, for many short rows on a CPU: in copies they are columns, which go together."""

    def run(arrays):
        rows = (a if a.ndim == 2 else contiguous(a).reshape(-1, n) for a in arrays)
        columns = tuple([copy(dialect, a.T) for a in rows])
        return copy(dialect, _run(dialect, name, columns, 0, None).T).reshape(arrays[0].shape)

    return run


def _plan_split(
    dialect: Dialect, name: str, like, log: bool, outer: int, n: int, inner: int, forced: bool
):
    """As `_plan`: a launch leaves the sums of parts of rows, a second one writes the result."""
    if inner > 1:
        raise ValueError(f"{name}: version 'split' needs the last axis; use 'strided'")
    kernels, acc_t, dtype = dialect.softmax, dialect.common.scalar_type(like.dtype), like.dtype
    count, span = parts_of(outer, n, LEAST_ELEMENTS, forced)
    block = GPU_BLOCK if on_gpu(like) else SMALL_BLOCK
    backward = name.endswith("backward")
    first = (
        kernels.split_sums_backward(acc_t, log, block)
        if backward
        else kernels.split_sums(acc_t, block)
    )
    second = (kernels.split_backward if backward else kernels.split)(acc_t, log, block)
    sums, apply = (launcher(name, "split", k, outer * count, block) for k in (first, second))
    wanted, shape = 1 if backward else 2, like.shape

    def run(arrays):
        out = empty(shape, dtype, arrays[0])
        if out.size:
            rows = [contiguous(a).reshape(outer, n) for a in arrays]
            found = [empty((outer, count), compute_dtype(dtype), out) for _ in range(wanted)]
            sums(*rows, *found, span)
            apply(*rows, *found, out.reshape(outer, n), span)
        return out

    return run


def _check_rows(name: str, version: str, n: int, inner: int) -> None:
    limit = {"one_read": ROW_IN_SHARED, "warp": ROW_IN_REGISTERS}.get(version, n)
    if n > limit:
        raise ValueError(f"{name}: version {version!r} takes rows of up to {limit}, got {n}")
    if inner > 1 and version != "strided":
        raise ValueError(f"{name}: version {version!r} needs the last axis; use 'strided'")


def _forward(
    dialect: Dialect,
    log: bool,
    acc_t,
    rows: int,
    n: int,
    inner: int,
    gpu: bool,
    version: str | None,
):
    """Version, kernel and block."""
    name = "log_softmax" if log else "softmax"
    check_version(name, version, FORWARD)
    if version is None:
        longer = "online" if gpu else "three_pass"  # a CPU reads again for less than it rescales
        longer = "one_read" if n <= ROW_IN_SHARED else longer
        short = n <= (ROW_IN_REGISTERS if gpu else SHORT_ON_CPU)
        version = "warp" if short and dialect.softmax.shuffles_pay(gpu) else longer
        version = "strided" if inner > 1 else version
        if version == "one_read" and not gpu and n <= SHORT_ROW and rows >= ROWS:
            return version, dialect.softmax.several_rows(acc_t, log), (32, ROWS)
    _check_rows(name, version, n, inner)
    if version == "warp":
        held = 1 << (ceil_div(max(n, 1), 32) - 1).bit_length()
        warps = warps_a_block(rows, 8 if held <= 8 else 4, gpu)
        return version, dialect.softmax.warp(acc_t, log, held), (32, warps)
    if version == "strided":
        return version, dialect.softmax.strided(acc_t, log), wide_enough(name, inner, 128)
    block = GPU_BLOCK if gpu else SMALL_BLOCK
    return version, getattr(dialect.softmax, version)(acc_t, log, block), block


def _backward(
    dialect: Dialect,
    log: bool,
    acc_t,
    rows: int,
    n: int,
    inner: int,
    gpu: bool,
    version: str | None,
):
    """Version, kernel and block."""
    name = "log_softmax_backward" if log else "softmax_backward"
    check_version(name, version, BACKWARD)
    if version is None:
        shuffles = dialect.softmax.shuffles_pay(gpu) and n <= 1024
        version = "strided" if inner > 1 else "warp" if shuffles else "block"
    if inner > 1 and version != "strided":
        raise ValueError(f"{name}: version {version!r} needs the last axis; use 'strided'")
    if version == "warp":
        return version, dialect.softmax.warp_backward(acc_t, log), (32, warps_a_block(rows, 8, gpu))
    if version == "strided":
        return version, dialect.softmax.strided_backward(acc_t, log), wide_enough(name, inner, 128)
    block = GPU_BLOCK if gpu else SMALL_BLOCK
    return version, dialect.softmax.block_backward(acc_t, log, block), block


_plans = Plans()
_PICK = {
    "softmax": (_forward, False),
    "log_softmax": (_forward, True),
    "softmax_backward": (_backward, False),
    "log_softmax_backward": (_backward, True),
}


def _run(dialect: Dialect, name: str, arrays: tuple, axis: int, version: str | None):
    x = arrays[0]
    where = type(x) is ndarray or place(x)
    key = (dialect, name, where, *((a.shape, a.dtype) for a in arrays), axis, version)
    plan = _plans.get(key) or _plans.keep(key, _plan(dialect, name, arrays, axis, version))
    return plan(arrays)


def softmax(dialect: Dialect, x, axis: int = -1, version: str | None = None):
    """exp(x) / sum(exp(x)) along `axis`; x of any floating dtype and shape.

    Raises IndexError for an axis out of range, TypeError for a dtype that is not floating.
    """
    return _run(dialect, "softmax", (x,), axis, version)


def log_softmax(dialect: Dialect, x, axis: int = -1, version: str | None = None):
    """x - log(sum(exp(x))) along `axis`; the same errors as softmax."""
    return _run(dialect, "log_softmax", (x,), axis, version)


def softmax_backward(dialect: Dialect, g, y, axis: int = -1, version: str | None = None):
    """Gradient of softmax given its result y: y * (g - sum(g * y))."""
    return _run(dialect, "softmax_backward", (g, y), axis, version)


def log_softmax_backward(dialect: Dialect, g, y, axis: int = -1, version: str | None = None):
    """Gradient of log_softmax given its result y: g - exp(y) * sum(g)."""
    return _run(dialect, "log_softmax_backward", (g, y), axis, version)


def _problem(version: str):
    return (floats(*((5, 70, 3) if version == "strided" else (9, 250))), 1), {}


def _problem_backward(version: str):
    shape = (5, 70, 3) if version == "strided" else (9, 300)
    return (floats(*shape), floats(*shape), 1), {}


def _cases(rng, versions):
    for version in FORWARD:
        x = 4 * normal(rng, (5, 201))
        x[1, 3], x[2] = np.nan, -np.inf
        axis = 0 if version == "strided" else 1
        x = np.ascontiguousarray(x.T) if axis == 0 else x
        yield "softmax", (x, axis), {"version": version}, 20
        if version in ("warp", "strided", "split"):
            yield "log_softmax", (x, axis), {"version": version}, 40
    for version in BACKWARD:
        axis = 1 if version == "strided" else -1
        g, y = normal(rng, (7, 33, 5)), normal(rng, (7, 33, 5))
        y = kernels.softmax(y, axis, backend="numpy")
        yield "softmax_backward", (g, y, axis), {"version": version}, 8
        if version in ("warp", "split"):
            yield "log_softmax_backward", (g, y, axis), {"version": version}, 33


def _compiled(versions):
    for name in _PICK:
        for version in versions(name):
            x, axis = (ones(3, 29, 43), 1) if version == "strided" else (ones(29, 203), -1)
            arrays = (x, x) if name.endswith("backward") else (x,)
            yield name, (*arrays, axis), {"version": version}


FAMILY = Family(
    "softmax",
    (
        Operation(softmax, like_first(5), _problem, FORWARD),
        Operation(log_softmax, like_first(5), _problem, FORWARD),
        Operation(softmax_backward, like_first(4), _problem_backward, BACKWARD),
        Operation(log_softmax_backward, like_first(4), _problem_backward, BACKWARD),
    ),
    _cases,
    _compiled,
)
