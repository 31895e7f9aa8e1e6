"""The gradient of a part of a tensor: zeros but for that part.

A loop over `x[:, t]` has one for each step. They are added into one array, each where its part is:
arrays of zeros for all steps, added up, would take time with the square of their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import TABLE
from minigrad.tensor import Tensor

_ADD = TABLE["add"]
_ADD_INTO = dispatch.named("into", _ADD)  # as `kernels.launchers.relaunch` knows it
_new: Callable[[type], Any] = object.__new__


class Part(Tensor):
    """Zeros with a gradient in a view of them; a tensor like others once its array is asked for."""

    _part: tuple[Any, Callable, dict, tuple]  # the gradient, the view, its attributes, the shape

    @property
    def _array(self) -> np.ndarray:  # type: ignore[override]
        return self.made()._array

    def made(self) -> Tensor:
        """This tensor, which has its array and is like others from now on."""
        g, view, attrs, shape = self._part
        zeros = np.zeros(shape, g.dtype)
        view(zeros, **attrs)[...] = g
        del self._part
        vars(self)["_array"] = zeros
        self.__class__ = Tensor  # type: ignore[assignment]
        return self

    def add_to(self, array: np.ndarray) -> None:
        """Add it to a gradient of the whole tensor, in place."""
        g, view, attrs, _ = self._part
        add_to(view(array, **attrs), g)


def part(g: np.ndarray, view: Callable, attrs: dict, shape: tuple) -> Part:
    """Zeros of `shape`, to be made, whose view(zeros, **attrs) is g."""
    made = _new(Part)
    made._part, made._counter = (g, view, attrs, shape), [0]
    return made


def add_to(array: Any, other: Any) -> None:
    """array += other, by a remembered launch."""
    if array.dtype.kind == "c":
        array += other
        return
    into = dispatch.relaunch(dispatch.tracer, dispatch.active, _ADD_INTO, array, array, other)
    if into is None:
        dispatch.active.pointwise(_ADD, array, other, dtype=array.dtype, out=array)
