"""Numba's pipeline for functions that compiled kernels call by name, and for those that they call.

They are compiled once on a machine, before the first kernel that calls them runs. What only other
functions of this kind call is linked into each of its callers, so it is neither optimised nor made
into machine code on its own, and has no wrapper for Python.
"""

from __future__ import annotations

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NoPythonBackend

from kernels.simt.backend.codegen import PASSES
from kernels.simt.backend.numba_frontend import KernelCompiler


class _Library(JITCodeLibrary):
    """Code that is optimised once, with all that it calls; there are no vectors in it."""

    def _optimize_functions(self, ll_module) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager(
            opt=2, loop_vectorize=False, slp_vectorize=False
        )
        passes.run(self._final_module, builder)


class _Part(_Library):
    """Code that is optimised with its callers."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(BaseNativeLowering):
    _name = "simt_linked_lowering"

    @property
    def lowering_class(self) -> type:
        return Lower

    def run_pass(self, state) -> bool:
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(_Lowering):
    _name = "simt_part_lowering"

    def run_pass(self, state) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super(_Lowering, self).run_pass(state)
        # Numba knows a function by its entry point, which must be a builtin: one that only raises
        lowered = state["cr"] = state["cr"]._replace(cfunc=[].index)
        state.targetctx.insert_user_function(lowered.cfunc, lowered.fndesc, [state.library])
        return True


class Linked(KernelCompiler):
    """The pipeline of a function that kernels call; each of its variables has one type."""

    lowering: type = _Lowering

    def define_pipelines(self) -> list:
        passes = PassManager("simt linked")
        for step in (*PASSES, self.lowering, NoPythonBackend):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class Part(Linked):
    """The pipeline of a function that those call."""

    lowering = _PartLowering
