"""A report as HTML, for notebooks: the listing as a table, readable on light and dark pages."""

from __future__ import annotations

from html import escape

from kernels.lab.report.listing import HEADINGS, LEGEND, Row, conclusions, heading, rows, totals
from kernels.lab.report.measurement import Measurement

# Half-transparent colours: they tint whatever background the page has.
_POOR, _WRONG, _RULE = "rgba(230,150,0,0.30)", "rgba(220,40,40,0.25)", "rgba(128,128,128,0.4)"
_MONO = "font-family:monospace;white-space:pre"


def _cell(text: str, name: str, poor: bool) -> str:
    align = "left" if name == "source" else "right"
    style = f"{_MONO};text-align:{align};padding:1px 8px;border:none"
    if name == "source":
        style += f";border-left:1px solid {_RULE};border-right:1px solid {_RULE}"
    if poor:
        style += f";background:{_POOR}"
    return f'<td style="{style}">{escape(text)}</td>'


def _row(row: Row) -> str:
    cells = "".join(
        _cell(text, name, name in row.poor) for text, name in zip(row.cells, HEADINGS, strict=True)
    )
    background = f"background:{_WRONG}" if row.wrong else "background:none"
    return f'<tr style="{background}">{cells}</tr>'


def page(report: Measurement) -> str:
    """The whole report; it needs no style sheet and no script."""
    head = "".join(
        f'<th style="text-align:{"left" if name == "source" else "right"};padding:1px 8px;'
        f'border-bottom:1px solid {_RULE}">{name}</th>'
        for name in HEADINGS
    )
    body = "".join(map(_row, rows(report)))
    facts = escape("\n".join(totals(report)))
    findings = escape("\n".join(conclusions(report)))
    edge = f";border-left:3px solid {_WRONG};padding:4px 8px" if report.findings else ""
    return (
        f'<div style="color:inherit"><p><b>{escape(heading(report))}</b></p>'
        f'<table style="border-collapse:collapse;font-size:90%"><tr>{head}</tr>{body}</table>'
        f'<pre style="background:none;color:inherit">{facts}</pre>'
        f'<p style="opacity:0.7;font-size:85%">{escape(LEGEND)}</p>'
        f'<pre style="background:none;color:inherit{edge}">{findings}</pre></div>'
    )
