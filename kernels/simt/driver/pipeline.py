"""The pipeline: a kernel's Python function to generated source, for given types and block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType

from numba.core import types

from kernels.simt.analysis import bounds, infer, ssa
from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import Facts, analyse
from kernels.simt.driver import arguments
from kernels.simt.emit.module import module_text
from kernels.simt.frontend import frontend
from kernels.simt.ir import memory
from kernels.simt.ir.nodes import note_tests
from kernels.simt.ir.program import Program
from kernels.simt.ir.safety import Safety
from kernels.simt.plan.block import plan_block
from kernels.simt.plan.parts import BlockPlan
from kernels.simt.transforms.block_interleave import interleaved
from kernels.simt.transforms.canonicalise import prepare
from kernels.simt.transforms.counted_loops import count_loops
from kernels.simt.transforms.far_apart import with_far_versions
from kernels.simt.transforms.fission import Item, fission
from kernels.simt.transforms.merged_stores import merge_stores
from kernels.simt.transforms.storage import Storage, assign_storage
from kernels.simt.transforms.tile_forwarding import forward
from kernels.simt.transforms.turned_blocks import turned
from kernels.simt.transforms.view_indices import name_indices
from kernels.simt.transforms.wide_blocks import widened
from kernels.support import interrupts


@dataclass
class Compilation:
    """A kernel on its way through the passes, each of which adds to this."""

    func: FunctionType | None
    args: tuple[types.Type, ...]
    block: tuple[int, int, int]
    signs: frozenset[int] = frozenset()
    safety: Safety = Safety.UNCHECKED
    fastmath: bool = False
    watch: Callable[[str, Compilation], None] | None = None  # told after each pass
    # -- what the passes make, in their order
    program: Program = field(init=False)
    plain: Program | None = None  # `program` before its blocks were interleaved
    array_types: dict[str, types.Type] = field(init=False)
    kinds: dict[str, types.Type] = field(init=False)
    facts: Facts = field(init=False)
    ranges: Ranges = field(init=False)
    conditions: list[str] | None = None  # of a proof that no index leaves its array
    items: list[Item] = field(init=False)
    masks: list[str] = field(init=False)
    storage: Storage = field(init=False)
    plan: BlockPlan | None = None  # None: blocks gain nothing from being interleaved
    text: str = field(init=False)
    given: dict[str, object] = field(init=False)

    def run(self, passes: tuple[Pass, ...]) -> Compilation:
        for name, function in passes:
            interrupts.check()
            function(self)
            if self.watch is not None:
                self.watch(name, self)
        return self


Pass = tuple[str, Callable[[Compilation], None]]


def _build(c: Compilation) -> None:
    assert c.func is not None  # what comes without a function is in normal form: see `emit`
    code = c.func.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    c.program = frontend.build(c.func, c.block, dict(zip(names, c.args)), c.safety)


def _count(c: Compilation) -> None:
    count_loops(c.program, dict(zip(c.program.params, c.args)))


def _canonicalise(c: Compilation) -> None:
    prepare(c.program)


def _forward_tiles(c: Compilation) -> None:
    forward(c.program)


def _turn(c: Compilation) -> None:
    c.program = turned(c.program, dict(zip(c.program.params, c.args))) or c.program


def _interleave(c: Compilation) -> None:
    together = interleaved(c.program)
    if together is not None:
        c.program, c.plain = together, c.program


def _rename(c: Compilation) -> None:
    ssa.rename(c.program)
    c.array_types = {
        name: memory.array_type(array.dtype, len(array.shape or (0,)))
        for name, array in c.program.arrays.items()
    }
    c.array_types |= {
        name: c.program.type_of_constant(name, arguments.numba_type(value, name))
        for name, value in c.program.constants.items()
    }


def _merge_stores(c: Compilation) -> None:
    merge_stores(c.program)


def _infer_types(c: Compilation) -> None:
    c.kinds = infer.infer(c.program, list(c.args), c.array_types)
    if name_indices(c.program, c.kinds):
        c.kinds = infer.infer(c.program, list(c.args), c.array_types)


def _widen(c: Compilation) -> None:
    c.program = widened(c.program) or c.program


def _analyse(c: Compilation) -> None:
    note_tests(c.program.body)
    c.facts = analyse(c.program)
    nonnegative = {c.program.params[position] for position in c.signs}
    c.ranges = Ranges(c.program, c.facts, c.kinds, nonnegative)


def _prove(c: Compilation) -> None:
    if c.safety is Safety.PROVEN:
        c.conditions = bounds.conditions(c.program, c.kinds, c.ranges)


def _split(c: Compilation) -> None:
    c.items, c.masks = fission(c.program, c.facts)
    if not (c.program.checked or c.program.cooperative or c.program.interleaving):
        c.items = with_far_versions(c.items, c.facts, c.kinds)


def _store(c: Compilation) -> None:
    c.storage = assign_storage(c.program, c.facts, c.items, c.masks, c.kinds)


def _plan(c: Compilation) -> None:
    program = c.program
    nonnegative = {program.params[position] for position in c.signs}
    # the intrinsic that views a half-precision array as one
    views = {name: arguments.storage(kind)[1] for name, kind in zip(program.params, c.args)}
    views = {name: view for name, view in views.items() if view}
    c.plan = plan_block(
        program=program,
        facts=c.facts,
        items=c.items,
        storage=c.storage,
        kinds=c.kinds,
        ranges=c.ranges,
        nonnegative=nonnegative,
        conditions=c.conditions or [],
        half_views=views,
    )


def _choose(c: Compilation) -> None:
    """Plan the kernel as it was where its blocks gain nothing from being interleaved."""
    if c.plan is None and c.plain is not None:
        c.program, c.plain = c.plain, None
        c.run((RENAMING, *PLANNING))


def _print(c: Compilation) -> None:
    assert c.plan is not None  # what is not interleaved has a plan
    c.text, c.given = module_text(c.plan, c.fastmath)


FRONT: tuple[Pass, ...] = (
    ("normal form", _build),
    ("counted loops", _count),
    ("canonicalisation", _canonicalise),
    ("tile forwarding", _forward_tiles),
)
TURNING: Pass = ("turned blocks", _turn)
INTERLEAVING: Pass = ("interleaved blocks", _interleave)
RENAMING: Pass = ("SSA renaming", _rename)
TYPES: Pass = ("types", _infer_types)
PLANNING: tuple[Pass, ...] = (
    ("merged stores", _merge_stores),
    TYPES,
    ("wide blocks", _widen),
    ("uniformity", _analyse),
    ("bounds", _prove),
    ("fission", _split),
    ("storage", _store),
    ("plan", _plan),
)
PRINTING: tuple[Pass, ...] = (
    ("choice", _choose),
    ("module", _print),
)
PASSES: tuple[Pass, ...] = (*FRONT, TURNING, INTERLEAVING, RENAMING, *PLANNING, *PRINTING)


def generate(
    func: FunctionType,
    args: tuple[types.Type, ...],
    block: tuple[int, int, int],
    signs: frozenset[int] = frozenset(),
    safety: Safety = Safety.UNCHECKED,
    fastmath: bool = False,
) -> tuple[Program, str, dict[str, object]]:
    """(program, module source, injected objects) for kernel `func`.

    `args` are the Numba types of its parameters, `signs` the positions of integer parameters that
    are known to be >= 0. Where some index cannot be proven to stay inside its array, a kernel to
    be `PROVEN` is compiled with every index checked instead: see `program.safety`.
    """
    done = Compilation(func, args, block, signs, safety, fastmath).run(PASSES)
    if safety is Safety.PROVEN and done.conditions is None:
        done = Compilation(func, args, block, signs, Safety.BOUNDS, fastmath).run(PASSES)
    return done.program, done.text, done.given


def normal_form(
    func: FunctionType,
    args: tuple[types.Type, ...],
    block: tuple[int, int, int],
    safety: Safety = Safety.UNCHECKED,
) -> tuple[Program, dict[str, types.Type]]:
    """(kernel `func` as one thread runs it, types of the arrays that it declares)."""
    done = Compilation(func, args, block, safety=safety).run((*FRONT, RENAMING))
    return done.program, done.array_types


def typed_form(
    func: FunctionType,
    args: tuple[types.Type, ...],
    block: tuple[int, int, int],
    safety: Safety = Safety.UNCHECKED,
) -> tuple[Program, dict[str, types.Type], dict[str, types.Type]]:
    """What `normal_form` returns, after type inference, and the types of all variables."""
    done = Compilation(func, args, block, safety=safety).run((*FRONT, RENAMING, TYPES))
    return done.program, done.array_types, done.kinds


def emit(
    program: Program, args: tuple[types.Type, ...], array_types: dict[str, types.Type]
) -> tuple[Program, str, dict[str, object]]:
    """What `generate` returns, of a normal form."""
    done = Compilation(None, args, program.block, safety=program.safety)
    done.program, done.array_types = program, array_types
    done.run((*PLANNING, *PRINTING))
    return done.program, done.text, done.given
