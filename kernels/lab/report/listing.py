"""A report as text: the source in the middle, what warps did on the left, its cost on the right."""

from __future__ import annotations

import textwrap
from pathlib import PurePath
from typing import NamedTuple

from kernels.lab.report.measurement import Line, Measurement

HEADINGS = ("line", "warps", "lanes", "source", "traffic", "sectors", "banks", "flops")
LEGEND = (
    "warps: times that warps ran the line. lanes: active ones of 32. traffic: share of the 32-byte"
    " sectors of global memory that are moved. sectors: for each request of a warp, and how many"
    " the lanes' bytes would fill. banks: wavefronts of shared memory against ideal (x32: a 32-way"
    " conflict). flops: floating-point operations."
)
MAX_SOURCE = 72
POOR = 0.5  # an efficiency below this is marked


class Row(NamedTuple):
    """A line of the listing as text. `poor` are the headings of cells that deserve a look."""

    cells: tuple[str, ...]
    poor: frozenset[str]
    wrong: bool  # a race or an error has to do with the line


def short(number: float) -> str:
    """A count in at most five characters: 999, 12.3k, 4.56M."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or unit == "T":
            break
        number /= 1000
    if not unit:
        return f"{number:.0f}" if number == int(number) else f"{number:.3g}"
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}{unit}"


def ratio(number: float) -> str:
    """A quotient with one decimal, or none where it is whole."""
    return f"{number:.1f}".removesuffix(".0")


def rows(report: Measurement) -> list[Row]:
    """The lines of a report, those of other functions after a row with their file's name."""
    wrong = {(a.filename, a.lineno) for f in report.findings for a in f.accesses}
    sectors = report.totals.sectors
    indent = _indent([line.source for line in report.lines])
    out: list[Row] = []
    filename, before = report.filename, 0
    lines = sorted(report.lines, key=lambda line: (line.filename != report.filename, line.filename))
    for line in lines:
        if line.filename != filename or (before and line.lineno != before + 1):
            where = f"··· {_file(line.filename)}" if line.filename != filename else "···"
            out.append(Row(("", "", "", where, "", "", "", ""), frozenset(), False))
        filename, before = line.filename, line.lineno
        out.append(_row(line, sectors, indent, (line.filename, line.lineno) in wrong))
    return out


def _file(path: str) -> str:
    """A file's name; a notebook's cell has none that a reader knows."""
    return "another cell" if "ipykernel_" in path else PurePath(path).name


def _indent(sources: list[str]) -> int:
    return min((len(s) - len(s.lstrip()) for s in sources if s.strip()), default=0)


def _row(line: Line, sectors: int, indent: int, wrong: bool) -> Row:
    poor = set()
    source = line.source[indent:].rstrip()
    if len(source) > MAX_SOURCE:
        source = source[: MAX_SOURCE - 1] + "…"
    warps = lanes = traffic = each = banks = ""
    if line.executions:
        warps, lanes = short(line.executions), ratio(32 * line.lane_share)
        if line.lane_share < POOR:
            poor.add("lanes")
    if line.requests:
        traffic = f"{line.sectors / sectors:.0%}" if sectors else ""
        ideal = line.ideal_sectors / line.requests
        each = f"{ratio(line.sectors / line.requests)} of {ratio(ideal)}"
        if line.sector_efficiency < POOR:
            poor.add("sectors")
    if line.shared_requests:
        banks = f"x{ratio(line.wavefronts / line.ideal_wavefronts)}"
        if line.bank_efficiency < POOR:
            poor.add("banks")
    flops = short(line.flops) if line.flops else ""
    cells = (str(line.lineno), warps, lanes, source, traffic, each, banks, flops)
    return Row(cells, frozenset(poor), wrong)


def heading(report: Measurement) -> str:
    """What was run: one line."""
    grid, block = (" x ".join(map(str, _trimmed(size))) for size in (report.grid, report.block))
    blocks = "block" if report.grid_blocks == 1 else "blocks"
    return f"{report.name}: grid {grid} ({report.grid_blocks} {blocks}), {block} threads per block"


def _trimmed(size: tuple[int, ...]) -> tuple[int, ...]:
    while len(size) > 1 and size[-1] == 1:
        size = size[:-1]
    return size


def totals(report: Measurement) -> list[str]:
    """The totals in words, one per line."""
    total = report.totals
    out = []
    if total.requests:
        out.append(
            f"global memory   {short(total.requests)} requests, {short(total.sectors)} sectors"
            f" ({short(report.global_bytes)}B moved, {short(total.bytes)}B asked for by lanes),"
            f" {total.sector_efficiency:.0%} efficient"
        )
    if total.shared_requests:
        out.append(
            f"shared memory   {short(total.shared_requests)} requests,"
            f" {short(total.wavefronts)} wavefronts ({short(total.ideal_wavefronts)} ideal),"
            f" {report.shared_bytes} bytes per block"
        )
    if total.atomics:
        out.append(
            f"atomics         {short(total.atomics)} operations, {short(total.contention)} of them"
            " waited for a lane of their warp at the same address"
        )
    if total.flops:
        intensity = ""
        if total.requests:
            intensity = f", {report.intensity:.2f} for each byte moved (before any cache)"
        out.append(f"arithmetic      {short(total.flops)} floating-point operations{intensity}")
    return out + [f"note            {note}" for note in report.notes]


def listing(report: Measurement, legend: bool = True) -> str:
    """The whole report as text."""
    table = rows(report)
    widths = [max(len(row.cells[i]) for row in table) for i in range(len(HEADINGS))]
    widths = [max(width, len(name)) for width, name in zip(widths, HEADINGS)]
    shown = [i for i in range(len(HEADINGS)) if i < 4 or any(row.cells[i] for row in table)]

    def line(cells: tuple[str, ...], poor: frozenset[str], mark: str) -> str:
        parts = []
        for i in shown:
            left = HEADINGS[i] == "source"
            flag = "!" if HEADINGS[i] in poor else " "
            text = cells[i].ljust(widths[i]) if left else cells[i].rjust(widths[i])
            parts.append(f"│ {text} │" if left else text + flag)
        return (mark + " " + " ".join(parts)).rstrip()

    ruler = "─" * (len(line(HEADINGS, frozenset(), " ")) + 1)
    out = [heading(report), ruler, line(HEADINGS, frozenset(), " "), ruler]
    out += [line(row.cells, row.poor, "x" if row.wrong else " ") for row in table]
    out += [ruler, *totals(report)]
    if legend:
        out += textwrap.wrap(LEGEND, max(len(ruler), 60))
    return "\n".join([*out, "", *conclusions(report)])


def conclusions(report: Measurement) -> list[str]:
    """Races, errors and warnings in words, one per line (and a line for each thread)."""
    out: list[str] = []
    for name, found in (
        ("race", report.races),
        ("error", report.errors),
        ("warning", report.warnings),
    ):
        for number, finding in enumerate(found, 1):
            out += f"{name} {number}: {finding}".splitlines()
    return out or ["no races, no errors"]
