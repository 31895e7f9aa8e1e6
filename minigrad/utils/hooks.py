"""Tables of hooks, and the handle that every `register_*_hook` returns."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from minigrad._names import namespace

_ids = itertools.count()
_taken: set[int] = set()  # by handles that were unpickled, and not given out here so far
Hooks = OrderedDict[int, Callable[..., Any]]  # by the number of their handle, in order
every_call: Hooks = OrderedDict()  # hooks of every module (nn/modules/_global_hooks.py)


class RemovableHandle:
    """Removes one hook from the table it was registered in; usable as a context manager."""

    def __init__(self, hooks: MutableMapping[int, Any], *extra: MutableMapping[int, Any]) -> None:
        self.id = next(number for number in _ids if number not in _taken)
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

    def __getstate__(self) -> tuple[int, list]:
        """With the tables themselves, so that the handle of a copied module belongs to the copy."""
        return self.id, [(ref(), number) for ref, number in self._entries]

    def __setstate__(self, state: tuple[int, list]) -> None:
        self.id, entries = state
        _taken.update(number for _, number in entries)
        self._entries = [
            (weakref.ref(OrderedDict() if table is None else table), number)
            for table, number in entries
        ]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


def add_hook(
    table: Hooks,
    hook: Callable[..., Any],
    *extra: OrderedDict[int, Any],
    prepend: bool = False,
    marks: Sequence[OrderedDict[int, bool]] = (),
) -> RemovableHandle:
    """Put `hook` last (or first) in `table`; the handle also removes it from the `extra` tables.
    marks: tables that say True of this hook's number, until it is removed."""
    handle = RemovableHandle(table, *extra, *marks)
    table[handle.id] = hook
    for mark in marks:
        mark[handle.id] = True
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


__getattr__, __dir__ = namespace(__name__)
