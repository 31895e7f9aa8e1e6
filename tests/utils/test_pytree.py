"""`utils._pytree`: as torch's."""

from __future__ import annotations

import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

from minigrad.utils import _pytree

Pair = namedtuple("Pair", "left right")
COUNTS = defaultdict(list, a=1, b=(2, 3))
TREES = [
    1,
    None,
    [],
    (1, [2, {"b": 3, "a": 4}], None),
    Pair(1, Pair(2, [3])),
    OrderedDict(b=1, a=(2,)),
    COUNTS,
    deque([1, 2], maxlen=3),
    {"x": {1, 2}, "y": range(3)},
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_flatten_and_map_as_torch(tree, torch):
    theirs = importlib.import_module("torch.utils._pytree")
    leaves, form = _pytree.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0] == _pytree.tree_leaves(tree)
    assert form.num_leaves == len(leaves)
    back = _pytree.tree_unflatten(leaves, form)
    assert back == tree and type(back) is type(tree) and form.unflatten(leaves) == tree
    for module in (_pytree, theirs):
        assert module.tree_map(str, tree) == theirs.tree_map(str, tree)
        assert module.tree_map_only(int, str, tree) == theirs.tree_map_only(int, str, tree)
    if isinstance(tree, defaultdict | deque):
        assert getattr(back, "maxlen", None) == getattr(tree, "maxlen", None)
        assert getattr(back, "default_factory", None) == getattr(tree, "default_factory", None)


def test_several_trees(torch):
    theirs = importlib.import_module("torch.utils._pytree")
    for tree, *rests in (
        ([1, (5, 2)], [3, (4, 0)]),
        ({"a": 1, "b": (2, 3)}, {"b": (20, 30), "a": 10}, {"b": ("x", "y"), "a": "z"}),
        ([1, 2], [[3, 4], {"c": 5}]),
    ):
        found = _pytree.tree_map(lambda *leaves: leaves, tree, *rests)
        assert found == theirs.tree_map(lambda *leaves: leaves, tree, *rests)


@pytest.mark.parametrize(
    ("tree", "other", "message"),
    [
        ([1, 2], [1, 2, 3], "expected list of 2, got list of 3"),
        ([1, [2, 3]], [[1, 2], 3], "expected list of 2, got int"),
        ([1, 2], (1, 2), "expected list of 2, got tuple of 2"),
        ({"a": 1}, {"b": 1}, r"expected dict with keys \['a'\], got dict with keys \['b'\]"),
        (Pair(1, 2), (1, 2), "expected Pair of 2, got tuple of 2"),
    ],
)
def test_trees_of_different_forms_are_refused(tree, other, message):
    with pytest.raises(ValueError, match=message):
        _pytree.tree_map(max, tree, other)


def test_a_wrong_number_of_leaves_is_refused():
    with pytest.raises(ValueError, match="expected 2 leaves"):
        _pytree.tree_unflatten([1], _pytree.tree_flatten((1, 2))[1])


class Named(dict):
    """A dictionary of a class of its own, which is registered."""

    def __init__(self, **values):
        assert None not in values.values()
        super().__init__(values)


class Box:
    def __init__(self, inside):
        self.inside = inside


def test_registered_classes_as_torch(torch):
    theirs = importlib.import_module("torch.utils._pytree")
    tree = [Named(b=1, a=(2, 3)), {"c": Box([4])}]
    found = []
    for module in (_pytree, theirs):
        module.register_pytree_node(
            Named,
            module._dict_flatten,
            lambda values, names: Named(**module._dict_unflatten(values, names)),  # noqa: B023
            serialized_type_name="Named",
        )
        module.register_pytree_node(Box, lambda box: ([box.inside], None), lambda c, _: Box(*c))
        leaves, form = module.tree_flatten(tree)
        named, rest = module.tree_unflatten([10 * leaf for leaf in leaves], form)
        pairs = module.tree_map(lambda x, y: (x, y), tree, module.tree_map(str, tree))
        found.append((leaves, type(named), dict(named), rest["c"].inside))
        found[-1] += (type(pairs[0]), dict(pairs[0]), pairs[1]["c"].inside)
        for other in ([Named(a=1, b=(2, 3)), tree[1]], [{"b": 1, "a": (2, 3)}, tree[1]]):
            with pytest.raises(ValueError):
                module.tree_map(max, tree, other)
        for cls in (Named, list, OrderedDict):
            with pytest.raises(ValueError, match="already registered"):
                module.register_pytree_node(cls, lambda x: ([], None), lambda c, _: None)
    assert found[0] == found[1]
    assert found[0][:4] == ([1, 2, 3, 4], Named, {"b": 10, "a": (20, 30)}, [40])


def test_dictionaries_by_their_keys_as_torch(torch):
    theirs = importlib.import_module("torch.utils._pytree")
    for module in (_pytree, theirs):
        pairs, names = module._dict_flatten_with_keys({"b": 1, "a": (2, 3)})
        assert [(place.key, value) for place, value in pairs] == [("b", 1), ("a", (2, 3))]
        assert names == ["b", "a"]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_forms_can_be_made_by_hand_as_torchs(tree, torch):
    """Libraries flatten trees by the table of types, with leaves of their own choice."""
    theirs = importlib.import_module("torch.utils._pytree")

    def flatten(module, tree):
        kind = module._get_node_type(tree)
        if kind not in module.SUPPORTED_NODES or isinstance(tree, tuple):  # tuples stay whole
            return [tree], module.LeafSpec()
        children, context = module.SUPPORTED_NODES[kind].flatten_fn(tree)
        parts = [flatten(module, child) for child in children]
        leaves = [leaf for part, _ in parts for leaf in part]
        return leaves, module.TreeSpec(kind, context, [form for _, form in parts])

    found = []
    for module in (_pytree, theirs):
        leaves, form = flatten(module, tree)
        found.append((leaves, form.num_leaves, form.is_leaf(), form.context))
        assert module.tree_unflatten(leaves, form) == tree
        assert module.tree_flatten(tree)[1] == module.tree_flatten(tree)[1]
    assert found[0] == found[1]
