"""How a block runs the collectives: barriers, votes and exchanges between the lanes of a warp.

By the time a collective is reached every thread has run what comes before it, so an exchange is a
loop that reads what other threads left in their spill arrays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import types

from kernels.simt.emit.printer import Printer
from kernels.simt.frontend import calls
from kernels.simt.ir.checks import DIVERGENT, LANES, SOURCE
from kernels.simt.ir.nodes import Collective
from kernels.simt.ir.stubs import WARP_SIZE
from kernels.simt.plan.collectives import FULL
from kernels.simt.plan.parts import Check, CollectivePlan, Inputs
from kernels.simt.transforms.fission import CollectivePoint


def write(printer: Printer, item: CollectivePoint) -> None:
    """Write the code for a collective."""
    kind, plan = item.stmt.kind, printer.plan.collectives[item]
    printer.writer.line(f"# {kind}, line {item.line}")
    if plan.check is Check.ARRIVALS:
        _check_arrivals(printer, item)
    elif plan.check is Check.LANES:
        _check_lanes(printer, item, plan.members)
    if kind in calls.COUNTED:
        _count(printer, item)
    elif plan.reads_ahead:
        _shuffle_down(printer, item)
    elif kind in calls.SHUFFLES:
        _shuffle(printer, item, plan)
    elif kind in calls.VOTES and item.stmt.dest is not None:
        _vote(printer, item.stmt, item.mask)


@contextmanager
def _each_block(printer: Printer) -> Iterator[tuple[str, str]]:
    """The first and the last + 1 position of a block's threads, for every block that is run."""
    threads = printer.program.threads
    if not printer.program.cooperative:
        yield "0", str(threads)
        return
    with printer.writer.block("for _block in range(_first, _last):"):
        yield f"_block * {threads}", f"(_block + 1) * {threads}"


def _check_arrivals(printer: Printer, item: CollectivePoint) -> None:
    """A barrier that only some of the live threads reach is an error."""
    writer, absent = printer.writer, f"not _s_{item.mask}[_u(_t)]"
    if item.live:
        absent = f"_s_{item.live}[_u(_t)] and {absent}"
    returned = printer.program.returned
    if returned in printer.plan.spilled:  # a thread that has ended holds nobody up
        absent = f"{absent} and not _s_{returned}[_u(_t)]"
    with _each_block(printer) as (begin, end):
        some_may_stay_away = printer.program.cooperative and item.stmt.kind != "cg.GridGroup.sync"
        if some_may_stay_away:  # a block of which no thread comes does not wait
            writer.line("_came = False")
            with writer.block(f"for _t in range({begin}, {end}):"):
                writer.line(f"_came = _came or _s_{item.mask}[_u(_t)]")
            absent = f"_came and {absent}"
        with writer.block(f"for _t in range({begin}, {end}):"), writer.block(f"if {absent}:"):
            writer.line(f"_record(_error, {DIVERGENT}, {item.line}, _block, _t)")
            writer.line("return 1")


def _check_lanes(printer: Printer, item: CollectivePoint, inputs: Inputs) -> None:
    """A lane whose mask does not name it, or names a live lane that is elsewhere, is an error."""
    stmt, writer, threads = item.stmt, printer.writer, printer.program.threads
    member = stmt.args[0] if stmt.args else ast.Constant(FULL)
    alive = _present(printer, item.live, "_other")
    returned = printer.program.returned
    if returned in printer.plan.spilled:
        alive += f" and not _s_{returned}[_u(_other)]"
    begin = f"_block * {threads}" if printer.program.cooperative else "0"
    writer.line("_warp = -1")
    with printer.thread_loop(item.mask, inputs):
        with writer.block(f"if _t - (_t - {begin}) % {WARP_SIZE} != _warp:"):
            writer.line(f"_warp = _t - (_t - {begin}) % {WARP_SIZE}")
            writer.line("_away = 0")
            end = f"_min(_warp + {WARP_SIZE}, {begin} + {threads})"
            away = f"{alive} and not {_present(printer, item.mask, '_other')}"
            with writer.block(f"for _other in range(_warp, {end}):"), writer.block(f"if {away}:"):
                writer.line("_away |= 1 << (_other - _warp)")
        writer.line(f"_member = ({printer.expressions.text(member)}) & {FULL}")
        with writer.block("if _member & _away or not _member & (1 << (_t - _warp)):"):
            writer.line(f"_record(_error, {LANES}, {item.line}, _block, _t)")
            writer.line("_error[4] = _member")
            writer.line("_error[5] = _member & _away")
            writer.line("return 1")


def _at(printer: Printer, arg: ast.expr, thread: str) -> str:
    """The value of an argument as `thread` has it: from its spill array, or the same for all."""
    if isinstance(arg, ast.Name) and arg.id in printer.plan.spilled:
        return f"_s_{arg.id}[_u({thread})]"
    return printer.expressions.text(arg)


def _present(printer: Printer, mask: str | None, thread: str = "_t") -> str:
    return f"_s_{mask}[_u({thread})]" if mask else "True"


def _count(printer: Printer, item: CollectivePoint) -> None:
    writer, kind, dest = printer.writer, item.stmt.kind, item.stmt.result
    value = _at(printer, item.stmt.args[0], "_t")
    present = _present(printer, item.mask)
    result = f"{printer.dtype_name(types.int32)}(_met)"
    with _each_block(printer) as (begin, end):
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
        if dest not in printer.plan.spilled:
            writer.line(f"{dest} = {result}")
            return
        with writer.block(f"for _t in range({begin}, {end}):"), writer.block(f"if {present}:"):
            writer.line(f"_s_{dest}[_u(_t)] = {result}")


def _shuffle(printer: Printer, item: CollectivePoint, plan: CollectivePlan) -> None:
    writer, stmt = printer.writer, item.stmt
    value, lane = stmt.args[1], stmt.args[2]
    width = stmt.args[3] if len(stmt.args) > 3 else None
    threads = printer.program.threads
    with printer.thread_loop(item.mask, plan.inputs):
        first = f"_block * {threads}" if printer.program.cooperative else "0"
        writer.line(
            f"_lane = (_t - {first}) & {WARP_SIZE - 1}" if first != "0" else "_lane = _t & 31"
        )
        writer.line(f"_width = {printer.expressions.text(width) if width else WARP_SIZE}")
        amount = printer.expressions.text(lane)
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
        if printer.program.debug and not printer.program.recorded:
            _check_source(printer, item, f"{first} + {threads}")
        if threads % WARP_SIZE:  # the last warp is not full
            writer.line(f"_from = _from if _from < {first} + {threads} else _t")
        writer.line(f"_s_{stmt.result}[_u(_t)] = {_at(printer, value, '_from')}")


def _check_source(printer: Printer, item: CollectivePoint, end: str) -> None:
    """A shuffle from a lane that does not execute it is an error."""
    if item.mask is None and printer.program.threads % WARP_SIZE == 0:
        return
    writer = printer.writer

    def absent(thread: str) -> str:
        return f"{thread} >= {end} or not {_present(printer, item.mask, thread)}"

    with writer.block(f"if {absent('_from')}:"):
        writer.line(f"_record(_error, {SOURCE}, {item.line}, _block, _t)")
        writer.line("_away = 0")
        lanes = f"range(_t - _lane, _t - _lane + {WARP_SIZE})"
        with writer.block(f"for _other in {lanes}:"), writer.block(f"if {absent('_other')}:"):
            writer.line("_away |= 1 << (_other - _t + _lane)")
        writer.line("_error[4] = _from - _t + _lane")
        writer.line("_error[5] = _away")
        writer.line("return 1")


def _shuffle_down(printer: Printer, item: CollectivePoint) -> None:
    """Neighbours read neighbours: two loads and a choice, where a gather would be slow.

    The spill array of the value goes on for a warp past the last thread: the load is harmless.
    """
    writer, stmt = printer.writer, item.stmt
    value = stmt.args[1].id
    writer.line(f"_delta = _min(_max({printer.expressions.text(stmt.args[2])}, 0), {WARP_SIZE})")
    first, last = printer.plan.spans.get(item.mask, (0, printer.program.threads))
    masked = item.mask and item.mask not in printer.plan.spans
    end = printer.plan.collectives[item].lanes
    border = f"{WARP_SIZE} - _delta" if end == WARP_SIZE else f"_min({WARP_SIZE} - _delta, {end})"
    with writer.block(f"for _warp in range({first}, {last}, {WARP_SIZE}):"):
        for lanes, source in (
            (border, "_warp + _tx + _delta"),
            (f"{border}, {end}", "_warp + _tx"),
        ):
            with writer.block(f"for _tx in range({lanes}):"):
                if masked:
                    writer.line(f"if _s_{item.mask}[_u(_warp + _tx)]:")
                    writer.depth += 1
                writer.line(f"_s_{stmt.result}[_u(_warp + _tx)] = _s_{value}[_u({source})]")
                writer.depth -= bool(masked)


@contextmanager
def _each_warp(printer: Printer) -> Iterator[None]:
    """A loop over the warps: threads `_warp` to `_end` - 1."""
    writer = printer.writer
    with (
        _each_block(printer) as (begin, end),
        writer.block(f"for _warp in range({begin}, {end}, {WARP_SIZE}):"),
    ):
        writer.line(f"_end = _min(_warp + {WARP_SIZE}, {end})")
        yield


def _vote(printer: Printer, stmt: Collective, mask: str | None) -> None:
    writer = printer.writer
    present = _present(printer, mask)
    with _each_warp(printer):
        if stmt.kind.startswith("match"):
            _match(printer, stmt, mask)
            return
        predicate = stmt.args[1] if len(stmt.args) > 1 else ast.Constant(True)
        writer.line("_here, _bits = 0, 0")
        with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
            writer.line("_here |= 1 << (_t - _warp)")
            with writer.block(f"if {_at(printer, predicate, '_t')}:"):
                writer.line("_bits |= 1 << (_t - _warp)")
        with writer.block("for _t in range(_warp, _end):"), writer.block(f"if {present}:"):
            writer.line(f"_member = {_members(printer, stmt)}")
            result = {
                "ballot_sync": f"{printer.dtype_name(types.int32)}(_bits & _member)",
                "any_sync": "(_bits & _member) != 0",
                "all_sync": "(_here & _member & ~_bits) == 0",
                "eq_sync": "(_bits & _member) == 0 or (_here & _member & ~_bits) == 0",
                "activemask": "_here",
            }[stmt.kind]
            writer.line(f"_s_{stmt.result}[_u(_t)] = {result}")


def _members(printer: Printer, stmt: Collective) -> str:
    """The lanes that a vote names in its first argument."""
    if not stmt.args:
        return str(FULL)
    return f"{_at(printer, stmt.args[0], '_t')} & {FULL}"


def _match(printer: Printer, stmt: Collective, mask: str | None) -> None:
    """Lanes of the member mask that hold the same value; for `all`, every lane or none."""
    writer, value = printer.writer, stmt.args[1]
    with (
        writer.block("for _t in range(_warp, _end):"),
        writer.block(f"if {_present(printer, mask)}:"),
    ):
        writer.line(f"_member = {_members(printer, stmt)}")
        writer.line("_here, _bits = 0, 0")
        member = f"(_member >> (_other - _warp)) & 1 and {_present(printer, mask, '_other')}"
        with writer.block("for _other in range(_warp, _end):"), writer.block(f"if {member}:"):
            writer.line("_here |= 1 << (_other - _warp)")
            same = f"{_at(printer, value, '_other')} == {_at(printer, value, '_t')}"
            with writer.block(f"if {same}:"):
                writer.line("_bits |= 1 << (_other - _warp)")
        int32 = printer.dtype_name(types.int32)
        result = {
            "match_any_sync": f"{int32}(_bits)",
            "match_all_sync": f"{int32}(_here if _bits == _here else 0)",
            "match_all_pred": "_bits == _here",
        }[stmt.kind]
        writer.line(f"_s_{stmt.result}[_u(_t)] = {result}")
