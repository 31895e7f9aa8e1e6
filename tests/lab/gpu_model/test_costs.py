"""The dialect that computes nothing: its shapes are the reference's, its counts known ones."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest

import kernels
import minigrad
from kernels import dispatch, reference
from kernels.lab.gpu_model.costs import counting
from kernels.launchers import declared, operations, versions
from kernels.pointwise import flops
from minigrad import backends, nn
from tests.engine.samples_layers import SAMPLES


class Compared:
    """The reference, each of whose results is compared with what the rule says of it."""

    def __getattr__(self, name):
        real = getattr(reference, name)

        def operation(*args, **kwargs):
            specs, count = operations()[name].cost(*args, **kwargs)
            found = real(*args, **kwargs)
            if specs is not None:
                results = found if isinstance(found, tuple) else (found,)
                where = (name, [getattr(a, "shape", a) for a in args], kwargs)
                said = [spec and (tuple(spec[0]), np.dtype(spec[1])) for spec in specs]
                assert said == [r if r is None else (r.shape, r.dtype) for r in results], where
            assert count >= 0
            return found

        return operation


@pytest.fixture
def compared():
    before = dispatch.active
    dispatch.active = Compared()
    yield
    dispatch.active = before


def test_results_have_the_shape_and_dtype_that_the_rules_say(compared):
    """Every sample operation of the engine's tests, forward and backward."""
    for dtype in (np.float32, np.float64):
        for sample in SAMPLES:
            tensors = [minigrad.tensor(array) for array in sample.arrays(dtype)]
            for i, tensor in enumerate(tensors):
                tensor.requires_grad = tensor.is_floating_point() and i not in sample.frozen
            result = sample.call(minigrad, *tensors)
            if sample.grad:
                result.sum().backward()
    dispatch.active.transpose(np.zeros((2, 3, 5)), (2, 0, 1))


@pytest.mark.parametrize("family", declared().values(), ids=lambda family: family.name)
def test_costs_of_the_cases_that_families_declare(family, compared, rng):
    called = set()
    for name, args, keywords, _ in family.cases(rng, functools.partial(versions, "numba")):
        keywords = {key: value for key, value in keywords.items() if key != "version"}
        with np.errstate(all="ignore"):
            getattr(dispatch.active, name)(*copy.deepcopy(args), **keywords)
        called.add(name)
    missing = {operation.name for operation in family.operations} - called
    assert not missing, f"kernels/launchers/{family.name}.py: no case of {sorted(missing)}"


def test_random_numbers_and_half_precision(compared):
    x = minigrad.ones(3, 5, 4, 4, dtype=minigrad.float16)
    nn.functional.batch_norm(x, None, None, training=True)
    nn.functional.dropout(minigrad.rand(3, 5) + minigrad.randn(3, 5), 0.5)
    minigrad.randperm(7)


@pytest.mark.parametrize(
    ("text", "count"),
    [("x", 0), ("a * b", 1), ("where(x > 0, x, 0)", 2), ("g * y * (1 - y)", 3), ("max(x, -1)", 1)],
)
def test_operations_of_an_expression(text, count):
    assert flops(text) == count


def test_flops_and_bytes_of_single_operations():
    a, b = np.zeros((3, 64, 32), np.float32), np.zeros((32, 16), np.float32)
    image, weight = np.zeros((2, 3, 8, 8), np.float32), np.zeros((5, 3, 3, 3), np.float32)
    with counting() as count:
        c = kernels.matmul(a, b)
        y = kernels.conv2d(image, weight, padding=(1, 1))
        kernels.add(a, np.broadcast_to(np.float32(1), a.shape))
        kernels.sum(a, 1)
    assert c.shape == (3, 64, 16)
    assert y.shape == (2, 5, 8, 8)
    matmul, conv, add, total = count.launches
    assert matmul.flops == 2 * 3 * 64 * 32 * 16
    assert matmul.bytes == 4 * (3 * 64 * 32 + 32 * 16 + 3 * 64 * 16)
    assert conv.flops == 2 * (2 * 5 * 8 * 8) * 27
    assert (matmul.matrix, conv.matrix, add.matrix) == (True, True, False)
    assert (add.family, add.flops) == ("pointwise.add", a.size)
    assert add.bytes == 4 * (2 * a.size + 1)  # what a broadcast repeats is read once
    assert (total.family, total.flops) == ("reduce.sum", a.size)
    assert count.flops == sum(launch.flops for launch in count.launches)


def test_nothing_is_computed_and_no_memory_is_taken():
    with counting() as count:
        a = count.empty((1 << 20, 1 << 10), np.float32)  # 4 GiB, and its product
        b = kernels.matmul(a.T, a)
        assert b.shape == (1 << 10, 1 << 10)
        assert count.live == a.nbytes + b.nbytes
        view = b[3:5]
        del a
        assert count.live == b.nbytes
        del b
        assert count.live == view.base.nbytes == 4 << 20
        del view
    assert count.live == 0
    assert count.peak == (4 << 30) + (4 << 20)


def test_the_dialect_of_before_comes_back():
    with backends.use("numpy"):
        with pytest.raises(ZeroDivisionError), counting():
            raise ZeroDivisionError
        assert (minigrad.ones(2) + 1).tolist() == [2.0, 2.0]


def test_a_training_step_counts_three_times_the_forward_products():
    """Backward has two products for each one of forward, but for the first layer's input."""
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    x, target = minigrad.zeros(8, 20), minigrad.zeros(8, dtype=minigrad.int64)
    with counting() as count:
        loss = nn.functional.cross_entropy(model(x), target)
        forward = [launch for launch in count.launches if launch.matrix]
        loss.backward()
    products = [launch for launch in count.launches if launch.matrix]
    assert [launch.flops for launch in forward] == [8 * 30 * (2 * 20 + 1), 8 * 10 * (2 * 30 + 1)]
    plain = 2 * 8 * 30 * 20, 2 * 8 * 10 * 30
    assert sum(p.flops for p in products[2:]) == plain[0] + 2 * plain[1]
    grads = {name: p.grad.shape for name, p in model.named_parameters()}
    assert grads == {name: p.shape for name, p in model.named_parameters()}
