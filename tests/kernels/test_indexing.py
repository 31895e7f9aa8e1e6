"""Embedding, gather, scatter and take, with their gradients."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import kernels
from kernels import numba_cuda
from kernels.launchers.embedding import VERSIONS
from kernels.support import wrong_index
from tests.kernels.helpers import DEVICES, check, get, normal, put

pytestmark = pytest.mark.parametrize("device", DEVICES)
VERSIONS_AND_DEFAULT = (*VERSIONS, None)
FEW = ("bool", "uint8", "int64")
slow = pytest.mark.slow


@pytest.mark.parametrize("shape", [(5, 1), (33, 31), (257, 65)])
@pytest.mark.parametrize("index_dtype", [np.int64, np.int32, np.uint8])
def test_embedding(shape, index_dtype, device, rng):
    weight = normal(rng, shape)
    for size in [(), (1,), (4, 33), (0,), (2, 0)]:
        index = rng.integers(0, min(shape[0], 255), size).astype(index_dtype)
        check("embedding", weight, np.asarray(index), device=device)
    check("embedding", weight[::-1], rng.integers(0, shape[0], 7), device=device)


@pytest.mark.parametrize("version", VERSIONS_AND_DEFAULT)
def test_embedding_backward(version, device, rng):
    for rows, width, count in [(5, 1, 40), (33, 31, 100), (3, 257, 65), (4, 3, 0)]:
        g, index = normal(rng, (count, width)), rng.integers(0, rows, count)
        how = dict(version=version, device=device, scale=count)
        check("embedding_backward", g, index, rows, **how)
        check("embedding_backward", g[:, None], index[:, None], rows, **how)


@pytest.mark.parametrize("version", VERSIONS_AND_DEFAULT)
@pytest.mark.parametrize("rows", (7, 600))
def test_embedding_backward_onto_an_array(version, rows, device, rng):
    """Which stays as it is, also one that is not contiguous."""
    g, index = normal(rng, (20, 33)), rng.integers(0, rows, 20)
    onto = normal(rng, (33, rows)).T
    for _ in range(3):
        how = dict(onto=onto, version=version, device=device)
        check("embedding_backward", g, index, rows, **how, scale=20)
    before = onto.copy()
    kernels.embedding_backward(put(g, device), put(index, device), rows, onto=put(onto, device))
    np.testing.assert_array_equal(onto, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_embedding_backward_again_and_again(dtype, device, rng):
    """Remembered into few rows; the index is looked at each time."""
    for rows in (30, 3000):
        for _ in range(4):
            g, index = normal(rng, (9, 7), dtype), rng.integers(0, rows, 9)
            check("embedding_backward", g, index, rows, device=device, scale=9)
        index[3] = rows
        if device == "cpu":
            with pytest.raises(IndexError):
                numba_cuda.embedding_backward(g, index, rows)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis, device, rng):
    x = normal(rng, (6, 33, 5))
    for corner in (slice(None), slice(2)):
        shape = list(x[corner, corner, corner].shape)
        shape[axis] = 9
        index = rng.integers(0, x.shape[axis], shape)
        check("gather", x, axis, index, device=device)
        check("gather", x[::-1], axis, index[..., ::-1], device=device)


def test_gather_of_one_element_of_each_row(device, rng):
    for shape, axis in (((300, 5), 1), ((3, 40, 7), 2), ((300,), 0)):
        x = normal(rng, shape)
        index = rng.integers(0, shape[axis], (*shape[:-1], 1) if axis else (1,))
        with kernels.trace() as trace:
            check("gather", x, axis, index, device=device)
        assert device == "cuda" or ("gather", "elements") in trace.rows
        check("gather", x[::-1], axis, index[::-1], device=device)


@pytest.mark.parametrize("length", [70, 31, 0])
@pytest.mark.parametrize("shape", [(70,), (7, 1, 70), (1, 1, 70), (7, 5, 70), (1, 5, 70)])
def test_gather_of_an_index_that_rows_share(shape, length, device, rng):
    x = normal(rng, (7, 5, 90))
    index = rng.integers(0, 90, (*shape[:-1], length))
    check("gather", x, 2, np.broadcast_to(index, (7, 5, length)), device=device)
    with pytest.raises(IndexError, match="gather"):
        kernels.gather(x, 2, np.broadcast_to(np.int64(90), (7, 5, 40)), backend="numba")


@pytest.mark.parametrize(
    ("axis", "version"), [(0, "rows"), (1, "rows"), (2, "rows"), (1, "elements"), (2, "elements")]
)
def test_gather_by_tiles_or_elements(axis, version, device, rng):
    """Tiles of 4 rows and 64 columns, unless columns are few; on a CPU shorter ones."""
    columns = {"rows": (100, 70), "elements": (5, 31)}[version]
    x = normal(rng, (3, 7, columns[0]))
    shape = [3, 7, columns[axis == 2]]
    shape[axis] = columns[1] if axis == 2 else 10
    index = rng.integers(0, x.shape[axis], shape)
    with kernels.trace() as trace:
        check("gather", x, axis, index, device=device)
    assert ("gather", "rows" if device == "cpu" else version) in trace.rows


@pytest.mark.parametrize("width", [1, 2, 8, 9, 16, 17, 31, 32])
def test_short_rows(width, device, rng):
    """Blocks that rows fill or not, and more rows than one has."""
    weight = normal(rng, (50, width))
    check("embedding", weight, rng.integers(0, 50, (3, 100)), device=device)
    check("gather", weight, 0, rng.integers(0, 50, (300, width)), device=device)
    check("gather", weight, 1, rng.integers(0, width, (50, 3)), device=device)


@pytest.mark.parametrize("version", VERSIONS_AND_DEFAULT)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_add(version, axis, device, rng):
    x = normal(rng, (6, 33, 5))
    how = dict(version=version, device=device, scale=30)
    for count in (1, 20):
        for corner in (slice(None), slice(3)):
            shape = list(x[corner, corner, corner].shape)
            shape[axis] = count
            index, src = rng.integers(0, x.shape[axis], shape), normal(rng, (20, 33, 20))
            check("scatter_add", x, axis, index, src, **how)
    check("scatter_add", x, axis, index[:0], src, **how)


# Only atomic additions differ by the size of the integers; the other versions add as the host does.
WRAPPING = [
    pytest.param(version, dtype, marks=() if version == "atomic" or dtype in FEW else slow)
    for version in VERSIONS
    for dtype in "bool int8 uint8 int16 uint16 uint32 int64 uint64".split()
]


@pytest.mark.parametrize("backend", ["numba", "cupy"])
@pytest.mark.parametrize("version, dtype", WRAPPING)
def test_sums_of_integers_wrap_and_of_bool_are_or(version, dtype, backend, device, rng):
    x, src = (rng.integers(0, 256, n).astype(dtype) for n in (7, 400))
    index = rng.integers(0, 7, 400)
    expected = x.copy()
    np.add.at(expected, index, src)
    call = {"version": version, "backend": backend}
    placed = [put(a, device) for a in (x, index, src)]
    found = kernels.scatter_add(placed[0], 0, *placed[1:], **call)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(get(found), expected)
    rows = put(src.reshape(200, 2), device)
    found = kernels.embedding_backward(rows, put(index[:200], device), 7, **call)
    expected = np.zeros((7, 2), dtype)
    np.add.at(expected, index[:200], src.reshape(200, 2))
    np.testing.assert_array_equal(get(found), expected)


@pytest.mark.parametrize("version", VERSIONS_AND_DEFAULT)
def test_take(version, device, rng):
    x, index = normal(rng, (7, 31)), rng.integers(0, 217, (9, 33))
    check("take", x, index, device=device)
    check("take", x.T, index, device=device)
    g = normal(rng, index.shape)
    check("take_backward", g, index, 217, version=version, device=device, scale=10)
    same = np.zeros(1000, np.int64)  # every addition meets every other
    check("take_backward", normal(rng, 1000), same, 1, version=version, device=device, scale=999)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_float_dtypes(dtype, device, rng):
    x, index = normal(rng, (6, 5), dtype), rng.integers(0, 6, (9, 5))
    src = normal(rng, (9, 5), dtype)
    for version in VERSIONS:
        check("scatter_add", x, 0, index, src, version=version, device=device, scale=9)
        how = dict(version=version, device=device, scale=9)
        check("embedding_backward", src, index[:, 0], 6, **how)
    check("gather", x, 0, index, device=device)


def test_lines_repeat_bit_by_bit(device, rng):
    g, index = normal(rng, (3000, 8)), rng.integers(0, 4, 3000)
    g, index = put(g, device), put(index, device)
    results = {
        get(numba_cuda.embedding_backward(g, index, 4, version=version)).tobytes()
        for version in ("lines", "lines", "split", "split")
    }
    assert len(results) == 1


@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_a_wrong_index_is_replaced_and_recorded(backend, device):
    index = put(np.array([[3, -2, 9], [4, 7, 5]], np.int32), device)
    record = put(np.zeros(2, np.int64), device)
    call = functools.partial(kernels.checked_index, index, 3, 6, backend=backend)
    assert get(call(9, 1, record)).tolist() == [[3, 3, 9], [4, 3, 5]]
    number, wrong = get(record)
    assert number == 1 and wrong in (-2, 7)
    call(9, 2, record)
    assert get(record).tolist() == [1, wrong]  # the first one stays
    right = put(np.zeros(2, np.int64), device)
    kernels.checked_index(index, -2, 10, 0, 5, right, backend=backend)
    assert get(right).tolist() == [0, 0]


@pytest.mark.parametrize("backend", ["numba", "cupy"])
def test_wrong_indices(backend, device, rng):
    x, index = put(normal(rng, (3, 4)), device), put(np.array([[0, 3]]), device)
    for text, program in (
        ("embedding: index 3 is out of bounds for size 3", (kernels.embedding, x, index)),
        ("take: index -1 is out of bounds for size 12", (kernels.take, x, index - 1)),
        ("gather: index 3", (kernels.gather, x, 0, index)),
        ("scatter_add: index 3", (kernels.scatter_add, x, 0, index, x)),
        ("embedding_backward: index 3", (kernels.embedding_backward, x[:2], index[0], 2)),
    ):
        with pytest.raises(IndexError, match=text):
            program[0](*program[1:], backend=backend)
            wrong_index.synchronize()  # an array on a GPU: the error comes when the host waits


def test_errors(device, rng):
    x, index = put(normal(rng, (3, 4)), device), put(np.array([[0, 2]]), device)
    with pytest.raises(TypeError, match="expected integer indices, got float32"):
        kernels.take(x, x, backend="numba")
    with pytest.raises(ValueError, match="index has 1 dimensions, expected 2"):
        kernels.gather(x, 0, index[0], backend="numba")
    with pytest.raises(ValueError, match="exceeds"):
        kernels.gather(x, 1, put(np.zeros((4, 1), np.int64), device), backend="numba")
    with pytest.raises(TypeError, match="src is float64, expected float32"):
        kernels.scatter_add(x, 1, index, x.astype(np.float64), backend="numba")
    with pytest.raises(ValueError, match="expected a version"):
        kernels.take_backward(x, index, 4, version="fast", backend="numba")


# -- on a GPU the kernels of CUDA C check the index themselves


SIZES = [(1, 1), (3, 31), (33, 32), (2, 1023), (40, 33), (1, 2049), (5, 1025), (9, 64)]


def _places(rng, size, shape, dtype=np.int64):
    index = rng.integers(0, size, shape).astype(dtype)
    return index, np.where(rng.random(shape) < 0.5, index, index - size).astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", SIZES)
def test_rows_by_kernels_that_check(shape, dtype, device, rng):
    rows, width = shape
    weight = normal(rng, (7, width)).astype(dtype)
    index, negative = _places(rng, 7, (3, rows))
    for table in (weight, weight[::-1], np.append(weight.ravel(), weight[0])[1 : 7 * width + 1]):
        table = table.reshape(7, width)  # the last one is not aligned
        given = put(table, device), put(negative, device)
        found = kernels.embedding(*given, negative=True, backend="cupy")
        np.testing.assert_array_equal(get(found), table[index])
    g = normal(rng, (3, rows, width)).astype(dtype)
    expected = np.zeros((7, width), np.float64)
    np.add.at(expected, index, g)
    for _ in range(3):
        given = put(g, device), put(negative, device), 7
        found = kernels.embedding_backward(*given, negative=True, backend="cupy")
        assert found.dtype == dtype
        close = 0.2 if dtype == "float16" else 1e-4
        np.testing.assert_allclose(get(found), expected.astype(dtype), rtol=close, atol=close)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (33, 31), (64, 65), (1, 200), (1025, 2), (8, 64)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_by_kernels_that_check(axis, shape, wide, device, rng, monkeypatch):
    """Along the last dimension, and across long and short ones; positions of 32 and 64 bits."""
    from kernels.launchers import embedding

    monkeypatch.setattr(embedding, "_is_wide", lambda *sizes: wide)
    shape = (2 + wide, *shape)  # other launches: those of before are remembered
    x = normal(rng, shape)
    for length, kind in ((1, np.int32), (7, np.int64), (40, np.int64)):
        there = list(shape)
        there[axis] = length
        index = rng.integers(0, shape[axis], there).astype(kind)
        src = rng.permutation(index.size).reshape(there).astype(np.float32)  # each value once
        one = np.broadcast_to(index[:1, :1], there) if axis == 2 else index
        for given in (index, one):
            check("gather", x, axis, given, device=device)
        check("scatter_add", x, axis, index, src, device=device, scale=40 * index.size)
        placed = put(x, device), axis, put(index, device), put(src, device)
        found = get(kernels.scatter(*placed, backend="cupy"))
        grid = list(np.ogrid[tuple(slice(n) for n in there)])
        grid[axis] = index
        target = np.arange(x.size).reshape(shape)[tuple(grid)].ravel()
        reached, written = set(target), {float(v): place for v, place in zip(src.ravel(), target)}
        for place, old, new in zip(range(x.size), x.ravel(), found.ravel()):
            assert written[float(new)] == place if place in reached else new == old


@pytest.mark.parametrize("count", [0, 1, 255, 256, 2047, 2049, 5000])
def test_take_by_kernels_that_check(count, device, rng):
    x = normal(rng, (31, 33))
    index, negative = _places(rng, x.size, count)
    for _ in range(3):
        for backend in ("cupy", "numba"):
            given = put(x, device), put(negative, device)
            found = kernels.take(*given, negative=True, backend=backend)
            np.testing.assert_array_equal(get(found), x.ravel()[index])
            g = normal(rng, count)
            given = put(g, device), put(negative, device), x.size
            found = kernels.take_backward(*given, negative=True, backend=backend)
            expected = np.zeros(x.size)
            np.add.at(expected, index, g)
            np.testing.assert_allclose(get(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["numba", "cupy", "numpy"])
def test_another_error_of_a_wrong_index(backend, device, rng):
    if backend == "numpy" and device == "gpu":
        pytest.skip("NumPy computes on the CPU")
    x = put(normal(rng, (3, 4)), device)

    def error(wrong):
        return RuntimeError(f"not {wrong}")

    for operation, size in ((kernels.embedding, 3), (kernels.take, 12)):
        for wrong in (size, -size - 1):
            index = put(np.array([0, wrong, -size, size - 1]), device)
            with pytest.raises(RuntimeError, match=f"not {wrong}"):
                operation(x, index, negative=True, error=error, backend=backend)
                wrong_index.synchronize()


@pytest.mark.parametrize("name", ["masked_select", "mask_places"])
def test_ends_of_a_mask_that_are_not_its_own_are_refused(name, device):
    mask = put(np.arange(9000) % 3 == 0, device)
    ends = kernels.mask_ends(mask)
    first = (mask,) if name == "mask_places" else (mask.astype(np.float32), mask)
    found = int(ends[-1])
    assert len(getattr(kernels, name)(*first, ends, found)) == found
    for wrong, error in ((ends.astype(np.int32), TypeError), (ends[:2], ValueError)):
        with pytest.raises(error, match=f"{name}: expected .* ends"):
            getattr(kernels, name)(*first, wrong, found)
