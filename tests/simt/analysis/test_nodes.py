"""Nodes of the normal form: `nodes_in` finds what `ast.walk` does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernels.simt.ir import nodes

SOURCES = sorted((Path(nodes.__file__).parents[1] / "ir").glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nodes_are_those_of_python_without_contexts_of_names(path):
    tree = ast.parse(path.read_text())
    expected = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    found = [node for node in nodes.nodes_in(tree) if not isinstance(node, ast.expr_context)]
    assert list(map(id, found)) == list(map(id, expected))


def test_fields_of_the_normal_form_are_searched():
    loop = nodes.Loop(ast.Name("a"), [ast.Expr(ast.Name("b"))])
    loop.pre = [ast.Expr(ast.Name("c"))]
    assert {node.id for node in nodes.nodes_in(loop) if isinstance(node, ast.Name)} == set("abc")
    assert nodes.names(ast.parse("f(x[i].y, *z, k=2 * w)", mode="eval")) == set("fxizw")
