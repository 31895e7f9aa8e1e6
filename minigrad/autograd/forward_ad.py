"""Directional derivatives with torch's names of forward mode: `dual_level`, `make_dual`.

There is no forward mode: a dual tensor is a place of the graph, and `unpack_dual` differentiates
the graph twice for the tangent. So operations on dual tensors are recorded, also where a block of
`no_grad` is around the level; inside of such a block within the level they lose the tangent.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple

import minigrad
from minigrad import func
from minigrad._names import namespace
from minigrad.autograd.mode import enable_grad
from minigrad.autograd.node import alias, attach, identity
from minigrad.tensor import Tensor

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns; tangent is None for a tensor without one."""

    primal: Tensor
    tangent: Tensor | None


class _Level(NamedTuple):
    """An open level: its dual tensors, which are leaves or views, and their tangents."""

    recording: enable_grad
    places: list[Tensor]
    tangents: list[Tensor]


_levels: list[_Level] = []  # one at most: torch has no nested ones either


def enter_dual_level() -> int:
    """Open the level, whose number is 0; RuntimeError if it is open."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = _Level(enable_grad(), [], [])
    level.recording.__enter__()
    _levels.append(level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level, whose dual tensors have no tangents any more."""
    if not _levels or level not in (None, 0):
        raise RuntimeError(
            "exit_dual_level: Trying to exit a forward AD level that was not the last one that "
            "was created. This is not supported."
        )
    _levels.pop().recording.__exit__(None, None, None)


class dual_level:
    """The block in which tensors have tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """The tensor with a tangent of its shape and dtype, from which those of results follow.

    RuntimeError outside of a level and for another shape, ValueError where one of both is not
    floating or complex.
    """
    if not _levels or level not in (None, 0):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for name, given in (("primal", tensor), ("tangent", tangent)):
        if not (given.is_floating_point() or given.is_complex()):
            raise ValueError(
                f"Expected {name} to be floating point or complex, but got: {given.dtype}"
            )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            f"make_dual: expected a tangent of the shape {list(tensor.shape)}, got "
            f"{list(tangent.shape)}"
        )
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(
            f"make_dual: expected a tangent of the dtype {tensor.dtype}, got {tangent.dtype}"
        )
    place = func._place(tensor)
    _levels[-1].places.append(place)
    _levels[-1].tangents.append(tangent)
    if place.grad_fn is None:  # a leaf cannot be changed in place
        return attach(alias(place), identity(place), 0)
    return place


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(the tensor without its tangent, the tangent or None); (the tensor, None) outside of a
    level."""
    if not _levels or level not in (None, 0):
        return UnpackedDualTensor(tensor, None)
    places, tangents = _levels[-1].places, _levels[-1].tangents
    primal = func._own(tensor, places)
    if not places or not tensor.requires_grad:
        return UnpackedDualTensor(primal, None)
    weights = minigrad.zeros_like(tensor).requires_grad_()
    slopes = minigrad.autograd.grad(
        tensor, places, weights, retain_graph=True, create_graph=True, allow_unused=True
    )
    reached = [(slope, t) for slope, t in zip(slopes, tangents, strict=True) if slope is not None]
    if not reached:
        return UnpackedDualTensor(primal, None)
    linear = [(slope, t) for slope, t in reached if slope.requires_grad]
    product = func._gradients([s for s, _ in linear], [weights], [t for _, t in linear])[0]
    return UnpackedDualTensor(primal, func._own(product, [*places, weights]))


__getattr__, __dir__ = namespace(__name__)
