"""`cupyx.signal`: filters, cepstra and radar processing that SciPy lacks, on device arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.cupy import _functions, fft, linalg
from kernels.cupy._array import fresh, ndarray, operand
from kernels.cupy._creation import asarray
from kernels.cupy._generate import require
from kernels.cupy._quiet import quietly

__all__ = [
    "ca_cfar", "cfar_alpha", "channelize_poly", "complex_cepstrum", "convolve1d2o", "convolve1d3o",
    "firfilter", "firfilter2", "firfilter_zi", "freq_shift", "inverse_complex_cepstrum",
    "minimum_phase", "mvdr", "pulse_compression", "pulse_doppler", "real_cepstrum",
]  # fmt: skip
_MOST_TAPS = 32

# --- convolution


def convolve1d2o(
    in1: ndarray, in2: ndarray, mode: str = "valid", method: str = "direct"
) -> ndarray:
    """A 1-d signal with a filter of second order:
    out[i] = sum over j, k of in1[i + W - 1 - j] in1[i + H - 1 - k] in2[j, k], (W, H) = in2.shape.

    Raises NotImplementedError for another mode than "valid" or another method than "direct".
    """
    return _of_order(2, "convolve1d2o", in1, in2, mode, method)


def convolve1d3o(
    in1: ndarray, in2: ndarray, mode: str = "valid", method: str = "direct"
) -> ndarray:
    """A 1-d signal with a filter of third order; see `convolve1d2o`."""
    return _of_order(3, "convolve1d3o", in1, in2, mode, method)


def _of_order(order: int, name: str, in1: Any, in2: Any, mode: str, method: str) -> ndarray:
    require(name, in1)
    require(name, in2)
    if in1.ndim != 1:
        raise ValueError(f"{name}: in1 should have one dimension, not {in1.ndim}")
    if in2.ndim != order:
        raise ValueError(f"{name}: in2 should have {order} dimensions, not {in2.ndim}")
    if mode != "valid":
        raise NotImplementedError(f"{name}: mode {mode!r}; there is 'valid'")
    if method != "direct":
        raise NotImplementedError(f"{name}: method {method!r}; there is 'direct'")
    count = len(in1) - max(in2.shape) + 1
    if count < 1:
        raise ValueError(f"{name}: a filter of {in2.shape} is longer than the signal, {len(in1)}")
    windows = np.lib.stride_tricks.sliding_window_view
    parts = [windows(in1._array, size)[:count, ::-1] for size in in2.shape]
    result = parts[0] @ in2._array.reshape(len(in2), -1)
    for part in parts[1:]:  # one axis of the filter after the other
        result = np.einsum("ij,ij...->i...", part, result.reshape(count, part.shape[1], -1))
    return fresh(np.ascontiguousarray(result.reshape(count)))


# --- filters


def firfilter(b: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """The signal x through the filter of coefficients b; with zi, its delays, (y, their end)."""
    from kernels.cupyx.scipy.signal import lfilter

    return lfilter(asarray(b), asarray([1.0]), asarray(x), axis, zi)


def firfilter_zi(b: Any) -> ndarray:
    """The delays of a filter whose answer to a step is steady from the first sample on."""
    b = operand(b)
    rest = b[1:].astype(np.result_type(b, np.float32))
    return fresh(rest[::-1].cumsum()[::-1])  # z[i] = z[i + 1] + b[i + 1]


def firfilter2(
    b: Any, x: Any, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None,
    method: str = "pad", irlen: int | None = None,
) -> ndarray:  # fmt: skip
    """The signal x through the filter b forwards and backwards: no phase, twice the order.

    Raises ValueError for a signal that is not longer than the padding, NotImplementedError for
    Gustafsson's method.
    """
    from kernels.cupyx.scipy.signal import filtfilt

    if method not in ("pad", "gust"):
        raise ValueError("method must be 'pad' or 'gust'.")
    if method == "gust":
        raise NotImplementedError("gust method not supported yet")
    b = asarray(b)
    return filtfilt(b.reshape(-1), asarray([1.0]), asarray(x), axis, padtype, padlen)


def freq_shift(x: ndarray, freq: float, fs: float) -> ndarray:
    """x[i] exp(-2 pi j freq / fs i), for float64, as in CuPy."""
    values = asarray(x)._array
    if values.dtype != np.float64:
        raise TypeError(f"freq_shift: x is {values.dtype}, not float64; pass x.astype(float)")
    angle = -2 * math.pi * freq / fs * np.arange(values.size).reshape(values.shape)
    return fresh(values * np.exp(1j * angle))


def channelize_poly(x: ndarray, h: ndarray, n_chans: int) -> ndarray:
    """The signal in n_chans channels of equal width, (n_chans, len(x) // n_chans), by a polyphase
    filter of len(h) // n_chans taps, at most 32."""
    require("channelize_poly", x)
    require("channelize_poly", h)
    dtype = np.promote_types(x.dtype, h.dtype)
    if dtype.char not in "fdFD":
        raise NotImplementedError(f"channelize_poly: data type ({dtype}) not allowed; use a float")
    taps, points = len(h) // n_chans, len(x) // n_chans
    if taps > _MOST_TAPS:
        raise NotImplementedError(
            f"channelize_poly: {taps} taps in each filter, the most is {_MOST_TAPS}; shorten h or"
            " take more channels"
        )
    coefficients = h._array[: taps * n_chans].astype(dtype).reshape(taps, n_chans).conj()
    rows = x._array[: points * n_chans].astype(dtype).reshape(points, n_chans)[:, ::-1].conj()
    y = np.zeros((points, n_chans), np.result_type(dtype, np.complex64))
    for tap, line in enumerate(coefficients[:points]):
        y[tap:] += line * rows[: points - tap]
    return fresh(fft.fft(fresh(y))._array.conj().T)


# --- cepstra


def real_cepstrum(x: Any, n: int | None = None, axis: int = -1) -> ndarray:
    """The inverse transform of the logarithm of the spectrum's size."""
    spectrum = fft.fft(asarray(x), n=n, axis=axis)
    return fft.ifft(_log_size(spectrum), n=n, axis=axis).real


def _log_size(spectrum: ndarray) -> ndarray:
    size = quietly(np.log, np.abs(spectrum._array))
    return fresh(size.astype(spectrum.dtype))


def complex_cepstrum(x: Any, n: int | None = None, axis: int = -1) -> tuple[ndarray, ndarray]:
    """(cepstrum, samples of delay): the inverse transform of the logarithm of the spectrum, whose
    phase is unwrapped and has no linear part."""
    spectrum = fft.fft(asarray(x), n=n, axis=axis)
    phase = np.unwrap(np.angle(spectrum._array))
    center = int(0.5 * (phase.size + 1))
    delay = np.rint(phase.reshape(-1)[center] / np.pi)
    index = np.arange(phase.size).reshape(phase.shape)
    log = _log_size(spectrum)._array + 1j * (phase - np.pi * delay * index / center)
    cepstrum = fft.ifft(fresh(log.astype(spectrum.dtype)), n=n, axis=axis).real
    return cepstrum, fresh(np.full(phase.shape, delay, phase.dtype))


def inverse_complex_cepstrum(ceps: Any, ndelay: Any) -> ndarray:
    """The signal of a complex cepstrum and its delay, an int or an int32 array."""
    delay = operand(ndelay)
    if isinstance(delay, np.ndarray) and delay.dtype != np.int32:
        raise TypeError(
            f"inverse_complex_cepstrum: ndelay is {delay.dtype}, not int32; pass int(ndelay[0])"
        )
    log = fft.fft(asarray(ceps))._array
    index = np.arange(log.size).reshape(log.shape)
    wrapped = log.imag + np.pi * delay * index / (0.5 * (log.size + 1))
    spectrum = np.exp(log.real + 1j * wrapped).astype(log.dtype)
    return fft.ifft(fresh(spectrum)).real


def minimum_phase(x: Any, n: int | None = None) -> ndarray:
    """The signal of least delay whose spectrum has the same size."""
    ceps = real_cepstrum(x, n=len(x) if n is None else n)._array
    odd = ceps.size & 1
    middle = int(0.5 * (ceps.size + odd))
    index = np.arange(ceps.size).reshape(ceps.shape)
    folds = [index == 0, index < middle, index == middle]
    window = ceps * np.select(folds, [1, 2, 1 - odd], 0).astype(ceps.dtype)
    spectrum = fft.fft(fresh(window))
    return fft.ifft(fresh(np.exp(spectrum._array))).real


# --- radar


def mvdr(x: Any, sv: Any, calc_cov: bool = True) -> ndarray:
    """Weights of the beamformer of minimum variance without distortion: x has a row per sensor (or
    is their covariance matrix, if not calc_cov), sv is the steering vector."""
    if x.shape[0] > x.shape[1]:
        raise ValueError(f"mvdr: {x.shape[0]} sensors and {x.shape[1]} samples; transpose x?")
    if x.shape[0] != sv.shape[0]:
        raise ValueError(f"mvdr: a steering vector of {sv.shape[0]} for {x.shape[0]} sensors")
    matrix = fresh(np.cov(x._array, dtype=x.dtype)) if calc_cov else x
    weights: Any = linalg.matmul(linalg.inv(matrix), sv)
    return weights / sv.conj().dot(weights)


def _prepared(x: Any, normalize: bool, window: Any) -> ndarray:
    """The pulse times a window, of length 1 if `normalize`."""
    if window is not None:
        n = x.shape[-1]
        if callable(window):
            x = x * window(fft.fftfreq(n).astype(x.dtype))
        elif isinstance(window, ndarray):
            if window.shape != (n,):
                raise ValueError(f"window must have the same length as data: {window.shape}, {n}")
            x = x * window
        else:
            from kernels.cupyx.scipy.signal.windows import get_window

            x = x * get_window(window, n, False).astype(x.dtype)
    return x / linalg.norm(x) if normalize else x


def pulse_compression(
    x: ndarray, template: ndarray, normalize: bool = False, window: Any = None,
    nfft: int | None = None,
) -> ndarray:  # fmt: skip
    """Each pulse, a row of x, correlated with the pulse that was sent."""
    _, samples = x.shape
    nfft = samples if nfft is None else nfft
    dtype = _functions.result_type(x, template)
    sent = fft.fft(_prepared(template, normalize, window), nfft)
    out = fft.ifft(fft.fft(x, nfft) * sent.conj(), nfft)
    return out if dtype.kind == "c" else out.real


def pulse_doppler(x: ndarray, window: Any = None, nfft: int | None = None) -> ndarray:
    """The spectrum along the pulses, the rows of x: speed by range."""
    pulses, _ = x.shape
    return fft.fft(_prepared(x.T, False, window), pulses if nfft is None else nfft).T


def cfar_alpha(pfa: float, N: int) -> float:
    """The factor on the mean of N reference cells for a probability of false alarm."""
    return N * (pfa ** (-1.0 / N) - 1)


def ca_cfar(
    array: ndarray, guard_cells: Any, reference_cells: Any, pfa: float = 1e-3
) -> tuple[ndarray, ndarray]:
    """(threshold, what is above it), 1-d or 2-d: the threshold is a factor of the mean of the
    reference cells around a cell and its guard cells, 0 where they do not fit."""
    ndim = array.ndim
    if not 1 <= ndim <= 2:
        raise TypeError(f"ca_cfar: only 1D and 2D arrays are supported, not {ndim}D")
    guard = tuple(guard_cells) if ndim == 2 else (guard_cells,)
    reference = tuple(reference_cells) if ndim == 2 else (reference_cells,)
    if len(guard) != ndim or len(reference) != ndim:
        raise TypeError("Guard and reference cells must be two dimensional.")
    outer = tuple(g + r for g, r in zip(guard, reference))
    for size, around in zip(array.shape, outer):
        if size <= 2 * around:
            raise ValueError(f"Array too small for given parameters: {array.shape}, {outer} around")
    cells = math.prod(2 * o + 1 for o in outer) - math.prod(2 * g + 1 for g in guard)
    if ndim == 2:  # CuPy's count of them
        cells = 2 * reference[0] * (2 * outer[1] + 1) + 2 * (2 * guard[0] + 1) * reference[1]
    table = array._array.astype(np.float32)
    for axis in range(ndim):
        table = table.cumsum(axis, dtype=np.float32)
    table = np.pad(table, [(1, 0)] * ndim)
    inside = tuple(slice(o, n - o) for o, n in zip(outer, array.shape))
    total = _boxes(table, outer, outer) - _boxes(table, outer, guard)
    threshold = np.zeros(array.shape, np.float32)
    threshold[inside] = np.float32(cfar_alpha(pfa, cells)) / np.float32(cells) * total
    return fresh(threshold), fresh(array._array - threshold > 0)


def _boxes(table: np.ndarray, margin: tuple, half: tuple) -> np.ndarray:
    """Sums of boxes of `half` cells to each side, of cells `margin` or more from the border, by the
    table of the sums up to each cell."""
    for axis, (m, h) in enumerate(zip(margin, half)):
        count = table.shape[axis] - 1 - 2 * m
        at = lambda first: (slice(None),) * axis + (slice(first, first + count),)  # noqa: B023, E731
        table = table[at(m + h + 1)] - table[at(m - h)]
    return table
