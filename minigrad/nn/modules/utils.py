"""Small conversions that layers share, with torch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.nn._more_functions import ntuple as ntuple


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple]:
    def parse(value: Any) -> tuple:
        return ntuple(value, n)

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """The elements in reverse order, each `n` times: the padding of a layer as `pad` takes it."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Remove a prefix, such as the "module." of a DistributedDataParallel, from the names of a
    state dict."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    versions = getattr(state_dict, "_metadata", {})
    for key in list(versions):
        if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
            versions[key[len(prefix) :]] = versions.pop(key)
