"""Signals: `signal.windows`. Fourier transforms are in `minigrad.fft`."""

from minigrad._names import namespace
from minigrad.signal import windows

__all__ = ["windows"]

__getattr__, __dir__ = namespace(__name__)
