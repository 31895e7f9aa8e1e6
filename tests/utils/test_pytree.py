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


def test_several_trees_and_errors():
    assert _pytree.tree_map(max, [1, (5, 2)], [3, (4, 0)]) == [3, (5, 2)]
    with pytest.raises(ValueError, match=r"\[2, 3\] leaves"):
        _pytree.tree_map(max, [1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="expected 2 leaves"):
        _pytree.tree_unflatten([1], _pytree.tree_flatten((1, 2))[1])
