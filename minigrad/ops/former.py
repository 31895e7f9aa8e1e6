"""torch's former order of arguments: numbers before the tensors that they multiply, as in
`p.add_(-lr, grad)` and `p.addcdiv_(-step, average, root)` of optimisers of years ago.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from minigrad.tensor import Tensor


def numbers_first(name: str, given: tuple, tensors: int, numbers: Sequence[Any]) -> tuple:
    """The tensors and the numbers among the arguments of `name`; `numbers`: the defaults of those
    that are not given. TypeError for other arguments."""
    found = [a for a in given if isinstance(a, Tensor)]
    others = [a for a in given if not isinstance(a, Tensor)]
    plain = all(isinstance(a, bool | int | float | complex) for a in others)
    plain = plain and isinstance(given[-1], Tensor)
    if len(found) != tensors or not plain or not 0 < len(others) <= len(numbers):
        raise TypeError(
            f"{name}() takes {tensors} positional arguments but {len(given)} were given"
        )
    warnings.warn(
        f"This overload of {name} is deprecated: numbers before the tensors that they multiply. "
        "Give them by their names.",
        UserWarning,
        stacklevel=4,
    )
    return (*found, *others, *numbers[len(others) :])
