"""Lowering of Numba's IR to LLVM's for generated kernels: the same semantics in less code.

Numba copies an array's structure to the stack at each access and keeps nearly every variable on the
stack. Until optimisation removes it, that is most of a kernel's code. Here fields are extracted as
values, and so are variables that are assigned once, in the entry block. Loops over ranges do not
need Numba's iterator, and integer division has no branch. What Numba would answer with an exception
is compared with less code, too, so that LLVM can prove that it does not occur: a kernel that may
raise needs Numba's entry point, and with it Numba in each process.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.core import ir as numba_ir
from numba.core.lowering import Lower
from numba.np.arrayobj import fix_integer_index, load_item, store_item

from kernels.simt.backend.numba_frontend import CachedTyping
from kernels.simt.ir.checks import ZERO_STEP
from kernels.support import interrupts

_POWERS = (operator.pow, operator.ipow)  # Numba has special code for constant exponents
_QUOTIENTS = (operator.floordiv, operator.ifloordiv)
_DIVISIONS = (*_QUOTIENTS, operator.mod, operator.imod)
_I32, _I64 = ir.IntType(32), ir.IntType(64)


class _Counter(NamedTuple):
    """How a loop over a range counts."""

    place: ir.Value  # the stack slot of the previous number
    step: ir.Value
    stop: ir.Value
    scale: tuple[ir.Value, ir.Value] | None = None  # (first, step) of the numbers that it counts


class KernelLower(Lower):
    """Overrides the lowering of operations, array elements, ranges and variables."""

    def lower_function_body(self):
        self.implementations: dict[tuple, Callable] = {}
        self.counters: dict[numba_ir.Expr, _Counter] = {}
        self.without_value = self._ranges_and_iterators()
        return super().lower_function_body()

    def lower_block(self, block) -> None:
        interrupts.check()
        self.stored: dict[str, ir.Value] = {}  # values stored in this block: no load needed
        super().lower_block(block)

    def lower_inst(self, inst):
        """As in Numba, without the text of each instruction for a debugger."""
        if not isinstance(inst, numba_ir.Assign):
            return super().lower_inst(inst)
        name, value = inst.target.name, inst.value
        if name in self.without_value:
            if isinstance(value, numba_ir.Expr) and value.op == "getiter":
                self.counters[value] = self._counter(value)
            return None
        place = value.index + 1 if isinstance(value, numba_ir.Arg) else None
        return self.storevar(self.lower_assign(self.typeof(name), inst), name, argidx=place)

    def lower_binop(self, resty, expr, op):
        """As in Numba, without its three lookups of code for constant operands."""
        signature = self.fndesc.calltypes[expr]
        function = self.context.typing_context.resolve_value_type(op)
        kind = signature.return_type
        if op in _DIVISIONS and isinstance(kind, types.Integer):
            result = self._division(op, kind, self._as(expr.lhs, kind), self._as(expr.rhs, kind))
        elif op in _POWERS or signature.args not in getattr(function, "_impl_keys", ()):
            return super().lower_binop(resty, expr, op)
        else:
            result = self._operation(op, signature, expr.lhs, expr.rhs)
        return self.context.cast(self.builder, result, signature.return_type, resty)

    def _division(self, op, kind: types.Integer, a: ir.Value, b: ir.Value) -> ir.Value:
        """The quotient rounded down, or the remainder; 0 for a division by 0.

        The lowest number divided by -1 is itself, with no remainder: it wraps, as on a GPU.
        """
        builder, zero, quotient = self.builder, a.type(0), op in _QUOTIENTS
        if isinstance(b, ir.Constant) and b.constant not in (0, -1):
            return self._rounded_down(quotient, kind, a, b)
        by_zero = builder.icmp_signed("==", b, zero)
        if kind.signed and _of_32_bits(a) and _of_32_bits(b):
            result = self._division_of_floats(quotient, a, b)
        elif kind.signed and _is_element_of_an_array(a):
            b = builder.select(by_zero, b.type(1), b)
            result = self._division_of_sizes(quotient, a, b)
        else:
            b = self._without_traps(kind, a, b, by_zero)
            result = self._rounded_down(quotient, kind, a, b)
        return builder.select(by_zero, zero, result)

    def _without_traps(self, kind: types.Integer, a, b, by_zero: ir.Value) -> ir.Value:
        """`b`, or 1 where the processor would stop."""
        builder = self.builder
        if kind.signed:
            lowest = builder.icmp_signed("==", a, a.type(kind.minval))
            overflows = builder.and_(lowest, builder.icmp_signed("==", b, a.type(-1)))
            by_zero = builder.or_(by_zero, overflows)
        return builder.select(by_zero, a.type(1), b)

    def _rounded_down(self, quotient: bool, kind: types.Integer, a, b) -> ir.Value:
        """By the processor's division, which rounds towards 0."""
        builder, zero = self.builder, a.type(0)
        if not kind.signed:
            return (builder.udiv if quotient else builder.urem)(a, b)
        remains = builder.srem(a, b)
        differs = builder.icmp_signed("<", builder.xor(remains, b), zero)
        above = builder.and_(builder.icmp_signed("!=", remains, zero), differs)
        if quotient:
            return builder.sub(builder.sdiv(a, b), builder.zext(above, a.type))
        return builder.add(remains, builder.select(above, b, zero))

    def _division_of_sizes(self, quotient: bool, a: ir.Value, b: ir.Value) -> ir.Value:
        """By the division of numbers without a sign: where these fit 32 bits, LLVM's code takes a
        faster instruction, and a processor can foresee that, whatever the signs. For numbers from
        memory; what is computed, such as a thread's place, is rarely negative."""
        builder, zero = self.builder, a.type(0)
        first, second = (
            builder.select(builder.icmp_signed("<", x, zero), builder.neg(x), x) for x in (a, b)
        )
        differs = builder.icmp_signed("<", builder.xor(a, b), zero)
        remains = builder.urem(first, second)
        above = builder.and_(builder.icmp_signed("!=", remains, zero), differs)
        if quotient:
            size = builder.add(builder.udiv(first, second), builder.zext(above, a.type))
            return builder.select(differs, builder.neg(size), size)
        rest = builder.select(above, builder.sub(second, remains), remains)
        return builder.select(builder.icmp_signed("<", b, zero), builder.neg(rest), rest)

    def _division_of_floats(self, quotient: bool, a: ir.Value, b: ir.Value) -> ir.Value:
        """Of numbers of up to 32 bits: float64 holds them, and their quotient is nowhere near the
        next whole number. There are vectors of it; integers are divided one by one."""
        builder, double = self.builder, ir.DoubleType()
        first, second = (builder.sitofp(_of_32_bits(x), double) for x in (a, b))
        floor = builder.module.declare_intrinsic("llvm.floor", [double])
        whole = builder.call(floor, [builder.fdiv(first, second)])
        down = builder.fptosi(whole, _I32)  # undefined for the lowest number divided by -1
        by_minus_one = builder.icmp_signed("==", b, b.type(-1))
        wide = down if a.type == _I32 else builder.sext(down, a.type)
        wide = builder.select(by_minus_one, builder.neg(a), wide)
        return wide if quotient else builder.sub(a, builder.mul(wide, b))

    def lower_getitem(self, resty, expr, value, index, signature):
        if isinstance(signature.args[0], types.UniTuple):
            numbers, kind = self._constants(value), signature.args[0].dtype
            if numbers is not None and isinstance(kind, types.Number):
                return self._item(resty, kind, numbers, index)
        array, pointer = self.typeof(value.name), self._element(value, index)
        if pointer is None:
            found = self._operation(operator.getitem, signature, value, index)
            kind = signature.return_type
        else:
            found, kind = load_item(self.context, self.builder, array, pointer), array.dtype
        return self.context.cast(self.builder, found, kind, resty)

    def _constants(self, variable: numba_ir.Var) -> list | None:
        """The numbers of a tuple that is written in the program."""
        found = self.func_ir._definitions[variable.name]
        if len(found) != 1 or getattr(found[0], "op", None) != "build_tuple":
            return None
        items = [self.func_ir._definitions[item.name] for item in found[0].items]
        if not items or any(len(i) > 1 or not isinstance(i[0], numba_ir.Const) for i in items):
            return None
        return [item[0].value for item in items]

    def _item(self, resty, kind: types.Type, numbers: list, index: numba_ir.Var) -> ir.Value:
        """One of `numbers`, which are of a kind, from a table; IndexError where there is none."""
        builder, length = self.builder, _I64(len(numbers))
        place = self._as(index, types.int64)
        negative = builder.icmp_signed("<", place, _I64(0))
        place = builder.select(negative, builder.add(place, length), place)
        with builder.if_then(builder.icmp_unsigned(">=", place, length), likely=False):
            message = ("tuple index out of range",)
            self.call_conv.return_user_exc(builder, IndexError, message)
        values = [self.context.get_constant(kind, number) for number in numbers]
        table = ir.Constant(ir.ArrayType(values[0].type, len(values)), values)
        pointer = cgutils.global_constant(builder, ".table", table)
        found = builder.load(cgutils.gep_inbounds(builder, pointer, 0, place))
        return self.context.cast(builder, found, kind, resty)

    def lower_setitem(self, target_var, index_var, value_var, signature):
        array, pointer = self.typeof(target_var.name), self._element(target_var, index_var)
        if pointer is None:
            return self._operation(operator.setitem, signature, target_var, index_var, value_var)
        value = self._as(value_var, array.dtype)
        return store_item(self.context, self.builder, array, value, pointer)

    def _element(self, array: numba_ir.Var, index: numba_ir.Var) -> ir.Value | None:
        """A pointer to element `index` of `array`, or None if `index` selects no single number."""
        kind, place = self.typeof(array.name), self.typeof(index.name)
        kinds = place.types if isinstance(place, types.BaseTuple) else (place,)
        if not _is_element(kind, kinds):
            return None
        context, builder = self.context, self.builder
        value, given = self.loadvar(array.name), self.loadvar(index.name)
        indices = [given]
        if isinstance(place, types.BaseTuple):
            indices = cgutils.unpack_tuple(builder, given, len(kinds))

        def field(name: str, *axis: int) -> ir.Value:
            position = context.data_model_manager[kind].get_field_position(name)
            return builder.extract_value(value, (position, *axis))

        shape = [field("shape", axis) for axis in range(kind.ndim)]
        strides = [field("strides", axis) for axis in range(kind.ndim)]
        places = [fix_integer_index(context, builder, *x) for x in zip(kinds, indices, shape)]
        data, layout = field("data"), kind.layout
        return cgutils.get_item_pointer2(context, builder, data, shape, strides, layout, places)

    def _operation(self, op, signature, *operands: numba_ir.Var) -> ir.Value:
        """Code for an operation, with its implementation cached; Numba resolves it at each use."""
        values = [self._as(x, wanted) for x, wanted in zip(operands, signature.args)]
        key = op, signature
        if key not in self.implementations:
            context = CachedTyping(self.context.typing_context)
            function = context.resolve_value_type(op)
            called = context.resolve_function_type(function, signature.args, {})
            self.implementations[key] = self.context.get_function(function, called)
        return self.implementations[key](self.builder, values)

    def lower_expr(self, resty, expr):
        if expr.op == "pair_first":
            return self.builder.extract_value(self.loadvar(expr.value.name), 0)
        if expr.op == "pair_second":
            return self.builder.extract_value(self.loadvar(expr.value.name), 1)
        if expr.op == "iternext" and expr.value.name in self.without_value:
            return self._count(resty, self.func_ir.get_definition(expr.value.name))
        return super().lower_expr(resty, expr)

    def _ranges_and_iterators(self) -> set[str]:
        """The variables of loops over ranges of signed integers."""
        found: set[str] = set()
        if (
            self.context.enable_nrt
        ):  # reference counting: Numba may have released an argument of `range`
            return found
        for _, block in sorted(self.blocks.items()):
            for assign in block.find_insts(numba_ir.Assign):
                value, target = assign.value, assign.target.name
                if isinstance(value, numba_ir.Var) and value.name in found:
                    found.add(target)
                elif isinstance(value, numba_ir.Expr) and self._counts(value):
                    found |= {value.value.name, target}
        return found

    def _counts(self, value: numba_ir.Expr) -> bool:
        if value.op != "getiter":
            return False
        kind = self.typeof(value.value.name)
        return isinstance(kind, types.RangeType) and kind.dtype.signed

    def _as(self, variable: numba_ir.Var, kind: types.Type) -> ir.Value:
        value = self.loadvar(variable.name)
        return self.context.cast(self.builder, value, self.typeof(variable.name), kind)

    def _counter(self, loop: numba_ir.Expr) -> _Counter:
        builder, name = self.builder, loop.value.name
        kind = self.typeof(name).dtype
        given = self.func_ir.get_definition(name).args
        ends = [self._as(arg, kind) for arg in given]
        start, stop = ends[:2] if len(ends) > 1 else (ends[0].type(0), ends[0])
        step = self._step(given[2]) if len(ends) > 2 else 1
        with builder.goto_entry_block():
            place = builder.alloca(start.type)
        if step is None:  # known when the kernel runs only
            first, step = start, ends[2]
            self._refuse_zero(step)
            start, stop = stop.type(0), self._iterations(start, stop, step)
            builder.store(builder.sub(start, start.type(1)), place)
            return _Counter(place, stop.type(1), stop, (first, step))
        builder.store(builder.sub(start, start.type(step)), place)
        return _Counter(place, stop.type(step), stop)

    def _step(self, given: numba_ir.Var) -> int | None:
        """A step that is a number of the program, and not 0."""
        try:
            value = self.func_ir.get_definition(given)
        except KeyError:  # of several: a conditional expression
            return None
        if isinstance(value, numba_ir.Const) and type(value.value) is int:
            return value.value or None
        return None

    def _refuse_zero(self, step: ir.Value) -> None:
        """End the launch with a status: an exception would need Numba's entry point."""
        zero = self.builder.icmp_signed("==", step, step.type(0))
        with self.builder.if_then(zero, likely=False):
            self.call_conv.return_value(self.builder, _I64(ZERO_STEP))

    def _iterations(self, start: ir.Value, stop: ir.Value, step: ir.Value) -> ir.Value:
        """How many numbers a range has."""
        builder, zero, one = self.builder, step.type(0), step.type(1)
        up = builder.icmp_signed(">", step, zero)
        low, high = builder.select(up, start, stop), builder.select(up, stop, start)
        some = builder.icmp_signed("<", low, high)
        stride = builder.select(up, step, builder.neg(step))
        more = builder.udiv(builder.sub(builder.sub(high, low), one), stride)
        return builder.select(some, builder.add(more, one), zero)

    def _count(self, kind: types.Type, loop: numba_ir.Expr) -> ir.Value:
        """The pair (next number, whether it is below the stop)."""
        builder, counter = self.builder, self.counters[loop]
        number = builder.add(builder.load(counter.place), counter.step, flags=["nsw"])
        builder.store(number, counter.place)
        down = counter.step.constant < 0
        goes_on = builder.icmp_signed(">" if down else "<", number, counter.stop)
        if counter.scale is not None:
            first, step = counter.scale
            number = builder.add(first, builder.mul(number, step))
        pair = self.context.get_value_type(kind)(ir.Undefined)
        pair = builder.insert_value(pair, number, 0)
        return builder.insert_value(pair, goes_on, 1)

    def _find_singly_assigned_variable(self) -> None:
        """Also counts variables assigned once, in the entry block: they need no stack slot."""
        super()._find_singly_assigned_variable()
        targets = Counter(
            statement.target.name
            for block in self.blocks.values()
            for statement in block.find_insts(numba_ir.Assign)
        )
        for statement in self.blocks[min(self.blocks)].find_insts(numba_ir.Assign):
            if targets[statement.target.name] == 1:
                self._singly_assigned_vars.add(statement.target.name)

    def storevar(self, value, name, argidx=None):
        """As in Numba, without releasing the previous value, which owns no memory here."""
        if self.context.enable_nrt or name in self._singly_assigned_vars:
            super().storevar(value, name, argidx)
            return
        self.builder.store(value, self.getvar(name))
        self.stored[name] = value

    def loadvar(self, name):
        return self.stored.get(name) or super().loadvar(name)

    def alloca_lltype(self, name, lltype, datamodel=None):
        """As in Numba, without the size that only debug information needs."""
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)


def _is_element_of_an_array(value: ir.Value) -> bool:
    return isinstance(value, ir.LoadInstr) and not isinstance(value.operands[0], ir.AllocaInstr)


def _of_32_bits(value: ir.Value) -> ir.Value | None:
    """The signed number of at most 32 bits that `value` holds; None where that is not known."""
    if isinstance(value, ir.CastInstr) and value.opname == "sext":
        value = value.operands[0]
    return value if value.type.width <= _I32.width else None


def _is_element(array: types.Type, indices: tuple[types.Type, ...]) -> bool:
    return (
        isinstance(array, types.Array)
        and isinstance(array.dtype, types.Number | types.Boolean)
        and len(indices) == array.ndim
        and all(isinstance(index, types.Integer) for index in indices)
    )
