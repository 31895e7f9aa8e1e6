"""torch's place of the question whether operations are being traced symbolically."""

from __future__ import annotations

from minigrad._names import namespace

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """None: `fx` traces modules, and never operations on tensors."""


__getattr__, __dir__ = namespace(__name__)
