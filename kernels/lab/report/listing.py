"""A report as text: the source in the middle, what warps did on the left, its cost on the right."""

from __future__ import annotations

import textwrap
from pathlib import PurePath
from typing import NamedTuple

from kernels.lab.report.measurement import Counts, Line, Measurement

HEADINGS = ("line", "warps", "lanes", "source", "traffic", "sectors", "banks", "flops")
LEGEND = (
    "warps: times that warps ran the line. lanes: active ones of 32. traffic: share of the 32-byte"
    " sectors of global memory that are moved. sectors: for each request of a warp, and how many"
    " the lanes' bytes would fill. banks: wavefronts of shared memory against ideal (x32: a 32-way"
    " conflict). flops: floating-point operations."
)
MAX_SOURCE, MIN_SOURCE = 72, 36  # characters of a line
_SPARE = ("flops", "warps", "traffic")  # columns that a narrow listing leaves out, in this order
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


def rows(report: Measurement, most: int = MAX_SOURCE) -> list[Row]:
    """The lines of a report, those of other functions after a row with their file's name. `most`
    characters of a line are shown. Where the accesses of a line differ, a row of each follows."""
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
        out.append(_row(line, sectors, indent, (line.filename, line.lineno) in wrong, most))
        out += _parts(line, sectors, indent, most)
    return out


def _parts(line: Line, sectors: int, indent: int, most: int) -> list[Row]:
    """The accesses of a line, each with its cost, where they do not all cost the same."""
    found = [(part, *_cost(part, sectors)) for part in line.parts]
    costs = [{cells[i] for _, cells, _ in found if cells[i]} for i in (1, 2)]  # sectors, banks
    if max(map(len, costs), default=0) < 2:
        return []
    lead = " " * (len(line.source) - len(line.source.lstrip()) - indent)
    return [
        Row(("", "", "", _cut(f"{lead}· {part.op} {part.text}", most), *cells, ""), poor, False)
        for part, cells, poor in found
    ]


def _file(path: str) -> str:
    """A file's name; a notebook's cell has none that a reader knows."""
    return "another cell" if "ipykernel_" in path else PurePath(path).name


def _indent(sources: list[str]) -> int:
    return min((len(s) - len(s.lstrip()) for s in sources if s.strip()), default=0)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _row(line: Line, sectors: int, indent: int, wrong: bool, most: int) -> Row:
    cost, poor = _cost(line, sectors)
    source = _cut(line.source[indent:].rstrip(), most)
    warps = lanes = ""
    if line.executions:
        warps, lanes = short(line.executions), ratio(32 * line.lane_share)
        if line.lane_share < POOR:
            poor |= {"lanes"}
    flops = short(line.flops) if line.flops else ""
    return Row((str(line.lineno), warps, lanes, source, *cost, flops), poor, wrong)


def _cost(counts: Counts, sectors: int) -> tuple[tuple[str, str, str], frozenset[str]]:
    """(traffic, sectors, banks) of a line or an access as text, and which of them are poor."""
    poor: set[str] = set()
    traffic = each = banks = ""
    if counts.requests:
        traffic = f"{counts.sectors / sectors:.0%}" if sectors else ""
        ideal = counts.ideal_sectors / counts.requests
        each = f"{ratio(counts.sectors / counts.requests)} of {ratio(ideal)}"
        if counts.sector_efficiency < POOR:
            poor.add("sectors")
    if counts.shared_requests:
        banks = f"x{ratio(counts.wavefronts / counts.ideal_wavefronts)}"
        if counts.bank_efficiency < POOR:
            poor.add("banks")
    return (traffic, each, banks), frozenset(poor)


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


def listing(report: Measurement, legend: bool = True, width: int = 0) -> str:
    """The whole report as text; `width`: what it must fit into, in characters (0: as it comes)."""
    table, hidden = rows(report), 0
    if width:
        source = max(len(row.cells[3]) for row in table)
        wanted = min(source, MIN_SOURCE)

        def room() -> int:
            return width - max(map(len, _table(table, _SPARE[:hidden]))) + source

        while room() < wanted and hidden < len(_SPARE):
            hidden += 1
        table = rows(report, min(max(room(), 8), MAX_SOURCE))
    lines = _table(table, _SPARE[:hidden])
    ruler = "─" * (len(lines[0]) + 1)
    out = [heading(report), ruler, lines[0], ruler, *lines[1:], ruler, *totals(report)]
    if legend:
        out += textwrap.wrap(LEGEND, min(max(len(ruler), 60), width or len(LEGEND)))
    out += ["", *conclusions(report)]
    return "\n".join(_fitted(out, len(lines), width) if width else out)


def _fitted(lines: list[str], rows: int, width: int) -> list[str]:
    """Lines broken at `width`, but for the table of `rows` and its rulers, after the first."""
    out = []
    for number, line in enumerate(lines):
        if 1 <= number <= rows + 3 or len(line) <= width:
            out.append(line[:width])
        else:
            lead = len(line) - len(line.lstrip())
            indent = " " * (lead + 4 if number else 4)
            out += textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True)
    return out


def _table(table: list[Row], hidden: tuple[str, ...] = ()) -> list[str]:
    """The headings and the rows, without empty columns and `hidden` ones."""
    widths = [max(len(row.cells[i]) for row in table) for i in range(len(HEADINGS))]
    widths = [max(width, len(name)) for width, name in zip(widths, HEADINGS)]
    shown = [i for i in range(len(HEADINGS)) if i < 4 or any(row.cells[i] for row in table)]
    shown = [i for i in shown if HEADINGS[i] not in hidden]

    def line(cells: tuple[str, ...], poor: frozenset[str], mark: str) -> str:
        parts = []
        for i in shown:
            left = HEADINGS[i] == "source"
            flag = "!" if HEADINGS[i] in poor else " "
            text = cells[i].ljust(widths[i]) if left else cells[i].rjust(widths[i])
            parts.append(f"│ {text} │" if left else text + flag)
        return (mark + " " + " ".join(parts)).rstrip()

    body = [line(row.cells, row.poor, "x" if row.wrong else " ") for row in table]
    return [line(HEADINGS, frozenset(), " "), *body]


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
