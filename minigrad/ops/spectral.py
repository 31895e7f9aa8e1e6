"""Spectra of signals in time: `stft` and its inverse, and windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import dtypes, fft
from minigrad.autograd.mode import autocasts
from minigrad.layouts import check_strided
from minigrad.ops.combine import pad
from minigrad.tensor import Tensor, export, functions


def _window(name: str, formula: Callable[[np.ndarray], Any]) -> Callable[..., Tensor]:
    """The function `name` that makes a window; formula: of places from 0 to 1."""

    def function(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
    ) -> Tensor:
        check_strided(layout)
        if window_length < 0:
            raise RuntimeError(
                f"{name} requires non-negative window_length, got window_length={window_length}"
            )
        last = max(window_length + bool(periodic) - 1, 1)
        values = formula(np.arange(window_length) / last)
        values = np.ones(window_length) if window_length == 1 else values
        dtype = dtype or dtypes.get_default_dtype()
        return functions.tensor(
            values, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "A window for spectra, from 0 to 1 and back; periodic: without its last 0."
    return function


def cosines(*terms: float) -> Callable[[np.ndarray], Any]:
    """A sum of cosines with these weights, of alternating sign, at places from 0 to 1."""
    return lambda at: sum((-1) ** k * a * np.cos(2 * np.pi * k * at) for k, a in enumerate(terms))


def triangle(at: np.ndarray) -> Any:
    """From 0 to 1 and back."""
    return 1 - np.abs(2 * at - 1)


def bessel(beta: float) -> Callable[[np.ndarray], Any]:
    """Kaiser's window at places from 0 to 1."""
    return lambda at: np.i0(beta * np.sqrt(np.maximum(1 - (2 * at - 1) ** 2, 0))) / np.i0(beta)


for _name, _formula in {
    "hann_window": cosines(0.5, 0.5),
    "blackman_window": cosines(0.42, 0.5, 0.08),
    "bartlett_window": triangle,
}.items():
    export(method=False)(_window(_name, _formula))


@export(method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """alpha - beta * cos(2 pi n / N): a window that does not reach 0 at its ends."""
    return _window("hamming_window", cosines(alpha, beta))(window_length, periodic, **options)


@export(method=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """Kaiser's window, of the Bessel function of order 0: a larger `beta` makes it narrower."""
    return _window("kaiser_window", bessel(beta))(window_length, periodic, **options)


@export()
@autocasts
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """Short-time Fourier transform of (length,) or (batch, length): (..., frequencies, frames).

    Frames of n_fft elements begin every `hop_length` (default: a quarter), are multiplied by the
    window (win_length, in the middle), and with `center` are padded at both ends.
    return_complex=False: real numbers (..., frequencies, frames, 2).
    """
    if return_complex is None and not (
        input.is_complex() or (window is not None and window.is_complex())
    ):
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further "
            "require that return_complex=True in a future PyTorch release."
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    if not (input.is_floating_point() or input.is_complex()):
        raise NotImplementedError(f"stft: expected floating or complex numbers, got {input.dtype}")
    x = input if input._array.ndim == 2 else input.unsqueeze(0)
    if center:
        half = n_fft // 2
        x = pad(x.unsqueeze(1), (half, half), pad_mode).squeeze(1)
    if not 0 < n_fft <= x._array.shape[-1] or hop <= 0:
        raise RuntimeError(
            f"stft: expected 0 < n_fft <= {x._array.shape[-1]} and a positive hop_length, got "
            f"{n_fft} and {hop}"
        )
    frames = x.unfold(-1, n_fft, hop) * _centred(x, n_fft, win_length, window)
    both = x.is_complex() if onesided is None else not onesided
    transform = fft.fft if both else fft.rfft
    found = transform(frames, norm="ortho" if normalized else "backward").transpose(1, 2)
    found = found if input._array.ndim == 2 else found.squeeze(0)
    return functions.view_as_real(found) if return_complex is False else found


def _centred(x: Tensor, n_fft: int, win_length: int | None, window: Tensor | None) -> Tensor:
    """The window in the middle of n_fft elements."""
    length = n_fft if win_length is None else win_length
    real = dtypes.from_numpy_dtype(x._array.real.dtype)
    window = functions.ones(length, dtype=real, device=x.device) if window is None else window
    if window._array.shape != (length,) or length > n_fft:
        raise RuntimeError(
            f"stft: expected a window of win_length={length} <= n_fft={n_fft} elements, got "
            f"{list(window.shape)}"
        )
    left = (n_fft - length) // 2
    return pad(window, (left, n_fft - length - left)) if left or (
        length < n_fft
    ) else window  # fmt: skip


@export()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` is nearest to input (..., frequencies, frames).

    onesided: whether the frequencies are those of a real signal, n_fft // 2 + 1 (default: unless
    they are n_fft). return_complex: a complex signal, of all frequencies.
    """
    if not input.is_complex():
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    x = input if input._array.ndim == 3 else input.unsqueeze(0)
    half, count = n_fft // 2 + 1, x._array.shape[1]
    onesided = count != n_fft if onesided is None else onesided
    if count != (half if onesided else n_fft):
        raise RuntimeError(
            f"istft: expected {half if onesided else n_fft} frequencies for n_fft={n_fft} and "
            f"onesided={onesided}, got {count}"
        )
    if return_complex and onesided:
        raise RuntimeError("istft: return_complex=True expects onesided=False")
    inverse = fft.ifft if return_complex else fft.irfft
    rows = (x if return_complex else x[:, :half]).transpose(1, 2)
    frames = inverse(rows, n_fft, norm="ortho" if normalized else "backward")
    shape = _centred(frames, n_fft, win_length, window)
    total = fft._overlapped(frames * shape, hop)
    weight = fft._overlapped((shape * shape).expand(1, frames._array.shape[1], n_fft), hop)
    first = n_fft // 2 if center else 0
    last = total._array.shape[-1] - (n_fft // 2 if center else 0)
    last = last if length is None else min(first + length, total._array.shape[-1])
    weight = weight[:, first:last]
    if bool((weight.abs() < 1e-11).any()):
        raise RuntimeError("istft: window overlap add min: 0; the window and hop leave gaps")
    found = total[:, first:last] / weight
    if length is not None and found._array.shape[-1] < length:
        found = pad(found, (0, length - found._array.shape[-1]))
    return found if input._array.ndim == 3 else found.squeeze(0)
