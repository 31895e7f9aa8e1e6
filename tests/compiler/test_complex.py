"""Compiled functions of complex numbers and Fourier transforms."""

from __future__ import annotations

import pytest

import minigrad

from .test_compile import close


def rotated(x, y):
    """Rotary embedding, as LLaMA's reference code does it."""
    pairs = minigrad.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    turns = minigrad.polar(minigrad.ones(4), minigrad.arange(4) * 0.3)
    return minigrad.view_as_real(pairs * turns).flatten(-2) * y


FUNCTIONS = {
    "parts": lambda x, y: minigrad.complex(x, y).exp().real,
    "powers": lambda x, y: (minigrad.complex(x, y) ** 2).abs(),
    "angle": lambda x, y: minigrad.complex(x, y).angle(),
    "fft": lambda x, y: (minigrad.fft.fft(x) * minigrad.fft.ifft(y.to(minigrad.complex64))).abs(),
    "convolution": lambda x, y: minigrad.fft.irfft(minigrad.fft.rfft(x) * minigrad.fft.rfft(y)),
    "two dimensions": lambda x, y: minigrad.fft.fft2(x * y).imag,
    "stft": lambda x, y: minigrad.stft(
        x.repeat(1, 5) * y.repeat(1, 5), 8, 4, window=minigrad.hann_window(8), return_complex=True
    ).abs(),
    "windows": lambda x, y: (x.unfold(-1, 3, 2) * y.unfold(-1, 3, 2)).sum(-1),
    "rotated": rotated,
    "conjugate": lambda x, y: (minigrad.complex(x, y).conj() * minigrad.complex(y, x)).imag,
    "product": lambda x, y: (minigrad.complex(x, y) @ minigrad.complex(y, x).mH).real,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_as_without(name, seed):
    function = FUNCTIONS[name]
    compiled = minigrad.compile(function, fullgraph=True)
    minigrad.manual_seed(seed)
    for _ in range(3):
        x, y = (minigrad.randn(3, 8) for _ in range(2))
        found = []
        for call in (function, compiled):
            leaves = [t.clone().requires_grad_() for t in (x, y)]
            result = call(*leaves)
            (result * (1 + minigrad.arange(result.numel()).reshape(result.shape))).sum().backward()
            found.append((result, *[leaf.grad for leaf in leaves]))
        for mine, wanted in zip(*reversed(found), strict=True):
            close(mine, wanted)
    assert "1 recorded, 2 replayed, 0 eager" in compiled.report()
