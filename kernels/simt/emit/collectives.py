"""How a block runs the collectives: barriers, votes and exchanges between the lanes of a warp.

By the time a collective is reached every thread has run what comes before it, so an exchange is a
loop that reads what other threads left in their slots.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from numba.core import types

from kernels.simt.frontend import calls
from kernels.simt.ir.checks import DIVERGENT, LANES
from kernels.simt.ir.nodes import Collective, names
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.transforms.fission import Meet

if TYPE_CHECKING:
    from kernels.simt.emit.emitter import Emitter

FULL = 0xFFFFFFFF


def write(emitter: Emitter, item: Meet) -> None:
    """Write the code for a collective."""
    kind = item.stmt.kind
    emitter.writer.line(f"# {kind}, line {item.line}")
    if kind.startswith("syncthreads") or kind == "cg.GridGroup.sync":
        _check_arrivals(emitter, item)
    elif emitter.program.checked and kind not in ("activemask", "match_all_pred"):
        _check_lanes(emitter, item)
    if kind in calls.COUNTED:
        _count(emitter, item)
    elif kind in calls.SHUFFLES:
        _shuffle(emitter, item)
    elif kind in calls.VOTES and item.stmt.dest is not None:
        _vote(emitter, item.stmt, item.mask)


@contextmanager
def _each_block(emitter: Emitter) -> Iterator[tuple[str, str]]:
    """The first and the last + 1 position of a block's threads, for every block that is run."""
    threads = emitter.program.threads
    if not emitter.whole_grid:
        yield "0", str(threads)
        return
    with emitter.writer.block("for _block in range(_first, _last):"):
        yield f"_block * {threads}", f"(_block + 1) * {threads}"


def _check_arrivals(emitter: Emitter, item: Meet) -> None:
    """A barrier that only some of the live threads reach is an error."""
    if item.mask == item.live:
        return
    writer, absent = emitter.writer, f"not _s_{item.mask}[_u(_t)]"
    if item.live:
        absent = f"_s_{item.live}[_u(_t)] and {absent}"
    returned = emitter.program.returned
    if returned in emitter.storage.slots:  # a thread that has ended holds nobody up
        absent = f"{absent} and not _s_{returned}[_u(_t)]"
    with _each_block(emitter) as (begin, end):
        some_may_stay_away = emitter.whole_grid and item.stmt.kind != "cg.GridGroup.sync"
        if some_may_stay_away:  # a block of which no thread comes does not wait
            writer.line("_came = False")
            with writer.block(f"for _t in range({begin}, {end}):"):
                writer.line(f"_came = _came or _s_{item.mask}[_u(_t)]")
            absent = f"_came and {absent}"
        with writer.block(f"for _t in range({begin}, {end}):"), writer.block(f"if {absent}:"):
            writer.line(f"_record(_error, {DIVERGENT}, {item.line}, _block, _t)")
            writer.line("return 1")


def _check_lanes(emitter: Emitter, item: Meet) -> None:
    """A lane whose mask does not name it, or names a live lane that is elsewhere, is an error."""
    stmt, writer, threads = item.stmt, emitter.writer, emitter.program.threads
    member = stmt.args[0] if stmt.args else ast.Constant(FULL)
    everyone = isinstance(member, ast.Constant) and member.value in (FULL, -1)
    if everyone and item.mask == item.live:
        return
    alive = _present(emitter, item.live, "_other")
    returned = emitter.program.returned
    if returned in emitter.storage.slots:
        alive += f" and not _s_{returned}[_u(_other)]"
    begin = f"_block * {threads}" if emitter.whole_grid else "0"
    writer.line("_warp = -1")
    with emitter.thread_loop(item.mask, names(member)):
        with writer.block(f"if _t - (_t - {begin}) % {WARP_SIZE} != _warp:"):
            writer.line(f"_warp = _t - (_t - {begin}) % {WARP_SIZE}")
            writer.line("_away = 0")
            end = f"_min(_warp + {WARP_SIZE}, {begin} + {threads})"
            away = f"{alive} and not {_present(emitter, item.mask, '_other')}"
            with writer.block(f"for _other in range(_warp, {end}):"), writer.block(f"if {away}:"):
                writer.line("_away |= 1 << (_other - _warp)")
        writer.line(f"_member = ({emitter.expressions.text(member)}) & {FULL}")
        with writer.block("if _member & _away or not _member & (1 << (_t - _warp)):"):
            writer.line(f"_record(_error, {LANES}, {item.line}, _block, _t)")
            writer.line("_error[4] = _member")
            writer.line("_error[5] = _member & _away")
            writer.line("return 1")


def _at(emitter: Emitter, arg: ast.expr, thread: str) -> str:
    """The value of an argument as `thread` has it: from its slot, or the same for all."""
    if isinstance(arg, ast.Name) and arg.id in emitter.storage.slots:
        return f"_s_{arg.id}[_u({thread})]"
    return emitter.expressions.text(arg)


def _present(emitter: Emitter, mask: str | None, thread: str = "_t") -> str:
    return f"_s_{mask}[_u({thread})]" if mask else "True"


def _count(emitter: Emitter, item: Meet) -> None:
    writer, kind, dest = emitter.writer, item.stmt.kind, item.stmt.dest.id
    value = _at(emitter, item.stmt.args[0], "_t")
    present = _present(emitter, item.mask)
    result = f"{emitter.dtype_name(types.int32)}(_met)"
    with _each_block(emitter) as (begin, end):
        writer.line(f"_met = {int(kind == 'syncthreads_and')}")
        with writer.block(f"for _t in range({begin}, {end}):"):
            if kind == "syncthreads_and":
                test, change = f"{present} and not {value}", "_met = 0"
            elif kind == "syncthreads_or":
                test, change = f"{present} and {value}", "_met = 1"
            else:
                test, change = f"{present} and {value}", "_met += 1"
            with writer.block(f"if {test}:"):
                writer.line(change)
        if dest not in emitter.storage.slots:
            writer.line(f"{dest} = {result}")
            return
        with writer.block(f"for _t in range({begin}, {end}):"), writer.block(f"if {present}:"):
            writer.line(f"_s_{dest}[_u(_t)] = {result}")


def _shuffle(emitter: Emitter, item: Meet) -> None:
    if reads_ahead(emitter, item):
        _shuffle_down(emitter, item)
        return
    writer, stmt = emitter.writer, item.stmt
    value, lane = stmt.args[1], stmt.args[2]
    width = stmt.args[3] if len(stmt.args) > 3 else None
    threads = emitter.program.threads
    with emitter.thread_loop(item.mask, names(lane) | (names(width) if width else set())):
        first = f"_block * {threads}" if emitter.whole_grid else "0"
        writer.line(
            f"_lane = (_t - {first}) & {WARP_SIZE - 1}" if first != "0" else "_lane = _t & 31"
        )
        writer.line(f"_width = {emitter.expressions.text(width) if width else WARP_SIZE}")
        amount = emitter.expressions.text(lane)
        low = "(_lane & ~(_width - 1))" if width else "0"
        source = {
            "shfl_sync": f"{low} + (({amount}) & (_width - 1))",
            "shfl_up_sync": f"_lane - ({amount})",
            "shfl_down_sync": f"_lane + ({amount})",
            "shfl_xor_sync": f"_lane ^ ({amount})",
        }[stmt.kind]
        writer.line(f"_from = {source}")
        if stmt.kind == "shfl_up_sync":
            writer.line(f"_from = _from if _from >= {low} else _lane")
        elif stmt.kind != "shfl_sync":
            writer.line(f"_from = _from if _from < {low} + _width else _lane")
        writer.line("_from = _t - _lane + _from")
        if threads % WARP_SIZE:  # the last warp is not full
            writer.line(f"_from = _from if _from < {first} + {threads} else _t")
        writer.line(f"_s_{stmt.dest.id}[_u(_t)] = {_at(emitter, value, '_from')}")


def reads_ahead(emitter: Emitter, item: Meet) -> bool:
    """Whether a shuffle reads the same distance ahead in every thread, of full warps."""
    stmt = item.stmt
    return (
        stmt.kind == "shfl_down_sync"
        and len(stmt.args) == 3
        and not emitter.whole_grid
        and emitter.program.threads % WARP_SIZE == 0
        and emitter.facts.at_block_level(stmt.args[2])
        and isinstance(stmt.args[1], ast.Name)
        and stmt.args[1].id in emitter.storage.slots
    )


def _shuffle_down(emitter: Emitter, item: Meet) -> None:
    """Neighbours read neighbours: two loads and a choice, where a gather would be slow.

    The slots of the value go on for a warp past the last thread, so that the load is harmless.
    """
    writer, stmt = emitter.writer, item.stmt
    value = stmt.args[1].id
    writer.line(f"_delta = _min(_max({emitter.expressions.text(stmt.args[2])}, 0), {WARP_SIZE})")
    with writer.block(f"for _warp in range(0, {emitter.program.threads}, {WARP_SIZE}):"):
        for lanes, source in (
            (f"{WARP_SIZE} - _delta", "_warp + _tx + _delta"),
            (f"{WARP_SIZE} - _delta, {WARP_SIZE}", "_warp + _tx"),
        ):
            with writer.block(f"for _tx in range({lanes}):"):
                if item.mask:
                    writer.line(f"if _s_{item.mask}[_u(_warp + _tx)]:")
                    writer.depth += 1
                writer.line(f"_s_{stmt.dest.id}[_u(_warp + _tx)] = _s_{value}[_u({source})]")
                writer.depth -= bool(item.mask)


@contextmanager
def _each_warp(emitter: Emitter) -> Iterator[None]:
    """A loop over the warps: threads `_warp` to `_end` - 1."""
    writer = emitter.writer
    with (
        _each_block(emitter) as (begin, end),
        writer.block(f"for _warp in range({begin}, {end}, {WARP_SIZE}):"),
    ):
        writer.line(f"_end = _min(_warp + {WARP_SIZE}, {end})")
        yield


def _vote(emitter: Emitter, stmt: Collective, mask: str | None) -> None:
    writer = emitter.writer
    present = _present(emitter, mask)
    with _each_warp(emitter):
        if stmt.kind.startswith("match"):
            _match(emitter, stmt, mask)
            return
        predicate = stmt.args[1] if len(stmt.args) > 1 else ast.Constant(True)
        writer.line("_here, _bits = 0, 0")
        with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
            writer.line("_here |= 1 << (_t - _warp)")
            with writer.block(f"if {_at(emitter, predicate, '_t')}:"):
                writer.line("_bits |= 1 << (_t - _warp)")
        with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
            writer.line(f"_member = {_members(emitter, stmt)}")
            result = {
                "ballot_sync": f"{emitter.dtype_name(types.int32)}(_bits & _member)",
                "any_sync": "(_bits & _member) != 0",
                "all_sync": "(_here & _member & ~_bits) == 0",
                "eq_sync": "(_bits & _member) == 0 or (_here & _member & ~_bits) == 0",
                "activemask": "_here",
            }[stmt.kind]
            writer.line(f"_s_{stmt.dest.id}[_u(_t)] = {result}")


def _members(emitter: Emitter, stmt: Collective) -> str:
    """The lanes that a vote names in its first argument."""
    if not stmt.args:
        return str(FULL)
    return f"{_at(emitter, stmt.args[0], '_t')} & {FULL}"


def _match(emitter: Emitter, stmt: Collective, mask: str | None) -> None:
    """Lanes of the member mask that hold the same value; for `all`, every lane or none."""
    writer, value = emitter.writer, stmt.args[1]
    with (
        writer.block("for _t in range(_warp, _end):"),
        writer.block(f"if {_present(emitter, mask)}:"),
    ):
        writer.line(f"_member = {_members(emitter, stmt)}")
        writer.line("_here, _bits = 0, 0")
        member = f"(_member >> (_other - _warp)) & 1 and {_present(emitter, mask, '_other')}"
        with writer.block("for _other in range(_warp, _end):"), writer.block(f"if {member}:"):
            writer.line("_here |= 1 << (_other - _warp)")
            same = f"{_at(emitter, value, '_other')} == {_at(emitter, value, '_t')}"
            with writer.block(f"if {same}:"):
                writer.line("_bits |= 1 << (_other - _warp)")
        int32 = emitter.dtype_name(types.int32)
        result = {
            "match_any_sync": f"{int32}(_bits)",
            "match_all_sync": f"{int32}(_here if _bits == _here else 0)",
            "match_all_pred": "_bits == _here",
        }[stmt.kind]
        writer.line(f"_s_{stmt.dest.id}[_u(_t)] = {result}")
