"""Values and gradients where definitions have corners, and random indexing, beside torch."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest

import minigrad as mg
from minigrad import backends

EDGES = [-np.inf, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, np.inf]
FUNCTIONS = {
    "abs": lambda m, x: x.abs(),
    "sign": lambda m, x: x.sign(),
    "relu": lambda m, x: x.relu(),
    "sqrt": lambda m, x: x.sqrt(),
    "log": lambda m, x: x.log(),
    "exp": lambda m, x: x.exp(),
    "tanh": lambda m, x: x.tanh(),
    "sigmoid": lambda m, x: x.sigmoid(),
    "reciprocal": lambda m, x: x.reciprocal(),
    "round": lambda m, x: x.round(),
    "floor": lambda m, x: x.floor(),
    "trunc": lambda m, x: x.trunc(),
    "frac": lambda m, x: x[1:-1].frac(),
    "square": lambda m, x: x.square(),
    "pow0": lambda m, x: x**0,
    "pow1": lambda m, x: x**1,
    "pow2": lambda m, x: x**2,
    "pow_half": lambda m, x: x[5:] ** 0.5,
    "pow_minus1": lambda m, x: x**-1,
    "pow_tensor": lambda m, x: x ** m.zeros(10, dtype=x.dtype),
    "rpow0": lambda m, x: 0.0**x,
    "clamp": lambda m, x: x.clamp(-1, 1),
    "clamp_min": lambda m, x: x.clamp(min=0.5),
    "clamp_tensor": lambda m, x: x.clamp(max=m.ones(10, dtype=x.dtype)),
    "maximum_tie": lambda m, x: m.maximum(x, x * 1),
    "maximum": lambda m, x: m.maximum(x, m.ones(10, dtype=x.dtype)),
    "minimum": lambda m, x: m.minimum(x, m.ones(10, dtype=x.dtype)),
    "hardtanh": lambda m, x: m.nn.functional.hardtanh(x),
    "relu6": lambda m, x: m.nn.functional.relu6(x),
    "leaky_relu": lambda m, x: m.nn.functional.leaky_relu(x, 0.2),
    "elu": lambda m, x: m.nn.functional.elu(x),
    "softplus": lambda m, x: m.nn.functional.softplus(x),
    "logsigmoid": lambda m, x: m.nn.functional.logsigmoid(x),
    "hardswish": lambda m, x: m.nn.functional.hardswish(x[1:-1]),
    "hardsigmoid": lambda m, x: m.nn.functional.hardsigmoid(x),
    "softshrink": lambda m, x: m.nn.functional.softshrink(x),
    "hardshrink": lambda m, x: m.nn.functional.hardshrink(x),
    "threshold": lambda m, x: m.nn.functional.threshold(x, 0.5, -7.0),
    "max_ties": lambda m, x: m.stack([x, x])[:, 1:-1].max(0).values,
    "max_all_ties": lambda m, x: x[1:-1].abs().max(),
    "amax_ties": lambda m, x: x[1:-1].abs().amax(),
    "norm_zero": lambda m, x: (x[1:-1] * 0).norm(),
    "norm_1": lambda m, x: x[1:-1].norm(1),
    "prod_zeros": lambda m, x: x[1:-1].prod(),
    "where_nan": lambda m, x: m.where(x > 0, x.log(), m.zeros(10, dtype=x.dtype)),
    "logaddexp": lambda m, x: m.logaddexp(x[1:-1], x[1:-1] * 0),
    "fmod": lambda m, x: m.fmod(x, 1.0),
    "remainder": lambda m, x: x[1:-1] % 1.0,
    "atan2": lambda m, x: m.atan2(x[1:-1], x[1:-1] * 0 + 1),
    "logsumexp_inf": lambda m, x: m.logsumexp(x[:-1], 0),
    "softmax_minus_inf": lambda m, x: x[:-1].softmax(0),
    "log_softmax_minus_inf": lambda m, x: x[:-1].log_softmax(0)[1:],
    "smooth_l1": lambda m, x: m.nn.functional.smooth_l1_loss(
        x[1:-1], x[1:-1] * 0, reduction="none"
    ),
    "huber": lambda m, x: m.nn.functional.huber_loss(x[1:-1], x[1:-1] * 0, reduction="none"),
    "l1": lambda m, x: m.nn.functional.l1_loss(x[1:-1], x[1:-1] * 0, reduction="none"),
    "bce_logits": lambda m, x: m.nn.functional.binary_cross_entropy_with_logits(
        x[1:-1], x[1:-1] * 0 + 1, reduction="none"
    ),
    "bce_bounds": lambda m, x: m.nn.functional.binary_cross_entropy(
        x[5:8], m.ones(3, dtype=x.dtype), reduction="none"
    ),
    "nan_to_num": lambda m, x: m.nan_to_num(x, posinf=5.0),
}


@pytest.mark.parametrize("seventh", [0.5, np.nan], ids=["", "nan"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_corners_match_torch(name, seventh, torch):
    if seventh != 0.5 and name in ("amax_ties", "bce_bounds", "prod_zeros"):
        pytest.skip("torch's amax and prod make all gradients NaN; its bce refuses NaN")
    results = []
    for m in (mg, torch):
        edges = [*EDGES[:6], seventh, *EDGES[7:]]
        x = m.tensor(edges, dtype=m.float32, requires_grad=True)
        y = FUNCTIONS[name](m, x)
        y.backward(m.ones(y.shape))
        results.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=2e-7)


ENDS = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, -2.5, 1e-30, 1e30]
PAIRS = {
    "atan2": lambda m, a, b: m.atan2(a, b),
    "div": lambda m, a, b: a / b,
    "fmax": lambda m, a, b: m.fmax(a, b),
    "fmin": lambda m, a, b: m.fmin(a, b),
    "hypot": lambda m, a, b: m.hypot(a, m.where(a == 0, 1, b)),  # torch's slope at 0, 0 is NaN
    "logaddexp": lambda m, a, b: m.logaddexp(a, b),
    "logaddexp2": lambda m, a, b: m.logaddexp2(a, b),
    "remainder": lambda m, a, b: m.where(b.abs() > 1e-20, a, 1) % b,  # torch: 1e30 % 1e-30 is NaN
    "xlog1py": lambda m, a, b: m.special.xlog1py(
        a, m.where((a == 0) & ((b == np.inf) | (b == -1)), 1, b)
    ),
    "angle": lambda m, a, b: m.angle(a.detach()) + b,
    "spherical_bessel_j0": lambda m, a, b: m.special.spherical_bessel_j0(a.detach()) + b,
    "i1": lambda m, a, b: sum(f(a.clamp(-1, 1) * 1e-15) for f in (m.special.i1, m.special.i1e)) + b,
}


@pytest.mark.parametrize("name", PAIRS)
def test_corners_of_two_numbers_match_torch(name, torch):
    """Every pair of limits, zeros and numbers whose squares leave the range of float32."""
    results = []
    for m in (mg, torch):
        a, b = (m.tensor(x.ravel(), dtype=m.float32) for x in np.meshgrid(ENDS, ENDS))
        a.requires_grad_()
        b.requires_grad_()
        y = PAIRS[name](m, a, b)
        y.backward(m.ones(y.shape))
        results.append([t if t is None else t.detach().numpy() for t in (y, a.grad, b.grad)])
    for ours, theirs in zip(*results):
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def _random_index(rng: random.Random, shape: tuple[int, ...]) -> list:
    """A random mixture of every kind of index; tensors are given as NumPy arrays."""
    parts: list = []
    dims, ellipsis = list(shape), False
    while dims and rng.random() < 0.85:
        n = dims.pop(0)
        kind = rng.choice(["int", "slice", "none", "ellipsis", "list", "tensor", "mask", "grid"])
        if kind == "ellipsis" and not ellipsis:
            parts.append(...)
            ellipsis = True
            dims = dims[rng.randrange(len(dims) + 1) :]
        elif kind == "none":
            parts.append(None)
            dims.insert(0, n)
        elif kind == "int":
            parts.append(rng.randrange(-n, n))
        elif kind == "list":
            parts.append([rng.randrange(n) for _ in range(2)])
        elif kind == "tensor":
            parts.append(np.array([rng.randrange(-n, n) for _ in range(2)]))
        elif kind == "grid":
            parts.append(np.array([[rng.randrange(n)], [rng.randrange(n)]]))
        elif kind == "mask":
            mask = [i < 2 for i in range(n)]
            rng.shuffle(mask)
            parts.append(np.array(mask))
        else:
            start, stop = sorted(rng.randrange(n + 1) for _ in range(2))
            parts.append(slice(start, stop, rng.choice([1, 2])))
    return parts


def _on(m, parts: list) -> tuple:
    return tuple(m.tensor(p) if isinstance(p, np.ndarray) else p for p in parts)


@pytest.mark.parametrize("seed", range(60))
def test_random_indexing_matches_torch(seed, torch):
    """Reading with gradient, and writing, through random mixtures of every kind of index."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([2, 3, 4]) for _ in range(rng.choice([1, 2, 3, 4])))
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    index = _random_index(rng, shape)
    x, y = (m.tensor(values, requires_grad=True) for m in (mg, torch))
    ours, theirs = x[_on(mg, index)], y[_on(torch, index)]
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_array_equal(ours.detach(), theirs.detach())
    weight = np.random.default_rng(seed + 1).standard_normal(tuple(theirs.shape))
    weight = np.asarray(weight, np.float32)
    (ours * mg.tensor(weight)).sum().backward()
    (theirs * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(x.grad, y.grad, rtol=1e-6)
    a, b = mg.tensor(values), torch.tensor(values)
    a[_on(mg, index)] = 7.0
    b[_on(torch, index)] = 7.0
    np.testing.assert_array_equal(a, b)


def test_an_index_of_leading_dimensions_copies_rows(torch):
    """Not element by element; with derivatives of any order, and of complex numbers."""
    import kernels

    values, places = np.random.default_rng(0).standard_normal((9, 5, 160)), np.array([3, -1, 3])
    with kernels.trace() as trace:
        mg.tensor(values)[:, places]
    assert ("embedding", "rows") in trace.rows and ("gather", "rows") not in trace.rows
    for dtype in ("float64", "complex128"):
        found = []
        for m in (mg, torch):
            x = m.tensor(values).to(getattr(m, dtype)).requires_grad_()
            chosen = x[m.tensor(places)]
            (first,) = m.autograd.grad((chosen**3).abs().sum(), x, create_graph=True)
            (second,) = m.autograd.grad((first.abs() ** 2).sum(), x)
            found.append([np.asarray(t.detach()) for t in (chosen, first, second)])
        for ours, theirs in zip(*found):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)


LONE = {
    "positions": np.array([2, 0, 2]),
    "negative": np.array([-1, 1]),
    "grid": np.array([[0, 1], [2, 2]]),
    "none": np.array([], np.int64),
    "int32": np.array([1, 1], np.int32),
    "mask": np.array([True, False, True]),
    "no mask": np.array([False, False, False]),
}


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 4), (3, 4, 2), (3, 0)])
@pytest.mark.parametrize("index", LONE)
def test_one_tensor_as_the_whole_index(shape, index, torch):
    """Also where the program changes it before the backward pass."""
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = []
    for m in (mg, torch):
        x, places = m.tensor(values, requires_grad=True), m.tensor(LONE[index])
        chosen = x[places]
        if m is mg and places.numel():
            places[0] = places[-1].clone()
        (chosen**3).sum().backward()
        found.append((np.asarray(chosen.detach()), np.asarray(x.grad)))
    for ours, theirs in zip(*found):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_mask_of_all_dimensions_and_a_wrong_position(torch):
    values = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    found = [m.tensor(values)[m.tensor(values > 0)] for m in (mg, torch)]
    np.testing.assert_array_equal(*found)
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        mg.tensor(values)[mg.tensor([0, 3])]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0)])
def test_stacks_are_differentiated_twice(shape, rng):
    xs = [mg.tensor(rng.standard_normal(shape), requires_grad=True) for _ in range(3)]
    for dim in range(-len(shape) - 1, len(shape) + 1):
        y = mg.stack(xs, dim)
        np.testing.assert_array_equal(y.detach(), np.stack([x.detach() for x in xs], dim))
        assert y.grad_fn.name() == "StackBackward0" and not y._is_view()
        with mg.backends.use("numpy"):
            assert mg.autograd.gradcheck(lambda *t, dim=dim: mg.stack(t, dim) ** 2, xs)
            assert mg.autograd.gradgradcheck(lambda *t, dim=dim: mg.stack(t, dim) ** 3, xs)


MISCELLANEOUS = {
    "unique": lambda m: m.unique(m.tensor([3, 1, 3, 2]), return_inverse=True, return_counts=True),
    "unique_rows": lambda m: m.unique(m.tensor([[1, 2], [1, 2], [0, 1]]), dim=0),
    "searchsorted": lambda m: m.searchsorted(m.tensor([1.0, 2, 3]), m.tensor([0.5, 2.0, 9.0])),
    "bincount": lambda m: m.bincount(m.tensor([0, 2, 2]), minlength=5),
    "histc": lambda m: m.histc(m.tensor([0.0, 1, 1, 2]), bins=3),
    "histogram": lambda m: m.histogram(m.tensor([0.0, 1, 1, 2]), density=True),
    "isclose": lambda m: m.isclose(m.tensor([1.0, 2, np.inf]), m.tensor([1.0, 2.1, np.inf])),
    "heaviside": lambda m: m.heaviside(m.tensor([-1.0, 0, 1]), m.tensor(0.5)),
    "var_mean": lambda m: m.var_mean(m.tensor([1.0, 2, 4])),
    "std_mean": lambda m: m.std_mean(m.tensor([[1.0, 2], [4, 8]]), dim=1),
    "median": lambda m: m.median(m.tensor([3.0, 1, 2, 4])),
    "sort_bool_stable": lambda m: m.sort(m.tensor([2, 1, 2, 1]), descending=True, stable=True),
    "topk_smallest": lambda m: m.topk(m.tensor([3.0, 1, 2]), 2, largest=False),
    "topk_few_nan": lambda m: m.topk(m.tensor([1, 7.0, np.nan, 2, 7, 2, 0, np.nan, 7]), 2)[0],
    "topk_few_smallest": lambda m: m.topk(m.tensor([1, np.nan, 3, -np.inf, 5]), 1, largest=False),
    "nonzero_tuple": lambda m: m.nonzero(m.tensor([[0, 1], [1, 0]]), as_tuple=True),
    "where_one": lambda m: m.where(m.tensor([False, True])),
    "broadcast_tensors": lambda m: m.broadcast_tensors(m.ones(2, 1), m.ones(3)),
    "cartesian_prod": lambda m: m.cartesian_prod(m.tensor([1, 2]), m.tensor([3, 4])),
    "hstack": lambda m: m.hstack([m.ones(2), m.zeros(1)]),
    "vstack": lambda m: m.vstack([m.ones(2), m.zeros(2)]),
    "tensor_split": lambda m: m.tensor_split(m.arange(7), 3),
    "max_named": lambda m: m.max(m.tensor([[1.0, 5], [7, 2]]), dim=1),
    "prod_int": lambda m: m.prod(m.tensor([2, 3])),
    "one_hot": lambda m: m.nn.functional.one_hot(m.tensor([0, 2])),
    "round_decimals": lambda m: m.round(m.tensor([1.234, 5.678]), decimals=1),
    "logit": lambda m: m.logit(m.tensor([0.2, 0.7])),
    "div_trunc": lambda m: m.div(m.tensor([-7, 7]), 2, rounding_mode="trunc"),
    "floor_divide_int": lambda m: m.tensor([-7, 7]) // 2,
    "remainder_int": lambda m: m.tensor([-7, 7]) % 3,
    "bitwise": lambda m: (
        m.tensor([6, 3]) & 5,
        m.tensor([6, 3]) | 1,
        m.tensor([6]) ^ 3,
        ~m.tensor([6]),
    ),
    "shifts": lambda m: (m.tensor([6]) << 2, m.tensor([6]) >> 1),
    "logical": lambda m: m.tensor([True, False]) & m.tensor([True, True]),
    "float_power": lambda m: m.float_power(m.tensor([2.0]), 3),
    "max_pool_indices": lambda m: m.nn.functional.max_pool2d(
        m.arange(16.0).reshape(1, 1, 4, 4), 2, return_indices=True
    ),
    "take_along_dim": lambda m: m.take_along_dim(
        m.tensor([[1, 2], [3, 4]]), m.tensor([[0], [1]]), 1
    ),
    "scatter_value": lambda m: m.zeros(2, 3).scatter_(1, m.tensor([[2], [0]]), 5.0),
    "index_fill": lambda m: m.zeros(3, 2).index_fill_(0, m.tensor([0, 2]), 4.0),
    "addmv": lambda m: m.addmv(m.ones(2), m.ones(2, 3), m.ones(3)),
    "empty_matmul": lambda m: m.ones(2, 0) @ m.ones(0, 3),
    "empty_sum": lambda m: (m.ones(0, 3).sum(0), m.ones(0).prod(), m.ones(0, 2).cumsum(0)),
    "empty_mean": lambda m: m.ones(0).mean(),
    "out": lambda m: m.add(m.ones(2), 1, out=m.zeros(2)),
    "deg2rad": lambda m: (m.deg2rad(m.tensor([180.0])), m.rad2deg(m.tensor([1.0]))),
    "baddbmm": lambda m: m.baddbmm(m.ones(2, 3), m.ones(1, 2, 4), m.ones(1, 4, 3), alpha=2),
    "triu_indices": lambda m: m.triu_indices(2, 3, 1),
    "fix": lambda m: m.fix(m.tensor([-1.5, 1.5])),
    "bit_functions": lambda m: (
        m.bitwise_not(m.tensor([5])),
        m.bitwise_or(m.tensor([5]), 2),
        m.bitwise_left_shift(m.tensor([5]), 2),
        m.bitwise_right_shift(m.tensor([5]), 1),
    ),
    "rsub": lambda m: m.rsub(m.tensor([1.0]), 3, alpha=2),
    "true_divide": lambda m: m.true_divide(m.tensor([1, 2]), 2),
    "clamp_max": lambda m: m.clamp_max(m.tensor([1.0, 5.0]), 2),
    "swapdims": lambda m: m.swapdims(m.zeros(2, 3, 4), 0, 2),
    "index_copy": lambda m: m.zeros(3, 2).index_copy(0, m.tensor([2, 0]), m.ones(2, 2)),
    "masked_scatter": lambda m: m.zeros(4).masked_scatter(
        m.tensor([True, False, True, False]), m.tensor([1.0, 2.0, 3.0])
    ),
    "ger": lambda m: m.ger(m.ones(2), m.arange(3.0)),
    "adaptive_max_pool1d": lambda m: m.nn.functional.adaptive_max_pool1d(
        m.arange(12.0).reshape(1, 2, 6), 3
    ),
    "sum_to_size": lambda m: m.ones(4, 3).sum_to_size(1, 3),
    "reshape_as": lambda m: m.arange(6).reshape_as(m.zeros(2, 3)).view_as(m.zeros(3, 2)),
    "expand_as": lambda m: m.ones(1, 3).expand_as(m.zeros(2, 3)),
    "new": lambda m: (m.ones(1).new_ones(2), m.ones(1, dtype=m.int32).new_empty(2).zero_()),
    "mT": lambda m: m.arange(6).reshape(1, 2, 3).mT,
    "T_property": lambda m: m.arange(6).reshape(2, 3).T,
    "movedim": lambda m: m.movedim(m.zeros(2, 3, 4), (0, 1), (2, 0)),
    "clamp_bool": lambda m: m.tensor([True, False]).clamp(0, 1),
    "square_bool": lambda m: m.tensor([True, False]).square(),
    "logit_integers": lambda m: m.tensor([0, 1, 2]).logit(),
    "correction_above_n": lambda m: (
        m.tensor([1.0, 2.0]).var(correction=5),
        m.tensor([1.0, 2.0]).std(correction=2),
    ),
    "round_large": lambda m: m.tensor([2**60 + 1]).round(),
    "negative_exponents": lambda m: 2 ** m.tensor([-1, 2]),
    "uint8_wraps": lambda m: (
        m.tensor([200], dtype=m.uint8) + (-1),
        m.tensor([200], dtype=m.uint8) * -3,
        m.tensor([200], dtype=m.uint8) > -3,
    ),
    "isfinite_bool": lambda m: m.isfinite(m.tensor([True])),
    "div_trunc_exact": lambda m: m.div(m.tensor([-(2**60) - 1]), 3, rounding_mode="trunc"),
    "inplace_empty": lambda m: m.empty(0, 3).add_(1).expand(2, 0, 3),
    "matmul_empty": lambda m: m.ones(5, 5, 0) @ m.ones(0, 5),
    "zero_dim_index": lambda m: (
        m.tensor(3.0).gather(0, m.tensor(0)),
        m.tensor(3.0).scatter(0, m.tensor(0), m.tensor(5.0)),
        m.tensor(3.0).cumprod(0),
        m.tensor(3.0).index_select(0, m.tensor([0])),
    ),
    "batch_norm_empty": lambda m: m.nn.functional.batch_norm(
        m.empty(0, 3), m.ones(3), m.ones(3), training=True
    ),
    "pad_replicate_crops": lambda m: m.nn.functional.pad(
        m.arange(5.0).reshape(1, 5), (-1, 2), mode="replicate"
    ),
    "chunk_empty": lambda m: m.empty(0, 3).chunk(2),
    "hardtanh_integers": lambda m: m.nn.functional.hardtanh(m.tensor([3, -3])),
    "nan_to_num_integers": lambda m: m.nan_to_num(m.tensor([3])),
    "tensor_as_number": lambda m: (
        m.add(m.ones(2), m.ones(2), alpha=m.tensor(2.0)),
        m.addcmul(m.ones(2), m.ones(2), m.ones(2), value=m.tensor(3.0)),
    ),
    "numpy_dims": lambda m: (
        m.ones(2, 3).sum(np.int64(1)),
        m.ones(2, 3).softmax(np.int64(1)),
        m.ones(2, 3).transpose(np.int32(0), np.int64(1)),
    ),
    "layer_norm_overflow": lambda m: m.nn.functional.layer_norm(
        m.tensor([[1e30, 2.0, 3.0], [1.0, 2.0, 3.0]]), (3,)
    ),
    "conv_transpose_output_padding": lambda m: m.nn.functional.conv_transpose1d(
        m.arange(3.0).reshape(1, 1, 3), m.ones(1, 1, 2), stride=2, output_padding=3, dilation=4
    ),
}


@pytest.mark.parametrize("backend", ["numpy", "numba", "cupy"])
def test_positions_count_in_row_major_order(backend):
    """argmax over all of an array whose memory has another order."""
    values = np.random.default_rng(0).permutation(600).reshape(20, 30).astype(np.float32)
    with backends.use(backend):
        for view in (mg.tensor(values).t(), mg.tensor(values.reshape(4, 5, 30)).transpose(0, 2)):
            assert int(view.argmax()) == int(view.numpy().argmax())
            assert int(view.argmin()) == int(view.numpy().argmin())


@pytest.mark.parametrize("backend", ["numpy", "numba", "cupy"])
@pytest.mark.parametrize("columns", [3, 200, 5000])  # a warp, one read, two reads of a row
def test_layer_norm_that_overflows_is_nan(columns, backend):
    x = mg.ones(2, columns)
    x[0, 1] = 1e30
    with backends.use(backend):
        y = mg.nn.functional.layer_norm(x, (columns,)).numpy()
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()


@pytest.mark.parametrize(
    "name",
    "sum mean prod max min amax argmax any all std var logsumexp norm sort argsort median flip"
    " cumsum cumprod cummax logcumsumexp softmax log_softmax squeeze flatten size stride".split(),
)
def test_a_dimension_that_a_scalar_lacks(name, torch):
    for m in (mg, torch):
        method = getattr(m.tensor(1.0), name)
        with pytest.raises(IndexError):
            method(dim=2) if name in ("norm", "logsumexp") else method(2)


NUMPY_INTEGERS = {
    "squeeze": (0,), "roll": (1, 0), "movedim": (0, 1), "permute": (1, 0), "narrow": (0, 0, 1),
    "repeat": (2, 1), "topk": (1,), "unbind": (0,), "flip": (0,), "std": (1,), "rot90": (1,),
    "unsqueeze": (0,), "chunk": (2,), "diagonal": (0,), "max": (1,), "tril": (1,),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY_INTEGERS)
def test_numpy_integers_are_integers(name):
    x = mg.arange(6.0).reshape(2, 3)
    wanted = getattr(x, name)(*NUMPY_INTEGERS[name])
    got = getattr(x, name)(*map(np.int64, NUMPY_INTEGERS[name]))
    assert repr(got) == repr(wanted)


def test_numpy_integers_as_windows():
    x, two = mg.arange(16.0).reshape(1, 1, 4, 4), np.int64(2)
    F = mg.nn.functional
    assert F.max_pool2d(x, two).equal(F.max_pool2d(x, 2))
    assert F.avg_pool1d(x[0], two).equal(F.avg_pool1d(x[0], 2))
    assert F.conv2d(x, x, padding=two).equal(F.conv2d(x, x, padding=2))


@pytest.mark.parametrize(
    "name",
    "argmax max median mean norm sort cummax prod std topk kthvalue amax quantile unique".split(),
)
def test_an_empty_tensor_answers_as_torch(name, torch):
    args = {"topk": (0,), "kthvalue": (1,), "cummax": (0,), "quantile": (0.5,)}.get(name, ())
    answers = []
    for m in (mg, torch):
        try:
            found = getattr(m.empty(0), name)(*args)
            parts = found if isinstance(found, tuple) else (found,)
            answers.append([p.tolist() for p in parts])
        except (RuntimeError, IndexError) as error:
            answers.append(type(error))
    assert repr(answers[0]) == repr(answers[1])


def test_gradients_that_are_zero_exist(torch):
    """Of a quotient that is rounded, of a count, and of an empty tensor in `cat`."""
    gradients = []
    for m in (mg, torch):
        x, y = m.tensor([3.0, -4.0], requires_grad=True), m.tensor(2.0, requires_grad=True)
        empty = m.zeros(0, requires_grad=True)
        total = m.div(x, y, rounding_mode="floor").sum() + m.div(x, y, rounding_mode="trunc").sum()
        total = total + x.norm(p=0) + m.cat([empty, m.ones(2, 2)]).sum()
        total.backward()
        gradients.append([g.grad.tolist() for g in (x, y, empty)])
    assert gradients[0] == gradients[1]


def test_copy_of_a_result_is_a_leaf(torch):
    for m in (mg, torch):
        x = m.ones(2, requires_grad=True)
        y = x * 2
        z = copy.copy(y)
        assert z.is_leaf
        assert z.requires_grad
        assert z.data_ptr() == y.data_ptr()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISCELLANEOUS)
def test_results_match_torch(name, torch):
    ours, theirs = MISCELLANEOUS[name](mg), MISCELLANEOUS[name](torch)
    ours = ours if isinstance(ours, tuple | list) else (ours,)
    theirs = theirs if isinstance(theirs, tuple | list) else (theirs,)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype.name == str(b.dtype).removeprefix("torch.")
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
        assert tuple(a.shape) == tuple(b.shape)


def test_mode_of_rows_with_nan():
    """NaN come last and are never equal, wherever they stand; torch's answer depends on that."""
    nan = float("nan")
    rows = [[nan, 1.0, 2.0, 3.0], [nan, 2.0, 2.0, nan], [3.0, nan, nan, nan], [nan] * 4]
    values, places = mg.tensor(rows).mode(1)
    assert values[:3].tolist() == [1, 2, 3] and values[3].isnan()
    assert places[:3].tolist() == [1, 2, 0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_shifts_by_any_count(dtype):
    """A processor takes part of the count only; here bits that are shifted out are gone."""
    rng = np.random.default_rng(3)
    bits = np.iinfo(dtype).bits
    values = rng.integers(-(2**62), 2**62, 300).astype(dtype)
    counts = rng.integers(0 if dtype == "uint8" else -3, 2 * bits if bits > 8 else 70, 300)
    left, right = [], []
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        inside = 0 <= count < bits
        left.append(np.array((value << count if inside else 0) & (2**bits - 1), f"u{bits // 8}"))
        right.append(value >> count if inside else -(value < 0))
    for backend in ("numba", "numpy"):
        with mg.backends.use(backend):
            a, b = mg.from_numpy(values), mg.from_numpy(counts.astype(dtype))
            np.testing.assert_array_equal((a << b).numpy(), np.stack(left).astype(dtype))
            np.testing.assert_array_equal((a >> b).numpy(), np.array(right))
            assert (mg.tensor([1, -1]) << 64).tolist() == [0, 0]
            assert (mg.tensor([5, -5]) >> 200).tolist() == [0, -1]


@pytest.mark.parametrize("name", ["abs", "angle", "conj_physical", "isnan", "isinf", "isfinite"])
def test_complex_numbers_without_dimensions(name):
    """NumPy's functions make a number of such an array, which is on no device."""
    x = mg.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    found = getattr(x.sum(), name)()
    assert found.device.type == "cpu" and found.shape == ()
    assert found.item() == pytest.approx(getattr(np, name.removesuffix("_physical"))(4 + 1j))
    if found.requires_grad:
        found.abs().backward()
        assert np.isfinite(x.grad.numpy()).all()


def test_constant_borders_are_copies_by_kernels_and_a_crop_fills_nothing():
    from kernels import dispatch

    x = mg.randn(3, 40)
    for pad, launches in (((1, 2), 2), ((-1, -2), 1)):
        with dispatch.trace() as trace:
            mg.nn.functional.pad(x, pad)
        counts = [count for (name, _), (count, _) in trace.rows.items() if name == "pointwise.copy"]
        assert sum(counts) == launches


def test_softmax_and_its_logarithm_of_many_short_rows_are_remembered_apart(rng):
    """Both are copied to columns first, and so are the gradients."""
    values, g = rng.standard_normal((2, 300, 3)).astype(np.float32)
    for axis, x, given in ((-1, values, g), (0, values.T.copy().T, g)):
        chances = np.exp(values.astype(np.float64))
        chances /= chances.sum(axis, keepdims=True)
        mixed = chances * (g - (g * chances).sum(axis, keepdims=True))
        logs = g - chances * g.sum(axis, keepdims=True)
        x = mg.from_numpy(x).requires_grad_()
        for _ in range(4):
            y, z = x.softmax(axis), x.log_softmax(axis)
            np.testing.assert_allclose(y.detach().numpy(), chances, rtol=1e-5)
            np.testing.assert_allclose(z.detach().numpy(), np.log(chances), rtol=1e-5, atol=1e-6)
            (dy,) = mg.autograd.grad(y, x, mg.from_numpy(given))
            (dz,) = mg.autograd.grad(z, x, mg.from_numpy(given))
            np.testing.assert_allclose(dy.numpy(), mixed, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(dz.numpy(), logs, rtol=1e-4, atol=1e-4)


SATURATED = {
    "elu": lambda x: mg.nn.functional.elu(x, 1.5),
    "selu": mg.nn.functional.selu,
    "celu": lambda x: mg.nn.functional.celu(x, 0.5),
    "silu": mg.nn.functional.silu,
    "mish": mg.nn.functional.mish,
    "softplus": mg.nn.functional.softplus,
    "logsigmoid": mg.nn.functional.logsigmoid,
    "glu": lambda x: mg.nn.functional.glu(mg.stack([x, x]), 0),
    "bce": lambda x: mg.nn.functional.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).float(), reduction="sum"
    ),
    "logaddexp": lambda x: mg.logaddexp(x, x.detach() * 0),
}


@pytest.mark.parametrize("name", SATURATED)
def test_second_derivatives_where_an_exponential_overflows(name):
    x = mg.tensor([-1000.0, -100.0, 100.0, 1000.0], requires_grad=True)
    (first,) = mg.autograd.grad(SATURATED[name](x).sum(), x, create_graph=True)
    (second,) = mg.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second, np.zeros(4), atol=1e-20)


AT_ZERO = {  # function of one or two numbers: its gradient at 0, and how fast that changes
    "norm": (lambda x: x.reshape(1).norm(), 0, 0),
    "sinc": (mg.sinc, 0, -(np.pi**2) / 3),
    "atan2": (lambda x: mg.atan2(x, 0 * x), 0, 0),
    "hypot": (lambda x: mg.hypot(x, 0 * x), 0, 0),
    "copysign": (lambda x: mg.copysign(x, mg.ones_like(x)), 0, 0),
    "pow": (lambda x: x ** (2 + 0 * x), 0, 2),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_derivatives_at_zero_in_both_modes(name):
    """A term that is not used, such as log(0) or 1 / 0, makes none of them NaN."""
    function, first, second = AT_ZERO[name]
    x = mg.tensor(0.0, dtype=mg.float64, requires_grad=True)
    seed = mg.tensor(1.0, dtype=mg.float64, requires_grad=True)
    (slope,) = mg.autograd.grad(function(x), x, seed, create_graph=True)
    change, of_seed = mg.autograd.grad(slope, [x, seed])
    assert slope == first and of_seed == first
    np.testing.assert_allclose(change, second, atol=1e-12)
    one = mg.ones((), dtype=mg.float64)
    assert mg.func.jvp(function, (x.detach(),), (one,))[1] == first


def test_higher_derivatives_at_integers():
    """Terms that do not count there are infinite, or powers of zero."""

    def derivatives(function, at):
        x, found = mg.tensor(at, dtype=mg.float64, requires_grad=True), []
        y = function(x)
        for _ in range(3):
            (y,) = mg.autograd.grad((y + 0 * x).sum(), x, create_graph=True)
            found.append(y.detach())
        return found

    points = [1.0, 2.0, 3.0, -0.5, 0.5]
    x = mg.tensor(points, dtype=mg.float64)
    right = [mg.polygamma(n, x) for n in range(3)]
    for order, found in enumerate(derivatives(mg.lgamma, points)):
        np.testing.assert_allclose(found, right[order], rtol=1e-8)
    for power in range(4):
        found = derivatives(lambda x, power=power: x**power + x ** float(power), [0.0, 2.0])
        for order, slope in enumerate(found, start=1):
            factor = 2.0 * np.prod(np.arange(power, power - order, -1))
            right = [factor * (power == order), factor and factor * 2.0 ** (power - order)]
            np.testing.assert_allclose(slope, right)
