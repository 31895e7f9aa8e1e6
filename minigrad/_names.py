"""Names in errors: of types, and of what is closest to a name that does not exist."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import Any

# Where a name that is missing in one namespace may be: `minigrad.Adam` is `minigrad.optim.Adam`.
_ELSEWHERE = (
    "minigrad",
    "minigrad.nn",
    "minigrad.nn.functional",
    "minigrad.nn.init",
    "minigrad.nn.utils",
    "minigrad.optim",
    "minigrad.optim.lr_scheduler",
    "minigrad.utils.data",
    "minigrad.autograd",
    "minigrad.cuda",
)
_ABSENT = "either torch has no such name, or it is a part of torch that minigrad doesn't have"


def kind(value: Any) -> str:
    """The type of a value, with its package where that is not Python itself: `torch.Tensor`."""
    cls = type(value)
    package = cls.__module__.split(".")[0]
    return cls.__name__ if package == "builtins" else f"{package}.{cls.__name__}"


def suggestion(name: str, names: Iterable[str]) -> str | None:
    """The name that `name` may be a misspelling of."""
    public = sorted((n for n in names if not n.startswith("_")), reverse=True)
    by_lower = {n.lower(): n for n in public}  # DataLoader rather than the module dataloader
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.75)
    return by_lower[found[0]] if found else None


def _elsewhere(name: str, module: str) -> str | None:
    """The full name of what another namespace has under this name."""
    for other in _ELSEWHERE:
        if other != module and name in vars(sys.modules.get(other, object)):
            return f"{other}.{name}"
    return None


def refuse(module: str) -> Callable[[str], Any]:
    """The function `__getattr__` of a module: raises for every name, with the closest one."""

    def __getattr__(name: str) -> Any:
        owner = sys.modules[module]
        message = f"module {module!r} has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(message, name=name, obj=owner)
        close = suggestion(name, dir(owner))
        if close is None or close.lower() != name.lower():
            close = _elsewhere(name, module) or close
        tail = _ABSENT if close is None else f"did you mean {close!r}?"
        # Without its attribute `name`, a traceback does not add the suggestion once more.
        raise AttributeError(f"{message}: {tail}", name=None, obj=owner)

    return __getattr__
