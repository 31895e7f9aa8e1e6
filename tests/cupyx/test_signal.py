"""cupyx.signal against sums written out, and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.signal

import kernels.cupy as cp
from kernels.cupyx import signal


def test_convolutions_of_higher_order(rng):
    x = rng.normal(size=20)
    for order, function in ((2, signal.convolve1d2o), (3, signal.convolve1d3o)):
        h = rng.normal(size=(3, 5, 4)[:order])
        expected = []
        for i in range(20 - 5 + 1):
            total = 0.0
            for index in np.ndindex(h.shape):
                product = h[index]
                for size, j in zip(h.shape, index):
                    product *= x[i + size - 1 - j]
                total += product
            expected.append(total)
        got = function(cp.asarray(x), cp.asarray(h))
        np.testing.assert_allclose(got.get(), expected, atol=1e-12)
        for args, options, error in (
            ((h, h), {}, ValueError),
            ((x, x), {}, ValueError),
            ((x[:2], h), {}, ValueError),
            ((x, h), {"mode": "full"}, NotImplementedError),
            ((x, h), {"method": "fft"}, NotImplementedError),
        ):
            with pytest.raises(error, match=f"convolve1d{order}o"):
                function(*map(cp.asarray, args), **options)


def test_fir_filters(rng):
    b, x = rng.normal(size=5), rng.normal(size=(3, 60))
    d, y = cp.asarray(b), cp.asarray(x)
    np.testing.assert_allclose(signal.firfilter(d, y).get(), scipy.signal.lfilter(b, 1, x))
    zi = signal.firfilter_zi(d)
    np.testing.assert_allclose(zi.get(), scipy.signal.lfilter_zi(b, 1), atol=1e-12)
    start = cp.broadcast_to(zi, (3, 4)).copy()
    ours, end = signal.firfilter(d, y, zi=start)
    theirs, their_end = scipy.signal.lfilter(b, 1, x, zi=start.get())
    np.testing.assert_allclose(ours.get(), theirs)
    np.testing.assert_allclose(end.get(), their_end)
    for padtype in ("odd", "even", "constant", None):
        ours = signal.firfilter2(d, y, padtype=padtype)
        theirs = scipy.signal.filtfilt(b, 1, x, padtype=padtype)
        np.testing.assert_allclose(ours.get(), theirs, atol=1e-12)
    with pytest.raises(NotImplementedError, match="gust"):
        signal.firfilter2(d, y, method="gust")
    with pytest.raises(ValueError, match="padlen"):
        signal.firfilter2(d, y[:, :10])


def test_a_shift_of_frequency(rng):
    x = rng.normal(size=32)
    got = signal.freq_shift(cp.asarray(x), 3.0, 100.0).get()
    np.testing.assert_allclose(got, x * np.exp(-2j * np.pi * 0.03 * np.arange(32)))
    with pytest.raises(TypeError, match="not float64"):
        signal.freq_shift(cp.asarray(x, np.float32), 3.0, 100.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_a_polyphase_channelizer(dtype, rng):
    n, taps = 4, 3
    x, h = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in (n * 7 + 2, n * taps))
    x, h = (
        v.astype(dtype) if np.dtype(dtype).kind == "c" else v.real.astype(dtype) for v in (x, h)
    )
    y = np.zeros((7, n), complex)
    for point, channel, tap in np.ndindex(7, n, taps):
        if point >= tap:
            sample = x[(point - tap) * n + n - 1 - channel]
            y[point, channel] += np.conj(h[tap * n + channel]) * np.conj(sample)
    got = signal.channelize_poly(cp.asarray(x), cp.asarray(h), n)
    assert got.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(got.get(), np.fft.fft(y).conj().T, rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="33 taps"):
        signal.channelize_poly(cp.asarray(x), cp.ones(33, dtype), 1)


def test_cepstra(rng):
    for size in (64, 65):
        x = rng.normal(size=size)
        x[0] += 20  # no delay: what CuPy does of one does not come back exactly
        spectrum = np.fft.fft(x)
        expected = np.fft.ifft(np.log(np.abs(spectrum))).real
        np.testing.assert_allclose(signal.real_cepstrum(cp.asarray(x)).get(), expected, atol=1e-12)
        ceps, delay = signal.complex_cepstrum(cp.asarray(x))
        assert delay.shape == (size,) and (delay == delay[0]).all()
        assert int(delay[0]) == 0
        back = signal.inverse_complex_cepstrum(ceps, 0)
        np.testing.assert_allclose(back.get(), x, atol=1e-9)
        later, delay = signal.complex_cepstrum(cp.asarray(np.roll(x, 3)))
        assert int(delay[0]) == -3
        if size % 2 == 0:
            np.testing.assert_allclose(later.get(), ceps.get(), atol=1e-9)
        with pytest.raises(TypeError, match="not int32"):
            signal.inverse_complex_cepstrum(ceps, delay * 1.0)
        least = signal.minimum_phase(cp.asarray(x)).get()
        np.testing.assert_allclose(np.abs(np.fft.fft(least)), np.abs(spectrum), rtol=1e-6)
        same = signal.minimum_phase(cp.asarray(np.roll(x, 9))).get()
        np.testing.assert_allclose(same, least, atol=1e-9, err_msg="the delay does not matter")
        assert np.argmax(np.abs(least)) == 0


def test_radar(rng):
    pulse = scipy.signal.chirp(np.arange(16), 0.05, 15, 0.4)
    echoes = np.zeros((3, 64))
    for row, at in enumerate((5, 20, 33)):
        echoes[row, at : at + 16] = pulse
    got = signal.pulse_compression(cp.asarray(echoes), cp.asarray(pulse), normalize=True)
    assert got.dtype == np.float64 and got.argmax(axis=1).tolist() == [5, 20, 33]
    window = signal.pulse_compression(cp.asarray(echoes), cp.asarray(pulse), window="hamming")
    tapered = pulse * scipy.signal.get_window("hamming", 16, False)
    expected = np.fft.ifft(np.fft.fft(echoes, 64) * np.fft.fft(tapered, 64).conj()).real
    np.testing.assert_allclose(window.get(), expected, atol=1e-12)
    speeds = signal.pulse_doppler(cp.asarray(echoes), nfft=8)
    np.testing.assert_allclose(speeds.get(), np.fft.fft(echoes, 8, axis=0), atol=1e-12)

    samples = rng.normal(size=(4, 200)) + 1j * rng.normal(size=(4, 200))
    steering = np.exp(1j * np.arange(4))
    weights = signal.mvdr(cp.asarray(samples), cp.asarray(steering)).get()
    inverse = scipy.linalg.inv(np.cov(samples))
    expected = inverse @ steering / (steering.conj() @ inverse @ steering)
    np.testing.assert_allclose(weights, expected)
    with pytest.raises(ValueError, match="transpose x"):
        signal.mvdr(cp.asarray(samples.T), cp.asarray(steering))


def test_detection_with_a_constant_rate_of_false_alarms(rng):
    x = rng.exponential(size=50).astype(np.float32)
    guard, reference = 2, 4
    threshold, found = (v.get() for v in signal.ca_cfar(cp.asarray(x), guard, reference, 1e-2))
    alpha = signal.cfar_alpha(1e-2, 8)
    assert abs(alpha - 8 * (1e-2 ** (-1 / 8) - 1)) < 1e-12
    for i in range(50):
        inside = 6 <= i < 44
        cells = [*range(i - 6, i - 2), *range(i + 3, i + 7)]
        expected = alpha * x[cells].mean() if inside else 0
        np.testing.assert_allclose(threshold[i], expected, rtol=1e-4)
        assert found[i] == (x[i] > threshold[i])
    image = rng.exponential(size=(20, 30)).astype(np.float32)
    threshold, _ = (v.get() for v in signal.ca_cfar(cp.asarray(image), (1, 2), (2, 3)))
    whole, kernel = np.zeros((20, 30)), np.ones((7, 11))
    kernel[2:5, 3:8] = 0
    whole[3:17, 5:25] = scipy.signal.correlate2d(image, kernel, "valid") / kernel.sum()
    np.testing.assert_allclose(threshold, signal.cfar_alpha(1e-3, 62) * whole, rtol=1e-3)
    with pytest.raises(ValueError, match="too small"):
        signal.ca_cfar(cp.asarray(x[:12]), guard, reference)
