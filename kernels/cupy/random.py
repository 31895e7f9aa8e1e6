"""`cupy.random`: NumPy's generators by distribution.

The numbers follow the distributions of CuPy's functions; they are not the same bit for bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ._absent import unknown
from ._array import fresh, ndarray
from ._creation import asarray
from ._generate import inputs
from ._index import entries

#: distributions: the method of NumPy's RandomState, where the names differ
_RENAMED = {"random": "random_sample", "ranf": "random_sample", "sample": "random_sample"}
_FLOATS = (np.float32, np.float64)
#: functions whose dtype is float32 or float64
_REAL = frozenset(
    "random random_sample ranf sample standard_normal normal uniform standard_exponential".split()
)


class RandomState:
    """A generator with a method for each distribution. `seed` is an integer, an array or None."""

    def __init__(self, seed: Any = None, method: int = 100) -> None:
        self.method = method
        self.seed(seed)

    def seed(self, seed: Any = None) -> None:
        """Start anew from a seed, None: one of the system's."""
        self._state = np.random.RandomState(_seed(seed))

    def _draw(self, name: str, args: tuple, options: dict[str, Any]) -> ndarray:
        dtype = options.pop("dtype", float)
        if name in _REAL and np.dtype(dtype) not in _FLOATS:
            raise TypeError(f"{name}: dtype must be float32 or float64, not {np.dtype(dtype)}")
        method = getattr(self._state, _RENAMED.get(name, name))
        values = [inputs(value) for value in args]
        drawn = method(*values, **{key: inputs(value) for key, value in options.items()})
        return fresh(np.asarray(drawn).astype(dtype, copy=False))

    def rand(self, *size: int, dtype: Any = float) -> ndarray:
        """Uniform on [0, 1)."""
        return self._draw("random_sample", (), {"size": size or None, "dtype": dtype})

    def randn(self, *size: int, dtype: Any = float) -> ndarray:
        """Standard normal."""
        return self._draw("standard_normal", (), {"size": size or None, "dtype": dtype})

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> ndarray:
        """Integers from low (0 if high is None) to high, without it."""
        return fresh(self._state.randint(inputs(low), inputs(high), size, np.dtype(dtype)))

    def random_integers(self, low: Any, high: Any = None, size: Any = None) -> ndarray:
        """Integers from low (1 if high is None) to high, with it."""
        low, high = (1, low) if high is None else (low, high)
        return self.randint(low, high + 1, size)

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> ndarray:
        """Elements of an array, or of range(a)."""
        return fresh(self._state.choice(inputs(a), size, replace, inputs(p)))

    def shuffle(self, a: ndarray) -> None:
        """Shuffle along the first axis, in place."""
        if not isinstance(a, ndarray):
            raise TypeError("The array must be cupy.ndarray")
        if not a.ndim:
            raise TypeError("An array whose ndim is 0 is not supported")
        self._state.shuffle(a._array)

    def permutation(self, a: Any) -> ndarray:
        """A shuffled copy, or range(a) shuffled."""
        return fresh(self._state.permutation(inputs(a)))

    def bytes(self, length: int) -> bytes:
        return self._state.bytes(length)

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> ndarray:
        return fresh(self._state.multinomial(n, inputs(pvals), size))

    def multivariate_normal(
        self, mean: Any, cov: Any, size: Any = None, check_valid: str = "ignore", tol: float = 1e-8,
        method: str = "cholesky", dtype: Any = float,
    ) -> ndarray:  # fmt: skip
        """Normal with a covariance matrix."""
        mean, cov = inputs(mean), inputs(cov)
        drawn = self._state.multivariate_normal(mean, cov, size, check_valid, tol)
        return fresh(drawn.astype(dtype, copy=False))


def _seed(seed: Any) -> Any:
    if seed is None or isinstance(seed, np.ndarray | list):
        return seed
    return int(asarray(seed).item()) % 2**32


def _distribution(name: str, signature: str) -> Callable:
    """A function of RandomState with CuPy's signature, which draws what NumPy's method draws."""
    body = (
        f"def {name}{signature.replace('(', '(self, ', 1)}:\n"
        "    options = dict(locals())\n"
        "    del options['self']\n"
        f"    return self._draw({name!r}, (), options)"
    )
    scope: dict[str, Any] = {}
    exec(compile(body, f"<cupy.random.{name}>", "exec"), scope)
    scope[name].__doc__ = f"Numbers of the distribution `{name}`, as numpy.random.{name}."
    return scope[name]


_OWN = frozenset(
    "get_random_state set_random_state reset_states default_rng annotations bytes".split()
)
for _name, _entry in entries("cupy.random").items():
    if _entry.kind == "function" and not hasattr(RandomState, _name) and _name not in _OWN:
        setattr(RandomState, _name, _distribution(_name, _entry.text))
RandomState.tomaxint = lambda self, size=None: self.randint(0, 2**63 - 1, size, np.int64)


class _Current(threading.local):
    state: RandomState | None = None


_current = _Current()


def get_random_state() -> RandomState:
    """The generator of the functions of this module, in this thread."""
    if _current.state is None:
        _current.state = RandomState()
    return _current.state


def set_random_state(rs: RandomState) -> None:
    """Set the generator of the functions of this module."""
    if not isinstance(rs, RandomState):
        raise TypeError(f"Random state must be an instance of RandomState, not {type(rs)}")
    _current.state = rs


def reset_states() -> None:
    """Start anew from a seed of the system's."""
    _current.state = None


def seed(seed: Any = None) -> None:
    """Start the generator of this module's functions anew."""
    get_random_state().seed(seed)


class BitGenerator:
    """A source of random bits: here always NumPy's Philox, whatever the class."""

    def __init__(self, seed: Any = None, *, size: int = -1) -> None:
        self._bits = np.random.Philox(_seed(seed))


class XORWOW(BitGenerator):
    """See BitGenerator."""


class MRG32k3a(BitGenerator):
    """See BitGenerator."""


class Philox4x3210(BitGenerator):
    """See BitGenerator."""


class Generator:
    """A generator on a BitGenerator: the methods of CuPy's Generator, which are NumPy's."""

    _METHODS = frozenset(
        "beta binomial chisquare dirichlet exponential f gamma geometric hypergeometric integers"
        " logseries multinomial normal poisson power random standard_exponential standard_gamma"
        " standard_normal uniform".split()
    )

    def __init__(self, bit_generator: BitGenerator) -> None:
        self.bit_generator = bit_generator
        self._generator = np.random.Generator(bit_generator._bits)

    def __getattr__(self, name: str) -> Any:
        if name not in self._METHODS:
            raise AttributeError(f"'Generator' object has no attribute {name!r}")
        method = getattr(self._generator, name)

        def draw(*args: Any, **options: Any) -> ndarray:
            values = [inputs(value) for value in args]
            return fresh(method(*values, **{k: inputs(v) for k, v in options.items()}))

        draw.__name__ = name
        return draw


def default_rng(seed: Any = None) -> Generator:
    """A new Generator."""
    if isinstance(seed, Generator):
        return seed
    return Generator(seed if isinstance(seed, BitGenerator) else XORWOW(seed))


def _function(name: str) -> Callable:
    def draw(*args: Any, **options: Any) -> Any:
        return getattr(get_random_state(), name)(*args, **options)

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = getattr(RandomState, name).__doc__
    return draw


for _name, _entry in entries("cupy.random").items():
    if _entry.kind == "function" and hasattr(RandomState, _name) and _name != "seed":
        globals()[_name] = _function(_name)


def __getattr__(name: str) -> Any:
    raise unknown("cupy.random", name, globals())
