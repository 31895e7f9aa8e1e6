"""What libraries take from the C extension of torch: they announce to it that they are used."""

from __future__ import annotations

from minigrad._names import namespace

__all__: list[str] = []


def _log_api_usage_once(event: str) -> None:
    """Nothing: minigrad keeps no record of what is used, as torch does unless it is built to."""


__getattr__, __dir__ = namespace(__name__)
