"""Copies of the CUDA C dialect on a GPU: which kernel, and every element in its place."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import cuda_c, dispatch, reference
from kernels.launchers import copies
from kernels.pointwise import TABLE
from tests.kernels.helpers import get, put

DTYPES = (np.float32, np.float16, np.uint8, np.float64)


def numbered(shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    """Neighbours differ, in every dtype."""
    return (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)


def versions(call) -> tuple[set[tuple[str, str]], np.ndarray]:
    """(family, version) of each launch, and the result."""
    with dispatch.trace() as trace:
        found = call()
    return set(trace.rows), get(found)


@pytest.mark.parametrize("by", [1, 2, 3, 7, 31, 32, 33, 1023, 1025, 2**20, 2**31 - 1])
def test_division_by_a_product(by, rng):
    _, factor, shift = copies.divisor(by)
    assert factor < 2**32
    edges = [0, 1, by - 1, by, by + 1, 2 * by - 1, 2**31 - 1]
    for n in (*(n for n in edges if n < 2**31), *map(int, rng.integers(0, 2**31, 1000))):
        assert ((n * factor >> 32) + n) >> shift == n // by


VIEWS = {
    "flipped": ((5, 31, 32), lambda a: a[:, :, ::-1], "strided"),
    "all flipped": ((5, 7, 33), lambda a: a[::-1, ::-1, ::-1], "strided"),
    "columns": ((33, 1025), lambda a: a[:, 1:], "strided"),
    "packs": ((9, 7, 32), lambda a: a.transpose(1, 0, 2), "strided"),
    "even steps": ((31, 1025), lambda a: a[::2, ::3], "strided"),
    "tiled": ((40, 3, 33, 37), lambda a: a.transpose(3, 2, 1, 0), "tiled"),
    "part of a transpose": ((70, 65), lambda a: a[1:, 3:].T, "tiled"),
    "backwards": ((33, 65), lambda a: a.T[::-1, ::-1], "tiled"),
    "short rows": ((5, 3, 1023), lambda a: a.transpose(0, 2, 1), "strided"),
    "short columns": ((7, 1023, 3), lambda a: a.transpose(0, 2, 1), "strided"),
    "pixel_shuffle": ((3, 2, 3, 9, 17), lambda a: a.transpose(0, 3, 1, 4, 2), "strided"),
    "repeated": ((31, 1, 32), lambda a: np.broadcast_to(a, (3, 31, 2, 32)), "strided"),
    "each twice": ((31, 33, 1), lambda a: np.broadcast_to(a, (31, 33, 2)), "strided"),
    "six dimensions": ((2, 3, 2, 3, 2, 3), lambda a: a.transpose(1, 3, 5, 0, 2, 4), "strided"),
    "seven": ((2, 3, 2, 3, 2, 3, 2), lambda a: a.transpose(1, 3, 5, 0, 2, 4, 6), "strided"),
    "large": ((67, 4300, 4), lambda a: a.transpose(1, 0, 2), "strided"),
    "empty": ((3, 0, 5), lambda a: a.transpose(2, 1, 0), None),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", VIEWS)
def test_copies_of_views(name):
    shape, view, version = VIEWS[name]
    for dtype in DTYPES if name in ("packs", "tiled", "columns") else DTYPES[:1]:
        want = view(numbered(shape, dtype))
        for _ in range(3):  # the third is a launch that is remembered
            there = put(want, "gpu")
            seen, got = versions(lambda there=there: cuda_c.copy(there))
            np.testing.assert_array_equal(got, want)
        if version:
            assert seen == {("pointwise.copy", version)}


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in VIEWS if "re" not in name and "tw" not in name])
def test_copies_into_views(name):
    """What lies around the view stays; both lie in the same way, or only one does."""
    shape, view, _ = VIEWS[name]
    for source_too in (True, False):
        whole = put(numbered(shape), "gpu")
        want, out = numbered(shape), view(whole)
        x = -numbered(shape) - 1
        x = view(x) if source_too else np.ascontiguousarray(view(x))
        view(want)[...] = x
        cuda_c.pointwise(TABLE["copy"], put(x, "gpu"), out=out)
        np.testing.assert_array_equal(get(whole), want)


@pytest.mark.gpu
def test_packs_that_are_not_aligned():
    """Elements one by one where an array does not begin at a multiple of 16 bytes."""
    memory = put(numbered((4097,)), "gpu")
    for start in (0, 1):
        rows = memory[start : start + 4096].reshape(8, 8, 64).transpose(1, 0, 2)
        got = get(cuda_c.copy(rows))
        want = numbered((4097,))[start : start + 4096].reshape(8, 8, 64).transpose(1, 0, 2)
        np.testing.assert_array_equal(got, want)
        joined = cuda_c.concat([memory[start : start + 64], memory[:64]])
        np.testing.assert_array_equal(get(joined)[:64], numbered((4097,))[start : start + 64])


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joined(count, axis, rng):
    """Parts of any lengths, also of none, up to four in a launch."""
    for length in (1, 4, None):
        parts = []
        for i in range(count):
            shape = [3, 31, 8]
            shape[axis] = length or int(rng.integers(0, 40))
            parts.append(numbered(tuple(shape)) + i)
        want = np.concatenate(parts, axis)
        there = [put(p, "gpu") for p in parts]
        seen, got = versions(lambda there=there: cuda_c.concat(there, axis))
        np.testing.assert_array_equal(got, want)
        assert seen <= {("concat", "parts")}
        with dispatch.trace() as trace:
            cuda_c.concat(there, axis)
        used = sum(p.size > 0 for p in parts)
        assert sum(row[0] for row in trace.rows.values()) == -(-used // copies.PARTS)


@pytest.mark.gpu
def test_joined_views(rng):
    a, b = numbered((33, 40)), numbered((40, 33)) + 1
    want = np.concatenate([a[:, ::2], b.T[:, 1:]], 1)
    got = cuda_c.concat([put(a[:, ::2], "gpu"), put(b.T[:, 1:], "gpu")], 1)
    np.testing.assert_array_equal(get(got), want)


BORDERS = {
    "last": ((31, 33), ((0, 0), (3, 2))),
    "first": ((31, 32), ((3, 2), (0, 0))),
    "images": ((2, 3, 7, 9), ((0, 0), (0, 0), (1, 2), (3, 1))),
    "middle": ((5, 6, 8, 4), ((0, 0), (2, 3), (0, 0), (0, 0))),
    "long": ((3, 1023), ((1, 1), (511, 1000))),
    "no dimension": ((), ()),
    "nothing": ((4, 5), ((0, 0), (0, 0))),
}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", copies.MODES)
@pytest.mark.parametrize("backend", ["cupy", "numba"])
def test_borders(mode, backend):
    dialect = dispatch.dialect(backend)
    for shape, pads in BORDERS.values():
        for x in (
            numbered(shape),
            numbered((*shape, 2)).astype(np.float16)[..., 1],
            numbered(shape) > 99,
        ):
            want = reference.pad(x, pads, mode, 1)
            for _ in range(3):
                np.testing.assert_array_equal(get(dialect.pad(put(x, "gpu"), pads, mode, 1)), want)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("backend", ["cupy", "numba"])
def test_borders_on_a_cpu(mode, backend):
    dialect = dispatch.dialect(backend)
    for shape, pads in BORDERS.values():
        for x in (numbered(shape), numbered((*shape, 2)).astype(np.float16)[..., 1]):
            want = reference.pad(x, pads, mode)
            for _ in range(4):  # the last ones are remembered
                np.testing.assert_array_equal(dialect.pad(x, pads, mode), want)
    x = numbered((3, 4, 10)).transpose(1, 0, 2)[..., ::2]  # one copy for each part between borders
    with dispatch.trace() as trace:
        found = dialect.pad(x, ((0, 0), (1, 2), (3, 1)), mode)
    np.testing.assert_array_equal(found, reference.pad(x, ((0, 0), (1, 2), (3, 1)), mode))
    assert {name: count for name, (count, _) in trace.rows.items()} == {
        ("pointwise.copy", "strided"): 3,
        ("pad", "sides"): 1,
    }


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cupy", "numba"])
def test_borders_of_less_than_nothing(backend):
    dialect, x = dispatch.dialect(backend), numbered((31, 33, 8))
    for pads in (
        ((-1, 2), (3, -4), (0, 0)),
        ((-31, 0), (1, 1), (0, 0)),
        ((0, 0), (-3, -3), (0, -8)),
    ):
        got = dialect.pad(put(x, "gpu"), pads, "constant", 2.5)
        np.testing.assert_array_equal(get(got), reference.pad(x, pads, "constant", 2.5))
    empty = dialect.pad(put(x[:0], "gpu"), ((1, 2), (0, 1), (0, 0)))
    np.testing.assert_array_equal(get(empty), np.zeros((3, 34, 8), np.float32))


def test_borders_that_do_not_fit():
    for backend in ("cupy", "numba"):
        dialect, x = dispatch.dialect(backend), numbered((3, 4))
        for mode, pads in {
            "reflect": ((0, 3), (0, 0)),
            "circular": ((0, 0), (5, 0)),
            "constant": ((-2, -2), (0, 0)),
            "replicate": ((-1, 0), (0, 0)),
            "mirror": ((0, 0), (0, 0)),
        }.items():
            with pytest.raises(ValueError, match="pad: "):
                dialect.pad(x, pads, mode)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cupy", "numba"])
def test_triangles(backend):
    dialect = dispatch.dialect(backend)
    for shape in ((31, 33), (3, 32, 32), (2, 2, 33, 7), (1, 1025), (0, 4)):
        for dtype in (np.float32, np.int64, bool):
            x = numbered(shape, dtype)
            for diagonal in (0, 1, -1, 5, -40, 2000):
                for lower in (True, False):
                    got = get(dialect.triangle(put(x, "gpu"), diagonal, lower))
                    np.testing.assert_array_equal(got, reference.triangle(x, diagonal, lower))
    x = numbered((40, 33)).T
    got = get(dialect.triangle(put(x, "gpu"), 2, True))
    np.testing.assert_array_equal(got, np.tril(x, 2))
    nan = np.full((5, 8), np.nan, np.float32)
    assert not np.isnan(get(dialect.triangle(put(nan, "gpu"), 0, False))[1:, 0]).any()
