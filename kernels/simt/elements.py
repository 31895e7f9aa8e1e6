"""Elements of arrays as LLVM code: a pointer computed from the array's fields, a load, a store.

Numba copies an array's fields to the stack at each access, to read from there those that it needs:
most of the code of a kernel, until optimisation removes it. Here they are values.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.np.arrayobj import fix_integer_index, load_item, store_item


def is_element(array: types.Type, index: types.Type) -> bool:
    """Whether an index of type `index` names one number of an array of type `array`."""
    kinds = _kinds(index)
    return (
        isinstance(array, types.Array)
        and isinstance(array.dtype, types.Number | types.Boolean)
        and len(kinds) == array.ndim
        and all(isinstance(kind, types.Integer) for kind in kinds)
    )


def load(context: Any, builder: ir.IRBuilder, array: tuple, index: tuple) -> ir.Value:
    """The element of `array` at `index`, each a pair of Numba type and LLVM value."""
    return load_item(context, builder, array[0], _address(context, builder, array, index))


def store(context: Any, builder: ir.IRBuilder, array: tuple, index: tuple, value: ir.Value) -> None:
    """Store `value`, of the array's dtype, as such an element."""
    store_item(context, builder, array[0], value, _address(context, builder, array, index))


def _address(context: Any, builder: ir.IRBuilder, array: tuple, index: tuple) -> ir.Value:
    kind, value = array
    kinds = _kinds(index[0])
    if isinstance(index[0], types.BaseTuple):
        given = cgutils.unpack_tuple(builder, index[1], len(kinds))
    else:
        given = [index[1]]

    def field(name: str, *axis: int) -> ir.Value:
        position = context.data_model_manager[kind].get_field_position(name)
        return builder.extract_value(value, (position, *axis))

    shape = [field("shape", axis) for axis in range(kind.ndim)]
    strides = [field("strides", axis) for axis in range(kind.ndim)]
    places = [fix_integer_index(context, builder, *each) for each in zip(kinds, given, shape)]
    data = field("data")
    return cgutils.get_item_pointer2(context, builder, data, shape, strides, kind.layout, places)


def _kinds(index: types.Type) -> tuple[types.Type, ...]:
    return index.types if isinstance(index, types.BaseTuple) else (index,)
