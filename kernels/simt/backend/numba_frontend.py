"""Numba's front end for generated kernels: cached typing, and fewer passes.

Two steps take most of its time. To type an operation, Numba tries the operation's templates one by
one, at every use in every kernel. For numbers and arrays the result is always the same, so it is
cached. And Numba computes three times where each variable is last used, to release arrays there;
only kernels with grid barriers own arrays.
"""

from __future__ import annotations

from operator import getitem, setitem
from typing import Any

from numba.core import interpreter, types
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.rewrites import rewrite_registry
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import IRLegalization
from numba.core.untyped_passes import TranslateByteCode

from kernels.simt.backend.target import ForKernels
from kernels.support import interrupts

_CACHEABLE = types.Number | types.Boolean | types.Array
_signatures: dict[tuple, Any] = {}


def are_cacheable(args: tuple) -> bool:
    """Whether the types of arguments, or of their items, are such that signatures are cached."""
    return all(isinstance(t, _CACHEABLE) for arg in args for t in _items(arg))


def _items(kind: Any) -> Any:
    return kind if isinstance(kind, types.BaseTuple) else (kind,)


class CachedTyping:
    """Numba's typing context with a cache of the signatures of operations.

    Some overloads compile during typing, so the cache is keyed on the `flags` as well.
    """

    def __init__(self, context: Any, flags: Any = None) -> None:
        self._context, self._flags = context, flags

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: tuple, kws: dict) -> Any:
        interrupts.check()
        is_operation = isinstance(func, types.Function | types.NumberClass) or func is getitem
        if kws or not is_operation:
            return self._context.resolve_function_type(func, args, kws)
        if not are_cacheable(args):
            return self._context.resolve_function_type(func, args, kws)
        key = (self._context, self._flags, func, tuple(args))
        found = _signatures.get(key)
        if found is None:
            found = self._context.resolve_function_type(func, args, kws)
            if found is not None:
                _signatures[key] = found
        return found

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        function = self._context.resolve_value_type(setitem)
        return self.resolve_function_type(function, (target, index, value), {})


class KernelCompiler(ForKernels, CompilerBase):
    """A Numba pipeline with cached typing."""

    def __init__(self, typingctx: Any, *args: Any) -> None:
        super().__init__(typingctx, *args)
        self.state.typingctx = CachedTyping(typingctx)


_NOT_IN_KERNELS = (
    interpreter.peep_hole_delete_with_exit,
    interpreter.peep_hole_fuse_dict_add_updates,
)


class _Interpreter(interpreter.Interpreter):
    """Numba's translation of bytecode, without its search for `with` and for dictionaries."""

    def post_process(self, peepholes: list, func_ir: Any) -> Any:
        used = [one for one in peepholes if one not in _NOT_IN_KERNELS]
        return super().post_process(used, func_ir)


@register_pass(mutates_CFG=True, analysis_only=False)
class Translate(TranslateByteCode):
    """Bytecode to Numba's IR."""

    _name = "simt_translate_bytecode"

    def run_pass(self, state: Any) -> bool:
        state["func_ir"] = _Interpreter(state["func_id"]).interpret(state["bc"])
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class Simplify(FunctionPass):
    """Canonical loops with one back edge, and Numba's rewrites of constant operands."""

    _name = "simt_simplify"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        func_ir = state.func_ir
        func_ir.blocks = blocks = canonicalize_cfg(func_ir.blocks)
        for rewrite_class in rewrite_registry.rewrites["before-inference"]:
            rewrite = rewrite_class(state)
            for label in blocks:
                while rewrite.match(func_ir, blocks[label], state.typemap, state.calltypes):
                    blocks[label] = rewrite.apply()
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class Releases(IRLegalization):
    """Inserts Numba's `del` of each variable, in kernels that own arrays."""

    _name = "simt_releases"

    def run_pass(self, state: Any) -> bool:
        return state.flags.nrt and super().run_pass(state)
