"""Nested tuples, lists and dictionaries of tensors, as functions take and return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def leaves(tree: Any) -> list:
    """What a tree holds, in order."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, list | tuple):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def rebuilt(tree: Any, values: Any) -> Any:
    """A tree of this form from an iterator over its leaves."""
    if isinstance(tree, dict):
        return {key: rebuilt(value, values) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[rebuilt(value, values) for value in tree])
    if isinstance(tree, list | tuple):
        return type(tree)(rebuilt(value, values) for value in tree)
    return next(values)


def mapped(function: Callable, tree: Any) -> Any:
    """A tree of this form with the function of each leaf."""
    return rebuilt(tree, iter([function(leaf) for leaf in leaves(tree)]))
