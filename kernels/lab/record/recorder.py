"""What an instrumented kernel calls at each access: requests, races, uninitialised reads, counted.

The threads of a block run one after the other between two barriers, so the lanes of a warp arrive
at an instruction one by one. Lanes that execute it together on hardware have the same `site` (a
place in the source) and the same `path` (which iteration of the loops around it): together they are
one *request*. The requests of one warp are collected in slots and analysed (`_flush`) as soon as
another warp runs, so memory stays small however long a kernel is.

All functions here are compiled once (`simt/backend/linked.py`) and kept in Numba's cache. Kernels
reach them by name in the linker (`symbol`), so that no kernel compiles them again. State is memory
that `State` (in `state`) allocates; `head` is the address of its first array, whose entries are
named below.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.lab.record.addresses import _at, _trap
from kernels.simt.backend.linked import Linked, Part

WARP = 32
LOAD, STORE, ATOMIC, EXECUTION, SHUFFLE = 0, 1, 2, 3, 4
GLOBAL, SHARED = 0, 1
# kinds of findings
READ_WRITE, WRITE_WRITE, UNWRITTEN, BOUNDS, WRAPPED, SAME_VALUE, MISSING_LANES = range(1, 8)
WARPS, BLOCKS = 8, 16  # added to a race between two warps, two blocks
APART = WARPS | BLOCKS

# entries of the head: who runs, and its request ...
WHO, LANE, NEXT, USED, WHEN, THREADS, GENERATION, RECORDS, OVERFLOW = range(9)
# ... addresses and sizes of the other arrays
SLOTS, CAPACITY, TABLE, TABLE_BITS, STATS, MEMORY, MEMORIES, CLOCKS = range(9, 17)
FINDINGS, FOUND, TRACE, TRACE_CAPACITY, TRACED, SCRATCH = range(17, 23)
# whether a warp's requests are complete only when it is said so: its lanes may take turns
PATIENT = 23
# whether and why the run is to stop; how to stop CUDA C: the address of the runtime's trap and of
# an empty text; basic blocks that a thread of CUDA C has run in a row, and how many it may
STOP, TRAP, NOTHING, STEPS, MAX_STEPS, STOPPED_SITE, STOPPED_WHO = range(24, 31)
INTERRUPTED, ENDLESS = 1, 2
# whether executed lines and barriers are traced too; the value of an access, as CUDA C tells it
TRACE_LINES, VALUE = 31, 32
# atomic operations in their order: address of the list, and how many it has
ATOMICS, DONE = 33, 34
# whether the access is of a volatile variable, as CUDA C tells it
STRONG = 35
# what `_synchronised` has found to come later: address of the table, and which search it is of
MARKED, MARK_GENERATION = 36, 37
HEAD_SIZE = 40

# columns of a slot: one request of a warp; then the address of each lane
SITE, PATH, MASK, SIZE, OP, SPACE, ADDRESSES = range(7)
SLOT = ADDRESSES + WARP

# columns of the statistics of a site
REQUESTS, LANES, SECTORS, IDEAL_SECTORS, EXCESS_SECTORS, WAVEFRONTS, IDEAL_WAVEFRONTS = range(7)
BYTES, WORST, CONTENTION, PLACE, VERIFIED = range(7, 12)
STAT = 12

# columns of a piece of memory: real addresses, the address it is given, what is known of it
START, END, VIRTUAL, KIND, SHADOW, GRANULE, BLOCK_BYTES = range(7)
MEMORY_COLUMNS = 8

# columns of the clocks of a thread: barriers passed (block, warp, grid), the last one's site
BLOCK_CLOCK, WARP_CLOCK, GRID_CLOCK, LAST_BARRIER = range(4)
CLOCK = 4
BLOCK_BARRIER, WARP_BARRIER, GRID_BARRIER = 0, 1, 2

# columns of the shadow of a granule: who wrote last, two readers of one block, one of another
WRITER, READER, SECOND, FOREIGN = 0, 2, 4, 6
SHADOW_COLUMNS = 8
# who: a thread plus one; above it, how many atomic operations there were
_THREAD_BITS = 44
_THREAD = (1 << _THREAD_BITS) - 1

# columns of an atomic operation
BY, ON, THEN = range(3)
ATOMIC_COLUMNS = 3
MAX_ATOMICS = 1 << 16  # later ones order nothing

# columns of the table of what comes later
KEY, STAMP, CLOCK_THEN = range(3)
MARK_COLUMNS = 3
MARKS = 8 * MAX_ATOMICS  # rows; an operation makes up to four

# columns of a finding
WHAT, SITE_A, WHO_A, SITE_B, WHO_B, WHERE, OFFSET, COUNT, AXIS, INDEX, LENGTH = range(11)
FINDING = 12
MAX_FINDINGS = 512
CAPACITY_OF_A_WARP = 1 << 18  # requests between two barriers

# site, who, memory (-1: none), offset, size, op, barriers passed, value
TRACE_COLUMNS = 8

# `when`: grid clock 10 bits, block clock 20, warp clock 14, site 18, atomic 1
_SITE_SHIFT, _WARP_SHIFT, _BLOCK_SHIFT, _GRID_SHIFT = 1, 19, 33, 53
_SITE_MASK, _WARP_MASK, _BLOCK_MASK = (1 << 18) - 1, (1 << 14) - 1, (1 << 20) - 1
_MIX = 0x1E3779B97F4A7C15
_I64 = types.int64
_WORD = ir.IntType(64)
_part = njit(pipeline_class=Part, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


@intrinsic
def _finish(typingctx, head):
    """Calls `finish`, so that its code is not part of each function that comes to a new warp."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_WORD])
        function = cgutils.get_or_insert_function(builder.module, kind, symbol("finish"))
        builder.call(function, [builder.ptrtoint(args[0], _WORD)])
        return context.get_dummy_value()

    return types.void(head), codegen


@_part
def _population(mask):
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


# --- requests ---------------------------------------------------------------------------------


@_part
def _switch(head, who):
    """Another thread runs, or the same warp begins another part of the kernel."""
    before = head[WHO]
    if who >> 5 != before >> 5 or (who < before and not head[PATIENT]):
        _finish(head)
    head[WHO], head[LANE], head[NEXT], head[STEPS] = who, who & 31, 0, 0
    clock = _at(head[CLOCKS] + (who & head[THREADS]) * (CLOCK * 8))
    head[WHEN] = (
        clock[GRID_CLOCK] << _GRID_SHIFT
        | (clock[BLOCK_CLOCK] & _BLOCK_MASK) << _BLOCK_SHIFT
        | (clock[WARP_CLOCK] & _WARP_MASK) << _WARP_SHIFT
    )


@_part
def _find(head, site, path, bit):
    """The address of the slot of a request that this lane is not part of yet.

    A lane that comes to the same site by the same path again (a recursive function) makes another
    request.
    """
    table = _at(head[TABLE])
    last = (1 << head[TABLE_BITS]) - 1
    generation = head[GENERATION]
    while True:
        entry = ((site * 0x632BE5AB + path) * _MIX >> 20) & last
        while table[entry] >> 32 == generation:
            number = table[entry] & 0xFFFFFFFF
            slot = _at(head[SLOTS] + number * (SLOT * 8))
            if slot[SITE] == site and slot[PATH] == path:
                if slot[MASK] & bit:
                    break
                head[NEXT] = number + 1
                return head[SLOTS] + number * (SLOT * 8)
            entry = (entry + 1) & last
        else:
            number = head[USED]
            if number == head[CAPACITY]:
                head[OVERFLOW] = 1
                _finish(head)
                return _find(head, site, path, bit)
            table[entry] = generation << 32 | number
            head[USED], head[NEXT] = number + 1, number + 1
            address = head[SLOTS] + number * (SLOT * 8)
            slot = _at(address)
            slot[SITE], slot[PATH], slot[MASK] = site, path, 0
            return address
        path = path * _MIX + 1


@_part
def _join(head, site, path, op, size, space, address):
    """Add this lane to its request."""
    bit = 1 << head[LANE]
    number = head[NEXT]
    place = head[SLOTS] + number * (SLOT * 8)
    slot = _at(place)
    expected = number < head[USED] and slot[SITE] == site and slot[PATH] == path
    if expected and not slot[MASK] & bit:
        head[NEXT] = number + 1
    else:
        place = _find(head, site, path, bit)
        slot = _at(place)
    slot[MASK] |= bit
    slot[OP], slot[SIZE], slot[SPACE] = op, size, space
    slot[ADDRESSES + head[LANE]] = address


@_part
def _flush(head):
    """Analyse the requests of the warp that ran last."""
    for number in range(head[USED]):
        slot = _at(head[SLOTS] + number * (SLOT * 8))
        stat = _at(head[STATS] + slot[SITE] * (STAT * 8))
        lanes = _population(slot[MASK])
        stat[REQUESTS] += 1
        stat[LANES] += lanes
        if slot[OP] == EXECUTION:
            continue
        if slot[OP] == SHUFFLE:
            _check_sources(head, slot)
            continue
        size = slot[SIZE]
        stat[BYTES] += lanes * size
        if slot[OP] == ATOMIC:
            stat[CONTENTION] += _busiest(slot) - 1
        if slot[SPACE] == GLOBAL:
            sectors, ideal = _sectors(head, slot), (lanes * size + 31) >> 5
            stat[SECTORS] += sectors
            stat[IDEAL_SECTORS] += ideal
            stat[EXCESS_SECTORS] += max(sectors - ideal, 0)
            stat[WORST] = max(stat[WORST], sectors)
        else:
            _wavefronts(head, slot, stat)
    head[USED] = 0
    head[GENERATION] += 1


@_part
def _check_sources(head, slot):
    """Report lanes that a shuffle reads from and that do not execute it: they were inactive, or
    had ended. Their numbers are kept as a mask."""
    warp, missing, reader = head[WHO] >> 5 << 5, 0, -1
    for lane in range(WARP):
        if slot[MASK] >> lane & 1 and not slot[MASK] >> slot[ADDRESSES + lane] & 1:
            missing |= 1 << slot[ADDRESSES + lane]
            if reader < 0:
                reader = lane
    if reader < 0:
        return
    who, site = warp | reader, slot[SITE]
    number = _report(head, MISSING_LANES, site, who, site, who, -1, 0)
    if number >= 0:
        row = _at(head[FINDINGS] + number * (FINDING * 8))
        row[INDEX], row[LENGTH] = slot[ADDRESSES + reader], missing


@_part
def _sectors(head, slot):
    """How many 32-byte sectors the lanes of a request touch."""
    mask, size = slot[MASK], slot[SIZE]
    lowest, highest = 1 << 62, 0
    for lane in range(WARP):
        if mask >> lane & 1:
            address = slot[ADDRESSES + lane]
            lowest = min(lowest, address >> 5)
            highest = max(highest, (address + size - 1) >> 5)
    if highest - lowest < 63:
        bits = 0
        for lane in range(WARP):
            if mask >> lane & 1:
                address = slot[ADDRESSES + lane]
                for sector in range(address >> 5, ((address + size - 1) >> 5) + 1):
                    bits |= 1 << (sector - lowest)
        return _population(bits)
    known = _at(head[SCRATCH])
    count = 0
    for lane in range(WARP):
        if mask >> lane & 1:
            address = slot[ADDRESSES + lane]
            for sector in range(address >> 5, ((address + size - 1) >> 5) + 1):
                new = True
                for i in range(count):
                    if known[count - 1 - i] == sector:
                        new = False
                        break
                if new:
                    known[count] = sector
                    count += 1
    return count


@_part
def _wavefronts(head, slot, stat):
    """Shared memory: phases of 32, 16 or 8 lanes; in each, the bank with the most words decides."""
    mask, size = slot[MASK], slot[SIZE]
    per_phase = 32 if size <= 4 else 16 if size <= 8 else 8
    count = _at(head[SCRATCH])  # words asked of each bank
    words = _at(head[SCRATCH] + 32 * 8)  # which: 32 for each bank, as many as a phase can ask
    for first in range(0, WARP, per_phase):
        if not mask >> first & ((1 << per_phase) - 1):
            continue
        for bank in range(32):
            count[bank] = 0
        most = 0
        for lane in range(first, first + per_phase):
            if not mask >> lane & 1:
                continue
            address = slot[ADDRESSES + lane]
            for word in range(address >> 2, ((address + size - 1) >> 2) + 1):
                bank = word & 31
                new = True
                for i in range(count[bank]):
                    if words[bank * 256 + i] == word:
                        new = False
                        break
                if new:
                    words[bank * 256 + count[bank]] = word
                    count[bank] += 1
                    most = max(most, count[bank])
        stat[WAVEFRONTS] += most
        stat[IDEAL_WAVEFRONTS] += 1
        stat[WORST] = max(stat[WORST], most)


@_part
def _busiest(slot):
    """How many lanes of an atomic request go to the same address, at most."""
    mask, most = slot[MASK], 0
    for lane in range(WARP):
        if mask >> lane & 1:
            same = 0
            for other in range(lane, WARP):
                if mask >> other & 1 and slot[ADDRESSES + other] == slot[ADDRESSES + lane]:
                    same += 1
            most = max(most, same)
    return most


# --- races --------------------------------------------------------------------------------------


@_part
def _unordered(who, when, other, other_when):
    """Whether nothing orders two accesses: no barrier between them that both threads passed."""
    if who == other or when >> _GRID_SHIFT != other_when >> _GRID_SHIFT:
        return False
    if who >> 10 != other >> 10:  # of different blocks
        return True
    if when >> _BLOCK_SHIFT != other_when >> _BLOCK_SHIFT:
        return False
    same_warp = who >> 5 == other >> 5
    return not same_warp or when >> _WARP_SHIFT == other_when >> _WARP_SHIFT


@_part
def _counted(head, what, site_a, site_b):
    """Whether such a finding is known: it is counted then."""
    for number in range(head[FOUND]):
        row = _at(head[FINDINGS] + number * (FINDING * 8))
        if row[WHAT] == what and row[SITE_A] == site_a and row[SITE_B] == site_b:
            row[COUNT] += 1
            return True
    return False


@_part
def _report(head, what, site_a, who_a, site_b, who_b, memory, offset):
    """Note a finding: the first of its kind between two sites in full, of others the number."""
    found = head[FOUND]
    if _counted(head, what, site_a, site_b) or found == MAX_FINDINGS:
        return -1
    row = _at(head[FINDINGS] + found * (FINDING * 8))
    row[WHAT], row[SITE_A], row[WHO_A], row[SITE_B], row[WHO_B] = what, site_a, who_a, site_b, who_b
    row[WHERE], row[OFFSET], row[COUNT] = memory, offset, 1
    head[FOUND] = found + 1
    return found


@_part
def _marked(table, generation, kind, key):
    """The row of a key among those of `_synchronised`: this one's, or the free one for it."""
    place = (key * 4 + kind) * _MIX >> 20 & (MARKS - 1)
    while True:
        row = _at(table + place * (MARK_COLUMNS * 8))
        if row[STAMP] != generation or row[KEY] == key * 4 + kind:
            return row
        place = (place + 1) & (MARKS - 1)


@_part
def _mark(table, generation, kind, key, clock):
    """Remember that something with this key happened later, at `clock` or after."""
    row = _marked(table, generation, kind, key)
    if row[STAMP] != generation:
        row[STAMP], row[KEY], row[CLOCK_THEN] = generation, key * 4 + kind, clock
    elif clock < row[CLOCK_THEN]:
        row[CLOCK_THEN] = clock


@_part
def _follows(table, generation, kind, key, clock):
    """Whether something with this key happened later, and before `clock`."""
    row = _marked(table, generation, kind, key)
    return row[STAMP] == generation and row[CLOCK_THEN] < clock


@_part
def _synchronised(head, other, other_when, before, who, when):
    """Whether atomic operations order an access of `other`, which `before` of them precede, and one
    of `who` now.

    An operation comes after the first access if its thread or a barrier says so, or if an
    operation that comes after it was on the same address, or of the same thread, or is ordered with
    it by a barrier: through any number of flags and threads. Fences are not looked for.
    """
    log, table = _at(head[ATOMICS]), head[MARKED]
    head[MARK_GENERATION] += 1
    generation = head[MARK_GENERATION]
    grid = 1 << 62  # the least grid clock of an operation that comes after the first access
    for number in range(before, head[DONE]):
        row = ATOMIC_COLUMNS * number
        by, on, then = log[row + BY], log[row + ON], log[row + THEN]
        block, warp = then >> _BLOCK_SHIFT, then >> _WARP_SHIFT
        if (
            _unordered(by, then, other, other_when)
            and not _follows(table, generation, 0, on, 1)
            and not _follows(table, generation, 1, by, 1)
            and not _follows(table, generation, 2, by >> 5, warp)
            and not _follows(table, generation, 3, by >> 10, block)
            and grid >= then >> _GRID_SHIFT
        ):
            continue
        if not _unordered(by, then, who, when):
            return True
        _mark(table, generation, 0, on, 0)
        _mark(table, generation, 1, by, 0)
        _mark(table, generation, 2, by >> 5, warp)
        _mark(table, generation, 3, by >> 10, block)
        grid = min(grid, then >> _GRID_SHIFT)
    return False


@_part
def _remember_atomic(head, who, when, real, op):
    if op == LOAD and head[DONE]:  # of a thread that waits, the last one
        last = _at(head[ATOMICS] + (head[DONE] - 1) * (ATOMIC_COLUMNS * 8))
        if last[BY] == who and last[ON] == real:
            last[THEN] = when
            return
    if head[DONE] < MAX_ATOMICS:
        row = _at(head[ATOMICS] + head[DONE] * (ATOMIC_COLUMNS * 8))
        row[BY], row[ON], row[THEN] = who, real, when
        head[DONE] += 1


@_part
def _against(head, what, shadow, column, site, who, when, memory, offset):
    """Report a race with the access that a column of the shadow remembers, if it is one."""
    other, other_when = (shadow[column] & _THREAD) - 1, shadow[column + 1]
    if other < 0 or (when & other_when & 1) or not _unordered(who, when, other, other_when):
        return
    other_site = (other_when >> _SITE_SHIFT) & _SITE_MASK
    what += BLOCKS if other >> 10 != who >> 10 else WARPS if other >> 5 != who >> 5 else 0
    before = shadow[column] >> _THREAD_BITS
    if before < head[DONE] and _counted(head, what, other_site, site):
        return
    if not _synchronised(head, other, other_when, before, who, when):
        _report(head, what, other_site, other, site, who, memory, offset)


@_part
def _remember_reader(shadow, who, now, when):
    reader, reader_when = (shadow[READER] & _THREAD) - 1, shadow[READER + 1]
    if reader >= 0 and reader != who:
        if reader >> 10 != who >> 10:
            shadow[FOREIGN], shadow[FOREIGN + 1] = shadow[READER], reader_when
            shadow[SECOND] = 0
        elif reader_when >> _BLOCK_SHIFT != when >> _BLOCK_SHIFT:
            shadow[SECOND] = 0
        elif reader >> 5 != who >> 5 or shadow[SECOND] == 0:
            shadow[SECOND], shadow[SECOND + 1] = shadow[READER], reader_when
    shadow[READER], shadow[READER + 1] = now, when


@_part
def _watch(head, site, who, op, same, strong, memory, offset, place):
    """Compare an access with the earlier ones to the same memory, and remember it.

    strong: it is atomic, or what PTX treats as a relaxed one, and races with none of these.
    """
    row = _at(head[MEMORY] + memory * (MEMORY_COLUMNS * 8))
    shadow = _at(row[SHADOW] + place * (SHADOW_COLUMNS * 8))
    when = head[WHEN] | site << _SITE_SHIFT | strong
    now = (who + 1) | head[DONE] << _THREAD_BITS
    if row[KIND] == SHARED:
        # what is of an earlier block
        if shadow[WRITER] and ((shadow[WRITER] & _THREAD) - 1) >> 10 != who >> 10:
            shadow[WRITER] = 0
        if shadow[READER] and ((shadow[READER] & _THREAD) - 1) >> 10 != who >> 10:
            shadow[READER] = shadow[SECOND] = 0
        if op != STORE and not same and shadow[WRITER] == 0:
            _report(head, UNWRITTEN, site, who, site, who, memory, offset)
    earlier = shadow[READER + 1]
    own = (shadow[READER] & _THREAD) - 1 == who and earlier >> _WARP_SHIFT == when >> _WARP_SHIFT
    if own and op == ATOMIC:  # with no barrier since
        _at(head[STATS] + ((earlier >> _SITE_SHIFT) & _SITE_MASK) * (STAT * 8))[VERIFIED] = 1
    what = READ_WRITE if op == LOAD else SAME_VALUE if same and op == STORE else WRITE_WRITE
    _against(head, what, shadow, WRITER, site, who, when, memory, offset)
    if op != LOAD:
        for column in (READER, SECOND, FOREIGN):
            _against(head, READ_WRITE, shadow, column, site, who, when, memory, offset)
        shadow[WRITER], shadow[WRITER + 1] = now, when
    if op == STORE:
        shadow[READER] = shadow[SECOND] = shadow[FOREIGN] = 0
    else:
        _remember_reader(shadow, who, now, when)


# --- what kernels call --------------------------------------------------------------------------


def note(address, site, path, who, real, size, op, same):
    """Thread `who` (block << 10 | thread) accesses `size` bytes at the address `real`.

    `same`: a store that changes nothing (a race with another is harmless), an atomic store.
    """
    head = _at(address)
    if head[WHO] != who:
        _switch(head, who)
    memory = 0
    row = _at(head[MEMORY])
    while not row[START] <= real < row[END]:
        memory += 1
        if memory >= head[MEMORIES]:
            return  # of one thread: no traffic
        row = _at(head[MEMORY] + memory * (MEMORY_COLUMNS * 8))
    head[RECORDS] += 1
    offset = real - row[START]
    inside = offset % row[BLOCK_BYTES] if row[BLOCK_BYTES] else offset
    stat = _at(head[STATS] + site * (STAT * 8))
    stat[PLACE] = memory + 1
    _join(head, site, path, op, size, row[KIND], row[VIRTUAL] + inside)
    if row[SHADOW]:
        granule = row[GRANULE]
        # Volatile variables in shared memory are what warps without __syncwarp() are written with.
        strong = int(op == ATOMIC or (head[STRONG] != 0 and row[KIND] == GLOBAL))
        for place in range(offset >> granule, ((offset + size - 1) >> granule) + 1):
            _watch(head, site, who, op, same, strong, memory, inside, place)
        if strong:
            _remember_atomic(head, who, head[WHEN], real, op)
    if head[TRACED] < head[TRACE_CAPACITY]:
        trace = _at(head[TRACE] + head[TRACED] * (TRACE_COLUMNS * 8))
        trace[0], trace[1], trace[2], trace[3] = site, who, memory, inside
        trace[4], trace[5] = size, op
        trace[6] = (head[WHEN] >> _BLOCK_SHIFT) & _BLOCK_MASK
        trace[7] = head[VALUE]
        head[TRACED] += 1


@_part
def _trace_line(head, site, who):
    """Note that a thread executes the lines of a site, or comes to its barrier."""
    if head[TRACE_LINES] and head[TRACED] < head[TRACE_CAPACITY]:
        trace = _at(head[TRACE] + head[TRACED] * (TRACE_COLUMNS * 8))
        trace[0], trace[1], trace[2], trace[5] = site, who, -1, EXECUTION
        trace[6] = (head[WHEN] >> _BLOCK_SHIFT) & _BLOCK_MASK
        head[TRACED] += 1


def execute(address, site, path, who):
    """Thread `who` executes the lines of a site."""
    head = _at(address)
    if head[WHO] != who:
        _switch(head, who)
    _join(head, site, path, EXECUTION, 0, 0, 0)
    _trace_line(head, site, who)
    if head[PATIENT]:
        head[STEPS] += 1
        if head[STOP] or head[STEPS] > head[MAX_STEPS]:
            _stop(head, site, who)
            _trap(head[TRAP], head[NOTHING])


@_part
def _stop(head, site, who):
    """Stop the run: it was interrupted, or else this thread does not end."""
    if not head[STOP]:
        head[STOP], head[STOPPED_SITE], head[STOPPED_WHO] = ENDLESS, site, who


def endless(address, site, who):
    """Thread `who` is in a loop that does not end, or the run was interrupted."""
    _stop(_at(address), site, who)


def shuffle(address, site, path, who, kind, amount, width):
    """Thread `who` comes to a shuffle: 0 reads the lane `amount`, 1 up, 2 down, 3 by exclusive or,
    each in its group of `width` lanes."""
    head = _at(address)
    if head[WHO] != who:
        _switch(head, who)
    lane = who & 31
    low = lane & ~(width - 1)
    if kind == 0:
        source = low + (amount & (width - 1))
    elif kind == 1:
        source = lane - amount if lane - amount >= low else lane
    else:
        source = lane + amount if kind == 2 else lane ^ amount
        source = source if source < low + width else lane
    _join(head, site, path, SHUFFLE, 0, 0, source & 31)


def arrive(address, site, who, barrier):
    """Thread `who` comes to a barrier of its block, warp or grid."""
    head = _at(address)
    if head[WHO] != who:
        _switch(head, who)
    clock = _at(head[CLOCKS] + (who & head[THREADS]) * (CLOCK * 8))
    clock[BLOCK_CLOCK] += barrier != WARP_BARRIER
    clock[WARP_CLOCK] += barrier == WARP_BARRIER
    clock[GRID_CLOCK] += barrier == GRID_BARRIER
    stat = _at(head[STATS] + site * (STAT * 8))
    stat[LANES] += 1
    if barrier != WARP_BARRIER:
        clock[LAST_BARRIER] = site
        _trace_line(head, site, who)
    head[WHEN] += (
        (barrier != WARP_BARRIER) << _BLOCK_SHIFT
        | (barrier == WARP_BARRIER) << _WARP_SHIFT
        | (barrier == GRID_BARRIER) << _GRID_SHIFT
    )


def declare(address, memory, real, size, block):
    """A block's shared array is at the address `real`."""
    head = _at(address)
    row = _at(head[MEMORY] + memory * (MEMORY_COLUMNS * 8))
    if row[BLOCK_BYTES]:  # of a grid whose blocks run together: theirs lie one after the other
        row[BLOCK_BYTES] = size
        row[START], row[END] = real - block * size, max(row[END], real + size)
    else:
        row[START], row[END] = real, real + size


def outside(address, site, who, literal, axis, index, length):
    """Thread `who` uses an index that is outside of its axis, or counts from the end."""
    if 0 <= index < length or (literal and -length <= index < 0):
        return
    head = _at(address)
    what = WRAPPED if -length <= index < length else BOUNDS
    number = _report(head, what, site, who, site, who, -1, 0)
    if number >= 0:
        row = _at(head[FINDINGS] + number * (FINDING * 8))
        row[AXIS], row[INDEX], row[LENGTH] = axis, index, length


def finish(address):
    """Analyse what the last warp left."""
    _flush(_at(address))


def address(name: str) -> int:
    """Where the machine code of one of the functions above is."""
    return linked()[name].address


def symbol(name: str) -> str:
    """What the linker calls one of the functions above."""
    return f"minigrad_lab_{name}"


def _link(function, arguments: int):
    """`function` compiled, with its address known to the linker."""
    compiled = cfunc(
        types.void(*[_I64] * arguments), cache=True, pipeline_class=Linked, _nrt=False
    )(function)
    llvmlite.binding.add_symbol(symbol(function.__name__), compiled.address)
    return compiled


_SIGNATURES = (  # others call `finish`, so it comes first
    *((finish, 1), (note, 8), (execute, 4), (arrive, 4), (declare, 5), (outside, 7)),
    *((endless, 3), (shuffle, 7)),
)


@functools.cache  # and kept: machine code is freed with the object that owns it
def linked() -> dict[str, Any]:
    """The functions that recorded kernels call, compiled. Kernels can be linked from then on."""
    return {function.__name__: _link(function, count) for function, count in _SIGNATURES}
