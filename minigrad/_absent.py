"""Classes of torch that no object of minigrad has, and that libraries import to ask for them."""

from __future__ import annotations

from typing import Any, NoReturn


def absent(name: str, advice: str, base: type = object) -> type:
    """A class of this name; NotImplementedError with the advice where an object would be made."""

    def new(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: {advice}")

    return type(
        name, (base,), {"__new__": new, "__doc__": "NotImplementedError where one is made."}
    )
