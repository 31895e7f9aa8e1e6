"""The registers, shared memory, stack and spills of every CUDA C kernel of the catalog.

The launchers choose kernels and instances of templates, so they are asked: `launched` makes the
calls that each family declares as if its arrays were on a GPU, launches nothing, and notes what
would have run. NVRTC then compiles that. The table is kept in the cache folder, by a digest of the
sources.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from kernels import dispatch, launchers
from kernels.lab.gpu_model import nvrtc, sass
from kernels.support.cache import alone, cache_folder, is_intact, seal
from kernels.support.errors import CompileError

Row = tuple[str, str]  # family, version
MAIN_TARGET = "80"


def launched(dialect: str, only: str | None = None) -> dict[Row, list[tuple[Any, tuple]]]:
    """By row of the catalog, the (kernel, arguments) that a dialect would launch on a GPU; `only`
    those of one operation."""
    operations = dispatch.dialect(dialect)
    versions = functools.partial(launchers.versions, dialect)
    with noting() as rows:
        for family in launchers.declared().values():
            calls = () if launchers.lacks(dialect, family) else family.compiled(versions)
            for name, args, keywords in calls:
                if only in (None, name):
                    getattr(operations, name)(*args, **keywords)
    return {row: noted for row, noted in rows.items() if only in (None, row[0])}


@contextmanager
def noting() -> Iterator[dict[Row, list[tuple[Any, tuple]]]]:
    """While open, launchers choose as for arrays on a GPU; what they would launch is noted."""
    from kernels.launchers import common, declared
    from kernels.launchers.plans import Plans

    declared()  # imports all launchers: one imported below would keep what stands in for common's
    rows: dict[Row, list[tuple[Any, tuple]]] = {}

    def launcher(family: str, version: str, kernel, grid, block) -> Callable[..., None]:
        def launch(*args) -> None:
            rows.setdefault((family.split(".")[0], version), []).append((kernel, args))

        return launch

    instead = {
        "launcher": launcher,
        "on_gpu": lambda a: True,
        "compute_capability": lambda a: (9, 0),
        "namespace": lambda a: np,
    }
    modules = [m for name, m in sys.modules.items() if name.startswith("kernels.launchers")]
    names = (*instead, "_plans")  # what is planned now launches nothing: forget it afterwards
    before = [(m, name, vars(m)[name]) for m in modules for name in names if name in vars(m)]
    assert (common, "launcher", common.launcher) in before
    try:
        for module, name, _ in before:
            setattr(module, name, instead.get(name) or Plans())
        yield rows
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@dataclass(frozen=True)
class Line:
    """A kernel of a row of the catalog, compiled for one target ("80" for sm_80)."""

    family: str
    version: str
    kernel: str
    target: str
    facts: nvrtc.Facts


def measure(target: str, only: str | None = None) -> list[Line]:
    """Compile the kernels of the catalog for "sm_" + target: all for MAIN_TARGET (or what they need
    instead), for the others one instance of each template; `only` those of one operation. Raises
    CompileError. A progress bar shows on a terminal.

    Where nvdisasm is installed, opcodes are known of the versions in MAIN_TARGET that are about
    instructions: it takes half a second for each source.
    """
    rows = {
        row: {kernel.instance(*args): kernel.shared for kernel, args in launches}
        for row, launches in launched("cupy", only).items()
    }
    jobs: dict[str, list[str]] = {}
    main, templates, instead = target == MAIN_TARGET, set(), {}
    shown = {
        raw.code
        for family, version, idea in launchers.catalog("cupy")
        if family == "matmul" or "16-byte" in idea or version in ("double_buffer", "mma_sync")
        for raw in rows.get((family, version), ())
        if main and _can_disassemble()
    }
    for code, name in {(raw.code, raw.name): raw for noted in rows.values() for raw in noted}:
        template, fit = (code, name.partition("<")[0]), nvrtc.targets(code)
        instead[code] = fit[0] if main and target not in fit else target
        if instead[code] in fit and (main or template not in templates):
            templates.add(template)
            jobs.setdefault(code, []).append(name)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(
            lambda code: nvrtc.build(code, jobs[code], instead[code], disassemble=code in shown),
            jobs,
        )
        bar = tqdm(built, "compiling", len(jobs), unit="file", leave=False, disable=None)
        facts = dict(zip(jobs, bar))

    def line(row: Row, raw: Any, dynamic: int) -> Line:
        own = facts[raw.code][raw.name]
        own = replace(own, shared=own.shared + dynamic)
        return Line(*row, raw.name, instead[raw.code], own)

    return [
        line(row, raw, dynamic)
        for row, noted in rows.items()
        for raw, dynamic in noted.items()
        if raw.name in facts.get(raw.code, ())
    ]


@functools.cache
def _can_disassemble() -> bool:
    try:
        return bool(sass.find_nvdisasm())
    except CompileError:
        return False


def table(target: str = MAIN_TARGET, only: str | None = None) -> list[Line] | None:
    """`measure` from the cache, or made now in a process of its own, which takes half a minute for
    all operations; None where NVRTC is not installed. Raises CompileError."""
    if not dispatch.installed("cupy") or not nvrtc.available():
        return None
    path = _kept(target, only)
    if not is_intact(path):
        with alone(path):
            if not is_intact(path):  # no other process has made it meanwhile
                _make(path, target, only)
    rows = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        row[4]["opcodes"] = tuple(row[4]["opcodes"])
    lines = [Line(*row[:4], nvrtc.Facts(**row[4])) for row in rows]
    return [line for line in lines if only in (None, line.family)]


def _make(path: Path, target: str, only: str | None) -> None:
    command = [sys.executable, "-m", "kernels.lab.gpu_model.resources", target, str(path)]
    command += [] if only is None else [only]
    folders = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    shown = sys.stderr.isatty()  # then the progress bar goes there, and so does an error
    errors = None if shown else subprocess.PIPE
    done = subprocess.run(command, stderr=errors, text=True, env=environment)
    if done.returncode:
        raise CompileError((done.stderr or "the CUDA C kernels do not compile").strip())
    seal(path, [path])


def will_compile(target: str = MAIN_TARGET, only: str | None = None) -> bool:
    """Whether `table` would take its time."""
    installed = dispatch.installed("cupy") and nvrtc.available()
    return installed and not is_intact(_kept(target, only))


def _kept(target: str, only: str | None) -> Path:
    """Where the table of all operations is kept, if it is, else that of `only` one."""
    whole = _file(target, "")
    return whole if only is None or is_intact(whole) else _file(target, f"-{only}")


def most(lines: list[Line]) -> dict[Row, nvrtc.Facts]:
    """By row of the catalog, the most that any of its kernels takes, and all their opcodes."""
    rows: dict[Row, list[nvrtc.Facts]] = {}
    for line in lines:
        rows.setdefault((line.family, line.version), []).append(line.facts)
    numbers = [field.name for field in fields(nvrtc.Facts) if field.name != "opcodes"]
    return {
        row: nvrtc.Facts(
            *(max(getattr(f, number) for f in facts) for number in numbers),
            tuple(sorted({opcode for f in facts for opcode in f.opcodes})),
        )
        for row, facts in rows.items()
    }


def _file(target: str, of: str) -> Path:
    """Named by a digest of all that decides what is compiled, and of the compiler."""
    from cuda.bindings import nvrtc as bindings

    digest = hashlib.sha256(f"{bindings.nvrtcVersion()} {_can_disassemble()}".encode())
    root = Path(__file__).parents[2]
    files = [*root.glob("*.py")]
    files += [root / f"lab/gpu_model/{name}.py" for name in ("sass", "nvrtc", "resources")]
    for folder in ("cuda_c", "launchers"):
        files += [path for path in (root / folder).iterdir() if path.is_file()]
    for path in sorted(files):
        digest.update(path.read_bytes())
    return cache_folder() / f"resources-sm{target}{of}-{digest.hexdigest()[:24]}.json"


if __name__ == "__main__":
    lines = measure(sys.argv[1], *sys.argv[3:])
    measured = [[*astuple(line)[:4], asdict(line.facts)] for line in lines]
    temporary = Path(f"{sys.argv[2]}.{os.getpid()}")
    temporary.write_text(json.dumps(measured), encoding="utf-8")
    temporary.replace(sys.argv[2])
