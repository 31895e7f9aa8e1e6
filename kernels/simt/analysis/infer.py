"""Types of a kernel's variables, from Numba's own type inference on a scalar twin.

The twin is the kernel as one thread would run it: thread coordinates and declared arrays are
parameters, collectives are calls to functions that only have a type.
"""

from __future__ import annotations

import ast

from numba import njit
from numba.core import compiler, types
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from kernels.simt.backend import explain
from kernels.simt.backend.numba_frontend import KernelCompiler, Simplify
from kernels.simt.ir.nodes import (
    BLOCK,
    GRID,
    THREAD,
    Collective,
    Loop,
    call,
    const,
    located,
    negate,
)
from kernels.simt.ir.program import Program


class _Typed(BaseException):
    """Carries the type map out of Numba's pass manager."""


@register_pass(mutates_CFG=False, analysis_only=True)
class _Stop(AnalysisPass):
    _name = "simt_types_known"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state) -> bool:
        raise _Typed(state.typemap)


class _TypesOnly(KernelCompiler):
    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("simt_types")
        for step in (
            TranslateByteCode,
            FixupArgs,
            RewriteSemanticConstants,
            DeadBranchPrune,
            Simplify,
            NopythonTypeInference,
            _Stop,
        ):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


@njit
def shuffled(mask, value, lane):
    return value


@njit
def truth(*args):
    return True


@njit
def count(*args):
    return types.int32(0)


@njit
def lanes(*args):
    return types.uint32(0)


_STANDINS = {
    "activemask": lanes,
    "match_all_pred": truth,
    "all_sync": truth,
    "any_sync": truth,
    "eq_sync": truth,
}


def _standin(kind: str):
    return shuffled if kind.startswith("shfl") else _STANDINS.get(kind, count)


class _Twin(ast.NodeTransformer):
    def __init__(self) -> None:
        self.standins: dict[str, object] = {}

    def visit_Collective(self, node: Collective) -> ast.stmt:
        if node.dest is None:
            return located(ast.Pass(), node)
        name = "_meet_" + node.kind
        self.standins[name] = _standin(node.kind)
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
    from kernels.simt.analysis.ssa import clone

    twin = _Twin()
    body = [twin.visit(stmt) for stmt in clone(program.body)] or [ast.Pass()]
    coordinates = [*THREAD, *BLOCK, *GRID]
    params = [*program.params, *array_types, *coordinates]
    arg_types = [*args, *array_types.values(), *[types.intp] * len(coordinates)]
    function = ast.FunctionDef(program.name, _arguments(params), body, [])
    module = ast.Module([function, *map(device_function, program.functions.values())], [])
    _place(module, program)
    namespace = {**program.externs, **twin.standins}
    exec(compile(module, program.filename, "exec"), namespace)
    for inner in program.functions.values():
        namespace[inner.name] = njit(namespace[inner.name])
    cpu_target.target_context.refresh()
    flags = compiler.Flags()
    flags.error_model = "numpy"
    try:
        compiler.compile_extra(
            cpu_target.typing_context,
            cpu_target.target_context,
            namespace[program.name],
            tuple(arg_types),
            None,
            flags,
            {},
            pipeline_class=_TypesOnly,
        )
    except _Typed as typed:
        return _by_variable(typed.args[0])
    except NumbaError as error:
        raise explain.untyped(program, str(error)) from None
    raise AssertionError("type inference did not reach its last pass")


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


def _by_variable(typemap: dict[str, types.Type]) -> dict[str, types.Type]:
    groups: dict[str, list[types.Type]] = {}
    for name, kind in typemap.items():
        if not name.startswith(("$", "arg.")):
            groups.setdefault(name.split(".")[0], []).append(types.unliteral(kind))
    unify = cpu_target.typing_context.unify_types
    result = {}
    for name, kinds in groups.items():
        kinds = list(dict.fromkeys(kinds))
        kind = kinds[0] if len(kinds) == 1 else unify(*kinds)
        if kind is not None:
            result[name] = kind
    return result
