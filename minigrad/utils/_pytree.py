"""Nested containers and the list of their leaves, as in torch's `torch.utils._pytree`.

Containers are tuples, named tuples, lists, deques and dictionaries, and their subclasses (for torch
only OrderedDict, defaultdict and named tuples); a dictionary of another class becomes a dict.
`register_pytree_node` adds a class. Anything else is a leaf, None too.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from minigrad._names import namespace

__all__ = [
    "LeafSpec",
    "PyTree",
    "TreeSpec",
    "register_pytree_node",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]

PyTree: TypeAlias = Any
CONTAINERS = (tuple, list, deque, dict)
_DICTIONARIES = (dict, OrderedDict, defaultdict)


class NodeDef(NamedTuple):
    """A type of containers: flatten_fn(object) -> (children, context), and the way back,
    unflatten_fn(children, context) -> object."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Iterable, Any]]
    unflatten_fn: Callable[[Any, Any], Any]


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: Any,
    flatten_fn: Callable[[Any], tuple[Iterable, Any]],
    unflatten_fn: Callable[[Any, Any], Any],
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
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


def _sequence_flatten(values: Any) -> tuple[list, Any]:
    """The elements, and the class where it is a subclass."""
    return list(values), None if type(values) in (tuple, list) else type(values)


def _tuple_unflatten(values: Iterable, context: Any) -> tuple:
    return tuple.__new__(tuple if context is None else context, values)


def _list_unflatten(values: Iterable, context: Any) -> list:
    return (list if context is None else context)(values)


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


def _defaultdict_flatten(d: defaultdict) -> tuple[list, list]:
    return list(d.values()), [d.default_factory, list(d)]


register_pytree_node(tuple, _sequence_flatten, _tuple_unflatten)
register_pytree_node(list, _sequence_flatten, _list_unflatten)
register_pytree_node(namedtuple, lambda t: (list(t), type(t)), lambda v, kind: kind(*v))
register_pytree_node(deque, lambda d: (list(d), d.maxlen), lambda v, most: deque(v, most))
register_pytree_node(dict, _dict_flatten, _dict_unflatten)
register_pytree_node(
    OrderedDict, _dict_flatten, lambda v, keys: OrderedDict(_dict_unflatten(v, keys))
)
register_pytree_node(
    defaultdict, _defaultdict_flatten, lambda v, c: defaultdict(c[0], _dict_unflatten(v, c[1]))
)


def _get_node_type(tree: Any) -> Any:
    """The registered type that a tree counts as, `namedtuple` for all of those; its class for a
    leaf."""
    kind = type(tree)
    if kind in SUPPORTED_NODES or not isinstance(tree, CONTAINERS):
        return kind
    if isinstance(tree, tuple):
        return namedtuple if hasattr(tree, "_fields") else tuple
    return next(base for base in (list, deque, defaultdict, dict) if isinstance(tree, base))


@dataclass
class TreeSpec:
    """The form of a tree: its type and context, and the forms of its children."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]
    num_leaves: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_leaves = sum(child.num_leaves for child in self.children_specs)

    def is_leaf(self) -> bool:
        """Whether this is the form of a leaf."""
        return isinstance(self, LeafSpec)

    def unflatten(self, leaves: Iterable) -> Any:
        """The tree of this form with these leaves."""
        return tree_unflatten(leaves, self)


class LeafSpec(TreeSpec):
    """The form of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.num_leaves = 1


def tree_leaves(tree: Any) -> list:
    """What a tree holds, in order."""
    node = SUPPORTED_NODES.get(_get_node_type(tree))
    if node is None:
        return [tree]
    return [leaf for child in node.flatten_fn(tree)[0] for leaf in tree_leaves(child)]


def tree_flatten(tree: Any) -> tuple[list, TreeSpec]:
    """The leaves of a tree in order, and its form."""
    return tree_leaves(tree), _form(tree)


def _form(tree: Any) -> TreeSpec:
    kind = _get_node_type(tree)
    if kind not in SUPPORTED_NODES:
        return LeafSpec()
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_form(child) for child in children])


def tree_unflatten(leaves: Iterable, treespec: TreeSpec) -> Any:
    """The tree of this form with these leaves; ValueError where their number differs."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: expected {treespec.num_leaves} leaves for {treespec}, "
            f"got {len(leaves)}"
        )
    return _filled(treespec, iter(leaves))


def _filled(form: TreeSpec, leaves: Iterator) -> Any:
    if form.is_leaf():
        return next(leaves)
    children = [_filled(child, leaves) for child in form.children_specs]
    return SUPPORTED_NODES[form.type].unflatten_fn(children, form.context)


def tree_map(func: Callable, tree: Any, *rests: Any) -> Any:
    """The tree of `func(leaf, *what the rests have in its place)`; ValueError where a form
    differs."""
    if rests:
        leaves, form = tree_flatten(tree)
        others = [_leaves_by(form, rest) for rest in rests]
        return _filled(form, map(func, leaves, *others))
    node = SUPPORTED_NODES.get(_get_node_type(tree))
    if node is None:
        return func(tree)
    children, context = node.flatten_fn(tree)
    return node.unflatten_fn([tree_map(func, child) for child in children], context)


def tree_map_only(kinds: Any, func: Callable, tree: Any) -> Any:
    """The tree with `func(leaf)` for leaves of these types; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kinds) else leaf, tree)


def _leaves_by(form: TreeSpec, tree: Any) -> list:
    """What a tree has in the places of the leaves of a form; ValueError where its own differs."""
    if form.is_leaf():
        return [tree]
    kind = _get_node_type(tree)
    if kind in SUPPORTED_NODES:
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        found = list(children)
        if form.type in _DICTIONARIES and kind in _DICTIONARIES:
            keys = _keys(form.type, form.context)
            if tree.keys() == set(keys):
                return _all_leaves(form, [tree[key] for key in keys])
        elif (kind, context, len(found)) == (form.type, form.context, len(form.children_specs)):
            return _all_leaves(form, found)
        given = _described(kind, context, len(found))
    else:
        given = type(tree).__name__
    expected = _described(form.type, form.context, len(form.children_specs))
    raise ValueError(f"tree_map: expected {expected}, got {given}")


def _all_leaves(form: TreeSpec, children: list) -> list:
    pairs = zip(form.children_specs, children, strict=True)
    return [leaf for spec, child in pairs for leaf in _leaves_by(spec, child)]


def _keys(kind: Any, context: Any) -> list:
    return context[1] if kind is defaultdict else context


def _described(kind: Any, context: Any, count: int) -> str:
    """A container in a message: "list of 2", "dict with keys ['a']"."""
    name = context.__name__ if isinstance(context, type) else kind.__name__
    if kind in _DICTIONARIES:
        return f"{name} with keys {_keys(kind, context)}"
    return f"{name} of {count if kind in (tuple, list, deque, namedtuple) else context}"


__getattr__, __dir__ = namespace(__name__)
