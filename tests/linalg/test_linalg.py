"""`linalg`, `fft` and complex tensors beyond the table of samples: NumPy's results, and errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.fft

import minigrad
from minigrad import fft, linalg

pytestmark = pytest.mark.usefixtures("reference_backend")


@pytest.fixture
def a(rng):
    return rng.standard_normal((2, 4, 4))


def test_decompositions_multiply_to_the_matrix(a):
    x = minigrad.from_numpy(a)
    p, lower, upper = linalg.lu(x)
    np.testing.assert_allclose(p @ lower @ upper, a, atol=1e-12)
    packed, pivots = linalg.lu_factor(x)
    b = minigrad.from_numpy(a[..., :2])
    np.testing.assert_allclose(
        linalg.lu_solve(packed, pivots, b), np.linalg.solve(a, a[..., :2]), atol=1e-12
    )
    for rows, columns in ((4, 2), (2, 4)):
        part = x[:, :rows, :columns]
        p, lower, upper = linalg.lu(part)
        np.testing.assert_allclose(p @ lower @ upper, part, atol=1e-12)
        for mode in ("reduced", "complete"):
            q, r = linalg.qr(part, mode)
            np.testing.assert_allclose(q @ r, part, atol=1e-12)
            np.testing.assert_allclose(q.mT @ q, np.broadcast_to(np.eye(q.shape[-1]),
                                                                 (2, *[q.shape[-1]] * 2)),
                                       atol=1e-12)  # fmt: skip
        u, s, vh = linalg.svd(part)
        k = s.shape[-1]
        np.testing.assert_allclose((u[..., :k] * s[:, None]) @ vh[:, :k], part, atol=1e-12)
        assert u.shape[-1] == rows and vh.shape[-1] == columns
    values, vectors = linalg.eigh(x + x.mT)
    np.testing.assert_allclose((vectors * values[:, None]) @ vectors.mT, a + a.swapaxes(1, 2),
                               atol=1e-12)  # fmt: skip
    values, vectors = linalg.eig(x)
    wide = x.to(minigrad.complex128)
    np.testing.assert_allclose(wide @ vectors, vectors * values[:, None], atol=1e-12)


def test_numbers_of_matrices(a):
    x = minigrad.from_numpy(a)
    low = a.copy()
    low[..., 3] = low[..., 0]
    assert linalg.matrix_rank(minigrad.from_numpy(low)).tolist() == [3, 3]
    for ord in (None, 2, -2, 1, np.inf, "fro", "nuc"):
        np.testing.assert_allclose(linalg.cond(x, ord), np.linalg.cond(a, ord))
    for ord in (1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"):
        expected = np.linalg.norm(a[0], ord)
        np.testing.assert_allclose(linalg.norm(x[0], ord), expected)
        np.testing.assert_allclose(linalg.matrix_norm(x, ord, keepdim=True)[0, 0, 0], expected)
    for ord in (0, 1, 3, 0.5, -2, np.inf, -np.inf):
        np.testing.assert_allclose(linalg.vector_norm(x, ord), np.linalg.norm(a.ravel(), ord))
    np.testing.assert_allclose(x.logdet().exp(), np.where(np.linalg.det(a) < 0, np.nan,
                                                           np.linalg.det(a)))  # fmt: skip
    np.testing.assert_allclose(linalg.vander(x[0, 0]), np.vander(a[0, 0], increasing=True))
    cube = a[0].reshape(4, 2, 2)
    tensor = minigrad.from_numpy(cube)
    np.testing.assert_allclose(linalg.tensorinv(tensor, 1), np.linalg.tensorinv(cube, 1))
    np.testing.assert_allclose(
        linalg.tensorsolve(tensor, x[0, 0]), np.linalg.tensorsolve(cube, a[0, 0])
    )


def test_a_singular_matrix(a):
    singular = a[0].copy()
    singular[3] = singular[0]
    x = minigrad.tensor(singular, requires_grad=True)
    with pytest.raises(linalg.LinAlgError, match=r"linalg.inv: The diagonal element 1 is zero"):
        linalg.inv(minigrad.zeros(2, 2))
    with pytest.raises(RuntimeError, match="linalg.cholesky"):
        linalg.cholesky(minigrad.tensor([[1.0, 2], [2, 1]]))
    assert linalg.LinAlgError.__name__ == "_LinAlgError"  # as torch's is called
    copied = pickle.loads(pickle.dumps(linalg.LinAlgError("why")))
    assert isinstance(copied, linalg.LinAlgError) and str(copied) == "why"
    with pytest.raises(linalg.LinAlgError, match="NaN"):
        linalg.cholesky(minigrad.full((2, 2), np.nan))
    inverse, info = linalg.inv_ex(minigrad.zeros(2, 2))
    assert inverse.isnan().all() and info.item() == 1
    minigrad.det(x).backward()  # the cofactors, which exist
    step = 1e-6
    for i, j in ((0, 0), (1, 2), (3, 3)):
        moved = [singular.copy(), singular.copy()]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        slope = (np.linalg.det(moved[0]) - np.linalg.det(moved[1])) / (2 * step)
        assert x.grad[i, j].item() == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("upper", [False, True])
def test_of_a_cholesky_factor_one_triangle_is_read(upper, rng):
    factor, b = rng.random((2, 4, 4)) + 1, rng.random((2, 4, 3))
    lower = np.triu(factor).swapaxes(1, 2) if upper else np.tril(factor)
    a = lower @ lower.swapaxes(1, 2)
    x = minigrad.cholesky_solve(minigrad.tensor(b), minigrad.tensor(factor), upper=upper)
    np.testing.assert_allclose(a @ x.numpy(), b, rtol=1e-8)
    inverse = minigrad.cholesky_inverse(minigrad.tensor(factor), upper=upper)
    np.testing.assert_allclose(a @ inverse.numpy(), np.eye(4) + np.zeros((2, 1, 1)), atol=1e-7)
    with pytest.raises(RuntimeError, match="Expected b and A to have the same dtype"):
        minigrad.cholesky_solve(minigrad.tensor(b).float(), minigrad.tensor(factor))


def test_a_solution_from_a_cholesky_factor_does_not_square_its_condition():
    """In float32, of a covariance of a Gaussian process, whose condition is about 1e5."""
    t = np.linspace(0, 1, 60)
    a = np.exp(-((t[:, None] - t) ** 2) / 0.02) + 1e-4 * np.eye(60)
    factor = minigrad.tensor(np.linalg.cholesky(a)).float()
    b = np.sin(np.arange(1, 41) * t[:, None])
    x = minigrad.cholesky_solve(minigrad.tensor(b).float(), factor).numpy()
    lower = factor.numpy()
    of_product = np.linalg.solve(lower @ lower.T, b.astype(np.float32))
    assert np.linalg.norm(a @ x - b) < 0.8 * np.linalg.norm(a @ of_product - b)


@pytest.mark.parametrize("shape, many", [((71, 71), 3), ((3, 2, 33, 33), 2), ((70, 5, 5), 1)])
@pytest.mark.parametrize("upper, left", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solutions_as_torch(torch, shape, many, upper, left, unit, rng):
    matrices = rng.standard_normal(shape) + shape[-1] * np.eye(shape[-1])
    b = rng.standard_normal((*shape[:-1], many) if left else (*shape[:-2], many, shape[-1]))
    found = []
    for lib in (minigrad, torch):
        given = [lib.tensor(x, requires_grad=True) for x in (matrices, b)]
        if unit:
            given[0] = given[0] / shape[-1]
        x = lib.linalg.solve_triangular(*given, upper=upper, left=left, unitriangular=unit)
        found.append([t.detach().numpy() for t in (x, *lib.autograd.grad(x.cos().sum(), given))])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("lead", [(), (2,), (60,), (0,)])
@pytest.mark.parametrize("kind", ["f", "d", "D"])
def test_triangular_solutions_from_one_triangle(lead, kind, rng):
    matrices = (rng.standard_normal((*lead, 4, 4)) + 3 * np.eye(4)).astype(kind)
    b = rng.standard_normal((*lead, 4, 2)).astype(kind)
    for upper, unit in ((True, False), (False, False), (False, True)):
        triangle = np.triu(matrices) if upper else np.tril(matrices)
        if unit:
            triangle[..., range(4), range(4)] = 1
        given = minigrad.tensor(matrices), minigrad.tensor(b)
        x = linalg.solve_triangular(*given, upper=upper, unitriangular=unit).numpy()
        tolerance = 100 * np.finfo(kind).eps
        np.testing.assert_allclose(triangle @ x, b, rtol=tolerance, atol=tolerance)
        assert x.dtype == b.dtype and x.flags.c_contiguous


def test_triangular_solutions_take_nothing_from_the_other_half(torch, rng):
    """Those of a singular matrix are infinite or no numbers, as in torch, and raise nothing."""
    matrices = rng.standard_normal((2, 40, 40)) + 40 * np.eye(40)
    b = rng.standard_normal((2, 40, 3))
    matrices[0, 35, 35] = 0
    for upper in (True, False):
        ours, theirs = (
            lib.linalg.solve_triangular(lib.tensor(matrices), lib.tensor(b), upper=upper).numpy()
            for lib in (minigrad, torch)
        )
        np.testing.assert_array_equal(np.isfinite(ours[0]), np.isfinite(theirs[0]))
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-9, atol=1e-12)
    for left in (True, False):
        with pytest.raises(RuntimeError, match="solve_triangular: Incompatible shapes of A and B"):
            linalg.solve_triangular(minigrad.ones(3, 3), minigrad.ones(4, 2), upper=True, left=left)


def test_some_singular_matrices_of_many(torch):
    found = []
    for m in (minigrad, torch):
        good, wrong, none = [[2.0, 1], [1, 2]], [[1.0, 2], [2, 1]], [[1.0, 1], [1, 1]]
        x = m.tensor([[good, wrong, good], [wrong, good, none]], requires_grad=True)
        lower, failed = m.linalg.cholesky_ex(x)
        inverse, singular = m.linalg.inv_ex(x)
        assert failed.dtype == singular.dtype == m.int32
        parts = [lower[0, 0], lower[0, 2], inverse[0, 1], inverse[1, 1]]
        (grad,) = m.autograd.grad(sum(p.sum() for p in parts), x)
        assert m.linalg.cholesky_ex(m.full((2, 2), np.nan)).info != 0
        for function in (m.linalg.cholesky_ex, m.linalg.inv_ex):
            with pytest.raises(RuntimeError):
                function(x, check_errors=True)
        positive = m.distributions.constraints.positive_definite.check(x)
        found.append(
            ((failed != 0).tolist(), (singular != 0).tolist(), positive.tolist(), parts, grad)
        )
    (*mine, parts, grad), (*theirs, their_parts, their_grad) = found
    assert mine == theirs
    for a, b in zip(
        [*parts, grad[0, 0], grad[0, 1]], [*their_parts, their_grad[0, 0], their_grad[0, 1]]
    ):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms(rng, norm):
    x, z = rng.standard_normal((3, 6)), rng.standard_normal((3, 4)) + 1j
    real, wide = minigrad.from_numpy(x), minigrad.from_numpy(z)
    for name in ("fft", "ifft", "rfft", "ihfft", "fft2", "ifft2", "rfft2", "fftn", "rfftn"):
        np.testing.assert_allclose(
            getattr(fft, name)(real, norm=norm), getattr(scipy.fft, name)(x, norm=norm), atol=1e-12
        )
    for name in ("irfft", "hfft", "irfft2", "irfftn", "ifftn", "fft"):
        np.testing.assert_allclose(
            getattr(fft, name)(wide, norm=norm), getattr(scipy.fft, name)(z, norm=norm), atol=1e-12
        )
    assert fft.fft(minigrad.rand(4)).dtype is minigrad.complex64
    for n in (5, 6):
        np.testing.assert_allclose(fft.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(fft.rfftfreq(n, 0.5), np.fft.rfftfreq(n, 0.5), rtol=1e-6)
    assert fft.ifftshift(fft.fftshift(real)).equal(real)


def test_complex_tensors(rng):
    z = minigrad.tensor([1 + 2j, 3.5 - 1j])
    assert z.dtype is minigrad.complex64 and z.is_complex() and not z.is_floating_point()
    assert repr(z) == "tensor([1.0000+2.j, 3.5000-1.j])"
    assert z[0].item() == 1 + 2j and z.tolist() == [1 + 2j, 3.5 - 1j]
    z.real.mul_(2)
    assert z.tolist() == [2 + 2j, 7 - 1j], "parts are views"
    minigrad.view_as_real(z)[:, 1] = 0
    assert z.imag.tolist() == [0, 0]
    assert (minigrad.ones(2) * 1j).dtype is minigrad.complex64
    assert (minigrad.ones(2, dtype=minigrad.float64) + z).dtype is minigrad.complex128
    assert z.cdouble().abs().dtype is minigrad.float64
    normal = minigrad.randn(20_000, dtype=minigrad.cfloat)
    assert abs((normal.abs() ** 2).mean().item() - 1) < 0.05
    with pytest.raises(RuntimeError, match="only for real scalar outputs"):
        z.clone().requires_grad_().sum().backward()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: linalg.inv(minigrad.ones(2, 3)), RuntimeError, "batches of square matrices"),
        (lambda: linalg.det(minigrad.ones(3)), RuntimeError, "at least 2 dimensions"),
        (lambda: linalg.inv(minigrad.eye(2).long()), RuntimeError, "point or complex tensor"),
        (lambda: linalg.solve(minigrad.eye(2), minigrad.ones(3)), RuntimeError, "Incompatible"),
        (lambda: linalg.qr(minigrad.eye(2), "full"), RuntimeError, "unrecognized mode 'full'"),
        (lambda: fft.fft(minigrad.ones(3), norm="none"), RuntimeError, "Invalid normalization"),
        (lambda: fft.rfft(minigrad.ones(3) * 1j), RuntimeError, "real input"),
        (lambda: fft.fft(minigrad.ones(3), 0), RuntimeError, "number of data points"),
        (lambda: minigrad.tensor([1j]) < 2, NotImplementedError, "lt.*ComplexFloat"),
        (lambda: minigrad.view_as_real(minigrad.ones(2)), RuntimeError, "complex tensors"),
        (lambda: minigrad.imag(minigrad.ones(2)), RuntimeError, "non-complex"),
        (lambda: minigrad.special.ndtr("x"), TypeError, "expected a minigrad.Tensor"),
        (lambda: minigrad.linalg.inve, AttributeError, "did you mean"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_complete_qr_of_a_tall_matrix_has_no_gradient():
    tall = minigrad.rand(4, 2, requires_grad=True)
    q, r = linalg.qr(tall, "complete")
    assert q.shape == (4, 4)
    np.testing.assert_allclose((q @ r).detach(), tall.detach(), atol=1e-6)
    with pytest.raises(RuntimeError, match="use mode='reduced'"):
        q.sum().backward()


@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (2, 4)])
def test_r_alone_has_its_gradient(rng, shape):
    a = minigrad.tensor(rng.standard_normal(shape), requires_grad=True)
    grads = [minigrad.autograd.grad(linalg.qr(a, m).R.sin().sum(), a)[0] for m in ("r", "reduced")]
    np.testing.assert_array_equal(*grads)
    np.testing.assert_allclose(linalg.qr(a.detach(), "r").R, linalg.qr(a, "r").R.detach())


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_second_derivatives_of_lu(rng, shape):
    a = minigrad.tensor(rng.standard_normal(shape), requires_grad=True)
    for function in (lambda a: linalg.lu(a)[1:], lambda a: linalg.lu_factor(a).LU):
        assert minigrad.autograd.gradgradcheck(function, a)


def test_gradients_of_eigenvectors_are_symmetric(rng):
    a = minigrad.tensor(rng.standard_normal((2, 4, 4)), requires_grad=True)
    (linalg.eigh(a).eigenvectors[..., 0].square() * minigrad.arange(4.0)).sum().backward()
    np.testing.assert_allclose(a.grad, a.grad.mT, atol=1e-12)


def test_rank_of_a_symmetric_matrix_by_its_lower_triangle():
    a = minigrad.tensor([[1.0, 9.0], [1.0, 1.0]])
    assert linalg.matrix_rank(a) == 2 and linalg.matrix_rank(a, hermitian=True) == 1


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)])
def test_ldl_of_nothing(shape):
    packed, pivots, info = linalg.ldl_factor_ex(minigrad.zeros(shape))
    assert (packed.shape, pivots.shape, info.shape) == (shape, shape[:-1], shape[:-2])


def test_short_time_transforms_have_an_inverse(rng):
    signal = minigrad.from_numpy(rng.standard_normal((2, 64)))
    window = minigrad.hann_window(16, dtype=minigrad.float64)
    np.testing.assert_allclose(window, np.hanning(17)[:16], atol=1e-12)
    spectrum = minigrad.stft(signal, 16, 4, window=window, return_complex=True)
    assert spectrum.shape == (2, 9, 17) and spectrum.dtype is minigrad.complex128
    expected = np.fft.rfft(signal.numpy()[0, 8:24] * window.numpy())
    np.testing.assert_allclose(spectrum[0, :, 4], expected, atol=1e-12)
    back = minigrad.istft(spectrum, 16, 4, window=window, length=64)
    np.testing.assert_allclose(back, signal, atol=1e-12)


@pytest.mark.parametrize("onesided", [None, False])
def test_short_time_transforms_of_complex_signals_have_an_inverse(rng, onesided):
    signal = minigrad.tensor(rng.standard_normal((2, 40)) + 1j * rng.standard_normal((2, 40)))
    spectrum = minigrad.stft(signal, 8, 2, return_complex=True, onesided=onesided)
    assert spectrum.shape == (2, 8, 21)
    back = minigrad.istft(spectrum, 8, 2, onesided=onesided, return_complex=True)
    np.testing.assert_allclose(back, signal, atol=1e-12)
    real = minigrad.stft(signal.real, 8, 2, return_complex=True, onesided=False)
    np.testing.assert_allclose(minigrad.istft(real, 8, 2), signal.real, atol=1e-12)
    for wrong in ({"onesided": True}, {"n_fft": 10}):
        with pytest.raises(RuntimeError, match="istft: expected . frequencies"):
            minigrad.istft(spectrum, **{"n_fft": 8, "hop_length": 2, **wrong})
    with pytest.raises(RuntimeError, match="return_complex=True expects onesided=False"):
        minigrad.istft(spectrum[:, :5], 8, 2, return_complex=True)


@pytest.mark.parametrize("shape", [(9, 5), (5, 9), (2, 7, 6)])
def test_decompositions_of_low_rank(rng, shape, torch):
    """Of a matrix whose rank is below q: exact, and the same singular values as torch's."""
    left, right = rng.normal(size=(*shape[:-1], 3)), rng.normal(size=(3, shape[-1]))
    data, mean = left @ right, rng.normal(size=shape[-1])
    a = minigrad.tensor(data, requires_grad=True)
    for kwargs in ({}, {"M": mean}, {"q": 5, "niter": 0}, {"q": None, "niter": None}):
        shift = kwargs.get("M", 0.0)
        given = {k: v if k != "M" else minigrad.tensor(v).expand(shape) for k, v in kwargs.items()}
        theirs = {k: v if k != "M" else torch.tensor(v).expand(shape) for k, v in kwargs.items()}
        if "q" not in kwargs or kwargs["q"] is None:
            given["q"] = theirs["q"] = 5
        u, s, v = (x.detach() for x in minigrad.svd_lowrank(a, **given))
        np.testing.assert_allclose((u * s[..., None, :]) @ v.mT, data - shift, atol=1e-9)
        np.testing.assert_allclose(s, torch.svd_lowrank(torch.tensor(data), **theirs)[1], atol=1e-9)
        np.testing.assert_allclose(u.mT @ u, np.broadcast_to(np.eye(5), (*shape[:-2], 5, 5)),
                                   atol=1e-9)  # fmt: skip
    for q in (None, 3):
        s = minigrad.pca_lowrank(a, q)[1].detach()
        wanted = np.linalg.svd(data - data.mean(-2, keepdims=True))[1][..., : s.shape[-1]]
        np.testing.assert_allclose(s, wanted, atol=1e-9)
    (grad,) = minigrad.autograd.grad(minigrad.pca_lowrank(a, 3, center=False)[1].sum(), a)
    x = torch.tensor(data, requires_grad=True)
    torch.linalg.svdvals(x)[..., :3].sum().backward()
    np.testing.assert_allclose(grad, x.grad, atol=1e-8)


def test_principal_components_of_sparse_matrices(rng):
    data = rng.normal(size=(8, 5)) * (rng.random((8, 5)) < 0.5)
    sparse = minigrad.tensor(data).to_sparse()
    _, s, v = minigrad.pca_lowrank(sparse, 4, niter=20)
    centred = data - data.mean(0)
    np.testing.assert_allclose(s, np.linalg.svd(centred)[1][:4], rtol=1e-6)
    np.testing.assert_allclose((v.mT @ centred.T @ centred @ v).diagonal(), s**2, rtol=1e-6)
    _, s, _ = minigrad.svd_lowrank(sparse.t(), 4, niter=20)
    np.testing.assert_allclose(s, np.linalg.svd(data)[1][:4], rtol=1e-6)


@pytest.mark.parametrize(
    "program",
    [lambda m: m.pca_lowrank(m.ones(3, 4), 5), lambda m: m.pca_lowrank(m.ones(3, 4), niter=-1)],
)
def test_errors_of_low_rank_as_torch(program, same_error):
    same_error(program)


def test_factors_as_torch(torch):
    """Names around LU, LDL and Householder factors, each with torch and with minigrad."""
    same(
        torch,
        """
        m.lu_unpack(*m.linalg.lu_factor(a))
        m.lu_unpack(*m.linalg.lu_factor(a[:, :2]))
        m.lu_unpack(*m.linalg.lu_factor(a[:, :, :2]))
        m.lu_unpack(*m.linalg.lu_factor(a), unpack_pivots=False)
        m.lu_unpack(*m.linalg.lu_factor(a), unpack_data=False)
        m.lu_unpack(a, m.ones(2, 4))
        m.lu_solve(b, *m.linalg.lu_factor(a))
        m.linalg.lu_factor_ex(a)
        m.linalg.lu_factor_ex(z)
        m.linalg.lu_factor_ex(z, check_errors=True)
        m.linalg.lu_factor_ex(a[0, :, :0])[2]
        m.linalg.lu_factor(z)
        m.linalg.solve_ex(a, b)
        m.linalg.solve_ex(a, b.mT, left=False)
        m.linalg.solve_ex(z, b)[1]
        m.linalg.solve_ex(z, b)[0][0]
        m.linalg.solve_ex(z, b, check_errors=True)
        m.linalg.ldl_factor(c)
        m.linalg.ldl_factor_ex(c)
        m.linalg.ldl_factor(c.float())[0].dtype
        m.linalg.ldl_factor_ex(z * 0)[2]
        m.linalg.ldl_factor(z * 0)
        m.linalg.ldl_factor(a[:, :2])
        m.linalg.ldl_solve(*m.linalg.ldl_factor(c), b)
        m.linalg.ldl_solve(*m.linalg.ldl_factor(c[0]), b)
        m.linalg.ldl_solve(*m.linalg.ldl_factor(c), b[:, :3])
        m.ormqr(*m.geqrf(a), b)
        m.ormqr(*m.geqrf(a[:, :, :2]), b)
        m.ormqr(*m.geqrf(a[:, :, :2]), b, True, True)
        m.ormqr(*m.geqrf(a), b.mT, left=False, transpose=True)
        m.ormqr(*m.geqrf(a), b[:, :3])
        m.fft.hfftn(h)
        m.fft.hfftn(h, (3, 5))
        m.fft.hfftn(h, norm="ortho", dim=(0, 2))
        m.fft.hfft2(h, norm="forward")
        m.fft.ihfftn(a)
        m.fft.ihfftn(a, (3, 5), norm="ortho")
        m.fft.ihfft2(a, norm="forward")
        m.fft.ihfft2(h)
        m.fft.hfftn(h, ())
        grad(lambda a: m.lu_unpack(*m.linalg.lu_factor(a)).L.sin() @ b)
        grad(lambda a: m.lu_solve(b, *m.linalg.lu_factor(a)) ** 2)
        grad(lambda a: m.linalg.solve_ex(a, b).result ** 2)
        grad(lambda a: m.ormqr(a[:, :, :2].contiguous(), a[:, 0, :2], b) ** 2)
        grad(lambda a: m.fft.ihfft2(a).abs() ** 2)
        grad(lambda a: m.fft.hfftn(m.complex(a, a * a)) ** 2)
        """,
    )


def same(torch, lines):
    """Each line with torch and with minigrad: `a` (2, 4, 4), `b` (2, 4, 2), `c` symmetric, `z` with
    a singular matrix, `h` complex, of float64; grad(f) is the gradient of f(a).sum()."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 4, 2))
    z = a.copy()
    z[1, 2:] = z[1, :2] = 0
    z[1, 0, 0] = 1
    data = {"a": a, "b": b, "c": a + a.swapaxes(1, 2), "z": z, "h": a + 1j * a[:, ::-1]}

    def outcome(m, line):
        names = {name: m.tensor(value) for name, value in data.items()}

        def grad(f):
            x = m.tensor(a, requires_grad=True)
            return m.autograd.grad(f(x).sum(), x)

        try:
            found = eval(line, {"m": m, "grad": grad, **names})
        except Exception as error:
            return type(error).__name__.strip("_")
        if not hasattr(found, "dtype") and not isinstance(found, tuple):
            return str(found).rpartition(".")[2]
        parts = found if isinstance(found, tuple) else (found,)
        kind = [str(part.dtype).rpartition(".")[2] for part in parts]
        return [*kind, *[part.detach().numpy() for part in parts]]

    for line in filter(None, map(str.strip, lines.splitlines())):
        ours, theirs = outcome(minigrad, line), outcome(torch, line)
        if isinstance(theirs, str) or isinstance(ours, str):
            assert ours == theirs, line
            continue
        count = len(theirs) // 2
        assert ours[:count] == theirs[:count], line
        for x, y in zip(ours[count:], theirs[count:], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=line)


# What LAPACK finds: m is torch or minigrad.
FAILURES = """
    m.linalg.inv(m.zeros(2, 2, 2))
    m.linalg.inv(m.tensor([[[1.0, 2], [3, 4]], [[1, 2], [2, 4]]]))
    m.inverse(m.zeros(1, 1))
    m.linalg.cholesky(m.stack([m.eye(3), m.diag(m.tensor([1.0, 1, -1]))]))
    m.linalg.cholesky(-m.eye(2))
    m.linalg.solve(m.zeros(2, 2), m.ones(2))
    m.linalg.matrix_power(m.ones(2, 3).half(), 2)
    m.linalg.matrix_power(m.ones(3).bfloat16(), 2)
"""


@pytest.mark.parametrize("line", FAILURES.strip().splitlines())
def test_failures_as_torch(line, torch):
    texts = []
    for m in (minigrad, torch):
        with pytest.raises(RuntimeError) as caught:
            eval(line.strip(), {"m": m})
        singular = isinstance(caught.value, m.linalg.LinAlgError)
        texts.append((singular, str(caught.value).removeprefix("torch.")))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("n", range(6))
def test_powers_in_16_bits(n, torch):
    values = [[1.1, 0.3], [0.2, 0.9]]
    for name in ("float16", "bfloat16"):
        mine, theirs = (
            m.linalg.matrix_power(m.tensor(values, dtype=getattr(m, name)), n).float().numpy()
            for m in (minigrad, torch)
        )
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("matrix", "values"),
    [
        (np.diag([1.0, 1, 2]), lambda t, x: t.linalg.eigh(x).eigenvalues),
        (np.diag([1.0, 1, 2]), lambda t, x: t.linalg.eig(x)[0].real),
        (np.diag([1.0, 1, 2]), lambda t, x: t.linalg.svd(x).S),
        (np.eye(4)[:, :2], lambda t, x: t.svd(x, some=False)[1]),
        (np.eye(3) + 0j, lambda t, x: t.linalg.svd(x)[1]),
    ],
)
def test_equal_values_have_a_gradient_where_vectors_have_none(torch, matrix, values):
    grads = []
    for module in (minigrad, torch):
        x = module.tensor(matrix, requires_grad=True)
        found = values(module, x)
        (found * module.arange(1.0, len(found) + 1)).sum().backward()
        grads.append(np.asarray(x.grad.detach()))
    np.testing.assert_allclose(*grads, atol=1e-12)


@pytest.mark.parametrize("parts", [(0,), (2,), (0, 1), (1, 2), (0, 2)])
def test_gradients_of_some_parts_of_an_svd(torch, rng, parts):
    data, grads = rng.standard_normal((2, 4, 3)), []
    for module in (minigrad, torch):
        x = module.tensor(data, requires_grad=True)
        found = module.linalg.svd(x, full_matrices=False)
        sum((abs(found[i]) * module.arange(1.0, 4.0)).sum() for i in parts).backward()
        grads.append(np.asarray(x.grad))
    np.testing.assert_allclose(*grads, atol=1e-10)


@pytest.mark.parametrize("n", (1, 2, 7, 8, 12))
@pytest.mark.parametrize("norm", ("backward", "ortho"))
def test_gradients_of_real_transforms(n, norm, rng, torch):
    given, weights = rng.standard_normal((7, 3)), rng.standard_normal((n, 3))
    found = []
    for m in (minigrad, torch):
        x = m.from_numpy(given.copy()).requires_grad_()
        half = m.fft.rfft(x, n, 0, norm)
        y = m.fft.irfft(half * half, n, 0, norm) * m.from_numpy(weights.copy())
        (first,) = m.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = m.autograd.grad((first**2).sum(), x)
        found.append([t.detach().numpy() for t in (half.abs(), y, first, second)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_factors_of_many_matrices_one_of_which_is_not_finite(rng, torch):
    a = rng.standard_normal((5, 4, 4))
    a[2, 0, 0] = np.nan
    ours, theirs = (m.linalg.lu_factor_ex(m.from_numpy(a.copy())) for m in (minigrad, torch))
    np.testing.assert_allclose(ours.LU[[0, 1, 3, 4]], theirs.LU[[0, 1, 3, 4]], atol=1e-12)
    np.testing.assert_array_equal(ours.pivots[[0, 1, 3, 4]], theirs.pivots[[0, 1, 3, 4]])
    p, lower, upper = minigrad.linalg.lu(minigrad.from_numpy(a[3:]))
    np.testing.assert_allclose(p @ lower @ upper, a[3:], atol=1e-12)


@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (2, 6, 6), (2, 0, 3, 2)])
def test_least_squares_need_no_pseudoinverse_where_nothing_is_recorded(shape, rng, monkeypatch):
    a, b = rng.standard_normal(shape), rng.standard_normal((*shape[:-1], 3))
    a[..., 1] = 2 * a[..., 0]  # of least norm among several
    given = minigrad.tensor(a, requires_grad=True)
    recorded = minigrad.linalg.lstsq(given, minigrad.tensor(b))
    if a.size:
        monkeypatch.delattr(minigrad.linalg, "pinv")
    found = minigrad.linalg.lstsq(given.detach(), minigrad.tensor(b))
    wanted = np.linalg.pinv(a, rcond=1e-10) @ b
    np.testing.assert_allclose(found.solution.numpy(), wanted, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(recorded.solution.detach().numpy(), wanted, rtol=1e-9, atol=1e-11)
    assert found.rank.tolist() == recorded.rank.tolist()
    assert found.rank.dtype == recorded.rank.dtype == minigrad.int64
    np.testing.assert_array_equal(given.detach().numpy(), a)
