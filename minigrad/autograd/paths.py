"""Walks through a graph, from the nodes of results to what a backward pass is asked for."""

from __future__ import annotations

from operator import itemgetter

from minigrad.autograd.node import Node


def nodes_to(roots: list[Node], wanted: set) -> tuple[set, set, set]:
    """(nodes that must run, nodes of which not all inputs need a gradient, nodes that need one) to
    reach the requested tensors."""
    order, seen, stack = [], set(roots), list(roots)
    while stack:
        node = stack.pop()
        targets = node.targets()
        order.append((node.number, node, targets))
        for target in targets:
            if isinstance(target, Node) and target not in seen:
                seen.add(target)
                stack.append(target)
    below, aside, needed = set[Node](), set[Node](), set[Node]()
    for _, node, targets in sorted(order, key=itemgetter(0)):
        for target in targets:
            if target in needed if isinstance(target, Node) else id(target) in wanted:
                below.add(node)
            else:
                aside.add(node)
        if node in below or any((node, i) in wanted for i in range(1 + len(node.more))):
            needed.add(node)
    return below, aside, needed


def uses_of(roots: list[Node], leaves: set[int]) -> dict[int, int]:
    """How many edges lead to each of some leaves, by its id."""
    counts: dict[int, int] = {}
    seen = set(roots)
    stack = list(seen)
    while stack:
        for target in stack.pop().targets():
            if id(target) in leaves:
                counts[id(target)] = counts.get(id(target), 0) + 1
            elif isinstance(target, Node) and target not in seen:
                seen.add(target)
                stack.append(target)
    return counts
