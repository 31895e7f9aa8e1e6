"""What a recorded operation leaves for Python's garbage collector to visit: a collection takes as
long as there are objects, and comes the sooner the more of them a graph has."""

from __future__ import annotations

import json
import subprocess
import sys

# objects: nodes, their edges, shapes and saved values, and the tensors of these
MOST = {
    "y + c": 3,
    "y * x": 6,
    "y.tanh()": 6,
    "y @ x": 9,
    "y.view(4, 4) + 0": 10,
    "mg.nn.functional.linear(y, x)": 9,
}
COUNT = 200
PROGRAM = f"""
import gc, json
import minigrad as mg

def counted(text):
    operation = eval("lambda y, x, c: " + text)
    x, c = mg.eye(4).requires_grad_(), mg.ones(4, 4)
    def chain():
        y = x * 1
        for _ in range({COUNT}):
            y = operation(y, x, c)
        return y
    for _ in range(5):  # launches are remembered, and caches filled
        chain()
    gc.collect()
    gc.disable()
    before = len(gc.get_objects())
    graph = chain()
    found = len(gc.get_objects()) - before
    gc.enable()
    return found

print(json.dumps([counted(text) for text in {list(MOST)}]))
"""


def test_objects_of_recorded_operations():
    """In a process of its own: tensors that have got many attributes take one more object each."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert not run.returncode, run.stderr
    for (text, most), found in zip(MOST.items(), json.loads(run.stdout), strict=True):
        assert found <= most * COUNT + 50, text
