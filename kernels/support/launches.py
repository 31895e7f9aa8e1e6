"""Who runs a launch: the compiled kernel, or a watcher that asked to see every launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: watcher(kernel, grid, block, shared_bytes, args) -> whether it has run the launch; None: nobody
#: watches. The pytest plugin runs launches under the recorder of the lab.
watcher: Callable[[Any, Any, Any, int, tuple], bool] | None = None


def watch(seen: Callable[[Any, Any, Any, int, tuple], bool] | None) -> None:
    """Let `seen` see every launch from now on; None ends that."""
    global watcher
    watcher = seen
