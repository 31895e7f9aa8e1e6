"""`cuda.ldca`, `cuda.stcs` and their like.

A cache hint steers a GPU's caches and changes no result: the front end makes a load or a store of
it, and what is here only checks the types that numba-cuda checks.
"""

from __future__ import annotations

from numba.core import types
from numba.core.errors import TypingError

from kernels.simt.devlib.maths import named


def _check(array: types.Type, index: types.Type) -> types.Array:
    if not isinstance(array, types.Array):
        raise TypingError(f"a load or store with a cache hint operates on arrays, not {array}")
    parts = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    if not all(isinstance(types.unliteral(part), types.Integer) for part in parts):
        raise TypingError(f"a load or store with a cache hint: {index} is not a valid index")
    if len(parts) != array.ndim:
        raise TypingError(
            f"a load or store with a cache hint: Expected {array.ndim} indices, got {len(parts)}"
        )
    if not isinstance(array.dtype, types.Integer | types.Float):
        raise TypingError(
            "a load or store with a cache hint requires array of integer or float type, not of"
            f" {array.dtype}"
        )
    return array


def _hinted_types(typingctx, array, index, value):
    """`value`, which is loaded from or stored to `array[index]`."""
    _check(array, index)
    value = types.unliteral(value)

    def generate(context, builder, sig, args):
        return args[2]

    return value(array, index, value), generate


hinted = named(_hinted_types, "hinted", "cache_hint")
