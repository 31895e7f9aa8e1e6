"""Numba's type inference on its own, and the types that a signature declares."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from numba.core import compiler, errors, sigutils, types
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.typeconv import Conversion
from numba.core.typeconv.rules import default_type_manager
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    RewriteSemanticConstants,
)

from kernels.simt.backend import target
from kernels.simt.backend.numba_frontend import KernelCompiler, Simplify, Translate


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
            Translate,
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


def variable_types(function: FunctionType, args: tuple[types.Type, ...]) -> dict[str, types.Type]:
    """The type of every variable of `function` for arguments of these types, by name.

    Raises NumbaError where the function does not type.
    """
    target.adopt()
    cpu_target.target_context.refresh()
    flags = compiler.Flags()
    flags.error_model = "numpy"
    contexts = cpu_target.typing_context, cpu_target.target_context
    try:
        compiler.compile_extra(
            *contexts, function, args, None, flags, {}, pipeline_class=_TypesOnly
        )
    except _Typed as typed:
        return _by_variable(typed.args[0])
    except RecursionError:
        raise errors.TypingError(
            "runaway recursion: a function calls itself with other types each time"
        ) from None
    raise AssertionError("type inference did not reach its last pass")


def _by_variable(typemap: dict[str, types.Type]) -> dict[str, types.Type]:
    """The types of Numba's versions of a variable (`x`, `x.1`, ...), unified."""
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


def declared_types(signature: Any) -> tuple[tuple[types.Type, ...], types.Type | None]:
    """(argument types, return type or None) of a signature in any form that `numba.njit` takes."""
    return sigutils.normalize_signature(parsed(signature))


def parsed(signature: Any) -> Any:
    """A signature that may be text, as Numba reads it; it may also name bfloat16."""
    if not isinstance(signature, str) or "bfloat16" not in signature:
        return signature
    from kernels.simt.devlib import half

    return eval(signature, {}, {**vars(types), "bfloat16": half.bfloat16})


def conversions(kinds: tuple, option: tuple) -> list[int]:
    """How many arguments of these types a signature converts unsafely, safely, and to a wider type:
    Numba's order of what fits best."""
    found = [default_type_manager.check_compatible(*pair) for pair in zip(kinds, option)]
    order = Conversion.unsafe, Conversion.safe, Conversion.promote
    return [found.count(conversion) for conversion in order]
