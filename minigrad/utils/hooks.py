"""Tables of hooks, and the handle that every `register_*_hook` returns."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any

from minigrad._names import namespace

_ids = itertools.count()
Hooks = OrderedDict[int, Callable[..., Any]]  # by the number of their handle, in order


class RemovableHandle:
    """Removes one hook from the table it was registered in; usable as a context manager."""

    def __init__(self, hooks: MutableMapping[int, Any], *extra: MutableMapping[int, Any]) -> None:
        self.id = next(_ids)
        # Weak, so that a handle does not keep its module alive.
        self._entries = [(weakref.ref(table), self.id) for table in (hooks, *extra)]

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for ref, number in self._entries:
            table = ref()
            if table is not None:
                table.pop(number, None)

    def join(self, other: RemovableHandle) -> RemovableHandle:
        """This handle, which from now on removes the hook of another, too."""
        self._entries += other._entries
        return self

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


def add_hook(
    table: Hooks,
    hook: Callable[..., Any],
    *extra: OrderedDict[int, Any],
    prepend: bool = False,
) -> RemovableHandle:
    """Put `hook` last (or first) in `table`; the handle also removes it from the `extra` tables."""
    handle = RemovableHandle(table, *extra)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


__getattr__, __dir__ = namespace(__name__)
