"""The pipeline: a kernel's Python function to generated source, for given types and block."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from types import FunctionType

from numba.core import types
from numba.core.compiler_lock import global_compiler_lock

from kernels.simt.analysis import infer, ssa
from kernels.simt.analysis.ranges import Ranges
from kernels.simt.analysis.uniformity import analyse
from kernels.simt.driver import arguments
from kernels.simt.emit.emitter import Emitter
from kernels.simt.emit.interleaved import StepEmitter
from kernels.simt.emit.module import module_text
from kernels.simt.frontend import frontend
from kernels.simt.ir import memory
from kernels.simt.ir.program import Program
from kernels.simt.transforms.block_interleave import keep_step
from kernels.simt.transforms.canonicalise import prepare
from kernels.simt.transforms.fission import fission
from kernels.simt.transforms.storage import assign_storage
from kernels.simt.transforms.tile_forwarding import forward

OBJECTS_A_COLLECTION = 100_000


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Compile with few garbage collections: compilers make objects by the hundred thousand and
    drop few of them in cycles, and looking for those costs up to 7 % of the time."""
    with global_compiler_lock:  # or another thread's setting would be taken for the program's
        usual = gc.get_threshold()
        gc.set_threshold(max(usual[0], OBJECTS_A_COLLECTION) if usual[0] else 0, *usual[1:])
        try:
            yield
        finally:
            gc.set_threshold(*usual)


class OneByOne(Exception):
    """Blocks gain nothing from keeping step."""


def generate(
    func: FunctionType,
    args: tuple[types.Type, ...],
    block: tuple[int, int, int],
    signs: frozenset[int] = frozenset(),
    checked: bool = False,
    fastmath: bool = False,
) -> tuple[Program, str, dict[str, object]]:
    """(program, module source, injected objects) for kernel `func`.

    `args` are the Numba types of its parameters, `signs` the positions of integer parameters that
    are known to be >= 0.
    """
    program, array_types = normal_form(func, args, block, checked)
    try:
        return emit(program, args, array_types, signs, fastmath)
    except OneByOne:  # as it was written, then
        program, array_types = normal_form(func, args, block, checked, in_step=False)
        return emit(program, args, array_types, signs, fastmath)


def normal_form(
    func: FunctionType,
    args: tuple[types.Type, ...],
    block: tuple[int, int, int],
    checked: bool,
    in_step: bool = True,
) -> tuple[Program, dict[str, types.Type]]:
    """(kernel `func` as one thread runs it, types of the arrays that it declares)."""
    code = func.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    program = frontend.build(func, block, dict(zip(names, args)), checked)
    prepare(program)
    forward(program)
    if in_step:
        keep_step(program)
    ssa.rename(program)
    array_types = {
        name: memory.array_type(array.dtype, len(array.shape or (0,)))
        for name, array in program.arrays.items()
    }
    array_types |= {
        name: arguments.numba_type(value, name) for name, value in program.constants.items()
    }
    return program, array_types


def emit(
    program: Program,
    args: tuple[types.Type, ...],
    array_types: dict[str, types.Type],
    signs: frozenset[int] = frozenset(),
    fastmath: bool = False,
) -> tuple[Program, str, dict[str, object]]:
    """What `generate` returns, of a normal form."""
    kinds = infer.infer(program, list(args), array_types)
    facts = analyse(program)
    items, masks = fission(program, facts)
    storage = assign_storage(program, facts, items, masks, kinds)
    nonnegative = {program.params[position] for position in signs}
    ranges = Ranges(program, facts, kinds, nonnegative)
    views = {name: view for name, kind in zip(program.params, args) if (view := storage_view(kind))}
    given = program, facts, items, storage, kinds, ranges, nonnegative, views
    emitter = StepEmitter(*given) if program.in_step else Emitter(*given)
    if program.in_step and emitter.together == 1:
        raise OneByOne
    text, given = module_text(program, emitter, fastmath)
    return program, text, given


def storage_view(kind: types.Type):
    """The intrinsic that views a half-precision array as one, or None for other types."""
    return arguments.storage(kind)[1]
