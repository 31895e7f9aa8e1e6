"""The cache of plans, one in each launcher: what calls with the same key share, found by that key.

    key = (dialect, type(x) is ndarray or place(x), x.shape, x.dtype, version)
    plan = _plans.get(key) or _plans.keep(key, _plan(dialect, x, version))

A key holds all that the plan depends on. Where the arrays lie is part of it: the first launch of a
plan binds its kernel to the CPU or to one GPU. NumPy's arrays are known by their type alone, which
costs less than a call.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from numpy import ndarray

from kernels.launchers.common import launcher, on_gpu
from kernels.support import forks

MAX_PLANS = 4096


class Plans(dict):
    """Plans by key, at most `limit` of them: a full cache drops the older half.

    Looking up needs no lock: `get` of a dictionary is one step, and a plan that was dropped stays
    usable by a thread that found it before.
    """

    def __init__(self, limit: int = MAX_PLANS) -> None:
        super().__init__()
        self.limit = limit
        self._lock = forks.lock()

    def keep(self, key: tuple, plan: Any) -> Any:
        """Add a plan and return it; if another thread was faster, the plan of that thread."""
        with self._lock:
            if len(self) >= self.limit:
                for old in list(islice(self, max(self.limit // 2, 1))):
                    del self[old]
            return self.setdefault(key, plan)

    def launch(
        self, name: str, version: str, factory: Callable, constants: tuple, grid, block, like
    ) -> Callable[..., None]:
        """A launch of the kernel `factory(*constants)` where `like` lies."""
        where = type(like) is ndarray or place(like)
        key = (name, version, factory, constants, grid, block, where)
        return self.get(key) or self.keep(
            key, launcher(name, version, factory(*constants), grid, block)
        )


def check_places(name: str, *arrays) -> None:
    """Raise TypeError where the arrays lie in different places."""
    if len({place(a) for a in arrays}) > 1:
        found = sorted({"the CPU" if not on_gpu(a) else f"GPU {a.device.id}" for a in arrays})
        raise TypeError(
            f"{name}: expected arrays in one place, got {' and '.join(found)}; move them"
        )


def place(a) -> Any:
    """Where an array lies, as part of a key: True on the CPU, else its type and its GPU."""
    if type(a).__module__ == "cupy":
        return type(a), a.data.device_id
    if not on_gpu(a):
        return True
    device = getattr(a, "device", None)
    return type(a), getattr(device, "id", device)
