"""Matrix multiplication: every version against float64, at shapes that straddle the tiles."""

from __future__ import annotations

import importlib
import inspect
import itertools

import numpy as np
import pytest

import kernels
from kernels.launchers import versions
from kernels.launchers.matmul import IN_ORDER, Product
from kernels.support import processor
from tests.kernels.helpers import BFLOAT16, DEVICES, assert_close, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)
RANKS = tuple(v for v in versions("numba", "matmul") if not v.startswith("matvec"))
SHAPES = [(1, 1, 1), (31, 33, 32), (33, 31, 65), (5, 0, 3), (0, 4, 5), (130, 17, 127), (2, 257, 3)]


def check(device, a, b, bias=None, version=None) -> None:
    """kernels.matmul against NumPy in float64; the views are made on the device."""
    arrays = [put(v.base, device).T if v.base is not None else put(v, device) for v in (a, b)]
    on_device = None if bias is None else put(bias, device)
    y = kernels.matmul(*arrays, on_device, backend="numba", version=version)
    expected, scale = wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b))
    if bias is not None:
        expected, scale = expected + wide(bias), scale + np.abs(wide(bias))
    assert y.dtype == a.dtype
    if a.dtype.kind in "iu":  # integers wrap
        expected = wide(expected.astype(a.dtype))
    assert_close(y, expected, scale, terms=a.shape[-1])


@pytest.mark.parametrize("version", RANKS)
def test_versions(device, version, rng):
    for m, k, n in SHAPES:
        check(device, normal(rng, (m, k)), normal(rng, (k, n)), version=version)


@pytest.mark.parametrize("version", RANKS)
def test_transposed_operands_and_bias(device, version, rng):
    for m, k, n in [(33, 65, 31), (70, 9, 130)]:
        a, b = normal(rng, (k, m)).T, normal(rng, (n, k)).T
        check(device, a, b, normal(rng, n), version=version)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_shipped_layouts(device, trans_a, trans_b, rng):
    m, k, n = 129, 100, 61
    a = normal(rng, (k, m)).T if trans_a else normal(rng, (m, k))
    b = normal(rng, (n, k)).T if trans_b else normal(rng, (k, n))
    check(device, a, b)
    if trans_a == trans_b:
        check(device, a, b, normal(rng, n))


@pytest.mark.parametrize("shape", [(31, 33, 32), (257, 64, 33), (9, 1025, 130)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_versions_that_add_in_order_give_the_same_bits(device, shape, dtype, rng):
    """So one may run for the other, while that is compiled, on a CPU."""
    if device != "cpu":
        pytest.skip("no kernel runs for another on a GPU")
    m, k, n = shape
    a, b, bias = (normal(rng, s, dtype) for s in ((m, k), (k, n), (n,)))
    nothing = np.full(n, -0.0, dtype)
    a[0], b[:, 0] = -np.finfo(dtype).tiny, np.finfo(dtype).tiny  # a sum that rounds to -0
    for with_bias, sums in ((None, []), (bias, [])):
        for version, ta, tb in itertools.product(IN_ORDER, (False, True), (False, True)):
            left = a.T.copy().T if ta else a
            right = b.T.copy().T if tb else b
            for one in (None, nothing) if with_bias is None else (bias,):
                y = kernels.matmul(left, right, one, backend="numba", version=version)
                sums.append(y.view(np.uint8))
        assert all(np.array_equal(sums[0], other) for other in sums[1:])


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 255, 1), (32, 10, 1), (257, 1025, 1)])
def test_matrix_vector(device, shape, rng):
    m, k, n = shape
    for a in (normal(rng, (m, k)), normal(rng, (k, m)).T):
        check(device, a, normal(rng, (k, n)), version="matvec")
        check(device, a, normal(rng, (k, n)), normal(rng, n))


@pytest.mark.parametrize("n", [2, 3, 5, 7, 8])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_few_columns(device, n, trans_a, trans_b, rng):
    """What is picked, and a warp for each element."""
    for m, k in ((1, 33), (2, 31), (5, 1), (5, 128), (17, 3), (33, 65), (70, 32), (257, 0)):
        a = normal(rng, (k, m)).T if trans_a else normal(rng, (m, k))
        b = normal(rng, (n, k)).T if trans_b else normal(rng, (k, n))
        check(device, a, b)
        check(device, a, b, normal(rng, n))
        if n < 8:
            check(device, a, b, normal(rng, n), version="matvec")


def test_few_columns_in_a_batch(device, rng):
    for m, k, n in ((2, 2, 2), (3, 3, 3), (8, 8, 2), (16, 4, 16), (40, 33, 3)):
        a, b = normal(rng, (5, m, k)), normal(rng, (5, k, n))
        for left, right in itertools.product((a, a[:1]), (b, b[:1])):
            for one, two in itertools.product((False, True), repeat=2):
                given = [
                    np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) if across else x
                    for x, across in ((left, one), (right, two))
                ]
                y = kernels.matmul(*(put(x, device) for x in given), backend="numba")
                assert_close(y, wide(left) @ wide(right), np.abs(left) @ np.abs(right), terms=k)


@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_few_long_rows(device, m, rng):
    a, b, bias = normal(rng, (m, 300)), normal(rng, (70, 300)).T, normal(rng, 70)
    for version in (None, "matvec"):
        check(device, a, b, version=version)
        check(device, a, b, bias, version=version)


@pytest.mark.parametrize(("floats", "few"), [(16, 2), (8, 4)])
def test_few_long_rows_take_a_warp_for_each_result(device, floats, few, monkeypatch):
    """On a CPU only."""
    monkeypatch.setattr(processor, "vector_registers", lambda: processor.Registers(32, floats))
    pick = importlib.import_module("kernels.numba_cuda.matmul").pick
    cc = None if device == "cpu" else (8, 0)
    for m, k, trans_b, chosen in [
        (2, 256, True, "matvec"),
        (few, 256, True, "matvec"),
        (few + 1, 256, True, "short"),
        (few, 255, True, "short"),
        (few, 256, False, "thin"),
    ]:
        found = pick(Product(np.dtype(np.float32), m, 70, k, False, trans_b, cc))
        assert found == chosen or (cc and found in ("coalesced", "register_2d"))


@pytest.mark.parametrize(
    "shape", [(1, 1025, 7), (1, 3, 1), (32, 1, 10), (10, 32, 1), (1, 1, 300), (300, 2, 300)]
)
def test_skinny(device, shape, rng):
    m, k, n = shape
    check(device, normal(rng, (m, k)), normal(rng, (k, n)), normal(rng, n))
    check(device, normal(rng, (k, m)).T, normal(rng, (n, k)).T)


@pytest.mark.parametrize("dtype", [np.float64, BFLOAT16, np.int64])
def test_dtypes(device, dtype, rng):
    check(device, normal(rng, (33, 40), dtype), normal(rng, (40, 35), dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.uint8])
def test_dtypes_of_small_products(device, dtype, rng):
    check(device, normal(rng, (3, 5), dtype), normal(rng, (5, 2), dtype), normal(rng, 2, dtype))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 33, 20), (3, 20, 9)),
        ((3, 33, 20), (20, 17)),
        ((2, 1, 5, 3), (4, 3, 6)),
        ((17, 16), (5, 16, 40)),
        ((1, 17, 16), (5, 16, 40)),
        ((0, 4, 3), (3, 2)),
        ((2, 3, 40, 20), (2, 3, 20, 40)),
    ],
)
def test_batches_broadcast(device, left, right, rng):
    a, b = normal(rng, left), normal(rng, right)
    check(device, a, b)
    swapped = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    y = kernels.matmul(put(a, device), put(swapped, device), backend="numba")
    assert_close(y, wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b)), terms=left[-1])


def test_strided_views(device, rng):
    a, b = put(normal(rng, (70, 90)), device), put(normal(rng, (90, 80)), device)
    for left, right in [(a[::2, ::-1], b), (a[:, 5:50], b[5:50, ::3]), (a[3:, 1::2], b[::2])]:
        y = kernels.matmul(left, right, backend="numba")
        assert_close(y, wide(left) @ wide(right), 90)


def test_many_batches(device, rng):
    a, b = normal(rng, (65537, 2, 3)), normal(rng, (65537, 3, 1))
    check(device, a, b)


def test_infinities_stay_in_their_row(device, rng):
    a, b = normal(rng, (40, 40)), normal(rng, (40, 40))
    a[7, 3] = np.inf
    y = get(kernels.matmul(put(a, device), put(b, device), backend="numba"))
    assert np.isinf(y[7]).all()
    assert np.isfinite(np.delete(y, 7, 0)).all()


def test_errors(device, rng):
    a, b = (put(normal(rng, s), device) for s in [(32, 10), (12, 64)])
    with pytest.raises(ValueError, match=r"inner dimensions differ: \(32, 10\) @ \(12, 64\)"):
        kernels.matmul(a, b, backend="numba")
    with pytest.raises(ValueError, match="transpose the right operand"):
        kernels.matmul(a, put(normal(rng, (64, 10)), device), backend="numba")
    with pytest.raises(ValueError, match="reshape vectors"):
        kernels.matmul(a, b[0], backend="numba")
    with pytest.raises(ValueError, match="bias of shape"):
        kernels.matmul(b, b.T, put(normal(rng, 3), device), backend="numba")
    with pytest.raises(TypeError, match="float32 and float64"):
        kernels.matmul(b, b.T.astype(np.float64), backend="numba")
    with pytest.raises(ValueError, match="batches do not broadcast"):
        batches = [put(normal(rng, (n, 2, 2)), device) for n in (2, 3)]
        kernels.matmul(*batches, backend="numba")
    for given in ((b, [[1.0]]), ([[1.0]], b)):
        with pytest.raises(TypeError, match=r"expected arrays .* got .*list.*; pass numpy.asarray"):
            kernels.matmul(*given, backend="numba")
    with pytest.raises(ValueError, match="expected a version"):
        kernels.matmul(b, b.T, backend="numba", version="fast")
    with pytest.raises(ValueError, match="'numpy' has no versions"):
        kernels.matmul(b, b.T, backend="numpy", version="naive")
    assert "backend" in inspect.signature(kernels.matmul).parameters  # as help() shows it
    with pytest.raises(ValueError, match="needs n <= 7, got n == 12"):
        kernels.matmul(b, b.T, backend="numba", version="matvec")


def test_few_rows_take_short_blocks(device):
    """Products of few rows, as in generating one token after another; on a CPU only."""
    pick = importlib.import_module("kernels.numba_cuda.matmul").pick
    cc = None if device == "cpu" else (8, 0)
    for m, n, chosen in [
        (1, 64, "short"),
        (10, 10, "short"),
        (24, 17, "short"),
        (32, 64, "short"),  # as many tiles as `tiled`
        (32, 31, "tiled"),
        (33, 64, "short"),  # 5 tiles of 8 rows, not 2 of 32
        (56, 64, "short"),
        (57, 64, "tiled"),
        (64, 64, "tiled"),
        (112, 64, "short"),
        (120, 64, "tiled"),
        (129, 64, "tiled"),
        (2, 4, "matvec"),
    ]:
        found = pick(Product(np.dtype(np.float32), m, n, 33, False, True, cc))
        assert found == chosen or (cc and found in ("coalesced", "register_2d"))
    if cc is None:
        found = [pick(Product(np.dtype(np.float32), m, 64, 33, True, False, cc)) for m in (24, 33)]
        assert found == ["short", "tiled"]  # loads a along its rows


@pytest.mark.parametrize("floats", [8, 16])
def test_thin_products_make_no_tile_of_b(device, floats, monkeypatch):
    """Where b lies in rows that mostly fill blocks; on a CPU only."""
    monkeypatch.setattr(processor, "vector_registers", lambda: processor.Registers(32, floats))
    pick = importlib.import_module("kernels.numba_cuda.matmul").pick
    cc = None if device == "cpu" else (8, 0)
    for m, n, trans_b, chosen in [
        (1, 1000, False, "thin"),
        (16, 64, False, "thin"),
        (17, 64, False, "short"),
        (16, 64, True, "short"),
        # most columns are in a block that is not full
        (9, 100, False, "short" if floats == 16 else "tiled"),
        (9, 96, False, "short"),
        (16, 1024, False, "thin" if floats == 16 else "short"),  # rows of b in the same lines
        (4, 100, False, "thin"),
        (8, 1000, False, "thin"),
        (2, 10, False, "thin"),
        (3, 10, False, "short" if floats == 16 else "thin"),
        (8, 16, False, "thin"),
        (128, 17, False, "tiled"),
    ]:
        found = pick(Product(np.dtype(np.float32), m, n, 33, False, trans_b, cc))
        assert found == chosen or (cc and found in ("coalesced", "register_2d"))


@pytest.mark.parametrize("floats", [8, 16])
def test_few_columns_take_narrow_tiles(device, floats, monkeypatch):
    """Where tiles of 32 would leave half of one empty; on a CPU only."""
    monkeypatch.setattr(processor, "vector_registers", lambda: processor.Registers(32, floats))
    pick = importlib.import_module("kernels.numba_cuda.matmul").pick
    cc, masks = None if device == "cpu" else (8, 0), floats == 16
    for m, n, k, trans_a, chosen in [
        (128, 10, 256, False, "narrow"),
        (64, 10, 64, False, "tiled"),  # little work, with a kernel that others have
        (11, 10, 2000, False, "narrow"),
        (10, 10, 2000, False, "short" if masks else "tiled"),
        (1024, 6, 16, False, "narrow"),
        (16, 16, 1024, True, "narrow" if masks else "naive"),
        (16, 16, 33, True, "naive"),
        (2048, 48, 48, False, "narrow"),
        (2048, 48, 16, False, "narrow" if masks else "tiled"),
        (2048, 40, 48, False, "narrow" if masks else "tiled"),
        (2048, 64, 48, False, "tiled"),
        (2000, 112, 48, True, "narrow"),
        (2000, 176, 48, False, "narrow" if masks else "tiled"),
        (2000, 208, 48, False, "tiled"),
        (2000, 48, 2048, False, "tiled"),  # rows of a in the same lines of a cache
        (2048, 48, 48, True, "tiled"),
        (2048, 16, 2048, False, "narrow"),
    ]:
        found = pick(Product(np.dtype(np.float32), m, n, k, trans_a, False, cc))
        assert found == chosen or (cc and found in ("coalesced", "register_2d"))


@pytest.mark.parametrize(("number", "floats"), [(32, 16), (16, 8)])
def test_small_products_of_a_batch_are_a_block_each(device, number, floats, monkeypatch):
    """Whatever is transposed, which their size and a batch with few decide on."""
    registers = processor.Registers(number, floats)
    monkeypatch.setattr(processor, "vector_registers", lambda: registers)
    low = "short" if registers.have_masks else "tiled"
    pick = importlib.import_module("kernels.numba_cuda.matmul").pick
    cc = None if device == "cpu" else (8, 0)
    for m, k, n, trans_b, batch, chosen in [
        (8, 8, 8, True, 16, "coalesced"),
        (8, 8, 8, True, 15, "short"),
        (32, 8, 32, False, 16, "coalesced"),
        (33, 8, 32, False, 16, "short"),
        (4, 17, 4, True, 16, "matvec"),
        (4, 9, 4, True, 16, "coalesced"),
        (5, 9, 5, True, 16, "matvec"),  # no kernel for each length of a text
        (32, 32, 32, True, 16, "short"),
        (16, 32, 16, True, 16, "narrow"),
        (16, 31, 16, True, 16, "coalesced"),
        (16, 32, 17, False, 16, low),
        (16, 8, 9, False, 16, low),
        (16, 8, 9, False, 64, "narrow"),
    ]:
        found = pick(Product(np.dtype(np.float32), m, n, k, False, trans_b, cc, batch=batch))
        assert found == chosen or (cc and found in ("coalesced", "register_2d"))


def test_small_products_of_a_batch(device, rng):
    """Whatever is transposed; a shared factor."""
    for m, k, n in ((3, 3, 3), (4, 9, 1), (8, 20, 8), (32, 5, 16), (2, 1, 4), (5, 8, 17)):
        a, b, bias = normal(rng, (17, m, k)), normal(rng, (17, k, n)), normal(rng, n)
        scale = np.abs(wide(a)) @ np.abs(wide(b)) + np.abs(bias)
        for flips in itertools.product((False, True), repeat=2):
            x, y = (
                put(v.swapaxes(1, 2).copy(), device).swapaxes(1, 2) if flip else put(v, device)
                for v, flip in zip((a, b), flips)
            )
            got = kernels.matmul(x, y, put(bias, device), backend="numba")
            assert_close(got, wide(a) @ wide(b) + bias, scale, terms=k)
            for i, j in ((slice(1), slice(17)), (slice(17), slice(1))):  # one that all share
                got = kernels.matmul(x[i], y[j], backend="numba")
                assert_close(got, wide(a[i]) @ wide(b[j]), scale, terms=k)
    if device == "cpu":
        tb = normal(rng, (17, 8, 8)).swapaxes(1, 2)
        with kernels.trace() as trace:
            kernels.matmul(tb, tb, backend="numba")
        assert ("matmul", "coalesced") in trace.rows and len(trace.rows) == 2  # after a copy


def test_long_columns(device, rng):
    """A thread a row where a column has few terms."""
    for m, k in ((31, 3), (300, 1), (1000, 15)):
        check(device, normal(rng, (m, k)), normal(rng, (k, 1)), normal(rng, 1))


@pytest.mark.parametrize("m, n", [(1, 300), (3, 65), (8, 31), (9, 64), (16, 257), (17, 16)])
def test_thin(device, m, n, rng):
    for k in (1, 16, 33):
        a, b, bias = normal(rng, (m, k)), normal(rng, (k, n)), normal(rng, n)
        check(device, a, b, bias, version="thin")
        check(device, normal(rng, (k, m)).T, b, version="thin")
    batches = normal(rng, (3, m, 20)), normal(rng, (3, 20, n))
    check(device, *batches, version="thin")


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
@pytest.mark.parametrize("m, k, n", [(1, 70, 33), (1, 16, 130), (65, 33, 1), (64, 300, 1)])
def test_matrix_that_lies_across_a_vector(device, m, k, n, batch, dtype, backend, rng):
    """Rows that lie along memory times a column, and a row times such columns."""
    a, b = normal(rng, (*batch, m, k), dtype), normal(rng, (*batch, k, n), dtype)
    bias = normal(rng, n, dtype)
    expected, scale = wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b))
    if n == 1:
        a = np.ascontiguousarray(a.swapaxes(-1, -2))
    else:
        b = np.ascontiguousarray(b.swapaxes(-1, -2))
    a, b, added = (put(x, device) for x in (a, b, bias))
    a, b = (a.swapaxes(-1, -2), b) if n == 1 else (a, b.swapaxes(-1, -2))
    with kernels.trace() as trace:
        y = kernels.matmul(a, b, backend=backend)
    assert y.shape == (*batch, m, n) and y.dtype == dtype
    assert_close(y, expected, scale, terms=k)
    if device == "cpu" and backend == "numba":
        assert {version for _, version in trace.rows} == {"thin" if n == 1 else "matvec"}
    y = kernels.matmul(a, b, added, backend=backend)
    assert_close(y, expected + wide(bias), scale + np.abs(wide(bias)), terms=k)


def test_a_bias_beside_a_vector_is_added_before_rounding(device, rng):
    a, b = normal(rng, (1, 100), np.float16), normal(rng, (50, 100), np.float16)
    bias = (-(wide(a) @ wide(b).T)[0]).astype(np.float16)  # what is left is the rounding error
    exact = wide(a) @ wide(b).T + wide(bias)
    a, b, bias = (put(x, device) for x in (a, b, bias))
    y = wide(kernels.matmul(a, b.T, bias, backend="numba"))
    assert np.abs(y - exact).max() < 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("nbytes, n, copied", [(4096, 128, True), (4096, 127, False),
                                               (2048, 512, True), (2048, 511, False),
                                               (2040, 512, False)])  # fmt: skip
def test_rows_that_lie_pages_apart_are_copied(device, nbytes, n, copied, batch, dtype, rng):
    """A transposed left operand on a CPU; the sums are the same to the last bit."""
    m, k = nbytes // np.dtype(dtype).itemsize, 33
    a, b, bias = (normal(rng, s, dtype) for s in ((*batch, k, m), (*batch, k, n), n))
    a, b, bias = put(a, device).swapaxes(-1, -2), put(b, device), put(bias, device)
    for given in ((a, b), (a, b, bias)):
        with kernels.trace() as trace:
            y = kernels.matmul(*given, backend="numba")
        in_place = kernels.matmul(*given, backend="numba", version="tiled")
        if device == "cpu":
            assert ("matmul", "tiled") in trace.rows and len(trace.rows) == 1 + copied
        np.testing.assert_array_equal(get(y), get(in_place))
