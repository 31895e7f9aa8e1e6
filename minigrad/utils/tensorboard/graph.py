"""The graph of a module for TensorBoard: the nodes of its autograd graph, by module.

The message is `GraphDef` of TensorFlow's graph.proto, with the nodes of node_def.proto.
"""

from __future__ import annotations

from typing import Any

from minigrad.autograd.mode import enable_grad
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor
from minigrad.utils._pytree import tree_leaves, tree_map
from minigrad.utils.tensorboard.records import bytes_field


def _nodes(values: Any) -> list:
    """The nodes of the graph that made the tensors."""
    found = [t.grad_fn for t in tree_leaves(values) if isinstance(t, Tensor)]
    return [node for node in found if node is not None]


class _Graph:
    """Names of nodes, given from the innermost module outwards, and their inputs."""

    def __init__(self, model: Module) -> None:
        self.names: dict[int, str] = {}
        self.inputs: dict[str, tuple[str, list]] = {}
        self.leaves: dict[int, str] = {
            id(p): name.replace(".", "/") for name, p in model.named_parameters()
        }
        self.kept: list = []  # so that no node's id is given to another one

    def watch(self, part: Module, scope: str) -> list:
        """The handles of two hooks: what a module is given is not its own, what it returns is."""
        outside = scope.rpartition("/")[0] or scope
        return [
            part.register_forward_pre_hook(
                lambda _, args, kwargs: self.add(outside, (args, kwargs)), with_kwargs=True
            ),
            part.register_forward_hook(lambda _, args, output: self.add(scope, output)),
        ]

    def add(self, scope: str, outputs: Any) -> None:
        """Name the nodes behind `outputs` that have no name yet."""
        waiting = _nodes(outputs)
        while waiting:
            node = waiting.pop()
            if id(node) in self.names:
                continue
            kind = node.name().removesuffix("0").removesuffix("Backward")
            name = f"{scope}/{kind}_{len(self.names)}"
            self.names[id(node)] = name
            self.kept.append(node)
            before = [child for child, _ in node.next_functions if child is not None]
            self.inputs[name] = kind, before
            waiting += [child for child in before if not hasattr(child, "variable")]

    def message(self, outputs: Any) -> bytes:
        """The message GraphDef."""
        for name in self.leaves.values():
            self.inputs[name] = "Parameter", []
        ends = [self.names[id(node)] for node in _nodes(outputs)]
        lines = [_node(name, kind, self._named(children))
                 for name, (kind, children) in self.inputs.items()]  # fmt: skip
        return b"".join([*lines, _node("output", "IO Node", ends)])

    def _named(self, children: list) -> list[str]:
        return [
            self.leaves.get(id(child.variable), "input")
            if hasattr(child, "variable")
            else self.names[id(child)]
            for child in children
        ]


def _node(name: str, kind: str, inputs: list[str]) -> bytes:
    given = b"".join(bytes_field(3, i.encode()) for i in inputs)
    return bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, kind.encode()) + given)


def graph(model: Module, inputs: Any) -> bytes:
    """The message GraphDef of model(*inputs), which is called once."""
    traced = _Graph(model)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    given = tree_map(_leaf, given)
    handles = []
    for name, part in model.named_modules():
        scope = "/".join([type(model).__name__, *filter(None, name.split("."))])
        handles += traced.watch(part, scope)
    try:
        with enable_grad():
            outputs = model(*given)
    finally:
        for handle in handles:
            handle.remove()
    return _node("input", "IO Node", []) + traced.message(outputs)


def _leaf(value: Any) -> Any:
    """A tensor whose gradient leads to the input, where it can have one."""
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
        return value.detach().requires_grad_()
    return value
