"""Ctrl-C in a running kernel.

A kernel runs without the GIL, and Python handles signals on its main thread between two bytecodes:
while the kernel runs, never. So a kernel that may run for long calls `look` now and then
(`emit/polls.py` says when), through an address in the launch's report, so that the machine code can
be kept on disk. On the main thread `look` lets Python handle its signals, as it does between two
bytecodes. What a handler raises ends the launch and is raised again by `entry.reraise`; after a
handler that returns the launch goes on. Its other OS threads end when its word STOP is set.
"""

from __future__ import annotations

import sys

from kernels.support.limits import MAIN, STOP

INTERRUPTED = 9  # a status besides those of `checks`
_NANOSECONDS = 100_000_000  # between two looks
# The clock that takes a few nanoseconds to read, where there is one
_CLOCK = {"linux": 6, "darwin": 5}.get(sys.platform, 1)

IR = f"""
declare i64 @PyThread_get_thread_ident()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @clock_gettime(i32, ptr)

@next = internal global i64 0
@raised.type = internal global ptr null
@raised.value = internal global ptr null
@raised.trace = internal global ptr null

define internal i64 @now(i32 %clock) {{
  %time = alloca [2 x i64]
  %read = call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}}

define i64 @look(ptr %report) {{
  %stop.at = getelementptr i64, ptr %report, i64 {STOP}
  %stop = load volatile i64, ptr %stop.at
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %leave, label %who
who:
  %main.at = getelementptr i64, ptr %report, i64 {MAIN}
  %main = load i64, ptr %main.at
  %me = call i64 @PyThread_get_thread_ident()
  %is.main = icmp eq i64 %me, %main
  br i1 %is.main, label %when, label %go.on
when:
  %now = call i64 @now(i32 {_CLOCK})
  %next = load i64, ptr @next
  %early = icmp slt i64 %now, %next
  br i1 %early, label %go.on, label %ask
ask:
  %later = add i64 %now, {_NANOSECONDS}
  store i64 %later, ptr @next
  %gil = call i32 @PyGILState_Ensure()
  %outcome = call i32 @PyErr_CheckSignals()
  %failed = icmp ne i32 %outcome, 0
  br i1 %failed, label %keep, label %asked
keep:
  call void @PyErr_Fetch(ptr @raised.type, ptr @raised.value, ptr @raised.trace)
  store volatile i64 1, ptr %stop.at
  br label %asked
asked:
  call void @PyGILState_Release(i32 %gil)
  %set = load volatile i64, ptr %stop.at
  %is.set = icmp ne i64 %set, 0
  br i1 %is.set, label %leave, label %go.on
go.on:
  ret i64 0
leave:
  ret i64 1
}}

define void @restore() {{
  %type = load ptr, ptr @raised.type
  %value = load ptr, ptr @raised.value
  %trace = load ptr, ptr @raised.trace
  store ptr null, ptr @raised.type
  store ptr null, ptr @raised.value
  store ptr null, ptr @raised.trace
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %trace)
  ret void
}}
"""
