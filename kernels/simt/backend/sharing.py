"""Launches whose blocks several OS threads share, in machine code and without the GIL.

`launch(code, words, count, cost)` runs a kernel's blocks: the array of `count` words is what `code`
takes, and `cost` points to the nanoseconds that it is expected to take on one OS thread, which it
corrects. A launch that is worth it is shared: the calling thread and the helpers, each of which
runs `serve(pool, number)` forever, take chunks of the blocks until none is left, each of its own
range first, then from the ends of the others'. So a thread finds in its caches what it wrote in the
launch before: between processors that share no cache, that takes as long as from memory. For the
same reason the last quarter of a range is left to its owner once that has begun, but not in
launches that are short or long, or after helpers have been slower than the caller in many: there
waiting costs more. Results do not depend on who runs which.

A helper looks for work for a while before it sleeps, and a sleeping one is woken only for a launch
that takes longer than waking. A helper that comes too late is not waited for, and after one that
loses its processor in the middle launches run alone for a while, so that a launch on a busy machine
takes about as long as on one thread. There is one pool: what other threads launch meanwhile runs
alone, too. While the caller waits it lets Python handle its signals (`interrupt`).

The words of the pool, below, are on cache lines of their own where several threads write.
"""

from __future__ import annotations

import platform
import sys

from kernels.simt.backend.interrupt import INTERRUPTED

# OPEN: the number of a launch of which there may be blocks to take, or 0; NUMBER: of the last one.
# LEFT: blocks that have not been run. From its success in taking some on, and until it has
# subtracted them from LEFT, a thread may rely on the words of the launch.
OPEN, NUMBER, LEFT = 0, 1, 16
CODE, WORDS, COUNT, CHUNK, HELPERS, PROCESSOR, CONTROL = range(32, 39)  # of a launch
KEPT = 39  # so many blocks of a range are not taken from a thread that has begun it
STATUS, SPENT = 48, 49  # the first that is not 0; nanoseconds of all threads together
BUSY, WAITING, LOCK = 64, 65, 66  # a launch is shared; its caller sleeps; where
# How many OS threads are wanted (by address), how many helpers there are, for how many nanoseconds
# who waits looks before it sleeps, whether a launch has lacked helpers, and 0
WANTED, STARTED, PATIENCE, LACKING, NOTHING = range(80, 85)
SKIP, PENALTY = 85, 86  # launches run alone until then, in ns; for how long they did
UNEVEN = 87  # for how many launches helpers have been slower; from _UNEVEN on, no block is kept
# Of each thread: the blocks that nobody has taken, the first one below, the end above; the first
# one that it was given
RANGE, GIVEN = 88, 89
FIRST_HELPER, HELPER_WORDS = 96, 16  # of each helper: whether it sleeps, and where; its RANGE
MAX_HELPERS = 255
POOL_WORDS = FIRST_HELPER + HELPER_WORDS * MAX_HELPERS

TOLD, STATUSES = 8, 255  # bits of the status in what `launch.told` returns, and their mask
# A cost is 0 for a launch that is always short, and 1 where it is not known yet.
SHARE = 10_000  # ns: shorter launches stay on the calling thread
_WAKE = 60_000  # ns: waking takes the caller some 5 us, and the helper some 50
_A_HELPER = 5_000  # ns: what each thread should have to do
_CHUNKS_A_THREAD = 8  # of the smallest size: a thread that starts late gets fewer blocks
_LOW = (1 << 32) - 1  # of a range, its first block
_KEEPING = 100_000, 10_000_000  # ns: of launches in which blocks are kept, the shortest, longest
_UNEVEN, _GREEDY = 8, 64  # launches until no block is kept, and for how many none is
_YIELD = 20_000  # ns: who has looked for so long lets others have its processor
_LATE = 50_000  # ns: a caller that waits for more than that and its own part was not helped
_PENALTIES = 500_000, 64_000_000  # ns: for so long launches then run alone, at least and at most
_LOOK_EVERY = 100_000  # us: how often a waiting caller looks for signals
_REPORT = 10  # the word of a launch with the address of its report
_CLOCK = {"darwin": 4}.get(sys.platform, 1)  # a precise one
_PAUSES = {"x86": "@llvm.x86.sse2.pause()", "arm": "@llvm.aarch64.isb(i32 15)"}
_FAMILIES = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm", "arm64": "arm"}
_PAUSE = _PAUSES.get(_FAMILIES.get(platform.machine(), ""), "@llvm.donothing()")

# A helper that the system has put on the caller's processor would only hold it up: it goes to
# another one, and sleeps where there is none. Other systems than Linux cannot tell.
_MASK_BYTES = 1024
_PLACE = (
    f"""
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal i64 @processor() {{
  %here = call i32 @sched_getcpu()
  %wide = sext i32 %here to i64
  ret i64 %wide
}}

; Whether this thread runs on another processor, or does now
define internal i1 @get_out_of_the_way(i64 %processor) {{
  %mask = alloca [{_MASK_BYTES} x i8], align 8
  %here = call i64 @processor()
  %same = icmp eq i64 %here, %processor
  br i1 %same, label %ask, label %yes
ask:
  %size32 = call i32 @sched_getaffinity(i32 0, i64 {_MASK_BYTES}, ptr %mask)
  %refused = icmp ne i32 %size32, 0
  br i1 %refused, label %no, label %move
move:
  %word = lshr i64 %here, 6
  %bit = and i64 %here, 63
  %place = shl i64 1, %bit
  %others = xor i64 %place, -1
  %word.at = getelementptr i64, ptr %mask, i64 %word
  %before = load i64, ptr %word.at
  %without = and i64 %before, %others
  store i64 %without, ptr %word.at
  %moved = call i32 @sched_setaffinity(i32 0, i64 {_MASK_BYTES}, ptr %mask)
  store i64 %before, ptr %word.at
  %freed = call i32 @sched_setaffinity(i32 0, i64 {_MASK_BYTES}, ptr %mask)
  %fine = icmp eq i32 %moved, 0
  br i1 %fine, label %yes, label %no
yes:
  ret i1 1
no:
  ret i1 0
}}
"""
    if sys.platform == "linux"
    else """
define internal i64 @processor() {
  ret i64 0
}
define internal i1 @get_out_of_the_way(i64 %processor) {
  ret i1 1
}
"""
)

# A thread's control word for arithmetic (`control`)
HAS_CONTROL = _FAMILIES.get(platform.machine()) == "x86"
_CONTROL = (
    """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define void @get.control(ptr %to) {
  call void @llvm.x86.sse.stmxcsr(ptr %to)
  ret void
}
define void @set.control(ptr %from) {
  call void @llvm.x86.sse.ldmxcsr(ptr %from)
  ret void
}
"""
    if HAS_CONTROL
    else """
define void @get.control(ptr %to) {
  ret void
}
define void @set.control(ptr %from) {
  ret void
}
"""
)

IR = f"""
declare i32 @PyThread_acquire_lock_timed(ptr, i64, i32)
declare void @PyThread_release_lock(ptr)
declare i32 @sched_yield()
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

declare void {_PAUSE.replace("15", "")}

@pool = global ptr null

; Wakes who sleeps at a word with its lock behind it
define internal void @wake(ptr %sleeps.at) {{
  %seen = load atomic i64, ptr %sleeps.at seq_cst, align 8
  %sleeps = icmp ne i64 %seen, 0
  br i1 %sleeps, label %try, label %done
try:
  %pair = cmpxchg ptr %sleeps.at, i64 1, i64 0 seq_cst seq_cst
  %mine = extractvalue {{i64, i1}} %pair, 1
  br i1 %mine, label %release, label %done
release:
  %lock.at = getelementptr i64, ptr %sleeps.at, i64 1
  %lock = load ptr, ptr %lock.at
  call void @PyThread_release_lock(ptr %lock)
  br label %done
done:
  ret void
}}

; Sleeps there until woken, or for so many us; `for`: a word that ends it when it is as `until` says
define internal void @sleep(ptr %sleeps.at, i64 %us, ptr %for, i1 %until) {{
  %lock.at = getelementptr i64, ptr %sleeps.at, i64 1
  %lock = load ptr, ptr %lock.at
  %before = atomicrmw xchg ptr %sleeps.at, i64 1 seq_cst
  %seen = load atomic i64, ptr %for seq_cst, align 8
  %is.set = icmp ne i64 %seen, 0
  %ends = icmp eq i1 %is.set, %until
  br i1 %ends, label %rise, label %block
block:
  %outcome = call i32 @PyThread_acquire_lock_timed(ptr %lock, i64 %us, i32 1)
  %woken = icmp eq i32 %outcome, 1
  br i1 %woken, label %done, label %rise
rise:
  %pair = cmpxchg ptr %sleeps.at, i64 1, i64 0 seq_cst seq_cst
  %mine = extractvalue {{i64, i1}} %pair, 1
  br i1 %mine, label %done, label %settle
settle:  ; somebody is about to release the lock
  %taken = call i32 @PyThread_acquire_lock_timed(ptr %lock, i64 -1, i32 0)
  br label %done
done:
  ret void
}}

; Whether a word becomes as `until` says, other than 0 or 0, while the pool is patient
define internal i1 @watch(ptr %pool, ptr %for, i1 %until, i1 %is.caller) {{
  %patience.at = getelementptr i64, ptr %pool, i64 {PATIENCE}
  %patience = load i64, ptr %patience.at
  %begun = call i64 @now(i32 {_CLOCK})
  br label %look
look:
  %i = phi i64 [1, %0], [%i.next, %again], [1, %soon]
  %seen = load atomic i64, ptr %for seq_cst, align 8
  %is.set = icmp ne i64 %seen, 0
  %ends = icmp eq i1 %is.set, %until
  br i1 %ends, label %yes, label %pause
pause:
  call void {_PAUSE}
  %i.next = add i64 %i, 1
  %rest = and i64 %i, 31
  %asks = icmp eq i64 %rest, 0
  br i1 %asks, label %ask, label %again
again:
  br label %look
ask:
  %time = call i64 @now(i32 {_CLOCK})
  %spent = sub i64 %time, %begun
  %late = icmp sge i64 %spent, %patience
  br i1 %late, label %no, label %early
early:
  br i1 %is.caller, label %early.caller, label %early.helper
early.helper:
  %processor.at = getelementptr i64, ptr %pool, i64 {PROCESSOR}
  %processor = load atomic i64, ptr %processor.at monotonic, align 8
  %elsewhere = call i1 @get_out_of_the_way(i64 %processor)
  br label %soon
early.caller:
  %long = icmp sge i64 %spent, {_YIELD}
  br i1 %long, label %yield, label %soon
yield:
  %yielded = call i32 @sched_yield()
  br label %soon
soon:
  br label %look
yes:
  ret i1 1
no:
  ret i1 0
}}

define internal ptr @range.of(ptr %pool, i64 %thread) {{
  %words = mul i64 %thread, {HELPER_WORDS}
  %place = add i64 %words, {RANGE}
  %at = getelementptr i64, ptr %pool, i64 %place
  ret ptr %at
}}

; Takes some blocks of a thread's range: most of what is left from the beginning if they are `own`,
; half of it from the end if not, unless that is kept. The first of them and 1, or 0
define internal i64 @take.of(ptr %pool, i64 %thread, i1 %own, ptr %taken.to) {{
  %range.at = call ptr @range.of(ptr %pool, i64 %thread)
  %chunk.at = getelementptr i64, ptr %pool, i64 {CHUNK}
  %first.seen = load atomic i64, ptr %range.at seq_cst, align 8
  br label %try
try:
  %seen = phi i64 [%first.seen, %0], [%seen.next, %allowed]
  %low = and i64 %seen, {_LOW}
  %high = lshr i64 %seen, 32
  %none = icmp uge i64 %low, %high
  br i1 %none, label %nothing, label %claim
claim:  ; the chunk may be another launch's, which does no harm
  %remaining = sub i64 %high, %low
  %chunk = load atomic i64, ptr %chunk.at monotonic, align 8
  br i1 %own, label %allowed, label %ask
ask:
  %given.at = getelementptr i64, ptr %range.at, i64 {GIVEN - RANGE}
  %given = load atomic i64, ptr %given.at monotonic, align 8
  %has.begun = icmp ugt i64 %low, %given
  %kept.at = getelementptr i64, ptr %pool, i64 {KEPT}
  %kept = load atomic i64, ptr %kept.at monotonic, align 8
  %is.little = icmp ule i64 %remaining, %kept
  %is.kept = and i1 %has.begun, %is.little
  br i1 %is.kept, label %nothing, label %allowed
allowed:
  %quarter = lshr i64 %remaining, 2
  %most = sub i64 %remaining, %quarter
  %half = lshr i64 %remaining, 1
  %part = select i1 %own, i64 %most, i64 %half
  %at.least = call i64 @llvm.umax.i64(i64 %part, i64 %chunk)
  %taken = call i64 @llvm.umin.i64(i64 %at.least, i64 %remaining)
  %above = shl i64 %taken, 32
  %behind = add i64 %seen, %taken
  %before = sub i64 %seen, %above
  %less = select i1 %own, i64 %behind, i64 %before
  %pair = cmpxchg ptr %range.at, i64 %seen, i64 %less seq_cst seq_cst
  %seen.next = extractvalue {{i64, i1}} %pair, 0
  %claimed = extractvalue {{i64, i1}} %pair, 1
  br i1 %claimed, label %success, label %try
success:
  store i64 %taken, ptr %taken.to
  %last.ones = sub i64 %high, %taken
  %first = select i1 %own, i64 %low, i64 %last.ones
  %result = add i64 %first, 1
  ret i64 %result
nothing:
  ret i64 0
}}

; Takes some of the pool's blocks; the first of them and 1, or 0
define internal i64 @take(ptr %pool, i64 %thread, ptr %taken.to) {{
  %own = call i64 @take.of(ptr %pool, i64 %thread, i1 1, ptr %taken.to)
  %found = icmp ne i64 %own, 0
  br i1 %found, label %mine, label %others
mine:
  ret i64 %own
others:
  %helpers.at = getelementptr i64, ptr %pool, i64 {HELPERS}
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  br label %other
other:
  %t = phi i64 [0, %others], [%t.next, %again]
  %is.one = icmp ule i64 %t, %helpers
  br i1 %is.one, label %ask, label %nothing
ask:
  %theirs = call i64 @take.of(ptr %pool, i64 %t, i1 0, ptr %taken.to)
  %some = icmp ne i64 %theirs, 0
  br i1 %some, label %good, label %again
again:
  %t.next = add i64 %t, 1
  br label %other
good:
  ret i64 %theirs
nothing:
  ret i64 0
}}

; Empties all ranges; how many blocks nobody runs then
define internal i64 @drop(ptr %pool) {{
  %helpers.at = getelementptr i64, ptr %pool, i64 {HELPERS}
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  br label %next
next:
  %t = phi i64 [0, %0], [%t.next, %one]
  %sum = phi i64 [0, %0], [%sum.next, %one]
  %is.one = icmp ule i64 %t, %helpers
  br i1 %is.one, label %one, label %done
one:
  %range.at = call ptr @range.of(ptr %pool, i64 %t)
  %seen = atomicrmw xchg ptr %range.at, i64 0 seq_cst
  %low = and i64 %seen, {_LOW}
  %high = lshr i64 %seen, 32
  %remaining = call i64 @llvm.usub.sat.i64(i64 %high, i64 %low)
  %sum.next = add i64 %sum, %remaining
  %t.next = add i64 %t, 1
  br label %next
done:
  ret i64 %sum
}}

; Runs blocks of the pool's launch until none is left for this thread; how many it has run
define internal i64 @work(ptr %pool, i64 %thread) {{
  %taken.at = alloca i64
  %open.at = getelementptr i64, ptr %pool, i64 {OPEN}
  %open = load atomic i64, ptr %open.at seq_cst, align 8
  %seen = call i64 @take(ptr %pool, i64 %thread, ptr %taken.at)
  %none = icmp eq i64 %seen, 0
  br i1 %none, label %close, label %begin
begin:
  %begun = call i64 @now(i32 {_CLOCK})
  %code.at = getelementptr i64, ptr %pool, i64 {CODE}
  %code = load ptr, ptr %code.at
  %words.at = getelementptr i64, ptr %pool, i64 {WORDS}
  %words = load ptr, ptr %words.at
  %count.at = getelementptr i64, ptr %pool, i64 {COUNT}
  %count = load i64, ptr %count.at
  %own = alloca i64, i64 %count
  %bytes = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %words, i64 %bytes, i1 false)
  %last.at = getelementptr i64, ptr %own, i64 1
  %control.at = getelementptr i64, ptr %pool, i64 {CONTROL}
  call void @set.control(ptr %control.at)
  br label %run
run:
  %behind = phi i64 [%seen, %begin], [%more, %another]
  %done.before = phi i64 [0, %begin], [%done, %another]
  %taken = load i64, ptr %taken.at
  %done = add i64 %done.before, %taken
  %first = sub i64 %behind, 1
  %last = add i64 %first, %taken
  store i64 %first, ptr %own
  store i64 %last, ptr %last.at
  %status = call i64 %code(ptr %own)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %another, label %fail
another:
  %more = call i64 @take(ptr %pool, i64 %thread, ptr %taken.at)
  %no.more = icmp eq i64 %more, 0
  br i1 %no.more, label %leave, label %run
fail:  ; nobody begins another chunk
  %status.at = getelementptr i64, ptr %pool, i64 {STATUS}
  %is.first = cmpxchg ptr %status.at, i64 0, i64 %status seq_cst seq_cst
  %dropped = call i64 @drop(ptr %pool)
  %done.dropped = add i64 %done, %dropped
  br label %leave
leave:
  %finished = phi i64 [%done, %another], [%done.dropped, %fail]
  %ended = call i64 @now(i32 {_CLOCK})
  %time = sub i64 %ended, %begun
  %spent.at = getelementptr i64, ptr %pool, i64 {SPENT}
  %spent = atomicrmw add ptr %spent.at, i64 %time seq_cst
  %left.at = getelementptr i64, ptr %pool, i64 {LEFT}
  %left = atomicrmw sub ptr %left.at, i64 %finished seq_cst
  %is.last = icmp eq i64 %left, %finished
  br i1 %is.last, label %tell, label %close
tell:
  %waiting.at = getelementptr i64, ptr %pool, i64 {WAITING}
  call void @wake(ptr %waiting.at)
  br label %close
close:  ; unless another launch has begun
  %run.in.all = phi i64 [0, %0], [%finished, %leave], [%finished, %tell]
  %closed = cmpxchg ptr %open.at, i64 %open, i64 0 seq_cst seq_cst
  ret i64 %run.in.all
}}

{_CONTROL}
{_PLACE}
define void @serve(ptr %pool, i64 %helper) {{
  %offset = mul i64 %helper, {HELPER_WORDS}
  %place = add i64 %offset, {FIRST_HELPER}
  %sleeps.at = getelementptr i64, ptr %pool, i64 %place
  %open.at = getelementptr i64, ptr %pool, i64 {OPEN}
  %helpers.at = getelementptr i64, ptr %pool, i64 {HELPERS}
  %thread = add i64 %helper, 1
  %nothing.at = getelementptr i64, ptr %pool, i64 {NOTHING}
  br label %next
next:
  %found = call i1 @watch(ptr %pool, ptr %open.at, i1 1, i1 0)
  %helpers = load atomic i64, ptr %helpers.at seq_cst, align 8
  %wanted = icmp ult i64 %helper, %helpers
  %works = and i1 %found, %wanted
  br i1 %works, label %help, label %rest
help:
  %processor.at = getelementptr i64, ptr %pool, i64 {PROCESSOR}
  %processor = load atomic i64, ptr %processor.at monotonic, align 8
  %elsewhere = call i1 @get_out_of_the_way(i64 %processor)
  br i1 %elsewhere, label %work, label %rest
work:
  %run = call i64 @work(ptr %pool, i64 %thread)
  br label %next
rest:
  ; what only others are wanted for does not keep this one awake
  %for = select i1 %wanted, ptr %open.at, ptr %nothing.at
  call void @sleep(ptr %sleeps.at, i64 -1, ptr %for, i1 1)
  br label %next
}}

; Runs all blocks on this thread, and corrects the cost
define internal i64 @alone(ptr %code, ptr %words, ptr %cost.at) {{
  %cost = load i64, ptr %cost.at
  %small = icmp eq i64 %cost, 0
  br i1 %small, label %plain, label %timed
plain:
  %status.plain = call i64 %code(ptr %words)
  ret i64 %status.plain
timed:
  %begun = call i64 @now(i32 {_CLOCK})
  %status.timed = call i64 %code(ptr %words)
  %ended = call i64 @now(i32 {_CLOCK})
  %time = sub i64 %ended, %begun
  %never = icmp ult i64 %time, {SHARE // 2}
  %known = select i1 %never, i64 0, i64 %time
  store i64 %known, ptr %cost.at
  ret i64 %status.timed
}}

define i64 @launch(ptr %code, ptr %words, i64 %count, ptr %cost.at) {{
  %cost = load i64, ptr %cost.at
  %pool = load ptr, ptr @pool
  %no.pool = icmp eq ptr %pool, null
  %short = icmp ult i64 %cost, {SHARE}
  %unshared = or i1 %no.pool, %short
  br i1 %unshared, label %alone, label %ask
alone:
  %status.alone = call i64 @alone(ptr %code, ptr %words, ptr %cost.at)
  ret i64 %status.alone
ask:
  %wanted.at = getelementptr i64, ptr %pool, i64 {WANTED}
  %wanted.here = load ptr, ptr %wanted.at
  %wanted = load i64, ptr %wanted.here
  %single = icmp ule i64 %wanted, 1
  br i1 %single, label %alone, label %compare
compare:
  %started.at = getelementptr i64, ptr %pool, i64 {STARTED}
  %started = load i64, ptr %started.at
  %blocks.from = getelementptr i64, ptr %words, i64 1
  %blocks = load i64, ptr %blocks.from
  %blocks.others = sub i64 %blocks, 1
  %wanted.others = sub i64 %wanted, 1
  %possible = call i64 @llvm.umin.i64(i64 %wanted.others, i64 {MAX_HELPERS})
  %others = call i64 @llvm.umin.i64(i64 %possible, i64 %blocks.others)
  %countless = icmp ugt i64 %blocks, {_LOW}
  br i1 %countless, label %alone, label %countable
countable:
  %lacks = icmp ult i64 %started, %others
  br i1 %lacks, label %lack, label %enough
lack:
  %lacking.at = getelementptr i64, ptr %pool, i64 {LACKING}
  store i64 1, ptr %lacking.at
  br label %enough
enough:
  %available = call i64 @llvm.umin.i64(i64 %others, i64 %started)
  %worth = udiv i64 %cost, {_A_HELPER}
  %worth.others = call i64 @llvm.usub.sat.i64(i64 %worth, i64 1)
  %helpers = call i64 @llvm.umin.i64(i64 %available, i64 %worth.others)
  %nobody = icmp eq i64 %helpers, 0
  br i1 %nobody, label %alone, label %skip
skip:
  %skip.at = getelementptr i64, ptr %pool, i64 {SKIP}
  %until = load atomic i64, ptr %skip.at monotonic, align 8
  %present = call i64 @now(i32 {_CLOCK})
  %fair = icmp sge i64 %present, %until
  br i1 %fair, label %try, label %alone
try:
  %busy.at = getelementptr i64, ptr %pool, i64 {BUSY}
  %busy.pair = cmpxchg ptr %busy.at, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{i64, i1}} %busy.pair, 1
  br i1 %free, label %share, label %alone
share:
  %threads = add i64 %helpers, 1
  %pieces = mul i64 %threads, {_CHUNKS_A_THREAD}
  %pieces.others = sub i64 %pieces, 1
  %rounded = add i64 %blocks, %pieces.others
  %chunk = udiv i64 %rounded, %pieces
  %code.at = getelementptr i64, ptr %pool, i64 {CODE}
  store ptr %code, ptr %code.at
  %words.at = getelementptr i64, ptr %pool, i64 {WORDS}
  store ptr %words, ptr %words.at
  %count.at = getelementptr i64, ptr %pool, i64 {COUNT}
  store i64 %count, ptr %count.at
  %chunk.at = getelementptr i64, ptr %pool, i64 {CHUNK}
  store atomic i64 %chunk, ptr %chunk.at monotonic, align 8
  %quarter = mul i64 %chunk, {_CHUNKS_A_THREAD // 4}
  %uneven.at = getelementptr i64, ptr %pool, i64 {UNEVEN}
  %uneven = load i64, ptr %uneven.at
  %is.even = icmp ult i64 %uneven, {_UNEVEN}
  %from.shortest = sub i64 %cost, {_KEEPING[0]}
  %is.between = icmp ult i64 %from.shortest, {_KEEPING[1] - _KEEPING[0]}
  %keeps = and i1 %is.even, %is.between
  %kept = select i1 %keeps, i64 %quarter, i64 0
  %kept.at = getelementptr i64, ptr %pool, i64 {KEPT}
  store atomic i64 %kept, ptr %kept.at monotonic, align 8
  %processor.at = getelementptr i64, ptr %pool, i64 {PROCESSOR}
  %processor = call i64 @processor()
  store atomic i64 %processor, ptr %processor.at monotonic, align 8
  %control.at = getelementptr i64, ptr %pool, i64 {CONTROL}
  call void @get.control(ptr %control.at)
  %helpers.at = getelementptr i64, ptr %pool, i64 {HELPERS}
  store atomic i64 %helpers, ptr %helpers.at seq_cst, align 8
  %status.at = getelementptr i64, ptr %pool, i64 {STATUS}
  store i64 0, ptr %status.at
  %spent.at = getelementptr i64, ptr %pool, i64 {SPENT}
  store i64 0, ptr %spent.at
  %left.at = getelementptr i64, ptr %pool, i64 {LEFT}
  store atomic i64 %blocks, ptr %left.at seq_cst, align 8
  br label %range
range:
  %t = phi i64 [0, %share], [%t.next, %range]
  %low = phi i64 [0, %share], [%high, %range]
  %t.next = add i64 %t, 1
  %scaled = mul i64 %blocks, %t.next
  %high = udiv i64 %scaled, %threads
  %above = shl i64 %high, 32
  %both.ends = or i64 %above, %low
  %range.at = call ptr @range.of(ptr %pool, i64 %t)
  %given.at = getelementptr i64, ptr %range.at, i64 {GIVEN - RANGE}
  store atomic i64 %low, ptr %given.at monotonic, align 8
  store atomic i64 %both.ends, ptr %range.at seq_cst, align 8
  %more.ranges = icmp ult i64 %t.next, %threads
  br i1 %more.ranges, label %range, label %publish
publish:
  %number.at = getelementptr i64, ptr %pool, i64 {NUMBER}
  %number = load i64, ptr %number.at
  %number.next = add i64 %number, 1
  store i64 %number.next, ptr %number.at
  %open.at = getelementptr i64, ptr %pool, i64 {OPEN}
  %published = atomicrmw xchg ptr %open.at, i64 %number.next seq_cst
  %wakes = icmp ugt i64 %cost, {_WAKE}
  br i1 %wakes, label %waking, label %take.part
waking:
  %w = phi i64 [0, %publish], [%w.next, %wake.one]
  %sleeping = icmp ult i64 %w, %helpers
  br i1 %sleeping, label %wake.one, label %take.part
wake.one:
  %offset = mul i64 %w, {HELPER_WORDS}
  %place = add i64 %offset, {FIRST_HELPER}
  %sleeps.at = getelementptr i64, ptr %pool, i64 %place
  call void @wake(ptr %sleeps.at)
  %w.next = add i64 %w, 1
  br label %waking
take.part:
  %work.begun = call i64 @now(i32 {_CLOCK})
  %run = call i64 @work(ptr %pool, i64 0)
  %work.ended = call i64 @now(i32 {_CLOCK})
  br label %wait
wait:
  %stopped = phi i64 [0, %take.part], [%stopped, %slept], [%stopped.now, %look]
  %ready = call i1 @watch(ptr %pool, ptr %left.at, i1 0, i1 1)
  br i1 %ready, label %finish, label %sleep.on
sleep.on:
  %waiting.at = getelementptr i64, ptr %pool, i64 {WAITING}
  call void @sleep(ptr %waiting.at, i64 {_LOOK_EVERY}, ptr %left.at, i1 0)
  br label %slept
slept:
  %left = load atomic i64, ptr %left.at seq_cst, align 8
  %over = icmp eq i64 %left, 0
  br i1 %over, label %wait, label %look
look:
  %report.at = getelementptr i64, ptr %words, i64 {_REPORT}
  %report = load ptr, ptr %report.at
  %stop = call i64 @look(ptr %report)
  %stopped.now = or i64 %stopped, %stop
  br label %wait
finish:
  ; where others want the processors, helpers may be late again and again
  %over.at = call i64 @now(i32 {_CLOCK})
  %waited = sub i64 %over.at, %work.ended
  %worked = sub i64 %work.ended, %work.begun
  %bearable = add i64 %worked, {_LATE}
  %late = icmp ugt i64 %waited, %bearable
  %penalty.at = getelementptr i64, ptr %pool, i64 {PENALTY}
  %penalty = load i64, ptr %penalty.at
  %half = lshr i64 %penalty, 1
  %double = shl i64 %penalty, 1
  %at.least = call i64 @llvm.umax.i64(i64 %double, i64 {_PENALTIES[0]})
  %at.most = call i64 @llvm.umin.i64(i64 %at.least, i64 {_PENALTIES[1]})
  %penalty.next = select i1 %late, i64 %at.most, i64 %half
  store i64 %penalty.next, ptr %penalty.at
  %later = add i64 %over.at, %at.most
  %skip.next = select i1 %late, i64 %later, i64 0
  store atomic i64 %skip.next, ptr %skip.at monotonic, align 8
  %status = load i64, ptr %status.at
  %spent = load i64, ptr %spent.at
  store i64 %spent, ptr %cost.at
  ; whether helpers took more than 5 / 4 of the caller's time for a block
  %run.others = sub i64 %blocks, %run
  %time.others = call i64 @llvm.usub.sat.i64(i64 %spent, i64 %worked)
  %time.others.4 = shl i64 %time.others, 2
  %worked.5 = mul i64 %worked, 5
  %theirs = mul i64 %time.others.4, %run
  %limit = mul i64 %worked.5, %run.others
  %slower = icmp ugt i64 %theirs, %limit
  %uneven.one = add i64 %uneven, 1
  %is.greedy = icmp uge i64 %uneven, {_UNEVEN}
  %goes.on = or i1 %is.greedy, %slower
  %is.over = icmp uge i64 %uneven, {_UNEVEN + _GREEDY}
  %uneven.more = select i1 %goes.on, i64 %uneven.one, i64 0
  %uneven.next = select i1 %is.over, i64 0, i64 %uneven.more
  store i64 %uneven.next, ptr %uneven.at
  store atomic i64 0, ptr %busy.at seq_cst, align 8
  %is.fine = icmp eq i64 %status, 0
  %is.stopped = icmp ne i64 %stopped, 0
  %unsaid = and i1 %is.fine, %is.stopped
  %result = select i1 %unsaid, i64 {INTERRUPTED}, i64 %status
  ret i64 %result
}}

; As `launch` with the cost in place of the first block; returns the cost above the status
define i64 @launch.told(ptr %code, ptr %words, i64 %count) {{
  %cost.at = alloca i64
  %given = load i64, ptr %words
  store i64 %given, ptr %cost.at
  store i64 0, ptr %words
  %status = call i64 @launch(ptr %code, ptr %words, i64 %count, ptr %cost.at)
  %cost = load i64, ptr %cost.at
  %high = shl i64 %cost, {TOLD}
  %both = or i64 %high, %status
  ret i64 %both
}}
"""
