"""What the recorder does with addresses that Numba has no words for."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I64 = types.int64
_WORD = ir.IntType(64)


@intrinsic
def _at(typingctx, address):
    """The memory at an address as int64 numbers."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(_I64)(_I64), codegen


@intrinsic
def _trap(typingctx, function, text):
    """End the threads of a CUDA C kernel: the runtime's `mgh_trap(text, text, 0)`."""

    def codegen(context, builder, signature, args):
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_WORD, _WORD, number])
        called = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(called, [args[1], args[1], number(0)])
        return context.get_dummy_value()

    return types.void(_I64, _I64), codegen
