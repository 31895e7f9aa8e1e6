"""What replaces memory accesses in an instrumented kernel.

Each function does the original access and reports it to the recorder. A load outside of its array
gives zero and a store there changes nothing, so that the kernel goes on and one run finds more than
one mistake. These are intrinsics: they become machine code without another run of Numba's compiler.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.lab.record import recorder
from kernels.simt.ir.checks import CheckFailed

_I64 = ir.IntType(64)
_INT = types.int64
_CONTEXT = (_INT,) * 5  # head, site, path, who, literal: see Element


def _call_recorder(builder: ir.IRBuilder, function: str, *args: ir.Value) -> None:
    """Call a function of the recorder."""
    kind = ir.FunctionType(ir.VoidType(), [_I64] * len(args))
    called = cgutils.get_or_insert_function(builder.module, kind, recorder.symbol(function))
    builder.call(called, args)


class Element:
    """An element of an array: its address, and a stand-in where the index is outside.

    head: address of the recorder's state; site, path, who: see `instrument`. literal: 1 where the
    index is written with a minus sign, so that counting from the end is meant.
    """

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: types.Array, args: tuple) -> None:
        self.context, self.builder, self.kind = context, builder, kind
        given, index, self.head, self.site, self.path, self.who, literal = args
        self.array = context.make_array(kind)(context, builder, given)
        shape = cgutils.unpack_tuple(builder, self.array.shape, kind.ndim)
        strides = cgutils.unpack_tuple(builder, self.array.strides, kind.ndim)
        parts = cgutils.unpack_tuple(builder, index, kind.ndim)
        zero, negative, inside, offset = _I64(0), ir.IntType(1)(0), [], _I64(0)
        self.index = []
        for part, length, stride in zip(parts, shape, strides):
            below = builder.icmp_signed("<", part, zero)
            position = builder.select(below, builder.add(part, length), part)
            inside.append(builder.icmp_unsigned("<", position, length))
            negative = builder.or_(negative, below)
            offset = builder.add(offset, builder.mul(position, stride))
            self.index.append(position)
        self.inside = cgutils.true_bit
        for test in inside:
            self.inside = builder.and_(self.inside, test)
        data = builder.ptrtoint(self.array.data, _I64)
        self.address = builder.add(data, offset)
        meant = builder.icmp_signed("!=", literal, zero)
        wraps = builder.and_(negative, builder.not_(meant))
        odd = builder.or_(builder.not_(self.inside), wraps)
        with builder.if_then(odd, likely=False):
            for axis, (part, length) in enumerate(zip(parts, shape)):
                size = [_I64(axis), part, length]
                _call_recorder(builder, "outside", self.head, self.site, self.who, literal, *size)
        self.size = context.get_abi_sizeof(context.get_data_type(kind.dtype))

    def note(self, *access: ir.Value) -> None:
        """Record the access (address, size, op, same), if the index is inside."""
        with self.builder.if_then(self.inside, likely=True):
            _call_recorder(self.builder, "note", self.head, self.site, self.path, self.who, *access)

    def operands(self) -> tuple[ir.Value, ir.Value]:
        """(array, index as a tuple of uint64) to access; elsewhere if the index is outside."""
        context, builder = self.context, self.builder
        spare = cgutils.alloca_once(builder, ir.IntType(8), self.size, name="spare")
        cgutils.memset(builder, spare, _I64(self.size), 0)
        safe = context.make_array(self.kind)(context, builder, self.array._getvalue())
        spare = builder.bitcast(spare, self.array.data.type)
        safe.data = builder.select(self.inside, self.array.data, spare)
        index = [builder.select(self.inside, position, _I64(0)) for position in self.index]
        kind = types.UniTuple(types.uint64, self.kind.ndim)
        return safe._getvalue(), context.make_tuple(builder, kind, index)

    def bits(self) -> ir.Value:
        """The element as one large number."""
        number = ir.IntType(8 * self.size)
        spare = cgutils.alloca_once_value(self.builder, number(0))
        place = self.builder.inttoptr(self.address, number.as_pointer())
        place = self.builder.select(self.inside, place, spare)
        return self.builder.load(place, align=1)


def _unsigned(array: types.Array) -> types.UniTuple:
    return types.UniTuple(types.uint64, array.ndim)


@intrinsic
def load(typingctx, array, index, head, site, path, who, literal):
    """array[index]"""
    getitem = typingctx.resolve_function_type(operator.getitem, (array, _unsigned(array)), {})

    def codegen(context, builder, signature, args):
        element = Element(context, builder, array, args)
        element.note(element.address, _I64(element.size), _I64(recorder.LOAD), _I64(0))
        return context.get_function(operator.getitem, getitem)(builder, element.operands())

    return getitem.return_type(array, index, *_CONTEXT), codegen


@intrinsic
def store(typingctx, array, index, value, head, site, path, who, literal):
    """array[index] = value"""
    given = array, _unsigned(array), types.unliteral(value)
    setitem = typingctx.resolve_function_type(operator.setitem, given, {})

    def codegen(context, builder, signature, args):
        place, position, value, *rest = args
        element = Element(context, builder, array, (place, position, *rest))
        value = context.cast(builder, value, signature.args[2], setitem.args[2])
        before = element.bits()
        context.get_function(operator.setitem, setitem)(builder, (*element.operands(), value))
        same = builder.icmp_unsigned("==", before, element.bits())
        same = builder.zext(same, _I64)
        element.note(element.address, _I64(element.size), _I64(recorder.STORE), same)
        return context.get_dummy_value()

    return types.void(array, index, given[2], *_CONTEXT), codegen


@intrinsic
def touch(typingctx, array, index, op, offset, size, head, site, path, who, literal):
    """The index; records an access to `size` bytes from `offset` in the element.

    For atomic operations and fields of records, which use the index themselves. An index outside
    ends the run.
    """
    result = types.uint64 if array.ndim == 1 else _unsigned(array)

    def codegen(context, builder, signature, args):
        place, position, op, offset, size, *rest = args
        element = Element(context, builder, array, (place, position, *rest))
        with builder.if_then(builder.not_(element.inside), likely=False):
            context.call_conv.return_user_exc(builder, CheckFailed, ())
        element.note(builder.add(element.address, offset), size, op, _I64(0))
        if array.ndim == 1:
            return element.index[0]
        return context.make_tuple(builder, result, element.index)

    return result(array, index, _INT, _INT, _INT, *_CONTEXT), codegen


def _recorder_call(name: str, count: int):
    """The types and code of an intrinsic that only calls the recorder."""

    def codegen(context, builder, signature, args):
        _call_recorder(builder, name, *args)
        return context.get_dummy_value()

    return types.void(*[_INT] * count), codegen


@intrinsic
def executed(typingctx, head, site, path, who):
    """The lines of a site are executed."""
    return _recorder_call("execute", 4)


@intrinsic
def arrive(typingctx, head, site, who, barrier):
    """A barrier is reached."""
    return _recorder_call("arrive", 4)


@intrinsic
def shuffle(typingctx, head, site, path, who, kind, amount, width):
    """A shuffle is reached: from which lane it reads, see `recorder.shuffle`."""
    return _recorder_call("shuffle", 7)


@intrinsic
def iterate(typingctx, head, site, who, iterations, most):
    """One more iteration of a loop. Ends the run where it was interrupted, and after `most`."""

    def codegen(context, builder, signature, args):
        head, site, who, iterations, most = args
        state = builder.inttoptr(head, _I64.as_pointer())
        stop = builder.load(builder.gep(state, [_I64(recorder.STOP)]))
        stopped = builder.icmp_signed("!=", stop, _I64(0))
        with builder.if_then(
            builder.or_(stopped, builder.icmp_signed(">", iterations, most)), likely=False
        ):
            _call_recorder(builder, "endless", head, site, who)
            context.call_conv.return_user_exc(builder, CheckFailed, ())
        return context.get_dummy_value()

    return types.void(*(_INT,) * 5), codegen


@intrinsic
def declare(typingctx, head, memory, array, block):
    """A shared array of this block."""

    def codegen(context, builder, signature, args):
        head, memory, given, block = args
        made = context.make_array(array)(context, builder, given)
        size = builder.mul(made.nitems, made.itemsize)
        _call_recorder(
            builder, "declare", head, memory, builder.ptrtoint(made.data, _I64), size, block
        )
        return context.get_dummy_value()

    return types.void(_INT, _INT, array, _INT), codegen
