"""Views share memory; in-place changes are seen, counted and differentiated."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import minigrad as mg
from minigrad import backends
from minigrad.autograd import gradcheck, gradgradcheck
from minigrad.tensor import wrap

VIEWS = {
    "slice": lambda x: x[1:, ::2],
    "int": lambda x: x[1],
    "none": lambda x: x[None],
    "reshape": lambda x: x.reshape(2, 6),
    "view": lambda x: x.view(12),
    "t": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x[:, :1].expand(3, 4),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "flatten": lambda x: x.flatten(),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "unbind": lambda x: x.unbind()[0],
    "diagonal": lambda x: x.diagonal(),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "ellipsis": lambda x: x[...],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name):
    x = mg.arange(12.0).reshape(3, 4).clone()
    view = VIEWS[name](x)
    assert np.shares_memory(view.numpy(), x.numpy())
    view.zero_()
    assert (x == 0).sum() >= 3
    if name not in ("detach", "data"):
        assert view._base is x
    if name != "data":
        assert view._version == x._version == 1


def test_copies_do_not_share_memory():
    x = mg.arange(6.0).reshape(2, 3)
    for copy in (
        x.clone(),
        x[[0, 1]],
        x[x > -1],
        x.t().contiguous(),
        x.t().reshape(6),
        x + 0,
        x.flip(0),
    ):
        assert not np.shares_memory(copy.numpy(), x.numpy())
    assert x.contiguous() is x and x.to(mg.float32) is x and x.float() is x


def test_a_reshape_copies_where_numpy_would(rng, reference_backend):
    """Of slices, of dimensions in another order, and of repeated ones."""
    copied = 0
    for _ in range(600):
        shape, steps = rng.choice([1, 1, 2, 3, 4, 6], 3), rng.choice([1, 1, 2, -1], 3)
        x = rng.random(shape * abs(steps))[tuple(slice(None, None, s) for s in steps)]
        x = np.ascontiguousarray(x) if rng.random() < 0.5 else x
        x = x.transpose(rng.permutation(3)) if rng.random() < 0.6 else x
        x = np.broadcast_to(x, (2, *x.shape)) if rng.random() < 0.3 else x
        wanted, left = [], x.size
        while left > 1:
            wanted.append(int(rng.choice([n for n in range(1, left + 1) if left % n == 0])))
            left //= wanted[-1]
        wanted.insert(rng.integers(len(wanted) + 1), 1)
        try:
            np.reshape(x, wanted, copy=False)
            possible = True
        except ValueError:
            possible = False
        copied += not possible
        made = wrap(x).reshape(wanted)  # from_numpy refuses negative strides
        assert np.shares_memory(made.numpy(), x) == possible, (x.shape, x.strides, wanted)
        np.testing.assert_array_equal(made, x.reshape(wanted))
    assert 60 < copied < 540


def test_view_that_is_not_possible():
    x = mg.arange(6.0).reshape(2, 3)
    with pytest.raises(RuntimeError, match=r"Use .reshape\(...\) instead"):
        x.t().view(6)
    with pytest.raises(RuntimeError, match=r"shape '\[4, 2\]' is invalid for input of size 6"):
        x.view(4, 2)
    assert x.t().view(3, 2).shape == (3, 2)
    assert x.view(-1, 2).shape == (3, 2)
    assert x.view(mg.int32).dtype is mg.int32


# --- writing ---

PROGRAMS = {
    "add_": lambda m, x, y: x.clone().add_(y),
    "mul_scalar": lambda m, x, y: (x * 1).mul_(3) * y,
    "operators": lambda m, x, y: _operators(x * 1, y),
    "setitem_row": lambda m, x, y: _set(x * 1, 0, y[1]),
    "setitem_slice": lambda m, x, y: _set(x * 1, (slice(None), slice(1, 3)), y[:, :2] * 2),
    "setitem_scalar": lambda m, x, y: _set(x * y, (1, 2), 5.0),
    "setitem_broadcast": lambda m, x, y: _set(x * 1, slice(None), y[0]),
    "setitem_mask": lambda m, x, y: _set(x * 1, x > 0, 0.0) * y,
    "setitem_mask_values": lambda m, x, y: _set(x * 1, x > 0, y[x > 0]),
    "setitem_list": lambda m, x, y: _set(x * 1, [2, 0], y[:2]),
    "setitem_tensor_slice": lambda m, x, y: _set(x * 1, (slice(None), m.tensor([3, 1])), y[:, :2]),
    "into_zeros": lambda m, x, y: _set(m.zeros(3, 4, dtype=x.dtype), 1, x[1] * y[1]),
    "row_by_row": lambda m, x, y: _rows(m, x, y),
    "view_then_write_base": lambda m, x, y: _view_then_write_base(x, y),
    "write_view_then_read_base": lambda m, x, y: _write_view(x, y),
    "write_view_of_view": lambda m, x, y: _write_view_of_view(x, y),
    "transposed_view": lambda m, x, y: _transposed(x, y),
    "copy_": lambda m, x, y: m.zeros(3, 4, dtype=x.dtype).copy_(x) * y,
    "copy_broadcast": lambda m, x, y: (x * 2).copy_(y[0]),
    "fill_": lambda m, x, y: (x * 2).fill_(3.0) * y,
    "zero_part": lambda m, x, y: _zero_part(x * y),
    "masked_fill_": lambda m, x, y: (x * y).masked_fill_(x > 0, 1.0),
    "clamp_": lambda m, x, y: (x * y).clamp_(-0.5, 0.5),
    "relu_": lambda m, x, y: (x * y).relu_(),
    "exp_": lambda m, x, y: (x * y).exp_(),
    "sigmoid_": lambda m, x, y: (x * y).sigmoid_(),
    "pow_": lambda m, x, y: (x * 1).pow_(2) + y,
    "index_add_": lambda m, x, y: (x * 1).index_add_(0, m.tensor([0, 0]), y[:2]),
    "scatter_": lambda m, x, y: (x * 1).scatter_(1, m.tensor([[0, 2]]), y[:1, :2]),
    "index_put_": lambda m, x, y: (x * 1).index_put_((m.tensor([0, 0]),), y[:2], accumulate=True),
    "leaf_into_slice": lambda m, x, y: _set(m.zeros(5, 4, dtype=x.dtype), slice(0, 3), x) * y[0],
    "diagonal_write": lambda m, x, y: _diagonal(x * 1, y),
    "storage_write": lambda m, x, y: _storage(x * 1, y, (2, 2), (4, 1), 1),
    "storage_of_transposed": lambda m, x, y: _storage((x * 1).t(), y.t(), (2, 2), (4, 1), 2),
    "storage_of_part": lambda m, x, y: _storage((x * 1)[1:], y[1:], (3,), (2,)),
    "storage_read": lambda m, x, y: x.as_strided((5, 2), (1, 1)) * y.as_strided((2,), (3,), 2),
    "storage_of_repeated": lambda m, x, y: (x * y).expand(2, 3, 4).as_strided((12,), (1,)),
    "storage_then_base": lambda m, x, y: _storage_then_base(x * 1, y),
}


def _set(x, index, value):
    x[index] = value
    return x


def _operators(x, y):
    x += y
    x -= 1
    x *= y
    x /= 2
    x **= 2
    return x


def _rows(m, x, y):
    out = m.zeros(3, 4, dtype=x.dtype)
    for i in range(3):
        out[i] = x[i] * y[i] + (out[i - 1] if i else 0)
    return out


def _view_then_write_base(x, y):
    base = x * 1
    row = base[0]
    base.mul_(y)
    return row * 2


def _write_view(x, y):
    base = x * 1
    base[1].mul_(y[0])
    return base * y


def _write_view_of_view(x, y):
    base = x * 1
    base[1:][:, :2].add_(y[1:, :2] * 3)
    return base


def _transposed(x, y):
    base = x * 1
    base.t()[1:3] *= y.t()[1:3]
    return base


def _zero_part(x):
    x[:, 1:3].zero_()
    return x


def _diagonal(x, y):
    x.diagonal().copy_(y.diagonal() * 2)
    return x


def _storage(x, y, *where):
    view = x.as_strided(*where)
    assert view._base is (x if x._base is None else x._base)
    view[0] = 3
    view[1:].mul_(x.sum() * 2)
    return x * y


def _storage_then_base(x, y):
    view = x.as_strided((3,), (4,), 1)
    x.mul_(y)
    return view.sin()


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_place_values_and_gradients_match_torch(name, torch):
    rng = np.random.default_rng(11)
    values = [rng.standard_normal((3, 4)) for _ in range(2)]
    results = []
    for m in (mg, torch):
        x, y = [m.tensor(v, dtype=m.float32, requires_grad=True) for v in values]
        out = PROGRAMS[name](m, x, y)
        (out * out).sum().backward()
        results.append((out.detach().numpy(), [g.grad for g in (x, y)]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    for ours, theirs in zip(results[0][1], results[1][1], strict=True):
        ours = np.zeros((3, 4)) if ours is None else ours.numpy()
        theirs = np.zeros((3, 4)) if theirs is None else theirs.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_place_gradients_match_finite_differences(name):
    rng = np.random.default_rng(12)
    inputs = [mg.tensor(rng.standard_normal((3, 4)), requires_grad=True) for _ in range(2)]
    with backends.use("numpy"):
        assert gradcheck(lambda x, y: PROGRAMS[name](mg, x, y), inputs)
        if name.startswith("storage"):
            assert gradgradcheck(lambda x, y: PROGRAMS[name](mg, x, y), inputs)


LINES = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "number": lambda x, y: x.mul_(3),
    "itself": lambda x, y: x.mul_(x),
    "clamp_": lambda x, y: x.clamp_(-0.5, 0.5),
    "relu_": lambda x, y: x.relu_(),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 1.0),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "row": lambda x, y: x.sub_(y[0]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_the_table_is_written_where_its_tensor_lies(name, monkeypatch):
    rng = np.random.default_rng(3)
    old, y = rng.standard_normal((2, 6, 40)).astype(np.float32)
    compute = LINES[name]
    wanted = compute(mg.tensor(old), mg.tensor(y)).numpy()
    inplace = importlib.import_module("minigrad.ops.inplace")
    monkeypatch.setattr(inplace, "write", None)  # which copies a value
    with backends.use("numba"):
        for _ in range(3):  # the second is remembered
            whole = mg.zeros(6, 42)
            for x, start in ((mg.tensor(old), None), (whole[:, 1:41], whole)):
                if start is not None:
                    start.numpy()[:, 1:41] = old
                at, version = x.data_ptr(), x._version
                assert compute(x, mg.tensor(y)) is x
                assert (x.data_ptr(), x._version) == (at, version + 1)
                np.testing.assert_array_equal(x.numpy(), wanted)
        assert not whole[:, 0].any() and not whole[:, 41].any()


def test_a_line_reads_old_values_that_overlap():
    x = mg.arange(12.0).reshape(3, 4)
    old = x.numpy().copy()
    with backends.use("numba"):
        for other in (mg.ones(3, 4), mg.ones(3, 4), x):  # others first: their launch is remembered
            x.copy_(mg.tensor(old))
            x[:, 1:].add_(other[:, :-1])
            if other is not x:
                x[:, :3].mul_(other[:, :3].t())
                continue
            np.testing.assert_array_equal(x.numpy()[:, 1:], old[:, 1:] + old[:, :-1])
            x.copy_(mg.tensor(old))
            x[:, :3].mul_(x[:, :3].t())
            np.testing.assert_array_equal(x.numpy()[:, :3], old[:, :3] * old[:, :3].T)


def test_a_saved_result_that_lies_in_the_tensor_may_not_change():
    x = mg.tensor([1.0, -2.0], requires_grad=True)
    y = (x * 1).relu_()
    y.sum().backward()
    assert x.grad.tolist() == [1, 0]
    y = (x * 1).relu_()
    y.add_(1)  # as in torch
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*version 2"):
        y.sum().backward()


def test_saved_value_changed_in_place():
    x = mg.ones(3, requires_grad=True)
    y = (x * 1).exp()
    z = y * y
    y.add_(1)
    with pytest.raises(
        RuntimeError, match="modified by an inplace operation.*version 1; expected version 0"
    ):
        z.sum().backward()


def test_saved_base_changed_through_a_view():
    x = mg.ones(3, requires_grad=True)
    y = x * 1
    z = y * y
    y[0] = 5
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_unsaved_values_may_change():
    x = mg.ones(3, requires_grad=True)
    y = x * 2
    z = y + 1
    y.mul_(5)
    z.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_optimizer_step_before_backward_is_noticed():
    w = mg.ones(3, requires_grad=True)
    loss = (w * w).sum()
    with mg.no_grad():
        w -= 0.1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda x, w: x @ w, (2, 2)),
        (lambda x, w: x * w, (2, 2)),
        (lambda x, w: mg.nn.functional.linear(x, w, w[0]), (2, 2)),
        (lambda x, w: mg.nn.functional.conv2d(x, w), (1, 1, 2, 2)),
    ],
)
def test_weights_may_change_where_only_their_own_gradient_is_wanted(call, shape):
    """As in torch: the gradient of w needs x alone, so w may be updated before backward."""
    w = mg.ones(shape, requires_grad=True)
    y = call(mg.ones(shape), w).sum()
    with mg.no_grad():
        w.add_(1)
    y.backward()
    assert w.grad.shape == shape


def test_leaf_rules():
    x = mg.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x += 1
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0] = 1
    with mg.no_grad():
        x[0] = 5
        x.add_(1)
    assert x.tolist() == [6, 2, 2] and x.is_leaf and x.requires_grad


def test_view_made_without_grad_mode():
    x = mg.ones(3, requires_grad=True) * 1
    with mg.no_grad():
        view = x[:1]
        view.add_(1)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.add_(1)


def test_shapes_and_dtypes_of_in_place_results():
    with pytest.raises(
        RuntimeError, match=r"output with shape \[3\] doesn't match the broadcast shape"
    ):
        mg.ones(3).add_(mg.ones(2, 3))
    with pytest.raises(RuntimeError, match="Float can't be cast to the desired output type Long"):
        mg.arange(3).add_(1.5)
    with pytest.raises(RuntimeError, match="must match the existing size"):
        mg.ones(3)[:2] = mg.ones(3)
    half = mg.ones(3, dtype=mg.float16)
    assert half.mul_(2.5) is half and half.dtype is mg.float16
    ints = mg.arange(3)
    ints.copy_(mg.tensor([1.9, 2.9, -1.9]))
    assert ints.tolist() == [1, 2, -1]


def test_base_starts_to_require_grad():
    base = mg.zeros(3)
    view = base[0]
    assert not view.requires_grad
    base[:2] = mg.ones(2, requires_grad=True) * 2
    assert base.requires_grad and view.requires_grad
    assert base.grad_fn.name() == "CopySlices"


def test_writing_to_read_only_memory():
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises((RuntimeError, ValueError), match="read-only|read only"):
        mg.from_numpy(array).add_(1)


UNARY_IN_PLACE = (
    "abs acos asin atan ceil cos cosh erf exp exp2 expm1 floor frac log log10 log1p log2 neg"
    " reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh tril triu trunc"
)
BINARY_IN_PLACE = (
    "add sub mul div pow fmod remainder floor_divide atan2 eq ne lt le gt ge logical_and logical_or"
    " logical_xor clamp_min clamp_max"
)


@pytest.mark.parametrize("name", UNARY_IN_PLACE.split() + BINARY_IN_PLACE.split())
def test_in_place_methods_equal_the_functions(name):
    x = mg.tensor([[0.2, 0.5], [0.9, 0.7]])
    args = (0.5,) if name in BINARY_IN_PLACE.split() else ()
    if name == "atan2":  # takes no numbers
        args = (mg.tensor(0.5),)
    if name.startswith("logical"):
        args = (mg.tensor([True, False]),)
    expected = getattr(x, name)(*args).float()
    assert getattr(x, name + "_")(*args) is x
    np.testing.assert_array_equal(x, expected)
    assert x._version == 1


def test_in_place_integer_methods():
    x = mg.tensor([6, 3])
    x.bitwise_and_(5).bitwise_or_(8).bitwise_xor_(1).bitwise_left_shift_(1).bitwise_not_()
    assert x.tolist() == [~((((v & 5) | 8) ^ 1) << 1) for v in (6, 3)]
    x &= 3
    x |= 4
    x //= 2
    x %= 2
    assert x.dtype is mg.int64


def test_detach_in_place_and_set():
    x = mg.ones(2, requires_grad=True)
    y = x * 2
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views"):
        (x * 2)[0].detach_()
    z = mg.zeros(3)
    z.set_(y)
    assert np.shares_memory(z.numpy(), y.numpy()) and z.is_set_to(y)
    y.data = mg.zeros(2)
    assert y.tolist() == [0, 0] and z.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="tensor of type"):
        z.set_(mg.zeros(2).long())
    with pytest.raises(TypeError, match="has to be a tensor"):
        y.data = 3


def test_set_to_a_part_of_a_storage(torch):
    for m in (mg, torch):
        t = m.arange(6.0)
        part = m.empty(0).set_(t.untyped_storage(), 1, (2, 2), (1, 2))
        t[1] = 9
        assert part.tolist() == [[9, 3], [2, 4]] and part.storage_offset() == 1
        assert t.as_strided((2,), (2,), 3).storage_offset() == 3
        assert t[1:].as_strided((2,), (2,), 3).untyped_storage().nbytes() == 24
        assert m.empty(0).set_(t.untyped_storage()).tolist() == t.tolist()
        assert m.empty(0).set_(t, 2, (3,)).tolist() == [2, 3, 4]
        assert m.ones(2).set_().numel() == 0
    with pytest.raises(RuntimeError, match="out of bounds"):  # torch grows the storage
        mg.empty(0).set_(mg.arange(6.0), 4, (3,))


PARTS = {
    "chunk": lambda x: x.chunk(3, 1),
    "split": lambda x: x.split(2, 1),
    "sizes": lambda x: x.split([1, 0, 4], 1),
    "rows": lambda x: x.split([1, 1, 1]),
    "of a view": lambda x: x[:, 1:].tensor_split(3, 1),
    "unbind": lambda x: x.unbind(),
    "columns": lambda x: x[:, 1:4].unbind(-1),
    "iteration": lambda x: (*x,),
}


@pytest.mark.parametrize("used", [(0, 1, 2), (0,), (1,), (0, 2)])
@pytest.mark.parametrize("name", PARTS)
def test_gradients_of_parts_lie_side_by_side(name, used, rng):
    x = mg.tensor(rng.normal(size=(3, 5)), requires_grad=True)
    parts, wanted = PARTS[name](x), mg.zeros(3, 5, dtype=mg.float64)
    assert len({id(part.grad_fn) for part in parts}) == 1
    assert [part.output_nr for part in parts] == [0, 1, 2]
    weights = [mg.from_numpy(rng.normal(size=part.shape)) for part in parts]
    for i in used:
        PARTS[name](wanted)[i].copy_(weights[i])
    sum((parts[i] * weights[i]).sum() for i in used).backward()
    np.testing.assert_array_equal(x.grad.numpy(), wanted.numpy())


@pytest.mark.parametrize("used", [(3, 17), (0, 5, 20, 69), range(1, 70, 2), range(70)])
def test_gradients_of_some_of_many_rows(used, rng):
    x, weights = mg.ones(70, 2, requires_grad=True), rng.normal(size=(70, 2)).astype(np.float32)
    rows, wanted = [*x], np.zeros_like(weights)
    wanted[[*used]] = weights[[*used]]
    sum((rows[i] * mg.from_numpy(weights[i])).sum() for i in used).backward()
    np.testing.assert_array_equal(x.grad.numpy(), wanted)


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_differentiated_twice(name, rng):
    x = mg.tensor(rng.normal(size=(3, 5)), requires_grad=True)

    def some(x):
        first, _, last = PARTS[name](x)
        return (first**3).sum() * last.sum()

    with mg.backends.use("numpy"):
        assert gradcheck(some, x) and gradgradcheck(some, x)


def test_parts_that_change_in_place(rng):
    x = mg.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    y = x * 2
    left, right = y.tensor_split(2, 1)
    left.mul_(3)
    assert type(right.grad_fn).__name__ != "Parts" and right.grad_fn is not left.grad_fn
    (left.sum() + right.sum() + y.sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[12, 12, 4, 4]] * 3)


def test_parts_of_several_do_not_change_in_place():
    """Those of chunk, split, unbind and iteration where a gradient is recorded, as in torch."""
    y = mg.ones(3, 4, requires_grad=True) * 2
    for part, name in (
        (y.chunk(2, 1)[1], "Output 1 of Split is"),
        (y.split([1, 2])[0], "Output 0 of SplitWithSizes is"),
        (y.unbind()[2], "Output 2 of Unbind is"),
        (next(iter(y))[1:], "Output 0 of Slice is"),
    ):
        with pytest.raises(RuntimeError, match=name):
            part.mul_(3)
    with mg.no_grad():
        y.chunk(2)[0].mul_(1)
    y.unsafe_chunk(2, 1)[0].mul_(3)
    constant = mg.ones(3, 4)
    constant.unbind()[0].mul_(3)
    with pytest.raises(RuntimeError, match="returns multiple views"):
        constant.unbind()[1].copy_(y[0])
    assert constant.sum() == 20 and not constant.requires_grad


def test_gradients_of_single_parts_are_kept_and_seen_by_hooks(rng):
    x = mg.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    left, right = x.chunk(2, 1)
    left.retain_grad()
    right.register_hook(lambda g: g * 10)
    (left * 2 + right * 3).sum().backward(retain_graph=True)
    np.testing.assert_array_equal(left.grad.numpy(), np.full((3, 2), 2.0))
    np.testing.assert_array_equal(x.grad.numpy(), [[2, 2, 30, 30]] * 3)
    (g,) = mg.autograd.grad((left * right).sum(), right)
    np.testing.assert_array_equal(g.numpy(), 10 * left.detach().numpy())


def test_names_of_the_nodes_of_parts_as_torch(torch):
    for library in (mg, torch):
        x = library.ones(4, requires_grad=True)
        assert x.chunk(2)[1].grad_fn.name() == x.split(2)[0].grad_fn.name() == "SplitBackward0"
        assert x.split([1, 3])[1].grad_fn.name() == "SplitWithSizesBackward0"
        assert x.unbind()[3].grad_fn.name() == next(iter(x)).grad_fn.name() == "UnbindBackward0"


def test_what_iteration_gives(rng):
    """Views, of no more dimensions than the rows; nothing of an empty tensor."""
    x = mg.from_numpy(rng.normal(size=(3, 4)))
    for i, row in enumerate(x):
        assert row.shape == (4,) and row._base is x
        row.mul_(i)
    assert (x[0] == 0).all() and x._version == 3
    assert [n.item() for n in mg.arange(3)] == [0, 1, 2] and all(n.ndim == 0 for n in mg.arange(3))
    assert [*mg.zeros(0, 4)] == [] and mg.zeros(2, 0).unbind(1) == ()
    y = mg.ones(2, 3, requires_grad=True)
    with mg.no_grad():
        kept = [*y]
    assert all(row.requires_grad and row.is_leaf for row in kept)  # as their base


COPIES = {
    "repeat": lambda x: x.repeat(2, 1, 1),
    "repeat_once": lambda x: x.repeat(1, 1),
    "repeat_rows": lambda x: x[:1].repeat(3, 1),
    "repeat_columns": lambda x: x[:, :1].repeat(1, 2),
    "repeat_number": lambda x: x[0, 0].repeat(2),
    "tile": lambda x: x.tile(1, 1),
    "pixel_shuffle": lambda x: mg.nn.functional.pixel_shuffle(x[None], 1),
    "interpolate": lambda x: mg.nn.functional.interpolate(x[None, None], scale_factor=1),
}


@pytest.mark.parametrize("name", COPIES)
def test_repeated_elements_have_memory_of_their_own(name):
    """Where nothing is repeated, or a dimension of one element, reshaping alone makes a view."""
    x = mg.arange(6.0).reshape(2, 3)
    y = COPIES[name](x)
    before = y.tolist()
    x.add_(100)
    assert y.tolist() == before and y.is_contiguous()
    y[..., 0] = -1
    assert x.min() == 100
    x = mg.ones(2, 3, requires_grad=True)
    (COPIES[name](x) * 1).sum().backward()
    assert x.grad.sum() == len(np.ravel(before))


def test_a_leaf_that_is_a_view_is_not_changed_in_place():
    leaf = mg.zeros(3)[:2].requires_grad_()
    for change in (lambda: leaf.add_(1), lambda: leaf[:1].add_(1), lambda: leaf.t().fill_(1)):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            change()
    with mg.no_grad():
        leaf.add_(1)


def test_a_view_requires_a_gradient_where_its_base_does():
    x = mg.zeros(3)
    view = x[:2]
    x.requires_grad_()
    assert view.requires_grad and view.is_leaf and (view * 2).requires_grad
    with mg.no_grad():
        assert x[:2].requires_grad and not (x * 2)[:1].requires_grad


def test_errors_of_views_of_leaves_as_torch(same_error):
    def view(m):
        x = m.zeros(3)
        part = x[:2]
        x.requires_grad_()
        return part

    same_error(lambda m: view(m).add_(1))
    same_error(lambda m: view(m).numpy())
    same_error(lambda m: m.zeros(3)[:2].requires_grad_()[:1].add_(1))
    same_error(lambda m: m.zeros(3).split(1)[0].requires_grad_().add_(1))


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda m, x: x.__setitem__(m.tensor([0, 2]), 9.0), [9, 1, 9]),
        (lambda m, x: x.__setitem__(m.tensor([0, 2]), m.tensor([[3.0], [4.0]])), [3, 1, 4]),
        (lambda m, x: x.__setitem__(m.tensor([-1]), 9.0), [0, 1, 9]),
        (lambda m, x: x.__setitem__(x > 0, 9.0), [0, 9, 9]),
        (lambda m, x: x.index_put_((m.tensor([0, 2]),), m.tensor(7.0)), [7, 1, 7]),
        (lambda m, x: x.masked_fill_(x > 1, m.tensor(5.0)), [0, 1, 5]),
        (lambda m, x: x.masked_fill_(x[:, :1] > 0, 5.0), [0, 5, 5]),
    ],
)
def test_expanded_tensors_are_written_by_index(change, rows):
    """With torch's warning; these are its results."""
    x = mg.arange(3.0)[:, None].clone().expand(3, 4)
    with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
        change(mg, x)
    assert x.tolist() == [[row] * 4 for row in rows] and x._version == 1


def test_expanded_tensors_are_not_written_otherwise():
    x = mg.ones(3, 1, requires_grad=True)
    for change in (
        lambda: (x * 1).expand(3, 4).masked_fill_(x > 0, 2.0),
        lambda: (x * 1).expand(3, 4).__setitem__(mg.tensor([0]), 2.0),
        lambda: mg.ones(3, 1).expand(3, 4).__setitem__(0, 2.0),
        lambda: mg.ones(3, 1).expand(3, 4).mul_(2),
    ):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            change()


def test_a_leaf_that_is_frozen_after_its_use_gets_no_gradient():
    x, y = mg.ones(2, requires_grad=True), mg.ones(2, requires_grad=True)
    loss = (x * y).sum()
    x.requires_grad_(False)
    loss.backward()
    assert x.grad is None and y.grad.tolist() == [1, 1]


def test_a_number_is_flipped():
    assert mg.tensor(3.0).flip(0).tolist() == mg.tensor(3.0).flip(-1).tolist() == 3
