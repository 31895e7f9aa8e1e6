"""Stack arrays for a block's shared, local and per-thread storage, as Numba intrinsics."""

from __future__ import annotations

import operator
from functools import reduce

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

ALIGNMENT = 64  # a cache line, and the widest vector


def itemsize(dtype: types.Type) -> int:
    """Bytes of one element of an array of `dtype`."""
    return as_dtype(dtype).itemsize


def array_type(dtype: types.Type, ndim: int) -> types.Array:
    return types.Array(dtype, ndim, "C")


def _shape_of(shape: types.Type) -> tuple[int, ...] | None:
    items = shape.types if isinstance(shape, types.BaseTuple) else (shape,)
    values = [getattr(item, "literal_value", None) for item in items]
    return None if None in values else tuple(values)


def _element(dtype: types.Type) -> types.Type:
    """The type that a dtype argument stands for: a number class, or a reference to a record."""
    return dtype.instance_type if isinstance(dtype, types.TypeRef) else dtype.dtype


@intrinsic(prefer_literal=True)
def stack_array(typingctx, shape, dtype):
    """An uninitialised array of literal `shape` in this function's stack frame."""
    dims = _shape_of(shape)
    if dims is None:
        return None
    result = array_type(_element(dtype), len(dims))

    def codegen(context, builder, sig, args):
        size = context.get_abi_sizeof(context.get_data_type(result.dtype))
        bytes_ = size * reduce(operator.mul, dims, 1)
        with builder.goto_entry_block():
            block = builder.alloca(ir.ArrayType(ir.IntType(8), bytes_))
            block.align = ALIGNMENT
        return _wrap(
            context, builder, result, block, [context.get_constant(types.intp, n) for n in dims]
        )

    return result(shape, dtype), codegen


@intrinsic
def view_bytes(typingctx, buffer, dtype):
    """The bytes of a 1-D uint8 array as a 1-D array of `dtype` (dynamic shared memory)."""
    result = array_type(_element(dtype), 1)

    def codegen(context, builder, sig, args):
        source = context.make_array(sig.args[0])(context, builder, args[0])
        size = context.get_abi_sizeof(context.get_data_type(result.dtype))
        length = builder.udiv(source.nitems, context.get_constant(types.intp, size))
        return _wrap(context, builder, result, source.data, [length])

    return result(buffer, dtype), codegen


@intrinsic
def fetch(typingctx, array, index):
    """Prefetch the cache line of an element that will be stored soon."""

    def codegen(context, builder, sig, args):
        view = context.make_array(sig.args[0])(context, builder, args[0])
        place = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        strides, parts = (cgutils.unpack_tuple(builder, each) for each in (view.strides, args[1]))
        for kind, part, stride in zip(sig.args[1], parts, strides, strict=True):
            at = context.cast(builder, part, kind, types.intp)
            place = builder.gep(place, [builder.mul(at, stride)])
        number = ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        to_write, near, data = number(1), number(3), number(1)
        builder.call(prefetch, [place, to_write, near, data])
        return context.get_dummy_value()

    return types.void(array, index), codegen


def _wrap(context, builder, kind, data, dims):
    """An array structure over memory that has no owner."""
    array = context.make_array(kind)(context, builder)  # its fields are zero: no owner, no parent
    size = context.get_constant(
        types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype))
    )
    stride, strides = size, []
    for n in reversed(dims):
        strides.insert(0, stride)
        stride = builder.mul(stride, n)
    array.data = builder.bitcast(data, array.data.type)
    array.shape = cgutils.pack_array(builder, dims)
    array.strides = cgutils.pack_array(builder, strides)
    array.itemsize = size
    array.nitems = reduce(lambda a, b: builder.mul(a, b, flags=["nsw"]), dims)
    return array._getvalue()
