"""Elements by index and by mask on a GPU: as on the CPU, with few launches and waits."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from tests import software_gpu

pytestmark = pytest.mark.gpu
F = mg.nn.functional


@pytest.fixture(params=["numba", "cupy"], autouse=True)
def backend(request):
    with mg.backends.use(request.param):
        yield request.param


def same_in_both_places(function, *arrays, grad=False, times=3):
    """Also when its launches are remembered, from the third call on."""
    for _ in range(times):
        found = []
        for place in ("cpu", "cuda"):
            tensors = [mg.tensor(a, device=place) for a in arrays]
            tensors[0].requires_grad_(grad)
            out = function(*tensors)
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            if grad:
                (outs[0] * outs[0]).sum().backward()
                outs.append(tensors[0].grad)
            found.append([t.detach().cpu().numpy() for t in outs])
        for here, there in zip(*found, strict=True):
            assert here.shape == there.shape and here.dtype == there.dtype
            np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-5)


INDEXED = {
    "a[i]": lambda a, i, j, k: a[i],
    "a[:, j]": lambda a, i, j, k: a[:, j],
    "a[..., k]": lambda a, i, j, k: a[..., k],
    "a[i, j]": lambda a, i, j, k: a[i, j],
    "a[i, :, k]": lambda a, i, j, k: a[i, :, k],
    "a[:, j, k]": lambda a, i, j, k: a[:, j, k],
    "a[i, j, k]": lambda a, i, j, k: a[i, j, k],
    "a[1:, j]": lambda a, i, j, k: a[1:, j],
    "a[0, :, k]": lambda a, i, j, k: a[0, :, k],
    "a[None, i]": lambda a, i, j, k: a[None, i],
    "a[:, :0, k]": lambda a, i, j, k: a[:, :0][..., k],
    "a[2, 3][k]": lambda a, i, j, k: a[2, 3][k],
    "a[:, j[:0]]": lambda a, i, j, k: a[:, j[:0]],
    "transposed": lambda a, i, j, k: a.permute(2, 0, 1)[k],
    "take": lambda a, i, j, k: a.take(i * 7 + j),
    "take_along_dim": lambda a, i, j, k: a.take_along_dim(i[:1, :1, None], 1),
    "int32": lambda a, i, j, k: a[i.to(mg.int32), j.to(mg.int32)],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", INDEXED)
def test_by_index(name, grad, rng):
    a = rng.standard_normal((5, 6, 7)).astype(np.float32)
    indices = [rng.integers(-n, n, (3, 4)) for n in (5, 6, 7)]
    same_in_both_places(INDEXED[name], a, *indices, grad=grad)


@pytest.mark.parametrize("width", [1, 31, 32, 33, 1023, 1025])
def test_columns_and_rows(width, rng):
    a = rng.standard_normal((33, width)).astype(np.float32)
    i, j = rng.permutation(33)[:9], rng.integers(0, width, 40)
    same_in_both_places(lambda a, j: a[:, j - width], a, j)
    same_in_both_places(lambda a, j: a.index_select(1, j), a, j)
    same_in_both_places(lambda a, i: a[i], a, i, grad=True)
    same_in_both_places(lambda a, i: a.index_copy(0, i, a[:9] * 2), a, i)
    same_in_both_places(lambda a, i: a.index_put((i - 33,), a[:9] * 2), a, i)
    same_in_both_places(lambda a, i: a.index_put((i,), a[:1, :1]), a, i)
    same_in_both_places(lambda a, i: a.index_put((a[:, 0] > 0,), a[0]), a, i)
    same_in_both_places(lambda a, i: a.scatter(0, i[:, None].expand(9, width), a[9:18]), a, i)
    same_in_both_places(lambda a, i: a.scatter_add(0, i[:, None].expand(9, width), a[9:18]), a, i)


@pytest.mark.parametrize("how", ["amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scatter_reduce(dim, how, rng):
    x, source = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 5, 8), (4, 5, 7)))
    index = rng.integers(0, x.shape[dim], source.shape)
    same_in_both_places(lambda x, i, s: x.scatter_reduce(dim, i, s, how), x, index, source)
    x, index, source = x[:, 0, 0], index[:, 0, 0] % 9, source[:, 0, 0]
    same_in_both_places(lambda x, i, s: x.scatter_reduce(0, i, s, how), x, index, source)


def changed(x, index, value):
    x[index] = value
    return x


SET = {
    "rows": lambda x, i, v: changed(x, i, v),
    "rows of a view": lambda x, i, v: changed(x.t(), mg.unique(i % 5), v[0, 0]),
    "rows of a part": lambda x, i, v: changed(x[:, 1:4], i, v[:, 1:4]),
    "one value": lambda x, i, v: changed(x, i, v[0, 0]),
    "a number": lambda x, i, v: changed(x, i, 2.5),
    "of a vector": lambda x, i, v: changed(x[:, 0], i, v[:, 0]),
    "by a mask": lambda x, i, v: changed(x, x[:, 0] > 0, v[0]),
    "pairs": lambda x, i, v: changed(x, (i, i % 5), v[:, 0]),
    "columns": lambda x, i, v: changed(x, (slice(None), i[:2] % 5), v[0, 0]),
    "nothing": lambda x, i, v: changed(x, i[:0], v[:0]),
}


@pytest.mark.parametrize("name", SET)
def test_setting_by_index(name, rng):
    x, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 5), (4, 5)))
    same_in_both_places(SET[name], x, rng.permutation(9)[:4] - 9, v)


SHAPES = [(31,), (1023,), (4096,), (4097,), (65, 70), (3, 5, 33), (2, 3, 4, 5), (2, 1, 3, 2, 2),
          (0,), (4, 0)]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_by_mask(shape, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    for share in (0.5, 0, 1):
        mask = rng.random(shape) < share
        for grad in (False, True):
            same_in_both_places(lambda x, k: x[k], x, mask, grad=grad, times=1)
        same_in_both_places(lambda x, k: x.masked_select(k), x, mask, times=1)
        same_in_both_places(lambda x, k: x.masked_scatter(k, x * 2), x, mask, times=1)
        same_in_both_places(lambda x, k: (x * k).nonzero(), x, mask, times=1)
        same_in_both_places(lambda k: k.nonzero(as_tuple=True), mask, times=1)
        if len(shape) == 2:
            same_in_both_places(lambda x, k: x.t()[k.t()], x, mask, times=1)
    for dtype in (np.float64, np.float16, bool, np.int8):
        same_in_both_places(lambda x, k: x[k], x.astype(dtype), mask, times=1)


MASKED = {
    "rows": lambda x, k: x[k[:, 0]],
    "pairs": lambda x, k: x[k],
    "columns": lambda x, k: x[:, k[0]],
    "rows of a part": lambda x, k: x[k[:, 0], 1:],
    "and an integer": lambda x, k: x[k, 2],
    "of a view": lambda x, k: x[..., 0][k],
    "parts of one element": lambda x, k: x[..., :1][k],
}


@pytest.mark.parametrize("name", MASKED)
def test_masks_of_some_dimensions(name, rng):
    x, mask = rng.standard_normal((6, 5, 4)).astype(np.float32), rng.random((6, 5)) < 0.5
    for grad in (False, True):
        same_in_both_places(MASKED[name], x, mask, grad=grad)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_mean_over_classes(dtype, rng):
    x, classes = rng.standard_normal((7, 5)).astype(dtype), np.array([0, 2, 4, 1, 2, 3, 2])
    for ignored in (-100, 2):

        def loss(x, t, ignored=ignored):
            return F.cross_entropy(x, t, ignore_index=ignored).float()

        same_in_both_places(loss, x, classes, grad=dtype != np.float16)


def test_one_hot():
    same_in_both_places(lambda t: F.one_hot(t, 5), np.array([[0, 3], [2, 1]]))
    same_in_both_places(lambda t: F.one_hot(t), np.array([[0, 3], [2, 1]]))
    same_in_both_places(lambda t: F.one_hot(t, 5), np.zeros(0, np.int64))
    for wrong, text in ((-1, "non-negative"), (5, "smaller than num_classes")):
        with pytest.raises(RuntimeError, match=text):
            F.one_hot(mg.tensor([0, wrong], device="cuda"), 5)
            mg.cuda.synchronize()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_bincount(dtype, rng):
    numbers, weights = rng.integers(0, 9, 1025).astype(dtype), rng.random(1025)
    same_in_both_places(lambda i: i.bincount(), numbers)
    same_in_both_places(lambda i: i.bincount(minlength=33), numbers)
    same_in_both_places(lambda i: i[:0].bincount(minlength=2), numbers)
    for kind in (np.float64, np.float32, np.int64):
        same_in_both_places(lambda i, w: i.bincount(w), numbers, (9 * weights).astype(kind))
    with pytest.raises(RuntimeError, match="non-negative"):
        mg.tensor([0, -1], device="cuda").bincount()


COUNTS = {  # launches, waits
    "a[i]": ((1, 0), lambda a, i, k: a[i]),
    "embedding": ((1, 0), lambda a, i, k: F.embedding(i, a)),
    "gather": ((1, 0), lambda a, i, k: a.gather(0, i[:, None])),
    "take": ((1, 0), lambda a, i, k: a.take(i)),
    "index_select": ((1, 0), lambda a, i, k: a.index_select(1, i)),
    "one_hot": ((2, 0), lambda a, i, k: F.one_hot(i, 5)),
    "cross_entropy": ((6, 0), lambda a, i, k: F.cross_entropy(a[:4], i)),
    "a[mask]": ((3, 1), lambda a, i, k: a[k]),
    "nonzero": ((3, 1), lambda a, i, k: k.nonzero()),
}


@pytest.mark.parametrize("name", COUNTS)
def test_launches_and_waits(name, backend):
    if not software_gpu.installed() or backend == "numba":
        pytest.skip("the software GPU counts, and the kernels of CUDA C check an index")
    a, i = mg.rand(8, 8, device="cuda"), mg.tensor([1, 2, 3, 0], device="cuda")
    mask, (expected, call) = a > 0.5, COUNTS[name]
    for _ in range(3):
        call(a, i, mask)
    software_gpu.finish()
    before = software_gpu.launches(), software_gpu.waits()
    call(a, i, mask)
    found = software_gpu.launches() - before[0], software_gpu.waits() - before[1]
    assert found == expected
