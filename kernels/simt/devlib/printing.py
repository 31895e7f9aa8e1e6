"""`print` as numba-cuda has it: a float is written as C's printf writes it with `%f`."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import lower_builtin, models, register_model

from kernels.simt.devlib.maths import named


class Printed(types.Type):
    """A float64 that is printed with six decimals."""

    def __init__(self) -> None:
        super().__init__(name="printed float")


_PRINTED = Printed()


@register_model(Printed)
class _PrintedModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.DoubleType())


def _types(typingctx, x):
    kind = types.unliteral(x)
    if not isinstance(kind, types.Float):
        return kind(kind), lambda context, builder, sig, args: args[0]

    def generate(context, builder, sig, args):
        return context.cast(builder, args[0], kind, types.float64)

    return _PRINTED(kind), generate


printed = named(_types, "printed", "printed")


@lower_builtin("print_item", Printed)
def _print_item(context, builder, sig, args):
    python = context.get_python_api(builder)
    number = python.float_from_double(args[0])
    digits = python.string_from_string(context.insert_const_string(builder.module, ".6f"))
    text = python.call_method(number, "__format__", (digits,))
    python.print_object(text)
    for value in (number, digits, text):
        python.decref(value)
    return context.get_dummy_value()
