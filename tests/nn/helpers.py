"""Comparison with torch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad


def as_torch(tensor: Any) -> Any:
    """A torch tensor with the same values (a copy)."""
    import torch

    return torch.from_numpy(tensor.detach().numpy().copy())


def close(mine: Any, theirs: Any, tolerance: float = 1e-9, what: str = "") -> None:
    """Assert that a Tensor equals a torch tensor or an array, shape and dtype included."""
    wanted = theirs.detach().numpy() if hasattr(theirs, "detach") else np.asarray(theirs)
    got = mine.detach().numpy() if isinstance(mine, minigrad.Tensor) else np.asarray(mine)
    assert got.shape == wanted.shape, what
    assert got.dtype == wanted.dtype, what
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=what)


def plain(text: str) -> str:
    """An error or repr with the names that differ on purpose made equal."""
    text = re.sub(r"\b(py)?torch\b", "minigrad", text, flags=re.IGNORECASE)
    return re.sub(r"\s+", " ", text)


def outcome(call: Callable[[], Any]) -> tuple[type, str]:
    """The type and text of the exception that `call` raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except Exception as error:
        return type(error), plain(str(error))
    return type(None), ""


def same_error(torch: Any, program: Callable[[Any], Any]) -> None:
    """`program(namespace)` fails in the same way with minigrad as with torch."""
    mine, theirs = outcome(lambda: program(minigrad)), outcome(lambda: program(torch))
    assert theirs[0] is not type(None), "torch accepts this program"
    assert mine == theirs
