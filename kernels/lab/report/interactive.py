"""A page to step through a block: one file with its script and data inside, nothing fetched.

`page(trace)` makes it; its parts are `interactive.html`, `.css` and `.js` beside this file. The
steps travel as compressed JSON: the values that threads have at a step are mostly equal or evenly
spaced, and are written as such. Where scripts do not run, the source and the first step show.
"""

from __future__ import annotations

import ast
import base64
import functools
import itertools
import json
import linecache
import math
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from kernels.host.source import masked
from kernels.lab.report.findings import Finding
from kernels.lab.report.steps import Memory, Step, Trace
from kernels.support.cache import write

MOST_BYTES = 1_800_000  # of a page; longer traces are cut
WHOLE = 4096  # elements of an array up to which all its values are on the page
_FOLDER = Path(__file__).parent


def page(trace: Trace, findings: Sequence[Finding] = (), listing: str = "") -> str:
    """The page as HTML. findings: those of `profile`, each with buttons that lead to its lines.
    listing: HTML to show below."""
    steps = trace.steps
    while True:
        data = _payload(trace, steps, findings)
        packed = base64.b64encode(zlib.compress(json.dumps(data, allow_nan=False).encode(), 9))
        if len(packed) + len(listing) < MOST_BYTES or len(steps) < 2:
            break
        steps = steps[: len(steps) // 2]
    fill = {
        "TITLE": escape(f"{trace.name}: block {trace.at}"),
        "HEADING": escape(_heading(trace)),
        "SOURCE": _source_rows(data["sources"], steps),
        "FIRST": escape(_first_step(steps)),
        "LISTING": listing,
        "DATA": packed.decode(),
        "STYLE": _part("css"),
        "SCRIPT": _part("js"),
    }
    parts = _part("html").split("@@")  # text, name, text, name, ..., text
    return "".join(fill[part] if i % 2 else part for i, part in enumerate(parts))


def listing_page(title: str, listing: str) -> str:
    """A page without steps."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_part("css")}</style>'
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{listing}</body></html>'


def frame(html: str) -> str:
    """The page inside a notebook's output."""
    style = "width:100%;height:760px;border:1px solid rgba(128,128,128,0.4)"
    return f'<iframe title="stepper" style="{style}" srcdoc="{escape(html)}"></iframe>'


def save(path: str | os.PathLike, html: str) -> None:
    """Write the page; an interrupted write leaves the old file as it was."""
    write(Path(path), html.encode())
    os.chmod(path, 0o644)  # a page is to be shown


@functools.cache
def _part(ending: str) -> str:
    return (_FOLDER / f"interactive.{ending}").read_text(encoding="utf-8")


def _heading(trace: Trace) -> str:
    grid, block = ("×".join(map(str, size)) for size in (trace.grid, trace.block))
    return f"{trace.name}: block {trace.at} of a grid of {grid}, {block} threads"


def _first_step(steps: list[Step]) -> str:
    if not steps:
        return "No line was executed."
    count = len(steps[0].threads)
    return f"Step 1 of {len(steps)}: line {steps[0].place[1]}, executed by {count} threads."


# --- source


def _functions(filename: str) -> list[tuple[int, int, str]]:
    """The first and last lines and the names of a file's functions, inner ones first."""
    text = "".join(linecache.getlines(filename))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return _c_functions(text)
    found = [
        (
            min([node.lineno, *(m.lineno for m in node.decorator_list)]),
            node.end_lineno or 0,
            node.name,
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    return sorted(found, key=lambda lines: lines[1] - lines[0])


def _c_functions(text: str) -> list[tuple[int, int, str]]:
    """The same of CUDA C: what stands in braces at the outermost level, and has parameters."""
    found, depth, start = [], 0, 0
    code = masked(text)
    for position, character in enumerate(code):
        if character == "{":
            if depth == 0:
                header = code[start:position]
                named = re.search(r"(\w+)\s*\([^{]*\)\s*$", header)
                opened = start + len(header) - len(header.lstrip())
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                if named:
                    first, last = (text.count("\n", 0, at) + 1 for at in (opened, position))
                    found.append((first, last, named[1]))
                start = position + 1
        elif depth == 0 and (character == ";" or _ends_directive(code, position)):
            start = position + 1
    return found


def _ends_directive(text: str, end: int) -> bool:
    """Whether a line for the preprocessor ends at `end`."""
    line = text[text.rfind("\n", 0, end) + 1 : end]
    return text[end] == "\n" and line.lstrip().startswith("#")


def _sources(trace: Trace, steps: list[Step]) -> list[dict[str, Any]]:
    """The kernel and the device functions that it calls: title, first line, lines, file."""
    places = dict.fromkeys([trace.first, *(step.place for step in steps)])
    functions = {filename: _functions(filename) for filename, _ in places}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for filename, line in places:
        around = (ends for ends in functions[filename] if ends[0] <= line <= ends[1])
        first, last, name = next(around, (line, line, ""))
        text = [linecache.getline(filename, n).rstrip("\n") for n in range(first, last + 1)]
        title = f"{'device function' if found else 'kernel'} {name}"
        one = {"title": title, "first": first, "lines": text, "file": filename}
        found.setdefault((filename, first), one)
    return list(found.values())


def _source_rows(sources: list[dict[str, Any]], steps: list[Step]) -> str:
    """The source as rows of a table; the line of the first step is marked."""
    now = steps[0].place[1] if steps else 0
    rows = []
    for number, source in enumerate(sources):
        title = source["title"]
        rows.append(f'<tr class="function"><th colspan="2">{escape(title)}</th></tr>')
        for line, text in enumerate(source["lines"], source["first"]):
            mark = ' aria-current="step"' if (number, line) == (0, now) else ""
            rows.append(
                f'<tr id="line-{number}-{line}"{mark}><th scope="row">{line}</th>'
                f"<td><code>{escape(text) or ' '}</code></td></tr>"
            )
    return "".join(rows)


# --- data


def _payload(trace: Trace, steps: list[Step], findings: Sequence[Finding]) -> dict[str, Any]:
    sources = _sources(trace, steps)
    names = list(dict.fromkeys(n for step in steps for e in step.events for n in e.changes))
    return {
        "name": trace.name,
        "block": trace.block,
        "at": trace.at,
        "grid": trace.grid,
        "sources": [{key: one[key] for key in ("title", "first", "lines")} for one in sources],
        "variables": names,
        "machineCode": trace.first[0].endswith(".cu"),
        "arrays": [_memory(m, _touched(steps, i)) for i, m in enumerate(trace.arrays)],
        "steps": [_step(step, sources, names) for step in steps],
        "cut": trace.cut or len(steps) < len(trace.steps),
        "error": trace.error,
        "findings": [_finding(finding, trace) for finding in findings],
    }


def _step(step: Step, sources: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    filename, line = step.place
    source = next(
        number
        for number, one in enumerate(sources)
        if one["file"] == filename and one["first"] <= line < one["first"] + len(one["lines"])
    )
    changes: dict[str, tuple[list[int], list[Any]]] = {}
    touches: dict[tuple, tuple[list[int], list[int], list[Any]]] = {}
    for thread, event in zip(step.threads, step.events):
        for name, value in event.changes.items():
            threads, values = changes.setdefault(name, ([], []))
            threads.append(thread)
            values.append(value)
        for order, touch in enumerate(event.touches):
            group = touches.setdefault((order, touch.op, touch.array), ([], [], []))
            for column, value in zip(group, (thread, touch.index, touch.value)):
                column.append(value)
    return {
        "source": source,
        "line": line,
        "epoch": step.epoch,
        "barrier": step.barrier,
        "threads": _runs(step.threads),
        "changes": [
            [names.index(name), _runs(threads), _column(values)]
            for name, (threads, values) in changes.items()
        ],
        "touches": [
            [op, array, _runs(threads), _column(indices), None if op == "load" else _column(values)]
            for (_, op, array), (threads, indices, values) in sorted(touches.items())
        ],
    }


def _touched(steps: list[Step], number: int) -> list[int]:
    touches = (touch for step in steps for event in step.events for touch in event.touches)
    return sorted({touch.index for touch in touches if touch.array == number})


def _memory(memory: Memory, touched: list[int]) -> dict[str, Any]:
    size = math.prod(memory.shape)
    shown = list(range(size)) if size <= WHOLE else touched
    values = None if memory.initial is None else _column(memory.initial[shown].tolist())
    return {
        "name": memory.name or "shared memory",
        "space": memory.space,
        "dtype": str(memory.dtype),
        "itemsize": memory.dtype.itemsize,
        "shape": memory.shape,
        "strides": memory.strides,
        "offset": memory.offset,
        "shown": _runs(shown),
        "values": values,
    }


def _finding(finding: Finding, trace: Trace) -> dict[str, Any]:
    x, y, _ = trace.block
    return {
        "text": finding.message,
        "fix": finding.hint,
        "severity": finding.severity,
        "array": finding.array,
        "accesses": [
            {
                "text": f"thread {access.thread} of block {access.block} {access.what}",
                "line": access.lineno,
                "here": tuple(access.block) == tuple(trace.at),
                "thread": access.thread[0] + x * (access.thread[1] + y * access.thread[2]),
            }
            for access in finding.accesses
        ],
    }


def _runs(numbers: Iterable[int]) -> list[int]:
    """Ascending numbers as [first, count, first, count, ...]."""
    runs: list[int] = []
    for number in numbers:
        if runs and number == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [number, 1]
    return runs


def _column(values: list[Any]) -> list[Any]:
    """Values, one per thread, in few characters: ["=", value], ["+", first, step] or themselves."""
    plain = [_short(value) for value in values]
    if len(plain) > 1 and all(value == plain[0] for value in plain):
        return ["=", plain[0]]
    if len(plain) > 2 and all(type(value) is int for value in plain):
        steps = {b - a for a, b in itertools.pairwise(plain)}
        if len(steps) == 1:
            return ["+", plain[0], steps.pop()]
    return ["", *plain]


def _short(value: Any) -> Any:
    """A value as JSON has it; numbers that JSON lacks, and large integers, as text."""
    if isinstance(value, list | tuple):
        return [_short(part) for part in value]
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 53):
        return value
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else str(value)
    return str(value)
