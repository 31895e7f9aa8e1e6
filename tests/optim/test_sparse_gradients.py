"""Sparse gradients of embeddings, and the optimisers that take them, beside torch."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad import backends
from minigrad.autograd.mode import sparse_gradients


@pytest.fixture(autouse=True)
def _numpy():
    with backends.use("numpy"):
        yield


def table(m, **options):
    layer = m.nn.Embedding(7, 3, sparse=True, dtype=m.float64, **options)
    with m.no_grad():
        layer.weight.copy_(m.arange(21.0).double().reshape(7, 3) / 10 - 1)
    return layer


def both(torch, program):
    ours, theirs = program(minigrad), program(torch)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, str | bool | type):
            assert a == b
        else:
            np.testing.assert_allclose(
                a.detach().to_dense(), b.detach().to_dense(), rtol=1e-12, atol=1e-15
            )


OPTIMIZERS = {
    "SparseAdam": {"lr": 0.1},
    "SparseAdam, maximize": {"lr": 0.1, "maximize": True, "betas": (0.5, 0.9), "eps": 1e-3},
    "SGD": {"lr": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.01},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trajectories(torch, name):
    def program(m):
        layer = table(m)
        optimizer = getattr(m.optim, name.partition(",")[0])(layer.parameters(), **OPTIMIZERS[name])
        seen = []
        for rows in ([1, 3, 1], [2, 3, 5], [1, 1, 1]):
            optimizer.zero_grad()
            (layer(m.tensor(rows)) ** 2).sum().backward()
            seen += [layer.weight.grad.is_sparse, layer.weight.grad.coalesce()]
            optimizer.step()
            seen += [layer.weight.grad.is_sparse, layer.weight.clone()]
        state = optimizer.state_dict()["state"]
        if state:
            seen += [state[0][key] for key in sorted(state[0]) if key != "step"]
        return seen

    both(torch, program)


def test_only_rows_with_a_gradient_move():
    layer = table(minigrad)
    before = layer.weight.clone()
    optimizer = minigrad.optim.SparseAdam(layer.parameters(), lr=0.1)
    for rows in ([0, 1], [1, 2]):  # Adam would move row 0 in the second step, too
        optimizer.zero_grad()
        layer(minigrad.tensor(rows)).sum().backward()
        kept = layer.weight[0].clone()
        optimizer.step()
    assert minigrad.equal(layer.weight[0], kept)
    assert minigrad.equal(layer.weight[3:], before[3:])
    assert not minigrad.equal(layer.weight[1], before[1])


def test_gradients(torch):
    """Two uses, two passes, a row of padding, and what else adds to the same gradient."""

    def program(m):
        layer = table(m, padding_idx=2)
        w = layer.weight
        ((layer(m.tensor([[1, 2], [2, 4]])) * 3).sum() + layer(m.tensor([4])).sum()).backward()
        seen = [w.grad.is_sparse, w.grad.coalesce(), w.grad.coalesce().indices()]
        layer(m.tensor([0, 4])).pow(2).sum().backward()
        seen += [w.grad.is_sparse, w.grad.coalesce()]
        w.grad = None
        (layer(m.tensor([1, 1])).sum() + (w * w).sum()).backward()
        seen += [w.grad.is_sparse, w.grad]
        layer(m.tensor([1])).sum().backward()
        seen += [w.grad.is_sparse, w.grad]
        (found,) = m.autograd.grad(layer(m.tensor([5, 5])).sum(), w)
        seen += [found.is_sparse, found.coalesce(), repr(layer)]
        bag = m.nn.EmbeddingBag(7, 3, mode="sum", sparse=True, _weight=w.detach().clone())
        bag(m.tensor([1, 3, 3]), m.tensor([0, 1])).sum().backward()
        return [*seen, bag.weight.grad.is_sparse, bag.weight.grad.coalesce()]

    both(torch, program)


def test_hooks(torch):
    def program(m):
        layer, seen = table(m), []
        layer.weight.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
        layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_sparse))
        layer(m.tensor([1, 3])).sum().backward()
        return [*seen, layer.weight.grad.coalesce()]

    both(torch, program)


def test_errors(torch):
    def error(program):
        try:
            program()
        except Exception as error:
            return type(error)
        return None

    def program(m):
        def step(optimizer, sparse=True, **options):
            layer = table(m)
            layer.weight.grad = None
            chosen = getattr(m.optim, optimizer)(layer.parameters(), **options)
            (layer(m.tensor([1])) if sparse else layer.weight).sum().backward()
            chosen.step()

        layer = table(m, scale_grad_by_freq=True)
        return [
            error(lambda: step("Adam")),
            error(lambda: step("AdamW")),
            error(lambda: step("RMSprop")),
            error(lambda: step("NAdam")),
            error(lambda: step("SparseAdam", sparse=False)),
            error(lambda: step("SparseAdam", lr=0.0)),
            error(lambda: step("SparseAdam", eps=0.0)),
            error(lambda: step("SparseAdam", betas=(1.0, 0.9))),
            error(lambda: layer(m.tensor([1])).sum().backward()),
        ]

    both(torch, program)
    with pytest.raises(RuntimeError, match="please consider SparseAdam instead"):
        layer = table(minigrad)
        layer(minigrad.tensor([1])).sum().backward()
        minigrad.optim.Adam(layer.parameters()).step()


def test_a_sparse_gradient_that_the_program_sets():
    sparse_gradients.clear()  # which earlier tests may have filled
    p = minigrad.nn.Parameter(minigrad.zeros(3, 2))
    rows = minigrad.tensor([[0, 2]])
    p.grad = minigrad.sparse_coo_tensor(rows, minigrad.ones(2, 2), (3, 2))
    minigrad.optim.SGD([p], lr=0.5).step()
    assert p.grad.is_sparse and p.tolist() == [[-0.5, -0.5], [0, 0], [-0.5, -0.5]]
    with pytest.raises(RuntimeError, match="to a tensor of size"):
        p.grad = minigrad.sparse_coo_tensor(rows, minigrad.ones(2, 2), (4, 2))
    with pytest.raises(RuntimeError, match="gradient with dtype"):
        p.grad = minigrad.sparse_coo_tensor(rows, minigrad.ones(2, 2).double(), (3, 2))
