"""Layer norm and RMS norm: rows of the last dimensions, and the version for their length."""

from __future__ import annotations

import math

from numpy import ndarray

from kernels.families import Family, Operation, floats, normal, ones
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
)
from kernels.launchers.plans import Plans, place
from kernels.launchers.reduction import reduce
from kernels.launchers.relaunch import remembered
from kernels.launchers.transpose import copy

FORWARD = {
    "online": "a block per row, statistics in one pass, read twice",
    "one_read": "the row waits in shared memory, read once",
    "warp": "a warp per row, elements in registers",
    "split": "few long rows: several blocks per row, and a second launch merges their statistics",
}
BACKWARD = {
    "block": "a block per row, read twice",
    "warp": "a warp per row, elements in registers",
    "split": "few long rows: several blocks per row",
}
SHORT = {"thread": "many rows of a few elements on a CPU: a thread per row, rows side by side"}
PARAMETERS = {"parameters": "weight and bias: threads along a row, down some of the rows"}
ROW_IN_SHARED = 4096
ROW_IN_REGISTERS = 1024
GPU_COLUMNS, CPU_COLUMNS = (32, 8), (256, 1)  # blocks of the sums over rows
ROWS_A_PART = 64  # that a column of threads adds up on a GPU
FEW, MANY_ROWS = 24, 64  # elements of rows, and how many of them, that a CPU takes side by side
THREADS = 256  # of a block where each has a row
LEAST_ELEMENTS = 1024  # of a row that a block takes where it is split

_plans = Plans()


def _key(dialect: Dialect, name: str, *parts) -> tuple:
    """What the plan of a call depends on."""
    where = type(parts[0]) is ndarray or place(parts[0])
    seen = ((p.shape, p.dtype) if hasattr(p, "shape") else p for p in parts)
    return dialect, name, where, *seen


def _check(name: str, x, dims: int, *parameters) -> tuple[int, int]:
    """(rows, n). Raises ValueError for shapes, TypeError for dtypes that do not fit."""
    check_floating(name, x)
    if not 1 <= dims <= x.ndim:
        raise ValueError(f"{name}: expected 1 to {x.ndim} dimensions of {x.shape}, got {dims}")
    lead, shape = x.shape[: x.ndim - dims], x.shape[x.ndim - dims :]
    for p in parameters:
        if p is not None and p.shape != shape:
            raise ValueError(f"{name}: expected weight and bias of shape {shape}, got {p.shape}")
    dtypes = {p.dtype for p in parameters if p is not None}
    if len(dtypes) > 1 or not dtypes <= {x.dtype, compute_dtype(x.dtype)}:
        found = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"{name}: expected weight and bias of one dtype, {x.dtype}, got {found}")
    return math.prod(lead), math.prod(shape)


def _check_version(name: str, version: str, n: int) -> None:
    limits = {"one_read": ROW_IN_SHARED, "warp": ROW_IN_REGISTERS, "thread": FEW}
    limit = limits.get(version, n)
    if n > limit:
        raise ValueError(f"{name}: version {version!r} takes rows of up to {limit}, got {n}")


def _rows_of_warps(rows: int, n: int, gpu: bool):
    """Elements per lane, grid and block for a warp per row."""
    held = 1 << (ceil_div(max(n, 1), 32) - 1).bit_length()
    warps = warps_a_block(rows, 8 if held <= 8 else 4, gpu)
    return held, ceil_div(rows, warps), (32, warps)


def _longer(rows: int, n: int, short: str, gpu: bool) -> str:
    """The version for rows that fit in no registers."""
    few = gpu and n > ROW_IN_SHARED and splits(rows, n, LEAST_ELEMENTS) > 1
    return "split" if few else short


def _split_forward(
    dialect: Dialect, name: str, like, flags: tuple, rows: int, n: int, forced: bool
):
    """The function (x, weight, bias, mean, invstd, y, eps): a launch leaves the statistics of parts
    of rows, a second one writes the result."""
    kernels, dtype = dialect.row_norm, compute_dtype(like.dtype)
    count, span = parts_of(rows, n, LEAST_ELEMENTS, forced)
    block = GPU_BLOCK if on_gpu(like) else SMALL_BLOCK
    sums, result = (
        launcher(name, "split", kernel, rows * count, block)
        for kernel in (kernels.split_sums(*flags[:2], block), kernels.split(*flags, block))
    )

    def run(x, weight, bias, mean, invstd, y, eps):
        found = [empty((rows, count), dtype, x) for _ in range(2)]
        sums(x, *found, span)
        result(x, weight, bias, *found, mean, invstd, y, eps, span)

    return run


def _split_backward(
    dialect: Dialect, name: str, like, flags: tuple, rows: int, n: int, forced: bool
):
    """The function (g, x, mean, invstd, weight, dx), by two launches like those forward."""
    kernels, dtype = dialect.row_norm, compute_dtype(like.dtype)
    count, span = parts_of(rows, n, LEAST_ELEMENTS, forced)
    block = GPU_BLOCK if on_gpu(like) else SMALL_BLOCK
    make = kernels.split_sums_backward, kernels.split_backward
    sums, result = (
        launcher(name, "split", kernel(*flags, block), rows * count, block) for kernel in make
    )

    def run(g, x, mean, invstd, weight, dx):
        found = [empty((rows, count), dtype, x) for _ in range(2)]
        sums(g, x, mean, weight, *found, span)
        result(g, x, mean, invstd, weight, *found, dx, span)

    return run


def _takes_columns(rows: int, n: int, gpu: bool) -> bool:
    """Whether a thread for each row is fastest, in copies whose rows lie side by side."""
    return not gpu and 0 < n <= FEW and rows >= MANY_ROWS


def _columns(dialect: Dialect, x, rows: int, n: int):
    """A copy (n, rows)."""
    return copy(dialect, contiguous(x).reshape(rows, n).T)


def _plan_forward_thread(dialect: Dialect, name: str, like, flags: tuple, lead: tuple, n: int):
    """As `_plan_forward`, for many short rows on a CPU."""
    rows, dtype = math.prod(lead), compute_dtype(like.dtype)
    kernel, grid = dialect.row_norm.thread(*flags, n), ceil_div(rows, THREADS)
    launch = launcher(name, "thread", kernel, grid, THREADS)
    none = empty((1,), like.dtype, like)

    def forward(x, weight, bias, eps):
        y = empty((n, rows), x.dtype, x)
        mean, invstd = (empty((rows,), dtype, x) for _ in range(2))
        parameters = (none if p is None else contiguous(p).reshape(n) for p in (weight, bias))
        columns = _columns(dialect, x, rows, n)
        launch(columns, *parameters, mean, invstd, y, dtype.type(eps))
        return copy(dialect, y.T).reshape(x.shape), mean.reshape(lead), invstd.reshape(lead)

    return forward


def _plan_forward(dialect: Dialect, name: str, x, weight, bias, dims: int, version: str | None):
    """The function (x, weight, bias, eps) -> y, mean, invstd."""
    rows, n = _check(name, x, dims, weight, bias)
    check_version(name, version, FORWARD | SHORT)
    forced, gpu = version == "split", on_gpu(x)
    centred, dtype, lead = name == "layer_norm", compute_dtype(x.dtype), x.shape[: x.ndim - dims]
    flags = (dialect.common.scalar_type(x.dtype), centred, weight is not None, bias is not None)
    if version is None:
        longer = "one_read" if n <= ROW_IN_SHARED else _longer(rows, n, "online", gpu)
        short = "warp" if gpu and n <= ROW_IN_REGISTERS else longer
        version = "thread" if _takes_columns(rows, n, gpu) else short
    _check_version(name, version, n)
    if version == "thread" and x.size:
        return _plan_forward_thread(dialect, name, x, flags, lead, n)
    if version == "split":
        run = _split_forward(dialect, name, x, flags, rows, n, forced)
    elif version == "warp":
        held, grid, block = _rows_of_warps(rows, n, gpu)
        run = launcher(name, version, dialect.row_norm.warp(*flags, held), grid, block)
    else:
        block = GPU_BLOCK if gpu else SMALL_BLOCK
        kernel = getattr(dialect.row_norm, version)(*flags, block)
        run = launcher(name, version, kernel, rows, block)
    none = empty((1,), x.dtype, x)

    def forward(x, weight, bias, eps):
        y = empty(x.shape, x.dtype, x)
        mean, invstd = (empty((rows,), dtype, x) for _ in range(2))
        if x.size:
            parameters = (none if p is None else contiguous(p).reshape(n) for p in (weight, bias))
            given = contiguous(x).reshape(rows, n)
            run(given, *parameters, mean, invstd, y.reshape(rows, n), dtype.type(eps))
        else:
            mean[...] = 0
            invstd[...] = math.nan
        return y, mean.reshape(lead), invstd.reshape(lead)

    return forward


def _forward(dialect: Dialect, name: str, x, weight, bias, eps, dims, version):
    key = _key(dialect, name, x, weight, bias, dims, version)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _plan_forward(dialect, name, x, weight, bias, dims, version))
    return plan(x, weight, bias, eps)


@remembered(3)
def layer_norm(dialect: Dialect, x, weight, bias, eps: float, dims: int = 1, version=None):
    """Normalise x over its last `dims` dimensions, then scale and shift.

    weight and bias have the shape of those dimensions, or are None. Returns y, and mean and
    invstd = 1 / sqrt(biased variance + eps) of the shape of the others, in the dtype that 16-bit
    floats are computed in. Raises ValueError for shapes, TypeError for dtypes that do not fit.
    """
    return _forward(dialect, "layer_norm", x, weight, bias, eps, dims, version)


@remembered(2)
def rms_norm(dialect: Dialect, x, weight, eps: float, dims: int = 1, version=None):
    """x * weight * invrms over the last `dims` dimensions; returns y and invrms = 1 /
    sqrt(mean(x * x) + eps). The same errors as layer_norm."""
    y, _, invrms = _forward(dialect, "rms_norm", x, weight, None, eps, dims, version)
    return y, invrms


def _plan_backward_thread(dialect: Dialect, name: str, like, flags: tuple, shape: tuple, rows: int):
    """As `_plan_backward`, for many short rows on a CPU."""
    n, dtype, kernel = math.prod(shape), compute_dtype(like.dtype), dialect.row_norm.thread_backward
    grid = ceil_div(rows, THREADS)
    launches = [
        launcher(name, "thread", kernel(*flags, affine, n), grid, THREADS)
        for affine in (False, True)
    ]
    none = empty((1,), like.dtype, like)

    def backward(g, x, mean, invstd, weight, affine):
        columns = [_columns(dialect, a, rows, n) for a in (g, x)]
        scale = none if weight is None else contiguous(weight).reshape(n)
        mean = invstd if mean is None else mean  # which is not looked at then
        statistics = [contiguous(a).reshape(rows) for a in (mean, invstd)]
        dx, terms = empty((n, rows), x.dtype, x), none
        if affine:
            terms = empty((n, rows), dtype, x)
        launches[affine](*columns, *statistics, scale, dx, terms)
        dx = copy(dialect, dx.T).reshape(x.shape)
        if not affine:
            return dx, None, None
        sums = [reduce(dialect, "sum", a, 1, dtype=dtype) for a in (terms, columns[0])]
        return dx, *[a.reshape(shape) for a in sums]

    return backward


def _plan_backward(
    dialect: Dialect, name: str, g, x, mean, invstd, weight, dims: int, version: str | None
):
    """The function (g, x, mean, invstd, weight, affine) -> dx, dweight, dbias."""
    rows, n = _check(name, x, dims, weight)
    check_version(name, version, BACKWARD | SHORT)
    if g.shape != x.shape or g.dtype != x.dtype:
        raise ValueError(f"{name}: expected g like x, {x.shape} {x.dtype}, got {g.shape} {g.dtype}")
    lead, shape = x.shape[: x.ndim - dims], x.shape[x.ndim - dims :]
    for a in (mean, invstd):
        if a is not None and a.shape != lead:
            raise ValueError(f"{name}: expected statistics of shape {lead}, got {a.shape}")
    centred, dtype, gpu = mean is not None, compute_dtype(x.dtype), on_gpu(x)
    forced = version == "split"
    if version is None:
        short = "warp" if gpu and n <= ROW_IN_REGISTERS else _longer(rows, n, "block", gpu)
        version = "thread" if _takes_columns(rows, n, gpu) else short
    _check_version(name, version, n)
    acc_t, kernels = dialect.common.scalar_type(x.dtype), dialect.row_norm
    flags = (acc_t, centred, weight is not None)
    if version == "thread" and x.size:
        return _plan_backward_thread(dialect, name, x, flags, shape, rows)
    if version == "split":
        run = _split_backward(dialect, name, x, flags, rows, n, forced)
    elif version == "warp":
        held, grid, block = _rows_of_warps(rows, n, gpu)
        run = launcher(name, version, kernels.warp_backward(*flags, held), grid, block)
    else:
        block = GPU_BLOCK if gpu else SMALL_BLOCK
        run = launcher(name, version, kernels.block_backward(*flags, block), rows, block)
    columns = GPU_COLUMNS if gpu else CPU_COLUMNS
    parts = min(max(ceil_div(rows, ROWS_A_PART), 1), 64) if gpu else 1
    parts = max(parts, splits(ceil_div(n, columns[0]) if gpu else 0, rows, ROWS_A_PART))
    sums = launcher(
        name,
        "parameters",
        kernels.parameter_sums(acc_t, centred, columns),
        (ceil_div(n, columns[0]), parts),
        columns,
    )
    none = empty((1,), x.dtype, x)

    def backward(g, x, mean, invstd, weight, affine):
        dx = empty(x.shape, x.dtype, x)
        given = [contiguous(a).reshape(rows, n) for a in (g, x)]
        mean = invstd if mean is None else mean  # which is not looked at then
        given += [contiguous(a).reshape(rows) for a in (mean, invstd)]
        if dx.size:
            scale = none if weight is None else contiguous(weight).reshape(n)
            run(*given, scale, dx.reshape(rows, n))
        if not affine:
            return dx, None, None
        if not dx.size:
            zeros = namespace(x).zeros
            return dx, zeros(shape, dtype), zeros(shape, dtype)
        found = [empty((parts, n), dtype, x) for _ in range(2)]
        sums(*given, *found)
        if parts > 1:
            found = [reduce(dialect, "sum", part, 0) for part in found[: 1 + centred]]
        dweight, dbias = found[0], found[-1]
        return dx, dweight.reshape(shape), dbias.reshape(shape)

    return backward


def _backward(dialect, name, g, x, mean, invstd, weight, dims, affine, version):
    key = _key(dialect, name, g, x, mean, invstd, weight, dims, version)
    plan = _plans.get(key)
    if plan is None:
        plan = _plan_backward(dialect, name, g, x, mean, invstd, weight, dims, version)
        plan = _plans.keep(key, plan)
    return plan(g, x, mean, invstd, weight, affine)


@remembered(5)
def layer_norm_backward(
    dialect: Dialect, g, x, mean, invstd, weight, dims: int = 1, affine: bool = True, version=None
):
    """Gradients of layer_norm with respect to x, weight and bias; the last two None if not
    `affine`. ValueError for shapes that do not fit."""
    name = "layer_norm_backward"
    return _backward(dialect, name, g, x, mean, invstd, weight, dims, affine, version)


@remembered(4)
def rms_norm_backward(
    dialect: Dialect, g, x, invrms, weight, dims: int = 1, affine: bool = True, version=None
):
    """Gradients of rms_norm with respect to x and weight; the second None if not `affine`."""
    name = "rms_norm_backward"
    return _backward(dialect, name, g, x, None, invrms, weight, dims, affine, version)[:2]


def _cost_of_layer(x, weight, bias, eps, dims=1, **_):
    row = (x.shape[: x.ndim - dims], compute_dtype(x.dtype))
    return [(x.shape, x.dtype), row, row], 8 * x.size


def _cost_of_rms(x, weight, eps, dims=1, **_):
    return _cost_of_layer(x, weight, None, eps, dims)[0][:2], 4 * x.size


def _cost_of_layer_backward(g, x, mean, invstd, weight, dims=1, affine=True, **_):
    parameter = (x.shape[x.ndim - dims :], compute_dtype(x.dtype)) if affine else None
    return [(x.shape, x.dtype), parameter, parameter], (16 if affine else 11) * x.size


def _cost_of_rms_backward(g, x, invrms, *rest, **named):
    specs, flops = _cost_of_layer_backward(g, x, None, invrms, *rest, **named)
    return specs[:2], flops - 3 * x.size


def _n(version: str) -> int:
    return FEW if version == "thread" else 70


def _cases(rng, versions):
    for n in (5, 31, 32):  # the last in packs
        weight, bias = normal(rng, n), normal(rng, n)
        x, g = 2 + 3 * normal(rng, (9, n)), normal(rng, (9, n))
        stats = normal(rng, 9), 1 + normal(rng, 9) ** 2
        for version in FORWARD if n > FEW else SHORT:
            yield "layer_norm", (x, weight, bias, 1e-5), {"version": version}, 40
        for version in BACKWARD if n > FEW else SHORT:
            yield "layer_norm_backward", (g, x, *stats, weight), {"version": version}, 400
    yield "rms_norm", (x, weight, 1e-5), {}, 40
    yield "rms_norm_backward", (g, x, stats[1], weight), {}, 400


def _compiled(versions):
    for n in (5, 203, 1000):
        x, row, column = ones(129, n), ones(n), ones(129)
        for version in versions("layer_norm") if n > FEW else SHORT:
            yield "layer_norm", (x, row, row, 1e-5), {"version": version}
            yield "rms_norm", (x, row, 1e-5), {"version": version}
        for version in (
            versions("layer_norm_backward") if n > FEW else SHORT
        ):  # each with the sums for weight and bias
            yield "layer_norm_backward", (x, x, column, column, row), {"version": version}
            yield "rms_norm_backward", (x, x, column, row), {"version": version}


FAMILY = Family(
    "row_norm",
    (
        Operation(
            layer_norm,
            _cost_of_layer,
            lambda version: ((floats(70, _n(version)), *floats(2, _n(version)), 1e-5), {}),
            FORWARD,
            SHORT,
        ),
        Operation(
            rms_norm,
            _cost_of_rms,
            lambda version: ((floats(70, _n(version)), floats(_n(version)), 1e-5), {}),
            FORWARD,
            SHORT,
        ),
        Operation(
            layer_norm_backward,
            _cost_of_layer_backward,
            lambda version: (
                (*floats(2, 70, _n(version)), *floats(2, 70), floats(_n(version))),
                {},
            ),
            BACKWARD,
            SHORT | PARAMETERS,
        ),
        Operation(
            rms_norm_backward,
            _cost_of_rms_backward,
            lambda version: ((*floats(2, 70, _n(version)), floats(70), floats(_n(version))), {}),
            BACKWARD,
            SHORT | PARAMETERS,
        ),
    ),
    _cases,
    _compiled,
)
