"""Checks of the checked mode: bounds of every index, reads of unwritten shared memory.

A violation is recorded in the launch's `error` buffer and ends the launch by an exception;
`explain` turns the record into a message.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.support import limits
from kernels.support.errors import KernelError, KernelIndexError, SimtError, UninitialisedError

DIVERGENT, ENDLESS, UNEXPECTED_SIGN, BOUNDS, UNWRITTEN, RAISED, LANES, UNPROVEN = range(1, 9)
SOURCE = 10  # 9 is `backend.interrupt.INTERRUPTED`
ZERO_STEP = 11  # a launch's status, without a record: a range had steps of 0
_I64 = ir.IntType(64)


class CheckFailed(Exception):
    """Ends a compiled kernel in checked mode; never reaches the user."""


# Intrinsics, not functions that Numba compiles: a kernel has one per access, and with functions a
# checked kernel took twice as long to compile.


@intrinsic
def record(typingctx, error, kind, site, block, thread):
    """Record the kind of violation, its place in the source, and the thread."""

    def codegen(context, builder, signature, args):
        _note(context, builder, signature.args, args)
        return context.get_dummy_value()

    return types.void(error, kind, site, block, thread), codegen


@intrinsic
def stopped(typingctx, report):
    """Whether the launch must stop: see `backend/interrupt.py`."""

    def codegen(context, builder, signature, args):
        words = context.make_array(report)(context, builder, args[0]).data
        address = builder.load(cgutils.gep_inbounds(builder, words, limits.LOOK))
        kind = ir.FunctionType(_I64, [words.type])
        answer = builder.call(builder.inttoptr(address, kind.as_pointer()), [words])
        # It changes no memory of the kernel, whose values stay in registers.
        set.add(answer.attributes, "memory(argmem: readwrite, inaccessiblemem: readwrite)")
        return builder.icmp_unsigned("!=", answer, _I64(0))

    return types.boolean(report), codegen


@intrinsic
def place(typingctx, array, index, error, site, block, thread):
    """`index` (a tuple of integers), proven to be inside `array`."""

    def codegen(context, builder, signature, args):
        memory = context.make_array(array)(context, builder, args[0])
        parts = _as_int64(context, builder, index, args[1])
        shape = cgutils.unpack_tuple(builder, memory.shape)
        inside = ir.Constant(ir.IntType(1), 1)
        for part, length in zip(parts, shape):  # from -length to length - 1
            moved, span = builder.add(part, length), builder.add(length, length)
            inside = builder.and_(inside, builder.icmp_unsigned("<", moved, span))
        _stop_unless(inside, context, builder, signature, args, BOUNDS, parts, shape)
        return args[1]

    return index(array, index, error, site, block, thread), codegen


@intrinsic
def written(typingctx, marks, index, error, site, block, thread):
    """`index`, proven to have been written since the block began."""

    def codegen(context, builder, signature, args):
        parts = _as_int64(context, builder, index, args[1])
        mark = builder.load(_element(context, builder, marks, args[0], parts))
        done = context.data_model_manager[types.boolean].from_data(builder, mark)
        _stop_unless(done, context, builder, signature, args, UNWRITTEN, parts, parts)
        return args[1]

    return index(marks, index, error, site, block, thread), codegen


@intrinsic
def mark(typingctx, marks, index):
    """`index`, noted as written."""

    def codegen(context, builder, signature, args):
        parts = _as_int64(context, builder, index, args[1])
        pointer = _element(context, builder, marks, args[0], parts)
        builder.store(pointer.type.pointee(1), pointer)
        return args[1]

    return index(marks, index), codegen


def _as_int64(context, builder, index: types.BaseTuple, value) -> list[ir.Value]:
    parts = cgutils.unpack_tuple(builder, value)
    return [context.cast(builder, x, kind, types.int64) for x, kind in zip(parts, index)]


def _element(context, builder, kind: types.Array, value, parts: list[ir.Value]) -> ir.Value:
    array = context.make_array(kind)(context, builder, value)
    return cgutils.get_item_pointer(context, builder, kind, array, parts, wraparound=True)


def _stop_unless(
    fine: ir.Value, context, builder, signature, args, kind: int, index: list, shape: list
) -> None:
    """Record the index and end the kernel, unless `fine`."""
    _, _, error, site, block, thread = signature.args
    reported = types.void(error, types.int64, site, block, thread)
    with builder.if_then(builder.not_(fine), likely=False):
        more = [_I64(len(index)), *index, *shape]
        _note(context, builder, reported.args, (args[2], _I64(kind), *args[3:]), more)
        context.call_conv.return_user_exc(builder, CheckFailed, ())


def _note(context, builder, kinds: tuple, args: tuple, more: list[ir.Value] = ()) -> None:
    """Write kind, site, block, thread and `more` into the buffer."""
    buffer = context.make_array(kinds[0])(context, builder, args[0]).data
    numbers = [context.cast(builder, x, t, types.int64) for x, t in zip(args[1:], kinds[1:])]
    for i, number in enumerate((*numbers, *more)):
        builder.store(number, cgutils.gep_inbounds(builder, buffer, i))


def coordinates(linear: int, dims: tuple[int, int, int]) -> tuple[int, int, int]:
    """(x, y, z) of a linear position."""
    x, y, _ = dims
    return (linear % x, linear // x % y, linear // (x * y))


def named_lanes(mask: int) -> str:
    """The lanes in a mask: "lane 3", "lanes 20 to 31"."""
    numbers = [lane for lane in range(32) if mask >> lane & 1]
    run = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    named = f"{numbers[0]} to {numbers[-1]}" if run else ", ".join(map(str, numbers))
    return f"lane{'s' if numbers[1:] else ''} {named}"


def wrong_mask(mask: int, missing: int) -> str:
    """What is wrong with a member mask."""
    if not missing:
        return f"has the mask {mask:#010x}, which does not name the lane that executes it"
    they_do = "they do" if missing & (missing - 1) else "it does"
    return f"names {named_lanes(missing)} in its mask {mask:#010x}, but {they_do} not take part"


def explain(
    name: str, error: Any, sites: tuple, block: tuple, grid: tuple, filename: str
) -> SimtError:
    """The exception for the violation in the buffer `error`; `sites` are (array, ndim, line)."""
    kind, site, block_number, thread = (int(v) for v in error[:4])
    who = (
        f"block {coordinates(block_number, grid)}, thread"
        f" {coordinates(thread % (block[0] * block[1] * block[2]), block)}"
    )
    if kind == ENDLESS:
        return KernelError(
            f"{name}: the loop at {filename}:{site} ran for too long ({who}); it seems to wait for"
            " memory that a thread or block which runs later would write"
        )
    if kind == DIVERGENT:
        return KernelError(
            f"{name}: the barrier at {filename}:{site} was reached by only some of the live threads"
            f" of its block ({who} did not come); move the barrier out of the condition"
        )
    if kind == LANES:
        mask, missing = int(error[4]), int(error[5])
        fix = ": move it out of the condition, or name only the lanes that come" if missing else ""
        return KernelError(
            f"{name}: the warp operation at {filename}:{site} {wrong_mask(mask, missing)}{fix}"
            f" ({who}); hardware hangs or goes on with wrong data"
        )
    if kind == SOURCE:
        return KernelError(
            f"{name}: the shuffle at {filename}:{site} reads from lane {int(error[4])}, which does"
            f" not execute it (missing: {named_lanes(int(error[5]))}; {who}): the value is"
            " undefined; let all lanes execute the shuffle, and guard the data instead"
        )
    array, ndim, line = sites[site]
    where = f"{filename}:{line}"
    axes = int(error[4])
    index, shape = (tuple(map(int, part)) for part in (error[5:][:axes], error[5 + axes :][:axes]))
    if kind == BOUNDS:
        axis = next(i for i, n in enumerate(shape) if not -n <= index[i] < n)
        return KernelIndexError(
            f"{name}: index {index[axis]} is out of bounds for axis {axis} of {array!r} with shape"
            f" {shape[:ndim]}, {who}, at {where}"
        )
    return UninitialisedError(
        f"{name}: read of uninitialised shared memory: {array!r} at {index}, where no thread of the"
        f" block has written, {who}, at {where}"
    )
