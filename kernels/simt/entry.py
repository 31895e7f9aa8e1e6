"""How Python calls the machine code of a kernel.

In the place of Numba's own wrapper comes `entry(first, last, gx, gy, gz, shared, error, *args)`,
which reads arrays and numbers out of the Python objects and runs the kernel with the GIL released.
It needs no part of Numba when it runs, so another process can load what `machine_code` stores of it
without importing Numba. Kernels that may raise, and unusual arguments, keep Numba's wrapper.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

_POINTER = ir.IntType(8).as_pointer()
_INT, _INT64, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
# Where the fields of Python objects are: of all objects, of tuples, of NumPy's arrays
_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_COUNT, _ITEMS = _HEAD, tuple.__basicsize__
_DATA, _NDIM, _SHAPE, _STRIDES = _HEAD, _HEAD + 8, _HEAD + 16, _HEAD + 24
REFUSED = 7  # a status, beside those of `checks`: not the arguments it was compiled for
_ERROR = 6  # the argument that is always an array, and of no derived type


def add_entry(context: Any, library: Any, fndesc: Any) -> bool:
    """Add the wrapper to the library of a kernel; False for arguments that only Numba's can take.

    The kernel must not raise.
    """
    fits = all(_is_simple(kind) for kind in fndesc.argtypes)
    if fits:
        module = context.create_module("entry")
        _Entry(context, module, fndesc).build()
        library.add_ir_module(module)
    return fits


def _is_simple(kind: types.Type) -> bool:
    if isinstance(kind, types.Integer):
        return kind.bitwidth <= 64
    return isinstance(kind, types.Array | types.Boolean) or kind in (types.float32, types.float64)


class _Entry:
    """Builds PyObject *entry(PyObject *self, PyObject *args, PyObject *keywords)."""

    def __init__(self, context: Any, module: ir.Module, fndesc: Any) -> None:
        self.context, self.module, self.fndesc = context, module, fndesc
        signature = ir.FunctionType(_POINTER, [_POINTER] * 3)
        function = ir.Function(module, signature, fndesc.llvm_cpython_wrapper_name)
        self.given = function.args[1]
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.refused = function.append_basic_block("refused")

    def build(self) -> None:
        builder, argtypes, convention = self.builder, self.fndesc.argtypes, self.context.call_conv
        count = self._field(self.given, _COUNT, _INT64)
        self._require(builder.icmp_signed("==", count, _INT64(len(argtypes))))
        objects = [self._item(i) for i in range(len(argtypes))]
        self.ndarray = self._field(objects[_ERROR], _TYPE, _POINTER)
        args = [
            (self._array if isinstance(kind, types.Array) else self._number)(kind, obj)
            for kind, obj in zip(argtypes, objects)
        ]
        failed = cgutils.is_not_null(builder, self._call("PyErr_Occurred", _POINTER))
        with builder.if_then(failed, likely=False):
            builder.ret(_POINTER(None))
        native_type = convention.get_function_type(self.fndesc.restype, argtypes)
        native = ir.Function(self.module, native_type, self.fndesc.llvm_func_name)
        thread = self._call("PyEval_SaveThread", _POINTER)
        _, status = convention.call_function(
            builder, native, self.fndesc.restype, argtypes, args, attrs=("noinline",)
        )
        self._call("PyEval_RestoreThread", ir.VoidType(), thread)
        builder.ret(self._call("PyLong_FromLongLong", _POINTER, status))
        builder.position_at_end(self.refused)
        builder.ret(self._call("PyLong_FromLongLong", _POINTER, _INT64(REFUSED)))

    def _call(self, name: str, returns: ir.Type, *args: ir.Value) -> ir.Value:
        signature = ir.FunctionType(returns, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.module, signature, name)
        return self.builder.call(function, args)

    def _require(self, condition: ir.Value) -> None:
        going_on = self.builder.append_basic_block("going_on")
        self.builder.cbranch(condition, going_on, self.refused)
        self.builder.position_at_end(going_on)

    def _field(self, obj: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
        place = self.builder.gep(obj, [_INT64(offset)])
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()))

    def _item(self, i: int) -> ir.Value:
        return self._field(self.given, _ITEMS + i * ctypes.sizeof(ctypes.c_void_p), _POINTER)

    def _number(self, kind: types.Type, obj: ir.Value) -> ir.Value:
        builder, wanted = self.builder, self.context.get_value_type(kind)
        if isinstance(kind, types.Float):
            value = self._call("PyFloat_AsDouble", _DOUBLE, obj)
            return value if wanted == _DOUBLE else builder.fptrunc(value, wanted)
        if isinstance(kind, types.Boolean):
            value = self._call("PyObject_IsTrue", _INT, obj)
            return builder.icmp_signed("!=", value, _INT(0))
        reader = "PyLong_AsLongLong" if kind.signed else "PyLong_AsUnsignedLongLongMask"
        value = self._call(reader, _INT64, obj)
        return value if wanted == _INT64 else builder.trunc(value, wanted)

    def _array(self, kind: types.Array, obj: ir.Value) -> ir.Value:
        builder = self.builder
        given = self._field(obj, _TYPE, _POINTER)
        with builder.if_then(builder.icmp_unsigned("!=", given, self.ndarray), likely=False):
            derived = self._call("PyType_IsSubtype", _INT, given, self.ndarray)
            self._require(builder.icmp_signed("!=", derived, _INT(0)))
        ndim = self._field(obj, _NDIM, _INT)
        self._require(builder.icmp_signed("==", ndim, _INT(kind.ndim)))
        lengths = ir.ArrayType(_INT64, kind.ndim).as_pointer()
        model = self.context.data_model_manager[kind]
        shape = builder.load(self._field(obj, _SHAPE, lengths))
        size = _INT64(1)
        for axis in range(kind.ndim):
            size = builder.mul(size, builder.extract_value(shape, axis))
        width = self.context.get_abi_sizeof(self.context.get_data_type(kind.dtype))
        struct, numbers = self.context.get_value_type(kind), model.get_field_position("data")
        fields = {
            "nitems": size,
            "itemsize": _INT64(width),
            "data": self._field(obj, _DATA, struct.elements[numbers]),
            "shape": shape,
            "strides": builder.load(self._field(obj, _STRIDES, lengths)),
        }
        array = struct(None)  # no owner of the memory
        for name, value in fields.items():
            array = builder.insert_value(array, value, model.get_field_position(name))
        return array
