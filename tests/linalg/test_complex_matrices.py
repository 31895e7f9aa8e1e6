"""Linear algebra of complex matrices: NumPy's results, gradients by differences and as torch's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import minigrad
from minigrad import linalg
from minigrad.autograd import gradcheck

pytestmark = pytest.mark.usefixtures("reference_backend")


def hermitian(m, x):
    """A positive definite matrix of any square one."""
    return x @ x.mH + 2 * m.eye(x.shape[-1], dtype=x.dtype)


def composed(parts):
    """A matrix from its singular vectors and changed values: it does not depend on phases."""
    left, values, right = parts
    return (left * (values**2).unsqueeze(-2)) @ right


def by_eigenvectors(m, x):
    values, vectors = m.linalg.eig(x)
    return (vectors * values.exp().unsqueeze(-2)) @ m.linalg.inv(vectors)


SQUARE = {
    "inv": lambda m, x: m.linalg.inv(x),
    "inv_ex": lambda m, x: m.linalg.inv_ex(x).inverse,
    "solve": lambda m, x: m.linalg.solve(x, x @ x * 1j),
    "solve_triangular": lambda m, x: m.linalg.solve_triangular(x, x @ x, upper=False),
    "det": lambda m, x: m.linalg.det(x),
    "det_singular": lambda m, x: m.linalg.det(m.cat([x[..., :2, :], x[..., :1, :]], -2)),
    "slogdet": lambda m, x: m.linalg.slogdet(x)[0] * m.linalg.slogdet(x)[1],
    "logdet": lambda m, x: m.logdet(x),
    "cholesky": lambda m, x: m.linalg.cholesky(hermitian(m, x)),
    "cholesky_upper": lambda m, x: m.linalg.cholesky(hermitian(m, x), upper=True),
    "cholesky_solve": lambda m, x: m.cholesky_solve(x, m.linalg.cholesky(hermitian(m, x))),
    "cholesky_inverse": lambda m, x: m.cholesky_inverse(m.linalg.cholesky(hermitian(m, x))),
    "eigh": lambda m, x: m.linalg.eigh(hermitian(m, x))[1].abs(),
    "eigvalsh": lambda m, x: m.linalg.eigvalsh(hermitian(m, x)),
    "eig": by_eigenvectors,
    "eigvals": lambda m, x: m.linalg.eigvals(x).abs().sum(-1),
    "pinv_hermitian": lambda m, x: m.linalg.pinv(hermitian(m, x), hermitian=True),
    "matrix_exp": lambda m, x: m.linalg.matrix_exp(x * 0.5),
    "matrix_power": lambda m, x: m.linalg.matrix_power(x, -2),
    "lu": lambda m, x: m.linalg.lu(x)[1].abs() + m.linalg.lu(x)[2].abs(),
    "cond": lambda m, x: m.linalg.cond(x),
}
TALL = {
    "svdvals": lambda m, x: m.linalg.svdvals(x),
    "svd": lambda m, x: composed(m.linalg.svd(x, full_matrices=False)),
    "svd_u": lambda m, x: m.linalg.svd(x, full_matrices=False)[0].abs(),
    "svd_wide": lambda m, x: m.linalg.svd(x.mH, full_matrices=False)[2].abs(),
    "pinv": lambda m, x: m.linalg.pinv(x),
    "qr": lambda m, x: m.linalg.qr(x)[0].abs(),
    "qr_wide": lambda m, x: m.linalg.qr(x.mT)[1].abs(),
    "lstsq": lambda m, x: m.linalg.lstsq(x, x[..., :1].abs() * 1j).solution,
    "householder": lambda m, x: m.linalg.householder_product(x, x[..., 0, :2] * 0.3),
    "nuclear": lambda m, x: m.linalg.norm(x, "nuc", dim=(-2, -1)),
}
CASES = {**SQUARE, **TALL}


def _matrices(name, rng, lead=(2,)):
    shape = (*lead, 3 if name in SQUARE else 4, 3)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("name", CASES)
def test_gradients_by_differences(name, rng):
    x = minigrad.tensor(_matrices(name, rng, ()), requires_grad=True)
    assert gradcheck(lambda x: CASES[name](minigrad, x), x)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_as_torch(name, torch, rng):
    a, weights = _matrices(name, rng), rng.standard_normal((2, 2, 4, 4))
    found = []
    for m in (minigrad, torch):
        x = m.tensor(a, requires_grad=True)
        y = CASES[name](m, x)
        parts = m.view_as_real(y).movedim(-1, 0) if y.is_complex() else y.unsqueeze(0)
        index = (slice(len(parts)), *(slice(n) for n in y.shape), *[0] * (3 - y.ndim))
        (parts * m.tensor(weights[index])).sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8 * (1 + abs(theirs).max()))


def test_real_matrices_have_complex_eigenvectors(torch, rng):
    a = rng.standard_normal((2, 4, 4))
    assert gradcheck(
        lambda x: by_eigenvectors(minigrad, x), minigrad.tensor(a[0] / 2, requires_grad=True)
    )
    found = []
    for m in (minigrad, torch):
        x = m.tensor(a, requires_grad=True)
        m.linalg.eig(x)[1].abs().square().sum(-1)[:, 0].sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, atol=1e-8)


def test_values_as_numpy(rng):
    a = _matrices("inv", rng)
    x = minigrad.tensor(a)
    close = np.testing.assert_allclose
    close(linalg.inv(x).numpy(), np.linalg.inv(a))
    close(linalg.det(x).numpy(), np.linalg.det(a))
    close(linalg.matrix_exp(x).numpy(), scipy.linalg.expm(a))
    close(linalg.eigvals(x).numpy(), np.linalg.eigvals(a))
    close(linalg.svdvals(x).numpy(), np.linalg.svd(a, compute_uv=False))
    lower = linalg.cholesky(hermitian(minigrad, x))
    close((lower @ lower.mH).numpy(), hermitian(minigrad, x).numpy(), atol=1e-12)
    p, low, up = linalg.lu(x)
    close((p @ low @ up).numpy(), a, atol=1e-12)
    q, r = linalg.qr(x)
    close((q @ r).numpy(), a, atol=1e-12)
    assert linalg.matrix_rank(x).tolist() == [3, 3]
    assert linalg.inv(x.to(minigrad.complex64)).dtype == minigrad.complex64
    a, tau = minigrad.geqrf(x)
    close(minigrad.orgqr(a, tau) @ a.triu(), x, atol=1e-12)
    close(minigrad.ormqr(a, tau, x, transpose=True), a.triu(), atol=1e-12)
    close(minigrad.ormqr(a, tau[..., :1], x, transpose=True)[..., 0], a.triu()[..., 0], atol=1e-12)
    values = linalg.svdvals(x).sum(-1)
    close(x.norm("nuc", (-2, -1)), values)
    close(minigrad.norm(x[0], "nuc"), values[0])
    assert linalg.lstsq(x[:0], x[:0]).residuals.dtype == minigrad.float64


@pytest.mark.parametrize("hermitian", [True, False])
def test_ldl_of_complex_matrices(rng, hermitian):
    """Symmetric matrices, and those that equal their conjugate transpose; of both the lower
    triangle is read."""
    parts = (rng.standard_normal((2, 2, 5, n)) for n in (5, 3))
    x, b = (minigrad.from_numpy(real + 1j * imag) for real, imag in parts)
    a = x + (x.mH if hermitian else x.mT)
    packed, pivots = linalg.ldl_factor(a.tril(), hermitian=hermitian)
    solution = linalg.ldl_solve(packed, pivots, b, hermitian=hermitian)
    np.testing.assert_allclose(a @ solution, b, atol=1e-10)
    other = linalg.ldl_solve(packed, pivots, b, hermitian=not hermitian)
    assert (a @ other - b).abs().max() > 1e-3


def test_where_a_factorization_fails():
    """info: the order of the leading minor, or the place of the zero on the diagonal."""
    eye = minigrad.eye(3)
    second, third = (eye - 2 * minigrad.diag(eye[i]) for i in (1, 2))
    assert linalg.cholesky_ex(minigrad.stack([eye, second, third])).info.tolist() == [0, 2, 3]
    assert linalg.cholesky_ex(-eye).info == 1
    singular = eye - minigrad.diag(eye[1])
    assert linalg.inv_ex(minigrad.stack([singular, eye])).info.tolist() == [2, 0]


def test_limits_of_complex_dtypes():
    assert minigrad.finfo(minigrad.complex64).eps == minigrad.finfo(minigrad.float32).eps
    assert minigrad.finfo(minigrad.complex128).dtype == "float64"
    with pytest.raises(TypeError, match="requires an integer"):
        minigrad.iinfo(minigrad.complex64)
