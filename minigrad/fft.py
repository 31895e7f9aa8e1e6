"""Fourier transforms with torch.fft's names, by SciPy's or CuPy's, with gradients.

norm: "backward" divides inverse transforms by n, "forward" the others, "ortho" both by sqrt(n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad._foreign import tensors_only
from minigrad._names import namespace
from minigrad.autograd.mode import autocasts
from minigrad.autograd.node import Op
from minigrad.backends import is_batched, scipy_module
from minigrad.ops import combine, complexes
from minigrad.ops.fold import Col2Im
from minigrad.ops.ranges import arange
from minigrad.tensor import Tensor, normalize_dim

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft",
    "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _transforms(x: Any) -> Any:
    """The module that has them: NumPy's in `vmap`, since SciPy's takes no other arrays."""
    return np.fft if is_batched(x) else scipy_module(x, "fft")


class Transform(Op):
    """The complex transform along one dimension; linear, and its own adjoint but for the sign."""

    saves = ()
    name = "FftC2C"

    @staticmethod
    def forward(x: Any, dim: int, inverse: bool, norm: str) -> Any:
        transform = _transforms(x).ifft if inverse else _transforms(x).fft
        return transform(x, axis=dim, norm=norm).astype(x.dtype, copy=False)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int, inverse: bool, norm: str) -> tuple:
        return (Transform.apply(g, dim=dim, inverse=not inverse, norm=_OPPOSITE[norm]),)


class RealTransform(Op):
    """The first n // 2 + 1 elements of the transform of n real ones: the others are conjugates."""

    saves = ()
    name = "FftR2C"

    @staticmethod
    def forward(x: Any, dim: int, norm: str) -> Any:
        return _transforms(x).rfft(x, axis=dim, norm=norm)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int, norm: str) -> tuple:
        n = ctx.shapes[0][dim]
        return (RealInverse.apply(_weighted(g, 0.5, n, dim), dim=dim, n=n, norm=_OPPOSITE[norm]),)


class RealInverse(Op):
    """The inverse transform of n complex elements, of which n // 2 + 1 are given."""

    saves = ()
    name = "FftC2R"

    @staticmethod
    def forward(x: Any, dim: int, n: int, norm: str) -> Any:
        return _transforms(x).irfft(x, n, axis=dim, norm=norm)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, dim: int, n: int, norm: str) -> tuple:
        return (_weighted(RealTransform.apply(g, dim=dim, norm=_OPPOSITE[norm]), 2.0, n, dim),)


def _weighted(half: Tensor, weight: float, n: int, dim: int) -> Tensor:
    """The elements of half a transform of n times `weight`, but for those that are their own
    conjugates."""
    weights = half.new_full((n // 2 + 1,), weight, dtype=half.dtype.to_real())
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return half * weights.reshape(-1, *(1,) * (half._array.ndim - 1 - dim))


def _norm(norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in _NORMS:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return norm


def _complex(name: str, x: Tensor) -> Tensor:
    if x.is_complex():
        return x
    real = _floating(name, x)
    return real.to(real.dtype.to_complex())


def _floating(name: str, x: Tensor) -> Tensor:
    if x.is_floating_point() and x.dtype.itemsize == 2:
        raise RuntimeError(f"{name}: expected float32, float64 or complex numbers, got {x.dtype}")
    return x if x.is_floating_point() else x.to(dtypes.get_default_dtype())


def _real(name: str, x: Tensor) -> Tensor:
    if x.is_complex():
        raise RuntimeError(f"{name} expects a real input tensor, but got {x.dtype}")
    return x


def _resized(x: Tensor, n: int | None, dim: int) -> Tensor:
    """x cut or padded by zeros to n elements along dim."""
    length = x._array.shape[dim]
    n = length if n is None else n
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    if n < length:
        return x.narrow(dim, 0, n)
    if n > length:
        shape = list(x._array.shape)
        shape[dim] = n - length
        return combine.cat([x, x.new_zeros(shape)], dim)
    return x


def _along(
    name: str, x: Tensor, n: int | None, dim: int, norm: str | None, inverse: bool
) -> Tensor:
    dim = _dim(name, x, dim)
    x = _resized(_complex(name, x), n, dim)
    return Transform.apply(x, dim=dim, inverse=inverse, norm=_norm(norm))


def _dim(name: str, x: Tensor, dim: int) -> int:
    if not x._array.ndim:
        raise IndexError(f"{name}: Dimension specified as {dim} but tensor has no dimensions")
    return normalize_dim(dim, x._array.ndim)


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of input along `dim`, cut or padded to n first."""
    return _along("fft", input, n, dim, norm, False)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`."""
    return _along("ifft", input, n, dim, norm, True)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first n // 2 + 1 elements of the transform of a real input: the others are conjugates."""
    place = _dim("rfft", _real("rfft", input), dim)
    input = _resized(_floating("rfft", input), n, place)
    return RealTransform.apply(input, dim=place, norm=_norm(norm))


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real elements (default: an even number)."""
    place = _dim("irfft", input, dim)
    n = 2 * (input._array.shape[place] - 1) if n is None else n
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    half = _resized(_complex("irfft", input), n // 2 + 1, place)
    return RealInverse.apply(half, dim=place, n=n, norm=_norm(norm))


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform, which is real, of a signal given by its first half: the rest is conjugate."""
    return irfft(complexes.conj(_complex("hfft", input)), n, dim, _OPPOSITE[_norm(norm)])


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`."""
    return complexes.conj(rfft(_real("ihfft", input), n, dim, _OPPOSITE[_norm(norm)]))


def _sizes(name: str, x: Tensor, s: Any, dim: Any) -> list[tuple[int | None, int]]:
    """(length, dimension) pairs of a transform along several dimensions."""
    sizes = [s] if isinstance(s, int) else s
    dims = [dim] if isinstance(dim, int) else dim
    ndim = x._array.ndim
    if dims is None:
        dims = range(ndim) if sizes is None else range(ndim - len(sizes), ndim)
    dims = [normalize_dim(d, ndim) for d in dims]
    if sizes is not None and len(sizes) != len(dims):
        raise RuntimeError(
            f"{name}: when given, dim and shape arguments must have the same length, got "
            f"{len(sizes)} lengths and {len(dims)} dimensions"
        )
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"{name}: FFT dims must be unique")
    lengths = [None] * len(dims) if sizes is None else [None if n == -1 else n for n in sizes]
    return list(zip(lengths, dims, strict=True))


def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform along several dimensions (default: all)."""
    for n, d in _sizes("fftn", input, s, dim):
        input = fft(input, n, d, norm)
    return _complex("fftn", input)


def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`."""
    for n, d in _sizes("ifftn", input, s, dim):
        input = ifft(input, n, d, norm)
    return _complex("ifftn", input)


def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform of a real input along several dimensions; half of the last one."""
    *others, (n, last) = _some("rfftn", _real("rfftn", input), s, dim)
    found = rfft(input, n, last, norm)
    for n, d in others:
        found = fft(found, n, d, norm)
    return found


def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`."""
    *others, (n, last) = _some("irfftn", input, s, dim)
    for m, d in others:
        input = ifft(input, m, d, norm)
    return irfft(input, n, last, norm)


def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform, which is real, of a Hermitian input along several dimensions, of which half of
    the last one is given."""
    *others, (n, last) = _some("hfftn", input, s, dim)
    for m, d in others:
        input = fft(input, m, d, norm)
    return hfft(input, n, last, norm)


def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`, for a real input."""
    *others, (n, last) = _some("ihfftn", _real("ihfftn", input), s, dim)
    found = ihfft(input, n, last, norm)
    for m, d in others:
        found = ifft(found, m, d, norm)
    return found


def _some(name: str, x: Tensor, s: Any, dim: Any) -> list:
    found = _sizes(name, x, s, dim)
    if not found:
        raise RuntimeError(f"{name} must transform at least one axis")
    return found


def fft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The transform along the last two dimensions."""
    return fftn(input, s, dim, norm)


def ifft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `fft2`."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The transform of real images along the last two dimensions; half of the last one."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `rfft2`."""
    return irfftn(input, s, dim, norm)


def hfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfftn` along the last two dimensions."""
    return hfftn(input, s, dim, norm)


def ihfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `hfft2`."""
    return ihfftn(input, s, dim, norm)


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequency of each element of a transform, in cycles per unit of d, the spacing."""
    k = arange(n, dtype=dtype or dtypes.get_default_dtype(), layout=layout, device=device)
    found = (k - (k > (n - 1) // 2).to(k.dtype) * n) / (n * d)
    return found.requires_grad_() if requires_grad else found


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the elements of `rfft`."""
    dtype = dtype or dtypes.get_default_dtype()
    found = arange(n // 2 + 1, dtype=dtype, layout=layout, device=device) / (n * d)
    return found.requires_grad_() if requires_grad else found


def _shift(input: Tensor, dim: Any, inverse: bool) -> Tensor:
    dims: Sequence[int] = range(input._array.ndim) if dim is None else dim
    for d in [dims] if isinstance(dims, int) else dims:
        n = input._array.shape[d]
        input = input.roll(-(n // 2) if inverse else n // 2, d)
    return input


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The frequency zero moved to the middle of each dimension."""
    return _shift(input, dim, False)


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shift(input, dim, True)


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """Frames (..., count, n) added up where they overlap: (..., (count - 1) hop + n)."""
    *lead, count, n = frames._array.shape
    columns = frames.transpose(-1, -2).reshape(math.prod(lead), n, count)
    length = (count - 1) * hop + n
    one = {"size": (1, length), "kernel": (1, n), "dilation": (1, 1), "padding": (0, 0)}
    return Col2Im.apply(columns, **one, stride=(1, hop)).reshape(*lead, length)


_FUNCTIONS = {name: autocasts(globals()[name]) for name in __all__ if name.islower()}
for _name, _function in _FUNCTIONS.items():
    globals()[_name] = tensors_only(_function, True, f"{__name__}.{_name}")

__getattr__, __dir__ = namespace(__name__)
