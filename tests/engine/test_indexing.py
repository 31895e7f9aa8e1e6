"""What an index may hold, and which values it takes, as in torch."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
import minigrad as m

PARTS = {  # what a list shorter than 32 stands for where it holds more than numbers
    "numbers": lambda t: [t(0), t(1)],
    "rows": lambda t: [[0, 1], [1, 0]],
    "one_row": lambda t: [[0, 1]],
    "masks": lambda t: [[True, False, True], [0, 1]],
    "ranges": lambda t: [range(2), (1, 0)],
    "slice": lambda t: [slice(0, 1), 1],
    "none": lambda t: [None, 0],
    "ellipsis": lambda t: [..., 0],
    "number_and_row": lambda t: [0, [1, 3]],
    "places": lambda t: [t([0, 1]), t([[1], [2]])],
}


@pytest.mark.parametrize("name", PARTS)
def test_a_list_of_parts_is_a_tuple(name):
    x = np.arange(12.0).reshape(3, 4)
    ours, expected = m.tensor(x), x[tuple(PARTS[name](np.array))]
    parts = PARTS[name](m.tensor)
    np.testing.assert_array_equal(ours[parts].numpy(), expected)
    ours[parts] = -1
    x[tuple(PARTS[name](np.array))] = -1
    np.testing.assert_array_equal(ours.numpy(), x)


def test_a_list_of_numbers_selects_parts():
    x = np.arange(12.0).reshape(3, 4)
    for index in ([0, 2], [True, False, True], [[1]] * 32):  # as long as 32: an array
        np.testing.assert_array_equal(m.tensor(x)[index].numpy(), x[np.array(index)])


def test_an_index_with_two_ellipses():
    x = m.tensor(np.arange(12.0).reshape(3, 4))
    assert x[..., ...].tolist() == x.tolist()
    assert x[1, ..., ...].tolist() == x[1].tolist()
    with pytest.raises(IndexError, match="one ellipsis"):
        x[..., ..., 0]


def test_values_of_another_dtype_are_not_put():
    x, i = m.zeros(3, 4), m.zeros(3, dtype=m.int64)
    refused = "Index put requires the source and destination dtypes match, got Float for the"
    for index in ([0, 1], m.tensor([2]), (m.tensor([True, False, True]), m.tensor([0, 1]))):
        with pytest.raises(RuntimeError, match=refused):
            x[index] = m.tensor(5)
    with pytest.raises(RuntimeError, match=refused):
        x.index_put_((m.tensor([True, False, True]),), m.tensor(5), accumulate=True)
    with pytest.raises(RuntimeError, match="got Long for the destination and Float for the source"):
        i[i == 0] = m.ones(3)
    x[:, m.tensor([True, False, True, False])] = m.tensor([5])  # one value, one mask
    x[0, 1] = m.tensor(2, dtype=m.float64)  # a view, no tensor of places
    assert x.tolist() == [[5, 2, 5, 0], [5, 0, 5, 0], [5, 0, 5, 0]]
    for index in (0, [0], x > 0):
        with pytest.raises(RuntimeError, match="cannot be converted to type float"):
            x[index] = 1j
    with pytest.raises(RuntimeError, match="cannot be converted to type float"):
        x[x > 0] = m.tensor(1j)


def test_index_put_at_numbers():
    x = m.zeros(2, 3)
    x.index_put_((m.tensor(1),), m.tensor([1.0, 2.0, 3.0]))
    x.index_put_((m.tensor(1), m.tensor(2)), m.tensor(4.0), accumulate=True)
    assert x.tolist() == [[0, 0, 0], [1, 2, 7]]
    for wrong in ((m.tensor([0]), m.tensor(1.0)), ((m.tensor([0]),), 1.0)):
        with pytest.raises(TypeError, match=r"index_put_\(\): argument '(indices|values)' must be"):
            x.index_put_(*wrong)


def test_indices_of_narrow_integers():
    x, places = m.arange(4), np.array([3, 0])
    for dtype in (np.int8, np.int16):  # of NumPy, as in torch
        assert x[places.astype(dtype)].tolist() == [3, 0]
        with pytest.raises(IndexError, match="tensors used as indices must be long, int"):
            x[m.tensor(places.astype(dtype))]
    with pytest.raises(TypeError, match="slice indices must be integers"):
        x[0.0:1]


@pytest.mark.parametrize("shape", [(9, 5), (9, 2, 3), (9, 0)])
def test_rows_that_add_up_take_no_position_of_each_element(shape, torch, rng):
    given, values = rng.standard_normal(shape), rng.standard_normal((6, *shape[1:]))
    index = np.array([3, -1, 3, 0, 8, 2])
    found = []
    for lib in (m, torch):
        x, v = (lib.from_numpy(a.copy()).requires_grad_() for a in (given, values))
        y = x * 2
        y.index_put_((lib.from_numpy(index),), v, accumulate=True)
        y.square().sum().backward()
        found.append([t.detach().numpy() for t in (y, x.grad, v.grad)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    with kernels.trace() as trace:
        m.ones(9, 5).index_put((m.tensor(index),), m.ones(6, 5), True)
    assert "scatter_add" not in {name for name, _ in trace.rows}


@pytest.mark.parametrize("shape", [(9, 1), (9, 1, 1), (9, 2)])
def test_parts_of_one_element_at_positions(shape, rng):
    """As larger ones: of a view of what requires a gradient too, whatever becomes of the index."""
    values = rng.standard_normal(shape)
    places = np.array([[8, 0], [3, 3]])
    x = m.from_numpy(values).requires_grad_()
    index, mask = m.from_numpy(places.copy()), m.from_numpy(values.reshape(9, -1)[:, 0] > 0)
    view = x[:]
    chosen = view[index]
    index.zero_()
    np.testing.assert_array_equal(chosen.detach().numpy(), values[places])
    assert chosen._base is None and not chosen.is_leaf
    (chosen * 2).sum().backward()
    expected = np.zeros(shape)
    np.add.at(expected, places, 2.0)
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    at_mask = x[mask]
    np.testing.assert_array_equal(at_mask.detach().numpy(), values[mask.numpy()])
    (gradient,) = m.autograd.grad(at_mask.sum(), x)
    counted = np.zeros(shape)
    counted[mask.numpy()] = 1
    np.testing.assert_array_equal(gradient.numpy(), counted)
    np.testing.assert_array_equal(x[m.tensor([-1])].detach().numpy(), values[-1:])
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 9"):
        x[m.tensor([0, 9])]
    assert m.ones(0, 1)[m.zeros(0, dtype=m.int64)].shape == (0, 1)


PLACES = {
    "points": ([0, 2, -1], [3, 0, 1]),
    "grid": ([[0], [2]], [1, -4]),
    "one": ([1, 1],),
    "cubes": ([0, 1, 2], [0, 1, 2], [1, 0, 1]),
    "none": ([], []),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", PLACES)
def test_tensors_of_positions_for_the_first_dimensions(name, transposed, rng):
    values = rng.normal(size=(3, 4, 2)).astype(np.float32)
    x = (
        m.tensor(values.transpose(1, 0, 2).copy()).transpose(0, 1)
        if transposed
        else m.tensor(values)
    )
    parts = tuple(np.array(p, np.int64) for p in PLACES[name])
    index = tuple(map(m.tensor, parts))
    np.testing.assert_array_equal(x[index].numpy(), values[parts])
    x[index] = m.tensor(values[parts] * 2)
    x[index[:1]] = 0.5
    values[parts] *= 2
    values[parts[:1]] = 0.5
    np.testing.assert_array_equal(x.numpy(), values)


@pytest.mark.parametrize("index", [([0, 3], [0, 0]), ([0, -4], [0, 0]), ([0, 0], [4, 0])])
def test_a_wrong_position_changes_nothing(index):
    x = m.zeros(3, 4)
    parts = tuple(map(m.tensor, index))
    for values in (1.0, m.ones(2), m.ones(7)):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds|shape mismatch"):
            x[parts] = values
    with pytest.raises(IndexError, match="out of bounds for dimension"):
        x[parts]
    assert not x.any()


def test_a_remembered_scatter_checks_its_index(rng):
    x, src = m.tensor(rng.normal(size=5)), m.tensor(rng.normal(size=3))
    for operation, expected in ((m.scatter_add, x[2] + src[1]), (m.scatter, src[1])):
        for _ in range(5):
            assert operation(x, 0, m.tensor([0, 2, 4]), src)[2] == expected
        for wrong in (5, -1):
            with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds"):
                operation(x, 0, m.tensor([0, wrong, 4]), src)


@pytest.mark.parametrize("shape", [(6,), (2, 6), (40, 6), (2, 3, 6)])
def test_what_positions_select_is_no_view(shape):
    x, index = m.ones(shape, requires_grad=True), m.tensor([[1, 5], [1, 0]])
    for function in (
        lambda x: x[..., index],
        lambda x: x[..., index[0]],
        lambda x: x.index_select(-1, index[0]),
        lambda x: x.repeat_interleave(2, -1),
    ):
        y = function(x)
        assert not y._is_view()
        y.mul_(3)
        y.sum().backward()
        assert x.grad.sum() == 3 * y.numel() and bool((x == 1).all())
        x.grad = None


@pytest.mark.parametrize("index", [(0, 1), ([0, 1], [1, 1]), ([True, False], [False, False])])
def test_an_assignment_to_a_view_whose_base_came_to_need_a_gradient(index):
    """The view finds out when it is used next, also where NumPy could assign alone."""
    base = m.ones(2, 2)
    view, factor = base.view(2, 2), m.ones(2, 2, requires_grad=True)
    base.mul_(factor)
    places = tuple(m.tensor(part) for part in index)
    view[m.stack(places) if places[0].dtype == m.bool else places] = 5.0
    (base * base).sum().backward()
    written = base.detach() == 5
    assert written.any() and not written.all()
    assert factor.grad.tolist() == m.where(written, 0.0, 2.0).tolist()


def test_values_with_leading_ones_at_the_places_of_a_mask():
    x = m.zeros(2, 3)
    mask = m.tensor([[True, False, True], [False, False, False]])
    x[mask] = m.tensor([[1.0, 2.0]])
    assert x.tolist() == [[1, 0, 2], [0, 0, 0]]
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[mask] = m.ones(2, 3)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3), (2, 5, 40), (1, 5), (3, 2, 5)])
def test_slices_at_positions_that_change_later(shape, rng):
    """Their gradient is that of the positions at the call, or an error: never another one."""
    array = rng.standard_normal(shape)
    dim = shape.index(5)
    calls = {
        "item": lambda x, at: x[(slice(None),) * dim + (at,)],
        "several": lambda x, at: x[(slice(None),) * dim + (at.reshape(1, -1),)],
        "dots before": lambda x, at: x[(..., at) + (slice(None),) * (len(shape) - dim - 1)],
        "dots behind": lambda x, at: x[(slice(None),) * dim + (at, ...)],
        "index_select": lambda x, at: x.index_select(dim, at),
    }
    for name, call in calls.items():
        x = m.tensor(array, requires_grad=True)
        for numbers in ([3, 0, 3], [4], [-1, 1], []):
            if name == "index_select" and -1 in numbers:
                continue
            at = m.tensor(numbers, dtype=m.int64)
            found = call(x, at)
            taken = np.take(array, np.array(numbers, np.int64), dim)
            np.testing.assert_array_equal(found.detach().reshape(taken.shape), taken)
            g = m.tensor(rng.standard_normal(found.shape))
            (expected,) = m.autograd.grad(found, x, g, retain_graph=True)
            at.zero_()
            try:
                (later,) = m.autograd.grad(found, x, g)
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
            else:
                np.testing.assert_array_equal(later, expected)
    for name in ("item", "dots before", "dots behind"):
        with pytest.raises(IndexError, match="out of bounds"):
            calls[name](x, m.tensor([5]))


@pytest.mark.parametrize("shape", [(6, 5, 4), (1, 5, 4), (6, 5), (5,), (6, 5, 40)])
@pytest.mark.parametrize("transposed", [False, True])
def test_remembered_slices_have_the_positions_of_each_call(shape, transposed, rng):
    dim = shape.index(5)
    for _ in range(6):
        array, numbers = rng.standard_normal(shape), rng.integers(0, 5, 7)
        x = m.tensor(array.swapaxes(0, -1).copy() if transposed else array)
        x = (x.transpose(0, -1) if transposed else x).requires_grad_()
        g = rng.standard_normal((*shape[:dim], 7, *shape[dim + 1 :]))
        expected = np.zeros(shape)
        np.add.at(expected, (slice(None),) * dim + (numbers,), g)
        at = m.tensor(numbers)
        for found in (x.index_select(dim, at), x[:, at] if dim else x[at, ...]):
            np.testing.assert_array_equal(found.detach(), np.take(array, numbers, dim))
            (slope,) = m.autograd.grad(found, x, m.tensor(g))
            np.testing.assert_allclose(slope, expected, atol=1e-12)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range for a dimension"):
            x.index_select(dim, m.tensor([0, wrong, 1, 2, 3, 4, 0]))


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (6,), (5, 6)])
@pytest.mark.parametrize("count", [1, 2], ids=["parts", "elements"])
def test_a_remembered_index_is_looked_at_each_time(shape, count, rng):
    """Its launch reads any memory that it is told to: numbers are checked before each."""
    count = min(count, len(shape))
    for layout in (lambda a: a, lambda a: a[::-1].copy()[::-1], np.asfortranarray):
        for _ in range(8):
            array = layout(rng.standard_normal(shape))
            at = [rng.integers(0, n, (2, 3)) for n in shape[:count]]
            found = m.tensor(array)[tuple(map(m.tensor, at))]
            np.testing.assert_array_equal(found, array[tuple(at)])
        negative = [numbers - n for numbers, n in zip(at, shape, strict=False)]
        found = m.tensor(array)[tuple(map(m.tensor, negative))]
        np.testing.assert_array_equal(found, array[tuple(at)])
        for wrong in (shape[0], -shape[0] - 1):
            at[0][1, 2] = wrong
            with pytest.raises(IndexError, match="out of bounds"):
                m.tensor(array)[tuple(map(m.tensor, at))]
