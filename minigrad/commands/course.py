"""The course: what is solved and what comes next. `minigrad course show NAME` prints what to write,
`minigrad course hint NAME` helps, `minigrad course check DIR` judges a folder of submissions,
`minigrad course assignment FILE.ipynb NAMES...` makes an assignment of exercises.

A submission is a file (`ada.py`, `ada.cu`, `ada.ipynb`) or a folder of files, whose name is the
student's; kernels are found by the names of the exercises. Each runs in a process of its own with
limited time and memory, on data of the student's own. The solutions cannot be imported there.
"""

from __future__ import annotations

import argparse
import csv
import json
import textwrap
from pathlib import Path
from typing import Any

from kernels.support.names import did_you_mean
from minigrad.commands import CommandError

HELP = "the exercises: what is solved, what is next; judge a folder of submissions"
_WIDTH = 100
_BEGIN, _END = "### BEGIN SOLUTION", "### END SOLUTION"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    show = actions.add_parser(
        "show", help="what an exercise asks for, and the source to begin with"
    )
    show.add_argument("name", metavar="NAME")
    show.add_argument("--dialect", choices=("numba", "cuda_c"), help="of the source (numba)")
    hint = actions.add_parser("hint", help="a hint for an exercise")
    hint.add_argument("name", metavar="NAME")
    hint.add_argument("number", metavar="N", nargs="?", type=int, default=1, help="the Nth (1)")
    check = actions.add_parser("check", help="judge a folder of submissions", description=__doc__)
    check.add_argument("folder", metavar="DIR", help="with a file or a folder for each student")
    check.add_argument("--exercises", nargs="+", metavar="NAME", help="only these (default: all)")
    check.add_argument("--seconds", type=float, default=60.0, help="time for a submission (60)")
    check.add_argument("--memory", type=float, default=4.0, metavar="GB", help="memory (4)")
    check.add_argument("--workers", type=int, help="submissions at a time (default: processors)")
    check.add_argument("--csv", metavar="PATH", help="write points as a table")
    check.add_argument("--json", metavar="PATH", help="write verdicts and hints")
    make = actions.add_parser(
        "assignment", help="make a notebook of exercises, with the cells' marks for nbgrader"
    )
    make.add_argument("path", metavar="FILE.ipynb")
    make.add_argument("names", nargs="+", metavar="NAME", help="exercises")
    make.add_argument("--points", type=int, default=1, help="of each exercise (1)")


def run(args: argparse.Namespace) -> int:
    if args.action == "check":
        return _check(args)
    if args.action == "assignment":
        return _assignment(args)
    if args.action == "show":
        return _show(args.name, args.dialect)
    if args.action == "hint":
        return _hint(args.name, args.number)
    _list()
    return 0


def _list() -> None:
    """The list of exercises with the learner's progress."""
    from kernels.lab.course import exercises, progress

    solved = progress.solved()
    following = next((name for name in exercises.names() if name not in solved), None)
    for name in exercises.names():
        mark = "x" if name in solved else ">" if name == following else " "
        print(f"[{mark}] {name:<18} {solved.get(name, '')}".rstrip())
    count = sum(name in solved for name in exercises.names())
    print(f"\n{count} of {len(exercises.names())} solved.")
    if following is not None:
        print(f"Next: {exercises.text(following)}\n")
        print(f"Write it in a file, then: minigrad lab FILE.py::{following}")
        print(f"To begin with: minigrad course show {following}; help: ... hint {following}")


def _show(name: str, dialect: str | None) -> int:
    from kernels.lab.course import exercises

    (name,) = _names([name])
    offered = exercises.dialects(name)
    if dialect not in (None, *offered):
        raise CommandError(f"{name} is for {' and '.join(offered)}")
    dialect = dialect or offered[0]
    comment = "//" if dialect == "cuda_c" else "#"
    text = "\n".join(f"{comment} {line}".rstrip() for line in _wrapped(exercises.text(name)))
    print(f"{text}\n\n{exercises.start(name, dialect)}", end="")
    return 0


def _wrapped(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in textwrap.wrap(line, _WIDTH - 4) or [""]]


def _hint(name: str, number: int) -> int:
    from kernels.lab.course import exercises

    (name,) = _names([name])
    hints = exercises.hints(name)
    if not 1 <= number <= len(hints):
        raise CommandError(f"{name} has hints 1 to {len(hints)}, not {number}")
    print(textwrap.fill(f"hint {number} of {len(hints)}: {hints[number - 1]}", _WIDTH))
    if number < len(hints):
        print(f"More: minigrad course hint {name} {number + 1}")
    return 0


# --- a class


def _check(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from kernels.lab.course import classroom

    folder, names = Path(args.folder), _names(args.exercises)
    if not folder.is_dir():
        is_file = " (it is a file; name the folder that holds it)" if folder.exists() else ""
        raise CommandError(f"there is no folder {folder}{is_file}")
    if args.seconds <= 0 or args.memory <= 0 or (args.workers or 1) < 1:
        raise CommandError("--seconds, --memory and --workers must be positive")
    given = classroom.submissions(folder)
    if not any(given.values()):
        raise CommandError(f"{folder} has no submissions ({', '.join(classroom.ENDINGS)})")
    with tqdm(total=len(given), unit="submission", leave=False) as bar:
        found = classroom.judge(
            folder, names, args.seconds, args.memory, args.workers, lambda one: bar.update()
        )
    _print(found, names)
    if args.csv:
        _write(Path(args.csv), _table(found, names))
    if args.json:
        _write(Path(args.json), json.dumps([one.json() for one in found], indent=1))
    return 0


def _names(asked: list[str] | None) -> list[str]:
    from kernels.lab.course import exercises

    known = ", ".join(exercises.names())
    unknown = [name for name in asked or () if name not in exercises.names()]
    if unknown:
        near = did_you_mean(unknown[0], exercises.names())
        raise CommandError(f"no exercise {unknown[0]!r}{near or f'; there are {known}'}")
    return asked or exercises.names()


def _print(found: list[Any], names: list[str]) -> None:
    """Each student's points, then what is not right yet."""
    width = max(len(one.student) for one in found)
    for one in found:
        right = [name for name in names if name in one.verdicts and one.verdicts[name].passed]
        print(
            f"{one.student:<{width}}  {one.points:>2} of {len(names)}  {', '.join(right)}".rstrip()
        )
        for name, verdict in one.verdicts.items():
            if not verdict.passed:
                print(_cut(f"{'':<{width}}    {name}: {_first(verdict.hint)}"))
        if one.problem:
            print(_cut(f"{'':<{width}}    {one.problem}"))
    solved = sum(one.points > 0 for one in found)
    print(f"\n{len(found)} submissions, {solved} with points; exercises judged: {len(names)}")
    print("--exercises NAME ... counts only these; --json PATH has the hints in full")


def _first(hint: str) -> str:
    """A hint's first line; of a compiler's output, its first error."""
    head, *rest = hint.splitlines()
    if not head.endswith(":") or not rest:
        return head
    error = next((line for line in rest if "error" in line), rest[0])
    return f"{head} {error.partition(' error: ')[2] or error.strip()}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _table(found: list[Any], names: list[str]) -> str:
    """CSV: a row for each student, 1 or 0 for each exercise (empty: not handed in), the sum."""
    import io

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["student", *names, "points", "problem"])
    for one in found:
        marks = [int(one.verdicts[n].passed) if n in one.verdicts else "" for n in names]
        rows.writerow([one.student, *marks, one.points, one.problem])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    from kernels.support import cache

    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no folder {path.parent}")
    try:
        cache.write(path, text.encode())
    except OSError as error:
        raise CommandError(f"{path}: {error}") from None
    print(f"saved {path}")


# --- an assignment


def _assignment(args: argparse.Namespace) -> int:
    """A notebook with, for each exercise, a cell to solve it in and one that grades it."""

    cells = [
        _cell(
            "code",
            "setup",
            "from numba import float32\n\nfrom kernels import cuda, lab, raw_kernel",
        )
    ]
    for name in _names(args.names):
        test = f'result = lab.exercises.check({name}, "{name}")\nassert result, str(result)'
        cells.append(_cell("markdown", f"{name}-text", _task(name)))
        cells.append(_cell("code", name, _start(name), solution=True, locked=False))
        cells.append(_cell("code", f"{name}-check", test, grade=True, points=args.points))
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    _write(Path(args.path), json.dumps(notebook, indent=1) + "\n")
    return 0


def _task(name: str) -> str:
    """The text of an exercise, with the source to begin with where it has one."""
    from kernels.lab.course import exercises

    _, _, text = exercises.text(name).partition("\n\n")
    if exercises.dialects(name) == ("cuda_c",):
        source = (
            f"\n\nPut the kernel's source in `code`:\n\n```c\n{exercises.start(name, 'cuda_c')}```"
        )
    else:
        source = f"\n\n```python\n{exercises.start(name)}```" if exercises.is_broken(name) else ""
    return f"## {name}\n\n{text}{source}"


def _start(name: str) -> str:
    """The cell to solve an exercise in: nbgrader takes out what is between the two marks."""
    from kernels.lab.course import exercises

    title, _, _ = exercises.text(name).partition("\n\n")
    if exercises.dialects(name) == ("cuda_c",):
        return f'{_BEGIN}\ncode = r""""""\n{_END}\n{name} = raw_kernel(code, "{name}")'
    return f"@cuda.jit\ndef {title}:\n    {_BEGIN}\n    pass\n    {_END}"


def _cell(
    kind: str, name: str, text: str, solution: bool = False, locked: bool = True,
    grade: bool = False, points: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A notebook's cell with nbgrader's metadata (its schema, version 3)."""
    mark: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": name,
        "solution": solution,
        "grade": grade,
        "locked": locked,
        "task": False,
    }
    if grade:
        mark["points"] = points
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": name.replace("_", "-")[:64],
        "metadata": {"nbgrader": mark},
        "source": text.splitlines(keepends=True),
    }
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell
