"""How a block runs the collectives: barriers, votes and exchanges between the lanes of a warp.

By the time a collective is reached every thread has run what comes before it, so an exchange is a
loop that reads what other threads left in their slots.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from . import calls
from .fission import Meet
from .nodes import names
from .program import Program

if TYPE_CHECKING:
    from .emit import Emitter

FULL = 0xFFFFFFFF


def linear_thread(program: Program) -> ast.expr:
    """The position of a thread in its block."""
    return calls.linear_thread(program)


def write(emitter: Emitter, item: Meet) -> None:
    """Write the code for a collective."""
    kind = item.stmt.kind
    emitter.writer.line(f"# {kind}, line {item.line}")
    if kind.startswith("syncthreads") or kind == "cg.GridGroup.sync":
        _check_arrivals(emitter, item)
    if kind in calls.COUNTED:
        _count(emitter, item)
    elif kind in calls.SHUFFLES:
        _shuffle(emitter, item)
    elif kind in calls.VOTES:
        _vote(emitter, item)


def _check_arrivals(emitter: Emitter, item: Meet) -> None:
    """A barrier that only some of the live threads reach is an error."""
    if item.mask == item.live:
        return
    writer = emitter.writer
    with writer.block(f"for _t in range({emitter.program.threads}):"):
        live = f"_s_{item.live}[_u(_t)] and " if item.live else ""
        with writer.block(f"if {live}not _s_{item.mask}[_u(_t)]:"):
            writer.line(f"_error[0], _error[1], _error[2], _error[3] = 1, {item.line}, _block, _t")
            writer.line("return 1")


def _at(emitter: Emitter, arg: ast.expr, thread: str) -> str:
    """The value of an argument as `thread` has it: from its slot, or the same for all."""
    if isinstance(arg, ast.Name) and arg.id in emitter.storage.slots:
        return f"_s_{arg.id}[_u({thread})]"
    return emitter.expressions.text(arg)


def _count(emitter: Emitter, item: Meet) -> None:
    writer, kind = emitter.writer, item.stmt.kind
    dest = item.stmt.dest.id if item.stmt.dest else "_unused"
    start = {"syncthreads_count": "0", "syncthreads_and": "1", "syncthreads_or": "0"}[kind]
    writer.line(f"_met = {start}")
    present = f"_s_{item.mask}[_u(_t)] and " if item.mask else ""
    value = _at(emitter, item.stmt.args[0], "_t")
    with writer.block(f"for _t in range({emitter.program.threads}):"):
        if kind == "syncthreads_and":
            with writer.block(f"if {present}not {value}:"):
                writer.line("_met = 0")
        else:
            with writer.block(f"if {present}{value}:"):
                writer.line("_met = 1" if kind.endswith("or") else "_met += 1")
    result = f"{emitter.dtype_name(_int32())}(_met)"
    if dest in emitter.storage.slots:
        with emitter.thread_loop(item.mask, set()):
            writer.line(f"_s_{dest}[_u(_t)] = {result}")
    else:
        writer.line(f"{dest} = {result}")


def _int32():
    from numba.core import types

    return types.int32


def _shuffle(emitter: Emitter, item: Meet) -> None:
    writer, stmt = emitter.writer, item.stmt
    value, lane = stmt.args[1], stmt.args[2]
    width = stmt.args[3] if len(stmt.args) > 3 else None
    dest = stmt.dest.id
    threads = emitter.program.threads
    with emitter.thread_loop(item.mask, names(lane) | (names(width) if width else set())):
        writer.line("_lane = _t & 31")
        segment = emitter.expressions.text(width) if width else "32"
        writer.line(f"_width = {segment}")
        amount = emitter.expressions.text(lane)
        low = "_lane & ~(_width - 1)" if width else "0"
        if stmt.kind == "shfl_sync":
            writer.line(f"_from = ({low}) + (({amount}) & (_width - 1))")
        elif stmt.kind == "shfl_up_sync":
            writer.line(f"_from = _lane - ({amount})")
            writer.line(f"_from = _from if _from >= ({low}) else _lane")
        elif stmt.kind == "shfl_down_sync":
            writer.line(f"_from = _lane + ({amount})")
            writer.line(f"_from = _from if _from < ({low}) + _width else _lane")
        else:
            writer.line(f"_from = _lane ^ ({amount})")
            writer.line(f"_from = _from if _from < ({low}) + _width else _lane")
        writer.line("_from = _t - _lane + _from")
        if threads % 32:
            writer.line(f"_from = _from if _from < {threads} else _t")
        writer.line(f"_s_{dest}[_u(_t)] = {_at(emitter, value, '_from')}")


def _vote(emitter: Emitter, item: Meet) -> None:
    writer, stmt, threads = emitter.writer, item.stmt, emitter.program.threads
    if stmt.dest is None:
        return
    predicate = stmt.args[1] if len(stmt.args) > 1 else ast.Constant(True)
    member = _at(emitter, stmt.args[0], "_t") if stmt.args else str(FULL)
    present = f"_s_{item.mask}[_u(_t)]" if item.mask else "True"
    with writer.block(f"for _warp in range(0, {threads}, 32):"):
        writer.line(f"_end = min(_warp + 32, {threads})")
        if stmt.kind.startswith("match"):
            _match(emitter, stmt, predicate, member, present)
            return
        writer.line("_here = 0")
        writer.line("_bits = 0")
        with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
            writer.line("_here |= 1 << (_t - _warp)")
            with writer.block(f"if {_at(emitter, predicate, '_t')}:"):
                writer.line("_bits |= 1 << (_t - _warp)")
        result = {
            "ballot_sync": f"{emitter.dtype_name(_int32())}(_bits & _member)",
            "any_sync": "(_bits & _member) != 0",
            "all_sync": "(_here & _member & ~_bits) == 0",
            "eq_sync": "(_bits & _member) == 0 or (_here & _member & ~_bits) == 0",
            "activemask": "_here",
        }[stmt.kind]
        with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
            writer.line(f"_member = {member} & {FULL}")
            writer.line(f"_s_{stmt.dest.id}[_u(_t)] = {result}")


def _match(emitter: Emitter, stmt, value: ast.expr, member: str, present: str) -> None:
    """Lanes of the member mask that hold the same value; for `all`, every lane or none."""
    writer = emitter.writer
    other_present = present.replace("_t)", "_other)")
    with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
        writer.line(f"_member = {member} & {FULL}")
        writer.line("_bits = 0")
        writer.line("_here = 0")
        with writer.block("for _other in range(_warp, _end):"):
            with writer.block(f"if {other_present} and (_member >> (_other - _warp)) & 1:"):
                writer.line("_here |= 1 << (_other - _warp)")
                same = f"{_at(emitter, value, '_other')} == {_at(emitter, value, '_t')}"
                with writer.block(f"if {same}:"):
                    writer.line("_bits |= 1 << (_other - _warp)")
        int32 = emitter.dtype_name(_int32())
        result = {
            "match_any_sync": f"{int32}(_bits)",
            "match_all_sync": f"{int32}(_here if _bits == _here else 0)",
            "match_all_pred": "_bits == _here",
        }[stmt.kind]
        writer.line(f"_s_{stmt.dest.id}[_u(_t)] = {result}")
