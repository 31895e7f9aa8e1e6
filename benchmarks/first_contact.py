"""What works on a GPU that this project sees for the first time: one command, nothing to install.

    python3 benchmarks/first_contact.py --minutes 9 --out DIR

runs on a machine with numba-cuda, CuPy and this checkout (and torch, compute-sanitizer and Nsight
Compute, where they are). Each phase is a process of its own with its own limit, so that a crash or
a hang costs that phase alone; the first phases are those that tell most. `DIR/results.jsonl` is
written as it goes, a line for each result; `DIR/page.md` has them as a page, failures first; beside
them are the JUnit file of the tests and a log of each phase.

`--software` runs it on the software GPU of the tests (tests/software_gpu), which shows that the
command works; its times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]


@dataclass
class Phase:
    """A name, the command, its share of the time, and what must be there for it."""

    name: str
    command: list[str]
    share: float


def own(name: str) -> list[str]:
    """The command of a phase that is a function of this file."""
    return [sys.executable, str(Path(__file__).resolve()), "--phase", name]


def phases(out: Path, software: bool) -> list[Phase]:
    """All phases, the most telling first. Shares are of the time that is left."""
    gpu = ["--gpu=software"] if software else []
    tests = [*PYTEST, *gpu, f"--junitxml={out / 'tests.xml'}"]
    tests += ["-n", str(min(8, os.cpu_count() or 1))]
    sanitizer = ["compute-sanitizer", "--error-exitcode", "1", "--launch-timeout", "60"]
    sanitizer += ["--report-api-errors", "no"]  # cuda-bindings asks for functions of newer drivers
    found = [
        Phase("doctor", [sys.executable, "-m", "minigrad", "doctor"], 0.1),
        Phase("families", own("families"), 0.3),
        Phase("devices", own("devices"), 0.1),
        Phase("launches", own("launches"), 0.1),
        Phase("times", own("times"), 0.3),
        Phase("step", own("step"), 0.2),
        Phase("tests", tests, 0.6),
    ]
    if not software:
        found += [
            Phase("memcheck", [*sanitizer, "--tool", "memcheck", *own("families")], 0.5),
            Phase("racecheck", [*sanitizer, "--tool", "racecheck", *own("families")], 0.7),
            Phase("lab", [sys.executable, str(ROOT / "benchmarks" / "lab_vs_ncu.py")], 0.7),
            *(
                Phase(f"train {b}", [sys.executable, "-m", "minigrad", "train", "--epochs", "1"], 1)
                for b in ("numba", "cupy")
            ),
        ]
    return found


def run(phase: Phase, out: Path, seconds: float, software: bool) -> dict[str, Any]:
    """One phase in a process; its results go to `results.jsonl`."""
    environment = dict(os.environ, FIRST_CONTACT_OUT=str(out), PYTHONPATH=str(ROOT))
    if software:
        environment["FIRST_CONTACT_SOFTWARE"] = "1"
    if phase.name.startswith("train "):
        environment["MINIGRAD_BACKEND"] = phase.name.split()[1]
    started = time.monotonic()
    log = out / f"{phase.name.replace(' ', '-')}.log"
    with log.open("w") as file:
        try:
            status = _ended(phase.command, seconds, cwd=ROOT, env=environment, stdout=file,
                            stderr=file, start_new_session=True)  # fmt: skip
        except OSError as error:
            status = str(error)
    took = time.monotonic() - started
    return {"phase": phase.name, "status": status, "seconds": round(took, 1), "log": log.name}


def _ended(command: list[str], seconds: float, **options: Any) -> int | str:
    """The status of a command, or that it has not ended. Near its limit it is interrupted, so that
    pytest writes its JUnit file of what ran; then it is killed, with what it has started."""
    grace = min(20, seconds / 2)
    process = subprocess.Popen(command, **options)
    try:
        return process.wait(seconds - grace)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        return f"no end within {seconds:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def note(**result: Any) -> None:
    """Append a result to `results.jsonl`."""
    with (Path(os.environ["FIRST_CONTACT_OUT"]) / "results.jsonl").open("a") as file:
        file.write(json.dumps(result, default=str) + "\n")


# ---- phases that are functions


def families() -> None:
    """Every family, version and dialect once, against the reference in float64."""
    import numpy as np

    from kernels import dispatch, launchers, reference
    from tests.kernels.helpers import as_wide, assert_close, put, wide
    from tests.kernels.test_parity import LIKE, cases, placed, results

    for backend in ("numba", "cupy"):
        dialect = dispatch.dialect(backend)
        for family in launchers.declared().values():
            if launchers.lacks(backend, family):
                continue
            for name, args, how, scale in cases(family, backend, np.random.default_rng(0)):
                what = {"operation": name, "backend": backend, "version": how.get("version", "")}
                try:
                    wanted = {k: v for k, v in how.items() if k != "version"}
                    with np.errstate(all="ignore"):
                        exact = args if name in LIKE else [as_wide(placed(a, "cpu")) for a in args]
                        expected = results(getattr(reference, name), exact, wanted)
                    extra = {"like": put(np.zeros(1), "gpu")} if name in LIKE else {}
                    there = [placed(a, "gpu") for a in args]
                    got = results(getattr(dialect, name), there, {**how, **extra})
                    for a, b in zip(got, expected, strict=True):
                        assert_close(a, wide(np.asarray(b)), scale, terms=9)
                    note(test="family", **what, passed=True)
                except Exception as error:
                    note(test="family", **what, passed=False, error=str(error)[:500])


def devices() -> None:
    """Mixed devices, streams, limits, and arrays of more than 2^31 elements where they fit."""
    import numpy as np

    import minigrad as mg

    def mixed() -> None:
        try:
            mg.ones(3) + mg.ones(3, device="cuda")
        except RuntimeError as error:
            assert "same device" in str(error)
        else:
            raise AssertionError("tensors of different devices were added")

    def streams() -> None:
        x, stream = mg.arange(1000.0, device="cuda"), mg.cuda.Stream()
        stream.wait_stream(mg.cuda.current_stream())
        with mg.cuda.stream(stream):
            y = x * 2
        stream.synchronize()
        assert (y.cpu().numpy() == 2 * np.arange(1000)).all()

    def tall() -> None:
        a = mg.ones(600_000, 8, device="cuda")
        assert (a @ mg.ones(8, 1, device="cuda")).sum().item() == 4_800_000

    def large() -> None:
        import cupy

        free, _ = cupy.cuda.runtime.memGetInfo()
        if free < 3 * 2**31 or os.environ.get("FIRST_CONTACT_SOFTWARE"):
            return
        x = mg.ones(2**31 + 8, dtype=mg.int8, device="cuda")
        assert (x + x)[-1].item() == 2

    for check in (mixed, streams, tall, large):
        try:
            check()
            note(test="device", what=check.__name__, passed=True)
        except Exception as error:
            note(test="device", what=check.__name__, passed=False, error=str(error)[:500])


def launches() -> None:
    """Host time of a launch, once planned."""
    import cupy
    import numpy as np

    from kernels import dispatch
    from kernels.pointwise import TABLE

    x = cupy.ones(1000, np.float32)
    for backend in ("numba", "cupy"):
        pointwise = dispatch.dialect(backend).pointwise
        call = functools.partial(pointwise, TABLE["add"], x, x, out=x)
        call()
        seconds = []
        for _ in range(5):
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            for _ in range(100):
                call()
            seconds.append((time.perf_counter() - start) / 100)
        note(measured="launch of an addition", backend=backend, us=min(seconds) * 1e6)


def by_events(call: Any, turns: int, calls: int = 10) -> float:
    """Seconds of a call on the GPU, the median of `turns`. The GPU is kept busy until the host has
    launched all calls of a turn, so that the host's time is not in it."""
    import cupy

    from tests.kernels.helpers import occupy_gpu

    occupy_gpu(0)  # compiled
    for _ in range(2):  # the first compiles
        began = time.perf_counter()
        call()
    ahead = 3 * calls * (time.perf_counter() - began) + 1e-3
    found = []
    for _ in range(turns):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        occupy_gpu(ahead)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / calls)
    return sorted(found)[len(found) // 2]


def times() -> None:
    """The main families beside torch, where it is installed."""
    import numpy as np

    import minigrad as mg

    software = bool(os.environ.get("FIRST_CONTACT_SOFTWARE"))
    n, turns = (64, 1) if software else (4096, 5)
    try:
        import torch

        torch = torch if torch.cuda.is_available() else None
    except ImportError:
        torch = None
    programs = {
        "copy": lambda m, a: a.clone(),
        "matmul": lambda m, a: a @ a,
        "softmax": lambda m, a: a.softmax(-1),
        "sum": lambda m, a: a.sum(),
        "layer_norm": lambda m, a: m.nn.functional.layer_norm(a, (n,)),
        "conv2d": lambda m, a: m.nn.functional.conv2d(
            a.reshape(n // 16, 16, n // 16, 16), a.reshape(-1)[: 16 * 16 * 9].reshape(16, 16, 3, 3)
        ),
        "attention": lambda m, a: m.nn.functional.scaled_dot_product_attention(
            *[a.reshape(1, n // 64, n, 64)] * 3
        ),
    }
    host = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    for dtype in ("float32", "float16"):
        rival = None
        if torch is not None:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            rival = torch.from_numpy(host).cuda().to(getattr(torch, dtype))
        for backend in ("numba", "cupy"):
            a = mg.from_numpy(host).cuda().to(getattr(mg, dtype))
            for name, program in programs.items():
                what = {"measured": name, "dtype": dtype, "backend": backend, "n": n}
                try:
                    with mg.backends.use(backend), mg.no_grad():
                        ours = by_events(functools.partial(program, mg, a), turns)
                    theirs = None
                    if rival is not None:
                        theirs = by_events(functools.partial(program, torch, rival), turns)
                    note(**what, us=ours * 1e6, torch_us=theirs and theirs * 1e6)
                except Exception as error:
                    note(**what, passed=False, error=str(error)[:500])


def step() -> None:
    """Host and device time of a training step of the digits CNN, by launches."""
    import minigrad as mg
    from kernels import trace
    from minigrad.commands import models

    model = models.cnn(mg.nn, 1, 8, 8).cuda()
    optimizer = mg.optim.Adam(model.parameters())
    x = mg.rand(64, 1, 8, 8, device="cuda")
    y = mg.arange(64, device="cuda") % 10

    def one() -> None:
        optimizer.zero_grad()
        mg.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for backend in ("numba", "cupy"):
        with mg.backends.use(backend):
            began = time.perf_counter()
            one()
            mg.cuda.synchronize()
            first = time.perf_counter() - began
            began = time.perf_counter()
            for _ in range(3):
                one()
            queued = (time.perf_counter() - began) / 3
            mg.cuda.synchronize()
            whole = (time.perf_counter() - began) / 3
            with trace() as launched:
                one()
        count = sum(int(row[0]) for row in launched.rows.values())
        note(measured="training step", backend=backend, launches=count, first_s=first,
             host_us=queued * 1e6, us=whole * 1e6)  # fmt: skip


def note_tests(path: Path) -> None:
    """What pytest's JUnit file says, as results: how many passed, and each failure."""
    cases = list(ElementTree.parse(path).iter("testcase")) if path.exists() else []
    for case in filter(lambda case: case.get("name"), cases):  # none: it was interrupted
        bad = [part for part in case if part.tag in ("failure", "error")]
        name = f"{case.get('classname')}::{case.get('name')}"
        if bad:
            note(test=name, passed=False, error=bad[0].get("message", ""))
        elif case.find("skipped") is None:
            note(test=name, passed=True)


PHASES = {f.__name__: f for f in (families, devices, launches, times, step)}


# ---- the page


def lines_of(out: Path) -> Iterator[dict[str, Any]]:
    path = out / "results.jsonl"
    yield from map(json.loads, path.read_text().splitlines() if path.exists() else [])


def page(out: Path, software: bool) -> str:
    """The results as Markdown, failures first."""
    results = list(lines_of(out))
    failed = [r for r in results if r.get("passed") is False]
    ended = [r for r in results if "phase" in r]
    rows = ["# First contact", "", f"{time.strftime('%Y-%m-%d')}, {_machine(software)}.", ""]
    rows += [f"{len(failed)} failed, {sum(r.get('passed') is True for r in results)} passed."]
    unfinished = [f"{r['phase']} ({r['status']})" for r in ended if r["status"] != 0]
    rows += [f"Phases that did not end well: {', '.join(unfinished)}."] if unfinished else []
    skipped = [r["left_out"] for r in results if "left_out" in r]
    rows += [f"No time was left for: {', '.join(skipped)}."] if skipped else []
    rows.append("")
    if failed:
        rows += ["## Failures", ""]
        groups = Counter(str(r.get("error", "")).splitlines()[0][:100] for r in failed)
        rows += [f"- {count} x {text or '(no message)'}" for text, count in groups.most_common()]
        rows += ["", *(f"- {json.dumps(r)}" for r in failed), ""]
    rows += ["## Phases", "", "| phase | status | seconds | log |", "| --- | --- | ---: | --- |"]
    rows += [f"| {r['phase']} | {r['status']} | {r['seconds']} | {r['log']} |" for r in ended]
    steps = [r for r in results if "host_us" in r]
    measured = [r for r in results if "us" in r and r not in steps]
    rows += ["", "## Times", ""]
    rows += ["| what | n | dialect | dtype | us | torch, us | of torch's speed |"]
    rows += ["| --- | ---: | --- | --- | ---: | ---: | ---: |"]
    for r in measured:
        theirs = r.get("torch_us")
        beside = f"{theirs:,.1f} | {theirs / r['us']:.0%}" if theirs else " | "
        what = f"{r['measured']} | {r.get('n', '')} | {r['backend']} | {r.get('dtype', '')}"
        rows.append(f"| {what} | {r['us']:,.1f} | {beside} |")
    rows += ["", "n: the matrix is n x n; the others compute with as many elements.", ""]
    rows += ["## A training step of the digits CNN", ""]
    rows += ["| dialect | first step, s | a step, ms | of it, until all is queued, ms | launches |"]
    rows += ["| --- | ---: | ---: | ---: | ---: |"]
    for r in steps:
        numbers = f"{r['first_s']:.2f} | {r['us'] / 1e3:,.2f} | {r['host_us'] / 1e3:,.2f}"
        rows.append(f"| {r['backend']} | {numbers} | {r['launches']} |")
    return "\n".join([*rows, ""])


def _machine(software: bool) -> str:
    if software:
        return "on the software GPU of the tests: the times mean nothing"
    sys.path.insert(0, str(ROOT))
    from minigrad.commands import gpu

    driver = gpu.query()
    names = ", ".join(card.name for card in driver.gpus) or driver.problem
    return f"on {names}, driver for CUDA {driver.cuda_version}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=9, help="for all phases together")
    parser.add_argument("--out", type=Path, default=Path("first_contact"))
    parser.add_argument("--software", action="store_true", help="on the software GPU of the tests")
    parser.add_argument("--only", nargs="*", help="phases to run (default: all)")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.phase:
        sys.path.insert(0, str(ROOT))
        if os.environ.get("FIRST_CONTACT_SOFTWARE"):
            from tests import software_gpu

            software_gpu.install()
        PHASES[given.phase]()
        return 0
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["FIRST_CONTACT_OUT"] = str(out)
    ends = time.monotonic() + 60 * given.minutes
    for phase in phases(out, given.software):
        if given.only and phase.name not in given.only:
            continue
        left = ends - time.monotonic()
        if left < 5:
            note(left_out=phase.name)
            continue
        result = run(phase, out, max(left * phase.share, min(left, 30)), given.software)
        if phase.name == "tests":
            note_tests(out / "tests.xml")
        note(**result)
        print(f"{phase.name:<12} {result['status']!s:<6} {result['seconds']:>7.1f} s", flush=True)
        (out / "page.md").write_text(page(out, given.software))
    (out / "page.md").write_text(page(out, given.software))
    print(f"\n{out / 'page.md'}")
    failed = any(r.get("passed") is False for r in lines_of(out))
    return 1 if failed or any(r.get("status", 0) != 0 for r in lines_of(out)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
