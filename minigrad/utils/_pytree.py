"""Nested containers and the list of their leaves, as in torch's `torch.utils._pytree`.

Containers are tuples, named tuples, lists, deques and dictionaries, and their subclasses (for torch
only OrderedDict, defaultdict and named tuples); a dictionary of another class becomes a dict.
Anything else is a leaf, None too.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minigrad._names import namespace

__all__ = ["TreeSpec", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_unflatten"]

CONTAINERS = (tuple, list, deque, dict)


def tree_leaves(tree: Any) -> list:
    """What a tree holds, in order."""
    if isinstance(tree, dict):
        return [leaf for child in tree.values() for leaf in tree_leaves(child)]
    if isinstance(tree, tuple | list | deque):
        return [leaf for child in tree for leaf in tree_leaves(child)]
    return [tree]


def _rebuilt(tree: Any, values: Iterator) -> Any:
    """A tree of this form from an iterator over its leaves."""
    kind: Any = type(tree)
    if isinstance(tree, dict):
        pairs = [(key, _rebuilt(child, values)) for key, child in tree.items()]
        if isinstance(tree, defaultdict):
            return defaultdict(tree.default_factory, pairs)
        return OrderedDict(pairs) if kind is OrderedDict else dict(pairs)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*[_rebuilt(child, values) for child in tree])
    if isinstance(tree, deque):
        return deque([_rebuilt(child, values) for child in tree], tree.maxlen)
    if isinstance(tree, tuple):  # a `Size` would refuse the None of a form
        return tuple.__new__(kind, [_rebuilt(child, values) for child in tree])
    if isinstance(tree, list):
        return kind([_rebuilt(child, values) for child in tree])
    return next(values)


@dataclass(frozen=True)
class TreeSpec:
    """The form of a tree: the tree with None for each leaf."""

    form: Any
    num_leaves: int

    def unflatten(self, leaves: Iterable) -> Any:
        """The tree of this form with these leaves."""
        return tree_unflatten(leaves, self)


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


def _leaves_by(form: Any, tree: Any) -> list:
    """What a tree has in the places of the leaves of another; ValueError where its form differs."""
    if isinstance(form, dict):
        if not isinstance(tree, dict) or form.keys() != tree.keys():
            raise ValueError(f"tree_map: expected {_container(form)}, got {_container(tree)}")
        pairs = [(child, tree[key]) for key, child in form.items()]
    elif isinstance(form, tuple | list | deque):
        if type(form) is not type(tree) or len(form) != len(tree):
            raise ValueError(f"tree_map: expected {_container(form)}, got {_container(tree)}")
        pairs = list(zip(form, tree, strict=True))
    else:
        return [tree]
    return [leaf for one, other in pairs for leaf in _leaves_by(one, other)]


def _container(tree: Any) -> str:
    kind = type(tree).__name__
    if isinstance(tree, dict):
        return f"{kind} with keys {list(tree)}"
    return f"{kind} of {len(tree)}" if isinstance(tree, tuple | list | deque) else kind


def tree_map(func: Callable, tree: Any, *rests: Any) -> Any:
    """The tree of `func(leaf, *what the rests have in its place)`; ValueError where a form
    differs."""
    others = [_leaves_by(tree, rest) for rest in rests]
    return _rebuilt(tree, map(func, tree_leaves(tree), *others))


def tree_map_only(kinds: Any, func: Callable, tree: Any) -> Any:
    """The tree with `func(leaf)` for leaves of these types; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kinds) else leaf, tree)


__getattr__, __dir__ = namespace(__name__)
