"""Whether compiled functions record, replay or run eagerly: `compiler.set_stance`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)


class _State:
    stance = "default"


state = _State()


class set_stance:
    """Set what compiled functions do, at once, or for a `with` block, or as a decorator for calls.

    "default": they record what is new, and replay it. "force_eager": they run as they are written.
    "eager_on_recompile": they replay, and run eagerly what has no recording. "fail_on_recompile":
    that is a RuntimeError. "eager_then_compile": the first call is eager; "aot_eager_then_compile"
    is the same here.

    skip_guard_eval_unsafe: accepted, without effect; recordings are always checked. force_backend:
    None, or "eager" for "force_eager"; RuntimeError for others, since there is one compiler.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:
        if stance not in STANCES:
            raise RuntimeError(
                f"invalid torch.compile stance '{stance}': expected one of {', '.join(STANCES)}"
            )
        if force_backend is not None:
            if stance != "default":
                raise RuntimeError("cannot set force_backend with a stance other than 'default'")
            if force_backend != "eager":
                raise RuntimeError(
                    f"set_stance: expected force_backend None or 'eager', got {force_backend!r}"
                )
            stance = "force_eager"
        self._stance, self._outside = stance, state.stance
        state.stance = stance

    def __enter__(self) -> None:
        state.stance = self._stance

    def __exit__(self, *error: object) -> None:
        state.stance = self._outside

    def __call__(self, function: Callable) -> Callable:
        """The function, whose calls have this stance."""
        state.stance = self._outside  # only during calls

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self._stance):
                return function(*args, **kwargs)

        return wrapper
