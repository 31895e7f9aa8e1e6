"""Operations whose launches are remembered together."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kernels import dispatch


@lru_cache(4096)
def _operation(name: str, **options: Any) -> Any:
    """An operation of the active dialect with these options, as a function of arrays."""
    return lambda *arrays: getattr(dispatch.active, name)(*arrays, **options)


def run(name: str, *arrays: Any, **options: Any) -> Any:
    """The result of an operation, whose launches are remembered."""
    return dispatch.together(_operation(name, **options), *arrays)
