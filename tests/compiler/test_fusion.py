"""Which operations of a compiled step become one kernel, and that results stay the same."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import kernels.lab
import minigrad
import minigrad.nn.functional as F
from minigrad.compiler import attach

from .test_compile import close


@pytest.fixture
def everything(monkeypatch):
    """Fuse epilogues and prologues of small arrays, too, which do not pay on a CPU."""
    monkeypatch.setattr(attach, "_LEAST_IN_ALL", 0)
    monkeypatch.setattr(attach, "_LEAST", {})


def arrays(rng, *shapes, dtype=np.float32):
    return [minigrad.from_numpy(rng.standard_normal(shape).astype(dtype)) for shape in shapes]


def same_as_eager(function, *args, calls=3):
    """The compiled function, after calls whose results equal those of the function itself."""
    compiled = minigrad.compile(function)
    for _ in range(calls):
        wanted, found = function(*args), compiled(*args)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        close(found, wanted)
    assert compiled.replayed == calls - 1, compiled.report()
    return compiled


def sources(compiled):
    return [inspect.getsource(kernel.py_func) for kernel in compiled.kernels()]


# -- chains ----------------------------------------------------------------------------------


def test_a_chain_becomes_one_kernel_that_can_be_read_and_profiled():
    compiled = minigrad.compile(lambda x, y: (x * 2 + y).tanh() * x.sigmoid() - y.exp())
    for seed in range(3):
        x, y = (minigrad.from_numpy(v) for v in np.random.default_rng(seed).random((2, 3, 7)))
        a, b = x.numpy(), y.numpy()
        wanted = np.tanh(a * 2 + b) / (1 + np.exp(-a)) - np.exp(b)
        np.testing.assert_allclose(compiled(x, y).numpy(), wanted, rtol=1e-13)
    (kernel,) = compiled.kernels()
    assert "tanh" in inspect.getsource(kernel.py_func)
    args = [np.ones(40), np.ones(40), np.float64(2), np.ones(40)]
    assert "tanh" in str(kernels.lab.profile(kernel, 1, 64, *args))
    assert "6 operations fused" in compiled.report()


def random_program(rng, steps=12):
    """A function of tensors: pointwise operations, sums, views, and changes in place."""
    plan = [(rng.integers(8), rng.integers(0, 100, 3)) for _ in range(steps)]

    def program(x, y, state):
        values = [x, y, state * 0.5, x.sum(1, keepdim=True)]
        for kind, numbers in plan:
            a, b, c = (values[n % len(values)] for n in numbers)
            if kind == 0:
                state.add_(a.mean())
            elif kind == 1:
                state[1:] *= 0.5
            elif kind == 2:
                values.append(minigrad.where(a > b, c, b * 0.5))
            elif kind == 3:
                values.append((a - state).tanh())
            elif kind == 4:
                values.append(a.sum(0, keepdim=True) * 0.1 - b)
            elif kind == 5:
                values.append((a + 0.0 * x).reshape(-1)[2:-2].sin().sum() + c)
            else:
                values.append(a * b - c / (1 + b * b))
        return values[-1] + 0.1 * state, values[-2].clone(), values[len(values) // 2].cos()

    return program


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    program = random_program(np.random.default_rng(seed))
    states = [minigrad.ones(4, 5), minigrad.ones(4, 5)]
    compiled = minigrad.compile(program)
    rng = np.random.default_rng(100 + seed)
    for _ in range(3):
        x, y = (minigrad.from_numpy(v) for v in rng.standard_normal((2, 4, 5), dtype=np.float32))
        for a, b in zip(program(x, y, states[0]), compiled(x, y, states[1]), strict=True):
            close(a, b, 1e-4)
        close(*states, 1e-4)
    assert compiled.replayed == 2, compiled.report()


# -- epilogues -------------------------------------------------------------------------------


def test_bias_activation_and_residual_are_stored_with_the_product(rng):
    x, w, b, r = arrays(rng, (256, 40), (300, 40), (300,), (256, 300))
    compiled = same_as_eager(lambda x, r: F.linear(x, w, b).relu() * 2 + r, x, r)
    (text,) = sources(compiled)
    assert "matmul_tiled_epilogue" in text and "c[z, row, col] = epilogue(acc" in text
    assert "where(v2 <= 0, 0, v2) * v1 + v0" in text  # says what was fused
    assert "1 launches, 3 operations fused" in compiled.report()
    (kernel,) = compiled.kernels()
    a, c = np.ones((1, 32, 32), np.float32), np.zeros((1, 32, 32), np.float32)
    profile = kernels.lab.profile(kernel, 1, (32, 32), a, a, a[0, 0], c, a, 2.0)
    assert "epilogue" in str(profile)
    np.testing.assert_array_equal(c, 67)


@pytest.mark.parametrize("small", [False, True])
def test_small_intermediate_arrays_stay_on_a_cpu(rng, small):
    x, w = arrays(rng, (20 if small else 300, 40), (300, 40))
    compiled = same_as_eager(lambda x: F.linear(x, w).relu(), x)
    assert len(compiled.kernels()) == (not small)


EPILOGUES = {
    "a number of each column": lambda x, w, v, r: (x @ w).tanh() * v,
    "a number of each row": lambda x, w, v, r: (x @ w) - r[:, :1].clone(),
    "one number": lambda x, w, v, r: (x @ w) * r[0, 0].exp(),
    "a choice": lambda x, w, v, r: minigrad.where(r > 0, x @ w, r),
    "a test": lambda x, w, v, r: (x @ w) > r,
    "the product twice": lambda x, w, v, r: (lambda p: p * p.sigmoid())(x @ w),
    "the residual is the input": lambda x, w, v, r: (x @ (w @ w.T)) + x,
    "not contiguous": lambda x, w, v, r: (x @ w) + r.T.clone().T,
    "in place": lambda x, w, v, r: r.clone().add_(x @ w).mul_(2),
    "a view of the product": lambda x, w, v, r: (x @ w).view(-1).exp(),
    "part of the product": lambda x, w, v, r: (x @ w)[1:].exp(),
    "a sum's": lambda x, w, v, r: (x * 1.5).sum(1).sqrt().nan_to_num() + 1,
    "a norm's": lambda x, w, v, r: F.layer_norm(r, (9,), v) * 2 + r,
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name, everything, rng):
    x, w, v, r = arrays(rng, (7, 5), (5, 9), (9,), (7, 9))
    compiled = same_as_eager(EPILOGUES[name], x, w, v, r)
    apart = ("not contiguous", "part of the product")  # these are launches of their own
    found = any("epilogue" in text for text in sources(compiled))
    assert found == (name not in apart), compiled.report()


def test_convolutions_and_their_gradients(everything, rng):
    """An activation after a convolution, and its gradient after that of the next one."""
    weights = [w.requires_grad_() for w in arrays(rng, (4, 2, 3, 3), (3, 4, 3, 3))]

    def step(x):
        loss = F.conv2d(F.conv2d(x, weights[0]).relu(), weights[1]).square().mean()
        grads = minigrad.autograd.grad(loss, weights)
        return minigrad.cat([g.flatten() for g in grads])

    compiled = same_as_eager(step, *arrays(rng, (2, 2, 9, 9)))
    texts = [text for text in sources(compiled) if "epilogue" in text]
    assert len(texts) >= 2 and any("conv2d" in text for text in texts)


def test_a_result_that_is_read_again_is_kept(everything, rng):
    x, w = arrays(rng, (6, 5), (5, 8))

    def twice(x):
        p = x @ w
        return minigrad.cat([p.exp(), p * p.sum(1, keepdim=True)])

    compiled = same_as_eager(twice, x)
    assert not any("matmul" in text for text in sources(compiled))


def test_an_operand_that_changes_in_between_is_read_in_time(everything, rng):
    """The product may not move behind the change of what it reads."""
    x, w, r = arrays(rng, (6, 5), (5, 8), (6, 8))

    def step(x, r):
        x = x.clone()
        p = x @ w
        x.add_(1)
        return p.exp() * r + x.sum()

    same_as_eager(step, x, r)


# -- prologues -------------------------------------------------------------------------------

PROLOGUES = {
    "sum": lambda x, y: ((x - y) * (x - y)).sum(),
    "rows": lambda x, y: (x.exp() * y).sum(1),
    "columns": lambda x, y: (x * y + 1).mean(0),
    "largest": lambda x, y: (x * y).amax(1),
    "any": lambda x, y: (x - y * 2).any(),
    "softmax": lambda x, y: (x * 0.25 + y).softmax(-1),
}


@pytest.mark.parametrize("name", PROLOGUES)
def test_prologues(name, everything, rng):
    dtype = np.float64 if name == "rows" else np.float32
    x, y = arrays(rng, (33, 70), (33, 70), dtype=dtype)
    compiled = same_as_eager(PROLOGUES[name], x, y)
    assert any("prologue" in text for text in sources(compiled)), compiled.report()
    assert "1 launches" in compiled.report()


def test_what_is_broadcast_into_a_sum_is_an_array(everything, rng):
    """A reduction walks along memory: it has no index of a row or column."""
    x, v = arrays(rng, (33, 70), (70,))
    compiled = same_as_eager(lambda x, v: (x * v).sum(1), x, v)
    assert "2 launches" in compiled.report()


# -- both, at random -------------------------------------------------------------------------


def random_network(rng, steps=5):
    """A function of two matrices: products, pointwise operations and reductions, of which some
    results are read several times, broadcast, transposed or of another dtype."""
    plan = [(rng.integers(9), rng.integers(0, 100, 3)) for _ in range(steps)]

    def network(x, y):
        values = [x, y, x[:1], y.T.clone().T]
        for kind, numbers in plan:
            a, b, c = (values[n % len(values)] for n in numbers)
            if kind < 3:
                a, b = a.expand(4, 5), b.expand(4, 5).clone()
                values.append(a @ b.mT @ x * 0.01)
            elif kind == 3:
                values.append((a - b).square().mean(0, keepdim=True) + c)
            elif kind == 4:
                values.append((a * 0.5).softmax(-1) - b)
            elif kind == 5:
                values.append((a.double() * b).float().sum(1, keepdim=True) * c)
            elif kind == 6:
                values.append(minigrad.where(a > b, a.tanh(), c))
            else:
                values.append(a.sigmoid() * b + c)
        return values[-1] + values[-2]

    return network


SEEDS = [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 130))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_and_their_gradients(seed, everything):
    network = random_network(np.random.default_rng(seed), steps=3 if seed < 100 else 5)

    def step(x, y):
        """The result, its gradient, and a gradient of that."""
        x = x.clone().requires_grad_()
        out = network(x, y)
        (first,) = minigrad.autograd.grad(out.square().sum(), x, create_graph=True)
        (second,) = minigrad.autograd.grad(first.tanh().sum(), x)
        return minigrad.cat([t.detach().expand(4, 5) for t in (out, first, second)])

    x, y = arrays(np.random.default_rng(seed + 1), (4, 5), (4, 5))
    compiled = minigrad.compile(step)
    for _ in range(3):
        close(compiled(x, y), step(x, y), 1e-3)
    assert compiled.replayed == 2, compiled.report()
