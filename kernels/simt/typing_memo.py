"""Type inference that remembers what an operation gives for operands of certain types.

Numba tries an operation's templates one by one, at every place where it is used and in every
kernel again: most of the time of its type inference. For numbers and arrays the answer is always
the same.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.compiler import CompilerBase

_REMEMBERED = types.Number | types.Boolean | types.Array
_signatures: dict[tuple, Any] = {}


class _Remembering:
    """Numba's typing context, but for the operations whose signature is known."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: tuple, kws: dict) -> Any:
        if kws or not isinstance(func, types.Function | types.NumberClass):
            return self._context.resolve_function_type(func, args, kws)
        flat = [t for arg in args for t in (arg if isinstance(arg, types.BaseTuple) else (arg,))]
        if not all(isinstance(t, _REMEMBERED) for t in flat):
            return self._context.resolve_function_type(func, args, kws)
        key = (self._context, func, tuple(args))
        found = _signatures.get(key)
        if found is None:
            found = self._context.resolve_function_type(func, args, kws)
            if found is not None:
                _signatures[key] = found
        return found


class KernelCompiler(CompilerBase):
    """A Numba pipeline whose type inference remembers operations."""

    def __init__(self, typingctx: Any, *args: Any) -> None:
        super().__init__(typingctx, *args)
        self.state.typingctx = _Remembering(typingctx)
