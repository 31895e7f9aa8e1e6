"""Helpers for training outside the engine: `minigrad.utils.data`, hook handles."""

from minigrad.utils import data, hooks

__all__ = ["data", "hooks"]
