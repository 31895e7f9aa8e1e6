"""Sparse tensors: against SciPy, torch and gradient checks."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import minigrad
from minigrad import backends
from minigrad.autograd import gradcheck, gradgradcheck


def matrix(rng, rows: int = 17, columns: int = 11, dtype=np.float64):
    """Random positions with repeats, their values, and the same matrix by SciPy."""
    n = 40
    places = np.stack([rng.integers(0, rows, n), rng.integers(0, columns, n)])
    values = rng.standard_normal(n).astype(dtype)
    return places, values, sp.coo_matrix((values, places), (rows, columns))


def made(places, values, shape, **kw):
    return minigrad.sparse_coo_tensor(
        minigrad.from_numpy(places), minigrad.from_numpy(values), shape, **kw
    )


@pytest.fixture(params=["coo", "csr"])
def pair(request, rng):
    """A sparse tensor of either layout, and SciPy's matrix."""
    places, values, expected = matrix(rng)
    found = made(places, values, expected.shape)
    return (found if request.param == "coo" else found.to_sparse_csr()), expected


def test_coalescing(rng):
    places, values, expected = matrix(rng)
    found = made(places, values, expected.shape)
    assert not found.is_coalesced()
    with pytest.raises(RuntimeError, match="call .coalesce"):
        found.indices()
    found = found.coalesce()
    assert found.coalesce() is found
    rows, columns = found.indices().numpy()
    assert (np.diff(rows * 11 + columns) > 0).all()
    summed = expected.tocsr()
    summed.sort_indices()
    np.testing.assert_allclose(found.values().numpy(), summed.data)
    compressed = found.to_sparse_csr()
    np.testing.assert_array_equal(compressed.crow_indices().numpy(), summed.indptr)
    np.testing.assert_array_equal(compressed.col_indices().numpy(), summed.indices)


def test_conversions(pair):
    found, expected = pair
    dense = found.to_dense()
    np.testing.assert_allclose(dense.numpy(), expected.toarray())
    for back in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse(layout=found.layout)):
        np.testing.assert_array_equal(back.to_dense().numpy(), dense.numpy())
    assert found.layout in (minigrad.sparse_coo, minigrad.sparse_csr)
    assert dense.layout is minigrad.strided
    assert found.shape == (17, 11)
    np.testing.assert_allclose(found.t().to_dense().numpy(), expected.T.toarray())


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_products(pair, rng, backend, width):
    found, expected = pair
    right, left = rng.standard_normal((11, width)), rng.standard_normal((width, 17))
    with backends.use(backend):
        a, b = minigrad.from_numpy(right), minigrad.from_numpy(left)
        for product in (found @ a, minigrad.sparse.mm(found, a), minigrad.spmm(found, a)):
            np.testing.assert_allclose(product.numpy(), expected @ right, atol=1e-12)
        np.testing.assert_allclose(minigrad.mm(found, a).numpy(), expected @ right, atol=1e-12)
        np.testing.assert_allclose((b @ found).numpy(), left @ expected, atol=1e-12)
        np.testing.assert_allclose((found @ a[:, 0]).numpy(), expected @ right[:, 0], atol=1e-12)


def test_gradients(rng):
    places, values, expected = matrix(rng, 5, 4)
    v = minigrad.tensor(values, requires_grad=True)
    d = minigrad.rand(4, 3, dtype=minigrad.float64, requires_grad=True)
    index = minigrad.from_numpy(places)

    def product(v, d):
        found = minigrad.sparse_coo_tensor(index, v, expected.shape)
        return minigrad.sparse.mm(found, d)

    def normalised(v):
        found = minigrad.sparse_coo_tensor(index, v, expected.shape)
        return minigrad.sparse.softmax(found, 1).to_dense()

    with backends.use("numpy"):
        assert gradcheck(product, (v, d))
        assert gradgradcheck(product, (v, d))
        assert gradcheck(normalised, (v,))
        dense = minigrad.rand(3, 4, dtype=minigrad.float64, requires_grad=True)
        assert gradcheck(lambda x: (x.to_sparse() * 2).to_dense(), (dense,))


def test_a_sparse_leaf(rng):
    places, values, expected = matrix(rng)
    leaf = made(places, values, expected.shape, requires_grad=True)
    assert leaf.is_leaf and leaf.requires_grad
    d = minigrad.from_numpy(rng.standard_normal((11, 2)))
    (leaf @ d).sum().backward()
    assert leaf.grad.layout is minigrad.sparse_coo
    np.testing.assert_allclose(leaf.grad._values().numpy(), d.numpy().sum(1)[places[1]], atol=1e-12)


def test_a_graph_convolution_learns():
    minigrad.manual_seed(0)
    edges = minigrad.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
    adjacency = minigrad.sparse_coo_tensor(edges, minigrad.ones(8), (6, 6)).to_sparse_csr()
    layer = minigrad.nn.Linear(6, 2)
    optimizer = minigrad.optim.SGD(layer.parameters(), lr=0.5)
    target = minigrad.tensor([0, 0, 0, 1, 1, 1])
    for _ in range(30):
        loss = minigrad.nn.functional.cross_entropy(adjacency @ layer(minigrad.eye(6)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2


def test_arithmetic(pair):
    found, expected = pair
    dense = expected.toarray()
    for result, wanted in (
        (found * 2, dense * 2), (3 * found, dense * 3), (found / 4, dense / 4), (-found, -dense),
        (found + found, dense * 2), (found - found * 3, dense * -2), (found.abs(), abs(dense)),
        (found.relu(), dense.clip(0)), (found + minigrad.ones(17, 11), dense + 1),
        (found * minigrad.full((17, 11), 0.5), dense * 0.5),
    ):  # fmt: skip
        got = result.to_dense() if result.layout is not minigrad.strided else result
        np.testing.assert_allclose(got.numpy(), wanted, atol=1e-12)
    np.testing.assert_allclose(minigrad.sparse.sum(found).item(), dense.sum())
    np.testing.assert_allclose(minigrad.sparse.sum(found, 1).to_dense().numpy(), dense.sum(1))


def test_dense_dimensions(rng):
    values = rng.standard_normal((3, 2))
    places = np.array([[0, 2, 0]])
    found = made(places, values, (4, 2))
    assert (found.sparse_dim(), found.dense_dim()) == (1, 1)
    wanted = np.zeros((4, 2))
    np.add.at(wanted, places[0], values)
    np.testing.assert_allclose(found.to_dense().numpy(), wanted)
    np.testing.assert_allclose(found.coalesce().values().numpy(), wanted[[0, 2]])
    np.testing.assert_allclose(
        minigrad.from_numpy(wanted).to_sparse(1).values().numpy(), wanted[[0, 2]]
    )


def test_empty():
    found = minigrad.sparse_coo_tensor(minigrad.zeros(2, 0).long(), minigrad.zeros(0), (3, 4))
    assert found._nnz() == 0
    assert (found @ minigrad.ones(4, 2)).tolist() == [[0.0, 0.0]] * 3
    assert minigrad.zeros(3, 4).to_sparse()._nnz() == 0
    assert found.coalesce().to_dense().shape == (3, 4)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda s: s.exp(), "exp"),
        (lambda s: minigrad.exp(s), "exp"),
        (lambda s: s.cumsum(0), "cumsum"),
        (lambda s: minigrad.cat([s, minigrad.ones(17, 11)]), "cat"),
        (lambda s: minigrad.ones(17, 11) * 2 - s.sort(), "sort"),
        (lambda s: s[minigrad.tensor([0])], "getitem"),
        (lambda s: s.norm(dim=0), "norm"),
        (lambda s: s**-1, "pow"),
        (lambda s: s + 1, "add"),
        (lambda s: minigrad.nn.functional.softmax(s, 1), "softmax"),
        (lambda s: s.view(-1), "view"),
        (lambda s: s.numpy(), "numpy"),
    ],
)
def test_what_is_not_there_says_its_name(pair, call, name):
    with pytest.raises(NotImplementedError, match=f"{name}: .*to_dense"):
        call(pair[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: minigrad.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)), "found index 5"),
        (lambda: minigrad.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,)), "found index -1"),
        (lambda: minigrad.sparse_coo_tensor([[0, 1]], [1.0], (3,)), "number of elements"),
        (lambda: minigrad.sparse_coo_tensor([[0]], [1.0], (3, 3)), "number of dimensions"),
        (lambda: minigrad.sparse_csr_tensor([0, 2], [0], [1.0], (1, 3)), "crow_indices"),
        (lambda: minigrad.sparse_csr_tensor([0, 2, 1, 2], [0, 1], [1.0, 1], (3, 3)), "never fall"),
        (lambda: minigrad.eye(3).to_sparse() @ minigrad.ones(2, 2), "cannot be multiplied"),
    ],
)
def test_errors(make, message):
    with pytest.raises(RuntimeError, match=message):
        make()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(how):
    for x in (
        minigrad.sparse_coo_tensor([[0, 0, 1]], [1.0, 2.0, 3.0], (3,), requires_grad=True),
        minigrad.eye(3).to_sparse(),
        minigrad.eye(3).to_sparse_csr(),
    ):
        again = how(x)
        assert repr(again) == repr(x) and type(again) is type(x)
        shared = again._values().data_ptr() == x._values().data_ptr()
        assert shared == (how is copy.copy)
    computed = minigrad.sparse_coo_tensor([[0]], minigrad.ones(1, requires_grad=True) * 2, (3,))
    if how is copy.deepcopy:
        with pytest.raises(RuntimeError, match="leaves"):
            how(computed)


def test_like_torch(torch, rng):
    places, values, expected = matrix(rng, dtype=np.float32)
    for lib in (minigrad, torch):
        v = lib.tensor(values, requires_grad=True)
        s = lib.sparse_coo_tensor(lib.tensor(places), v, expected.shape)
        d = lib.linspace(-1, 1, 33).reshape(11, 3).requires_grad_()
        found = lib.sparse.mm(s, d)
        (found**2).sum().backward()
        soft = lib.sparse.softmax(s.detach(), 1).to_dense()
        rows = lib.sparse.sum(s.detach().coalesce(), 0).to_dense()
        added = lib.sparse.addmm(lib.ones(17, 3), s.detach(), d.detach(), beta=0.5, alpha=2)
        results = [
            found.detach(),
            v.grad,
            d.grad,
            soft,
            rows,
            added,
            s.detach().coalesce().values(),
        ]
        text = repr(s.detach().coalesce().to_sparse_csr()).replace("torch.", "minigrad.")
        if lib is minigrad:
            own, own_text = [r.numpy() for r in results], text
    for a, b in zip(own, results, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-5)
    assert " ".join(own_text.split()) == " ".join(text.split())


def test_dense_tensors_have_no_positions(pair):
    dense = pair[0].to_dense()
    for name in ("indices", "values", "coalesce", "crow_indices", "col_indices"):
        with pytest.raises(RuntimeError, match=f"{name} expected sparse .* got Strided"):
            getattr(dense, name)()


def test_dimensions_of_sparse_tensors_exchanged(torch, rng):
    data = rng.standard_normal((2, 3, 4)) * (rng.random((2, 3, 4)) < 0.5)
    views = [
        lambda t, x: x.mT, lambda t, x: x.mH, lambda t, x: x.adjoint(), lambda t, x: x[0].mT,
        lambda t, x: x[1].H, lambda t, x: x.permute(2, 0, 1), lambda t, x: x.permute((0, -1, 1)),
        lambda t, x: t.permute(x, (1, 0, 2)), lambda t, x: t.transpose(x, -1, 0),
        lambda t, x: t.swapaxes(x, 0, 1),
    ]  # fmt: skip
    for imaginary in (0, 1j):
        for view in views:
            ours, theirs = (view(t, t.tensor(data + imaginary * data).to_sparse())
                            for t in (minigrad, torch))  # fmt: skip
            assert ours.is_sparse
            np.testing.assert_array_equal(ours.to_dense().numpy(), theirs.to_dense().resolve_conj())
    x = minigrad.tensor(data, requires_grad=True)
    (x.to_sparse().mT.to_dense() * minigrad.arange(3.0)).sum().backward()
    wanted = np.where(data != 0, np.arange(3.0)[:, None], 0)
    np.testing.assert_array_equal(x.grad, wanted)
    assert minigrad.tensor(data[0]).to_sparse_csr().mT.to_dense().equal(x[0].mT)


def test_dimensions_of_sparse_tensors_that_do_not_exchange(same_error):
    same_error(lambda t: t.ones(3).to_sparse().mT)
    with pytest.raises(RuntimeError, match="2 is not equal to len"):
        minigrad.ones(2, 3).to_sparse().permute(0)
    same_error(lambda t: t.ones(2, 3).to_sparse().permute(0, 0))
    hybrid = minigrad.ones(2, 3).to_sparse(1)
    with pytest.raises(NotImplementedError, match="permute.*dense dimension"):
        hybrid.permute(1, 0)
