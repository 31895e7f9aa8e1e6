"""Pointwise operations: every line of `kernels.pointwise` as one kernel.

An operation on n elements does a few floating-point operations each and moves, at least, its inputs
and its output once: it runs at the speed of memory. The kernels are generated, in two forms:

1. contiguous: flat arrays of one shape; neighbouring threads touch neighbouring elements, so every
   memory transaction is full.
2. strided: broadcast, transposed or sliced inputs. Dimensions that every array walks the same way
   are merged first; a block takes a tile of the two innermost ones, and works out the others from
   its own number, once instead of once an element.

Scalars travel by value. A call finds its plan (kernel, grid, strides) by the shapes, strides and
dtypes of its arguments in a dictionary: a repeated call costs that look-up and a launch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from kernels import dispatch
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers import copies
from kernels.launchers.common import Dialect, ceil_div, launcher, namespace, on_gpu
from kernels.launchers.layout import (
    broadcast_strides,
    contiguous_strides,
    is_dense,
    merge,
    ravel,
    window,
)
from kernels.launchers.plans import Plans, check_places, place
from kernels.launchers.relaunch import Single, several
from kernels.pointwise import TABLE, Expr, flops


@dataclass(frozen=True)
class Operand:
    """How a kernel reads one input.

    dtype: of the array, or None for a scalar passed by value in the compute dtype.
    inner: along the innermost dimension "1" (neighbours), "r" (neighbours in reverse order), "0"
        (one element for the whole row) or "s" (a stride passed at run time). Contiguous kernels
        have "1" everywhere.
    """

    dtype: np.dtype | None
    inner: str = "1"


@dataclass(frozen=True)
class Form:
    """What one generated kernel is specialised on, beside its table line.

    ndim: 0 for the contiguous kernel over flat arrays, else the number of dimensions, at least 2.
    out_inner: "c" for a contiguous result, else "1" or "s" as in `Operand`.
    """

    operands: tuple[Operand, ...]
    compute: np.dtype
    out: np.dtype
    ndim: int = 0
    out_inner: str = "c"

    def numbers(self, args: Sequence[str]) -> list[str]:
        """The names of the integers that a strided kernel takes after `out`: sizes, tiles per row
        of tiles and per matrix, and where and how each array (but a contiguous `out`) lies."""
        inners = [(n, o.inner) for n, o in zip(args, self.operands) if o.dtype is not None]
        names = [*(f"n{d}" for d in range(self.ndim)), "tiles_x", "tiles_y"]
        for name, inner in (*inners, ("out", self.out_inner)):
            if inner != "c":
                count = self.ndim if inner == "s" else self.ndim - 1
                names += [f"{name}_start", *(f"{name}_{d}" for d in range(count))]
        return names


_plans = Plans(8192)
MANY = 1 << 17  # elements of a given result for which a copy pays that is not remembered with it
_SCALARS = frozenset((float, int, bool))


def pointwise(
    dialect: Dialect,
    expr: Expr,
    *arrays: np.ndarray | float | int | bool,
    params: Sequence[float] = (),
    dtype: np.dtype | None = None,
    out: np.ndarray | None = None,
    out_dtype: np.dtype | None = None,
) -> np.ndarray:
    """Evaluate one line of `kernels.pointwise` on arrays that broadcast together.

    arrays: one per `expr.args`, NumPy or CuPy, of any strides; Python scalars go by value.
    params: one per `expr.params`.
    dtype: the compute dtype every input is converted to (default: NumPy's promotion; float32 for
        integers where the operation needs a float). float16 and bfloat16 compute in float32.
    out: written and returned where given, the inputs broadcast to its shape; else a new array of
        `out_dtype` (default: bool for tests, else `dtype`) and of the broadcast shape.
    Raises TypeError for a wrong number of arguments and ValueError where shapes do not broadcast.
    """
    parts: list[object] = [dialect, expr, dtype, out_dtype]
    for a in arrays:
        kind = type(a)
        if kind is ndarray:
            parts += (True, a.dtype, a.shape, a.strides)
        elif kind in _SCALARS:
            parts.append(kind)
        else:
            parts += (place(a), a.dtype, a.shape, a.strides)
    if out is not None:
        parts += (type(out) is ndarray or place(out), out.dtype, out.shape, out.strides)
    key = tuple(parts)
    plan = _plans.get(key)
    if plan is None:
        plan = _plan(dialect, expr, arrays, len(params), dtype, out, out_dtype)
        plan = _plans.keep(key, plan)
    return plan((*arrays, *params), out)


def default_dtype(expr: Expr, arrays: Sequence) -> np.dtype:
    """The compute dtype where the caller names none."""
    values = [
        a if type(a) in _SCALARS else a.dtype
        for name, a in zip(expr.args, arrays)
        if name not in expr.masks
    ]
    dtype = np.result_type(*values)
    return np.dtype(np.float32) if expr.domain == "float" and dtype.kind in "biu" else dtype


def _plan(dialect: Dialect, expr: Expr, arrays, num_params: int, dtype, out, out_dtype) -> Callable:
    """Check the arguments and prepare a function of ((*arrays, *params), out)."""
    if len(arrays) != len(expr.args) or num_params != len(expr.params):
        raise TypeError(
            f"{expr.name}: takes arrays {expr.args} and params {expr.params}, "
            f"got {len(arrays)} arrays and {num_params} params"
        )
    compute = np.dtype(dtype) if dtype is not None else default_dtype(expr, arrays)
    if compute.kind == "f" and expr.domain == "int":
        raise TypeError(f"{expr.name}: expected integers or bools, got {compute}")
    tensors = [a for a in arrays if type(a) not in _SCALARS]
    check_places(expr.name, *tensors, *(() if out is None else (out,)))
    try:
        shape = np.broadcast_shapes(*(a.shape for a in tensors))
    except ValueError:
        shapes = " and ".join(str(a.shape) for a in tensors)
        raise ValueError(f"{expr.name}: shapes {shapes} do not broadcast together") from None
    if out is None:
        result = np.dtype(out_dtype or (bool if expr.result == "bool" else compute))
    else:
        result = out.dtype
        if not _broadcasts_to(shape, out.shape):
            raise ValueError(f"{expr.name}: the result has shape {shape}, but out has {out.shape}")
        shape = out.shape
    like = out if out is not None else tensors[0] if tensors else np.empty(0)
    allocate = functools.partial(namespace(like).empty, shape, result)
    flat = all(a.shape == shape and a.flags.c_contiguous for a in tensors)
    known = out_dtype is None and _computes_in_own_dtype(expr, arrays, compute)
    run: Callable
    if 0 in shape:
        run = _empty(allocate)
    elif (
        not on_gpu(like)
        and (out is None or (out.size >= MANY and out.flags.c_contiguous))
        and any(across := _lie_across(expr, arrays, compute, result))
    ):
        run = _of_copies(dialect, expr, across, compute, result, expr if known else None)
    else:
        if flat and (out is None or out.flags.c_contiguous):
            launch, arguments = _contiguous(dialect, expr, arrays, compute, result, shape)
        else:
            launch, arguments = _copied(dialect, expr, arrays, compute, result, shape, out) or (
                _strided(dialect, expr, arrays, compute, result, shape, out)
            )
        names = (expr, dispatch.named("into", expr)) if known else (None, None)
        run = Single(launch, allocate, arguments, dialect, *names)
    if out is None:
        return run
    return _into_given(run, functools.partial(pointwise, dialect, expr, dtype=dtype), len(arrays))


def _computes_in_own_dtype(expr: Expr, arrays, compute: np.dtype) -> bool:
    """Whether minigrad and NumPy, too, would compute in `compute` for all operands of these types:
    then a line of the table and its operands say all."""
    own = [a for name, a in zip(expr.args, arrays) if name not in expr.masks]
    found = [a for a in own if type(a) not in _SCALARS]
    alike = bool(found) and all(a.dtype == compute for a in found)
    kinds = (ndarray,) if compute.kind == "b" else (ndarray, int)  # a bool and an int: of int64
    return alike and (compute.kind == "f" or all(type(a) in kinds for a in own))


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(n in (1, m) for n, m in zip(shape, tail))


def _empty(allocate: Callable) -> Callable:
    """For an empty result: nothing is launched."""
    return lambda operands, out: allocate() if out is None else out


def _into_given(into: Callable, again: Callable, count: int) -> Callable:
    """Write into `out`; where an input overlaps it without being the same view, `again` runs the
    operation on a copy of that input."""

    def run(operands, out):
        arrays = operands[:count]
        may_share = namespace(out).may_share_memory
        overlaps = [
            type(a) not in _SCALARS
            and a is not out
            and may_share(a, out)
            and not _same_view(a, out)
            for a in arrays
        ]
        if any(overlaps):
            safe = [a.copy() if overlap else a for a, overlap in zip(arrays, overlaps)]
            return again(*safe, params=operands[count:], out=out)
        return into(operands, out)

    return run


def _same_view(a, out) -> bool:
    """Whether two arrays are the same elements in the same order."""
    name = "__array_interface__" if type(a) is ndarray else "__cuda_array_interface__"
    start, other = getattr(a, name)["data"][0], getattr(out, name)["data"][0]
    return (start, a.strides, a.dtype) == (other, out.strides, out.dtype)


def _lie_across(expr: Expr, arrays, compute: np.dtype, result: np.dtype) -> list[bool]:
    """Which operands have rows whose neighbours are not neighbours in memory. A CPU reads those
    element by element, and computes so, too; not where it only copies."""
    first = arrays[0]
    if expr is TABLE["copy"] and type(first) not in _SCALARS and first.dtype == compute == result:
        return [False]
    return [type(a) not in _SCALARS and abs(_row_stride(a)) not in (0, a.itemsize) for a in arrays]


def _row_stride(a) -> int:
    """The stride of the last axis that has one; 0 for a single element."""
    return next((s for s, n in zip(a.strides[::-1], a.shape[::-1]) if n > 1), 0)


def _shared_order(arrays) -> list[int] | None:
    """The axes from slowest to fastest in memory, where all arrays lie alike and without gaps: then
    the result is copied instead of them."""
    first, *others = [a for a in arrays if type(a) not in _SCALARS]
    if not is_dense(first) or any(
        (a.shape, a.strides) != (first.shape, first.strides) for a in others
    ):
        return None
    return sorted(range(first.ndim), key=lambda d: (-first.strides[d], d))


def _of_copies(
    dialect: Dialect, expr: Expr, across: list[bool], compute, result, operation
) -> Callable:
    """The operation on copies of the operands that lie across."""
    copy = dialect.module.copy  # which is itself made of this family

    def run(operands, out=None):
        arrays, params = operands[: len(across)], operands[len(across) :]
        own = {"params": params, "dtype": compute, "out_dtype": result if out is None else None}
        if out is None and sum(across) > 1 and (order := _shared_order(arrays)):
            views = [a if type(a) in _SCALARS else a.transpose(order) for a in arrays]
            found = pointwise(dialect, expr, *views, **own)
            return copy(found.transpose([order.index(d) for d in range(found.ndim)]))
        rows = [copy(a) if lies else a for a, lies in zip(arrays, across)]
        return pointwise(dialect, expr, *rows, out=out, **own)

    fresh = run if operation is None else several(dialect, operation, run)
    return lambda operands, out: fresh(operands) if out is None else run(operands, out)


def _contiguous(dialect: Dialect, expr: Expr, arrays, compute, result, shape) -> tuple:
    """The launch on flat arrays, and its arguments."""
    n = math.prod(shape)
    operands = tuple(Operand(None if type(a) in _SCALARS else a.dtype) for a in arrays)
    kernel = dialect.pointwise.kernel(expr, Form(operands, compute, result))
    gpu = any(on_gpu(a) for a in arrays)
    tiling = dialect.pointwise.flat_tiling(n, gpu)
    launch = launcher(f"pointwise.{expr.name}", "contiguous", kernel, *tiling)
    if len(shape) == 1:
        return launch, lambda operands, out: (*operands, out)

    count = len(arrays)

    def arguments(operands, out):
        flat = [a if type(a) in _SCALARS else a.ravel() for a in operands[:count]]
        return (*flat, *operands[count:], out.ravel())

    return launch, arguments


def _copied(dialect: Dialect, expr: Expr, arrays, compute, result, shape, out) -> tuple | None:
    """As `_strided` for a copy in one dtype on a GPU, where the kernels are not of the table."""
    x = arrays[0]
    if expr is not TABLE["copy"] or dialect.name != "cupy" or type(x) in _SCALARS or not on_gpu(x):
        return None
    if not x.dtype == compute == result:
        return None
    fresh = out is None or out.flags.c_contiguous
    found = copies.strided(dialect, x, shape, None if fresh else out)
    if found is None:
        return None
    launch, views = found
    return launch, lambda operands, out: views(operands[0], out)


def _strided(dialect: Dialect, expr: Expr, arrays, compute, result, shape, out) -> tuple:
    """The launch on arrays that lie in any way, and its arguments."""
    inputs = [(n, a) for n, a in zip(expr.args, arrays) if type(a) not in _SCALARS]
    fresh = out is None or is_dense(out)
    strides = [broadcast_strides(a, shape) for _, a in inputs]
    strides.append(contiguous_strides(shape) if out is None else broadcast_strides(out, shape))
    order = sorted(range(len(shape)), key=lambda d: (-strides[-1][d], d) if fresh else (0, d))
    sizes, merged = merge([shape[d] for d in order], [[s[d] for d in order] for s in strides])
    if len(sizes) == 1:
        sizes, merged = [1, *sizes], [[0, *steps] for steps in merged]
    last = {name: steps for (name, _), steps in zip(inputs, merged)}
    operands = tuple(
        Operand(None) if type(a) in _SCALARS else Operand(a.dtype, _inner(last[name]))
        for name, a in zip(expr.args, arrays)
    )
    out_inner = "c" if fresh else "1" if merged[-1][-1] == 1 else "s"
    kernel = dialect.pointwise.kernel(expr, Form(operands, compute, result, len(sizes), out_inner))
    block, columns = dialect.pointwise.row_tiling(*sizes[-2:], any(on_gpu(a) for _, a in inputs))
    tiles_x, tiles_y = ceil_div(sizes[-1], columns), ceil_div(sizes[-2], block[1])
    views, numbers = [], [*sizes, tiles_x, tiles_y]
    for name, a in zip(expr.args, arrays):
        if type(a) in _SCALARS:
            views.append(_scalar)
        else:
            view, start = window(expr.name, a)
            views.append(view)
            numbers += [start, *_passed(last[name], _inner(last[name]))]
    view_out, start = (ravel, 0) if out is None else window(expr.name, out)
    if not fresh:
        numbers += [start, *_passed(merged[-1], out_inner)]
    grid = math.prod(sizes[:-2]) * tiles_y * tiles_x
    launch = launcher(f"pointwise.{expr.name}", "strided", kernel, grid, block)
    views += [_scalar] * len(expr.params)

    def arguments(operands, out):
        flat = [view(a) for view, a in zip(views, operands)]
        return (*flat, view_out(out), *numbers)

    return launch, arguments


def _scalar(a):
    return a


def _inner(strides: list[int]) -> str:
    return {0: "0", 1: "1", -1: "r"}.get(strides[-1], "s")


def _passed(strides: list[int], inner: str) -> list[int]:
    """The strides that a kernel gets: the innermost only where it is neither 0 nor 1."""
    return strides if inner == "s" else strides[:-1]


def _cost(expr, *arrays, params=(), dtype=None, out=None, out_dtype=None):
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
    dtype = np.dtype(default_dtype(expr, arrays) if dtype is None else dtype)
    result = out_dtype or (np.dtype(bool) if expr.result == "bool" else dtype)
    return [(shape, result)], flops(expr.text) * math.prod(shape)


def _problem(version: str):
    if version == "strided":
        return (TABLE["add"], floats(20, 30), floats(30)), {}
    return (TABLE["exp"], floats(1000)), {}


def _cases(rng, versions):
    a, b = normal(rng, (33, 31)), normal(rng, (33, 31))
    for name in ("add", "gelu"):
        yield "pointwise", (TABLE[name], *(a, b)[: len(TABLE[name].args)]), {}, 4
    yield "pointwise", (TABLE["add"], a.T, b[:, 5]), {}, 4
    yield "pointwise", (TABLE["mul"], a[::2, ::-1], 2.5), {}, 4
    yield "pointwise", (TABLE["lerp"], a, b, 0.25), {}, 4  # a number called w
    part = normal(rng, (19, 300))  # tiles that rows and columns do not fill
    yield "pointwise", (TABLE["mul"], part[:, 1:], part[:, :-1]), {}, 4
    odd = normal(rng, 1030)[1:]  # not at a multiple of 16 bytes
    yield "pointwise", (TABLE["add"], odd, odd), {}, 4
    whole = [normal(rng, 100, np.int32) + 100 * (i == 1) for i in range(2)]
    yield "pointwise", (TABLE["floor_divide"], *whole), {}, 1
    yield "pointwise", (TABLE["add"], *(v.astype(np.float16) for v in (a, b))), {}, 4


def _compiled(versions):
    yield "pointwise", (TABLE["add"], ones(29, 43), ones(29, 43)), {}
    yield "pointwise", (TABLE["add"], ones(29, 43), ones(43)), {}


FAMILY = Family(
    "pointwise",
    (
        Operation(
            pointwise,
            _cost,
            _problem,
            dialects={
                "numba": {
                    "contiguous": "one thread an element of flat arrays, generated from the table",
                    "strided": "merged dimensions, tiles of the inner two, outer indices once a"
                    " block",
                },
                "cupy": {
                    "contiguous": "flat arrays in packs of 16 bytes, generated from the table",
                    "strided": "merged dimensions, tiles of the inner two, one thread an element",
                },
            },
        ),
    ),
    _cases,
    _compiled,
)
