"""Convolution and its gradients: every version against float64."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

import kernels
from kernels import dispatch, lab, reference
from kernels.launchers import conv_batch, conv_costs, conv_tables
from kernels.launchers.conv_planes import Geometry
from kernels.launchers.conv_tables import Layout, Tables, of_inputs, of_outputs, of_weights
from kernels.launchers.plans import Plans
from kernels.support import processor, thread_pool
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
# x, w, stride, padding, dilation, groups; of shapes that share tiles, for each tile is a kernel
CASES = {
    "3x3": ((2, 3, 33, 31), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many_channels": ((1, 33, 9, 8), (70, 33, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "no_padding": ((3, 6, 6, 7), (4, 6, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    "1x1": ((2, 5, 7, 9), (6, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "1x1_large": ((2, 34, 16, 33), (33, 34, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "1x1_padded": ((2, 5, 11, 13), (6, 5, 1, 1), (2, 2), (1, 0), (1, 1), 1),
    "stride": ((2, 4, 41, 29), (8, 4, 3, 3), (2, 3), (1, 2), (1, 1), 1),
    "dilation": ((1, 4, 15, 14), (8, 4, 3, 3), (1, 1), (2, 1), (2, 3), 1),
    "everything": ((2, 6, 13, 16), (8, 3, 2, 3), (3, 2), (3, 4), (2, 1), 2),
    "groups": ((2, 12, 13, 15), (24, 3, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise": ((2, 9, 10, 11), (9, 1, 3, 3), (1, 1), (1, 1), (1, 1), 9),
    "depthwise_stride": ((2, 5, 19, 18), (5, 1, 3, 4), (2, 3), (1, 2), (1, 2), 5),
    "depthwise_several": ((2, 4, 12, 9), (12, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise_padding": ((2, 3, 6, 7), (3, 1, 2, 2), (1, 1), (2, 3), (1, 1), 3),
    "depthwise_large": ((1, 2, 60, 67), (2, 1, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "depthwise_5x5": ((2, 3, 14, 13), (3, 1, 5, 5), (1, 1), (2, 2), (1, 1), 3),
    "depthwise_phases": ((2, 3, 15, 12), (3, 1, 5, 5), (2, 2), (2, 1), (1, 1), 3),
    "wide_dilation": ((1, 3, 60, 70), (3, 1, 3, 3), (1, 1), (20, 30), (20, 30), 3),
    "few_channels": ((2, 2, 9, 14), (33, 2, 4, 4), (2, 3), (1, 0), (1, 1), 1),
    "less_than_a_stride": ((2, 3, 1, 2), (40, 3, 2, 1), (3, 3), (1, 1), (2, 1), 1),
    "wide_stride": ((2, 2, 26, 19), (5, 2, 3, 9), (8, 9), (1, 2), (1, 1), 1),
    "one_pixel": ((2, 4, 3, 3), (5, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    "empty_batch": ((0, 4, 8, 8), (5, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
}
SHIPPED = [(case, None) for case in CASES]
# the shipped version of these is another one
OTHERS = [(case, "direct") for case in ("3x3", "everything", "groups")]
OTHERS += [
    (case, "implicit_gemm")
    for case in ("1x1_padded", "everything", "depthwise", "wide_stride", "one_pixel")
]
BATCH = ("1x1_padded", "stride", "everything", "groups", "few_channels", "less_than_a_stride")
BATCH += ("one_pixel", "empty_batch")
OTHERS += [(case, "batch_gemm") for case in BATCH]
TILED = ("many_channels", "everything", "groups", "few_channels", "less_than_a_stride")
TILED += ("depthwise", "depthwise_several", "depthwise_stride")
WINOGRAD = ("3x3", "many_channels", "one_pixel", "empty_batch")
OTHERS += [(case, "winograd") for case in WINOGRAD]
FEW_CHANNELS = ("3x3", "1x1", "stride", "dilation", "everything", "groups", "few_channels")
FEW_CHANNELS += ("less_than_a_stride", "wide_stride", "wide_dilation", "one_pixel", "empty_batch")
OTHER_DTYPES = ("1x1", "everything", "wide_stride")
OF_WEIGHTS = OTHERS
OTHERS = [*OTHERS, *((case, "tiled") for case in TILED)]


def make(rng, case: str, dtype=np.float32):
    """x, w, bias, a gradient of the output, options, and the geometry as the tests need it."""
    x_shape, w_shape, *options = CASES[case]
    x, w = normal(rng, x_shape, dtype), normal(rng, w_shape, dtype)
    y = reference.conv2d(wide(x), wide(w), None, *options)
    return x, w, normal(rng, w_shape[0], dtype), normal(rng, y.shape, dtype), options


# Each case is a kernel of its own: other windows and strides are tests/engine/test_gpu.py's there.
few = pytest.mark.few_on_gpu(
    "case",
    "3x3",
    "many_channels",
    "1x1_padded",
    "everything",
    "groups",
    "depthwise",
    "one_pixel",
    "empty_batch",
)


@few
@pytest.mark.parametrize(("case", "version"), [*SHIPPED, *OTHERS])
def test_forward(device, version, case, rng):
    check_forward(device, version, case, rng)


@pytest.mark.parametrize("case", ["depthwise_stride", "depthwise_several", "depthwise_padding"])
def test_forward_of_planes(device, case, rng):
    check_forward(device, "plane", case, rng)


@few
@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, np.float32) for case in FEW_CHANNELS]
    + [(case, dtype) for case in OTHER_DTYPES for dtype in (np.float64, np.float16)],
)
def test_forward_of_few_channels(device, case, dtype, rng):
    check_forward(device, "few_channels", case, rng, dtype)


def test_what_runs_for_few_channels(device, rng):
    """The first layers of networks, whose windows have few terms."""
    if device == "gpu":
        pytest.skip("the versions of a CPU")
    for x_shape, w_shape, stride, padding in [
        ((1, 3, 64, 64), (64, 3, 7, 7), 2, 3),  # of a ResNet
        ((1, 3, 96, 96), (32, 3, 3, 3), 2, 1),  # of a MobileNet
        ((4, 1, 32, 32), (32, 1, 4, 4), 2, 1),  # of a DCGAN
    ]:
        x, w = normal(rng, x_shape), normal(rng, w_shape)
        options = (stride, stride), (padding, padding)
        with kernels.trace() as trace:
            y = kernels.conv2d(x, w, None, *options, backend="numba")
        assert list(trace.rows) == [("conv2d", "few_channels")], (x_shape, w_shape)
        scale = reference.conv2d(abs(wide(x)), abs(wide(w)), None, *options)
        expected = reference.conv2d(wide(x), wide(w), None, *options)
        assert_close(y, expected, scale, terms=w[0].size)


@pytest.mark.parametrize("case", ["depthwise", "depthwise_stride", "depthwise_phases"])
def test_backward_data_of_planes(device, case, rng):
    with lab.profiled() if device == "cpu" else contextlib.nullcontext([]) as launches:
        test_backward_data(device, "plane", case, rng)
    assert not any(launch.report.races or launch.report.errors for launch in launches)


@pytest.mark.parametrize("case", ["depthwise", "depthwise_stride", "depthwise_padding"])
def test_backward_weight_of_planes(device, case, rng):
    test_backward_weight(device, "plane", case, rng)


COLUMNS = [
    ((5, 3), (3, 2), ((1, 1), (1, 0), (1, 1))),
    ((9, 11), (3, 3), ((2, 3), (1, 2), (1, 1))),
    ((13, 8), (2, 3), ((1, 2), (0, 3), (3, 2))),
    ((16, 8), (4, 4), ((4, 4), (0, 0), (1, 1))),
]


# Several images, and float16, have other versions: once is enough.
@pytest.mark.parametrize(
    "image, window, options, dtype, images",
    [(*case, dtype, 1) for case in COLUMNS for dtype in (np.float32, np.float64)]
    + [(*COLUMNS[0], np.float16, 1), (*COLUMNS[0], np.float32, 2), (*COLUMNS[3], np.float32, 2)],
)
def test_windows_as_columns(device, image, window, options, dtype, images, rng):
    """Fewer copies than batch_gemm makes of so many weights; on a CPU only."""
    shapes = (images, 40, *image), (200, 40, *window), (200,)
    x, w, bias = (normal(rng, shape, dtype) for shape in shapes)
    given = [put(v, device) for v in (x, w, bias)]
    with kernels.trace() as trace:
        y = kernels.conv2d(*given, *options, backend="numba")
    launched = {family for family, _ in trace.rows}
    assert device != "cpu" or images > 1 or ("matmul" in launched) == (dtype != np.float16)
    expected = reference.conv2d(wide(x), wide(w), wide(bias), *options)
    scale = reference.conv2d(*(np.abs(wide(v)) for v in (x, w, bias)), *options)
    assert_close(y, expected, scale, terms=w[0].size)
    without = kernels.conv2d(*given[:2], None, *options, backend="numba")
    expected = reference.conv2d(wide(x), wide(w), None, *options)
    assert_close(without, expected, scale, terms=w[0].size)


ADDED_UP = [
    ((2, 2), (3, 3), ((1, 1), (1, 1), (1, 1))),
    ((5, 3), (3, 2), ((1, 1), (1, 0), (1, 1))),
    ((5, 4), (3, 3), ((2, 3), (1, 2), (1, 1))),
    ((9, 6), (2, 3), ((3, 2), (0, 3), (3, 2))),  # taps further apart than the stride
    ((8, 9), (2, 2), ((4, 3), (0, 0), (1, 1))),  # pixels in no window
]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "image, window, options, dtype",
    [(*case, dtype) for case in ADDED_UP for dtype in (np.float32, np.float64)]
    + [(*ADDED_UP[0], np.float16)],
)
def test_gradients_of_windows(device, image, window, options, dtype, biased, rng):
    """Where there are few windows, with many channels; on a CPU only."""
    shape = 3, 70, *image
    w, bias = normal(rng, (200, 70, *window), dtype), normal(rng, 70, dtype) if biased else None
    out = Geometry(shape, w.shape, *options, 1).out
    g = normal(rng, (3, 200, *out), dtype)
    given = *(put(v, device) for v in (g, w)), shape, *options, 1, biased and put(bias, device)
    given = given if biased else given[:-1]
    with kernels.trace() as trace:
        dx = kernels.conv2d_backward_data(*given, backend="numba")
    found = {version for _, version in trace.rows}
    assert device != "cpu" or ("fold" in found) == (dtype != np.float16)
    exact = [wide(g), wide(w), shape, *options, 1, wide(bias) if biased else None]
    expected = reference.conv2d_backward_data(*exact)
    scale = reference.conv2d_backward_data(*(np.abs(v) for v in exact[:2]), *exact[2:6])
    scale = scale + (np.abs(wide(bias)).reshape(-1, 1, 1) if biased else 0)
    assert_close(dx, expected, scale, terms=w[:, 0].size + 1)


def test_windows_of_few_channels_are_not_added_up(device, rng):
    """Patches as wide as their stride: a pixel has one window, among many that it might have."""
    x, w, g = (normal(rng, shape) for shape in ((8, 3, 64, 64), (192, 3, 16, 16), (8, 192, 4, 4)))
    with kernels.trace() as trace:
        given = put(g, device), put(w, device), x.shape, (16, 16)
        kernels.conv2d_backward_data(*given, backend="numba")
    assert "fold" not in {version for _, version in trace.rows}


FEW_PIXELS = [(4, 64, 2, 3), (2, 1100, 4, 4)]  # of 16 pixels, with many weights


@pytest.mark.parametrize("shape", [(1, 64, 7, 7), (3, 40, 4, 4), (2, 33, 5, 9), *FEW_PIXELS])
def test_one_pixel_kernels_are_products_of_images(device, shape, rng):
    """Also where an image has few pixels, if it has many channels; on a CPU only. Those of few
    pixels share a product."""
    outs = 256 if shape in FEW_PIXELS else 48
    x, w = normal(rng, shape), normal(rng, (outs, shape[1], 1, 1))
    g = normal(rng, (shape[0], outs, *shape[2:]))
    with kernels.trace() as trace:
        y = kernels.conv2d(put(x, device), put(w, device), backend="numba")
        dx = kernels.conv2d_backward_data(put(g, device), put(w, device), shape, backend="numba")
    expected = {"matmul", "transpose"} if shape in FEW_PIXELS else {"matmul"}
    assert device != "cpu" or {family for family, _ in trace.rows} == expected
    x, w, g = wide(x), wide(w), wide(g)
    scale = reference.conv2d(np.abs(x), np.abs(w), None)
    assert_close(y, reference.conv2d(x, w, None), scale, terms=shape[1])
    scale = reference.conv2d_backward_data(np.abs(g), np.abs(w), shape)
    assert_close(dx, reference.conv2d_backward_data(g, w, shape), scale, terms=outs)


def test_what_runs_for_one_input_channel_a_group(device, rng):
    if device == "gpu":
        pytest.skip("the versions of a CPU")
    is_wide = processor.vector_registers().floats >= 16
    for case, expected in {
        "depthwise": [{"plane"}],  # the gradient of the weights, too
        "depthwise_several": [{"plane", "tiled"}],
        "depthwise_stride": [{"tiled", "plane"}],  # forward, and the gradient by phases
        "depthwise_large": [{"tiled"}],
        "depthwise_phases": [{"tiled", "plane"}],
        "depthwise_5x5": [{"tiled" if is_wide else "plane"}],
    }.items():
        x, w, _, g, options = make(rng, case)
        with kernels.trace() as trace:
            kernels.conv2d(x, w, None, *options, backend="numba")
            kernels.conv2d_backward_data(g, w, x.shape, *options, backend="numba")
            if case == "depthwise":
                kernels.conv2d_backward_weight(g, x, w.shape, *options, backend="numba")
        found = {version for name, version in trace.rows if name.startswith("conv2d")}
        assert found & {"plane", "tiled", "direct", "implicit_gemm"} in expected, case


def check_forward(device, version, case, rng, dtype=np.float32):
    x, w, bias, _, options = make(rng, case, dtype)
    scale = reference.conv2d(abs(wide(x)), abs(wide(w)), None, *options) + 3
    for b in (None, bias) if case in ("groups", "depthwise") else (bias,):
        arrays = [None if a is None else put(a, device) for a in (x, w, b)]
        y = kernels.conv2d(*arrays, *options, backend="numba", version=version)
        wide_b = None if b is None else wide(b)
        expected = reference.conv2d(wide(x), wide(w), wide_b, *options)
        assert_close(y, expected, scale, terms=w[0].size)


@pytest.mark.few_on_gpu("registers")
@pytest.mark.parametrize("registers", [(16, 8), (32, 16)], ids=["avx2", "avx512"])
@pytest.mark.parametrize("case", ["3x3", "many_channels", "groups"])
def test_tiles_of_other_processors(device, registers, case, rng, monkeypatch):
    monkeypatch.setattr(processor, "vector_registers", lambda: processor.Registers(*registers))
    launchers = importlib.import_module("kernels.launchers.conv")
    monkeypatch.setattr(launchers, "_plans", Plans())
    check_forward(device, None, case, rng)
    test_backward_data(device, None, case, rng)
    test_backward_weight(device, None, case, rng)


@few
@pytest.mark.parametrize(("case", "version"), [*SHIPPED, *OTHERS])
def test_backward_data(device, version, case, rng):
    x, w, _, g, options = make(rng, case)
    dx = kernels.conv2d_backward_data(
        put(g, device), put(w, device), x.shape, *options, backend="numba", version=version
    )
    expected = reference.conv2d_backward_data(wide(g), wide(w), x.shape, *options)
    scale = reference.conv2d_backward_data(abs(wide(g)), abs(wide(w)), x.shape, *options)
    assert_close(dx, expected, scale, terms=w[:, 0].size)


@few
@pytest.mark.parametrize(("case", "version"), [*SHIPPED, *OF_WEIGHTS])
def test_backward_weight(device, version, case, rng):
    x, w, _, g, options = make(rng, case)
    dw = kernels.conv2d_backward_weight(
        put(g, device), put(x, device), w.shape, *options, backend="numba", version=version
    )
    expected = reference.conv2d_backward_weight(wide(g), wide(x), w.shape, *options)
    scale = reference.conv2d_backward_weight(abs(wide(g)), abs(wide(x)), w.shape, *options)
    assert_close(dw, expected, scale, terms=g[:, 0].size)


@pytest.mark.parametrize(
    ("case", "dtype", "biased"),
    [
        ("dilation", np.float64, False),
        ("dilation", np.float16, True),
        ("few_channels", np.float16, False),
        ("one_pixel", BFLOAT16, True),
        ("depthwise", BFLOAT16, True),
    ],
)
def test_dtypes(device, case, dtype, biased, rng):
    x, w, bias, g, options = make(rng, case, dtype)
    on_x, on_w, on_b, on_g = (put(a, device) for a in (x, w, bias, g))
    y = kernels.conv2d(on_x, on_w, on_b if biased else None, *options, backend="numba")
    assert y.dtype == dtype
    scale = reference.conv2d(abs(wide(x)), abs(wide(w)), None, *options) + 3
    expected = reference.conv2d(wide(x), wide(w), wide(bias) if biased else None, *options)
    assert_close(y, expected, scale, w[0].size)
    dx = kernels.conv2d_backward_data(on_g, on_w, x.shape, *options, backend="numba")
    expected = reference.conv2d_backward_data(wide(g), wide(w), x.shape, *options)
    assert_close(dx, expected, abs(expected).max(), w[:, 0].size)
    dw = kernels.conv2d_backward_weight(on_g, on_x, w.shape, *options, backend="numba")
    expected = reference.conv2d_backward_weight(wide(g), wide(x), w.shape, *options)
    assert_close(dw, expected, abs(expected).max(), g[:, 0].size)


@pytest.mark.parametrize("case", ["many_channels", "everything", "no_padding"])
def test_sums_rows_and_images_in_parts(device, case, rng, monkeypatch):
    """A batch larger than one sum, than the grid of one launch, and than what is worked on together
    (of three images first one, then two)."""
    monkeypatch.setattr(conv_batch, "SPAN", 50)
    monkeypatch.setattr(importlib.import_module("kernels.launchers.conv_planes"), "PART", 700)
    monkeypatch.setattr(conv_batch, "MAX_GRID_YZ", 1)
    launchers = importlib.import_module("kernels.launchers.conv")
    monkeypatch.setattr(launchers, "_plans", Plans())
    test_forward(device, "batch_gemm", case, rng)
    test_backward_data(device, "batch_gemm", case, rng)
    test_backward_weight(device, "batch_gemm", case, rng)
    trace = dispatch.Trace()
    with dispatch.tracing(trace):
        test_backward_weight(device, "implicit_gemm", case, rng)
    if device == "cpu":
        parts = 1 if CASES[case][0][0] == 1 else 2
        assert trace.rows["conv2d_backward_weight", "implicit_gemm"][0] == parts


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("padding", [(0, 0), (2, 1)])
@pytest.mark.parametrize("shape", [(1, 17, 20), (5, 3, 4), (3, 40, 9)])
@pytest.mark.parametrize("threads", [1, 3])
def test_tiles_of_results_in_parts(device, threads, shape, padding, backend, rng, monkeypatch):
    """Parts of images and parts of an image, not all of the same size, and the images of a part in
    a group for each thread."""
    winograd = importlib.import_module("kernels.launchers.conv_winograd")
    parts = (("PART", 30_000), ("SUMMED", 60_000), ("GPU_PART", 30_000), ("LEAST", 8), ("FEW", 1))
    for name, value in parts:
        monkeypatch.setattr(winograd, name, value)
    monkeypatch.setattr(thread_pool.wanted, "value", threads)
    products, matmul = set(), winograd.matmul

    def seen(dialect, u, v):
        products.add(len(u))
        return matmul(dialect, u, v)

    monkeypatch.setattr(winograd, "matmul", seen)
    monkeypatch.setattr(importlib.import_module("kernels.launchers.conv"), "_plans", Plans())
    images, height, width = shape
    x, w = normal(rng, (images, 7, height, width)), normal(rng, (9, 7, 3, 3))
    bias, how = normal(rng, 9), {"backend": backend, "version": "winograd"}
    expected = reference.conv2d(wide(x), wide(w), wide(bias), (1, 1), padding)
    g = normal(rng, expected.shape)
    on_x, on_w, on_bias, on_g = (put(a, device) for a in (x, w, bias, g))
    y = kernels.conv2d(on_x, on_w, on_bias, (1, 1), padding, **how)
    assert_close(y, expected, abs(expected).max(), 63)
    dx = kernels.conv2d_backward_data(on_g, on_w, x.shape, (1, 1), padding, **how)
    expected = reference.conv2d_backward_data(wide(g), wide(w), x.shape, (1, 1), padding)
    assert_close(dx, expected, abs(expected).max(), 81)
    grouped = threads if device == "cpu" and backend == "numba" and images == 3 else 1
    assert max(products) == 16 * grouped
    dw = kernels.conv2d_backward_weight(on_g, on_x, w.shape, (1, 1), padding, **how)
    expected = reference.conv2d_backward_weight(wide(g), wide(x), w.shape, (1, 1), padding)
    assert_close(dw, expected, abs(expected).max(), g[:, 0].size)


@pytest.mark.parametrize("images", [4, 5])
def test_gradients_of_weights_are_the_same_with_any_number_of_threads(
    device, images, rng, monkeypatch
):
    """Two groups of images have sums of their own, which one thread takes one after the other."""
    if device != "cpu":
        pytest.skip("a GPU needs no groups")
    winograd, found, groups = importlib.import_module("kernels.launchers.conv_winograd"), [], []
    for name, value in ("SUMMED", 30_000), ("LEAST", 8):  # of one image
        monkeypatch.setattr(winograd, name, value)
    matmul = winograd.matmul

    def seen(dialect, u, v):
        groups[-1].append(len(u) // 16)
        return matmul(dialect, u, v)

    monkeypatch.setattr(winograd, "matmul", seen)
    x, g = normal(rng, (images, 7, 11, 12)), normal(rng, (images, 9, 9, 10))
    for threads in (1, 2, 3):
        monkeypatch.setattr(importlib.import_module("kernels.launchers.conv"), "_plans", Plans())
        monkeypatch.setattr(thread_pool.wanted, "value", threads)
        groups.append([])
        how = {"backend": "numba", "version": "winograd"}
        found.append(kernels.conv2d_backward_weight(g, x, (9, 7, 3, 3), (1, 1), (0, 0), **how))
    last = [1] * (images % 2)
    assert groups == [[1] * images, [2, 2, *last], [2, 2, *last]]
    expected = reference.conv2d_backward_weight(wide(g), wide(x), (9, 7, 3, 3), (1, 1), (0, 0))
    assert_close(found[0], expected, abs(expected).max(), g[:, 0].size)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_what_runs_for_many_channels(device, rng):
    if device != "cpu":
        pytest.skip("GPUs have their own choice")
    assert ran_for(rng, (1, 64, 56, 56), (64, 64, 3, 3)) == ["winograd"] * 3
    assert ran_for(rng, (4, 64, 8, 8), (64, 64, 3, 3)) == ["batch_gemm"] * 3  # few tiles a row
    assert "winograd" not in ran_for(rng, (1, 64, 56, 56), (64, 64, 3, 3), stride=(2, 2))
    assert "winograd" not in ran_for(rng, (1, 64, 20, 20), (64, 64, 5, 5))
    half = ran_for(rng, (1, 64, 56, 56), (64, 64, 3, 3), dtype=np.float16)
    assert "winograd" not in half  # sums of 16-bit numbers would be rounded before the last step


def ran_for(rng, x_shape, w_shape, dtype=np.float32, stride=(1, 1)) -> list[str]:
    """The versions that run for a convolution with padding 1, and for its gradients."""
    x, w, found = normal(rng, x_shape, dtype), normal(rng, w_shape, dtype), []
    options = {"stride": stride, "padding": (1, 1), "backend": "numba"}
    y = kernels.conv2d(x, w, **options)
    for run in (
        lambda: kernels.conv2d(x, w, **options),
        lambda: kernels.conv2d_backward_data(y, w, x_shape, **options),
        lambda: kernels.conv2d_backward_weight(y, x, w_shape, **options),
    ):
        with kernels.trace() as trace:
            run()
        own = {version for name, version in trace.rows if name.startswith("conv2d")}
        found += sorted(own - {"pad", "weights", "inputs", "gradients", "swap_channels"})
    return found


def test_an_infinite_element_reaches_the_results_of_its_tiles_alone(device, rng):
    x, w = normal(rng, (1, 2, 8, 8)), normal(rng, (3, 2, 3, 3))
    x[0, 1, 2, 2] = np.inf  # in the windows of the results from 1 to 3, down and across
    y = kernels.conv2d(put(x, device), put(w, device), padding=(1, 1), version="winograd")
    bad = ~np.isfinite(get(y))
    assert bad[:, :, 1:4, 1:4].all()
    assert not bad[:, :, 4:].any()
    assert not bad[:, :, :, 4:].any()


@pytest.mark.parametrize("version", ["batch_gemm", "winograd"])
def test_shared_memory_has_no_races(device, version, rng):
    """More terms than a tile: the next one is filled after all have read this one."""
    if device != "cpu":
        pytest.skip("the lab records on the CPU")
    stride = (2, 2) if version == "batch_gemm" else (1, 1)
    x, w = normal(rng, (1, 8, 4, 5)), normal(rng, (3, 8, 3, 3))
    options, how = (stride, (1, 1)), {"backend": "numba", "version": version}
    with lab.profiled() as launches:
        y = kernels.conv2d(x, w, None, *options, **how)
        kernels.conv2d_backward_data(y, w, x.shape, *options, **how)
        kernels.conv2d_backward_weight(y, x, w.shape, *options, **how)
    assert sum(launch.version == version for launch in launches) == 1 + 1 + 1
    assert not any(launch.report.races or launch.report.errors for launch in launches)


@pytest.mark.parametrize(
    ("width", "groups", "threads"), [(8, 1, (8, 5)), (9, 1, (16, 5)), (9, 3, (16, 1))]
)
def test_tiles_of_narrow_images_and_of_one_channel(device, width, groups, threads, rng):
    """With a stride, whose phases are brought together between barriers, for each channel. A thread
    has the results of all rows, where it has those of one channel."""
    if device != "cpu":
        pytest.skip("the lab records on the CPU")
    x, w = normal(rng, (2, 3, 9, 2 * width)), normal(rng, (3, 3 // groups, 3, 5))
    options = (2, 2), (1, 2), (1, 1), groups
    with lab.profiled() as launches:
        y = kernels.conv2d(x, w, None, *options, backend="numba", version="tiled")
    (launch,) = launches
    assert launch.report.block[:2] == threads
    assert not (launch.report.races or launch.report.errors)
    assert_close(y, reference.conv2d(wide(x), wide(w), None, *options), 40)


def test_views(device, rng):
    x = put(normal(rng, (9, 8, 2, 5)), device).transpose(2, 3, 0, 1)
    w = put(normal(rng, (3, 3, 6, 5)), device).transpose(2, 3, 0, 1)
    y = kernels.conv2d(x, w, padding=(1, 1), backend="numba")
    assert_close(y, reference.conv2d(wide(x), wide(w), None, (1, 1), (1, 1)), 40)


def test_one_number_serves_as_a_pair(device, rng):
    x, w = put(normal(rng, (2, 3, 9, 9)), device), put(normal(rng, (4, 3, 3, 3)), device)
    expected = kernels.conv2d(x, w, None, (2, 2), (1, 1))
    assert (kernels.conv2d(x, w, None, 2, 1) == expected).all()
    assert (kernels.conv2d(x, w, padding=1, stride=2) == expected).all()
    assert (kernels.avg_pool2d(x, 2, 1) == kernels.avg_pool2d(x, (2, 2), (1, 1))).all()


def test_errors(device, rng):
    def conv(x_shape, w_shape, **options):
        x, w = put(normal(rng, x_shape), device), put(normal(rng, w_shape), device)
        return kernels.conv2d(x, w, backend="numba", **options)

    with pytest.raises(ValueError, match="do not fit groups=1"):
        conv((1, 3, 8, 8), (4, 2, 3, 3))
    with pytest.raises(ValueError, match="expected images of at least one pixel"):
        conv((1, 2, 0, 8), (4, 2, 3, 3), padding=(2, 2))
    with pytest.raises(ValueError, match="larger than the padded input"):
        conv((1, 2, 2, 8), (4, 2, 3, 3))
    with pytest.raises(ValueError, match="must be positive"):
        conv((1, 2, 8, 8), (4, 2, 3, 3), stride=(0, 1))
    with pytest.raises(ValueError, match=r"expected x \(N, C, H, W\)"):
        conv((2, 8, 8), (4, 2, 3, 3))
    with pytest.raises(ValueError, match="expected a version"):
        conv((1, 2, 8, 8), (4, 2, 3, 3), version="fft")
    with pytest.raises(ValueError, match="'winograd' takes kernels of 3 x 3 with stride 1"):
        conv((1, 2, 8, 8), (4, 2, 3, 3), version="winograd", dilation=(2, 2))
    with pytest.raises(ValueError, match="'plane' takes one input channel a group"):
        conv((1, 2, 8, 8), (4, 2, 3, 3), version="plane")
    with pytest.raises(ValueError, match="for gradients one output channel, too"):
        x, g = normal(rng, (1, 2, 8, 8)), normal(rng, (1, 4, 6, 6))
        kernels.conv2d_backward_weight(
            put(g, device), put(x, device), (4, 1, 3, 3), groups=2, version="plane"
        )
    with pytest.raises(ValueError, match="planes that fit in 24 KB, not 80 x 81"):
        conv((1, 2, 80, 81), (2, 1, 3, 3), groups=2, version="plane")
    with pytest.raises(ValueError, match="'few_channels' takes what fits in 48 KB of shared"):
        conv((1, 128, 8, 8), (4, 128, 3, 3), version="few_channels")
    with pytest.raises(ValueError, match="bias of shape"):
        conv((1, 2, 8, 8), (4, 2, 3, 3), bias=put(normal(rng, 5), device))
    with pytest.raises(TypeError, match="one dtype"):
        x, w = normal(rng, (1, 2, 8, 8)), normal(rng, (4, 2, 3, 3), np.float64)
        kernels.conv2d(put(x, device), put(w, device), backend="numba")
    with pytest.raises(ValueError, match="gradient of shape"):
        g, w = (put(normal(rng, s), device) for s in [(1, 4, 5, 5), (4, 2, 3, 3)])
        kernels.conv2d_backward_data(g, w, (1, 2, 8, 8), backend="numba")


def prefer(monkeypatch, wanted: Callable[[Layout], bool]) -> None:
    """Choose the layouts of batch_gemm that are wanted, where there are any."""
    monkeypatch.setattr(conv_costs, "_of_layout", lambda _1, _2, layout, *_: not wanted(layout))
    monkeypatch.setattr(importlib.import_module("kernels.launchers.conv"), "_plans", Plans())


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("padded", list(itertools.product((True, False), repeat=2)))
def test_layouts(device, padded, backend, rng, monkeypatch):
    """Products with padding, and in pieces that read none, along either axis."""
    if device == "gpu":
        pytest.skip("on a CPU")
    prefer(monkeypatch, lambda layout: layout == Layout(padded))
    monkeypatch.setattr(conv_tables, "TOGETHER", 700)  # the images of some cases take turns
    monkeypatch.setattr(conv_tables, "LEAST_ROWS", 1)
    how = {"backend": backend, "version": "batch_gemm"}
    for case in ("3x3", "many_channels", "dilation", *BATCH):
        x, w, bias, g, options = make(rng, case)
        with kernels.trace() as trace:
            y = kernels.conv2d(x, w, bias, *options, **how)
            dx = kernels.conv2d_backward_data(g, w, x.shape, *options, **how)
            dw = kernels.conv2d_backward_weight(g, x, w.shape, *options, **how)
        if padded == (False, False):
            assert not any(version == "pad" for _, version in trace.rows), case
        x, w, bias, g = map(wide, (x, w, bias, g))
        assert_close(y, reference.conv2d(x, w, bias, *options), 100, w[0].size)
        expected = reference.conv2d_backward_data(g, w, x.shape, *options)
        assert_close(dx, expected, 100, w[:, 0].size)
        expected = reference.conv2d_backward_weight(g, x, w.shape, *options)
        assert_close(dw, expected, 1000, g[:, 0].size)


@pytest.mark.parametrize("of", [of_outputs, of_weights, of_inputs])
@pytest.mark.parametrize("case", CASES)
def test_pieces_have_each_term_once(device, case, of, rng):
    """Without padding, what a piece reads is in x, or g, and is all that a result is a sum of."""
    if device == "gpu":
        pytest.skip("the same tables")
    geo = Geometry(*CASES[case])
    tables = Tables(of(geo), Layout((False, False)))
    left = geo.x_shape if of is not of_inputs else (geo.x_shape[0], geo.w_shape[0], *geo.out)
    read, places = np.zeros(math.prod(left), int), []
    for (rows, terms), size in zip(tables.pieces(), tables.sizes(), strict=left[0] > 0):
        assert (rows.left.size, terms.left.size) == (size.rows, size.terms)
        np.add.at(read, rows.left[:, None].astype(int) + terms.left, 1)
        places += [*rows.other]
    options = geo.stride, geo.padding, geo.dilation
    one = np.ones((1, 1, *geo.w_shape[2:]))
    g, x = np.ones((left[0], 1, *geo.out)), np.ones((left[0], 1, *geo.x_shape[2:]))
    expected = {of_inputs: reference.conv2d(x, one, None, *options)}.get(of)
    if expected is None:
        expected = reference.conv2d_backward_data(g, one, x.shape, *options)
    first = geo.channels[of is of_inputs]  # channels of the first group
    found = read.reshape(left)
    assert (found[:, :first] == expected).all() and not found[:, first:].any()
    count = {of_outputs: g.size, of_inputs: x.size, of_weights: geo.w_shape[1] * one.size}[of]
    assert len(set(places)) == len(places) == (count if left[0] or of is of_weights else 0)


@pytest.mark.parametrize("together", [1, 2, 5])
def test_entries_have_each_row_and_term_once(device, together, monkeypatch):
    """Images in turns, sums in splits, and more rows than a grid has tiles for."""
    if device == "gpu":
        pytest.skip("the same tables")
    monkeypatch.setattr(conv_batch, "MAX_GRID_YZ", 2)
    geo = Geometry((5, 3, 6, 5), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    pieces = Tables(of_outputs(geo), Layout((False, False))).pieces()
    turns = [
        conv_batch.Turn(first, min(first + together, 5), 5, 0, split, 2, 1000)
        for split in range(2)
        for first in range(0, 5, together)
    ]
    rows, terms = (sum(side.left.size for side in kind) for kind in zip(*pieces, strict=True))
    done = np.zeros((rows, terms), int)
    for height, entries in conv_batch._by_height(pieces, turns, 8).items():
        for first, end, term, last, column, place in entries:
            assert -(-(end - first) // 8) == height <= 2 and column == 0 and place in (0, 1000)
            done[first:end, term:last] += 1
    expected, row, term = np.zeros_like(done), 0, 0
    for side, other in pieces:
        expected[row : row + side.left.size, term : term + other.left.size] = 1
        row, term = row + side.left.size, term + other.left.size
    np.testing.assert_array_equal(done, expected)


@pytest.mark.parametrize("images", [1, 2, 3, 8, 9, 32])
def test_parts_have_each_image_once_and_even_numbers_where_they_can(device, images, monkeypatch):
    planes = importlib.import_module("kernels.launchers.conv_planes")
    monkeypatch.setattr(planes, "PART", 100)
    geo = Geometry((images, 1, 4, 4), (1, 1, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    for floats in (1, 30, 45, 100, 1000):
        parts = planes.images_in_parts(geo, floats, False, lambda part: part.x_shape[0])
        sizes = [some.stop - some.start for some, _ in parts]
        assert [number for _, number in parts] == sizes and 0 not in sizes
        assert [some.start for some, _ in parts] == [sum(sizes[:i]) for i in range(len(sizes))]
        assert sum(sizes) == images
        assert len(parts) == min(images, -(-images * floats // 100))
        if images % 2 == 0 and 2 * len(parts) <= images:
            assert not any(number % 2 for number in sizes)


DW, DX = "conv2d_backward_weight", "conv2d_backward_data"
PAIRS = {
    "k4_s2": ((3, 5, 8, 12), (33, 5, 4, 4), (2, 2), (1, 1), (1, 1), 1),
    "k2_s1": ((2, 6, 7, 7), (8, 3, 2, 2), (1, 1), (0, 1), (1, 1), 2),
    "k6_s3": ((2, 4, 9, 15), (5, 4, 3, 6), (2, 3), (0, 0), (1, 1), 1),
    "odd": ((2, 4, 9, 13), (5, 4, 4, 4), (2, 2), (0, 0), (1, 1), 1),
    "other_taps": ((2, 4, 9, 12), (5, 4, 3, 3), (2, 2), (1, 1), (1, 1), 1),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("case", PAIRS)
def test_windows_that_share_half(device, case, axis, backend, dtype, rng, monkeypatch):
    """Three products for four, in parts of the images and of the sums."""
    if device == "gpu":
        pytest.skip("on a CPU")
    prefer(monkeypatch, lambda layout: layout.paired == axis)
    monkeypatch.setattr(conv_batch, "SPAN", 20)
    monkeypatch.setattr(importlib.import_module("kernels.launchers.conv_planes"), "PART", 900)
    monkeypatch.setitem(CASES, case, PAIRS[case])
    x, w, bias, g, options = make(rng, case, dtype)
    how = {"backend": backend, "version": "batch_gemm"}
    shared = []
    for name, *given in ("conv2d", x, w, bias), (DW, g, x, w.shape), (DX, g, w, x.shape):
        with kernels.trace() as trace:
            shared.append(getattr(kernels, name)(*given, *options, **how))
        stride, size = options[0][axis], x.shape[2 + axis] if name == DX else g.shape[2 + axis]
        pairs = w.shape[2 + axis] == 2 * stride and size % (2 * stride if name == DX else 2) == 0
        assert ("pointwise.sub" in {row for row, _ in trace.rows}) == pairs
    y, dw, dx = shared
    (x, w, bias, g), scaled = map(wide, (x, w, bias, g)), [abs(wide(v)) for v in (x, w, g)]
    terms = w[:, 0].size
    scale = reference.conv2d_backward_data(scaled[2], scaled[1], x.shape, *options) + 3
    assert_close(dx, reference.conv2d_backward_data(g, w, x.shape, *options), 3 * scale, terms)
    terms = w[0].size
    scale = reference.conv2d(*scaled[:2], None, *options) + 3
    assert_close(y, reference.conv2d(x, w, bias, *options), 3 * scale, terms)
    scale = reference.conv2d_backward_weight(scaled[2], scaled[0], w.shape, *options)
    terms = g[:, 0].size
    assert_close(dw, reference.conv2d_backward_weight(g, x, w.shape, *options), 3 * scale, terms)
