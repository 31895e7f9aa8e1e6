"""Nested containers and the list of their leaves, as in torch's `torch.utils._pytree`.

Containers are tuples, named tuples, lists, deques, dictionaries, and the subclasses OrderedDict and
defaultdict. Anything else is a leaf, None too.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minigrad._names import namespace

__all__ = ["TreeSpec", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_unflatten"]

_SEQUENCES, _DICTIONARIES = (tuple, list, deque), (dict, OrderedDict, defaultdict)


def _children(tree: Any) -> Iterable | None:
    """What a container holds, in order; None for a leaf."""
    if type(tree) in _DICTIONARIES:
        return tree.values()
    if type(tree) in _SEQUENCES or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return tree
    return None


def _with_children(tree: Any, children: list) -> Any:
    """A container like `tree` that holds these."""
    kind: Any = type(tree)
    if kind is defaultdict:
        return kind(tree.default_factory, zip(tree, children, strict=True))
    if kind in _DICTIONARIES:
        return kind(zip(tree, children, strict=True))
    if kind is deque:
        return deque(children, tree.maxlen)
    return kind(*children) if hasattr(tree, "_fields") else kind(children)


def _rebuilt(tree: Any, values: Iterator) -> Any:
    children = _children(tree)
    if children is None:
        return next(values)
    return _with_children(tree, [_rebuilt(child, values) for child in children])


@dataclass(frozen=True)
class TreeSpec:
    """The form of a tree: the tree with None for each leaf."""

    form: Any
    num_leaves: int

    def unflatten(self, leaves: Iterable) -> Any:
        """The tree of this form with these leaves."""
        return tree_unflatten(leaves, self)


def tree_leaves(tree: Any) -> list:
    """What a tree holds, in order."""
    children = _children(tree)
    if children is None:
        return [tree]
    return [leaf for child in children for leaf in tree_leaves(child)]


def tree_flatten(tree: Any) -> tuple[list, TreeSpec]:
    """The leaves of a tree in order, and its form."""
    leaves = tree_leaves(tree)
    return leaves, TreeSpec(tree_map(lambda _: None, tree), len(leaves))


def tree_unflatten(leaves: Iterable, treespec: TreeSpec) -> Any:
    """The tree of this form with these leaves; ValueError where their number differs."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: expected {treespec.num_leaves} leaves for {treespec.form}, "
            f"got {len(leaves)}"
        )
    return _rebuilt(treespec.form, iter(leaves))


def tree_map(func: Callable, tree: Any, *rests: Any) -> Any:
    """The tree of `func(leaf, *leaves of the rests)`; ValueError where a form differs."""
    values = [tree_leaves(each) for each in (tree, *rests)]
    if any(len(other) != len(values[0]) for other in values):
        raise ValueError(
            f"tree_map: expected trees of one form, got {[len(v) for v in values]} leaves"
        )
    return _rebuilt(tree, map(func, *values))


def tree_map_only(kinds: Any, func: Callable, tree: Any) -> Any:
    """The tree with `func(leaf)` for leaves of these types; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kinds) else leaf, tree)


__getattr__, __dir__ = namespace(__name__)
