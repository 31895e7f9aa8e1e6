"""Stack arrays for a block's shared, local and per-thread storage, as Numba intrinsics."""

from __future__ import annotations

import operator
from functools import reduce

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

ALIGNMENT = 64  # a cache line, and the widest vector
_READ, _TO_FIRST_LEVEL, _DATA = 0, 3, 1  # arguments of LLVM's prefetch
SQUARE = 8  # rows and columns that `copy_square` copies


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
def apart(typingctx, one, other):
    """Whether no byte lies between the first and the last element of both arrays."""

    def codegen(context, builder, sig, args):
        (first, last), (begin, end) = (
            _extent(context, builder, context.make_array(kind)(context, builder, arg))
            for kind, arg in zip(sig.args, args)
        )
        is_before = builder.icmp_unsigned("<=", last, begin)
        return builder.or_(is_before, builder.icmp_unsigned("<=", end, first))

    return types.boolean(one, other), codegen


def _extent(context, builder, view) -> tuple[ir.Value, ir.Value]:
    """The addresses where the elements of an array begin and end."""
    start = builder.ptrtoint(view.data, context.get_value_type(types.intp))
    first, last, zero = start, builder.add(start, view.itemsize), start.type(0)
    dims = (cgutils.unpack_tuple(builder, part) for part in (view.shape, view.strides))
    for size, stride in zip(*dims):
        reach = builder.mul(builder.sub(size, size.type(1)), stride)
        forward = builder.icmp_signed(">", reach, zero)
        first = builder.add(first, builder.select(forward, zero, reach))
        last = builder.add(last, builder.select(forward, reach, zero))
    return first, last


@intrinsic(prefer_literal=True)
def copy_square(typingctx, target, at, down, source, place, across):
    """Transpose SQUARE x SQUARE elements of 4 bytes from `place` in `source` to `at` in `target`.

    They lie along the last axis, which is contiguous, and along the (literal) axis `across` of the
    source; what lies along its last axis goes along axis `down` of the target.
    """
    if not (isinstance(down, types.IntegerLiteral) and isinstance(across, types.IntegerLiteral)):
        return None

    def codegen(context, builder, sig, args):
        row = ir.VectorType(context.get_data_type(sig.args[0].dtype), SQUARE)
        half = ir.VectorType(row.element, SQUARE // 2)

        def rows(position: int, axis: int):
            """Pointers to the rows in the array `args[position]`."""
            view = context.make_array(sig.args[position])(context, builder, args[position])
            index = sig.args[position + 1], args[position + 1]
            first, strides = _element_address(context, builder, view, *index)
            for i in range(SQUARE):
                start = builder.gep(first, [builder.mul(strides[axis], strides[axis].type(i))])
                yield builder.bitcast(start, row.as_pointer())

        halves = []
        for pointer in rows(3, across.literal_value):
            low = builder.bitcast(pointer, half.as_pointer())
            high = builder.gep(low, [ir.IntType(32)(1)])
            halves.append([builder.load(each, align=4) for each in (low, high)])
        for pointer, column in zip(rows(0, down.literal_value), _columns(builder, halves)):
            builder.store(column, pointer, align=4)
        return context.get_dummy_value()

    return types.void(target, at, down, source, place, across), codegen


def _columns(builder, halves):
    """The columns of a square of which `halves` are those of the rows. Halves of two rows share a
    vector, so that what is left to exchange stays within the halves of vectors."""

    def mix(a, b, order):
        indices = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
        return builder.shuffle_vector(a, b, indices)

    both, columns = list(range(8)), []
    for side in (0, 1):
        rows = [mix(halves[i][side], halves[i + 4][side], both) for i in range(4)]
        low = [mix(rows[i], rows[i + 1], [0, 8, 1, 9, 4, 12, 5, 13]) for i in (0, 2)]
        high = [mix(rows[i], rows[i + 1], [2, 10, 3, 11, 6, 14, 7, 15]) for i in (0, 2)]
        for pair in (low, high):
            columns.append(mix(*pair, [0, 1, 8, 9, 4, 5, 12, 13]))
            columns.append(mix(*pair, [2, 3, 10, 11, 6, 7, 14, 15]))
    return columns


@intrinsic
def prefetch(typingctx, array, index):
    """Ask for the cache line of an element, which may be outside of the array."""

    def codegen(context, builder, sig, args):
        view = context.make_array(sig.args[0])(context, builder, args[0])
        place, _ = _element_address(context, builder, view, sig.args[1], args[1])
        kinds = [place.type, *[ir.IntType(32)] * 3]
        ask = builder.module.declare_intrinsic(
            "llvm.prefetch", [place.type], ir.FunctionType(ir.VoidType(), kinds)
        )
        builder.call(ask, [place, *map(ir.IntType(32), (_READ, _TO_FIRST_LEVEL, _DATA))])
        return context.get_dummy_value()

    return types.void(array, index), codegen


def _element_address(context, builder, view, kinds, index):
    """The address of an element of an array, as one of bytes, and the strides of the array."""
    place = builder.bitcast(view.data, ir.IntType(8).as_pointer())
    strides, parts = (cgutils.unpack_tuple(builder, each) for each in (view.strides, index))
    for kind, part, stride in zip(kinds, parts, strides, strict=True):
        at = context.cast(builder, part, kind, types.intp)
        place = builder.gep(place, [builder.mul(at, stride)])
    return place, strides


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
