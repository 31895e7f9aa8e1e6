"""Compiled functions and sparse tensors: they run without a recording where one comes in or out."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad import nn

SEED = 20261201


@pytest.fixture
def rng():
    print(f"seed {SEED}")
    return np.random.default_rng(SEED)


def sparse(rng, layout: str):
    dense = minigrad.tensor(rng.standard_normal((4, 4)) * (rng.random((4, 4)) < 0.5))
    return dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()


def dense(x):
    return x if x.layout is minigrad.strided else x.to_dense()


def same(function, *calls) -> str:
    """Each call of the compiled function has the result of the function; returns the report."""
    compiled = minigrad.compile(function)
    for args in calls:
        found, expected = dense(compiled(*args)), dense(function(*args))
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-12)
    return compiled.report()


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_argument(layout, rng):
    calls = [(sparse(rng, layout), minigrad.from_numpy(rng.random((4, 3)))) for _ in range(3)]
    assert "eager: an argument is a sparse tensor" in same(lambda a, x: a @ x, *calls)
    assert "an argument is a sparse tensor" in same(lambda a: a, *[call[:1] for call in calls])
    strict = minigrad.compile(lambda a, x: a @ x, fullgraph=True)
    with pytest.raises(minigrad.compiler.Unsupported, match="is a sparse tensor; leave that out"):
        strict(*calls[0])


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_result(layout, rng):
    a = sparse(rng, layout)
    calls = [(minigrad.from_numpy(rng.random(1)),) for _ in range(3)]
    assert "eager: it returns a sparse tensor" in same(lambda x: a * x.sum(), *calls)
    at = minigrad.tensor([[0, 1], [1, 2]])

    def build(values):
        return minigrad.sparse_coo_tensor(at, values * 2, (3, 3))

    values = [minigrad.from_numpy(rng.random(2)).requires_grad_() for _ in range(3)]
    compiled = minigrad.compile(build)
    for v in values:
        compiled(v).to_dense().sum().backward()
        assert v.grad.tolist() == [2, 2]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_tensor_of_the_program_is_recorded(layout, rng):
    """A graph's matrix, whose elements may change."""
    a, x = sparse(rng, layout), minigrad.from_numpy(rng.random((4, 3)))
    compiled = minigrad.compile(lambda x: (a @ x).relu())
    for _ in range(4):
        np.testing.assert_allclose(compiled(x), (a.to_dense() @ x).relu(), rtol=1e-12)
        a.mul_(-2)
    assert compiled.replayed == 3


OPTIMISERS = {
    "SGD": lambda params: minigrad.optim.SGD(params, 0.1),
    "Adagrad": lambda params: minigrad.optim.Adagrad(params, 0.1),
    "SparseAdam": lambda params: minigrad.optim.SparseAdam(params, 0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_with_sparse_gradients(name):
    losses = []
    for wrapped in (lambda f: f, minigrad.compile):
        minigrad.manual_seed(SEED)
        words, head = nn.Embedding(7, 3, sparse=True), nn.Linear(3, 1)
        optimisers = [OPTIMISERS[name](words.parameters()), minigrad.optim.SGD(head.parameters())]

        def step(index, words=words, head=head, optimisers=optimisers):
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss = head(words(index)).square().sum()
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()
            return loss.detach()

        run = wrapped(step)
        losses.append([run(minigrad.tensor([k % 7, 2, 2])).item() for k in range(5)])
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][-1]
    assert "eager: it computes a sparse gradient" in run.report()


def test_a_backward_pass_outside_that_has_sparse_gradients():
    gradients = []
    for wrapped in (lambda f: f, minigrad.compile):
        minigrad.manual_seed(SEED)
        words = nn.Embedding(7, 3, sparse=True)
        run = wrapped(lambda index, words=words: words(index).square().sum())
        for k in range(3):
            run(minigrad.tensor([k, 2, 2])).backward()
        gradients.append(words.weight.grad.to_dense().tolist())
    assert gradients[0] == gradients[1]


def test_sparse_gradients_from_outside():
    """Compiled is what takes a step, or what takes the gradients away."""
    for call in ("step", "zero_grad"):
        found = []
        for wrapped in (lambda f: f, minigrad.compile):
            minigrad.manual_seed(SEED)
            words = nn.Embedding(7, 3, sparse=True)
            optimiser = minigrad.optim.SGD(words.parameters(), 0.1)
            run = wrapped(lambda call=call, optimiser=optimiser: getattr(optimiser, call)())
            for k in range(3):
                words(minigrad.tensor([k, 2])).square().sum().backward()
                run()
                if call == "step":
                    optimiser.zero_grad()
                assert words.weight.grad is None
            found.append(words.weight.tolist())
        assert found[0] == found[1]


def test_a_sparse_gradient_of_something_else_is_in_nobodys_way():
    words = nn.Embedding(5, 3, sparse=True)
    words(minigrad.tensor([1])).sum().backward()
    compiled = minigrad.compile(lambda x: x * 2)
    assert [compiled(minigrad.ones(2)).tolist() for _ in range(3)] == [[2, 2]] * 3
    assert compiled.replayed == 2
    assert words.weight.grad.is_sparse
