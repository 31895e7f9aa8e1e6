"""Sparse tensors with each other: as torch has it, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad
from minigrad.autograd import gradcheck

# A (5, 4), B (5, 4) and C (4, 6) are sparse, A not coalesced; d (3, 4) and (4, 2) are dense.
OPERATIONS = {
    "product": lambda m, A, B, C: A @ C,
    "mm": lambda m, A, B, C: m.sparse.mm(A.t(), B),
    "elementwise": lambda m, A, B, C: A * B,
    "mul": lambda m, A, B, C: m.mul(A, A),
    "cat": lambda m, A, B, C: m.cat([A, B, A]),
    "cat of columns": lambda m, A, B, C: m.cat([A, B], 1),
    "stack": lambda m, A, B, C: m.stack([A, B]),
    "stack inside": lambda m, A, B, C: m.stack([A, B], 1),
    "unsqueeze": lambda m, A, B, C: A.unsqueeze(-1),
    "norm": lambda m, A, B, C: A.norm(),
    "a function": lambda m, A, B, C: m.norm(B),
    "power": lambda m, A, B, C: A**2,
    "pow": lambda m, A, B, C: m.pow(B, 3),
    "index_select": lambda m, A, B, C: A.index_select(0, m.tensor([3, 0, 3])),
    "columns": lambda m, A, B, C: m.index_select(C, 1, m.tensor([5, 5, 1])),
    "row": lambda m, A, B, C: A[1],
    "last row": lambda m, A, B, C: A[-1],
    "rows": lambda m, A, B, C: A[1:4] if m is minigrad else A.index_select(0, m.arange(1, 4)),
    "element": lambda m, A, B, C: A[0, 2],
    "zeros_like": lambda m, A, B, C: m.zeros_like(A),
    "addmm": lambda m, A, B, C: m.addmm(m.ones(5, 3), A, m.ones(4, 3), beta=0.5, alpha=2),
    "bmm": lambda m, A, B, C: m.bmm(m.stack([A, B]), m.arange(24.0).reshape(2, 4, 3)),
    "empty": lambda m, A, B, C: m.sparse_coo_tensor((2, 3)) + m.sparse_coo_tensor(size=(2, 3)),
    "half": lambda m, A, B, C: A.half().float(),
    "long": lambda m, A, B, C: A.long().float(),
    "spdiags": lambda m, A, B, C: m.sparse.spdiags(
        m.arange(1.0, 13).reshape(3, 4), m.tensor([0, 2, -1]), (5, 4)
    ),
}
OF_ROWS = ("product", "elementwise", "mul", "element", "addmm")
SHAPES = {"A": (5, 4), "B": (5, 4), "C": (4, 6)}


def operands(m, seed, leaves=False):
    rng = np.random.default_rng(seed)
    made = []
    for shape in SHAPES.values():
        places = np.stack([rng.integers(0, n, 9) for n in shape])
        values = m.tensor(rng.standard_normal(9).astype(np.float32) * 3, requires_grad=leaves)
        made.append(m.sparse_coo_tensor(m.tensor(places), values, shape))
    return made


def dense(t):
    found = t.detach().to_dense() if hasattr(t, "to_dense") else t
    return np.asarray(found.tolist())


@pytest.mark.parametrize("name", OPERATIONS)
def test_as_torch(name, torch):
    found = [OPERATIONS[name](m, *operands(m, 3)) for m in (minigrad, torch)]
    assert str(found[0].layout) == str(found[1].layout).replace("torch", "minigrad")
    np.testing.assert_allclose(dense(found[0]), dense(found[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_ROWS)
def test_compressed_rows_as_torch(name, torch):
    given = [[t.to_sparse_csr() for t in operands(m, 4)] for m in (minigrad, torch)]
    found = [OPERATIONS[name](m, *t) for m, t in zip((minigrad, torch), given, strict=True)]
    assert str(found[0].layout) == str(found[1].layout).replace("torch", "minigrad")
    np.testing.assert_allclose(dense(found[0]), dense(found[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n not in ("empty", "half", "long")])
def test_gradients(name, rng):
    places = [np.stack([rng.integers(0, n, 9) for n in shape]) for shape in SHAPES.values()]

    def function(*values):
        made = [
            minigrad.sparse_coo_tensor(minigrad.from_numpy(p), v, s)
            for p, v, s in zip(places, values, SHAPES.values(), strict=True)
        ]
        found = OPERATIONS[name](minigrad, *made)
        return found.to_dense() + 0 * sum(v.sum() for v in values)

    values = [minigrad.from_numpy(rng.standard_normal(9)).requires_grad_() for _ in SHAPES]
    minigrad.set_default_dtype(minigrad.float64)
    try:
        assert gradcheck(function, values)
    finally:
        minigrad.set_default_dtype(minigrad.float32)


@pytest.mark.filterwarnings("ignore")
def test_a_product_at_some_positions(torch, rng):
    a, b = rng.standard_normal((5, 3)), rng.standard_normal((3, 4))
    found = []
    for m in (minigrad, torch):
        A = operands(m, 5)[0].coalesce().double().to_sparse_csr()
        x, y = m.tensor(a), m.tensor(b)
        found.append(dense(m.sparse.sampled_addmm(A, x, y, beta=0.5, alpha=2)))
    np.testing.assert_allclose(*found)
    x, y = (minigrad.from_numpy(t).requires_grad_() for t in (a, b))
    A = operands(minigrad, 5)[0].coalesce().double().to_sparse_csr()
    assert gradcheck(lambda x, y: minigrad.sparse.sampled_addmm(A, x, y).values(), (x, y))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda A, B, C: A @ B, RuntimeError, "cannot be multiplied"),
        (lambda A, B, C: A * C, RuntimeError, "one shape"),
        (lambda A, B, C: minigrad.cat([A, C]), RuntimeError, "match except in dimension 0"),
        (lambda A, B, C: A.index_select(0, minigrad.tensor([5])), IndexError, "out of range"),
        (lambda A, B, C: A[5], IndexError, "out of range"),
        (lambda A, B, C: A / B, NotImplementedError, "two sparse tensors"),
        (lambda A, B, C: minigrad.bmm(A.unsqueeze(0), minigrad.ones(1, 5, 2)), RuntimeError, "bmm"),
        (lambda A, B, C: minigrad.sparse.sampled_addmm(A, A, A), RuntimeError, "compressed rows"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(*operands(minigrad, 6))


@pytest.mark.parametrize("kind", ["to_sparse", "to_sparse_csr"])
def test_sparse_terms_of_dense_tensors_as_torch(kind, rng, torch):
    """dense + sparse is dense, as a function, a method and in place, with both gradients."""
    weights, places = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    places[rng.random((3, 4)) < 0.5] = 0
    programs = [
        lambda m, w, s: w + s,
        lambda m, w, s: m.add(w, s),
        lambda m, w, s: w.add(s, alpha=3),
        lambda m, w, s: w.clone().add_(s, alpha=-2),
        lambda m, w, s: w - s,
        lambda m, w, s: m.sub(w, s, alpha=0.5),
        lambda m, w, s: w.clone().sub_(s),
        lambda m, w, s: m.nn.Parameter(w.detach()) + s,
        lambda m, w, s: m.nn.Parameter(w.detach()) - s,
    ]
    if kind == "to_sparse_csr":  # torch doesn't subtract those
        programs = [*programs[:4], programs[7]]
    for program in programs:
        found = []
        for m in (minigrad, torch):
            w, x = (m.from_numpy(a.copy()).requires_grad_() for a in (weights, places))
            y = program(m, w, getattr(x, kind)())
            (y * y).sum().backward()
            stored = x.grad.to_dense().numpy() * (places != 0)
            found.append([y.detach().numpy(), None if w.grad is None else w.grad.numpy(), stored])
        for mine, theirs in zip(*found, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_sparse_operands_of_parameters_name_what_is_missing():
    sparse, weight = minigrad.eye(2).to_sparse(), minigrad.nn.Parameter(minigrad.ones(2, 2))
    for call in (lambda: weight / sparse, lambda: minigrad.ones(2, 2) / sparse):
        with pytest.raises(
            (TypeError, NotImplementedError), match="sparse_coo|unsupported operand"
        ):
            call()
    assert (weight * sparse).to_dense().tolist() == [[1, 0], [0, 1]]


def test_a_linear_layer_of_a_sparse_input(rng):
    dense = minigrad.tensor(rng.random((4, 5)) * (rng.random((4, 5)) < 0.5))
    layer = minigrad.nn.Linear(5, 3, dtype=minigrad.float64)
    grads = []
    for x in (dense, dense.to_sparse()):
        layer.zero_grad()
        out = layer(x)
        np.testing.assert_allclose(out.detach(), layer(dense).detach())
        (out * minigrad.arange(3.0)).sum().backward()
        grads.append([p.grad for p in layer.parameters()])
    for ours, right in zip(*grads, strict=True):
        np.testing.assert_allclose(ours, right)


def test_sparse_gradients_are_scaled_in_place():
    weight = minigrad.ones(4, 2, requires_grad=True)
    minigrad.nn.functional.embedding(
        minigrad.tensor([1, 2, 1]), weight, sparse=True
    ).sum().backward()
    norm = minigrad.nn.utils.clip_grad_norm_(weight, 0.5)
    assert norm.item() == pytest.approx(10**0.5) and weight.grad.is_sparse
    assert weight.grad.norm().item() == pytest.approx(0.5, rel=1e-4)
    before = weight.grad.to_dense()
    assert weight.grad.mul_(6).div_(minigrad.tensor(2.0)) is weight.grad
    np.testing.assert_allclose(weight.grad.to_dense(), 3 * before)
    with pytest.raises(NotImplementedError, match="mul_: not implemented for layout"):
        weight.grad.mul_(minigrad.ones(4, 2))
    assert not weight.grad.zero_().to_dense().any()
