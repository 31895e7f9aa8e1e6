"""What a recorded operation leaves for Python's garbage collector to visit: a collection takes as
long as there are objects, and comes the sooner the more of them a graph has."""

from __future__ import annotations

import gc

import pytest

import minigrad as mg

COUNT = 200
OPERATIONS = {  # objects: nodes, their edges, shapes and saved values, and the tensors of these
    "a constant is added": (lambda y, x, c: y + c, 3),
    "a product": (lambda y, x, c: y * x, 6),
    "a saved result": (lambda y, x, c: y.tanh(), 6),
    "a product of matrices": (lambda y, x, c: y @ x, 9),
    "a view": (lambda y, x, c: y.view(4, 4) + 0, 10),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_objects_of_a_recorded_operation(name):
    operation, most = OPERATIONS[name]
    x, c = mg.eye(4).requires_grad_(), mg.ones(4, 4)

    def chain():
        y = x * 1
        for _ in range(COUNT):
            y = operation(y, x, c)
        return y

    for _ in range(5):  # launches are remembered, and caches filled
        chain()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        graph = chain()
        count = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert graph.requires_grad and count <= most * COUNT + 50
