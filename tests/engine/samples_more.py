"""The table of operations, continued: volumes, losses, linear algebra, transforms, complex numbers.

They are on the CPU only: `ALL` is for the tests that need no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft, linalg, special

from tests.engine.samples import Sample
from tests.engine.samples_layers import SAMPLES

MORE: list[Sample] = []
SPECIAL_DOMAIN = (0.3, 2.0)


def case(name: str, call: Callable, *inputs: Any, ref: Any = None, **options: Any) -> None:
    MORE.append(Sample(name, call, inputs, ref, **options))


def positive(m: Any, x: Any) -> Any:
    """A symmetric positive definite matrix of any square one."""
    return x @ x.mT + 2 * m.eye(x.shape[-1], dtype=x.dtype)


def spd(x: np.ndarray) -> np.ndarray:
    return x @ x.swapaxes(-1, -2) + 2 * np.eye(x.shape[-1])


def _squared(factor: np.ndarray, upper: bool) -> np.ndarray:
    """The matrix of which a triangle of `factor` is the Cholesky factor."""
    lower = np.triu(factor).T if upper else np.tril(factor)
    return lower @ lower.T


# --- volumes ---
case(
    "conv3d",
    lambda m, x, w, b: m.nn.functional.conv3d(x, w, b, stride=(1, 2, 1), padding=1),
    (1, 2, 3, 4, 3),
    (2, 2, 2, 3, 2),
    (2,),
)
case(
    "conv3d_groups",
    lambda m, x, w: m.nn.functional.conv3d(x, w, dilation=(2, 1, 1), groups=2, padding="valid"),
    (2, 2, 4, 3, 3),
    (2, 1, 2, 2, 2),
)
case(
    "conv_transpose3d",
    lambda m, x, w, b: m.nn.functional.conv_transpose3d(x, w, b, 2, 1, 1),
    (1, 2, 2, 2, 2),
    (2, 2, 2, 2, 3),
    (2,),
)
case(
    "max_pool3d", lambda m, x: m.nn.functional.max_pool3d(x, 2, (1, 2, 1), (1, 0, 1)),
    (1, 2, 3, 4, 3), gradgrad=False,
)  # fmt: skip
case("avg_pool3d", lambda m, x: m.nn.functional.avg_pool3d(x, 2, 1, 1), (1, 2, 3, 2, 3))
case(
    "adaptive_avg_pool3d",
    lambda m, x: m.nn.functional.adaptive_avg_pool3d(x, (2, 2, 3)),
    (2, 3, 4, 3),
)
case(
    "adaptive_max_pool3d",
    lambda m, x: m.nn.functional.adaptive_max_pool3d(x, (2, 1, 2)),
    (2, 3, 4, 3),
    gradgrad=False,
)
case(
    "max_unpool2d",
    lambda m, x: m.nn.functional.max_unpool2d(
        *m.nn.functional.max_pool2d(x, 2, return_indices=True), 2
    ),
    (1, 2, 4, 4),
    gradgrad=False,
)
# --- images at points ---
GRID = np.random.default_rng(5).uniform(-1.3, 1.3, (1, 2, 2, 2))
for _mode in ("bilinear", "bicubic"):
    for _outside in ("zeros", "border", "reflection"):
        case(
            f"grid_sample_{_mode}_{_outside}",
            lambda m, x, g, mode=_mode, outside=_outside: m.nn.functional.grid_sample(
                x, g, mode, outside, align_corners=outside == "border"
            ),
            (1, 2, 3, 3),
            GRID,
            gradgrad=False,
        )
case(
    "grid_sample_volume",
    lambda m, x, g: m.nn.functional.grid_sample(x, g, align_corners=False),
    (1, 1, 3, 3, 3),
    GRID[..., [0, 1, 0]].reshape(1, 2, 2, 1, 3),
    gradgrad=False,
)
case(
    "affine_grid",
    lambda m, t: m.nn.functional.affine_grid(t, (2, 1, 3, 4), align_corners=False),
    (2, 2, 3),
)
# --- losses and layers ---
TARGETS = np.array([[1, 2, 2], [3, 1, 0]])
case(
    "ctc_loss",
    lambda m, x, t: m.nn.functional.ctc_loss(x.log_softmax(-1), t, [6, 5], [3, 2]),
    (6, 2, 4),
    TARGETS,
    gradgrad=False,
)
SIGNS = np.where(np.random.default_rng(3).random((3, 4)) < 0.5, -1.0, 1.0)
for _name in ("soft_margin_loss", "hinge_embedding_loss"):
    case(
        _name,
        lambda m, x, t, n=_name: getattr(m.nn.functional, n)(x, t),
        (3, 4),
        SIGNS,
        frozen=(1,),
    )
case(
    "poisson_nll_loss",
    lambda m, x, t: m.nn.functional.poisson_nll_loss(x, t, full=True),
    (3, 4),
    np.array([[0.0, 1, 2, 3]]),
    frozen=(1,),
)
case(
    "gaussian_nll_loss",
    lambda m, x, t, v: m.nn.functional.gaussian_nll_loss(x, t, v * v + 0.5, full=True),
    (3, 4),
    (3, 4),
    (3, 4),
    gradgrad=False,
)
case(
    "multi_margin_loss",
    lambda m, x, t: m.nn.functional.multi_margin_loss(x, t, p=2),
    (3, 4),
    np.array([3, 0, 1]),
)
case(
    "multilabel_soft_margin_loss",
    lambda m, x, t: m.nn.functional.multilabel_soft_margin_loss(x, t),
    (3, 4),
    (SIGNS + 1) / 2,
    frozen=(1,),
)
case(
    "local_response_norm",
    lambda m, x: m.nn.functional.local_response_norm(x, 3, alpha=0.5),
    (2, 5, 3),
)
case("pixel_unshuffle", lambda m, x: m.nn.functional.pixel_unshuffle(x, 2), (1, 1, 4, 6))
case("channel_shuffle", lambda m, x: m.nn.functional.channel_shuffle(x, 2), (1, 4, 3))
case("lp_pool2d", lambda m, x: m.nn.functional.lp_pool2d(x, 3, 2), (1, 2, 4, 4), domain=(0.3, 2))
for _mode in ("sum", "mean"):
    case(
        f"embedding_bag_{_mode}",
        lambda m, i, w, mode=_mode: m.nn.functional.embedding_bag(i, w, mode=mode),
        np.array([[1, 0, 1], [3, 2, 2]]),
        (5, 3),
    )
# --- linear algebra ---
case(
    "inv", lambda m, x: m.linalg.inv(positive(m, x)), (2, 3, 3), ref=lambda x: np.linalg.inv(spd(x))
)
case("det", lambda m, x: m.linalg.det(x), (2, 3, 3), ref=np.linalg.det)
case(
    "slogdet", lambda m, x: m.linalg.slogdet(positive(m, x)).logabsdet, (2, 3, 3),
    ref=lambda x: np.linalg.slogdet(spd(x))[1],
)  # fmt: skip
case(
    "solve", lambda m, a, b: m.linalg.solve(positive(m, a), b), (2, 3, 3), (3, 2),
    ref=lambda a, b: np.linalg.solve(spd(a), np.broadcast_to(b, (2, 3, 2))),
)  # fmt: skip
case(
    "solve_vector", lambda m, a, b: m.linalg.solve(positive(m, a), b), (3, 3), (3,),
    ref=lambda a, b: np.linalg.solve(spd(a), b),
)  # fmt: skip
case(
    "solve_triangular",
    lambda m, a, b: m.linalg.solve_triangular(positive(m, a), b, upper=True),
    (3, 3),
    (3, 2),
    ref=lambda a, b: linalg.solve_triangular(spd(a), b),
)
case(
    "cholesky", lambda m, x: m.linalg.cholesky(positive(m, x)), (2, 3, 3),
    ref=lambda x: np.linalg.cholesky(spd(x)),
)  # fmt: skip
for _shape, _dim in (((4, 3), 0), ((3, 3), 0), ((2, 4), -1)):
    case(f"qr_{_shape[0]}", lambda m, x, d=_dim: m.cat(m.linalg.qr(x), d), _shape)
case(
    "svd", lambda m, x: (lambda s: (s.U[..., :2] * s.S[..., None, :2]) @ s.Vh[..., :2, :])(
        m.linalg.svd(x, full_matrices=False)), (4, 3),
)  # fmt: skip
case("svdvals", lambda m, x: m.linalg.svdvals(x), (3, 4), ref=lambda x: linalg.svdvals(x))
case(
    "eigh", lambda m, x: (lambda e: e.eigenvectors**2 * e.eigenvalues)(
        m.linalg.eigh(x + x.mT + m.diag(m.arange(3, dtype=x.dtype) * 5))), (3, 3),
    domain=(-0.5, 0.5),
)  # fmt: skip
case(
    "eigvalsh", lambda m, x: m.linalg.eigvalsh(positive(m, x)), (3, 3),
    ref=lambda x: np.linalg.eigvalsh(spd(x)),
)  # fmt: skip
case("pinv", lambda m, x: m.linalg.pinv(x), (4, 3), ref=np.linalg.pinv)
case("pinv_wide", lambda m, x: m.linalg.pinv(x), (2, 4), ref=np.linalg.pinv)
case(
    "lstsq", lambda m, a, b: m.linalg.lstsq(a, b).solution, (4, 2), (4, 2),
    ref=lambda a, b: np.linalg.lstsq(a, b)[0],
)  # fmt: skip
case("matrix_exp", lambda m, x: m.linalg.matrix_exp(x), (2, 3, 3), ref=linalg.expm)
case(
    "matrix_power", lambda m, x: m.linalg.matrix_power(x, 3), (3, 3),
    ref=lambda x: np.linalg.matrix_power(x, 3),
)  # fmt: skip
case("lu", lambda m, x: (lambda f: f.L * 2 + f.U)(m.linalg.lu(x)), (3, 3), gradgrad=False)
for _ord in ("fro", "nuc", 1, 2):
    case(
        f"matrix_norm_{_ord}",
        lambda m, x, o=_ord: m.linalg.matrix_norm(x, o),
        (3, 4),
        ref=lambda x, o=_ord: np.linalg.norm(x, o),
    )
case("multi_dot", lambda m, a, b, c: m.linalg.multi_dot([a, b, c]), (2, 3), (3, 4), (4, 1),
     ref=lambda a, b, c: a @ b @ c)  # fmt: skip
for _upper in (False, True):
    case(
        f"cholesky_solve_{_upper}",
        lambda m, b, f, u=_upper: m.cholesky_solve(b, f.triu() if u else f.tril(), upper=u),
        (3, 2),
        (3, 3),
        ref=lambda b, f, u=_upper: np.linalg.solve(_squared(f, u), b),
        domain=(1.0, 2.0),
    )
    case(
        f"cholesky_inverse_{_upper}",
        lambda m, f, u=_upper: m.cholesky_inverse(f.triu() if u else f.tril(), upper=u),
        (3, 3),
        ref=lambda f, u=_upper: np.linalg.inv(_squared(f, u)),
        domain=(1.0, 2.0),
    )
# --- transforms ---
for _norm in ("backward", "ortho", "forward"):
    case(
        f"rfft_{_norm}",
        lambda m, x, n=_norm: m.view_as_real(m.fft.rfft(x, norm=n)),
        (3, 5),
        ref=lambda x, n=_norm: np.stack([fft.rfft(x, norm=n).real, fft.rfft(x, norm=n).imag], -1),
    )
case("fft2", lambda m, x: m.fft.fft2(x).abs(), (3, 4), ref=lambda x: abs(fft.fft2(x)))
case(
    "ifft_padded",
    lambda m, x: m.fft.ifft(x, 6, 0).real,
    (4, 2),
    ref=lambda x: fft.ifft(x, 6, 0).real,
)
for _n in (4, 5):
    case(
        f"irfft_{_n}",
        lambda m, a, b, n=_n: m.fft.irfft(m.complex(a, b), n),
        (2, 3),
        (2, 3),
        ref=lambda a, b, n=_n: fft.irfft(a + 1j * b, n),
    )
case(
    "filtered", lambda m, x, w: m.fft.irfftn(m.fft.rfftn(x) * m.fft.rfftn(w), x.shape),
    (4, 5), (4, 5), ref=lambda x, w: fft.irfftn(fft.rfftn(x) * fft.rfftn(w), x.shape),
)  # fmt: skip
case("fftshift", lambda m, x: m.fft.fftshift(x), (3, 4), ref=fft.fftshift)
# --- complex numbers ---
for _name, _call, _ref in (
    ("product", lambda m, z: z * z.conj() * (1 + 2j), lambda z: z * z.conj() * (1 + 2j)),
    ("quotient", lambda m, z: (z + 1) / (z * 1j + 3), lambda z: (z + 1) / (z * 1j + 3)),
    ("exp", lambda m, z: m.exp(z), np.exp),
    ("log", lambda m, z: m.log(z), np.log),
    ("sqrt", lambda m, z: m.sqrt(z), np.sqrt),
    ("tanh", lambda m, z: m.tanh(z), np.tanh),
    ("cube", lambda m, z: z**3, lambda z: z**3),
    ("matmul", lambda m, z: z @ z.mH, lambda z: z @ z.conj().T),
    ("index", lambda m, z: z[m.tensor([0, 1, 0])].sum(0), lambda z: z[[0, 1, 0]].sum(0)),
    ("pow", lambda m, z: z ** (z * 1j), lambda z: z ** (z * 1j)),
    ("pow_of_a_number", lambda m, z: (1 + 2j) ** z, lambda z: (1 + 2j) ** z),
    ("pow_of_real", lambda m, z: z.abs() ** z, lambda z: abs(z) ** z),
    ("real_pow", lambda m, z: z ** z.abs(), lambda z: z ** abs(z)),
    ("acosh", lambda m, z: m.acosh(-z), lambda z: np.arccosh(-z)),  # left of the imaginary axis
    ("exp2", lambda m, z: m.exp2(z), lambda z: 2**z),
    ("sinc", lambda m, z: m.sinc(z), lambda z: np.sin(np.pi * z) / (np.pi * z)),
    ("lerp", lambda m, z: m.lerp(z, z * z, 0.3), lambda z: z + 0.3 * (z * z - z)),
    ("addcdiv", lambda m, z: m.addcdiv(z, z * z, z + 1), lambda z: z + z * z / (z + 1)),
    ("triu", lambda m, z: m.triu(z * z), lambda z: np.triu(z * z)),
    ("logsumexp", lambda m, z: m.logsumexp(z, 1), lambda z: np.log(np.exp(z).sum(1))),
):
    case(
        f"complex_{_name}",
        lambda m, a, b, f=_call: m.view_as_real(f(m, m.complex(a, b))),
        (2, 3),
        (2, 3),
        ref=lambda a, b, f=_ref: np.stack([f(a + 1j * b).real, f(a + 1j * b).imag], -1),
        domain=(0.3, 1.5),
    )
case("complex_abs", lambda m, a, b: m.complex(a, b).abs(), (2, 3), (2, 3), ref=np.hypot)
case(
    "complex_angle", lambda m, a, b: m.angle(m.complex(a, b)), (2, 3), (2, 3),
    ref=lambda a, b: np.angle(a + 1j * b),
)  # fmt: skip
case("polar", lambda m, a, b: m.polar(a, b).real, (2, 3), (2, 3), ref=lambda a, b: a * np.cos(b),
     domain=(0.3, 2.0))  # fmt: skip
# --- special functions ---
for _name in ("i0", "i0e", "i1", "i1e", "ndtr", "log_ndtr", "erfcx", "entr"):
    case(
        f"special_{_name}",
        lambda m, x, n=_name: getattr(m.special, n)(x),
        (3, 4),
        ref=getattr(special, _name),
        domain=SPECIAL_DOMAIN,
    )
case("erfinv", lambda m, x: m.erfinv(x), (3, 4), ref=special.erfinv, domain=(-0.8, 0.8))
case("ndtri", lambda m, x: m.special.ndtri(x), (3, 4), ref=special.ndtri, domain=(0.1, 0.9))
case(
    "polygamma", lambda m, x: m.polygamma(1, x), (3, 4),
    ref=lambda x: special.polygamma(1, x), domain=SPECIAL_DOMAIN,
)  # fmt: skip
case(
    "mvlgamma", lambda m, x: m.mvlgamma(x, 2), (3, 4),
    ref=lambda x: special.multigammaln(x, 2) if np.ndim(x) == 0
    else np.vectorize(lambda v: special.multigammaln(v, 2))(x), domain=(1.0, 3.0),
)  # fmt: skip
case(
    "gammainc", lambda m, x: m.igamma(m.full_like(x, 1.5), x), (3, 4),
    ref=lambda x: special.gammainc(1.5, x), domain=SPECIAL_DOMAIN,
)  # fmt: skip
case("xlog1py", lambda m, x, y: m.special.xlog1py(x, y), (3, 4), (4,), ref=special.xlog1py,
     domain=SPECIAL_DOMAIN)  # fmt: skip
# --- memory ---
case(
    "as_strided", lambda m, x: x.flatten()[1:].as_strided((2, 3), (1, 2)), (3, 3),
    ref=lambda x: np.lib.stride_tricks.as_strided(x.ravel()[1:], (2, 3), (8, 16)),
)  # fmt: skip

# --- less common functions ---
case("cov", lambda m, x: m.cov(x), (3, 5), ref=np.cov)
case("corrcoef", lambda m, x: m.corrcoef(x), (2, 5), ref=np.corrcoef)
case("inner", lambda m, x, y: m.inner(x, y), (2, 3), (4, 3), ref=np.inner)
case("trapezoid", lambda m, x, y: m.trapezoid(y, x.cumsum(0), dim=0), (4,), (4, 2),
     ref=lambda x, y: np.trapezoid(y, x.cumsum()[:, None], axis=0), domain=(0.3, 2))  # fmt: skip
case("fmax", lambda m, x, y: m.fmax(x, y), (3, 4), (4,), ref=np.fmax)
case("logaddexp2", lambda m, x, y: m.logaddexp2(x, y), (3, 4), (4,), ref=np.logaddexp2)
case("block_diag", lambda m, x, y: m.block_diag(x, y), (2, 3), (1, 2),
     ref=lambda x, y: linalg.block_diag(x, y))  # fmt: skip
case(
    "select_scatter", lambda m, x, y: m.select_scatter(x, y, 1, 2), (3, 4), (3,),
    ref=lambda x, y: np.stack([x[:, 0], x[:, 1], y, x[:, 3]], 1),
)  # fmt: skip
case(
    "slice_scatter", lambda m, x, y: m.slice_scatter(x, y, 1, 1, None, 2), (3, 4), (3, 2),
    ref=lambda x, y: np.stack([x[:, 0], y[:, 0], x[:, 2], y[:, 1]], 1),
)  # fmt: skip
case("stft", lambda m, x: m.stft(x, 4, 2, return_complex=True).abs(), (2, 9), gradgrad=False)

ALL = [*SAMPLES, *MORE]
