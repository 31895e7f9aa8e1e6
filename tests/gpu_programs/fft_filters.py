"""Filters in the frequency domain: images, a spectrogram, matched filtering of a chirp.

python fft_filters.py --size 256
"""

import argparse

import cupy as cp
import cupyx.scipy.fft
import numpy as np
from cupyx.scipy import signal

apply_transfer = cp.ElementwiseKernel(
    "float64 re, float64 im, float64 fx, float64 fy, float64 cutoff, int32 order",
    "float64 out_re, float64 out_im",
    """
    double ratio = sqrt(fx * fx + fy * fy) / cutoff;
    double gain = 1.0 / (1.0 + pow(ratio, 2.0 * order));
    out_re = gain * re;
    out_im = gain * im;
    """,
    "butterworth",
)


def butterworth_low_pass(image, cutoff, order=2):
    """Low-pass filter of an image: transform, weight, transform back."""
    spectrum = cp.fft.fft2(image)
    fy = cp.fft.fftfreq(image.shape[0])[:, None]
    fx = cp.fft.fftfreq(image.shape[1])[None, :]
    re, im = apply_transfer(spectrum.real, spectrum.imag, fx, fy, cutoff, order)
    return cp.fft.ifft2(re + 1j * im).real


def gaussian_high_pass(image, sigma):
    spectrum = cp.fft.rfft2(image)
    fy = cp.fft.fftfreq(image.shape[0])[:, cp.newaxis]
    fx = cp.fft.rfftfreq(image.shape[1])[cp.newaxis, :]
    spectrum *= 1 - cp.exp(-2 * (np.pi * sigma) ** 2 * (fx**2 + fy**2))
    return cp.fft.irfft2(spectrum, s=image.shape)


def spectrogram(samples, window_size, hop):
    """Power of overlapping windows: frames without a copy, one batched transform."""
    frames = cp.lib.stride_tricks.as_strided(
        samples,
        shape=((len(samples) - window_size) // hop + 1, window_size),
        strides=(samples.strides[0] * hop, samples.strides[0]),
    )
    spectra = cp.fft.rfft(frames * cp.hanning(window_size), axis=1)
    return cp.abs(spectra) ** 2


def matched_filter(received, pulse):
    """Correlation of the received signal with the pulse, by fast convolution."""
    n = cupyx.scipy.fft.next_fast_len(len(received) + len(pulse) - 1)
    product = cupyx.scipy.fft.fft(received, n) * cupyx.scipy.fft.fft(pulse, n).conj()
    return cupyx.scipy.fft.ifft(product)[: len(received)].real


def denoise(samples, keep):
    """Keep the strongest coefficients of a cosine transform."""
    coefficients = cupyx.scipy.fft.dct(samples, norm="ortho")
    threshold = cp.sort(cp.abs(coefficients))[-keep]
    coefficients[cp.abs(coefficients) < threshold] = 0
    return cupyx.scipy.fft.idct(coefficients, norm="ortho")


def make_signal(n, rng):
    t = np.arange(n) / n
    clean = np.sin(2 * np.pi * 20 * t) + 0.5 * np.sin(2 * np.pi * 55 * t + 1)
    return clean, clean + 0.4 * rng.standard_normal(n)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--delay", type=int, default=700)
    args = parser.parse_args(argv)
    rng = np.random.default_rng(5)
    image = rng.random((args.size, args.size + 10))
    d_image = cp.asarray(image)
    low = butterworth_low_pass(d_image, 0.1)
    high = gaussian_high_pass(d_image, 2.0)

    clean, noisy = make_signal(args.samples, rng)
    power = spectrogram(cp.asarray(noisy), 256, 64)
    peak = int(cp.argmax(power.mean(axis=0)))
    print(f"strongest band: {peak}")

    t = np.arange(200) / 200
    pulse = np.sin(2 * np.pi * (5 * t + 20 * t**2))
    received = 0.3 * rng.standard_normal(args.samples)
    received[args.delay : args.delay + len(pulse)] += pulse
    response = matched_filter(cp.asarray(received), cp.asarray(pulse))
    print(f"echo after {int(cp.argmax(response))} samples, sent after {args.delay}")

    smooth = denoise(cp.asarray(noisy), 10)
    b, a = signal.butter(4, 0.1)
    filtered = signal.filtfilt(b, a, cp.asarray(noisy))
    error = float(cp.sqrt(((smooth - cp.asarray(clean)) ** 2).mean()))
    print(f"error after denoising: {error:.3f}")
    return {
        "image": image,
        "low": low.get(),
        "high": high.get(),
        "noisy": noisy,
        "power": power.get(),
        "pulse": pulse,
        "received": received,
        "response": response.get(),
        "smooth": smooth.get(),
        "filtered": filtered.get(),
    }


if __name__ == "__main__":
    main()
