"""Copy, cast, transpose and concat."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernels
from kernels import dispatch, numba_cuda, reference
from kernels.launchers.common import Dialect
from kernels.launchers.transpose import VERSIONS as LADDER
from kernels.launchers.transpose import interleave
from tests.kernels.helpers import BFLOAT16, DEVICES, check, get, normal, put, wide

pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.mark.parametrize("version", LADDER)
def test_transpose_ladder(version, device, rng):
    for shape in [(2, 2), (31, 33), (32, 32), (257, 70), (3, 1025)]:
        check("transpose", normal(rng, shape), (1, 0), version=version, device=device)
    check("transpose", normal(rng, (5, 33, 40)), (0, 2, 1), version=version, device=device)


def test_transpose_to_short_rows(device, rng):
    """Along the rows of x, which are longer: the order of pixel_shuffle, one with a slice, and
    matrices, also the other way round."""
    for shape, axes in (
        ((3, 2, 3, 9, 17), (0, 3, 1, 4, 2)),
        ((4, 5, 33), (2, 0, 1)),
        ((5, 3, 40), (0, 2, 1)),
        ((5, 40, 3), (0, 2, 1)),
    ):
        x = normal(rng, shape)
        for given, there in ((x, put(x, device)), (x[:, 1:], put(x, device)[:, 1:])):
            got = numba_cuda.transpose(there, axes)
            assert got.flags.c_contiguous
            np.testing.assert_array_equal(get(got), given.transpose(axes))


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("count", [2, 3, 5, 8, 9])
def test_few_rows_or_columns(count, backend, device, rng):
    dtypes = [np.float32, np.float64, np.int16, np.bool_]
    for dtype, length, batch in zip(dtypes, (33, 31, 17, 2049), (1, 33, 5, 3), strict=True):
        x = (normal(rng, (batch, count, length)) * 9).astype(dtype)
        for given in (x, np.ascontiguousarray(x.transpose(0, 2, 1))):
            there = put(given, device)
            with kernels.trace() as trace:
                found = kernels.transpose(there, (0, 2, 1), backend=backend)
            np.testing.assert_array_equal(get(found), given.transpose(0, 2, 1))
            assert device == "gpu" or (("transpose", "few") in trace.rows) == (count <= 8)
            if count > 8:
                with pytest.raises(ValueError, match="takes up to 8 rows or columns"):
                    kernels.transpose(there, (0, 2, 1), version="few", backend=backend)
                continue
            found = kernels.transpose(there, (0, 2, 1), version="few", backend=backend)
            np.testing.assert_array_equal(get(found), given.transpose(0, 2, 1))


@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_phases_of_two_axes_are_interleaved(backend, device, rng):
    dialect = Dialect(dispatch.DIALECTS[backend], dispatch.dialect(backend))
    for shape in [
        (3, 2, 2, 5, 33),
        (2, 3, 3, 4, 7),
        (5, 1, 2, 6, 8),
        (2, 2, 1, 3, 4),
        (4, 2, 9, 3, 2),
    ]:
        x = normal(rng, shape)
        found = interleave(dialect, put(x, device))
        np.testing.assert_array_equal(get(found), x.transpose(0, 3, 1, 4, 2))


def test_transpose_every_order(device, rng):
    x = normal(rng, (3, 4, 33, 2))
    for axes in itertools.permutations(range(4)):
        got = numba_cuda.transpose(put(x, device), axes)
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(get(got), x.transpose(axes))
    check("transpose", normal(rng, (4, 3))[::2], (-1, 0), device=device)
    for shape in [(), (0, 3), (1, 1)]:
        check("transpose", np.ones(shape, np.float32), range(len(shape))[::-1], device=device)


def test_copy_and_cast(device, rng):
    x = put(normal(rng, (12, 20, 33)), device)
    for view in (x, x.T, x.transpose(1, 2, 0), x[::3, ::-1], x[0, 0, 0, ...], x[:0], x[:, None, 4]):
        got = numba_cuda.copy(view)
        assert got.flags.c_contiguous and got.dtype == x.dtype
        assert not np.shares_memory(get(got), get(view)) or view.size == 0
        np.testing.assert_array_equal(get(got), get(view))


DTYPES = [np.float32, np.float64, np.float16, BFLOAT16, np.int32, np.int64, np.uint8, bool]


@pytest.mark.parametrize("source", DTYPES)
def test_cast(source, device, rng):
    x = np.abs(rng.standard_normal((31, 5)) * 40).astype(source)
    for target in DTYPES if source in (np.float32, np.int64) else (np.float32, np.int64):
        got = numba_cuda.cast(put(x, device), np.dtype(target))
        want = reference.cast(x, np.dtype(target))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(wide(got), wide(want), err_msg=str(np.dtype(target)))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat(axis, device, rng):
    shapes = [[3, 4, 33] for _ in range(3)]
    for shape, n in zip(shapes, (1, 32, 0)):
        shape[axis] = n
    check("concat", [normal(rng, s) for s in shapes], axis, device=device)
    views = [normal(rng, s[::-1]).T for s in shapes]
    check("concat", views, axis, device=device)


def test_concat_of_parts_of_arrays(device, rng):
    x = normal(rng, (5, 40, 6))
    check("concat", [x[:, 3:], x[:, 37:0:-1]], 0, device=device)
    check("concat", [x[:, 30:], x[:, :30], x[:, ::2]], 1, device=device)
    check("concat", [x[..., 2:], x, x[..., ::-2]], 2, device=device)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_four_parts_of_one_width_are_one_launch(axis, device, rng):
    """Also between others, and where one of the four is a part of another array."""
    for widths, launches in (([5] * 4, "f"), ([3, *[7] * 9], "rffr"), ([2, 2, 2, 3, 3], "rrrrr")):
        parts = [normal(rng, (*(3, 4, 33)[:axis], n, *(3, 4, 33)[axis + 1 :])) for n in widths]
        with dispatch.trace() as trace:
            check("concat", parts, axis, device=device)
        counts = {version: count for (_, version), (count, _) in trace.rows.items()}
        assert counts.get("four", 0) == launches.count("f")
        assert counts.get("rows", 0) == launches.count("r")
        every_second = (slice(None),) * axis + (slice(None, None, 2),)
        parts[1] = np.repeat(parts[1], 2, axis)[every_second]
        check("concat", parts, axis, device=device)
        fourth = normal(rng, parts[0].shape[::-1]).T
        check("concat", [fourth, *parts[1:]], axis, device=device)


def test_concat_dtypes_and_errors(device, rng):
    x = rng.integers(0, 9, (3, 4))
    check("concat", [x, x], 0, device=device)
    a, b = put(normal(rng, (3, 4)), device), put(normal(rng, (3, 5)), device)
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(3, 5\) differ off axis 0"):
        kernels.concat([a, b], 0, backend="numba")
    with pytest.raises(ValueError, match="at least one array"):
        kernels.concat([], 0, backend="numba")
    with pytest.raises(TypeError, match="float32 and float64 differ"):
        kernels.concat([a, a.astype(np.float64)], 0, backend="numba")
    with pytest.raises(IndexError, match="axis 2 is out of range"):
        kernels.concat([a, a], 2, backend="numba")
    with pytest.raises(ValueError, match="no permutation"):
        kernels.transpose(a, (0, 0), backend="numba")
    with pytest.raises(ValueError, match="swaps the two last axes"):
        kernels.transpose(a, (0, 1), version="tile", backend="numba")
