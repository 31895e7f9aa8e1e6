"""A folder of submissions, judged: each in a process of its own, with limits.

A submission is a file (`ada.py`, `ada.cu`, `ada.ipynb`) or a folder of such files (`ada/`); its
name is the student's. Kernels are found by the names of the exercises. Each student's problems have
data of their own, which the student's name decides.

The process of a submission has limited time and memory, an empty working folder, and refuses to
read the solutions and other submissions, to start programs, to open connections, and to write,
rename or delete elsewhere. That stops mistakes and shortcuts; code that is out to break the judge
belongs in a container.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import tokenize
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, is_dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernels.lab.course.guard import guard
from kernels.support.names import did_you_mean

ENDINGS = (".py", ".ipynb", ".cu")
SECONDS = 60.0
GIGABYTES = 4.0
_PRELOADED = ["kernels.lab.course.preloaded"]
_LARGEST_FILE = 1 << 28  # bytes that a submission may write to one file
_KEPT = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign)


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one exercise of a submission."""

    passed: bool
    hint: str
    seconds: float
    file: str


@dataclass
class Submission:
    """A student's work. verdicts: by exercise. problem: why it could not be judged to its end."""

    student: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    problem: str = ""

    @property
    def points(self) -> int:
        """One for each exercise solved."""
        return sum(verdict.passed for verdict in self.verdicts.values())

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "points": self.points}


def submissions(folder: Path) -> dict[str, list[Path]]:
    """The files of each student, by name. Raises FileNotFoundError for no folder."""
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith((".", "__")):
            files = sorted(p for p in entry.rglob("*") if p.suffix in ENDINGS and p.is_file())
            found.setdefault(entry.name, []).extend(files)
        elif entry.suffix in ENDINGS:
            found.setdefault(entry.stem, []).append(entry)
    return found


def judge(
    folder: Path,
    names: list[str],
    seconds: float = SECONDS,
    gigabytes: float = GIGABYTES,
    workers: int | None = None,
    done: Callable[[Submission], None] = lambda submission: None,
) -> list[Submission]:
    """Judge every submission in `folder` on the exercises `names`; `done` is told of each.

    seconds: for all of a submission. gigabytes: of memory. Returns them in the order of names.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    workers = workers or min(os.cpu_count() or 1, 8)
    with ThreadPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(
                _judge_one, context, folder, student, files, names, seconds, gigabytes, done
            )
            for student, files in submissions(folder).items()
        ]
        return [job.result() for job in jobs]


def _judge_one(
    context: Any, folder: Path, student: str, files: list[Path], names: list[str], seconds: float,
    gigabytes: float, done: Callable[[Submission], None],
) -> Submission:  # fmt: skip
    """Start the process of a submission, and gather what it reports until it ends."""
    result = Submission(student)
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="submission-") as scratch:
        args = (theirs, folder, student, files, names, gigabytes, scratch)
        process = context.Process(target=_serve, args=args, daemon=True)
        process.start()
        theirs.close()
        ours.poll(None)  # until it has what it needs, or has ended: no time of the submission's
        end = time.monotonic() + seconds
        result.problem = _gather(ours, result, end, seconds)
        process.join(1)  # to end in its own way, if it does
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.join()
    done(result)
    return result


def _gather(pipe: Connection, result: Submission, end: float, seconds: float) -> str:
    """Take verdicts until the end of the pipe; returns why it ended early."""
    doing, problems = "it began", []
    while True:
        if not pipe.poll(max(end - time.monotonic(), 0)):
            problems.append(f"more than {seconds:g} seconds: stopped while {doing}")
            return "; ".join(problems)
        try:
            kind, *what = json.loads(pipe.recv_bytes(1 << 20))
        except (EOFError, OSError):
            problems.append(f"its process ended while {doing}")
            return "; ".join(problems)
        if kind == "verdict":
            name, verdict = what
            result.verdicts[name] = Verdict(**verdict)
        elif kind == "problem":
            return "; ".join([*problems, what[0]])
        elif kind == "note":
            problems.append(what[0])
        doing = what[0] if kind == "doing" else doing
        if doing == "done":  # whatever threads of its own still do
            return "; ".join(problems)


# --- in the process of a submission


def _serve(
    pipe: Connection, folder: Path, student: str, files: list[Path], names: list[str],
    gigabytes: float, scratch: str,
) -> None:  # fmt: skip
    """Judge a submission and report each verdict."""
    os.setsid()
    _silence()
    for module in _PRELOADED:  # not yet where the program had started the server of forks before
        importlib.import_module(module)
    send = functools.partial(_send, pipe)
    send("doing", "its files were loaded")
    files, folder = [path.resolve() for path in files], folder.resolve()
    for path in files:
        if folder in path.parents and not _is_of(student, path.relative_to(folder)):
            return send("problem", f"it links to another submission, {path.name}")
    os.chdir(scratch)
    size = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    sys.modules["kernels.lab.course.solutions"] = None  # type: ignore[assignment]
    judges = _judges()
    before = [_fingerprint(module) for module in judges]
    sys.addaudithook(guard(scratch, files, folder))
    try:
        for name, kernel, path in _kernels(files, names, Path(scratch), send):
            if [_fingerprint(module) for module in judges] != before:
                return send("problem", f"{path.name} changes the judge")
            send("doing", f"{name} was checked")
            verdict = _verdict(name, kernel, path, student)
            if [_fingerprint(module) for module in judges] != before:
                return send("problem", f"{path.name} changes the judge")
            send("verdict", name, verdict)
        send("doing", "done")
    except MemoryError:
        send("problem", f"more than {gigabytes:g} GB of memory")
    except (Exception, SystemExit) as error:
        send("problem", _reason(error))


def _is_of(student: str, path: Path) -> bool:
    """Whether a path in the folder of all submissions is a student's."""
    first = path.parts[0]
    return student in (first, first if len(path.parts) > 1 else path.stem)


def _silence() -> None:
    """What a submission prints, also past Python's `print`, goes nowhere."""
    sink = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(sink, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends


def _unknown(others: list[str], names: list[str]) -> str:
    """What a submission without an exercise has instead."""
    if not others:
        return f"no kernel in it; an exercise is a kernel named {', '.join(names[:3])}, ..."
    near = did_you_mean(others[0], names)
    named = f"no kernel is named as an exercise: {', '.join(others[:3])}"
    return named + (near or f" (exercises are {', '.join(names[:3])}, ...)")


def _reason(error: BaseException) -> str:
    """Why a file could not be loaded."""
    if isinstance(error, ModuleNotFoundError):
        secret = (error.name or "").startswith("kernels.lab.course.solutions")
        return "a submission may not import the solutions" if secret else str(error)
    text = str(error)
    return text if isinstance(error, PermissionError) else f"{type(error).__name__}: {text}"


def _send(pipe: Connection, *message: Any) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _verdict(name: str, kernel: Any, path: Path, student: str) -> dict[str, Any]:
    from kernels.lab.course import exercises

    started = time.monotonic()
    try:
        found = exercises.check(kernel, name, zlib.crc32(f"{student}/{name}".encode()))
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        found = exercises.Result(False, _reason(error))
    hint = found.hint if found.finding is None else f"{found.hint}\n{found.finding}"
    seconds = round(time.monotonic() - started, 2)
    return asdict(Verdict(found.passed, hint, seconds, path.name))


def _judges() -> list[ModuleType]:
    """The modules whose functions decide."""
    from kernels.lab.course import exercise, exercises, judge, progress, values
    from kernels.lab.course.tasks import basics, bug_hunts, hardware, table
    from kernels.lab.record import cuda_c_profiler, profiler, recorder, run

    tasks = [table, basics, hardware, bug_hunts]
    lab = [exercise, exercises, judge, progress, values, profiler, cuda_c_profiler, recorder, run]
    return [*lab, *tasks, np]


def _fingerprint(module: ModuleType) -> list[tuple[str, Any]]:
    """The names of a module with what they mean."""
    return [(name, _identity(value)) for name, value in vars(module).items()]


def _identity(value: Any, depth: int = 3) -> Any:
    """What tells whether a value was exchanged or changed: the code of functions, the elements of
    containers, the fields of exercises."""
    parts: Any = ()
    if depth and isinstance(value, dict) and len(value) < 1000:
        parts = [(key, _identity(part, depth - 1)) for key, part in value.items()]
    elif depth and isinstance(value, list | tuple) and len(value) < 1000:
        parts = [_identity(part, depth - 1) for part in value]
    elif depth and is_dataclass(value) and not isinstance(value, type):
        parts = _identity(vars(value), depth - 1)
    elif isinstance(value, type):
        parts = [(key, id(part)) for key, part in vars(value).items() if callable(part)]
    return id(value), id(getattr(value, "__code__", None)), parts


def _kernels(
    files: list[Path], names: list[str], scratch: Path, send: Callable
) -> Iterator[tuple[str, Any, Path]]:
    """The kernels of a submission that are named as exercises; the last file's win."""
    found: dict[str, tuple[Any, Path]] = {}
    others: list[str] = []
    failed = False
    for path in files:
        send("doing", f"{path.name} was loaded")
        make = _of_cuda_c(path) if path.suffix == ".cu" else _of_python(path, scratch)
        try:
            for name, kernel in make:
                if name in names:
                    found[name] = kernel, path
                else:
                    others.append(name)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            failed = True
            send("note", f"{path.name}: {_reason(error)}")
    if not found and not failed:
        raise LookupError(_unknown(others, names))
    for name in names:
        if name in found:
            yield name, *found[name]


def _text(path: Path, encoding: str = "utf-8") -> str:
    """A file of a submission."""
    data = path.read_bytes()
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ValueError(f"it is not {encoding}: byte 0x{byte:02x} in line {line}") from None


def _of_cuda_c(path: Path) -> Iterator[tuple[str, Any]]:
    from kernels import raw_kernel
    from kernels.host import source

    code = _text(path)
    for name in source.kernels(code):
        together = source.waits_for_grid(code, name)
        yield name, raw_kernel(code, name, enable_cooperative_groups=together)


def _of_python(path: Path, scratch: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".ipynb":
        target = scratch / f"{path.stem}.py"
        target.write_text(_cells(path), encoding="utf-8")
        path = target
    else:  # Python takes other bytes in comments, and cannot show the source then
        with path.open("rb") as file:
            _text(path, tokenize.detect_encoding(file.readline)[0])
    loader = importlib.machinery.SourceFileLoader("submission", str(path))
    spec = importlib.util.spec_from_file_location("submission", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    from kernels.host import RawKernel
    from kernels.lab.course.exercises import name_of, names

    for name, value in vars(module).items():
        if isinstance(value, RawKernel):
            yield name_of(value), value
        elif hasattr(value, "py_func") or (callable(value) and name in names()):
            yield name, value


def _cells(path: Path) -> str:
    """The code of a notebook: cells that define something, imports, and assignments to names.

    Cells that only show or check something are left out, and so are lines for IPython.
    """
    try:
        cells = json.loads(_text(path))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"it is no notebook ({type(error).__name__}: {error})") from None
    kept = []
    for text in texts:
        lines = [line for line in text.splitlines() if not line.lstrip().startswith(("%", "!"))]
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError as error:
            raise SyntaxError(f"a cell of {path.name}: {error}") from None
        for node in tree.body:
            if isinstance(node, _KEPT):
                marks = getattr(node, "decorator_list", [])
                first = min([node.lineno, *(mark.lineno for mark in marks)])
                kept.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n\n".join(kept) + "\n"
