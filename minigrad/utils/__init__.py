"""Helpers for training outside the engine: `minigrad.utils.data`, checkpoints, hook handles."""

import weakref as _weakref
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from minigrad._names import namespace
from minigrad.utils import hooks

if _TYPE_CHECKING:
    from minigrad.utils import benchmark as benchmark
    from minigrad.utils import checkpoint as checkpoint
    from minigrad.utils import data as data
    from minigrad.utils import dlpack as dlpack
    from minigrad.utils import model_zoo as model_zoo
    from minigrad.utils import tensorboard as tensorboard

_LAZY = (
    "benchmark",
    "checkpoint",
    "data",
    "dlpack",
    "model_zoo",
    "tensorboard",
)  # at their first use: made of tensors, with hooks
__all__ = [*_LAZY, "hooks", "swap_tensors"]


def swap_tensors(t1: _Any, t2: _Any) -> None:
    """Exchange two tensors: every reference to the one then shows class, memory, gradient and
    attributes of the other. RuntimeError if one has a weak reference, which would be to the
    wrong tensor."""
    from minigrad.tensor import every_attribute  # tensors need hooks, which are here

    for name, given in (("t1", t1), ("t2", t2)):
        if _weakref.getweakrefs(given):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    first, second = every_attribute(t1), every_attribute(t2)
    kept = dict(first)
    for attributes, other in ((first, second), (second, kept)):
        attributes.clear()
        attributes.update(other)


__getattr__, __dir__ = namespace(__name__, {name: f"minigrad.utils.{name}" for name in _LAZY})
