"""`vmap` beside torch's: nesting, gradients through it, dimensions, changes in place, random
numbers, and what it refuses. tests/func/test_batched.py has each operation."""

from __future__ import annotations

import contextlib
import importlib
import io
import tracemalloc

import numpy as np
import pytest

import minigrad
from kernels import dispatch
from minigrad.autograd.mode import batching
from minigrad.utils._pytree import tree_leaves

pytestmark = pytest.mark.usefixtures("reference_backend")
VMAP = importlib.import_module("minigrad.batching.vmap")
SHAPES = {"x": (5, 3), "t": (3, 5), "c": (5, 3, 4), "w": (4, 3), "v": (3,), "m": (5, 4, 4)}


class Data:
    """Tensors of a library by name; `i` are indices."""

    def __init__(self, t, seed, grad=""):
        draw = np.random.default_rng(seed)
        for name, shape in SHAPES.items():
            setattr(self, name, t.tensor(draw.standard_normal(shape), requires_grad=name in grad))
        self.i = t.tensor(draw.integers(0, 3, (5, 4)))
        self.eye = t.eye(4, dtype=t.float64)


def nested(t, d):
    v = t.func.vmap
    yield v(v(lambda a, b: (a * b).sum(), (None, 0)), (0, None))(d.x, d.x)
    yield v(v(v(lambda a: a * 2)))(d.c)
    yield v(v(lambda a: a.sum() + a, in_dims=1, out_dims=1), in_dims=2, out_dims=-1)(d.c)
    yield v(lambda a: (a.sum(0), a.mT), in_dims=-1, out_dims=(1, 2))(d.c)
    kernel = t.func.grad(lambda a, b: t.exp(-((a - b) ** 2).sum()))
    yield v(v(kernel, (None, 0)), (0, None))(d.x, d.x)


def masks(t, d):
    """transformers' masks: functions of four indices, nested."""
    padding = d.c[..., 0] > 0
    f = lambda b, h, q, k: (k <= q) & padding[b, k]  # noqa: E731
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None)):
        f = t.func.vmap(f, dims)
    f = t.func.vmap(f, (0, None, None, None))
    yield f(t.arange(5), t.arange(2), t.arange(3), t.arange(3))


def outer_gradients(t, d):
    y = t.func.vmap(lambda v: (d.w @ v).tanh().sum())(d.x)
    (g,) = t.autograd.grad((y * y).sum(), d.w, create_graph=True)
    yield from (y, g, *t.autograd.grad((g * g).sum(), (d.w, d.x)))


def transformed(t, d):
    F, w = t.func, d.w
    yield F.grad(lambda x, w: F.vmap(lambda v: (w @ v).sin().sum())(x).sum(), (0, 1))(d.x, w)

    def f(w):
        return F.vmap(F.grad(lambda v: (w @ v).sin().sum()))(d.x).pow(2).sum()

    yield from (F.grad(f)(w), F.hessian(f)(w))
    norm = F.vmap(lambda v: (v * v).sum() * v)
    yield from (F.jacrev(norm)(d.x), F.jacfwd(norm)(d.x), F.jacrev(norm, chunk_size=2)(d.x))
    yield F.vmap(F.jacrev(lambda v: t.tanh(w @ v)))(d.x)
    yield F.vmap(F.hessian(lambda v: (w @ v).sin().sum()))(d.x)
    yield F.vmap(F.vjp(lambda v: t.tanh(w @ v), d.v)[1])(d.eye)[0]
    yield F.vmap(lambda x, v: F.jvp(lambda x: t.tanh(w @ x), (x,), (v,))[1])(d.x, d.x)


def batched_gradients(t, d):
    y = t.sin(d.w @ d.v)
    yield from t.autograd.grad(y, d.v, d.eye, is_grads_batched=True)
    A = t.autograd.functional
    yield A.jacobian(lambda w, v: (t.sin(w @ v), v * 2), (d.w, d.v), vectorize=True)
    yield A.hessian(lambda v: t.sin(d.w @ v).sum(), d.v, vectorize=True)


def trees(t, d):
    def f(given, k, s=1):
        return {"r": given["a"] * s + given["b"][0], "k": (k * given["a"].sum(),)}

    yield t.func.vmap(f, in_dims=({"a": 0, "b": [1]}, None))({"a": d.x, "b": [d.t]}, d.v, s=3)
    yield t.func.vmap(lambda a, b: (a * 2, b + 1), (0, None), out_dims=(0, None))(d.x, d.v)
    yield t.func.vmap(lambda a: (a, d.v))(d.x)
    yield t.func.vmap(lambda a: a.exp(), in_dims=1, out_dims=1, chunk_size=2)(d.x)


def in_place(t, d):
    def f(a):
        b, c = a.clone(), t.zeros_like(a)
        b[0] = 1.0
        b[1:].mul_(2)
        b += a
        b[:2] = a[1:]
        c[0] = a.sum()
        e = a.new_zeros(4)
        e[2] = a[0]
        e[3:] += a[1]
        return b, c, e

    yield t.func.vmap(f)(d.x)
    x = d.x.clone()
    yield from (t.func.vmap(lambda a: a.mul_(2).sum())(x), x)


def indices(t, d):
    v, F = t.func.vmap, t.nn.functional
    yield v(lambda k: d.w[k])(d.i)
    yield v(lambda a: a[t.tensor([2, 0])])(d.x)
    yield v(lambda a, k: a.index_add(0, k, a[:1].expand(4)))(d.x, d.i)
    yield v(lambda a, k: a.index_copy(0, k[:1], 2 * a[:1]))(d.x, d.i)
    yield v(lambda a: t.zeros(3, 2, dtype=a.dtype).index_copy(1, t.tensor([1]), a[:, None]))(d.x)
    yield v(lambda k: F.one_hot(k, 3))(d.i)
    yield v(F.embedding)(d.i, d.c), v(lambda w: F.embedding(d.i[0], w))(d.c)
    yield v(t.func.grad(lambda w, k: F.embedding(k, w).sin().sum()), (None, 0))(d.w, d.i)


def products(t, d):
    v, F = t.func.vmap, t.nn.functional
    yield v(t.matmul)(d.m, d.c.mT), v(t.matmul, (None, 0))(d.m[0], d.m), v(t.mv)(d.m, d.c[:, 0])
    yield v(t.matmul, (None, 0))(d.m, d.m), v(lambda a, b: a[0] @ b)(d.c, d.c.mT)
    yield (
        v(F.linear)(d.c.mT, d.c.mT, d.m[0][:1].expand(5, 4)),
        v(F.linear, (None, None, 0))(*(d.w, d.w, d.m[:, 0])),
    )
    yield v(t.func.grad(lambda w, b: F.linear(d.w, w, b).sin().sum(), (0, 1)))(d.c.mT, d.m[:, 0])


def shared(t, d):
    """Gradients of tensors that all elements share: sums over them."""
    F, v = t.nn.functional, t.func.vmap

    def f(x, k, one):
        y = F.linear(x.mT + F.embedding(k, d.w)[:, :3], d.w[:, :3], d.m[0, 0]).tanh() @ d.w
        y = d.w @ y.mT + F.embedding(one, d.w).sum()
        images = F.conv2d(x[None], d.w.reshape(1, 1, 4, 3)[:, :, :2], padding=1).sin()
        return y.pow(2).sum() * images.sum() + F.embedding(d.i[0], d.w * x.sum()).sum()

    y = v(f)(d.c, d.i, d.i[:, 0])
    z = v(v(lambda x, r: ((d.w @ x) * r.sum()).sin().sum(), (0, None)), (None, 0))(d.x, d.x)
    (g,) = t.autograd.grad((y * y).mean() * 1e-3 + z.pow(2).sum(), d.w, create_graph=True)
    yield from (y, g, *t.autograd.grad((g * g).sum(), d.w))


def functions(t, d):
    class Square(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    yield t.func.vmap(Square.apply)(d.x)
    yield t.func.vmap(t.func.grad(lambda a: Square.apply(a).pow(2).sum()))(d.x)


def groups(t, d):
    def loss(x, w, b):
        return t.nn.functional.group_norm(x.unsqueeze(0), 2, w, b).sin().sum()

    gradients, rows = t.func.grad(loss, (0, 1, 2)), d.c.reshape(5, 4, 3)
    yield t.func.vmap(gradients)(rows, d.m[:, 0], d.m[:, 1])
    yield t.func.vmap(gradients, (0, None, None))(rows, d.w[:, 0], d.w[:, 1])


def sampled(t, d):
    def loss(x, grid):
        return t.nn.functional.grid_sample(x, grid, align_corners=False).sin().sum()

    gradients, images = t.func.grad(loss, (0, 1)), d.m.reshape(5, 1, 2, 2, 4)
    yield t.func.vmap(gradients)(images, d.c.reshape(5, 1, 3, 2, 2))
    yield t.func.vmap(gradients, (0, None))(images, d.w.reshape(1, 3, 2, 2))


def hooks(t, d):
    y = t.func.vmap(lambda a: (a * a).sum())(d.x)
    y.register_hook(lambda g: g * 2)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    yield d.x.grad


PROGRAMS = [
    *(nested, masks, outer_gradients, transformed, batched_gradients, trees, in_place, indices),
    *(products, shared, functions, groups, sampled, hooks),
]


@pytest.mark.parametrize("program", [pytest.param(p, id=p.__name__) for p in PROGRAMS])
def test_as_torch(torch, program, seed, monkeypatch):
    def refuse(*args):
        raise AssertionError("vmap called its function for each element")

    monkeypatch.setattr(VMAP, "_one_by_one", refuse)
    graph = {outer_gradients: "wx", hooks: "x", shared: "w", batched_gradients: "v"}
    ours, theirs = (
        tree_leaves([*program(t, Data(t, seed, graph.get(program, "")))]) for t in (minigrad, torch)
    )
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert not batching and type(dispatch.active) is type(minigrad.backends)


def test_a_shared_weight_has_no_gradient_for_each_element(rng):
    weight = minigrad.zeros(256, 256, requires_grad=True)
    inputs = minigrad.from_numpy(rng.standard_normal((100, 1, 256)).astype(np.float32))
    outputs = minigrad.vmap(lambda x: minigrad.nn.functional.linear(x, weight))(inputs)
    total = outputs.sum()
    tracemalloc.start()
    total.backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * weight.nbytes, f"{peak} bytes for a gradient of {weight.nbytes}"
    np.testing.assert_allclose(weight.grad[3], inputs.numpy().sum((0, 1)), rtol=1e-4, atol=1e-4)


def test_what_an_element_shows(torch):
    seen = []
    for t in (minigrad, torch):

        def look(a):
            about = (tuple(a.shape), a.ndim, a.numel(), len(a), a.stride(), a.is_contiguous())
            seen.append((*about, str(a.dtype).split(".")[1], a.device.type, a.requires_grad))
            return a

        t.func.vmap(look)(t.zeros(2, 3, 4))
    assert seen[0] == seen[1] and len(seen) == 2, "each calls the function once"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        for t in (minigrad, torch):
            t.func.vmap(lambda a: (print(a), a)[1])(t.ones(2, 3))
    first, second = text.getvalue().split("BatchedTensor")[1:]
    assert first == second


def test_values_of_elements_are_asked_for_one_by_one():
    """torch refuses these; programs of this package may have them."""
    x = minigrad.tensor([[1.0, 2.0], [-3.0, 1.0]])
    v = minigrad.vmap
    assert v(lambda a: a * 2 if a.sum() > 0 else a)(x).tolist() == [[2, 4], [-3, 1]]
    assert v(lambda a: a * a.sum().item())(x).tolist() == [[3, 6], [6, -2]]
    assert v(lambda a: v(lambda b: b * a.max().item())(a))(x).tolist() == [[2, 4], [-3, 1]]
    assert v(lambda a: minigrad.tensor(a.tolist()))(x).equal(x)
    sine = v(lambda a: minigrad.from_numpy(np.sin(a.numpy())))(x)
    np.testing.assert_allclose(sine, np.sin(x.numpy()))
    weight = minigrad.ones(2, requires_grad=True)
    slopes = v(lambda a: minigrad.autograd.grad((weight * weight * a).sum(), weight)[0])(x)
    np.testing.assert_allclose(slopes, 2 * x.numpy())
    v(lambda a: ((weight * a).sum().backward(), a)[1])(x)
    np.testing.assert_allclose(weight.grad, x.numpy().sum(0))
    assert not batching


def test_a_gradient_that_reads_values_runs_for_each_element(rng):
    """It may run when vmap has ended: only generate_vmap_rule says that it can run for all."""

    class Sine(minigrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return minigrad.tensor([np.sin(v) for v in x.tolist()], dtype=x.dtype)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * minigrad.tensor([np.cos(v) for v in x.tolist()], dtype=x.dtype)

    x = minigrad.tensor(rng.standard_normal((2, 3)), requires_grad=True)
    minigrad.vmap(lambda a: Sine.apply(a * 2).sum())(x).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * np.cos(2 * x.detach().numpy()))


def test_functions_of_numpy_that_write_into_an_array_for_all_elements(rng):
    """As scattering of complex numbers does: no element's values stay there for the next one."""
    x = minigrad.from_numpy(rng.standard_normal((4, 2)) + 1j)
    index = minigrad.from_numpy(rng.integers(0, 2, (5, 3, 1)))
    source = minigrad.from_numpy(rng.standard_normal((5, 3, 1)) + 2j)
    found = minigrad.vmap(lambda i, s: x.scatter(1, i, s))(index, source)
    for row, i, s in zip(found, index, source):
        np.testing.assert_allclose(row, x.scatter(1, i, s))

    def diagonal(a):
        square = np.zeros((3, 3))
        np.fill_diagonal(square, a.numpy())
        return minigrad.from_numpy(square)

    given = minigrad.from_numpy(rng.standard_normal((2, 3)))
    assert minigrad.vmap(diagonal)(given).equal(minigrad.diag_embed(given))


def test_anomaly_detection():
    x = minigrad.tensor([[1.0, 0.0], [4.0, 1.0]], requires_grad=True)
    y = minigrad.vmap(lambda a: (a * a).sum())(x)
    with minigrad.autograd.detect_anomaly():
        y.sum().backward(retain_graph=True)
        root = minigrad.vmap(lambda a: (a * 0).sqrt().mul(0).sum())(x)
        with pytest.raises(RuntimeError, match="returned nan values"):
            root.sum().backward()
    np.testing.assert_allclose(x.grad, 2 * x.detach().numpy())
    assert type(dispatch.active) is type(minigrad.backends)


@pytest.mark.parametrize(
    "write",
    [
        lambda z, a: z.add_(a[0]),
        lambda z, a: z.__setitem__(0, a[0]),
        lambda z, a: z.copy_(a),
        lambda z, a: z.__setitem__(minigrad.tensor([0, 1]), a[:2]),
        lambda z, a: z[1:].mul_(a[1:]),
    ],
)
def test_a_captured_tensor_has_no_place_for_the_values_of_elements(write):
    z = minigrad.zeros(3)
    with pytest.raises(RuntimeError, match=r"inplace arithmetic\(self, \*extra_args\) is not poss"):
        minigrad.vmap(lambda a: (write(z, a), a)[1])(minigrad.ones(4, 3))
    assert z.tolist() == [0, 0, 0] and not batching
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        minigrad.vmap(minigrad.vmap(lambda a: z[0].add_(a)))(minigrad.ones(4, 3))


def test_running_statistics_as_torch(torch):
    """They have no place for the statistics of each element."""
    for t in (minigrad, torch):
        model = t.nn.BatchNorm1d(3)
        with pytest.raises(RuntimeError):
            t.func.vmap(model)(t.rand(5, 4, 3))


def test_random_numbers_as_torch(torch):
    results = []
    for t in (minigrad, torch):
        found, x = [], t.ones(6, 50)
        own = t.Generator().manual_seed(1)
        for randomness in ("error", "same", "different"):
            for draw in (
                lambda a, t=t: t.nn.functional.dropout(a, 0.5),
                lambda a, t=t, own=own: a * t.rand(50, generator=own),
                lambda a, t=t: a * t.randn(50),
            ):
                try:
                    y = t.func.vmap(draw, randomness=randomness)(x)
                    found.append(bool((y == y[0]).all()))
                except RuntimeError as error:
                    found.append(str(error)[:60])
        results.append(found)
    assert results[0] == results[1]


def test_the_same_numbers_for_each_element_and_their_gradient():
    x = minigrad.ones(4, 50)
    drop = minigrad.func.grad(lambda a: minigrad.dropout(a * 3, 0.5, True).sum())
    slopes = minigrad.vmap(drop, randomness="same")(x)
    assert slopes.equal(slopes[:1].expand(4, 50)) and sorted(set(slopes[0].tolist())) == [0, 6]


def test_a_step_that_is_compiled():
    f = minigrad.compile(minigrad.vmap(minigrad.func.grad(lambda a: (a**3).sum())))
    x = minigrad.arange(6.0).reshape(2, 3)
    for k in range(4):
        np.testing.assert_allclose(f(x + k), 3 * (x.numpy() + k) ** 2)


def test_errors_of_the_function_come_once_and_leave_nothing(torch):
    for t in (minigrad, torch):
        with pytest.raises(RuntimeError):
            t.func.vmap(lambda a: a @ t.ones(7, 2))(t.ones(2, 3))  # noqa: B023
        with pytest.raises(ValueError, match="must only return Tensors"):
            t.func.vmap(lambda a: 1.0)(t.ones(2, 3))
        with pytest.raises(ValueError, match="can not return a BatchedTensor when out_dim is None"):
            t.func.vmap(lambda a: a, out_dims=None)(t.ones(2, 3))
        with pytest.raises(ValueError, match="chunk_size should be None or greater than 0"):
            t.func.vmap(lambda a: a, chunk_size=0)(t.ones(2, 3))
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 3"):
        minigrad.vmap(lambda a: a[minigrad.tensor([1, 3])])(minigrad.ones(2, 3))
    assert not batching and (minigrad.ones(2) + 1).tolist() == [2, 2]


def test_strided_elements_begin_where_the_element_does(torch):
    """An offset counts from the first element of the memory, which all elements share: it is
    refused rather than that each call returns the same. Memory made inside is an element's own."""
    for t in (minigrad, torch):
        x = t.arange(24.0).reshape(4, 6)[1:]
        for begin in (0, 2):
            found = t.vmap(lambda a: a[begin:].as_strided((2, 2), (2, 1)))(x)  # noqa: B023
            at = np.add.outer([6, 12, 18], begin + np.array([[0, 1], [2, 3]]))
            assert np.array_equal(found.numpy(), at)
            found = t.vmap(lambda a: (a * 2).as_strided((2, 2), (2, 1), begin))(x)  # noqa: B023
            assert np.array_equal(found.numpy(), 2 * at)
    v = minigrad.vmap
    for f in (
        lambda a: a.as_strided((2,), (1,), 6),
        lambda a: a[1:].as_strided((2,), (1,), 7),
        lambda a: a * a.sum().item() + a.as_strided((6,), (1,), 0),
        lambda a: minigrad.as_strided_scatter(a, a[:2] * 2, (2,), (1,), 1),
        v(lambda b: b.as_strided((1,), (1,), 0), 0),
    ):
        with pytest.raises(RuntimeError, match="leave it out, and take a slice"):
            v(f)(x := minigrad.arange(24.0).reshape(4, 6)[1:])
    assert x.as_strided((2,), (1,), 0).tolist() == [0, 1], "outside it is as before"


def test_an_escaped_tensor_is_no_array_of_zeros():
    """What leaves a level by another way than as a result cannot be used, rather than be wrong."""
    kept = []
    minigrad.vmap(lambda a: (kept.append(a), a)[1])(minigrad.ones(2, 3))
    for use in (lambda x: np.asarray(x.numpy()), lambda x: x.tolist(), lambda x: (x * 2).tolist()):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            use(kept[0])
