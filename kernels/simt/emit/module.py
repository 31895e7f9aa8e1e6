"""The generated module as text: imports, device functions, the kernel's function."""

from __future__ import annotations

import ast

from kernels.simt.analysis.infer import device_function
from kernels.simt.emit.block import BlockPrinter
from kernels.simt.emit.interleaved import InterleavedPrinter
from kernels.simt.emit.strides import StridePrinter
from kernels.simt.ir.nodes import Loop, clone
from kernels.simt.ir.program import Program, importable
from kernels.simt.plan.parts import BlockPlan
from kernels.support.cache import fits

SPIN_LIMIT = 1 << 28
CHECKS = (
    "from kernels.simt.ir.checks import mark as _mark",
    "from kernels.simt.ir.checks import place as _place",
    "from kernels.simt.ir.checks import written as _check_written",
)


def module_text(plan: BlockPlan, fastmath: bool) -> tuple[str, dict[str, object]]:
    """(source of the generated module, objects that it needs but cannot import)."""
    printer = _printer(plan)
    function, program = printer.function(plan.program.name), printer.program
    devices = [
        ast.unparse(ast.fix_missing_locations(_definition(inner)))
        for inner in program.functions.values()
    ]
    imports, given = [], {}
    for name, value in sorted(program.externs.items()):
        if type(value) is float:  # NaN, which has no literal
            imports.append(f"{name} = float('{value}')")
            continue
        place = importable(value)
        if place is None:
            given[name] = value
        elif place[1]:
            imports.append(f"from {place[0]} import {place[1]} as {name}")
        else:
            imports.append(f"import {place[0]} as {name}")
    flags = "True" if fastmath else "{'contract'}"
    # Numba cannot load recursive functions from its cache, whose files have functions' names
    cached = fits(program.name) and not _is_recursive(program)
    options = f"nogil=True, cache={cached}, fastmath={flags}, error_model='numpy'"
    options += ", no_cfunc_wrapper=True"
    pipeline = "CheckedThreadLoops" if program.checked else "ThreadLoops"
    if "_empty" not in program.externs:  # no array of Numba's own, whose owners are counted
        options += ", _nrt=False"
    lines = [
        f'"""Kernel {program.name!r} of {program.filename}, compiled for the CPU:',
        f"{program.blocks}; one function runs a range of blocks.",
        '"""',
        "",
        "from numba import njit as _njit",
        "from numba.core.types import uint64 as _u",
        "",
        "from numba.core.types import int64 as _int64",
        "from kernels.simt.ir.checks import record as _record",
        "from kernels.simt.ir.checks import stopped as _stopped",
        f"from kernels.simt.backend.codegen import {pipeline} as _ThreadLoops",
        *["from kernels.simt.backend.target import DeviceFunctions as _DeviceFunctions"][
            : len(devices)
        ],
        *CHECKS[: 3 * program.checked],
        "from kernels.simt.devlib.maths import maximum as _max",
        "from kernels.simt.devlib.maths import minimum as _min",
        "from kernels.simt.ir.memory import stack_array as _stack_array",
        "from kernels.simt.ir.memory import view_bytes as _view_bytes",
        *imports,
        "",
        f"CHECKED = {program.checked}",
        f"COOPERATIVE = {program.cooperative}",
        f"SITES = {tuple(printer.expressions.sites)!r}",
        f"_SPIN_LIMIT = {SPIN_LIMIT}",
        "",
    ]
    for text in devices:
        bounds = ", boundscheck=True" if program.checked else ""
        lines += ["", f"@_njit({options}{bounds}, pipeline_class=_DeviceFunctions)", text, ""]
    lines += ["", f"@_njit({options}, pipeline_class=_ThreadLoops)", function]
    lines += [""]
    return "\n".join(lines), given


def _printer(plan: BlockPlan) -> BlockPrinter:
    if plan.interleaving is not None:
        return InterleavedPrinter(plan, plan.interleaving)
    return BlockPrinter(plan) if plan.strides is None else StridePrinter(plan, plan.strides)


def _is_recursive(program: Program) -> bool:
    """Whether a device function that is compiled on its own calls itself, directly or not."""
    calls_of = {
        f.name: {n.id for s in f.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        for f in program.functions.values()
    }
    for name in calls_of:
        seen: set[str] = set()
        todo = [name]
        while todo:
            for called in calls_of[todo.pop()] & set(calls_of):
                if called == name:
                    return True
                if called not in seen:
                    seen.add(called)
                    todo.append(called)
    return False


def _definition(function) -> ast.FunctionDef:
    return _NoLoops().visit(clone(device_function(function)))


class _NoLoops(ast.NodeTransformer):
    """Loops of the normal form as Python's."""

    def visit_Loop(self, node: Loop) -> ast.While:
        self.generic_visit(node)
        if not node.pre:
            return ast.While(node.test, node.body, [])
        stop = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
        return ast.While(ast.Constant(True), [*node.pre, stop, *node.body], [])
