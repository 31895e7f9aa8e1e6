"""A report as a picture: the listing, with poor cells tinted and lines that are wrong marked."""

from __future__ import annotations

import textwrap

from kernels.lab.draw.canvas import INK, MUTED, Picture, width_of
from kernels.lab.report.listing import HEADINGS, LEGEND, conclusions, heading, listing, rows, totals
from kernels.lab.report.measurement import Measurement

_POOR, _WRONG = "#fbe3b3", "#f8d0d0"
_SIZE, _STEP, _LEFT, _TOP = 12, 18, 16, 44


def sheet(report: Measurement) -> Picture:
    """The report on a page that is as large as it needs to be."""
    table = rows(report)
    shown = [i for i in range(len(HEADINGS)) if i < 4 or any(row.cells[i] for row in table)]
    widths = {i: max(len(HEADINGS[i]), *(len(row.cells[i]) for row in table)) + 2 for i in shown}
    columns = max(sum(widths.values()), 84)
    below = [*totals(report), ""]
    for line in conclusions(report):
        below += textwrap.wrap(line, columns, subsequent_indent=" " * 6) or [""]
    legend = textwrap.wrap(LEGEND, columns)
    character = width_of(" ", _SIZE, mono=True)
    height = _TOP + _STEP * (len(table) + len(below) + len(legend) + 3)
    width = 2 * _LEFT + columns * character
    picture = Picture(width, height, heading(report), listing(report))

    def write(row: float, column: float, text: str, fill: str = INK, anchor: str = "start") -> None:
        x, y = _LEFT + column * character, _TOP + row * _STEP
        picture.label(x, y, text, _SIZE, fill, anchor, mono=True)

    def tint(row: float, column: float, columns: float, fill: str) -> None:
        x, y = _LEFT + column * character, _TOP + row * _STEP - _STEP * 0.7
        picture.rect(x, y, columns * character, _STEP, fill)

    def rule(row: float) -> None:
        y = _TOP + row * _STEP - _STEP * 0.7
        picture.line(_LEFT, y, width - _LEFT, y, MUTED, 0.7)

    for number, row in enumerate([None, *table]):
        if row is not None and row.wrong:
            tint(number, 0, columns, _WRONG)
        column = 0
        for i in shown:
            left = HEADINGS[i] == "source"
            if row is not None and HEADINGS[i] in row.poor:
                tint(number, column, widths[i], _POOR)
            text, fill = (HEADINGS[i], MUTED) if row is None else (row.cells[i], INK)
            if text:
                place = column + 1 if left else column + widths[i] - 1
                write(number, place, text, fill, "start" if left else "end")
            column += widths[i]
    rule(1)
    rule(len(table) + 1)
    for number, line in enumerate(below, len(table) + 1):
        write(number + 0.4, 0, line)
    for number, line in enumerate(legend, len(table) + len(below) + 1):
        write(number + 0.8, 0, line, MUTED)
    return picture
