"""Numba's compilation errors, condensed to one or two lines that the author of a kernel can use.

Numba's internal source lines, passes and lists of candidates are left out; the reason that a
candidate gave is kept.
"""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

from kernels.simt.ir.program import Program
from kernels.support.errors import CompileError

_REFUSAL = re.compile(r"^\s*(?:Typing|Type|Value)Error: (.+)", re.MULTILINE)
_DETAILS = ("There are ", 'File "', "During: ")  # how the parts after the reason begin
_UNTYPED = re.compile(r"Untyped global name '(\w+)'")
_GENERATED_LINE = re.compile(r"\.py \((\d+)\)")
_SOURCE_LINE = re.compile(r"\bline (\d+)$")


def untyped(program: Program, report: str) -> CompileError:
    """The error for a kernel whose types cannot be inferred."""
    where = re.search(rf"at {re.escape(program.filename)} \((\d+)\)", report)
    line = where[1] if where else program.line
    return CompileError(
        f"kernel {program.name!r} does not type-check:\n"
        f"{program.filename}:{line}:"
        f" {program.in_source_names(_reason(report, program.externs))}"
    )


def unlowered(kernel: Any, generated: str, report: str) -> CompileError:
    """The error for a kernel that types but cannot be lowered; `generated` is the module's text."""
    reason = _reason(report, {})
    if "NRT required" in report or "allocat" in report:
        reason = (
            "it makes an array, and a kernel cannot allocate memory; loop over the elements, or"
            " write into a cuda.local.array"
        )
    places = _GENERATED_LINE.findall(report)
    above = generated.splitlines()[: int(places[-1]) if places else 0]
    lines = [found[1] for text in above if (found := _SOURCE_LINE.search(text))]
    code = kernel.py_func.__code__
    near = lines[-1] if lines else code.co_firstlineno
    return CompileError(
        f"kernel {kernel.__name__!r} cannot be compiled:\n"
        f"{code.co_filename}:{near}, or soon after: {reason}"
    )


def _reason(report: str, externs: dict[str, Any]) -> str:
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", report).splitlines()]
    untyped_name = _UNTYPED.search(report)
    if untyped_name:
        return _not_for_kernels(externs.get(untyped_name[1], untyped_name[1]))
    if "setitem(readonly" in report:
        return "the array is read-only: it cannot be written"
    refusals = [m[1] for m in _REFUSAL.finditer(report) if not m[1].startswith("Failed in ")]
    kept = [text for text in lines if text and not text.startswith("Failed in ")]
    end = next((i for i, text in enumerate(kept) if text.startswith(_DETAILS)), len(kept))
    return refusals[0] if refusals else " ".join(kept[:end])


def _not_for_kernels(value: Any) -> str:
    """Why a global has no type: what it is, and what to do."""
    name = value if isinstance(value, str) else getattr(value, "__name__", None)
    if isinstance(value, FunctionType):
        return f"{name!r} is a plain Python function: decorate it with @cuda.jit(device=True)"
    if name is None:
        return f"a global {type(value).__name__} means nothing in a kernel: pass numbers, or arrays"
    module = getattr(value, "__module__", None) or "numpy"
    label = name if module == "builtins" or isinstance(value, str) else f"{module}.{name}"
    return f"{label}() has no CUDA equivalent: numba-cuda does not compile it either"
