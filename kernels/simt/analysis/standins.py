"""Stand-ins for collectives in the scalar model of a kernel: functions that only have types.

They refuse the argument types that numba-cuda refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

_SHUFFLED = (types.int32, types.int64, types.float32, types.float64)


def _check_mask(name: str, mask: types.Type) -> None:
    if not isinstance(mask, types.Integer):
        raise TypingError(f"cuda.{name}: the mask must be an integer, not {mask}")


def _check_shuffle(name: str, mask: types.Type, value: types.Type, *lane: types.Type) -> None:
    _check_mask(name, mask)
    if value not in _SHUFFLED:
        raise TypingError(
            f"cuda.{name} shuffles {', '.join(map(str, _SHUFFLED))}, not {value}: convert it, as in"
            " int32(x)"
        )


def _check_vote(name: str, mask: types.Type, predicate: types.Type) -> None:
    _check_mask(name, mask)
    if not isinstance(predicate, types.Integer | types.Boolean):
        raise TypingError(
            f"cuda.{name}: the predicate must be an integer or a boolean, not {predicate}"
        )


def _check_count(name: str, predicate: types.Type) -> None:
    if not isinstance(predicate, types.Integer):
        raise TypingError(
            f"cuda.{name}: the predicate must be an integer, not {predicate}: write int32(...)"
            " around it"
        )


def _check_match(name: str, mask: types.Type, value: types.Type) -> None:
    _check_mask(name, mask)
    if not isinstance(value, types.Number | types.Boolean) or isinstance(value, types.Complex):
        raise TypingError(f"cuda.{name} compares integers and floats, not {value}")


def _check_nothing(name: str) -> None:
    pass


def _made(name: str, check: Callable, result: types.Type | None) -> object:
    """A function of the type `result`, or of its second argument's."""

    def typed(typingctx, *args):
        plain = [types.unliteral(arg) for arg in args]
        check(name, *plain)
        returned = plain[1] if result is None else result
        return returned(*args), lambda context, builder, sig, args: None

    typed.__name__ = name
    return intrinsic(typed)


_RESULTS: dict[str, tuple[Callable, types.Type | None]] = {
    **dict.fromkeys(
        ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"), (_check_shuffle, None)
    ),
    **dict.fromkeys(("all_sync", "any_sync", "eq_sync"), (_check_vote, types.boolean)),
    **dict.fromkeys(
        ("syncthreads_count", "syncthreads_and", "syncthreads_or"), (_check_count, types.int32)
    ),
    **dict.fromkeys(("match_any_sync", "match_all_sync"), (_check_match, types.int32)),
    "match_all_pred": (_check_match, types.boolean),
    "ballot_sync": (_check_vote, types.int32),
    "activemask": (_check_nothing, types.uint32),
}
BY_NAME = {name: _made(name, *about) for name, about in _RESULTS.items()}
