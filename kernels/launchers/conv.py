"""2-D convolution: forward, backward-data and backward-weight, NCHW and OIHW.

2 N O OH OW C KH KW / groups floating-point operations each; at least x, w and y moved once.

1. direct          one thread a result (conv_direct); also what serves depthwise convolution
2. tiled           forward: a piece of x with its halo in shared memory, several channels per thread
3. implicit_gemm   a matrix product whose right operand is read through a table of offsets
                   (conv_gemm); a 1x1 kernel reads x as it is
4. batch_gemm      one product over the positions of all images (conv_batch); tables say where both
                   operands and the result lie, so a stride needs no zeros between

Backward-data is a convolution of the padded gradient with the weights turned round; backward-weight
is a product of the gradient with the same offset-table operand. All sums have a fixed order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers import conv_batch
from kernels.launchers.common import (
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
    wide_enough,
)
from kernels.launchers.conv_planes import Geometry, Planes
from kernels.launchers.plans import Plans, place
from kernels.launchers.reduction import reduce
from kernels.launchers.transpose import cast

Pair = tuple[int, int]
FORWARD = {
    "direct": "one thread a result",
    "tiled": "the input piece with its halo in shared memory",
    "implicit_gemm": "a product whose operand is read through a table of offsets",
    "batch_gemm": "one product over all images, tables for all sides",
}
BACKWARD_DATA = {
    "direct": "one thread an element gathers what read it",
    "implicit_gemm": "a convolution with the weights turned round",
    "batch_gemm": "one product over all images for each phase of the stride",
}
BACKWARD_WEIGHT = {
    "direct": "one warp a weight, summed by shuffles",
    "implicit_gemm": "lanes along the output, a tile of sums each",
    "batch_gemm": "one product whose terms are the positions of all images",
}
MIN_GEMM_CHANNELS = 4  # fewer output channels a group than this: direct wins


class GemmTile(NamedTuple):
    """Block (bx, by), rm channels x rn positions a thread, tk terms of the sum a step."""

    bx: int
    by: int
    rm: int
    rn: int
    tk: int


def gpu_tile(channels: int, positions: int) -> GemmTile:
    """The tile of implicit_gemm on a GPU: up to 8 x 8 results per thread, for 4 multiply-adds per
    load from shared memory; fewer where the output would not fill it."""
    return GemmTile(16, 16, 8 if channels > 64 else 4, 8 if positions > 64 else 4, 16)


class GradTile(NamedTuple):
    """Block (bx, by), rm output channels x rn taps a thread, at most `span` positions a step."""

    bx: int
    by: int
    rm: int
    rn: int
    span: int


def _check_geometry(name: str, geo: Geometry) -> None:
    """Raise ValueError where shapes and options do not make a convolution."""
    if len(geo.x_shape) != 4 or len(geo.w_shape) != 4:
        raise ValueError(
            f"{name}: expected x (N, C, H, W) and w (O, C / groups, KH, KW),"
            f" got {geo.x_shape} and {geo.w_shape}"
        )
    if min(*geo.stride, *geo.dilation, geo.groups) < 1 or min(geo.padding) < 0:
        raise ValueError(f"{name}: stride, dilation and groups must be positive, padding >= 0")
    if geo.w_shape[0] % geo.groups or geo.x_shape[1] != geo.w_shape[1] * geo.groups:
        raise ValueError(
            f"{name}: {geo.x_shape[1]} input channels and a weight {geo.w_shape} do not fit"
            f" groups={geo.groups}"
        )
    if min(geo.w_shape[2:]) < 1 or min(geo.out) < 1:
        raise ValueError(
            f"{name}: a kernel of {geo.w_shape[2:]} with dilation {geo.dilation} is larger than"
            f" the padded input {geo.x_shape[2:]} + 2 * {geo.padding}"
        )


def _pick(dialect: Dialect, like, channels: int, terms: int) -> str:
    """The version for so many output channels a group, each of so many weights."""
    if dialect.conv_batch.pays(terms, on_gpu(like)):
        return "batch_gemm"
    return "implicit_gemm" if channels >= MIN_GEMM_CHANNELS else "direct"


def _tile_grid(planes: int, height: int, width: int) -> tuple[tuple[int, int, int], Pair]:
    """Grid (planes, row tiles, column tiles) and block for one thread a pixel."""
    bx = wide_enough("conv2d", width, 32 if width > 16 else 16)
    by = max(256 // bx, 1)
    return (planes, ceil_div(height, by), ceil_div(width, bx)), (bx, by)


def _input_planes(geo: Geometry) -> Planes:
    """Planes for forward and backward-weight: x with its padding, a phase for each stride step."""
    padded = [geo.x_shape[2 + i] + 2 * geo.padding[i] for i in range(2)]
    rows, width = (ceil_div(padded[i], geo.stride[i]) for i in range(2))
    return Planes(rows, width, geo.padding, sub=geo.stride)


def _gradient_planes(geo: Geometry) -> Planes:
    """Planes for backward-data: the gradient spread by the stride, with room for every tap."""
    rows, width = (geo.x_shape[2 + i] + geo.reach(i) for i in range(2))
    lead = tuple(geo.reach(i) - geo.padding[i] for i in range(2))
    return Planes(rows, width, lead, insert=geo.stride)


def _offsets(geo: Geometry, planes: Planes, channels: int, turned: bool, multiple: int):
    """uint32 offset of (channel, kh, kw) from an output position; taps turned round if `turned`.

    Zeros fill the table up to a multiple of `multiple`.
    """
    c, i, j = np.ogrid[:channels, : geo.w_shape[2], : geo.w_shape[3]]
    if turned:
        i, j = geo.w_shape[2] - 1 - i, geo.w_shape[3] - 1 - j
    t, a = np.divmod(i * geo.dilation[0], planes.sub[0])
    u, b = np.divmod(j * geo.dilation[1], planes.sub[1])
    phase = a * planes.sub[1] + b
    plane = planes.rows * planes.width
    table = c * planes.channel + phase * plane + t * planes.width + u
    offsets = np.zeros(ceil_div(table.size, multiple) * multiple, np.uint32)
    offsets[: table.size] = table.reshape(-1)
    return offsets


def _gemm(
    dialect: Dialect,
    name: str,
    geo: Geometry,
    planes: Planes,
    out: Pair,
    data: bool,
    like,
    has_bias: bool,
):
    """The function (w (G * channels, K), x, bias, y) of an implicit-GEMM convolution.

    `data`: backward-data, where the gradient takes the place of x and the taps are turned round.
    """
    dtype = like.dtype
    from_channels, to_channels = geo.channels[::-1] if data else geo.channels
    n, groups = geo.x_shape[0], geo.groups
    identity = planes == Planes(*out, (0, 0)) and geo.w_shape[2:] == (1, 1)
    lay_out = planes.launch(dialect, name, like, n * groups * from_channels, 0)
    terms = from_channels * geo.w_shape[2] * geo.w_shape[3]
    positions = (out[0] - 1) * planes.width + out[1]
    tile = dialect.conv_gemm.gemm_tile(to_channels, terms, positions, on_gpu(like))
    offset = namespace(like).asarray(_offsets(geo, planes, from_channels, data, tile.tk))
    grid = (
        n * groups * ceil_div(positions, tile.bx * tile.rn),
        ceil_div(to_channels, tile.by * tile.rm),
    )
    kernel = dialect.conv_gemm.implicit_gemm(dialect.common.scalar_type(dtype), tile, has_bias)
    run = launcher(name, "implicit_gemm", kernel, grid, (tile.bx, tile.by))
    sizes = (groups, from_channels * planes.channel, positions, planes.width, out[1])

    def gemm(w, x, bias, y):
        flat = x.reshape(-1) if identity else lay_out(x)
        run(w, flat, offset, bias, y.reshape(-1, out[0] * out[1]), *sizes)

    return gemm


def _plan_forward(dialect: Dialect, x, w, bias, geo: Geometry, version: str | None):
    """The function (x, w, bias) -> y."""
    check_version("conv2d", version, FORWARD)
    check_floating("conv2d", x, w, bias)
    _check_geometry("conv2d", geo)
    if bias is not None and bias.shape != geo.w_shape[:1]:
        raise ValueError(f"conv2d: expected a bias of shape {geo.w_shape[:1]}, got {bias.shape}")
    version = version or _pick(dialect, x, geo.channels[1], math.prod(geo.w_shape[1:]))
    out, dtype, acc_t = geo.out, x.dtype, dialect.common.scalar_type(x.dtype)
    n, o = geo.x_shape[0], geo.w_shape[0]
    shape = (n, o, *out)
    no_bias, sizes = empty((1,), dtype, x), (geo.groups, *geo.padding)
    if version == "implicit_gemm":
        gemm = _gemm(dialect, "conv2d", geo, _input_planes(geo), out, False, x, bias is not None)
    elif version == "batch_gemm":
        product = conv_batch.forward(dialect, "conv2d", geo, x, bias is not None)
    else:
        constants = (acc_t, geo.w_shape[2:], geo.stride, geo.dilation, bias is not None)
        if version == "direct":
            kernel, (grid, block) = (
                dialect.conv_direct.direct_forward(*constants),
                _tile_grid(n * o, *out),
            )
        else:
            kernel = dialect.conv_direct.tiled_forward(*constants)
            tiles = n * geo.groups * ceil_div(geo.channels[1], dialect.conv_direct.TILE_CHANNELS)
            block = (dialect.conv_direct.TILE_W, dialect.conv_direct.TILE_H)
            grid = (tiles, ceil_div(out[0], block[1]), ceil_div(out[1], block[0]))
        run = launcher("conv2d", version, kernel, grid, block)

    def forward(x, w, bias):
        if 0 in shape:
            return empty(shape, dtype, x)
        x, w = contiguous(x), contiguous(w)
        bias = no_bias if bias is None else contiguous(bias)
        if version == "batch_gemm":
            return product(w, x, bias)
        y = empty(shape, dtype, x)
        if version == "implicit_gemm":
            gemm(w.reshape(o, -1), x, bias, y)
        else:
            run(x, w, bias, y, *sizes)
        return y

    return forward


def _plan_data(dialect: Dialect, g, w, geo: Geometry, version: str | None):
    """The function (g, w) -> dx."""
    name = "conv2d_backward_data"
    check_version(name, version, BACKWARD_DATA)
    check_floating(name, g, w)
    _check_backward(name, g, geo)
    terms = geo.channels[1] * math.prod(geo.w_shape[2:])
    version = version or _pick(dialect, g, geo.channels[0], terms)
    dtype, acc_t, groups, x_shape = (
        g.dtype,
        dialect.common.scalar_type(g.dtype),
        geo.groups,
        geo.x_shape,
    )
    per_in, per_out = geo.channels
    taps = geo.w_shape[2] * geo.w_shape[3]
    if version == "implicit_gemm":
        gemm = _gemm(dialect, name, geo, _gradient_planes(geo), x_shape[2:], True, g, False)
        no_bias = empty((1,), dtype, g)
        grid = (ceil_div(per_in, 32), ceil_div(geo.w_shape[0], 8))
        swap = launcher(name, "swap_channels", dialect.conv_gemm.swap_channels(taps), grid, (32, 8))
    elif version == "batch_gemm":
        product = conv_batch.backward_data(dialect, name, geo, g)
    else:
        kernel = dialect.conv_direct.direct_data(acc_t, geo.w_shape[2:], geo.stride, geo.dilation)
        tiling = _tile_grid(x_shape[0] * x_shape[1], *x_shape[2:])
        run = launcher(name, version, kernel, *tiling)

    def data(g, w):
        if 0 in x_shape:
            return empty(x_shape, dtype, g)
        g, w = contiguous(g), contiguous(w)
        if version == "batch_gemm":
            return product(g, w)
        dx = empty(x_shape, dtype, g)
        if version == "implicit_gemm":
            swapped = empty((groups * per_in, per_out, taps), dtype, w)
            swap(w.reshape(-1, per_in, taps), swapped)
            gemm(swapped.reshape(groups * per_in, -1), g, no_bias, dx)
        else:
            run(g, w, dx, groups, *geo.padding)
        return dx

    return data


def _plan_weight(dialect: Dialect, g, x, geo: Geometry, version: str | None):
    """The function (g, x) -> dw."""
    name = "conv2d_backward_weight"
    check_version(name, version, BACKWARD_WEIGHT)
    check_floating(name, g, x)
    _check_backward(name, g, geo)
    version = version or _pick(dialect, x, geo.channels[1], math.prod(geo.w_shape[1:]))
    dtype, acc_t, w_shape = x.dtype, dialect.common.scalar_type(x.dtype), geo.w_shape
    if version == "implicit_gemm":
        product = _weight_product(dialect, name, geo, x)
    elif version == "batch_gemm":
        product = conv_batch.backward_weight(dialect, name, geo, x)
    else:
        kernel = dialect.conv_direct.direct_weight(acc_t, geo.stride, geo.dilation)
        grid = (w_shape[0], w_shape[1], w_shape[2] * w_shape[3])
        run = launcher(name, version, kernel, grid, 32)

    def weight(g, x):
        if g.size == 0:
            return namespace(x).zeros(w_shape, dtype)
        g, x = contiguous(g), contiguous(x)
        dw = empty(w_shape, dtype, x)
        if version.endswith("gemm"):
            return product(g, x)
        run(g, x, dw, geo.groups, *geo.padding)
        return dw

    return weight


def _weight_product(dialect: Dialect, name: str, geo: Geometry, like):
    """The function (g, x) -> dw of the implicit-GEMM weight gradient."""
    dtype, n, groups, out = like.dtype, geo.x_shape[0], geo.groups, geo.out
    per_in, per_out = geo.channels
    planes = _input_planes(geo)
    g_planes = Planes(out[0], planes.width, (0, 0))
    positions = out[0] * planes.width
    terms = math.prod(geo.w_shape[1:])
    gpu = on_gpu(like)
    tile = dialect.conv_gemm.grad_tile(terms, positions, gpu)
    grid = [ceil_div(terms, tile.by * tile.rn), ceil_div(per_out, tile.rm), groups]
    splits = max(1, min(n, 512 // math.prod(grid))) if gpu else 1
    grid[2] *= splits
    lay_out_x = planes.launch(dialect, name, like, n * groups * per_in, planes.channel + tile.span)
    lay_out_g = g_planes.launch(dialect, name, like, n * groups * per_out, 0)
    offset = _offsets(geo, planes, per_in, False, tile.by * tile.rn)
    offset = namespace(like).asarray(offset)
    kernel = dialect.conv_gemm.weight_gradient(dialect.common.scalar_type(dtype), tile)
    run = launcher(name, "implicit_gemm", kernel, tuple(grid), (tile.bx, tile.by))
    shape = (splits, geo.w_shape[0], terms)
    sizes = (n, groups, per_in * planes.channel, positions)

    def product(g, x):
        parts = empty(shape, compute_dtype(dtype), x)
        run(lay_out_g(g), lay_out_x(x), offset, parts, *sizes)
        dw = parts[0] if splits == 1 else reduce(dialect, "sum", parts, 0)
        dw = dw.reshape(geo.w_shape)
        return dw if dw.dtype == dtype else cast(dialect, dw, dtype)

    return product


def _check_backward(name: str, g, geo: Geometry) -> None:
    """Raise ValueError where g is not a gradient of this convolution's output."""
    _check_geometry(name, geo)
    expected = (geo.x_shape[0], geo.w_shape[0], *geo.out)
    if g.shape != expected:
        raise ValueError(f"{name}: expected a gradient of shape {expected}, got {g.shape}")


_plans = Plans(512)  # those of batch_gemm hold tables as long as an output plane of the batch


def _key(dialect: Dialect, kind: str, a, b, version: str | None, *options) -> tuple:
    where = type(a) is ndarray or place(a)
    return dialect, kind, where, a.shape, a.dtype, b.shape, b.dtype, version, *options


def conv2d(
    dialect: Dialect,
    x,
    w,
    bias=None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    version: str | None = None,
):
    """Cross-correlation of x (N, C, H, W) with w (O, C / groups, KH, KW), plus bias (O,).

    Returns (N, O, OH, OW) of x's dtype; 16-bit floats are summed in float32. Raises ValueError for
    shapes or options that do not fit, TypeError unless all arrays share one floating dtype.
    """
    has_bias = None if bias is None else (bias.shape, bias.dtype)
    key = _key(dialect, "forward", x, w, version, stride, padding, dilation, groups, has_bias)
    plan = _plans.get(key)
    if plan is None:
        geo = Geometry(x.shape, w.shape, tuple(stride), tuple(padding), tuple(dilation), groups)
        plan = _plans.keep(key, _plan_forward(dialect, x, w, bias, geo, version))
    return plan(x, w, bias)


def conv2d_backward_data(
    dialect: Dialect,
    g,
    w,
    x_shape: tuple[int, int, int, int],
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    version: str | None = None,
):
    """Gradient of conv2d with respect to x, of shape `x_shape`, for g (N, O, OH, OW)."""
    key = _key(dialect, "data", g, w, version, tuple(x_shape), stride, padding, dilation, groups)
    plan = _plans.get(key)
    if plan is None:
        options = (tuple(stride), tuple(padding), tuple(dilation), groups)
        geo = Geometry(tuple(x_shape), w.shape, *options)
        plan = _plans.keep(key, _plan_data(dialect, g, w, geo, version))
    return plan(g, w)


def conv2d_backward_weight(
    dialect: Dialect,
    g,
    x,
    w_shape: tuple[int, int, int, int],
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    version: str | None = None,
):
    """Gradient of conv2d with respect to w, of shape `w_shape`, for g (N, O, OH, OW)."""
    key = _key(dialect, "weight", g, x, version, tuple(w_shape), stride, padding, dilation, groups)
    plan = _plans.get(key)
    if plan is None:
        options = (tuple(stride), tuple(padding), tuple(dilation), groups)
        geo = Geometry(x.shape, tuple(w_shape), *options)
        plan = _plans.keep(key, _plan_weight(dialect, g, x, geo, version))
    return plan(g, x)


def _cost(x, w, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    geo = Geometry(x.shape, w.shape, stride, padding, dilation, groups)
    shape = (x.shape[0], w.shape[0], *geo.out)
    each = 2 * math.prod(w.shape[1:]) + (bias is not None)
    return [(shape, x.dtype)], each * math.prod(shape)


def _cost_backward_data(g, w, x_shape, *_, **__):
    return [(tuple(x_shape), g.dtype)], 2 * g.size * math.prod(w.shape[1:])


def _cost_backward_weight(g, x, w_shape, *_, **__):
    return [(tuple(w_shape), g.dtype)], 2 * g.size * math.prod(w_shape[1:])


_IMAGE, _FILTERS, _RESULT = (2, 3, 12, 11), (5, 3, 3, 3), (2, 5, 12, 11)
_PADDED = dict(padding=(1, 1))


def _cases(rng, versions):
    for chosen, x_shape, w_shape, *options in [
        (
            (None, "direct", "tiled", "batch_gemm"),
            (2, 6, 13, 16),
            (8, 3, 2, 3),
            (3, 2),
            (3, 4),
            (2, 1),
            2,
        ),
        ((None,), (2, 9, 10, 11), (9, 1, 3, 3), (1, 1), (1, 1), (1, 1), 9),
        ((None,), (2, 5, 7, 9), (33, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ]:
        x, w, bias = normal(rng, x_shape), normal(rng, w_shape), normal(rng, w_shape[0])
        g = normal(rng, _cost(x, w, None, *options)[0][0][0])
        for version in chosen:
            how = {"version": version}
            yield "conv2d", (x, w, bias, *options), how, 60
            if version != "tiled":
                yield "conv2d_backward_data", (g, w, x_shape, *options), how, 60
                yield "conv2d_backward_weight", (g, x, w_shape, *options), how, 200


def _compiled(versions):
    x, w, bias = ones(2, 4, 17, 17), ones(6, 4, 3, 3), ones(6)
    for stride, n in ((1, 15), (2, 8)):
        how, g = ((stride, stride), (0, 0), (1, 1), 1), ones(2, 6, n, n)
        for version in versions("conv2d"):
            yield "conv2d", (x, w, bias, *how), {"version": version}
        for version in versions("conv2d_backward_data"):
            yield "conv2d_backward_data", (g, w, x.shape, *how), {"version": version}
        for version in versions("conv2d_backward_weight"):
            yield "conv2d_backward_weight", (g, x, w.shape, *how), {"version": version}


FAMILY = Family(
    "conv",
    (
        Operation(
            conv2d,
            _cost,
            lambda version: ((floats(*_IMAGE), floats(*_FILTERS)), _PADDED),
            FORWARD,
            matrix=True,
        ),
        Operation(
            conv2d_backward_data,
            _cost_backward_data,
            lambda version: ((floats(*_RESULT), floats(*_FILTERS), _IMAGE), _PADDED),
            BACKWARD_DATA,
            matrix=True,
        ),
        Operation(
            conv2d_backward_weight,
            _cost_backward_weight,
            lambda version: ((floats(*_RESULT), floats(*_IMAGE), _FILTERS), _PADDED),
            BACKWARD_WEIGHT,
            matrix=True,
        ),
    ),
    _cases,
    _compiled,
    files=("conv_direct", "conv_gemm", "conv_batch"),
)
