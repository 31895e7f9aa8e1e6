"""`func` and `autograd.functional`: against NumPy, each other and torch; they nest."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad import backends, func, nn
from minigrad.autograd import functional

pytestmark = pytest.mark.usefixtures("reference_backend")


def cube(x):
    return (x**3).sum()


@pytest.fixture
def x(rng):
    return minigrad.from_numpy(rng.standard_normal(4))


def test_gradients_nest(x):
    np.testing.assert_allclose(func.grad(cube)(x), 3 * x.numpy() ** 2)
    second = func.grad(lambda x: func.grad(cube)(x).sum())
    np.testing.assert_allclose(second(x), 6 * x.numpy())
    np.testing.assert_allclose(func.hessian(cube)(x), np.diag(6 * x.numpy()))
    assert not func.grad(cube)(x).requires_grad
    outer = x.clone().requires_grad_()
    func.grad(cube)(outer).sum().backward()
    np.testing.assert_allclose(outer.grad, 6 * x.numpy())


def test_values_and_auxiliary_results(x):
    _, (value, extra) = func.grad_and_value(lambda x: (cube(x), "more"), has_aux=True)(x)
    assert extra == "more" and value.item() == pytest.approx((x.numpy() ** 3).sum())
    a, b = func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)
    np.testing.assert_allclose(a, x.numpy() + 1)
    np.testing.assert_allclose(b, x)


def test_products_with_the_jacobian(x, rng):
    w = minigrad.from_numpy(rng.standard_normal((4, 3)))

    def call(x):
        return minigrad.tanh(x @ w)

    table = func.jacrev(call)(x).numpy()
    y = np.tanh(x.numpy() @ w.numpy())
    np.testing.assert_allclose(table, (1 - y**2)[:, None] * w.numpy().T, rtol=1e-10)
    np.testing.assert_allclose(func.jacfwd(call)(x), table, rtol=1e-12)
    np.testing.assert_allclose(functional.jacobian(call, x), table, rtol=1e-12)
    left, right = (minigrad.from_numpy(rng.standard_normal(n)) for n in (3, 4))
    output, pull = func.vjp(call, x)
    np.testing.assert_allclose(output, y)
    for found in (pull(left)[0], functional.vjp(call, x, left)[1]):
        np.testing.assert_allclose(found, left.numpy() @ table)
    for found in (func.jvp(call, (x,), (right,))[1], functional.jvp(call, x, right)[1]):
        np.testing.assert_allclose(found, table @ right.numpy())
    for product in (functional.hvp, functional.vhp):
        np.testing.assert_allclose(product(cube, x, right)[1], 6 * x.numpy() * right.numpy())


def test_vmap(rng):
    a = minigrad.from_numpy(rng.standard_normal((5, 3)))
    b = minigrad.from_numpy(rng.standard_normal((3, 5)))
    dots = func.vmap(minigrad.dot, in_dims=(0, 1))(a, b)
    np.testing.assert_allclose(dots, (a.numpy() * b.numpy().T).sum(1))
    assert minigrad.vmap(lambda t: t * 2, in_dims=1, out_dims=1)(a).equal(a * 2)
    pairs = func.vmap(lambda t: {"sum": t.sum(), "twice": (t * 2,)})(a)
    assert pairs["sum"].shape == (5,) and pairs["twice"][0].equal(a * 2)
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        func.vmap(minigrad.dot)(a, b)


def test_gradients_per_sample_of_a_module(rng):
    model = nn.Linear(3, 1)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    inputs = minigrad.from_numpy(rng.standard_normal((6, 3)).astype(np.float32))

    def loss(parameters, one):
        return func.functional_call(model, parameters, one).sum()

    slopes = func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, inputs)
    np.testing.assert_allclose(slopes["weight"][:, 0], inputs)
    assert all(p.grad is None for p in model.parameters())
    zeros = {name: minigrad.zeros_like(p) for name, p in parameters.items()}
    assert func.functional_call(model, zeros, inputs).abs().sum() == 0
    assert model(inputs).abs().sum() > 0, "the module keeps its own parameters"
    given = {"other": zeros["bias"], **zeros}
    assert func.functional_call(model, given, inputs).abs().sum() == 0, "unknown names are ignored"
    with pytest.raises(RuntimeError, match="unexpected names.*other"):
        func.functional_call(model, given, inputs, strict=True)
    stacked, _ = func.stack_module_state([nn.Linear(3, 1) for _ in range(4)])
    both = func.vmap(lambda p: func.functional_call(model, p, inputs))(stacked)
    assert both.shape == (4, 6, 1)


def test_several_inputs_and_outputs(x):
    def call(a, b):
        return a * b, a.sum()

    table = functional.jacobian(call, (x, x + 1))
    assert [[tuple(t.shape) for t in row] for row in table] == [[(4, 4)] * 2, [(4,)] * 2]
    np.testing.assert_allclose(table[0][1], np.diag(x.numpy()))
    assert not table[1][1].numpy().any()
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.jacobian(call, (x, x + 1), strict=True)
    blocks = functional.hessian(lambda a, b: (a * b).sum(), (x, x))
    np.testing.assert_allclose(blocks[0][1], np.eye(4))
    graph = x.clone().requires_grad_()
    functional.jacobian(cube, graph, create_graph=True).sum().backward()
    np.testing.assert_allclose(graph.grad, 6 * x.numpy())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: func.grad(lambda x: x)(x), RuntimeError, "return a scalar"),
        (lambda x: func.grad(cube, 1)(x), RuntimeError, "argnums=1"),
        (lambda x: func.grad(cube)(3.0), TypeError, "expected tensors"),
        (lambda x: functional.hessian(lambda x: x, x), RuntimeError, "single element"),
        (lambda x: functional.vjp(lambda x: x, x), RuntimeError, "v can only be None"),
        (lambda x: functional.jacobian(lambda x: 3, x), TypeError, "outputs of func"),
    ],
)
def test_errors(x, call, error, message):
    with pytest.raises(error, match=message):
        call(x)


def test_like_torch(torch, rng):
    import torch.func

    arrays = rng.standard_normal((4, 3)), rng.standard_normal((3, 2))
    results = []
    for lib in (minigrad, torch):
        x, w = (lib.tensor(a) for a in arrays)
        F, A = lib.func, lib.autograd.functional

        def f(w, x, lib=lib):
            return lib.tanh(x @ w).pow(2).sum()

        def of_w(w, x=x, f=f):
            return f(w, x)

        found = [F.grad(f)(w, x), *F.grad(f, (0, 1))(w, x), *F.grad_and_value(f)(w, x)]
        found += [F.vmap(F.grad(f), (None, 0))(w, x), F.jacrev(f)(w, x), F.hessian(f)(w, x)]
        found += [A.hvp(of_w, w, w)[1], A.jacobian(of_w, w)]
        results.append([t.numpy() for t in found])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def _random_in_vmap(t):
    """What vmap makes of functions that draw random numbers, or give no tensors."""
    x, found = t.arange(3.0), []
    for randomness in ("error", "different", "same", "other"):
        try:
            y = t.func.vmap(lambda v: v * 0 + t.rand(()), randomness=randomness)(x)
            found.append((tuple(y.shape), len(set(y.tolist()))))
        except Exception as error:
            found.append((type(error), str(error)[:60]))
    for program in (lambda v: (v, 1.0), lambda v: "a"):
        try:
            t.func.vmap(program)(x)
        except Exception as error:
            found.append(type(error))
    return found


def test_randomness_in_vmap_as_torch(torch):
    assert _random_in_vmap(minigrad) == _random_in_vmap(torch)


def test_what_func_returns_beside_its_value_has_no_graph(x):
    x = x.detach()

    def double(a):
        return a * 2, a * 3

    assert not func.vjp(double, x, has_aux=True)[2].requires_grad
    assert not func.jvp(double, (x,), (x,), has_aux=True)[2].requires_grad
    with pytest.raises(RuntimeError, match="Expected primals to be a tuple, got Tensor"):
        func.jvp(lambda a: a, x, (x,))


def test_vmap_of_no_elements_and_of_what_has_no_such_dimension():
    double = func.vmap(lambda a: a * 2, in_dims=1, out_dims=1)
    assert double(minigrad.ones(3, 0)).shape == (3, 0)
    with pytest.raises(ValueError, match="in_dim=1 for some input, but that input is a Tensor of"):
        double(minigrad.ones(3))
    with pytest.raises(ValueError, match="non-Tensor arguments, please use None as the"):
        func.vmap(lambda a, b: a * b)(minigrad.ones(3), 2)
    assert func.vmap(lambda a, b: a * b, in_dims=(0, None))(minigrad.ones(3), 2).tolist() == [2] * 3


def test_a_block_with_other_parameters(torch):
    results = []
    for t in (minigrad, torch):
        model = t.nn.Sequential(t.nn.Linear(2, 1))
        own = model[0].weight
        other = t.full((1, 2), 2.0, requires_grad=True)
        given = {"0.weight": other, "0.bias": t.zeros(1), "unknown": t.zeros(1)}
        with t.nn.utils.stateless._reparametrize_module(model, given):
            result = model(t.ones(1, 2)) * model[0].weight.sum()
        result.backward()
        assert model[0].weight is own and own.grad is None
        results.append((result.item(), other.grad.tolist()))
    assert results[0] == results[1] == (16, [[8, 8]])


def test_second_derivatives_through_complex_numbers(rng):
    """What all elements of a vmap share gets a complex sum of their gradients, not by a kernel."""
    x = minigrad.tensor(rng.standard_normal((2, 5)))
    weights = minigrad.arange(1.0, 4.0).to(minigrad.float64)

    def loss(x):
        return (minigrad.fft.rfft(x).abs() * weights).sum()

    with backends.use("numba"):
        found = func.hessian(loss)(x)
    step, one = 1e-6, minigrad.zeros(2, 5, dtype=minigrad.float64)
    one[1, 2] = step
    slope = (func.grad(loss)(x + one) - func.grad(loss)(x - one)) / (2 * step)
    np.testing.assert_allclose(found[:, :, 1, 2], slope, atol=1e-6)


def test_what_functions_must_return_and_get():
    x = minigrad.ones(3)

    def number(a):
        return 3

    for call in (
        lambda: func.vjp(number, x),
        lambda: func.jvp(number, (x,), (x,)),
        lambda: func.jacrev(number)(x),
        lambda: func.jacfwd(number)(x),
    ):
        with pytest.raises(RuntimeError, match="return only tensors, got int"):
            call()
    with pytest.raises(RuntimeError, match="primals and tangents to have the same structure"):
        func.jvp(lambda a, b: a * b, (x, x), (x,))
