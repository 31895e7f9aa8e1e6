"""2-D convolution: forward, backward-data and backward-weight, NCHW and OIHW.

2 N O OH OW C KH KW / groups floating-point operations each; at least x, w and y moved once.

1. direct          one thread a result (conv_direct); also what serves integers, for which no
                   other version is written
   plane           depthwise: a padded plane in shared memory, walked along over the ends of rows
2. tiled           a piece of x with its halo in shared memory, several channels or rows per thread
   few_channels    the halo of all input channels is one side of a product with many of the output
3. implicit_gemm   a matrix product whose right operand is read through a table of offsets
                   (conv_gemm); a 1x1 kernel reads x as it is
4. batch_gemm      one product over the positions of all images (conv_batch); tables say where both
                   operands and the result lie, so a stride needs no zeros between
5. winograd        3x3, stride 1: a tile of 2x2 results by 16 multiplications, not 36, in as many
                   products (conv_winograd)
6. double_buffer   CUDA C, float32: as batch_gemm with channels last, so that tables count packs,
                   and the next ones come while these are multiplied (conv_async)
7. mma_sync        CUDA C, 16-bit elements: the same on tensor cores (conv_mma)

Where the kernel is as large as the image, all three are products as they are (matmul); so they are
on a CPU for a 1x1 kernel, and for few images of many channels, with windows as columns, whose
gradients are added up.

Backward-data is a convolution of the padded gradient with the weights rotated by 180 degrees;
backward-weight is a product of the gradient with the same offset-table operand. All sums have a
fixed order.
"""

from __future__ import annotations

import math

from numpy import float32, ndarray

from kernels.families import Family, Operation, Shape, as_for, floats, normal, ones
from kernels.launchers import (
    conv_batch,
    conv_costs,
    conv_few,
    conv_gemm,
    conv_mma,
    conv_plane,
    conv_product,
    conv_tiled,
    conv_winograd,
)
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_capability,
    contiguous,
    empty,
    even_block,
    launcher,
    on_gpu,
    refusal_of_mma,
    wide_enough,
    zeros,
)
from kernels.launchers.conv_phases import Transposed
from kernels.launchers.conv_planes import Geometry, Windows
from kernels.launchers.plans import Plans, place
from kernels.launchers.pointwise import pointwise
from kernels.pointwise import TABLE

Pair = tuple[int, int]
FORWARD = {
    "direct": "one thread a result",
    "tiled": "the input piece with its halo in shared memory",
    "implicit_gemm": "a product whose operand is read through a table of offsets",
    "batch_gemm": "one product over all images, tables for all sides",
    "winograd": "3 x 3: 2 x 2 results by 16 multiplications, not 36",
    "plane": "one input channel a group: its padded plane in shared memory",
    "few_channels": "the halo of all input channels in shared memory, as one side of a product",
}
BACKWARD_DATA = {
    "direct": "one thread an element gathers what read it",
    "tiled": "a convolution of the gradient, a channel for each phase of the stride",
    "implicit_gemm": "the same as a product through a table of offsets",
    "batch_gemm": "one product over all images for each phase of the stride",
    "winograd": "3 x 3: the same for the gradient, with the filters turned",
    "plane": "depthwise: the padded plane of the gradient in shared memory, a sum for each phase",
}
BACKWARD_WEIGHT = {
    "direct": "one warp a weight, summed by shuffles",
    "implicit_gemm": "lanes along the output, a tile of sums each",
    "batch_gemm": "one product whose terms are the positions of all images",
    "winograd": "3 x 3: the steps of forward taken back",
    "plane": "depthwise: both padded planes in shared memory, a sum for each tap",
}
PACKS = {
    "double_buffer": "float32: channels last, so that cp.async copies packs of the next terms",
    "mma_sync": "16-bit: channels last, so that packs of 8 go to tensor cores (mma.sync)",
}
LAUNCHERS = {
    "tiled": conv_tiled,
    "implicit_gemm": conv_gemm,
    "batch_gemm": conv_batch,
    **dict.fromkeys(PACKS, conv_mma),
    "winograd": conv_winograd,
    "plane": conv_plane,
    "few_channels": conv_few,
    "product": conv_product,
}
TAKE_INTEGERS = (None, "direct")  # versions; None: the launcher chooses
MIN_PACKS = 16  # fewer rows of results, or terms: most of a tile is empty
MIN_GEMM_CHANNELS = 4  # fewer output channels a group than this: direct wins; on a CPU
LONG_SUM = 32  # unless a sum has so many terms, and not for the gradient of the weights


def _check_geometry(name: str, geo: Geometry) -> None:
    """Raise ValueError where shapes and options do not make a convolution."""
    if len(geo.x_shape) != 4 or len(geo.w_shape) != 4:
        raise ValueError(
            f"{name}: expected x (N, C, H, W) and w (O, C / groups, KH, KW),"
            f" got {geo.x_shape} and {geo.w_shape}"
        )
    if min(geo.x_shape[1:]) < 1:
        raise ValueError(f"{name}: expected images of at least one pixel, got x {geo.x_shape}")
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


def _check_bias(name: str, bias, channels: int) -> None:
    """Raise ValueError for a bias that is not one number for each channel of the result."""
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"{name}: expected a bias of shape {(channels,)}, got {bias.shape}")


def _by_dialect(simple: dict[str, str]) -> dict[str, dict[str, str]]:
    """The versions of each dialect: CUDA C alone has those that copy packs."""
    return {"numba": simple, "cupy": {**simple, **PACKS}}


def _refusal(version: str, geo: Geometry, like) -> str | None:
    """Why a version of PACKS does not take the operands; None where it does."""
    if version == "mma_sync":
        refusal = refusal_of_mma(like.dtype, compute_capability(like))
    else:
        refusal = None if like.dtype == float32 else f"takes float32, not {like.dtype}"
    if refusal is None and not conv_mma.fits(geo):
        refusal = "counts in 32 bits, and the arrays are larger"
    return refusal


def _version(
    dialect: Dialect, name: str, version: str | None, simple: dict, geo: Geometry, like, rows: int,
    terms: int, windows: Windows | None = None,
) -> str:  # fmt: skip
    """The version for so many rows of results a group, each of so many terms, or the one that was
    asked for. ValueError where that does not take the operands.

    windows: those that the results are sums of, if they are.
    """
    own = _by_dialect(simple)[dialect.name]
    check_version(name, version, own)
    backward = name == "conv2d_backward_data"
    refusal = _refusal(version, geo, like) if version in PACKS else None
    if version in ("plane", "winograd"):
        refusal = LAUNCHERS[version].refusal(name, geo, like.dtype)
    if version == "few_channels":
        refusal = conv_few.refusal(geo.windows, like.dtype)
    if refusal:
        raise ValueError(f"{name}: version {version!r} {refusal}; leave version out")
    if version:
        return version
    if like.dtype.kind in "iu":
        return "direct"
    gpu = on_gpu(like)
    if geo.is_product or (not gpu and conv_product.pays(geo, like, windows is not None)):
        return "product"
    packs = next((one for one in PACKS if one in own and not _refusal(one, geo, like)), None)
    filled = gpu and min(rows, terms) >= MIN_PACKS
    if packs and filled and (compute_capability(like) or (0, 0)) >= (8, 0):  # `cp.async`
        return packs
    is_small = rows < MIN_GEMM_CHANNELS and (gpu or (windows is not None and terms < LONG_SUM))
    if gpu or dialect.name != "numba":
        return "direct" if is_small else "implicit_gemm"
    if conv_plane.pays(name, geo, like.dtype):
        return "plane"
    may_filter = conv_winograd.refusal(name, geo, like.dtype) is None
    if windows is None:
        return conv_costs.cheapest_of_weights(dialect, geo, terms, rows, may_filter)
    also = ["winograd"] if may_filter else []
    if conv_product.may_copy(geo, like):
        also.append("product")
    if not backward and conv_few.refusal(windows, like.dtype) is None:
        also.append("few_channels")
    return conv_costs.cheapest(dialect, windows, geo, rows, terms, is_small, backward, also)


def _tile_grid(
    planes: int, height: int, width: int, even: bool
) -> tuple[tuple[int, int, int], Pair]:
    """Grid (planes, row tiles, column tiles) and block for one thread a pixel.

    even: tiles that divide a plane if they can.
    """
    bx, by = even_block(height, width) if even else (32, 8) if width > 16 else (16, 16)
    bx, by = wide_enough("conv2d", width, bx), wide_enough("conv2d", height, by)
    return (planes, ceil_div(height, by), ceil_div(width, bx)), (bx, by)


def _plan_forward(dialect: Dialect, x, w, bias, geo: Geometry, version: str | None):
    """The function (x, w, bias) -> y."""
    check_floating("conv2d", x, w, bias, or_integers=version in TAKE_INTEGERS)
    _check_geometry("conv2d", geo)
    _check_bias("conv2d", bias, geo.w_shape[0])
    terms = math.prod(geo.w_shape[1:])
    version = _version(
        dialect, "conv2d", version, FORWARD, geo, x, geo.channels[1], terms, geo.windows
    )
    out, dtype, acc_t = geo.out, x.dtype, dialect.matmul.accumulator(x.dtype)
    n, o = geo.x_shape[0], geo.w_shape[0]
    shape = (n, o, *out)
    no_bias, sizes = empty((1,), dtype, x), (geo.groups, *geo.padding)
    if version in LAUNCHERS:
        product = LAUNCHERS[version].forward(dialect, "conv2d", geo, x, bias is not None)
    else:
        constants = (acc_t, geo.w_shape[2:], geo.stride, geo.dilation, bias is not None)
        kernel = dialect.conv_direct.direct_forward(*constants)
        run = launcher("conv2d", version, kernel, *_tile_grid(n * o, *out, not on_gpu(x)))

    def forward(x, w, bias):
        if 0 in shape:
            return empty(shape, dtype, x)
        x, w = contiguous(x), contiguous(w)
        bias = no_bias if bias is None else contiguous(bias)
        if version in LAUNCHERS:
            return product(w, x, bias)
        y = empty(shape, dtype, x)
        run(x, w, bias, y, *sizes)
        return y

    return forward


def _plan_data(dialect: Dialect, g, w, bias, geo: Geometry, version: str | None):
    """The function (g, w, bias) -> dx."""
    name = "conv2d_backward_data"
    check_floating(name, g, w, bias, or_integers=version in TAKE_INTEGERS)
    _check_backward(name, g, geo)
    _check_bias(name, bias, geo.x_shape[1])
    terms = geo.channels[1] * math.prod(geo.w_shape[2:])
    rows, windows = geo.channels[0], Transposed(geo).windows
    version = _version(dialect, name, version, BACKWARD_DATA, geo, g, rows, terms, windows)
    dtype, x_shape, sizes = g.dtype, geo.x_shape, (geo.groups, *geo.padding)
    inside = {"has_bias": bias is not None} if version == "batch_gemm" else {}
    if version in LAUNCHERS:
        product = LAUNCHERS[version].backward_data(dialect, name, geo, g, **inside)
    else:
        acc_t = dialect.matmul.accumulator(dtype)
        kernel = dialect.conv_direct.direct_data(acc_t, geo.w_shape[2:], geo.stride, geo.dilation)
        # On a CPU rows whose threads gather different taps are not faster as vectors.
        even = geo.stride == (1, 1) and not on_gpu(g)
        tiling = _tile_grid(x_shape[0] * x_shape[1], *x_shape[2:], even)
        run = launcher(name, version, kernel, *tiling)

    def data(g, w, bias):
        if 0 in x_shape:
            return empty(x_shape, dtype, g)
        g, w = contiguous(g), contiguous(w)
        if inside:
            return product(g, w, bias if bias is None else contiguous(bias))
        if version in LAUNCHERS:
            dx = product(g, w)
        else:
            dx = empty(x_shape, dtype, g)
            run(g, w, dx, *sizes)
        if bias is not None:
            pointwise(dialect, TABLE["add"], dx, bias.reshape(-1, 1, 1), out=dx)
        return dx

    return data


def _plan_weight(dialect: Dialect, g, x, geo: Geometry, version: str | None):
    """The function (g, x) -> dw."""
    name, w_shape = "conv2d_backward_weight", geo.w_shape
    check_floating(name, g, x)
    _check_backward(name, g, geo)
    rows, terms = geo.channels[1], math.prod(w_shape[1:])
    version = _version(dialect, name, version, BACKWARD_WEIGHT, geo, x, rows, terms)
    dtype, sizes = x.dtype, (geo.groups, *geo.padding)
    if version in LAUNCHERS:
        product = LAUNCHERS[version].backward_weight(dialect, name, geo, x)
    else:
        acc_t = dialect.common.scalar_type(dtype)
        kernel = dialect.conv_direct.direct_weight(acc_t, geo.stride, geo.dilation)
        grid = (w_shape[0], w_shape[1], w_shape[2] * w_shape[3])
        run = launcher(name, version, kernel, grid, 32)

    def weight(g, x):
        if g.size == 0:
            return zeros(w_shape, dtype, x)
        g, x = contiguous(g), contiguous(x)
        if version in LAUNCHERS:
            return product(g, x)
        dw = empty(w_shape, dtype, x)
        run(g, x, dw, *sizes)
        return dw

    return weight


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
    bias=None,
    version: str | None = None,
):
    """Gradient of conv2d with respect to x, of shape `x_shape`, for g (N, O, OH, OW); plus bias
    (C,), which makes it a transposed convolution of g."""
    has_bias = None if bias is None else (bias.shape, bias.dtype)
    options = tuple(stride), tuple(padding), tuple(dilation), groups
    key = _key(dialect, "data", g, w, version, tuple(x_shape), *options, has_bias)
    plan = _plans.get(key)
    if plan is None:
        geo = Geometry(tuple(x_shape), w.shape, *options)
        plan = _plans.keep(key, _plan_data(dialect, g, w, bias, geo, version))
    return plan(g, w, bias)


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


def _cost_backward_data(
    g, w, x_shape, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, bias=None
):
    added = 0 if bias is None else math.prod(x_shape)
    return [(tuple(x_shape), g.dtype)], 2 * g.size * math.prod(w.shape[1:]) + added


def _cost_backward_weight(g, x, w_shape, *_, **__):
    return [(tuple(w_shape), g.dtype)], 2 * g.size * math.prod(w_shape[1:])


_IMAGE, _FILTERS, _RESULT = (2, 3, 12, 11), (5, 3, 3, 3), (2, 5, 12, 11)
_DEPTHWISE = {_IMAGE: _IMAGE, _FILTERS: (3, 1, 3, 3), _RESULT: _IMAGE}
_PADDED = dict(padding=(1, 1))


def _problem(first: Shape, second: Shape, *more):
    """The function from a version to a small call."""

    def problem(version: str):
        shapes, groups = [first, second, *more], 1
        if version == "plane":
            shapes, groups = [_DEPTHWISE[shape] for shape in shapes], _IMAGE[1]
        arrays = as_for(version, floats(*shapes[0]), floats(*shapes[1]))
        return (*arrays, *shapes[2:]), {**_PADDED, "groups": groups}

    return problem


def _cases(rng, versions):
    odd = (2, 6, 13, 16), (8, 3, 2, 3), (3, 2), (3, 4), (2, 1), 2
    for chosen, x_shape, w_shape, *options in [
        ((None, "direct", "tiled", "few_channels", "batch_gemm", *PACKS), *odd),
        ((None, "tiled"), (2, 9, 10, 11), (9, 1, 3, 3), (1, 1), (1, 1), (1, 1), 9),
        ((None, "winograd"), (3, 5, 8, 11), (6, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        (("winograd",), (2, 70, 27, 14), (34, 70, 3, 3), (1, 1), (2, 0), (1, 1), 1),
        ((None, "plane"), (2, 5, 13, 16), (5, 1, 2, 3), (3, 2), (1, 2), (2, 1), 5),
        ((None,), (2, 5, 7, 9), (33, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((None,), (3, 2, 13, 8), (9, 2, 4, 4), (2, 3), (1, 0), (1, 1), 1),
        ((None,), (5, 6, 3, 4), (7, 6, 3, 4), (1, 1), (0, 0), (1, 1), 1),
        ((None,), (2, 33, 16, 33), (34, 33, 1, 1), (1, 1), (0, 0), (1, 1), 1),
        # rows and columns of x that no window covers, at the end
        ((None, "implicit_gemm", *PACKS), (3, 2, 7, 8), (4, 2, 3, 3), (3, 3), (0, 0), (1, 1), 1),
        ((None, "tiled", "batch_gemm"), (2, 2, 9, 7), (4, 2, 2, 2), (3, 3), (0, 0), (1, 1), 1),
    ]:
        arrays = normal(rng, x_shape), normal(rng, w_shape), normal(rng, w_shape[0])
        g_shape = _cost(*arrays[:2], None, *options)[0][0][0]
        for version in chosen:
            if version and version not in versions("conv2d"):
                continue
            how = {"version": version}
            x, w, bias, g = as_for(version, *arrays, normal(rng, g_shape))
            yield "conv2d", (x, w, bias, *options), how, 60
            if version in (None, *versions("conv2d_backward_data")):
                yield "conv2d_backward_data", (g, w, x_shape, *options), how, 60
                (more,) = as_for(version, normal(rng, x_shape[1]))
                yield "conv2d_backward_data", (g, w, x_shape, *options, more), how, 60
            if version in (None, *versions("conv2d_backward_weight")):
                yield "conv2d_backward_weight", (g, x, w_shape, *options), how, 200


def _compiled(versions):
    arrays = ones(2, 4, 17, 17), ones(6, 4, 3, 3), ones(6)
    for stride, n in ((1, 15), (2, 8)):
        options = ((stride, stride), (0, 0), (1, 1))
        alone = ones(2, 4, 17, 17), ones(4, 1, 3, 3), ones(4), ones(2, 4, n, n)
        for name in ("conv2d", "conv2d_backward_data", "conv2d_backward_weight"):
            for version in versions(name):
                if version == "winograd" and stride > 1:
                    continue
                x, w, bias, g = as_for(version, *arrays, ones(2, 6, n, n))
                how = {"version": version}
                if version == "plane":
                    (x, w, bias, g), how["groups"] = alone, 4
                given = {"conv2d": (x, w, bias), "conv2d_backward_data": (g, w, x.shape)}
                yield name, (*given.get(name, (g, x, w.shape)), *options), how
    if "mma_sync" in versions("conv2d"):  # its large tiles, and without a bias
        x, w, g = as_for("mma_sync", ones(8, 72, 48, 48), ones(72, 72, 1, 1), ones(8, 72, 48, 48))
        yield "conv2d", (x, w), {}
        yield "conv2d_backward_data", (g, w, x.shape), {}
        yield "conv2d_backward_weight", (g, x, w.shape), {}


FAMILY = Family(
    "conv",
    (
        Operation(
            conv2d,
            _cost,
            _problem(_IMAGE, _FILTERS),
            dialects=_by_dialect(FORWARD),
            matrix=True,
        ),
        Operation(
            conv2d_backward_data,
            _cost_backward_data,
            _problem(_RESULT, _FILTERS, _IMAGE),
            dialects=_by_dialect(BACKWARD_DATA),
            matrix=True,
        ),
        Operation(
            conv2d_backward_weight,
            _cost_backward_weight,
            _problem(_RESULT, _IMAGE, _FILTERS),
            dialects=_by_dialect(BACKWARD_WEIGHT),
            matrix=True,
        ),
    ),
    _cases,
    _compiled,
    files=("conv_direct", "conv_gemm", "conv_batch", "conv_winograd"),
)
