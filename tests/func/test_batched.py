"""`vmap` computes all elements at once as calls for each element do: each operation of the engine's
table, with its first and second derivatives, over random dimensions of its inputs."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import minigrad
from minigrad import func
from minigrad.backends.current import _arrays
from minigrad.batching.arrays import RULES
from minigrad.utils._pytree import tree_leaves
from tests.engine.samples_more import ALL as SAMPLES

pytestmark = pytest.mark.usefixtures("reference_backend")
VMAP = importlib.import_module("minigrad.batching.vmap")
SIZE = 3

# Those ask for values of elements, or are SciPy's or of memory: vmap calls them for each element.
FOR_EACH = (
    "median scatter_reduce_prod segment_reduce_prod segment_reduce_max segment_reduce_min nonzero"
    " adaptive_max_pool3d max_unpool2d gaussian_nll_loss matrix_exp polygamma as_strided lu"
).split()


@pytest.fixture
def for_each(monkeypatch):
    """for_each(function, *args): the result of calls for each element."""

    def run(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(VMAP, "_can_be_batched", lambda flat, dims: False)
            return function(*args)

    return run


@pytest.fixture
def at_once(monkeypatch):
    """at_once(function, *args), which fails where a function is called for each element."""

    def refuse(*args):
        raise AssertionError("vmap called its function for each element")

    def run(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(VMAP, "_one_by_one", refuse)
            return function(*args)

    return run


def _mapped(sample, rng):
    """Inputs with SIZE elements each along a random dimension, some shared by all elements, and
    their dimensions."""
    arrays = sample.arrays()
    floating = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    shared = {i for i in floating if rng.random() < 0.25}
    mapped = [i for i in floating if i not in shared] or floating[:1]
    inputs, dims = [minigrad.tensor(a) for a in arrays], [None] * len(arrays)
    for i in mapped:
        dims[i] = int(rng.integers(arrays[i].ndim + 1))
        rows = [arrays[i] * (1 - 0.1 * k) for k in range(SIZE)]  # in the domain of the sample
        inputs[i] = minigrad.tensor(np.stack(rows, dims[i]))
    return inputs, tuple(dims)


def _functions(sample):
    """The operation, and the first and second derivatives of a sum of its results."""
    wrt = tuple(
        i for i, a in enumerate(sample.arrays()) if a.dtype.kind == "f" and i not in sample.frozen
    )

    def tensors(*inputs):
        return tuple(x for x in tree_leaves(sample.call(minigrad, *inputs))
                     if isinstance(x, minigrad.Tensor))  # fmt: skip

    def total(*inputs):
        found = [x for x in tensors(*inputs) if x.is_floating_point()]
        return sum(
            (x * minigrad.arange(1, x.numel() + 1, dtype=x.dtype).reshape(x.shape).cos()).sum()
            for x in found
        )

    def second(*inputs):
        return sum((g * g).sum() for g in func.grad(total, wrt)(*inputs))

    yield tensors
    if sample.grad and wrt:
        yield func.grad(total, wrt)
        if sample.gradgrad:
            yield func.grad(second, wrt)


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SAMPLES])
def test_as_for_each_element(sample, rng, for_each, at_once):
    inputs, dims = _mapped(sample, rng)
    if all(d is None for d in dims):
        pytest.skip("it has no floating input")
    for function in _functions(sample):
        mapped = func.vmap(function, dims)
        try:
            wanted = tree_leaves(for_each(mapped, *inputs))
        except (RuntimeError, ValueError):
            pytest.skip("the results of elements have different shapes")
        run = mapped if sample.name in FOR_EACH else lambda *given: at_once(mapped, *given)  # noqa: B023
        found = tree_leaves(run(*inputs))
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SAMPLES])
def test_two_levels(sample, rng, for_each):
    """Nested calls, whose dimensions are those of the same inputs or of others."""
    inputs, inner = _mapped(sample, rng)
    outer = [None] * len(inputs)
    for i, x in enumerate(inputs):
        if x.is_floating_point() and (rng.random() < 0.7 or not any(d is not None for d in outer)):
            outer[i] = int(rng.integers(x.ndim + 1))
            inputs[i] = minigrad.stack([x, x * 0.95], outer[i])
    if all(d is None for d in inner):
        pytest.skip("it has no floating input")
    for function in [*_functions(sample)][:2]:
        mapped = func.vmap(func.vmap(function, inner), tuple(outer))
        try:
            wanted = tree_leaves(for_each(mapped, *inputs))
        except (RuntimeError, ValueError):
            pytest.skip("the results of elements have different shapes")
        for a, b in zip(tree_leaves(mapped(*inputs)), wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("sample", [pytest.param(s, id=s.name) for s in SAMPLES if s.grad])
def test_gradients_that_leave_vmap(sample, rng, for_each):
    """Backward passes after vmap, as far as there are second derivatives through their graph."""
    inputs, dims = _mapped(sample, rng)
    if all(d is None for d in dims):
        pytest.skip("it has no floating input")
    mapped = func.vmap(next(_functions(sample)), dims)

    def gradients(create_graph):
        leaves = [x.clone().requires_grad_(x.is_floating_point() and i not in sample.frozen)
                  for i, x in enumerate(inputs)]  # fmt: skip
        wrt = [x for x in leaves if x.requires_grad]
        outputs = [y for y in mapped(*leaves) if y.requires_grad]
        outputs = [y.abs() if y.is_complex() else y for y in outputs]
        if not outputs or not wrt:
            return []
        weights = [minigrad.arange(1, y.numel() + 1, dtype=y.dtype).cos() for y in outputs]
        total = sum((y * w.reshape(y.shape)).sum() for y, w in zip(outputs, weights))
        settings = {"create_graph": create_graph, "materialize_grads": True}
        found = minigrad.autograd.grad(total, wrt, **settings)
        squares = [(g * g).sum() for g in found if g.requires_grad]
        if squares:
            found += minigrad.autograd.grad(sum(squares), wrt, materialize_grads=True)
        return found

    for create_graph in (False, True) if sample.gradgrad else (False,):
        wanted = for_each(gradients, create_graph)
        for a, b in zip(gradients(create_graph), wanted, strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-7, atol=1e-9)


def test_what_has_no_rule_runs_for_each_element(rng, monkeypatch, at_once):
    """Without rules all is right, too: an operation is called for each element by itself."""
    x = minigrad.from_numpy(rng.standard_normal((SIZE, 4, 5)))
    w = minigrad.from_numpy(rng.standard_normal((5, 2)))

    def network(w, x):
        return minigrad.log_softmax(minigrad.tanh(x @ w), 1)[1:].exp().sum()

    mapped = func.vmap(func.grad(network), (None, 0))
    wanted = at_once(mapped, w, x).numpy()
    for name in [*RULES]:
        monkeypatch.delitem(RULES, name)
    np.testing.assert_allclose(at_once(mapped, w, x).numpy(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["matmul", "pointwise", "numpy.reshape"])
def test_a_wrong_rule_is_noticed(name, rng, monkeypatch, for_each):
    """The comparison with each element notices a rule that takes the elements in another order."""
    x = minigrad.from_numpy(rng.standard_normal((SIZE, 4, 5)))
    mapped = func.vmap(lambda a: (a @ a.mT).tanh().reshape(2, 8).sum(1))
    wanted = for_each(mapped, x).numpy()
    right = RULES[name]
    monkeypatch.setitem(RULES, name, lambda b, *a, **k: right(b, *a, **k)[::-1])
    assert not np.allclose(mapped(x).numpy(), wanted)


def _network(nn):
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, 3, groups=1), nn.GroupNorm(2, 4), nn.GELU(), nn.Flatten()),
        *(nn.Linear(16, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)),
    )


def test_gradients_of_each_sample_as_torch(torch, rng, at_once):
    x, y = rng.standard_normal((5, 1, 8, 8)), rng.integers(0, 3, 5)
    values = None
    results = []
    for t in (minigrad, torch):
        model = _network(t.nn).double().eval()
        names = [name for name, _ in model.named_parameters()]
        values = values or [rng.standard_normal(tuple(p.shape)) for p in model.parameters()]
        parameters = {name: t.tensor(v) for name, v in zip(names, values)}
        buffers = {name: b.detach() for name, b in model.named_buffers()}

        def loss(parameters, buffers, x, y, t=t, model=model):
            out = t.func.functional_call(model, (parameters, buffers), (x.unsqueeze(0),))
            return t.nn.functional.cross_entropy(out, y.unsqueeze(0))

        each = t.func.vmap(t.func.grad(loss), in_dims=(None, None, 0, 0))
        args = (parameters, buffers, t.tensor(x), t.tensor(y))
        found = at_once(each, *args) if t is minigrad else each(*args)
        results.append([found[name].numpy() for name in names])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_an_ensemble_as_its_models(rng, at_once):
    models = [_network(minigrad.nn).double().eval() for _ in range(3)]
    x = minigrad.from_numpy(rng.standard_normal((4, 1, 8, 8)))
    parameters, buffers = func.stack_module_state(models)

    def call(parameters, buffers, x):
        return func.functional_call(models[0], (parameters, buffers), (x,))

    outputs = at_once(func.vmap(call, in_dims=(0, 0, None)), parameters, buffers, x)
    (outputs**2).sum().backward()
    for i, model in enumerate(models):
        own = model(x)
        np.testing.assert_allclose(outputs[i].detach(), own.detach(), rtol=1e-9, atol=1e-12)
        (own**2).sum().backward()
        for name, p in model.named_parameters():
            np.testing.assert_allclose(parameters[name].grad[i], p.grad, rtol=1e-7, atol=1e-9)


def test_parameters_are_mapped_at_once(rng, at_once):
    """`vars` of a `Parameter` does not show its array, by which `vmap` knows that it can batch."""
    weight = minigrad.nn.Parameter(minigrad.from_numpy(rng.standard_normal((3, 4, 5))))
    x = minigrad.from_numpy(rng.standard_normal(5))
    found = at_once(func.vmap(lambda w: w @ x), weight)
    np.testing.assert_allclose(found.detach(), weight.detach().numpy() @ x.numpy())
    found.sum().backward()
    assert weight.grad.shape == weight.shape


def test_the_gpu_of_a_parameter_is_known():
    """Functions of tensors run on the GPU of the arrays of their arguments."""
    weight, plain = minigrad.nn.Parameter(minigrad.ones(2)), minigrad.zeros(3)
    sparse = minigrad.eye(2).to_sparse()
    found = list(_arrays(([weight, None], plain, 2.0, sparse)))
    assert found[0] is weight._array and found[2] is plain._array
    assert found[1] is found[3] is None and found[4] is not None
