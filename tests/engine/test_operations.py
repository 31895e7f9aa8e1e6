"""Every operation of the table: values against NumPy and torch, first and second derivatives."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

import kernels
import minigrad
from kernels.pointwise import TABLE
from kernels.reduction import TABLE as REDUCTIONS
from minigrad import backends
from minigrad.autograd import gradcheck, gradgradcheck
from minigrad.ops.reduce import reduce
from tests.engine.samples import Sample
from tests.engine.samples_more import ALL as SAMPLES

# A sample named as a line of the pointwise table is that line: tests/kernels/test_lines.py compiles
# all of them and their derivatives. The kernels are compiled here for all other samples, and these.
LINES = set(TABLE) - set("exp where pow bce gt logical_and".split())
# The only ones whose kernels are compiled in float64 too; tests/kernels has each family's. All
# others are float64 on the reference backend, and float32 on all.
IN_FLOAT64 = (
    "exp mul_zero_dim where sum_dim max_dim argmin_dim cumsum linear matmul_batch_broadcast"
    " contiguous_copy cat pad gather scatter_add getitem_tensor embedding softmax batch_norm"
    " layer_norm"
).split()
GRADIENT_IN_FLOAT64 = ("where", "softmax", "layer_norm")
BACKENDS = ("numpy", "numba", "cupy")
KERNELS = BACKENDS[1:]
BY_NAME = [pytest.param(s, id=s.name) for s in SAMPLES]
WITH_GRAD = [pytest.param(s, id=s.name) for s in SAMPLES if s.grad]
WITH_GRADGRAD = [pytest.param(s, id=s.name) for s in SAMPLES if s.grad and s.gradgrad]


def on_backends(samples: list[Sample], dtypes: list[str], in_float64: Collection[str]) -> list:
    """(sample, dtype, backend); on kernels float64 only of the samples named."""
    return [
        pytest.param(s, np.dtype(dtype), backend, id=f"{s.name}-{dtype}-{backend}")
        for backend in BACKENDS
        for s in samples
        for dtype in dtypes
        if backend == "numpy"
        or (s.name in in_float64 if dtype == "float64" else s.name not in LINES)
    ]


def leaves(sample: Sample, dtype=np.float64, rounded=np.float64) -> list[minigrad.Tensor]:
    """The inputs, of numbers that the dtype `rounded` holds."""
    arrays = sample.arrays(rounded)
    tensors = [minigrad.tensor(a.astype(dtype) if a.dtype.kind == "f" else a) for a in arrays]
    for i, t in enumerate(tensors):
        t.requires_grad = t.is_floating_point() and i not in sample.frozen
    return tensors


def tolerance(dtype: np.dtype) -> dict[str, float]:
    eps = np.finfo(dtype).eps
    return {"rtol": 200 * eps, "atol": 200 * eps}


@pytest.mark.parametrize(
    ("sample", "dtype", "backend"),
    on_backends([s for s in SAMPLES if s.reference], ["float32", "float64"], IN_FLOAT64),
)
def test_forward_matches_numpy(sample, dtype, backend):
    arrays = sample.arrays(dtype)
    with backends.use(backend):
        result = sample.call(minigrad, *[minigrad.tensor(a) for a in arrays]).numpy()
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"):
        expected = np.asarray(sample.reference(*wide))
    assert result.shape == expected.shape
    assert result.dtype == (dtype if expected.dtype.kind == "f" else expected.dtype)
    np.testing.assert_allclose(result, expected, **tolerance(dtype))


@pytest.mark.parametrize("sample", BY_NAME)
def test_values_and_gradients_match_torch(sample, torch):
    """Values, dtype, shape and gradients are torch's (on the reference backend, in float64)."""
    ours = leaves(sample)
    theirs = [torch.tensor(a) for a in sample.arrays()]
    for i, t in enumerate(theirs):
        t.requires_grad = t.is_floating_point() and i not in sample.frozen
    with backends.use("numpy"):
        result = sample.call(minigrad, *ours)
        expected = sample.call(torch, *theirs)
        assert tuple(result.shape) == tuple(expected.shape)
        assert result.dtype.name == str(expected.dtype).removeprefix("torch.")
        if sample.grad:
            assert result.requires_grad == expected.requires_grad
        np.testing.assert_allclose(result.detach(), expected.detach(), rtol=1e-9, atol=1e-9)
        if not (sample.grad and result.requires_grad):
            return
        seed = np.random.default_rng(7).standard_normal(expected.shape)
        result.backward(minigrad.tensor(seed))
        expected.backward(torch.tensor(seed))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            np.testing.assert_allclose(a.grad, b.grad, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("sample", "dtype", "backend"),
    on_backends([s for s in SAMPLES if s.grad], ["float64"], GRADIENT_IN_FLOAT64),
)
def test_gradient_matches_finite_differences(sample, dtype, backend):
    with backends.use(backend):
        assert gradcheck(lambda *xs: sample.call(minigrad, *xs), leaves(sample, dtype))


@pytest.mark.parametrize("backend", KERNELS)
@pytest.mark.parametrize("sample", [p for p in WITH_GRAD if p.id not in LINES])
def test_gradient_of_the_kernels_matches_the_reference(sample, backend):
    """In float32, which the kernels are for, beside the reference backend in float64."""
    gradients = []
    for name, dtype in ((backend, np.float32), ("numpy", np.float64)):
        with backends.use(name):
            inputs = leaves(sample, dtype, rounded=np.float32)
            result = sample.call(minigrad, *inputs)
            seed = np.random.default_rng(7).standard_normal(result.shape).astype(np.float32)
            result.backward(minigrad.tensor(seed.astype(dtype)))
            gradients.append([x.grad for x in inputs])
    for ours, wanted in zip(*gradients, strict=True):
        assert (ours is None) == (wanted is None)
        if ours is not None:
            assert ours.dtype == minigrad.float32
            np.testing.assert_allclose(ours, wanted, **tolerance(np.dtype(np.float32)))


@pytest.mark.parametrize("sample", WITH_GRADGRAD)
def test_second_derivative_matches_finite_differences(sample):
    with backends.use("numpy"):
        assert gradgradcheck(lambda *xs: sample.call(minigrad, *xs), leaves(sample))


@pytest.mark.parametrize("sample", WITH_GRAD)
def test_gradients_are_memory_of_their_own(sample):
    """No `.grad` shares memory with an input, the caller's gradient or another `.grad`."""
    with backends.use("numpy"):
        inputs = leaves(sample)
        result = sample.call(minigrad, *inputs)
        seed = minigrad.ones_like(result)
        result.backward(seed)
    grads = [x.grad._array for x in inputs if x.grad is not None]
    assert grads
    others = [seed._array, result.detach()._array, *(x.detach()._array for x in inputs)]
    for i, g in enumerate(grads):
        assert g.base is None
        assert not any(np.shares_memory(g, o) for o in (*others, *grads[:i]))


@pytest.mark.parametrize("shape", [(1, 2), (3000, 1)])
def test_large_gradients_that_repeat_are_memory_of_their_own(shape):
    """They are copied by a kernel."""
    x, y = (minigrad.ones(3000, 2, requires_grad=True) for _ in range(2))
    weight = minigrad.arange(max(shape), dtype=minigrad.float32).reshape(shape)
    dim = shape.index(1)
    with kernels.trace() as trace:
        ((x + y).sum(dim, keepdim=True) * weight).sum().backward()
    assert "pointwise.copy" in {family for family, _ in trace.rows}
    for grad in (x.grad, y.grad):
        np.testing.assert_array_equal(grad, np.broadcast_to(weight.numpy(), (3000, 2)))
    x.grad.zero_()
    assert y.grad.sum() == weight.sum() * (6000 // max(shape))


@pytest.mark.parametrize("sample", WITH_GRAD)
def test_create_graph_gives_the_same_gradient(sample):
    """The fused gradient kernel and the differentiable composition agree."""
    inputs = leaves(sample)
    wanted = [x for x in inputs if x.requires_grad]
    with backends.use("numpy"):
        seed = np.random.default_rng(3).standard_normal(sample.call(minigrad, *inputs).shape)
        for x, y in zip(
            minigrad.autograd.grad(
                sample.call(minigrad, *inputs), wanted, minigrad.tensor(seed), allow_unused=True
            ),
            minigrad.autograd.grad(
                sample.call(minigrad, *inputs), wanted, minigrad.tensor(seed),
                create_graph=True, allow_unused=True,
            ),
            strict=True,
        ):  # fmt: skip
            assert (x is None) == (y is None)
            if x is not None:
                np.testing.assert_allclose(x, y.detach(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
@pytest.mark.parametrize("line", [line for line in REDUCTIONS.values() if line.gradient])
def test_gradient_of_a_reduction_line_matches_finite_differences(line, dim, rng):
    x = minigrad.tensor(rng.uniform(-2, 2, (2, 3, 2)), requires_grad=True)
    with backends.use("numpy"):
        assert gradcheck(lambda x: reduce(line.name, x, dim, False), [x])
        assert gradgradcheck(lambda x: reduce(line.name, x, dim, True), [x])


@pytest.mark.parametrize("name", ["max", "min", "norm_inf"])
def test_tied_elements_share_the_gradient(name):
    x = minigrad.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]], requires_grad=True)
    reduce(name, x, 1, False).sum().backward()
    assert x.grad.tolist() == [[0.25] * 4] * 2
