"""Numba's pipeline for generated kernels: loop metadata, and fewer passes.

The threads of a block are independent between two barriers, so a loop over them may be vectorised
without alias checks. It must not be unrolled before vectorisation, but may be afterwards, and it
may use the widest vectors of the processor. Numba has no option for this, so `ThreadLoopLower`
attaches LLVM's loop metadata to loops that count with `_tx`. Kernels also compile faster than with
Numba's own pipeline: `PASSES` are the passes that they need, and `KernelLibrary` optimises a module
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.ir.values import MDValue
from numba.core import ir as numba_ir
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import BaseNativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, RewriteSemanticConstants

from kernels.simt.backend import entry, masked_stores
from kernels.simt.backend.lowering import KernelLower
from kernels.simt.backend.numba_frontend import KernelCompiler, Releases, Simplify, Translate
from kernels.simt.ir.hints import Hint, decode

# LLVM's default for AVX-512 is 256 bits, which halves the speed of a matrix product.
WIDEST_VECTORS = '"prefer-vector-width"="512"'
# In names of variables: Numba stores each exception that the code may raise as a pickled constant,
# and calls functions that are still being compiled, such as recursive ones, through pointers.
_MAY_RAISE = ".pickle", ".numba.unresolved"
# Rows of threads that do not fill a vector read every second element by masked loads and shuffles,
# not by gathers. x86's cost model leaves this off; 2x2 maxima of 14 columns take 0.7 ns, not 2.3.
llvm.set_option("minigrad", "-enable-masked-interleaved-mem-accesses")
# Sums of a row are an array on the stack until LLVM keeps them in registers, for which it looks at
# all places that use the array. It gives up at a hundred, and a dozen unrolled rows have more: each
# iteration would store all sums. A product whose threads sum in a loop took three times as long.
llvm.set_option("minigrad", "-capture-tracking-max-uses-to-explore=100000")
# A Zen 4 gathers into vectors in twice the time of loads one by one. Where elements are computed
# with, the vectors are still worth it.
_SLOW_GATHERS = llvm.get_host_cpu_name().startswith("znver")
_STRAIGHT = 2  # blocks of a loop without branches: its header and its body
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_FLOATS = ir.FloatType(), ir.DoubleType()


class _Distinct(MDValue):
    """A distinct metadata node, which may refer to itself."""

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


class ThreadLoopLower(KernelLower):
    """Lowering, then metadata on the loops over threads."""

    def lower_function_body(self):
        self.owner: dict[str, int] = {}
        end = super().lower_function_body()
        set.add(
            self.function.attributes, WIDEST_VECTORS
        )  # bypass add(), which rejects string attributes
        if _SLOW_GATHERS and (_only_copies(self.function) or _only_moves_scattered(self.function)):
            features = f"{self.library.codegen._tm_features},+prefer-no-gather,+prefer-no-scatter"
            set.add(self.function.attributes, f'"target-features"="{features}"')
        self._annotate()
        self.fits = entry.layout(self.context, self.fndesc.argtypes) is not None
        if self.fits:
            self._add_runner()
        return end

    def _add_runner(self) -> None:
        """Add the function that runs the kernel with arguments from an array of words."""
        kind = ir.FunctionType(_I64, [_I64.as_pointer()])
        runner = ir.Function(self.module, kind, entry.runner(self.fndesc))
        builder = ir.IRBuilder(runner.append_basic_block("entry"))
        result, exception, *params = self.function.args
        given = [builder.alloca(place.type.pointee) for place in (result, exception)]
        for position, param in enumerate(params):
            word = builder.gep(runner.args[0], [_I64(position)])
            given.append(builder.load(builder.bitcast(word, param.type.as_pointer())))
        builder.call(self.function, given, attrs=("noinline",))
        builder.ret(builder.load(given[0]))

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        numbas = super().create_cpython_wrapper

        def wrap(raises: bool) -> None:
            if raises or not self.fits:
                numbas(release_gil)
            else:
                self.library.link(entry.refusing(self.fndesc))

        self.library.wrap = wrap

    def lower_block(self, block) -> None:
        before = len(self.function.blocks)
        label = next(k for k, b in self.blocks.items() if b is block)
        super().lower_block(block)
        self.owner[self.blkmap[label].name] = label
        for made in self.function.blocks[before:]:
            self.owner[made.name] = label

    def _annotate(self) -> None:
        hinted = self._hinted()
        for loop in hinted[Hint.UNROLL]:
            self._describe(loop, [_property(self.module, "llvm.loop.unroll.full")])
        for loop in hinted[Hint.UNROLL_4]:
            self._describe(loop, [_property(self.module, "llvm.loop.unroll.count", _I32(4))])
        # LLVM would copy all that a row's threads do for each row. Straight code gains a little
        # by that; code with branches, or with a loop of the kernel around its threads, only takes
        # long to compile.
        threads = hinted[Hint.THREADS]
        known = {loop.header for loops in hinted.values() for loop in loops}
        others = [loop for loop in self._loops() if loop.header not in known]
        long = [loop for loop in threads if len(loop.body) > _STRAIGHT]
        long += [loop for loop in others if any(inner.body < loop.body for inner in threads)]
        for loop in hinted[Hint.ROWS]:
            if any(inner.body < loop.body for inner in long):
                self._describe(loop, [_property(self.module, "llvm.loop.unroll.disable")])
        ordered = {loop.header for loop in hinted[Hint.ORDERED_THREADS]}
        # One group for all loops: llvmlite takes distinct nodes that look the same for one, so all
        # properties would name the first loop's group, and only that would go without alias checks
        group = _node(self.module)
        vectorised = _property(self.module, "llvm.loop.isvectorized", _I32(1))
        properties = [
            _property(self.module, "llvm.loop.unroll.disable"),
            _property(self.module, "llvm.loop.parallel_accesses", group),
            _property(self.module, "llvm.loop.vectorize.followup_vectorized", vectorised),
        ]
        places = _LoadedPlaces(self.function)
        for loop in hinted[Hint.THREADS]:
            inside = [i for block in self._blocks_of(loop) for i in block.instructions]
            inside = [i for i in inside if _array_of(i) is not None]
            if loop.header in ordered or places.are_changed_by(inside):
                continue
            self._describe(loop, properties)
            for instruction in inside:
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

    def _loops(self) -> list:
        return list(compute_cfg_from_blocks(self.blocks).loops().values())

    def _hinted(self) -> dict[Hint, list]:
        """By hint: the innermost loop around each assignment to a counter whose name encodes it."""
        loops = self._loops()
        found: dict[Hint, dict] = {hint: {} for hint in Hint}
        for label, block in self.blocks.items():
            hints = {self._hint(s) for s in block.find_insts(numba_ir.Assign)} - {None}
            around = [loop for loop in loops if label in loop.body] if hints else []
            if around:
                loop = min(around, key=lambda loop: len(loop.body))
                for hint in hints:
                    found[hint][loop.header] = loop
        return {hint: list(of_hint.values()) for hint, of_hint in found.items()}

    def _hint(self, assign: numba_ir.Assign) -> Hint | None:
        """The hint in the name that is assigned to."""
        name = assign.target.name
        hint = decode(name.split(".")[0]) if name[0] == "_" else None
        if hint is not Hint.ROWS:
            return hint
        counted = self.func_ir.get_definition(assign.value)  # else it is computed, as in a row
        return hint if getattr(counted, "op", None) == "pair_first" else None


def _only_copies(function: ir.Function) -> bool:
    """Whether what the function stores into arrays has been loaded from arrays, without a choice
    between elements, or is constant."""
    assigned, stores = _assigned(function), _instructions(function, ir.StoreInstr)
    values = [store.operands[0] for store in stores if _array_of(store) is not None]
    seen: set[ir.Value] = set()
    while values:
        value = values.pop()
        if value in seen or isinstance(value, ir.Constant):
            continue
        seen.add(value)
        if isinstance(value, ir.CastInstr):
            values.append(value.operands[0])
        elif isinstance(value, ir.LoadInstr) and len(assigned.get(value.operands[0], ())) == 1:
            values += assigned[value.operands[0]]
        elif _array_of(value) is None:
            return False
    return True


def _only_moves_scattered(function: ir.Function) -> bool:
    """Whether there are floats at indices that each thread of a row has loaded for itself, and all
    are only copied, as a tile of results is that a table spreads; what else the function computes
    has rows of neighbours, which stay vectors."""
    assigned = _assigned(function)

    def sources(values: Iterable[ir.Value]) -> Iterator[ir.Instruction]:
        """What values are computed from, up to elements of arrays."""
        seen, left = set(), list(values)
        while left:
            one = left.pop()
            if one not in seen and isinstance(one, ir.Instruction):
                seen.add(one)
                yield one
                if isinstance(one, ir.LoadInstr):
                    left += assigned.get(one.operands[0], ())
                elif not isinstance(one, ir.GEPInstr):
                    left += one.operands

    def index(access: ir.Instruction) -> Iterator[ir.Instruction]:
        pointer = access.operands[-1]
        return sources(pointer.operands[1:] if isinstance(pointer, ir.GEPInstr) else ())

    names = ((place.name.split(".")[0], values) for place, values in assigned.items() if place.name)
    numbers = {one for name, of in names if decode(name) is Hint.THREADS for one in of}
    loads = [one for one in _instructions(function, ir.LoadInstr) if _of_argument(one)]
    stores = [one for one in _instructions(function, ir.StoreInstr) if _of_argument(one)]
    own = {load for load in loads if not numbers.isdisjoint(index(load))}
    gathered = {one for one in loads if one.type in _FLOATS and not own.isdisjoint(index(one))}
    scattered = [one.operands[0] for one in stores if not own.isdisjoint(index(one))]
    moving = ir.LoadInstr | ir.StoreInstr | ir.CastInstr | ir.GEPInstr
    computing = [o for o in _instructions(function, ir.Instruction) if not isinstance(o, moving)]
    computed = sources(operand for one in computing for operand in one.operands)
    return (
        bool(gathered or scattered)
        and all(value.type in _FLOATS for value in scattered)
        and all(isinstance(one, moving) for one in sources(scattered))
        and gathered.isdisjoint(computed)
    )


class _LoadedPlaces:
    """Elements at an index that a thread loads from an array: as vectors they are gathered, and
    scattered, which takes longer than one by one where a sum of two is all that is computed."""

    def __init__(self, function: ir.Function) -> None:
        self._assigned = _assigned(function)
        self._loads: set[ir.Instruction] = set()  # of the loop over the threads
        self._others: set[ir.Value] = set()  # which depend on none of them

    def are_changed_by(self, accesses: list[ir.Instruction]) -> bool:
        """Whether such elements of one array are both loaded and stored by a loop over threads that
        has these accesses. A place that was loaded before the loop is the same for all of them."""
        self._loads, self._others = set(accesses), set()
        found = [one for one in accesses if self._at(one)]
        loaded = {_array_of(one) for one in found if isinstance(one, ir.LoadInstr)}
        return any(isinstance(one, ir.StoreInstr) and _array_of(one) in loaded for one in found)

    def _at(self, access: ir.Instruction) -> bool:
        pointer = access.operands[-1]
        return isinstance(pointer, ir.GEPInstr) and any(map(self._depends, pointer.operands[1:]))

    def _depends(self, value: ir.Value) -> bool:
        """Whether a number is computed from an element of a kernel's argument, loaded there."""
        seen: set[ir.Value] = set()
        left = [value]
        while left:
            one = left.pop()
            if not isinstance(one, ir.Instruction) or one in seen or one in self._others:
                continue
            seen.add(one)
            array = _array_of(one)
            if array is not None:
                if one in self._loads and _is_argument(array):
                    return True
            elif isinstance(one, ir.LoadInstr):
                left += self._assigned.get(one.operands[0], ())
            else:
                left += one.operands
        self._others |= seen
        return False


def _instructions(function: ir.Function, kind: type) -> list:
    return [one for block in function.blocks for one in block.instructions if isinstance(one, kind)]


def _assigned(function: ir.Function) -> dict[ir.Value, list[ir.Value]]:
    """What is stored, by where: a variable on the stack is one place."""
    found: dict[ir.Value, list[ir.Value]] = {}
    for value, target in [store.operands for store in _instructions(function, ir.StoreInstr)]:
        found.setdefault(target, []).append(value)
    return found


def _array_of(instruction: ir.Value) -> ir.Value | None:
    """The structure of the array whose data a load or store touches; None where it touches a
    variable on the stack, or is another instruction."""
    if not isinstance(instruction, ir.LoadInstr | ir.StoreInstr):
        return None
    pointer = instruction.operands[-1]
    while isinstance(pointer, ir.GEPInstr | ir.CastInstr):
        pointer = pointer.operands[0]
    if not isinstance(pointer, ir.instructions.ExtractValue):
        return None
    array = pointer.operands[0]
    fields = getattr(array.type, "elements", (None,))
    return array if isinstance(fields[-1], ir.ArrayType) else None  # strides; iterators have none


def _of_argument(access: ir.Instruction) -> bool:
    """Whether an element of an array that is an argument is loaded or stored."""
    array = _array_of(access)
    return array is not None and _is_argument(array)


def _is_argument(array: ir.Value) -> bool:
    """Whether an array is one of the function's, not one on its stack."""
    while isinstance(array, ir.instructions.InsertValue):
        array, field = array.operands
        if isinstance(field, ir.Argument):
            return True
    return False


class KernelLibrary(JITCodeLibrary):
    """Machine code of a kernel: function passes, then one run of the module passes.

    Numba runs the module passes twice, to cancel pairs of reference counts; kernels have none.
    Without the function passes some loops are not vectorised: the weight gradient of small images
    takes ten times as long, and a shorter list of passes does not help. The Python wrapper comes
    last, since its kind depends on the optimised code. The wrapper and the checked mode have
    nothing to vectorise, and get a quick optimisation.
    """

    wrap: Callable[[bool], None]
    quick = False
    kernel_done = False  # the next module is the wrapper

    def _optimize_functions(self, ll_module) -> None:
        if not self.quick:
            super()._optimize_functions(ll_module)
            return
        ll_module.data_layout = self._codegen._data_layout
        if self.kernel_done:
            self._optimise(ll_module)

    def _optimize_final_module(self) -> None:
        self._optimise(self._final_module)
        if "+avx512f" in self._codegen._tm_features:
            self._final_module = masked_stores.plain(self._final_module)
        self.quick = self.kernel_done = True
        names = [each.name for each in self._final_module.global_variables]
        raises = any(mark in name for name in names for mark in _MAY_RAISE)
        vars(self).pop("wrap")(raises)  # release it: it refers to ten megabytes of IR

    def link(self, module: llvm.ModuleRef) -> None:
        """Link a module without optimising it."""
        self._final_module.link_in(module)

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
    Translate,
    FixupArgs,
    RewriteSemanticConstants,
    Simplify,
    NopythonTypeInference,
    Releases,
)


class ThreadLoops(KernelCompiler):
    """Numba's nopython pipeline without the passes that do not change generated code.

    Generated code has no closures, array expressions or constant branches, and each of its
    variables has one type (after `analysis.ssa`), so Numba's SSA pass is not needed.
    """

    lowering: type = ThreadLoopLowering

    def define_pipelines(self) -> list:
        passes = PassManager("simt")
        for step in (*PASSES, self.lowering, NoPythonBackend):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


class CheckedThreadLoops(ThreadLoops):
    """The pipeline of the checked mode: threads run sequentially, so nothing is vectorised."""

    lowering = CheckedLowering
