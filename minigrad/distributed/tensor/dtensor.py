"""DTensor, of which there are no objects: a rank's part is a plain Tensor.

Programs ask whether a tensor is one, and the answer is right here: none is.
"""

from __future__ import annotations

from typing import Any, NoReturn

from minigrad._absent import absent
from minigrad.distributed.tensor.mappings import Placement
from minigrad.tensor import Tensor

_ABSENT = (
    "minigrad has no DTensor: a rank's part is a plain Tensor; fix: minigrad.distributed.tensor."
    "parallel.parallelize_module divides the parameters of a network"
)


class DTensor(Tensor):
    """The class that no tensor has; NotImplementedError where one would be made."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"DTensor: {_ABSENT}")

    @staticmethod
    def from_local(*args: Any, **kwargs: Any) -> NoReturn:
        """NotImplementedError: there are none."""
        raise NotImplementedError(f"DTensor.from_local: {_ABSENT}")


_StridedShard = absent("_StridedShard", _ABSENT, Placement)


def distribute_tensor(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: there are no DTensors."""
    raise NotImplementedError(f"distribute_tensor: {_ABSENT}")
