"""torch's counter of operations, which is not here: `minigrad.estimate` counts those of a training
step from its shapes."""

from __future__ import annotations

from typing import Any, NoReturn

from minigrad._names import namespace

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """A block that counts operations: NotImplementedError where one begins."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes torch's arguments, for a block that may never begin."""

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(
            "FlopCounterMode: minigrad counts no operations of a block; fix: "
            "minigrad.estimate.training_step(build, shape, batch).flops"
        )

    def __exit__(self, *error: object) -> None:
        pass


__getattr__, __dir__ = namespace(__name__)
