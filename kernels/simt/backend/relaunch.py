"""Launches that were made before, once more: all of it in machine code.

`relaunch(tracer, dialect, operation, *operands)` looks for launches that were remembered for this
operation of this dialect and for operands of these dtypes, shapes, strides and types of numbers.
It allocates the results and what the launches need besides, launches them one after the other, and
returns the results, or the first operand where nothing is allocated, which it has written; None
where nothing is remembered, where a launch fails, or with a tracer: then the caller takes the long
way, which explains the failure. Where an operand is on a GPU, a function in Python does this.
`kernels.launchers.relaunch` says what is remembered, and writes the table that is read here.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np

from kernels.simt.backend.sharing import LACKING, SHARE

# The words of a state, which is an array: the slots of a hash table that hold addresses of
# launches, the number of slots - 1, and what machine code cannot name: NumPy's type of arrays, what
# makes one, None; the type of arrays on a GPU, and the function that is called where one is given
SLOTS, MASK, NDARRAY, NEW, NONE, THERE, ELSEWHERE = range(7)
STATE_WORDS = 7
# The words before the key of what is remembered: hash, words of the key; how many arrays are made,
# and how many of these are returned in a tuple (0: the first, as it is, or the first operand); the
# number of fixes, of launches, and of arguments
HASH, KEY, MADE, RETURNED, FIXES, LAUNCHES, WORDS = range(7)
HEADER, LAUNCH = 7, 4
# Then the key; dtype, dimensions and shape of each array that is made; the fixes; of each launch
# the machine code, where its arguments begin, how many words they are and its cost (`sharing`); the
# words of the arguments. A fix is the word to set, where it comes from (an operand, or -1, -2, ...
# for the arrays that are made), and an offset in bytes or the kind of a number.
MAX_OPERANDS, MAX_NDIM, MAX_MADE = 64, 6, 48
MAX_KEY = 2 + MAX_OPERANDS * (2 + 2 * MAX_NDIM)
FACTOR = 0x9E3779B97F4A7C15
_HEAD = object.__basicsize__
_PYARRAY_NEW_FROM_DESCR = 94  # its place in NumPy's table of functions

IR = f"""
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define ptr @relaunch(ptr %self, ptr %objects, i64 %given) {{
  %state.at = getelementptr i8, ptr %self, i64 {_HEAD}
  %state = load ptr, ptr %state.at
  %none.at = getelementptr ptr, ptr %state, i64 {NONE}
  %none = load ptr, ptr %none.at
  %ndarray.at = getelementptr ptr, ptr %state, i64 {NDARRAY}
  %ndarray = load ptr, ptr %ndarray.at
  %gpu.at = getelementptr ptr, ptr %state, i64 {THERE}
  %gpu = load ptr, ptr %gpu.at
  %tracer = load ptr, ptr %objects
  %untraced = icmp eq ptr %tracer, %none
  %few = icmp ult i64 %given, {3 + MAX_OPERANDS + 1}
  %possible = and i1 %untraced, %few
  br i1 %possible, label %begin, label %miss
begin:
  %key = alloca [{MAX_KEY} x i64]
  %dialect.at = getelementptr ptr, ptr %objects, i64 1
  %dialect = load i64, ptr %dialect.at
  store i64 %dialect, ptr %key
  %operation.at = getelementptr ptr, ptr %objects, i64 2
  %operation = load i64, ptr %operation.at
  %operation.to = getelementptr i64, ptr %key, i64 1
  store i64 %operation, ptr %operation.to
  br label %next
next:
  %i = phi i64 [3, %begin], [%i.next, %number], [%i.next, %described]
  %length = phi i64 [2, %begin], [%length.number, %number], [%length.array, %described]
  %there = phi i1 [false, %begin], [%there.too, %number], [%there, %described]
  %more = icmp ult i64 %i, %given
  br i1 %more, label %read, label %read.all
read:
  %i.next = add i64 %i, 1
  %object.at = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object.at
  %type.at = getelementptr i8, ptr %object, i64 {_HEAD - 8}
  %type = load ptr, ptr %type.at
  %here = getelementptr i64, ptr %key, i64 %length
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %array, label %number
number:
  store ptr %type, ptr %here
  %length.number = add i64 %length, 1
  %is.there = icmp eq ptr %type, %gpu
  %there.too = or i1 %there, %is.there
  br label %next
array:
  %ndim.at = getelementptr i8, ptr %object, i64 {_HEAD + 8}
  %ndim32 = load i32, ptr %ndim.at
  %ndim = zext i32 %ndim32 to i64
  %flat = icmp ule i64 %ndim, {MAX_NDIM}
  br i1 %flat, label %describe, label %miss
describe:
  %dtype.at = getelementptr i8, ptr %object, i64 {_HEAD + 40}
  %dtype = load ptr, ptr %dtype.at
  store ptr %dtype, ptr %here
  %ndim.to = getelementptr i64, ptr %here, i64 1
  store i64 %ndim, ptr %ndim.to
  %lengths.at = getelementptr i8, ptr %object, i64 {_HEAD + 16}
  %lengths = load ptr, ptr %lengths.at
  %steps.at = getelementptr i8, ptr %object, i64 {_HEAD + 24}
  %steps = load ptr, ptr %steps.at
  %axes.to = getelementptr i64, ptr %here, i64 2
  br label %axes
axes:
  %axis = phi i64 [0, %describe], [%axis.next, %axis.read]
  %left = icmp ult i64 %axis, %ndim
  br i1 %left, label %axis.read, label %described
axis.read:
  %n.at = getelementptr i64, ptr %lengths, i64 %axis
  %n = load i64, ptr %n.at
  %step.at = getelementptr i64, ptr %steps, i64 %axis
  %step = load i64, ptr %step.at
  %place = shl i64 %axis, 1
  %n.to = getelementptr i64, ptr %axes.to, i64 %place
  store i64 %n, ptr %n.to
  %step.to = getelementptr i64, ptr %n.to, i64 1
  store i64 %step, ptr %step.to
  %axis.next = add i64 %axis, 1
  br label %axes
described:
  %twice = shl i64 %ndim, 1
  %length.head = add i64 %length, 2
  %length.array = add i64 %length.head, %twice
  br label %next

read.all:
  br i1 %there, label %elsewhere, label %mix.begin
elsewhere:
  %else.at = getelementptr ptr, ptr %state, i64 {ELSEWHERE}
  %else = load ptr, ptr %else.at
  %relaunched = call ptr @PyObject_Vectorcall(ptr %else, ptr %objects, i64 %given, ptr null)
  ret ptr %relaunched
mix.begin:
  br label %mix
mix:
  %j = phi i64 [0, %mix.begin], [%j.next, %mix.one]
  %hash = phi i64 [%length, %mix.begin], [%hash.next, %mix.one]
  %unmixed = icmp ult i64 %j, %length
  br i1 %unmixed, label %mix.one, label %mixed
mix.one:
  %part.at = getelementptr i64, ptr %key, i64 %j
  %part = load i64, ptr %part.at
  %both = xor i64 %hash, %part
  %spread = mul i64 %both, {FACTOR - 2**64}
  %high = lshr i64 %spread, 32
  %hash.next = xor i64 %spread, %high
  %j.next = add i64 %j, 1
  br label %mix
mixed:
  %slots.at = getelementptr ptr, ptr %state, i64 {SLOTS}
  %slots = load ptr, ptr %slots.at
  %mask.at = getelementptr i64, ptr %state, i64 {MASK}
  %mask = load i64, ptr %mask.at
  br label %probe
probe:
  %try = phi i64 [%hash, %mixed], [%try.next, %other]
  %slot = and i64 %try, %mask
  %slot.at = getelementptr ptr, ptr %slots, i64 %slot
  %launch = load ptr, ptr %slot.at
  %unknown = icmp eq ptr %launch, null
  br i1 %unknown, label %miss, label %candidate
candidate:
  %its.hash = load i64, ptr %launch
  %same.hash = icmp eq i64 %its.hash, %hash
  %its.length.at = getelementptr i64, ptr %launch, i64 {KEY}
  %its.length = load i64, ptr %its.length.at
  %same.length = icmp eq i64 %its.length, %length
  %similar = and i1 %same.hash, %same.length
  br i1 %similar, label %compare, label %other
compare:
  %k = phi i64 [0, %candidate], [%k.next, %equal]
  %its.key = getelementptr i64, ptr %launch, i64 {HEADER}
  %uncompared = icmp ult i64 %k, %length
  br i1 %uncompared, label %compare.one, label %found
compare.one:
  %a.at = getelementptr i64, ptr %key, i64 %k
  %a = load i64, ptr %a.at
  %b.at = getelementptr i64, ptr %its.key, i64 %k
  %b = load i64, ptr %b.at
  %same = icmp eq i64 %a, %b
  br i1 %same, label %equal, label %other
equal:
  %k.next = add i64 %k, 1
  br label %compare
other:
  %try.next = add i64 %try, 1
  br label %probe

found:
  ; without enough helpers Python comes into it, and starts them
  %pool = load ptr, ptr @pool
  %lacking.at = getelementptr i64, ptr %pool, i64 {LACKING}
  %lacking = load i64, ptr %lacking.at
  %is.lacking = icmp ne i64 %lacking, 0
  br i1 %is.lacking, label %miss, label %known
known:
  %new.at = getelementptr ptr, ptr %state, i64 {NEW}
  %new = load ptr, ptr %new.at
  %made.at = getelementptr i64, ptr %launch, i64 {MADE}
  %made.count = load i64, ptr %made.at
  %returned.at = getelementptr i64, ptr %launch, i64 {RETURNED}
  %returned = load i64, ptr %returned.at
  %made = alloca [{MAX_MADE} x ptr]
  %first.array = getelementptr i64, ptr %its.key, i64 %length
  br label %make
make:
  %m = phi i64 [0, %known], [%m.next, %store.array]
  %array.at = phi ptr [%first.array, %known], [%array.next, %store.array]
  %unmade = icmp ult i64 %m, %made.count
  br i1 %unmade, label %make.one, label %prepare
make.one:
  %made.dtype = load ptr, ptr %array.at
  %made.ndim.at = getelementptr i64, ptr %array.at, i64 1
  %made.ndim = load i64, ptr %made.ndim.at
  %made.ndim32 = trunc i64 %made.ndim to i32
  %made.shape = getelementptr i64, ptr %array.at, i64 2
  call void @Py_IncRef(ptr %made.dtype)
  %one = call ptr %new(ptr %ndarray, ptr %made.dtype, i32 %made.ndim32, ptr %made.shape,
                       ptr null, ptr null, i32 0, ptr null)
  %full = icmp eq ptr %one, null
  br i1 %full, label %free, label %store.array
store.array:
  %array.to = getelementptr ptr, ptr %made, i64 %m
  store ptr %one, ptr %array.to
  %m.next = add i64 %m, 1
  %array.next = getelementptr i64, ptr %made.shape, i64 %made.ndim
  br label %make
prepare:
  %fixes.at = getelementptr i64, ptr %launch, i64 {FIXES}
  %fix.count = load i64, ptr %fixes.at
  %fix.words = mul i64 %fix.count, 3
  %launches = getelementptr i64, ptr %array.at, i64 %fix.words
  %launches.at = getelementptr i64, ptr %launch, i64 {LAUNCHES}
  %launch.count = load i64, ptr %launches.at
  %launch.words = mul i64 %launch.count, {LAUNCH}
  %template = getelementptr i64, ptr %launches, i64 %launch.words
  %words.at = getelementptr i64, ptr %launch, i64 {WORDS}
  %count = load i64, ptr %words.at
  %words = alloca i64, i64 %count
  br label %copy
copy:
  %w = phi i64 [0, %prepare], [%w.next, %copy.one]
  %uncopied = icmp ult i64 %w, %count
  br i1 %uncopied, label %copy.one, label %fix
copy.one:
  %from = getelementptr i64, ptr %template, i64 %w
  %word = load i64, ptr %from
  %to = getelementptr i64, ptr %words, i64 %w
  store i64 %word, ptr %to
  %w.next = add i64 %w, 1
  br label %copy
fix:
  %f = phi i64 [0, %copy], [%f.next, %fixed]
  %unfixed = icmp ult i64 %f, %fix.count
  br i1 %unfixed, label %fix.one, label %go
fix.one:
  %f.next = add i64 %f, 1
  %f.place = mul i64 %f, 3
  %fix.at = getelementptr i64, ptr %array.at, i64 %f.place
  %at = load i64, ptr %fix.at
  %target = getelementptr i64, ptr %words, i64 %at
  %source.at = getelementptr i64, ptr %fix.at, i64 1
  %source = load i64, ptr %source.at
  %kind.at = getelementptr i64, ptr %fix.at, i64 2
  %kind = load i64, ptr %kind.at
  %is.made = icmp slt i64 %source, 0
  br i1 %is.made, label %own, label %operand
own:
  %own.number = xor i64 %source, -1
  %own.at = getelementptr ptr, ptr %made, i64 %own.number
  %own.array = load ptr, ptr %own.at
  br label %pointer
operand:
  %argument = add i64 %source, 3
  %operand.at = getelementptr ptr, ptr %objects, i64 %argument
  %given.operand = load ptr, ptr %operand.at
  %operand.type.at = getelementptr i8, ptr %given.operand, i64 {_HEAD - 8}
  %operand.type = load ptr, ptr %operand.type.at
  %has.data = icmp eq ptr %operand.type, %ndarray
  br i1 %has.data, label %pointer, label %scalar
pointer:
  %owner = phi ptr [%own.array, %own], [%given.operand, %operand]
  %data.at = getelementptr i8, ptr %owner, i64 {_HEAD}
  %data = load i64, ptr %data.at
  %moved = add i64 %data, %kind
  br label %fixed
scalar:
  %converted = call i64 @number(ptr %given.operand, i64 %kind)
  br label %fixed
fixed:
  %value = phi i64 [%moved, %pointer], [%converted, %scalar]
  store i64 %value, ptr %target
  br label %fix

go:
  %error = call ptr @PyErr_Occurred()
  %wrong = icmp ne ptr %error, null
  br i1 %wrong, label %clear, label %weigh
weigh:  ; what is expected to take less time than a switch to another Python thread keeps the GIL
  %v = phi i64 [0, %go], [%v.next, %weigh.one]
  %total = phi i64 [0, %go], [%total.next, %weigh.one]
  %unweighed = icmp ult i64 %v, %launch.count
  br i1 %unweighed, label %weigh.one, label %weighed
weigh.one:
  %v.place = mul i64 %v, {LAUNCH}
  %v.last = add i64 %v.place, 3
  %v.at = getelementptr i64, ptr %launches, i64 %v.last
  %v.cost = load i64, ptr %v.at
  %v.unknown = icmp eq i64 %v.cost, 1
  %v.long = select i1 %v.unknown, i64 {SHARE}, i64 %v.cost
  %total.next = add i64 %total, %v.long
  %v.next = add i64 %v, 1
  br label %weigh
weighed:
  %is.short = icmp ult i64 %total, {SHARE}
  br i1 %is.short, label %ready, label %unlock
unlock:
  %saved = call ptr @PyEval_SaveThread()
  br label %ready
ready:
  %thread = phi ptr [null, %weighed], [%saved, %unlock]
  %is.unlocked = icmp ne ptr %thread, null
  br label %each
each:
  %l = phi i64 [0, %ready], [%l.next, %run.next]
  %status = phi i64 [0, %ready], [%status.one, %run.next]
  %succeeded = icmp eq i64 %status, 0
  %unrun = icmp ult i64 %l, %launch.count
  %goes.on = and i1 %succeeded, %unrun
  br i1 %goes.on, label %run.one, label %ran
run.one:
  %l.place = mul i64 %l, {LAUNCH}
  %code.at = getelementptr ptr, ptr %launches, i64 %l.place
  %code = load ptr, ptr %code.at
  %start.at = getelementptr i64, ptr %code.at, i64 1
  %start = load i64, ptr %start.at
  %arguments = getelementptr i64, ptr %words, i64 %start
  %length.at = getelementptr i64, ptr %code.at, i64 2
  %arguments.length = load i64, ptr %length.at
  %cost.at = getelementptr i64, ptr %code.at, i64 3
  br i1 %is.unlocked, label %run.shared, label %run.alone
run.shared:
  %status.shared = call i64 @launch(ptr %code, ptr %arguments, i64 %arguments.length, ptr %cost.at)
  br label %run.next
run.alone:
  %status.alone = call i64 @alone(ptr %code, ptr %arguments, ptr %cost.at)
  br label %run.next
run.next:
  %status.one = phi i64 [%status.shared, %run.shared], [%status.alone, %run.alone]
  %l.next = add i64 %l, 1
  br label %each
ran:
  br i1 %is.unlocked, label %lock, label %locked
lock:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %locked
locked:
  br i1 %succeeded, label %return, label %drop
return:
  %is.bare = icmp eq i64 %returned, 0
  br i1 %is.bare, label %bare, label %several
bare:
  %is.given = icmp eq i64 %made.count, 0
  %given.at = getelementptr ptr, ptr %objects, i64 3
  %result.at = select i1 %is.given, ptr %given.at, ptr %made
  %result = load ptr, ptr %result.at
  br i1 %is.given, label %share, label %free
share:
  call void @Py_IncRef(ptr %result)
  br label %free
several:
  %tuple = call ptr @PyTuple_New(i64 %returned)
  %no.tuple = icmp eq ptr %tuple, null
  br i1 %no.tuple, label %free, label %fill
fill:
  %t = phi i64 [0, %several], [%t.next, %fill.one]
  %unfilled = icmp ult i64 %t, %returned
  br i1 %unfilled, label %fill.one, label %free
fill.one:
  %item.at = getelementptr ptr, ptr %made, i64 %t
  %item = load ptr, ptr %item.at
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %t, ptr %item)
  %t.next = add i64 %t, 1
  br label %fill
clear:
  call void @PyErr_Clear()
  br label %drop
drop:
  call void @Py_IncRef(ptr %none)
  br label %free
free:
  %kept = phi i64 [0, %make.one], [1, %bare], [1, %share], [0, %several], [%returned, %fill],
                  [0, %drop]
  %end = phi i64 [%m, %make.one], [%made.count, %bare], [%made.count, %share],
                 [%made.count, %several], [%made.count, %fill], [%made.count, %drop]
  %outcome = phi ptr [null, %make.one], [%result, %bare], [%result, %share], [null, %several],
                     [%tuple, %fill], [%none, %drop]
  br label %freeing
freeing:
  %d = phi i64 [%kept, %free], [%d.next, %free.one]
  %unfreed = icmp ult i64 %d, %end
  br i1 %unfreed, label %free.one, label %answer
free.one:
  %dropped.at = getelementptr ptr, ptr %made, i64 %d
  %dropped = load ptr, ptr %dropped.at
  call void @Py_DecRef(ptr %dropped)
  %d.next = add i64 %d, 1
  br label %freeing
answer:
  ret ptr %outcome
miss:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}}
"""


def state() -> np.ndarray:
    """The state of a table without slots yet."""
    library = importlib.import_module("numpy._core._multiarray_umath")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    table = pointer(library._ARRAY_API, None)
    new = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_PYARRAY_NEW_FROM_DESCR]
    words: list[Any] = [0] * STATE_WORDS
    words[NDARRAY], words[NEW], words[NONE] = id(np.ndarray), new, id(None)
    return np.array(words, np.uint64)
