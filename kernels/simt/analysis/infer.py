"""Types of a kernel's variables, from Numba's own type inference on a scalar model of it.

The model is the kernel as one thread would run it: thread coordinates and declared arrays are
parameters, and a collective is a call to a function that only has a type.
"""

from __future__ import annotations

import ast

from numba import njit
from numba.core import types
from numba.core.errors import NumbaError

from kernels.simt.analysis import standins
from kernels.simt.backend import explain, inference, target
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
    Collective,
    Loop,
    call,
    clone,
    const,
    located,
    negate,
)
from kernels.simt.ir.program import Program


class _ScalarModel(ast.NodeTransformer):
    """The kernel as one thread runs it, with stand-ins for collectives."""

    def __init__(self) -> None:
        self.standins: dict[str, object] = {}

    def visit_Collective(self, node: Collective) -> ast.stmt:
        if node.dest is None:
            return located(ast.Pass(), node)
        name = "_meet_" + node.kind
        self.standins[name] = standins.BY_NAME[node.kind]
        return located(ast.Assign([node.dest], call(name, *node.args[:3])), node)

    def visit_Loop(self, node: Loop) -> ast.stmt:
        self.generic_visit(node)
        stop = located(ast.If(negate(node.test), [ast.Break()], []), node)
        return located(ast.While(const(True), [*node.pre, stop, *node.body], []), node)


def infer(program: Program, args: list[types.Type], array_types: dict[str, types.Type]):
    """The type of every variable of `program`, by name.

    `args` are the types of the parameters and `array_types` those of declared and constant arrays.
    Raises CompileError with Numba's explanation where the kernel does not type.
    """
    model = _ScalarModel()
    body = [model.visit(stmt) for stmt in clone(program.body)] or [ast.Pass()]
    coordinates = [*THREAD, *BLOCK, *GRID]
    params = [*program.params, *array_types, *coordinates]
    arg_types = [*args, *array_types.values(), *[types.intp] * len(coordinates)]
    function = ast.FunctionDef(program.name, _arguments(params), body, [])
    module = ast.Module([function, *map(device_function, program.functions.values())], [])
    _place(module, program)
    namespace = {**program.externs, **model.standins}
    exec(compile(module, program.filename, "exec"), namespace)
    for inner in program.functions.values():
        compiled = njit(pipeline_class=target.DeviceFunctions)
        namespace[inner.name] = compiled(namespace[inner.name])
    try:
        return inference.variable_types(namespace[program.name], tuple(arg_types))
    except NumbaError as error:
        raise explain.untyped(program, str(error)) from None


def device_function(function) -> ast.FunctionDef:
    """A device function of the program as a definition."""
    return ast.FunctionDef(function.name, _arguments(function.params), function.body, [])


def _arguments(params: list[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in params], None, [], [], None, [])


def _place(module: ast.Module, program: Program) -> None:
    """Positions for every node, near the source lines they come from (errors quote them)."""

    def visit(node: ast.AST, line: int) -> None:
        if "lineno" in node._attributes:
            line = getattr(node, "lineno", line)
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
        for child in ast.iter_child_nodes(node):
            visit(child, line)

    visit(module, max(program.line, 1))
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and not hasattr(node, "type_params"):
            node.type_params = []
