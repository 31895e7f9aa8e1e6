"""From generated Python to machine code: Numba, with what kernels need and without the rest.

The threads of a block are independent between two barriers, so a loop over them may be vectorised
without looking for aliases; it must not be unrolled before the vectoriser has seen it, but may be
after it; and vectors may be as wide as the processor has them. Numba has no way to say so, so
`ThreadLoopLower` adds the metadata that says it to loops that count with `_tx`. And a kernel
compiles faster: `PASSES` are those of Numba that it needs, and `KernelLibrary` optimises a module
once.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable

from llvmlite import ir
from llvmlite.ir.values import MDValue
from numba.core import cgutils, types
from numba.core import ir as numba_ir
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, RewriteSemanticConstants, TranslateByteCode

from . import elements
from .entry import add_entry
from .lean import KernelCompiler, Releases, Remembering, Simplify

THREAD_LOOP = "_tx"  # counts a loop over threads ...
ORDERED_LOOP = "_sx"  # ... unless it is set from this: threads that must run one by one
UNROLLED = "_k_"  # begins the counter of a loop that is to be unrolled ...
FOUR_TIMES = "_d_"  # ... and of one that is to do four turns at a time
# Tuned for older processors, LLVM would use half of AVX-512: half of BLAS's speed.
WIDEST_VECTORS = '"prefer-vector-width"="512"'
_POWERS = (operator.pow, operator.ipow)  # by a constant: there is faster code for it
_I32 = ir.IntType(32)


class _Distinct(MDValue):
    """A metadata node of its own identity, which may refer to itself."""

    def descr(self, buf: list[str]) -> None:
        operands = ", ".join(
            op.get_reference() if isinstance(op, MDValue | ir.MetaDataString) else str(op)
            for op in self.operands
        )
        buf += ["distinct !{ ", operands, " }", "\n"]


def _node(module: ir.Module, *operands: object) -> _Distinct:
    return _Distinct(module, operands, name=str(len(module.metadata)))


def _property(module: ir.Module, name: str, *values: ir.Constant) -> MDValue:
    return module.add_metadata([ir.MetaDataString(module, name), *values])


class ThreadLoopLower(Lower):
    """Numba's lowering, then metadata on the loops over threads."""

    def lower_function_body(self):
        self.owner: dict[str, int] = {}
        self.implementations: dict[tuple, Callable] = {}
        entry = super().lower_function_body()
        set.add(self.function.attributes, WIDEST_VECTORS)  # past add(), which knows no strings
        self._annotate()
        return entry

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        numbas = super().create_cpython_wrapper

        def wrap(raises: bool) -> None:
            if raises or not add_entry(self.context, self.library, self.fndesc):
                numbas(release_gil)

        self.library.wrap = wrap

    def lower_binop(self, resty, expr, op):
        """Numba's, without its three attempts to find code for constant operands."""
        signature = self.fndesc.calltypes[expr]
        function = self.context.typing_context.resolve_value_type(op)
        if op in _POWERS or signature.args not in getattr(function, "_impl_keys", ()):
            return super().lower_binop(resty, expr, op)
        result = self._operation(op, signature, expr.lhs, expr.rhs)
        return self.context.cast(self.builder, result, signature.return_type, resty)

    def lower_getitem(self, resty, expr, value, index, signature):
        array, place = self._typed(value), self._typed(index)
        if elements.is_element(array[0], place[0]):
            found, kind = elements.load(self.context, self.builder, array, place), array[0].dtype
        else:
            found = self._operation(operator.getitem, signature, value, index)
            kind = signature.return_type
        return self.context.cast(self.builder, found, kind, resty)

    def lower_setitem(self, target_var, index_var, value_var, signature):
        array, place = self._typed(target_var), self._typed(index_var)
        if not elements.is_element(array[0], place[0]):
            return self._operation(operator.setitem, signature, target_var, index_var, value_var)
        kind, given = self._typed(value_var)
        value = self.context.cast(self.builder, given, kind, array[0].dtype)
        return elements.store(self.context, self.builder, array, place, value)

    def _typed(self, variable: numba_ir.Var) -> tuple[types.Type, ir.Value]:
        return self.typeof(variable.name), self.loadvar(variable.name)

    def _operation(self, op, signature, *operands: numba_ir.Var) -> ir.Value:
        """Code for an operation; Numba looks for its implementation anew each time."""
        values = [
            self.context.cast(self.builder, self.loadvar(x.name), self.typeof(x.name), wanted)
            for x, wanted in zip(operands, signature.args)
        ]
        key = op, signature
        if key not in self.implementations:
            context = Remembering(self.context.typing_context)
            function = context.resolve_value_type(op)
            called = context.resolve_function_type(function, signature.args, {})
            self.implementations[key] = self.context.get_function(function, called)
        return self.implementations[key](self.builder, values)

    def _find_singly_assigned_variable(self) -> None:
        """Numba's, which need no place in memory, and those that are assigned at first for good."""
        super()._find_singly_assigned_variable()
        targets = Counter(
            statement.target.name
            for block in self.blocks.values()
            for statement in block.find_insts(numba_ir.Assign)
        )
        for statement in self.blocks[min(self.blocks)].find_insts(numba_ir.Assign):
            if targets[statement.target.name] == 1:
                self._singly_assigned_vars.add(statement.target.name)

    def storevar(self, value, name, argidx=None):
        """Numba's, without a look at the value before, which may own memory."""
        super_knows = self.context.enable_nrt or name in self._singly_assigned_vars
        if super_knows:
            super().storevar(value, name, argidx)
        else:
            self.builder.store(value, self.getvar(name))
            self.stored[name] = value

    def loadvar(self, name):
        return self.stored.get(name) or super().loadvar(name)

    def alloca_lltype(self, name, lltype, datamodel=None):
        """Numba's, which for debuggers also asks LLVM for the size."""
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    def lower_block(self, block) -> None:
        already = len(self.function.blocks)
        self.stored: dict[str, ir.Value] = {}  # in this block, so that it need not be loaded
        label = next(k for k, b in self.blocks.items() if b is block)
        super().lower_block(block)
        self.owner[self.blkmap[label].name] = label
        for made in self.function.blocks[already:]:
            self.owner[made.name] = label

    def _annotate(self) -> None:
        loops = list(compute_cfg_from_blocks(self.blocks).loops().values())
        for loop in self._counted_by(loops, lambda name: name.startswith(UNROLLED)):
            self._describe(loop, [_property(self.module, "llvm.loop.unroll.full")])
        for loop in self._counted_by(loops, lambda name: name.startswith(FOUR_TIMES)):
            self._describe(loop, [_property(self.module, "llvm.loop.unroll.count", _I32(4))])
        ordered = {loop.header for loop in self._counted_by(loops, ORDERED_LOOP.__eq__)}
        for loop in self._counted_by(loops, THREAD_LOOP.__eq__):
            if loop.header in ordered:
                continue
            group = _node(self.module)
            vectorised = _property(self.module, "llvm.loop.isvectorized", _I32(1))
            properties = [
                _property(self.module, "llvm.loop.unroll.disable"),
                _property(self.module, "llvm.loop.parallel_accesses", group),
                _property(self.module, "llvm.loop.vectorize.followup_vectorized", vectorised),
            ]
            self._describe(loop, properties)
            for block in self._blocks_of(loop):
                for instruction in block.instructions:
                    if _touches_an_array(instruction):
                        instruction.set_metadata("llvm.access.group", group)

    def _blocks_of(self, loop) -> list[ir.Block]:
        return [b for b in self.function.blocks if self.owner.get(b.name) in loop.body]

    def _describe(self, loop, properties: list[MDValue]) -> None:
        """Attach properties to the branches that lead back to the loop's header."""
        loop_id = _node(self.module)
        loop_id.operands = (loop_id, *properties)
        for block in self._blocks_of(loop):
            end = block.terminator
            if isinstance(end, ir.Branch) and end.operands[0] is self.blkmap[loop.header]:
                end.set_metadata("llvm.loop", loop_id)

    def _counted_by(self, loops: list, wanted: Callable[[str], bool]) -> list:
        """The innermost loop around each assignment to a counter that is `wanted`."""
        found = {}
        for label, block in self.blocks.items():
            counts = any(
                isinstance(s, numba_ir.Assign) and wanted(s.target.name.split(".")[0])
                for s in block.body
            )
            around = [loop for loop in loops if label in loop.body]
            if counts and around:
                loop = min(around, key=lambda loop: len(loop.body))
                found[loop.header] = loop
        return list(found.values())


def _touches_an_array(instruction: ir.Instruction) -> bool:
    """Whether this is a load or store of array data, and not of one of Numba's own variables."""
    if isinstance(instruction, ir.LoadInstr):
        pointer = instruction.operands[0]
    elif isinstance(instruction, ir.StoreInstr):
        pointer = instruction.operands[1]
    else:
        return False
    while isinstance(pointer, ir.GEPInstr | ir.CastInstr):
        pointer = pointer.operands[0]
    return isinstance(pointer, ir.instructions.ExtractValue)


class KernelLibrary(JITCodeLibrary):
    """Machine code of a kernel: functions are simplified, then the module is optimised once.

    Numba optimises it twice, so that reference counts of Python objects meet and cancel. Kernels
    have none. Without the first step some loops are not vectorised: the weight gradient of small
    images takes ten times as long, and a short list of passes in its place does not help. The
    wrapper for Python comes last: which one depends on what optimisation leaves.
    """

    wrap: Callable[[bool], None]
    quick = False  # to compile rather than to run
    kernel_done = False  # what comes then is the wrapper

    def _optimize_functions(self, ll_module) -> None:
        if not self.quick:
            super()._optimize_functions(ll_module)
            return
        ll_module.data_layout = self._codegen._data_layout
        if self.kernel_done:
            self._optimise(ll_module)

    def _optimize_final_module(self) -> None:
        self._optimise(self._final_module)
        self.quick = self.kernel_done = True
        # Numba keeps each exception that code may raise as a pickled constant
        raises = any("pickle" in each.name for each in self._final_module.global_variables)
        vars(self).pop("wrap")(raises)  # it holds all that lowering made, ten megabytes

    def _optimise(self, ll_module) -> None:
        quick = {"opt": 1, "loop_vectorize": False, "slp_vectorize": False}
        passes, builder = self._codegen._module_pass_manager(**(quick if self.quick else {}))
        passes.run(ll_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class ThreadLoopLowering(BaseNativeLowering):
    _name = "simt_native_lowering"
    quick = False

    @property
    def lowering_class(self) -> type:
        return ThreadLoopLower

    def run_pass(self, state) -> bool:
        codegen = state.targetctx.codegen()
        state.library = KernelLibrary(codegen, state.func_id.func_qualname)
        state.library.quick = self.quick
        state.library.enable_object_caching()
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class CheckedLowering(ThreadLoopLowering):
    _name = "simt_checked_lowering"
    quick = True


PASSES = (
    TranslateByteCode,
    FixupArgs,
    RewriteSemanticConstants,
    Simplify,
    NopythonTypeInference,
    Releases,
)


class ThreadLoops(KernelCompiler):
    """Numba's nopython pipeline without the passes that change nothing in generated code.

    It has no closures, no array expressions and no branch on a constant; and a variable of it has
    one type (`webs` sees to that), so that single assignments need not be made.
    """

    lowering: type = ThreadLoopLowering

    def define_pipelines(self) -> list:
        passes = PassManager("simt")
        for step in (*PASSES, self.lowering, NoPythonBackend):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class CheckedThreadLoops(ThreadLoops):
    """The same for the checked mode, in which threads run one by one: nothing to vectorise."""

    lowering = CheckedLowering
