"""Errors of communication, with torch's names."""

from __future__ import annotations


class DistError(RuntimeError):
    """An error of the package distributed."""


class DistBackendError(DistError):
    """Ranks disagree, or one does not answer."""


class DistNetworkError(DistError):
    """Ranks cannot find each other."""
