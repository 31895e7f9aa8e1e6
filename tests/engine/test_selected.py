"""Selection and writing by index along any dimension, resampling and distances, beside torch."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
import minigrad as m
from minigrad.nn import functional as F

pytestmark = pytest.mark.usefixtures("reference_backend")

SEED = 20261126
MODES = [
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
]


@pytest.fixture
def rng():
    print(f"seed {SEED}")
    return np.random.default_rng(SEED)


def check(torch, function, *arrays, tolerance=1e-10):
    """Values and gradients of function(library, *tensors) are torch's."""
    found = []
    for lib in (m, torch):
        tensors = [lib.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        y = function(lib, *tensors)
        g = np.random.default_rng(1).standard_normal(tuple(y.shape))
        wanted = [t for t in tensors if t.requires_grad]
        if y.numel():
            grads = lib.autograd.grad(y, wanted, lib.tensor(g.astype(y.detach().numpy().dtype)))
        else:
            grads = []
        found.append([y.detach().numpy(), *(d.numpy() for d in grads)])
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize("shape", [(5, 7, 3), (33, 65), (2, 3, 40), (4,), (1, 70, 2)])
def test_index_select_along_any_dimension(torch, rng, shape, count):
    for dim, n in enumerate(shape):
        index = rng.integers(0, n, count)
        check(torch, lambda lib, x, i, d=dim: x.index_select(d, i), rng.random(shape), index)


def test_gather_of_an_index_that_rows_share(torch, rng):
    x, index = rng.random((6, 4, 50)), rng.integers(0, 50, (6, 1, 45))
    for shape in ((6, 4, 45), (6, 1, 45), (3, 2, 45)):
        check(torch, lambda lib, x, i, s=shape: x.gather(2, i[: s[0]].expand(s)), x, index)
    one = rng.integers(0, 50, 45)
    check(torch, lambda lib, x, i: x.gather(2, i.expand(6, 4, 45)), x, one)
    check(torch, lambda lib, x, i: x.gather(2, i.reshape(6, 1, 45).expand(6, 4, 45)), x, index)


@pytest.mark.parametrize("size", [(7, 5), (9, 11), (1, 4), (20, 3)])
def test_maxima_of_windows_that_differ(torch, rng, size):
    x = rng.permutation(2 * 3 * 13 * 17).reshape(2, 3, 13, 17).astype(np.float64)
    check(torch, lambda lib, x: lib.nn.functional.adaptive_max_pool2d(x, size), x)
    ours = F.adaptive_max_pool2d(m.tensor(x), size, return_indices=True)[1]
    theirs = torch.nn.functional.adaptive_max_pool2d(torch.tensor(x), size, return_indices=True)[1]
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [100, 333, 1, 260])
def test_resampling_of_long_dimensions(torch, rng, size, aligned):
    def linear(lib, x):
        return lib.nn.functional.interpolate(x, size, mode="linear", align_corners=aligned)

    def cubic(lib, x):
        return lib.nn.functional.interpolate(
            x[..., None], (size, 1), mode="bicubic", align_corners=aligned
        )

    x = rng.random((2, 3, 150))
    check(torch, linear, x)
    check(torch, cubic, x, tolerance=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(3, 5, 4), (30, 27, 7), (26, 2, 1), (0, 4, 3), (26, 0, 3)])
def test_distances(torch, rng, mode, shape):
    a, b = rng.random((shape[0], shape[2])), rng.random((shape[1], shape[2]))
    check(torch, lambda lib, a, b: lib.cdist(a, b, compute_mode=mode), a, b, tolerance=1e-6)


def test_a_product_is_taken_where_there_are_many_rows():
    far = m.tensor(1e4 + np.random.default_rng(SEED).random((26, 3)), dtype=m.float32)
    exact = m.cdist(far, far, compute_mode=MODES[2])
    assert float(m.cdist(far[:25], far[:25]).diagonal().abs().max()) == 0
    assert bool((exact.diagonal() == 0).all())
    assert not bool((m.cdist(far, far) == exact).all())


def test_the_gradient_of_no_distance_is_zero():
    x = m.ones(40, 3, requires_grad=True)
    m.cdist(x, x).sum().backward()
    assert bool((x.grad == 0).all())


@pytest.mark.parametrize("shape, dim", [((6, 4, 3), 0), ((6, 4, 3), 1), ((6,), 0), ((5, 2), -1)])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_slices_are_replaced_by_index(torch, rng, shape, dim, count):
    index, sizes = rng.permutation(shape[dim])[:count], list(shape)
    sizes[dim] = count
    x, source = rng.random(shape), rng.random(sizes)
    check(torch, lambda lib, x, s: lib.index_copy(x, dim, lib.tensor(index), s), x, source)
    if count:  # torch gives each of equal slices its gradient; which one is left, it does not say
        equal = [index[0]] * count
        check(torch, lambda lib, x, s: lib.index_copy(x, dim, lib.tensor(equal), s), x, source * 0)


def test_slices_are_replaced_without_a_position_for_each_element(rng):
    x, source = (m.tensor(rng.random((5, 6)), requires_grad=True) for _ in range(2))
    index = m.tensor(rng.permutation(6))
    with kernels.trace() as trace:
        x.index_copy(1, index, source).sum().backward()
        x.index_add(1, index, source).sum().backward()
    names = {name for name, _ in trace.rows}
    assert not names & {"scatter", "take", "take_backward"}, names


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_slices_assigned_by_index(torch, rng, dim):
    x, index = rng.random((5, 6)), rng.permutation(5)[:4].reshape(2, 2) - 5
    source = rng.random((2, 2, 6) if dim == 0 else (5, 2, 2))

    def assigned(lib, x, s):
        y, at = x * 1, lib.tensor(index)
        y[at if dim == 0 else (slice(None), at)] = s
        return y * y

    check(torch, assigned, x, source)
    check(torch, assigned, x, source[..., :1])
    with kernels.trace() as trace:
        assigned(m, m.tensor(x, requires_grad=True), m.tensor(source)).sum().backward()
    assert not {"scatter", "take"} & {name for name, _ in trace.rows}


def test_assignments_by_index(torch, rng):
    x, mask = rng.random((5, 6, 7)), rng.random((5, 6, 7)) < 0.5
    rows, columns = np.array([3, 0]), np.array([[6], [1]])
    for lib in (m, torch):
        t = lib.tensor(x)
        t[lib.tensor(mask)] = 2
        t[lib.tensor(rows)] = lib.tensor(x[:2])
        t[:, lib.tensor(rows), lib.tensor(columns)] = 5.0
        t[lib.tensor(rows), :, lib.tensor(columns)] = lib.tensor(x[0, :6, 0])
        t.index_put_((lib.tensor(rows), lib.tensor(rows)), lib.tensor(x[0, 0]))
        t[lib.tensor(mask[:, 0, 0])] = lib.tensor(x[0])
        wide = lib.tensor(np.zeros((70, 90)))
        wide.copy_(lib.tensor(np.arange(6300.0).reshape(90, 70)).t())
        if lib is m:
            ours = t.numpy(), wide.numpy()
    np.testing.assert_array_equal(ours[0], t.numpy())
    np.testing.assert_array_equal(ours[1], wide.numpy())


@pytest.mark.parametrize("power", [-2, -1, -0.5, 0, 0.5, 1, 2, 3, 4])
def test_powers(torch, rng, power):
    check(torch, lambda lib, x: x**power, rng.random(50) + 0.1)


def test_numbers_for_nan_and_infinities(torch):
    x = np.array([np.nan, np.inf, -np.inf, 1.5, -0.0])
    check(torch, lambda lib, x: lib.nan_to_num(x), x)
    check(torch, lambda lib, x: lib.nan_to_num(x, 1.0, 2.0, 3.0), x)
    check(torch, lambda lib, x: lib.linspace(0, 1, 7).double() * x.nan_to_num()[:1], x)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("length", [1, 4])
def test_bags_of_one_length(torch, rng, mode, length):
    words = rng.integers(0, 20, (5, length))
    check(
        torch,
        lambda lib, w, i: lib.nn.functional.embedding_bag(i, w, mode=mode),
        rng.random((20, 6)),
        words,
    )
