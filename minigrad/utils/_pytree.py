"""Nested containers and the list of their leaves, as in torch's `torch.utils._pytree`.

Containers are tuples, named tuples, lists, deques and dictionaries, and their subclasses (for torch
only OrderedDict, defaultdict and named tuples); a dictionary of another class becomes a dict.
`register_pytree_node` adds a class. Anything else is a leaf, None too.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

from minigrad._names import namespace

__all__ = [
    "TreeSpec",
    "register_pytree_node",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]

CONTAINERS = (tuple, list, deque, dict)
_registered: dict[type, _Class] = {}


class _Class(NamedTuple):
    """How a registered class becomes children and a context, and an object comes from those."""

    flatten: Callable[[Any], tuple[Iterable, Any]]
    unflatten: Callable[[list, Any], Any]


@dataclass(frozen=True)
class _Node:
    """An object of a registered class in a `TreeSpec`: the class may refuse the None of a form."""

    kind: type
    children: list
    context: Any


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable, Any]],
    unflatten_fn: Callable[[list, Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable | None = None,
    from_dumpable_context: Callable | None = None,
    flatten_with_keys_fn: Callable | None = None,
) -> None:
    """Objects of exactly this class are containers. ValueError for a class that already is.

    flatten_fn(object): its children, and a context that is the same for objects of the same form.
    unflatten_fn(children, context): the object. The others describe the class to exporters, which
    are not here.
    """
    if cls in _registered or cls in (*CONTAINERS, OrderedDict, defaultdict):
        raise ValueError(f"{cls} is already registered as pytree node.")
    _registered[cls] = _Class(flatten_fn, unflatten_fn)


def _dict_flatten(d: dict) -> tuple[list, list]:
    """The values and the keys: for classes that register themselves as dictionaries."""
    return list(d.values()), list(d)


class MappingKey(NamedTuple):
    """The place of a child of a dictionary."""

    key: Any


def _dict_flatten_with_keys(d: dict) -> tuple[list, list]:
    """The values with their places, and the keys."""
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable, context: list) -> dict:
    """The dictionary of these values and keys."""
    return dict(zip(context, values, strict=True))


def _node(tree: Any) -> _Node | None:
    """The parts of an object of a registered class, None for others."""
    if type(tree) is _Node:
        return tree
    if type(tree) not in _registered:
        return None
    children, context = _registered[type(tree)].flatten(tree)
    return _Node(type(tree), list(children), context)


def tree_leaves(tree: Any) -> list:
    """What a tree holds, in order."""
    if (node := _node(tree)) is not None:
        return [leaf for child in node.children for leaf in tree_leaves(child)]
    if isinstance(tree, dict):
        return [leaf for child in tree.values() for leaf in tree_leaves(child)]
    if isinstance(tree, tuple | list | deque):
        return [leaf for child in tree for leaf in tree_leaves(child)]
    return [tree]


def _made(node: _Node, children: list) -> Any:
    return _registered[node.kind].unflatten(children, node.context)


def _rebuilt(tree: Any, values: Iterator, made: Callable = _made) -> Any:
    """A tree of this form from an iterator over its leaves."""
    if (node := _node(tree)) is not None:
        return made(node, [_rebuilt(child, values, made) for child in node.children])
    kind: Any = type(tree)
    if isinstance(tree, dict):
        pairs = [(key, _rebuilt(child, values, made)) for key, child in tree.items()]
        if isinstance(tree, defaultdict):
            return defaultdict(tree.default_factory, pairs)
        return OrderedDict(pairs) if kind is OrderedDict else dict(pairs)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*[_rebuilt(child, values, made) for child in tree])
    if isinstance(tree, deque):
        return deque([_rebuilt(child, values, made) for child in tree], tree.maxlen)
    if isinstance(tree, tuple):  # a `Size` would refuse the None of a form
        return tuple.__new__(kind, [_rebuilt(child, values, made) for child in tree])
    if isinstance(tree, list):
        return kind([_rebuilt(child, values, made) for child in tree])
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
    form = _rebuilt(tree, repeat(None), lambda node, children: replace(node, children=children))
    return leaves, TreeSpec(form, len(leaves))


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
    node, other = _node(form), _node(tree)
    if node is not None:
        if other is None or (node.kind, node.context) != (other.kind, other.context):
            raise ValueError(f"tree_map: expected {_container(form)}, got {_container(tree)}")
        pairs = list(zip(node.children, other.children, strict=True))
    elif isinstance(form, dict):
        if not isinstance(tree, dict) or form.keys() != tree.keys():
            raise ValueError(f"tree_map: expected {_container(form)}, got {_container(tree)}")
        pairs = [(child, tree[key]) for key, child in form.items()]
    elif isinstance(form, tuple | list | deque):
        if type(form) is not type(tree) or len(form) != len(tree):
            raise ValueError(f"tree_map: expected {_container(form)}, got {_container(tree)}")
        pairs = list(zip(form, tree, strict=True))
    else:
        return [tree]
    return [leaf for one, two in pairs for leaf in _leaves_by(one, two)]


def _container(tree: Any) -> str:
    kind = type(tree).__name__
    if (node := _node(tree)) is not None:
        return f"{node.kind.__name__} of {node.context}"
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
