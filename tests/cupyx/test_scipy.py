"""kernels.cupyx.scipy: SciPy's values on device arrays, sparse matrices and their solvers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.fft
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.sparse
import scipy.sparse.linalg
import scipy.spatial
import scipy.special
import scipy.stats

import kernels.cupy as cp
import kernels.cupyx.scipy as cupyx_scipy
from kernels.cupy._index import entries
from kernels.cupyx.scipy import sparse

# Expressions of `sp` (scipy or cupyx.scipy) and arrays: image (20, 24), x (200,), m (5, 5).
EXPRESSIONS = """
sp.ndimage.gaussian_filter(image, 1.5)
sp.ndimage.uniform_filter(image, 3, mode="wrap")
sp.ndimage.convolve(image, image[:3, :3])
sp.ndimage.sobel(image, axis=0)
sp.ndimage.median_filter(image, size=3)
sp.ndimage.zoom(image, 1.5, order=1)
sp.ndimage.rotate(image, 30, reshape=False)
sp.ndimage.map_coordinates(image, image[:2] * 10)
sp.ndimage.label(image > 0.5)[0]
sp.ndimage.binary_dilation(image > 0.9)
sp.ndimage.distance_transform_edt(image > 0.1)
sp.ndimage.sum_labels(image, sp.ndimage.label(image > 0.5)[0])
sp.signal.fftconvolve(image, image[:3, :3], mode="same")
sp.signal.convolve2d(image, image[:3, :3])
sp.signal.lfilter(*sp.signal.butter(3, 0.2), x)
sp.signal.filtfilt(*sp.signal.butter(2, 0.3), x)
sp.signal.sosfilt(sp.signal.butter(4, 0.3, output="sos"), x)
sp.signal.welch(x, nperseg=64)[1]
sp.signal.find_peaks(x, height=0.5)[0]
sp.signal.resample(x, 50)
sp.signal.hilbert(x)
sp.signal.windows.hann(9)
sp.signal.savgol_filter(x, 7, 2)
sp.signal.detrend(x)
sp.fft.fft(x)
sp.fft.dct(x, norm="ortho")
sp.fft.rfft2(image)
sp.fft.next_fast_len(1021)
sp.linalg.lu(m)[2]
sp.linalg.expm(m / 10)
sp.linalg.solve_triangular(m, m[0], lower=True)
sp.linalg.lu_solve(sp.linalg.lu_factor(m), m[0])
sp.linalg.toeplitz(m[0])
sp.linalg.block_diag(m, m)
sp.special.gamma(x + 1)
sp.special.erf(x)
sp.special.expit(x)
sp.special.logsumexp(image, axis=0)
sp.special.softmax(image, axis=1)
sp.special.j0(x)
sp.special.betainc(2.0, 3.0, x)
sp.special.zeta(x + 2, 1.0)
sp.stats.entropy(x)
sp.stats.zscore(x)
sp.stats.trim_mean(x, 0.1)
sp.interpolate.interp1d(grid, x[:50])(x[:9])
sp.interpolate.CubicSpline(grid, x[:50])(x[:9])
sp.interpolate.PchipInterpolator(grid, x[:50]).derivative()(x[:9])
sp.interpolate.RegularGridInterpolator((grid[:20], grid[:24]), image)(image[:5, :2] / 5)
sp.spatial.distance.cdist(image, image[:3])
sp.spatial.distance_matrix(image, image[:3])
sp.spatial.KDTree(image).query(image[:3], k=2)[0]
""".strip().splitlines()


@pytest.mark.filterwarnings("error:.*distance_matrix:DeprecationWarning")
@pytest.mark.parametrize("line", EXPRESSIONS)
def test_expressions_are_scipys(line, rng):
    host = {
        "image": rng.random((20, 24)),
        "x": rng.random(200),
        "m": rng.random((5, 5)) + 3 * np.eye(5),
        "grid": np.linspace(0, 1, 50),
    }
    device = {name: cp.asarray(value) for name, value in host.items()}
    with warnings.catch_warnings():  # SciPy 1.18's distance_matrix
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = eval(line, {"sp": scipy, **host})
    computed = eval(line, {"sp": cupyx_scipy, **device})
    if isinstance(expected, int):
        assert computed == expected
        return
    assert isinstance(computed, cp.ndarray)
    assert computed.dtype == expected.dtype
    np.testing.assert_allclose(computed.get(), expected, rtol=1e-12, atol=1e-12)


SPECIAL = entries("cupyx.scipy.special")


@pytest.mark.parametrize("name", [n for n, e in SPECIAL.items() if e.kind == "ufunc"])
def test_special_functions_have_cupys_types(name, rng):
    function, theirs = getattr(cupyx_scipy.special, name), getattr(scipy.special, name)
    for line in SPECIAL[name].text.split():
        ins, outs = line.split("->")
        if set(ins) - set("fd"):
            continue
        host = [(rng.random(5) * 0.8 + 0.1).astype(char) for char in ins]
        found = function(*map(cp.asarray, host))
        found = found if isinstance(found, tuple) else (found,)
        assert [f.dtype for f in found] == [np.dtype(char) for char in outs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = theirs(*host)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for mine, want in zip(found, expected):
            np.testing.assert_allclose(mine.get(), want, rtol=1e-5)


def poisson(n: int) -> scipy.sparse.csr_matrix:
    line = scipy.sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(n, n))
    return scipy.sparse.kronsum(line, line, format="csr")


def test_sparse_matrices(rng):
    host = poisson(7)
    a = sparse.csr_matrix(host)
    x = rng.random(49)
    for product in (a @ cp.asarray(x), a * cp.asarray(x), a.dot(cp.asarray(x))):
        np.testing.assert_allclose(product.get(), host @ x)
    np.testing.assert_allclose((cp.asarray(x) @ a).get(), x @ host)
    assert isinstance(a, sparse.spmatrix) and sparse.isspmatrix_csr(a) and a.nnz == host.nnz
    assert isinstance(a.data, cp.ndarray) and isinstance(a.get(), scipy.sparse.csr_matrix)
    a.data[:] = 2 * a.data
    for other in (a.tocoo(), a.tocsc(), a.T, a + a.T - a.tocsr(), a.tocsr()):
        assert isinstance(other, sparse.spmatrix)
        np.testing.assert_allclose(other.toarray().get(), 2 * host.toarray())
    np.testing.assert_allclose(a.sum(axis=1).get(), 2 * host.sum(axis=1))
    np.testing.assert_allclose(a[3].toarray().get(), 2 * host[3].toarray())
    rows, values = cp.asarray([0, 1, 1]), cp.asarray([1.0, 2.0, 3.0])
    made = sparse.coo_matrix((values, (rows, rows)), shape=(3, 3)).tocsr()
    assert made[1, 1] == 5 and sparse.eye(3).nnz == 3
    assert cp.get_array_module(a) is cp
    with pytest.raises(ValueError, match="Only bool, float32"):
        sparse.csr_matrix(cp.eye(3, dtype=int))
    with pytest.raises(TypeError, match="cupy"):
        sparse.csr_matrix(np.eye(3))
    with pytest.raises(NotImplementedError):
        a.tolil()


@pytest.mark.parametrize("solver", ["cg", "gmres", "minres", "cgs", "spsolve"])
def test_sparse_solvers(solver, rng):
    host = poisson(6)
    b = rng.random(36)
    a = sparse.csr_matrix(host)
    found = getattr(sparse.linalg, solver)(a, cp.asarray(b))
    x, info = (found, 0) if isinstance(found, cp.ndarray) else found
    assert info == 0 and type(info) is int
    np.testing.assert_allclose((a @ x).get(), b, atol=1e-3)


def test_linear_operators_and_decompositions(rng):
    host = poisson(6)
    a = sparse.csc_matrix(host)
    b = cp.asarray(rng.random(36))
    seen = []
    operator = sparse.linalg.LinearOperator(a.shape, matvec=lambda v: a @ v, dtype=a.dtype)
    x, info = sparse.linalg.cg(operator, b, callback=lambda v: seen.append(type(v)))
    assert info == 0 and set(seen) == {cp.ndarray}
    assert cp.allclose(sparse.linalg.splu(a).solve(b), x, atol=1e-3)
    largest = sparse.linalg.eigsh(a, k=2, return_eigenvectors=False)
    np.testing.assert_allclose(largest.get().max(), np.linalg.eigvalsh(host.toarray()).max())


def test_what_scipy_has_no_more(monkeypatch):
    monkeypatch.delattr(scipy.signal, "gauss_spline")
    with pytest.raises(AttributeError, match="cupy.asnumpy"):
        cupyx_scipy.signal.gauss_spline(5, 2)
    with pytest.raises(TypeError, match="Unsupported type"):
        cupyx_scipy.ndimage.gaussian_filter(np.ones((3, 3)), 1)


def test_what_only_some_versions_of_scipy_have():
    """Against SciPy where it has the function, and by what defines it."""
    signal, ours = scipy.signal, cupyx_scipy.signal
    taps, data = cp.asarray([0.5, 1.0, 2.0, -1.0]), cp.asarray(np.sin(np.arange(40.0)))
    assert ours.qmf(taps).get().tolist() == [-1, -2, 1, -0.5]
    waves = {"ricker": (81, 4.0), "morlet": (81, 4.0, 0.5), "morlet2": (81, 3.0)}
    for name, args in waves.items():
        wave = getattr(ours, name)(*args).get()
        assert wave.argmax() == 40 and np.allclose(wave, np.conj(wave[::-1]))
        if name != "morlet":
            assert np.isclose((np.abs(wave) ** 2).sum(), 1, rtol=1e-3)
        if hasattr(signal, name):
            assert np.array_equal(wave, getattr(signal, name)(*args))
    found = ours.cwt(data, ours.ricker, [2, 3]).get()
    wanted = [np.convolve(data.get(), ours.ricker(10 * a, a).get(), mode="same") for a in (2, 3)]
    assert np.allclose(found, wanted)
    a = cp.asarray([[1.0, 2.0]])
    assert cupyx_scipy.linalg.kron(a, a).get().tolist() == [[1, 2, 2, 4]]
    line = sparse.csr_matrix(a)
    assert sparse.matrix_transpose(line).toarray().get().tolist() == [[1], [2]]
