"""How Python calls the machine code of a kernel.

Numba compiles a Python wrapper for each kernel, which takes as long as compiling a small kernel.
Here one function serves all kernels: `entry(first, last, gx, gy, gz, shared, error, *args)` unpacks
numbers and arrays into an array of words, by the kernel's layout, and runs the kernel with the GIL
released; `codegen` adds to each kernel a function that takes such an array. `entry` does not use
Numba, so a process can run what `machine_code` stored without importing Numba. Kernels that may
raise, and those with unusual arguments, keep Numba's wrapper.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from kernels.simt.backend import relaunch, sharing
from kernels.simt.backend.interrupt import IR as _LOOK
from kernels.simt.store.modules import toolchain
from kernels.support import forks, limits
from kernels.support.cache import cache_folder, is_intact, seal, write

REFUSED = 7  # a status besides those of `checks`: arguments of other types
# The kind of an argument: the number of dimensions of an array, or one of these
_SIGNED, _UNSIGNED, _TRUTH, _DOUBLE, _FLOAT = -1, -2, -3, -4, -5
_OF_ARRAY = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")  # words
_FASTCALL = 0x80  # METH_FASTCALL: arguments come as a C array
_HEAD = object.__basicsize__

_NUMBER = f"""
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)

; A number as a word
define internal i64 @number(ptr %object, i64 %kind) {{
  switch i64 %kind, label %float [
    i64 {_SIGNED}, label %signed
    i64 {_UNSIGNED}, label %unsigned
    i64 {_TRUTH}, label %truth
    i64 {_DOUBLE}, label %double
  ]
signed:
  %as.signed = call i64 @PyLong_AsLongLong(ptr %object)
  ret i64 %as.signed
unsigned:
  %as.unsigned = call i64 @PyLong_AsUnsignedLongLongMask(ptr %object)
  ret i64 %as.unsigned
truth:
  %is.true = call i32 @PyObject_IsTrue(ptr %object)
  %as.truth = zext i32 %is.true to i64
  ret i64 %as.truth
double:
  %wide = call double @PyFloat_AsDouble(ptr %object)
  %as.double = bitcast double %wide to i64
  ret i64 %as.double
float:
  %rounded = call double @PyFloat_AsDouble(ptr %object)
  %narrow = fptrunc double %rounded to float
  %bits = bitcast float %narrow to i32
  %as.float = zext i32 %bits to i64
  ret i64 %as.float
}}
"""

# `self` is a bytes object: the address of the kernel's function, the number of arguments, the
# number of words, then per argument its kind and the size of an element. Argument 6 is always an
# ndarray, not of a subclass.
_ENTRY = f"""
define ptr @entry(ptr %self, ptr %objects, i64 %given) {{
  %run.at = getelementptr i8, ptr %self, i64 {bytes.__basicsize__ - 1}
  %run = load ptr, ptr %run.at
  %count.at = getelementptr i64, ptr %run.at, i64 1
  %count = load i64, ptr %count.at
  %size.at = getelementptr i64, ptr %run.at, i64 2
  %size = load i64, ptr %size.at
  %enough = icmp eq i64 %given, %count
  br i1 %enough, label %begin, label %refused
begin:
  %words = alloca i64, i64 %size
  %error.at = getelementptr ptr, ptr %objects, i64 6
  %error = load ptr, ptr %error.at
  %ndarray.at = getelementptr i8, ptr %error, i64 {_HEAD - 8}
  %ndarray = load ptr, ptr %ndarray.at
  br label %next
next:
  %i = phi i64 [0, %begin], [%i.next, %done]
  %word = phi ptr [%words, %begin], [%word.next, %done]
  %kind.at = phi ptr [%size.at, %begin], [%itemsize.at, %done]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %read, label %call
read:
  %object.at = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object.at
  %kind.here = getelementptr i64, ptr %kind.at, i64 1
  %kind = load i64, ptr %kind.here
  %itemsize.at = getelementptr i64, ptr %kind.at, i64 2
  %is.number = icmp slt i64 %kind, 0
  br i1 %is.number, label %number, label %array
number:
  %value = call i64 @number(ptr %object, i64 %kind)
  store i64 %value, ptr %word
  %word.after = getelementptr i64, ptr %word, i64 1
  br label %done
array:
  %type.at = getelementptr i8, ptr %object, i64 {_HEAD - 8}
  %type = load ptr, ptr %type.at
  %exact = icmp eq ptr %type, %ndarray
  br i1 %exact, label %is.array, label %other
other:
  %is.subtype = call i32 @PyType_IsSubtype(ptr %type, ptr %ndarray)
  %derived = icmp ne i32 %is.subtype, 0
  br i1 %derived, label %is.array, label %refused
is.array:
  %ndim.at = getelementptr i8, ptr %object, i64 {_HEAD + 8}
  %ndim32 = load i32, ptr %ndim.at
  %ndim = zext i32 %ndim32 to i64
  %fits = icmp eq i64 %ndim, %kind
  br i1 %fits, label %fields, label %refused
fields:
  %data.at = getelementptr i8, ptr %object, i64 {_HEAD}
  %data = load ptr, ptr %data.at
  %lengths.at = getelementptr i8, ptr %object, i64 {_HEAD + 16}
  %lengths = load ptr, ptr %lengths.at
  %steps.at = getelementptr i8, ptr %object, i64 {_HEAD + 24}
  %steps = load ptr, ptr %steps.at
  %itemsize = load i64, ptr %itemsize.at
  %parent.to = getelementptr i64, ptr %word, i64 1
  %nitems.to = getelementptr i64, ptr %word, i64 2
  %itemsize.to = getelementptr i64, ptr %word, i64 3
  %data.to = getelementptr i64, ptr %word, i64 4
  %shape.to = getelementptr i64, ptr %word, i64 5
  %strides.to = getelementptr i64, ptr %shape.to, i64 %ndim
  %array.end = getelementptr i64, ptr %strides.to, i64 %ndim
  store i64 0, ptr %word
  store i64 0, ptr %parent.to
  store i64 %itemsize, ptr %itemsize.to
  store ptr %data, ptr %data.to
  br label %axes
axes:
  %axis = phi i64 [0, %fields], [%axis.next, %copy]
  %nitems = phi i64 [1, %fields], [%nitems.next, %copy]
  %left = icmp ult i64 %axis, %ndim
  br i1 %left, label %copy, label %counted
copy:
  %length.at = getelementptr i64, ptr %lengths, i64 %axis
  %length = load i64, ptr %length.at
  %length.to = getelementptr i64, ptr %shape.to, i64 %axis
  store i64 %length, ptr %length.to
  %step.at = getelementptr i64, ptr %steps, i64 %axis
  %step = load i64, ptr %step.at
  %step.to = getelementptr i64, ptr %strides.to, i64 %axis
  store i64 %step, ptr %step.to
  %nitems.next = mul i64 %nitems, %length
  %axis.next = add i64 %axis, 1
  br label %axes
counted:
  store i64 %nitems, ptr %nitems.to
  br label %done
done:
  %word.next = phi ptr [%word.after, %number], [%array.end, %counted]
  %i.next = add i64 %i, 1
  br label %next
call:
  %exception = call ptr @PyErr_Occurred()
  %failed = icmp ne ptr %exception, null
  br i1 %failed, label %raise, label %go
go:
  %thread = call ptr @PyEval_SaveThread()
  %status = call i64 %run(ptr %words)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %return
refused:
  call void @PyErr_Clear()
  br label %return
return:
  %code = phi i64 [%status, %go], [{REFUSED}, %refused]
  %result = call ptr @PyLong_FromLongLong(i64 %code)
  ret ptr %result
raise:
  ret ptr null
}}
"""

# As `entry`, for whole launches that several OS threads may share: `first` is the nanoseconds that
# it is expected to take, and what it took is returned with the status (`sharing.TOLD`)
_SHARED = _ENTRY.replace("ptr @entry(", "ptr @shared(").replace(
    "call i64 %run(ptr %words)", "call i64 @launch.told(ptr %run, ptr %words, i64 %size)"
)

# Replaces Numba's wrapper: calling the listing of a kernel raises an error and does not crash
_REFUSING = """
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_Occurred()
declare void @PyErr_SetString(ptr, ptr)
@text = private constant [{length} x i8] c"{text}\\00"

define ptr @"{wrapper}"(ptr, ptr, ptr) {{
  %set = call i32 @PyErr_BadArgument()
  %type = call ptr @PyErr_Occurred()
  call void @PyErr_SetString(ptr %type, ptr @text)
  ret ptr null
}}
define void @"{mark}"() {{
  ret void
}}
"""
_REFUSAL = "the listing of a kernel cannot be called: launch the kernel, kernel[grid, block](...)"


class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def layout(context: Any, argtypes: tuple) -> tuple[int, ...] | None:
    """Kind and element size of each argument; None if only Numba's wrapper can unpack them."""
    found: list[int] = []
    for kind in argtypes:
        what = _what(context, kind)
        if what is None:
            return None
        found += what
    return tuple(found)


def _what(context: Any, kind: Any) -> tuple[int, int] | None:
    from numba.core import types

    if isinstance(kind, types.Array):
        model = context.data_model_manager[kind]
        assert tuple(model._fields) == _OF_ARRAY
        return kind.ndim, context.get_abi_sizeof(context.get_data_type(kind.dtype))
    if isinstance(kind, types.Integer) and kind.bitwidth <= 64:
        return (_SIGNED if kind.signed else _UNSIGNED), 0
    numbers = {types.boolean: _TRUTH, types.float64: _DOUBLE, types.float32: _FLOAT}
    return (numbers[kind], 0) if kind in numbers else None


def runner(described: Any) -> str:
    """The name of the function that runs a kernel with arguments from an array of words."""
    return described.llvm_func_name + ".run"


def mark(described: Any) -> str:
    """The name of a symbol that marks a kernel without Numba's wrapper."""
    return described.llvm_cpython_wrapper_name + ".refuses"


def refusing(described: Any) -> llvm.ModuleRef:
    """Stub in place of Numba's wrapper that raises TypeError if called directly."""
    names = {"wrapper": described.llvm_cpython_wrapper_name, "mark": mark(described)}
    text = _REFUSING.format(**names, text=_REFUSAL, length=len(_REFUSAL) + 1)
    return llvm.parse_assembly(text)


def of(compiled: Any) -> Callable[..., int]:
    """The entry point of a kernel that Numba has compiled."""
    library, described = compiled.library, compiled.fndesc
    if not library.get_pointer_to_function(mark(described)):
        return compiled.entry_point
    address = library.get_pointer_to_function(runner(described))
    return make(address, layout(compiled.target_context, described.argtypes))


def make(address: int, layout: tuple[int, ...]) -> Callable[..., int]:
    """The entry point of the kernel whose function is at `address`."""
    kinds = layout[::2]
    size = sum(1 if kind < 0 else len(_OF_ARRAY) - 2 + 2 * kind for kind in kinds)
    facts = struct.pack(f"=QQQ{len(layout)}q", address, len(kinds), size, *layout)
    return function("entry", facts)


def shared(point: Callable[..., int]) -> Callable[..., int] | None:
    """`shared` for the kernel of an entry point; None for one with Numba's wrapper."""
    facts = getattr(point, "__self__", None)
    return function("shared", facts) if isinstance(facts, bytes) else None


def function(name: str, self: Any) -> Callable:
    """A function of this module's code as one of Python, with the object that it gets as self."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    new.restype = ctypes.py_object
    return new(ctypes.byref(_method(name)), self, None)


@cache
def _method(name: str) -> _Method:
    address = engine().get_function_address(name)
    method = _Method(name.encode(), address, _FASTCALL, None)
    # Entry points refer to it until the interpreter exits, so it must never be freed
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    return method


def report() -> np.ndarray:
    """The report of a kernel's launches: what a violation leaves there, and how to look for
    signals (`interrupt`)."""
    words = np.zeros(limits.REPORT_WORDS, np.int64)
    words[limits.LOOK] = engine().get_function_address("look")
    words[limits.MAIN] = threading.main_thread().ident
    _reports[id(words)] = words
    return words


_reports: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


@forks.in_child
def _renew_reports() -> None:
    """The thread that forked is the main one; launches that others interrupted are not there."""
    for words in list(_reports.values()):
        words[limits.MAIN], words[limits.STOP] = threading.get_ident(), 0


def reraise() -> None:
    """Raise what a signal's handler raised in an interrupted launch; KeyboardInterrupt where
    another launch of the same kernel was interrupted."""
    ctypes.PYFUNCTYPE(None)(engine().get_function_address("restore"))()
    raise KeyboardInterrupt


_engines: list[llvm.ExecutionEngine] = []  # one; an engine that is freed takes its code with it
_making = forks.rlock()


def engine() -> llvm.ExecutionEngine:
    """The LLVM engine that links `entry` and stored kernels into this process."""
    with _making:  # threads that begin at once use the same one
        if not _engines:
            _engines.append(_new_engine())
        return _engines[0]


def _new_engine() -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(jit=True)
    made = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    made.add_object_file(llvm.ObjectFileRef.from_data(_code(machine)))
    made.finalize_object()
    return made


def _code(machine: llvm.TargetMachine) -> bytes:
    """An object file with `entry`, which is compiled once as kernels are."""
    path = cache_folder() / f"entry_{toolchain()[:20]}.o"
    if is_intact(path):
        return path.read_bytes()
    text = "".join([_NUMBER, _ENTRY, _SHARED, _LOOK, relaunch.IR, sharing.IR])
    code = machine.emit_object(llvm.parse_assembly(text))
    with contextlib.suppress(OSError):  # a full disk: it is made again each time
        write(path, code)
        seal(path, [path])
    return code
