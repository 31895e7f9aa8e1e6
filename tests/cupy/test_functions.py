"""Functions of kernels.cupy: NumPy's values for the same expression, CuPy's types."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kernels.cupy as cp
from kernels.cupy._index import entries

UFUNCS = {name: entry.text for name, entry in entries("cupy").items() if entry.kind == "ufunc"}

# CuPy lists complex types for these; the function is not defined for them.
NOT_COMPLEX = ("arctan2", "atan2", "copysign", "hypot", "i0", "nextafter")

# Expressions of `xp` (numpy or cupy) and arrays: a (4, 6) floats, b (4, 6) integers,
# c (6,) floats, m (5, 5) positive definite, s (4, 6) complex, t (4, 6) booleans, n with NaNs.
EXPRESSIONS = """
xp.all(t, axis=0), xp.any(t), xp.allclose(a, a + 1e-9), xp.isclose(a, c), xp.array_equal(a, a)
xp.amax(a, axis=1), xp.amin(b), xp.max(a, 0, keepdims=True), xp.min(b, axis=1), xp.ptp(a, axis=0)
xp.angle(s), xp.angle(s, deg=True), xp.real(s), xp.imag(s), xp.conj(s), xp.isreal(s)
xp.iscomplex(s), xp.append(a, a, axis=0), xp.concatenate([a, b]), xp.stack([a, a], axis=1)
xp.hstack([a, b]), xp.vstack([a, c]), xp.dstack([a, a]), xp.column_stack([c, c])
xp.concatenate((c, c), dtype="f4"), xp.arange(3, 20, 4), xp.arange(5.5), xp.linspace(0, 1, 7)
xp.logspace(0, 2, 5), xp.eye(3, 4, k=1), xp.linspace(0, 1, 5, endpoint=False, retstep=True)[0]
xp.identity(3, dtype="f4"), xp.tri(3, 4), xp.full((2, 3), 7), xp.full_like(a, 2), xp.zeros_like(b)
xp.ones((2, 2), "i1"), xp.zeros(3, "F"), xp.meshgrid(c, c)[1], xp.indices((2, 3)), xp.diag(c)
xp.diag(m), xp.diagflat(c, 1), xp.vander(c, 3), xp.tril(m), xp.triu(m, 1), xp.tril_indices(4)[1]
xp.triu_indices_from(m)[0], xp.diag_indices(3)[0], xp.argmax(a, axis=1), xp.argmin(a)
xp.argsort(a, axis=0), xp.sort(a), xp.sort(a, axis=None), xp.nanargmax(n, axis=0), xp.nanargmin(n)
xp.nanmax(n), xp.nanmin(n, axis=0), xp.nansum(n, axis=1), xp.nanmean(n), xp.nanmedian(n)
xp.nanstd(n), xp.nanvar(n, axis=0), xp.nanprod(n), xp.nancumsum(n), xp.argwhere(t)
xp.flatnonzero(t), xp.nonzero(t)[1], xp.count_nonzero(t, axis=0), xp.where(t, a, 0.0)
xp.lexsort(xp.stack([c, c])), xp.sort_complex(c), xp.partition(c, 3)[3], xp.argpartition(c, 2)[2]
xp.around(a, 1), xp.round(a), xp.clip(a, -0.5, 0.5), xp.clip(b, 2, None), xp.nan_to_num(n)
xp.average(a, axis=0, weights=b[:, :]), xp.mean(a, axis=1), xp.std(a, ddof=1), xp.var(b)
xp.median(a), xp.percentile(a, 30), xp.quantile(a, xp.asarray([0.1, 0.5]), axis=0), xp.cov(a)
xp.corrcoef(a), xp.bincount(b[0]), xp.histogram(c, bins=4)[0], xp.histogram(c, 3, (0, 1))[1]
xp.digitize(c, xp.sort(c)), xp.histogram2d(c, c, bins=3)[0], xp.searchsorted(xp.sort(c), c)
xp.interp(c, xp.sort(c), xp.sort(c)), xp.broadcast_to(c, (4, 6)), xp.broadcast_arrays(a, c)[1]
xp.expand_dims(c, 0), xp.squeeze(c[None]), xp.reshape(a, (6, 4)), xp.reshape(a, -1, order="F")
xp.ravel(a), xp.transpose(a), xp.moveaxis(a, 0, 1), xp.rollaxis(a, 1), xp.swapaxes(a, 0, 1)
xp.roll(a, 2, axis=1), xp.flip(a), xp.flipud(a), xp.fliplr(a), xp.rot90(a), xp.atleast_2d(c)
xp.atleast_3d(c), xp.split(a, 2)[1], xp.array_split(c, 4)[1], xp.hsplit(a, 3)[2]
xp.vsplit(a, 2)[0], xp.tile(c, (2, 2)), xp.repeat(a, 2, axis=0), xp.delete(c, 1), xp.unique(b)
xp.unique(b, return_counts=True)[1], xp.unique(b, return_inverse=True)[1], xp.resize(c, (3, 3))
xp.trim_zeros(xp.asarray([0, 1, 2, 0])), xp.pad(a, 1), xp.pad(c, 2, "edge"), xp.cumsum(a)
xp.cumsum(b, axis=1), xp.cumprod(c), xp.diff(a), xp.diff(a, n=2, axis=0), xp.ediff1d(c)
xp.gradient(c), xp.gradient(a)[1], xp.trapezoid(a, axis=0), xp.cross(a[:, :3], a[:, 3:])
xp.sum(a, axis=(0, 1)), xp.sum(b, dtype="f4"), xp.prod(c), xp.sum(t), xp.sum(a, 1, keepdims=True)
xp.dot(a, c), xp.dot(m, m), xp.vdot(s, s), xp.inner(c, c), xp.outer(c, c), xp.matmul(m, m)
xp.kron(c, c), xp.tensordot(a, a, axes=([0], [0])), xp.einsum("ij,kj->ik", a, a), xp.trace(m)
xp.einsum("ij->j", a), xp.linalg.inv(m), xp.linalg.solve(m, m[0]), xp.linalg.det(m)
xp.linalg.slogdet(m)[1], xp.linalg.cholesky(m), xp.linalg.eigvalsh(m), xp.linalg.norm(a)
xp.linalg.norm(a, 1, axis=0), xp.linalg.svd(a)[1], xp.abs(xp.linalg.qr(m)[1]), xp.linalg.pinv(a)
xp.linalg.matrix_power(m, 3), xp.linalg.lstsq(m, m[0], rcond=None)[0], xp.linalg.matrix_rank(m)
xp.linalg.cond(m), xp.fft.fft(c), xp.fft.ifft(s), xp.fft.rfft(a), xp.fft.irfft(s), xp.fft.fft2(a)
xp.fft.ifftn(s), xp.fft.fftfreq(8, 0.5), xp.fft.rfftfreq(7), xp.fft.fftshift(a), xp.fft.hfft(s)
xp.fft.fft(c, norm="ortho"), xp.take(a, xp.asarray([0, 5, 7]))
xp.take_along_axis(a, xp.argsort(a, axis=1), 1), xp.choose(b % 2, [a, -a])
xp.compress(xp.asarray([True, False, True]), a, axis=1), xp.extract(t, a), xp.diagonal(m, 1)
xp.select([a > 0, b > 2], [a, -a], 9.0), xp.isin(b, xp.asarray([1, 2])), xp.intersect1d(b, b % 3)
xp.union1d(b, b + 3), xp.setdiff1d(b, b % 3), xp.setxor1d(b, b % 3), xp.ix_(b[0], b[1])[0]
xp.unravel_index(b, (3, 4))[0], xp.ravel_multi_index((b % 3, b % 2), (3, 4)), xp.packbits(t)
xp.unpackbits(xp.packbits(t)), xp.convolve(c, c), xp.correlate(c, c, "full"), xp.unwrap(c * 9)
xp.bartlett(5), xp.hamming(6), xp.hanning(5), xp.blackman(7), xp.kaiser(5, 2.0), xp.sinc(a)
xp.i0(c), xp.poly(c[:3]), xp.polyfit(c, c**2, 2), xp.polyval(c, a), xp.polyadd(c, c[:2])
xp.roots(xp.asarray([1.0, 0, -4])), xp.r_[c, 1.0, 2:4], xp.c_[c, c], xp.mgrid[0:2, 0:3]
xp.ogrid[0:2, 0:3][1], xp.poly1d(c[:3])(a), xp.apply_along_axis(lambda x: x.sum(), 0, a)
xp.piecewise(a, [a < 0, a >= 0], [-1.0, 1.0]), xp.isposinf(a), xp.isneginf(a)
xp.heaviside(a, 0.5), xp.result_type(a, b), xp.ndim(a), xp.shape(a), a.sum(), a.mean(0), a.T @ a
a.dot(c), b.max(1), a.argmax(), a.clip(0, 1), a.cumsum(1), a.flatten(), a.astype("f4")
a.astype(int), a.reshape(2, 12), a.repeat(2), a.round(2), b.prod(), a.std(), t.all(1), a[1]
a[:, ::2], a[t], a[b % 4, 0], a[..., None], a[[0, 2]], a[1:3, [0, 1]], a[-1, -2], a.ravel()[::-1]
a.flat[5], a.trace(), a.diagonal(), a.squeeze(), a.nonzero()[0]
a.take(b), -a, +b, abs(a), ~b, ~t, b << 1, b >> 1, b & 3, b | 4, b ^ 1
a % 0.3, a // 0.3, divmod(b, 3)[1], 2**a
""".strip().splitlines()


def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    a = rng.standard_normal((4, 6))
    m = rng.standard_normal((5, 5))
    return {
        "a": a,
        "b": rng.integers(0, 7, (4, 6)),
        "c": rng.random(6),
        "m": m @ m.T + np.eye(5),
        "s": a + 1j * rng.standard_normal((4, 6)),
        "t": a > 0,
        "n": np.where(rng.random((4, 6)) > 0.8, np.nan, a),
    }


@pytest.mark.parametrize("line", EXPRESSIONS, ids=lambda line: line.split("(")[0])
def test_expressions_are_numpys(line, rng):
    host = arrays(rng)
    device = {name: cp.asarray(value) for name, value in host.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = eval(f"[{line}]", {"xp": np, **host})
    computed = eval(f"[{line}]", {"xp": cp, **device})
    for i, (mine, theirs) in enumerate(zip(computed, expected, strict=True)):
        where = f"value {i} of {line}"
        if isinstance(mine, cp.ndarray):
            assert mine.dtype == np.asarray(theirs).dtype, where
            assert mine.shape == np.shape(theirs), where
            np.testing.assert_allclose(mine.get(), theirs, rtol=1e-12, atol=1e-12, err_msg=where)
        else:
            assert type(mine) is type(theirs) and mine == theirs, where


def sample(char: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers that are in the domain of every function."""
    if char == "?":
        return rng.random(9) > 0.5
    if char in "bBhHiIlLqQ":
        return rng.integers(1, 4, 9).astype(char)
    values = rng.random(9) * 0.8 + 0.1
    return (values + 0.3j if char in "FD" else values).astype(char)


@pytest.mark.filterwarnings("error::DeprecationWarning")
@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs_have_cupys_types(name, rng):
    """Each line of CuPy's table; values are NumPy's where it has the types too."""
    function = getattr(cp, name)
    theirs = np.trunc if name == "fix" else getattr(np, name)
    for line in UFUNCS[name].split():
        ins, outs = line.split("->")
        if "E" in line or "V" in line or "l" in ins:
            continue
        host = [sample(char, rng) for char in ins]
        if name in ("arccosh", "acosh"):
            host = [h + np.asarray(1, h.dtype) for h in host]
        if name in NOT_COMPLEX and set(ins) & set("FD"):
            with pytest.raises(TypeError, match="Wrong type"):
                function(*map(cp.asarray, host))
            continue
        found = function(*map(cp.asarray, host))
        found = found if isinstance(found, tuple) else (found,)
        assert [f.dtype for f in found] == [np.dtype(char) for char in outs], line
        with np.errstate(all="ignore"):
            try:
                expected = theirs(*host)
            except TypeError:
                continue
        expected = expected if isinstance(expected, tuple) else (expected,)
        for mine, want in zip(found, expected):
            tolerance = 1e-2 if "e" in line else 1e-5
            np.testing.assert_allclose(mine.get().astype("D"), want, rtol=tolerance)


def test_out_where_and_methods_of_ufuncs(rng):
    a = cp.asarray(rng.random((3, 4)))
    out = cp.zeros((3, 4))
    assert cp.sqrt(a, out=out) is out
    assert cp.add(a, 1, where=a > 2, out=out) is out
    assert cp.allclose(out, cp.sqrt(a))
    assert cp.allclose(cp.add.reduce(a), a.sum(0))
    assert cp.allclose(cp.multiply.outer(a[0], a[1]), cp.outer(a[0], a[1]))
    counts = cp.zeros(3)
    cp.add.at(counts, cp.asarray([0, 0, 2]), 1)
    assert counts.tolist() == [2, 0, 1]
    counts.scatter_add(cp.asarray([1, 1]), cp.asarray([5.0, 1.0]))
    assert counts.tolist() == [2, 6, 1]
    with pytest.raises(NotImplementedError, match=r"cupy_sqrt\.reduce"):
        cp.sqrt.reduce(a)
    with pytest.raises(TypeError, match="could not be coerced"):
        cp.sqrt(a, out=cp.zeros((3, 4), int))
    with pytest.raises(TypeError):
        a += 1j


@pytest.mark.parametrize("name", ["sum", "sort", "linalg.inv", "fft.fft", "mean", "take"])
def test_functions_want_device_arrays(name):
    function = cp
    for part in name.split("."):
        function = getattr(function, part)
    with pytest.raises(TypeError):
        function(np.eye(3), *([0] if name == "take" else []))


def test_what_is_not_there_says_so():
    with pytest.raises(AttributeError, match=r"make_aligned_dtype"):
        cp.make_aligned_dtype([])
    with pytest.raises(TypeError, match="where"):
        cp.sum(cp.ones(3), where=cp.ones(3, bool))
    with pytest.raises(ValueError, match="stable"):
        cp.sort(cp.ones(3), kind="quicksort")
    with pytest.raises(AttributeError, match="no attribute 'fftt'"):
        cp.fft.fftt(cp.ones(3))


def test_a_singular_matrix_gives_nans_unless_asked_to_raise():
    import kernels.cupyx as cupyx

    singular = cp.ones((3, 3))
    assert cp.isnan(cp.linalg.inv(singular)).all()
    with cupyx.errstate(linalg="raise"), pytest.raises(cp.linalg.LinAlgError):
        cp.linalg.solve(singular, cp.ones(3))
    with pytest.raises(cp.linalg.LinAlgError):
        cp.linalg.inv(cp.ones((2, 3)))
