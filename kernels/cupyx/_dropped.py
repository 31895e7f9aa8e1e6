"""Functions of CuPy that only some versions of SciPy have, on NumPy's arrays.

Wavelets left SciPy with 1.15 and `linalg.kron` with 1.17; `sparse.matrix_transpose` came with 1.18,
which warns that `spatial.distance_matrix` will leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def _cwt(data: np.ndarray, wavelet: Callable, widths: Iterable[float]) -> np.ndarray:
    rows = []
    for width in widths:
        shape = np.asarray(wavelet(min(10 * width, len(data)), width))
        rows.append(np.convolve(data, np.conj(shape[::-1]), mode="same"))
    return np.array(rows)


def _morlet(M: int, w: float = 5.0, s: float = 1.0, complete: bool = True) -> np.ndarray:
    x = np.linspace(-s * 2 * np.pi, s * 2 * np.pi, M)
    wave = np.exp(1j * w * x)
    if complete:
        wave -= np.exp(-0.5 * w**2)
    return wave * np.exp(-0.5 * x**2) * np.pi**-0.25


def _morlet2(M: int, s: float, w: float = 5) -> np.ndarray:
    x = (np.arange(M) - (M - 1) / 2) / s
    return np.sqrt(1 / s) * np.exp(1j * w * x) * np.exp(-0.5 * x**2) * np.pi**-0.25


def _qmf(hk: np.ndarray) -> np.ndarray:
    return hk[::-1] * np.where(np.arange(len(hk)) % 2, -1, 1)


def _ricker(points: int, a: float) -> np.ndarray:
    squares = (np.arange(points) - (points - 1) / 2) ** 2 / a**2
    return 2 / (np.sqrt(3 * a) * np.pi**0.25) * (1 - squares) * np.exp(-squares / 2)


def _distance_matrix(x: np.ndarray, y: np.ndarray, p: float = 2.0) -> np.ndarray:
    from scipy.spatial.distance import cdist

    return cdist(x, y, "minkowski", p=p)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "scipy.linalg.kron": np.kron,
    "scipy.signal.cwt": _cwt,
    "scipy.signal.morlet": _morlet,
    "scipy.signal.morlet2": _morlet2,
    "scipy.signal.qmf": _qmf,
    "scipy.signal.ricker": _ricker,
    "scipy.spatial.distance_matrix": _distance_matrix,
    "scipy.sparse.matrix_transpose": lambda A: A.transpose(),
}
