"""The ONNX model of a trace: its nodes in order, inputs, outputs and parameters."""

from __future__ import annotations

from typing import Any

from onnx import helper

import minigrad
from minigrad.onnx.operations import write
from minigrad.onnx.trace import Trace, Value
from minigrad.onnx.writer import Writer, element


def build(
    trace: Trace,
    results: list[Value],
    inputs: list[str],
    outputs: list[str],
    dynamic: dict[str, dict[int, str | None]],
    opset: int,
    fold: bool,
    with_parameters: bool,
    parameters_as_inputs: bool,
) -> Any:
    """The message of the package onnx for a matched trace."""
    writer = Writer(trace, opset, fold)
    labels: dict[tuple[int, int], str] = {}  # of the lengths in both runs
    described = []
    for value, name in zip(trace.inputs, inputs, strict=True):
        writer.names[id(value)] = name
        given = dynamic.get(name, {})
        ndim = value.array.ndim
        own = {axis % ndim: label for axis, label in given.items()}
        for axis, sizes in enumerate(value.sizes()):
            if sizes[0] != sizes[1]:
                writer.dims.append((name, axis, sizes))
                labels.setdefault(sizes, own.get(axis) or f"{name}_dynamic_axes_{axis}")
        described.append(_described(name, value, own, labels))
    for call in trace.calls:
        if not all(writer.folded(value) for value in call.outputs[:1]):
            write(writer, call)
    writer.call = None
    shown = []
    for value, name in zip(results, outputs, strict=True):
        _give_name(writer, value, name)
        own = {axis % value.array.ndim: label for axis, label in dynamic.get(name, {}).items()}
        shown.append(_described(name, value, own, labels))
    nodes = _used(writer.nodes, outputs)
    read = {name for node in nodes for name in node.input}
    constants = [writer.initializers[name] for name in writer.initializers if name in read]
    if parameters_as_inputs or not with_parameters:
        described += [
            helper.make_tensor_value_info(name, element(value.array.dtype), value.array.shape)
            for name, value in writer.parameters.items()
            if name in read
        ]
    if not with_parameters:
        constants = [c for c in constants if c.name not in writer.parameters]
    graph = helper.make_graph(nodes, "main_graph", described, shown, constants)
    version = helper.make_opsetid("", opset)
    return helper.make_model(
        graph,
        opset_imports=[version],
        ir_version=helper.find_min_ir_version_for([version]),
        producer_name="minigrad",
        producer_version=minigrad.__version__,
    )


def _described(name: str, value: Value, own: dict[int, str | None], labels: dict) -> Any:
    """Name, dtype and shape of an input or output; dynamic lengths have a label or none."""
    shape = [
        a if a == b else own.get(axis) or labels.get((a, b)) or f"{name}_dynamic_axes_{axis}"
        for axis, (a, b) in enumerate(value.sizes())
    ]
    return helper.make_tensor_value_info(name, element(value.array.dtype), shape)


def _give_name(writer: Writer, value: Value, name: str) -> None:
    """Let an output of the graph have its name, by a node that copies."""
    made = writer.name(value)
    node = helper.make_node("Identity", [made], [name], f"output: {name}")
    writer.nodes.append(node)


def _used(nodes: list[Any], outputs: list[str]) -> list[Any]:
    """The nodes that the outputs depend on, in order."""
    needed, kept = {*outputs}, []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    return kept[::-1]
