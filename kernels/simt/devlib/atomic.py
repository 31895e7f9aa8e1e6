"""`cuda.atomic.*` as intrinsics, in two forms.

`atomic_add(array, index, value)` and its like are atomic between OS threads: for global arrays,
that several blocks may reach at once. `atomic_add_own(...)` are plain loads and stores: for shared
and local arrays, since one OS thread runs all threads of a block. Both return the old element.

Types and NaN rules are numba-cuda's: `max` and `min` keep what the array holds when either side is
NaN; `nanmax` and `nanmin` ignore NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError

from kernels.simt.devlib.llvm_ir import V
from kernels.simt.devlib.maths import named

_INTEGERS = (types.int32, types.uint32, types.int64, types.uint64)
_NUMBERS = (types.float32, types.float64, *_INTEGERS)
_UNSIGNED = (types.uint32, types.uint64)

TABLE: dict[str, Any] = {}
"""By stub name, for global arrays: "atomic.add"."""
OWN_TABLE: dict[str, Any] = {}
"""By stub name, for arrays that only this OS thread can reach."""

Combine = Callable[[types.Type, V, V], V]  # (element type, old, value) -> new


def _check_array(name: str, array: types.Type, allowed: tuple[types.Type, ...]) -> types.Array:
    if not isinstance(array, types.Array):
        raise TypingError(f"atomic.{name}: expected an array first, got {array}")
    if not array.mutable:
        raise TypingError(f"atomic.{name}: the array is read-only")
    if array.dtype not in allowed:
        names = ", ".join(str(kind) for kind in allowed)
        raise TypingError(
            f"atomic.{name}: CUDA has no such atomic for {array.dtype} elements; it has {names}"
        )
    return array


def _check_index(name: str, array: types.Array, index: types.Type) -> types.Type:
    index = types.unliteral(index)
    parts = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    if not all(isinstance(types.unliteral(part), types.Integer) for part in parts):
        raise TypingError(f"atomic.{name}: the index must be integers, got {index}")
    if len(parts) != array.ndim:
        raise TypingError(
            f"atomic.{name}: {len(parts)} indices for an array of {array.ndim} dimensions"
        )
    return index


def _element(
    context: Any, builder: Any, array: types.Array, data: Any, index: types.Type, value: Any
) -> ir.Value:
    """A pointer to the element; negative indices count from the end, as in Numba."""
    if isinstance(index, types.BaseTuple):
        kinds, parts = tuple(index), cgutils.unpack_tuple(builder, value, len(index))
    else:
        kinds, parts = (index,), (value,)
    positions = [
        context.cast(builder, part, kind, types.intp if kind.signed else types.uintp)
        for part, kind in zip(parts, kinds)
    ]
    # Unsigned indices skip the wraparound test: it would keep a loop from vectorising.
    view = context.make_array(array)(context, builder, data)
    if any(kind.signed for kind in kinds):
        shape = cgutils.unpack_tuple(builder, view.shape, array.ndim)
        positions = [
            _wrapped(builder, position, extent) if kind.signed else position
            for position, kind, extent in zip(positions, kinds, shape)
        ]
    return cgutils.get_item_pointer(context, builder, array, view, positions)


def _wrapped(builder: Any, position: ir.Value, extent: ir.Value) -> ir.Value:
    negative = builder.icmp_signed("<", position, ir.Constant(position.type, 0))
    return builder.select(negative, builder.add(position, extent), position)


def _greater(kind: types.Type, a: V, b: V) -> V:
    if isinstance(kind, types.Float) or kind.signed:
        return a > b
    return b.below(a)


def _max(kind: types.Type, old: V, value: V) -> V:
    return _greater(kind, value, old).where(value, old)


def _min(kind: types.Type, old: V, value: V) -> V:
    return _greater(kind, old, value).where(value, old)


def _unless_nan(combine: Combine) -> Combine:
    def combined(kind: types.Type, old: V, value: V) -> V:
        new = combine(kind, old, value)
        return old.isnan().where(value, new) if isinstance(kind, types.Float) else new

    return combined


def _increment(kind: types.Type, old: V, value: V) -> V:
    return old.below(value).where(old + 1, 0)


def _decrement(kind: types.Type, old: V, value: V) -> V:
    return ((old == 0) | value.below(old)).where(value, old - 1)


def _own(kind: types.Type, combine: Combine, builder: Any, pointer: ir.Value, value: Any) -> Any:
    old = builder.load(pointer)
    builder.store(combine(kind, V(builder, old), V(builder, value)).value, pointer)
    return old


def _loop(kind: types.Type, combine: Combine, builder: Any, pointer: ir.Value, value: Any) -> Any:
    """A compare-and-swap loop, for what has no instruction of its own."""
    bits = ir.IntType(kind.bitwidth)
    is_float = isinstance(kind, types.Float)
    cell = builder.bitcast(pointer, bits.as_pointer())
    first = builder.load_atomic(cell, ordering="monotonic", align=kind.bitwidth // 8, typ=bits)
    entry = builder.block
    body = builder.append_basic_block("atomic.try")
    done = builder.append_basic_block("atomic.done")
    builder.branch(body)
    builder.position_at_end(body)
    seen = builder.phi(bits)
    seen.add_incoming(first, entry)
    old = builder.bitcast(seen, value.type) if is_float else seen
    new = combine(kind, V(builder, old), V(builder, value)).value
    new = builder.bitcast(new, bits) if is_float else new
    outcome = builder.cmpxchg(cell, seen, new, "monotonic", "monotonic")
    seen.add_incoming(builder.extract_value(outcome, 0), body)
    builder.cbranch(builder.extract_value(outcome, 1), done, body)
    builder.position_at_end(done)
    return old


def _instruction(kind: types.Type, operation: str) -> str | None:
    """The `atomicrmw` operation, or None where a loop must do."""
    if isinstance(kind, types.Float):
        return {"add": "fadd", "sub": "fsub"}.get(operation)
    if operation in ("max", "min", "nanmax", "nanmin"):
        return ("" if kind.signed else "u") + operation[-3:]
    return None if operation in ("inc", "dec") else operation


def _read_modify_write(
    name: str, allowed: tuple[types.Type, ...], operation: str, combine: Combine
) -> None:
    def make(own: bool) -> Callable:
        def typed(typingctx, array, index, value):
            _check_array(name, array, allowed)
            index = _check_index(name, array, index)
            kind = array.dtype

            def generate(context, builder, sig, args):
                pointer = _element(context, builder, array, args[0], index, args[1])
                if own:
                    return _own(kind, combine, builder, pointer, args[2])
                instruction = _instruction(kind, operation)
                if instruction is None:
                    return _loop(kind, combine, builder, pointer, args[2])
                return builder.atomic_rmw(instruction, pointer, args[2], "monotonic")

            return kind(array, index, kind), generate

        return typed

    plain = name.rstrip("_")
    _publish(f"atomic.{name}", f"atomic_{plain}", make)


def _publish(stub: str, name: str, make: Callable[[bool], Callable]) -> None:
    TABLE[stub] = globals()[name] = named(make(False), name)
    OWN_TABLE[stub] = globals()[f"{name}_own"] = named(make(True), f"{name}_own")


_read_modify_write("add", _NUMBERS, "add", lambda kind, old, value: old + value)
_read_modify_write("sub", _NUMBERS, "sub", lambda kind, old, value: old - value)
_read_modify_write("and_", _INTEGERS, "and", lambda kind, old, value: old & value)
_read_modify_write("or_", _INTEGERS, "or", lambda kind, old, value: old | value)
_read_modify_write("xor", _INTEGERS, "xor", lambda kind, old, value: old ^ value)
_read_modify_write("exch", _INTEGERS, "xchg", lambda kind, old, value: value)
_read_modify_write("max", _NUMBERS, "max", _max)
_read_modify_write("min", _NUMBERS, "min", _min)
_read_modify_write("nanmax", _NUMBERS, "nanmax", _unless_nan(_max))
_read_modify_write("nanmin", _NUMBERS, "nanmin", _unless_nan(_min))
_read_modify_write("inc", _UNSIGNED, "inc", _increment)
_read_modify_write("dec", _UNSIGNED, "dec", _decrement)


def _compare_and_swap(builder: Any, pointer: Any, expected: Any, value: Any, own: bool) -> Any:
    if own:
        old = builder.load(pointer)
        same = builder.icmp_signed("==", old, expected)
        builder.store(builder.select(same, value, old), pointer)
        return old
    outcome = builder.cmpxchg(pointer, expected, value, "monotonic", "monotonic")
    return builder.extract_value(outcome, 0)


def _make_cas(own: bool) -> Callable:
    def typed(typingctx, array, index, expected, value):
        _check_array("cas", array, _INTEGERS)
        index = _check_index("cas", array, index)
        kind = array.dtype

        def generate(context, builder, sig, args):
            pointer = _element(context, builder, array, args[0], index, args[1])
            return _compare_and_swap(builder, pointer, args[2], args[3], own)

        return kind(array, index, kind, kind), generate

    return typed


def _make_compare_and_swap(own: bool) -> Callable:
    def typed(typingctx, array, expected, value):
        _check_array("compare_and_swap", array, _INTEGERS)
        if array.ndim != 1:
            raise TypingError(
                "atomic.compare_and_swap works on element 0 of a one-dimensional array;"
                f" this one has {array.ndim} dimensions (use atomic.cas with an index)"
            )
        kind = array.dtype

        def generate(context, builder, sig, args):
            view = context.make_array(array)(context, builder, args[0])
            return _compare_and_swap(builder, view.data, args[1], args[2], own)

        return kind(array, kind, kind), generate

    return typed


_publish("atomic.cas", "atomic_cas", _make_cas)
_publish("atomic.compare_and_swap", "atomic_compare_and_swap", _make_compare_and_swap)
