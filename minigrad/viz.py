"""Pictures: the autograd graph of a tensor, the timeline of a training step.

They are `kernels.lab.Picture`s: SVG without a drawing library, PNG (extra `plot`) and text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad
from kernels.lab import Picture, counting, timeline
from kernels.lab.draw.canvas import BLUE, GREEN, INK, MUTED, PASTELS, fitted
from minigrad._names import namespace
from minigrad.autograd.engine import fit
from minigrad.autograd.function import FunctionNode
from minigrad.autograd.node import Node, OpNode, described
from minigrad.tensor import Tensor, wrap

__all__ = ["graph", "timeline"]

MOST_NODES = 200
BOX, TALL, STEP, GAP = 300, 46, 64, 40  # pixels: size of a box, distance of rows, gap between boxes
LEAF, TOP = 200, 56
MOST_LANES = 24


def graph(tensor: Tensor, names: Any = None) -> Picture:
    """The operations that computed `tensor`, with their shapes and kernels; inputs at the top.

    names: a Module or a dictionary of tensors that gives the leaves names. A box shows the
    operation, the shape and dtype of its result, and the kernel families of the operation and of
    its gradient. Draws the last 200 operations; the text lists all.
    """
    root = tensor._node
    if root is None:
        raise RuntimeError(
            "graph: this tensor was not computed from one that requires a gradient (or under "
            "no_grad): it has no graph"
        )
    known = _names(names)
    nodes = _ordered(root)
    text = [f"Autograd graph: {len(nodes)} operations"]
    kinds = {node: families(node) for node in nodes}
    text += [_line(node, known, kinds[node]) for node in reversed(nodes)]
    layout = _Layout(nodes[:MOST_NODES], known)
    picture = Picture(layout.width, layout.height, text[0])
    more = f"; the last {MOST_NODES} are drawn" if len(nodes) > MOST_NODES else ""
    about = f"blue: operations, green: leaves that require a gradient, grey: data{more}"
    picture.label(16, 42, about, 11, MUTED)
    for source, node in layout.edges:
        picture.arrow(layout.route(source, node))
    for node in layout.nodes:
        _box(picture, node, kinds[node], *layout.corner(node))
        _leaves(picture, _inputs(node, known)[:3], *layout.corner(node))
    picture.text = "\n".join(text)
    return picture


class _Layout:
    """The positions of boxes and arrows: one row per rank, one column per box in a row.

    An edge to the next row goes straight down. A longer edge goes through a lane on the right and
    crosses in the gaps between rows, so that it never passes behind a box.
    """

    def __init__(self, nodes: list[Node], known: dict[int, str]) -> None:
        self.nodes, self.rank = nodes, _ranks(nodes)
        self.place, columns = _places(nodes, self.rank)
        pairs = [(source, node) for node in nodes for source in _sources(node)]
        self.edges = [pair for pair in dict.fromkeys(pairs) if pair[0] in self.rank]
        passing = [(s, n) for s, n in self.edges if self.rank[s] - self.rank[n] > 1]
        self.lanes = {pair: i % MOST_LANES for i, pair in enumerate(passing)}
        with_leaves = {self.place[node] for node in nodes if _inputs(node, known)}
        self.columns, x = [], 16
        for column in range(columns):
            x += LEAF + 24 if column in with_leaves else 0
            self.columns.append(x)
            x += BOX + GAP
        self.right = x - GAP + 16
        self.rows = max(self.rank.values()) + 1
        self.width = max(self.right + 10 * min(len(self.lanes), MOST_LANES), 620)
        self.height = TOP + self.rows * STEP

    def corner(self, node: Node) -> tuple[float, float]:
        return self.columns[self.place[node]], TOP + (self.rows - 1 - self.rank[node]) * STEP

    def route(self, source: Node, node: Node) -> list[tuple[float, float]]:
        """The points of an arrow."""
        (x0, y0), (x1, y1) = self.corner(source), self.corner(node)
        start, end, middle = x0 + BOX / 2, x1 + BOX / 2, y1 - (STEP - TALL) / 2
        lane = self.lanes.get((source, node))
        if lane is None:
            return [(start, y0 + TALL), (start, middle), (end, middle), (end, y1)]
        aside, x = 24 + 6 * (lane % 8), self.right + 10 * lane
        below, above = y0 + TALL + 5, y1 - 12
        return [
            (start + aside, y0 + TALL), (start + aside, below), (x, below), (x, above),
            (end + aside, above), (end + aside, y1),
        ]  # fmt: skip


def _names(names: Any) -> dict[int, str]:
    if names is None:
        return {}
    pairs = names.items() if isinstance(names, dict) else names.named_parameters()
    return {id(tensor): name for name, tensor in pairs}


def _sources(node: Node) -> list[Node]:
    """The nodes that computed the inputs."""
    return [target for target in node.targets() if isinstance(target, Node)]


def _ordered(root: Node) -> list[Node]:
    """All nodes of the graph, the latest first (an input has a smaller number than its user)."""
    found, queue = {root}, [root]
    while queue:
        for source in _sources(queue.pop()):
            if source not in found:
                found.add(source)
                queue.append(source)
    return sorted(found, key=lambda node: -node.number)


def _ranks(nodes: list[Node]) -> dict[Node, int]:
    """Per node the length of the longest path to the root; `nodes` are ordered, the root first."""
    rank = dict.fromkeys(nodes, 0)
    for node in nodes:
        for source in _sources(node):
            if source in rank:
                rank[source] = max(rank[source], rank[node] + 1)
    return rank


def _places(nodes: list[Node], rank: dict[Node, int]) -> tuple[dict[Node, int], int]:
    """Per node its column, and the number of columns. A node is placed above its first user, or in
    the next free column."""
    place: dict[Node, int] = {nodes[0]: 0}
    taken: dict[int, set[int]] = {}
    wanted: dict[Node, int] = {}
    for node in sorted(nodes, key=lambda node: rank[node]):
        row = taken.setdefault(rank[node], set())
        column = wanted.get(node, 0)
        while column in row:
            column += 1
        row.add(column)
        place[node] = column
        for source in _sources(node):
            wanted.setdefault(source, column)
    return place, max(place.values()) + 1


def _title(node: Node) -> str:
    """The operation's name."""
    if isinstance(node, OpNode):
        return node.op.name
    return node.name().removesuffix("Backward0").removesuffix("Backward")


def _shape(shape: tuple, dtype: Any) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''}) {dtype}"


def families(node: Node) -> tuple[list[str], list[str]]:
    """The families of kernels that a node's operation and its gradient launch, in order.

    Both are run with `kernels.lab.counting`, which records launches and computes nothing. Empty for
    views, for a custom `Function` (which is not run) and for the gradient of a freed graph.
    """
    if not isinstance(node, OpNode):
        return [], []
    with counting() as count, minigrad.no_grad():
        _forward(node, count)
        split = len(count.launches)
        if node.saved is not None:
            gradients = node.backward([wrap(count.empty(*spec)) for spec in node.outs])
            for edge, gradient in zip(node.edges, gradients):
                if edge is not None and gradient is not None:
                    fit(gradient, *described(edge))  # sums over broadcast dimensions
    named = [launch.family for launch in count.launches]
    return list(dict.fromkeys(named[:split])), list(dict.fromkeys(named[split:]))


def _forward(node: OpNode, count: Any) -> None:
    """Run the operation of a node on arrays that have only a shape."""
    shape, dtype = node.shape, node.dtype
    shapes = node.shapes or (shape,) * len(node.edges)
    for other in (dtype, np.int64):  # an input without a gradient may be data or indices
        kinds = [other if edge is None else dtype for edge in node.edges]
        arrays = [None if s is None else count.empty(s, d) for s, d in zip(shapes, kinds)]
        try:
            node.op.forward(*arrays, **node.attrs)
            return
        except IndexError:
            continue


def _inputs(node: Node, known: dict[int, str]) -> list[tuple[str, str, bool]]:
    """(name, shape, whether it requires a gradient) of the inputs that are leaves or data."""
    found = []
    shapes = getattr(node, "shapes", None) or (None,) * len(node.edges)
    for edge, shape in zip(node.edges, shapes):
        if isinstance(edge, Tensor):
            leaf = edge
            text = _shape(leaf._array.shape, leaf._array.dtype)
            found.append((known.get(id(leaf), "leaf"), text, True))
        elif edge is None and shape is not None:
            found.append(("data", f"({', '.join(map(str, shape))})", False))
    return found


def _line(node: Node, known: dict[int, str], kinds: tuple[list[str], list[str]]) -> str:
    """A node as a line of text."""
    made = [f"#{source.number}" for source in _sources(node)]
    given = [f"{name} {shape}" for name, shape, _ in _inputs(node, known)]
    forward, backward = kinds
    return (
        f"#{node.number} {_title(node)} -> {_shape(node.shape, node.dtype)}"
        f"  from {', '.join(made + given)}"
        f"  kernels: {', '.join(forward) or _without_kernel(node)}"
        f"; gradient: {', '.join(backward) or 'no kernel'}"
    )


def _without_kernel(node: Node) -> str:
    return "your own Function" if isinstance(node, FunctionNode) else "a view: no kernel"


def _box(picture: Picture, node: Node, kinds: tuple, x: float, y: float) -> None:
    forward, backward = kinds
    gradient = f"grad: {', '.join(backward) or 'no kernel'}"
    if node.saved is None:
        gradient = "grad: freed by backward()"
    tip = f"{_title(node)}: {', '.join(forward)}; {gradient}"
    picture.rect(x, y, BOX, TALL, fill="#ffffff", stroke=BLUE, line=1.4, radius=6, tip=tip)
    picture.label(x + 10, y + 15, fitted(_title(node), 130, 12), 12, INK, bold=True)
    picture.label(x + BOX - 10, y + 15, _shape(node.shape, node.dtype), 11, INK, "end")
    line = ", ".join(forward) or _without_kernel(node)
    picture.label(x + 10, y + 28, fitted(line, BOX - 20, 9.5), 9.5, MUTED)
    picture.label(x + 10, y + 40, fitted(gradient, BOX - 20, 9.5), 9.5, MUTED)


def _leaves(picture: Picture, given: list[tuple[str, str, bool]], x: float, y: float) -> None:
    """Draw the inputs that are leaves or data, to the left of the box at (x, y)."""
    tall = min(TALL / max(len(given), 1), 24)
    for i, (name, shape, required) in enumerate(given):
        top, start = y + i * tall, x - LEAF - 24
        colour, fill = (GREEN, PASTELS[2]) if required else (MUTED, "#eef0f2")
        picture.rect(start, top + 1, LEAF, tall - 3, fill=fill, stroke=colour, radius=4)
        label = fitted(f"{name} {shape}", LEAF - 8, 9.5)
        picture.label(start + 6, top + tall / 2 + 3, label, 9.5, INK)
        picture.arrow([(start + LEAF, top + tall / 2), (x, top + tall / 2)], colour)


__getattr__, __dir__ = namespace(__name__)
