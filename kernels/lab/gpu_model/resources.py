"""The registers, shared memory, stack and spills of every CUDA C kernel of the catalog.

The launchers choose kernels and instances of templates, so they are asked: `launched` calls every
operation as if its arrays were on a GPU, launches nothing, and notes what would have run. NVRTC
then compiles that. The table is kept in the cache folder, by a digest of the sources.
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

from kernels import dispatch
from kernels.lab.gpu_model import nvrtc, sass
from kernels.support.cache import cache_folder
from kernels.support.errors import CompileError

Row = tuple[str, str]  # family, version
MAIN_TARGET = "80"


def examples(ops: Any) -> Iterator[Callable[[], object]]:
    """Every family and version of a dialect in float32, as functions to call; also float16."""
    from kernels.pointwise import TABLE
    from kernels.reduction import TABLE as REDUCTIONS

    def f(*shape: int) -> np.ndarray:
        return np.ones(shape, np.float32)

    def versions(family: str) -> list[str]:
        return [version for name, version, _ in ops.CATALOG if name == family]

    x2, x3, image = f(29, 43), f(3, 29, 43), f(2, 4, 12, 12)
    index = np.zeros((29, 7), np.int64)
    yield lambda: ops.pointwise(TABLE["add"], x2, x2)
    yield lambda: ops.pointwise(TABLE["add"], x2, x2[0])
    yield from (lambda v=v: ops.reduce("sum", f(3343), version=v) for v in versions("reduce")[:5])
    for name in REDUCTIONS:
        for shape, axis in [((29, 11), 1), ((29, 203), 1), ((2, 70_001), 1), ((37, 43), 0)]:
            yield lambda n=name, s=shape, a=axis: ops.reduce(n, f(*s), a)
    yield from (lambda v=v: ops.transpose(x3, (0, 2, 1), version=v) for v in versions("transpose"))
    yield from (
        lambda v=v: ops.cumsum(f(2, 33_001), version=v)
        for v in versions("cumsum")
        if v != "columns"
    )
    yield lambda: ops.cumsum(x3, 1)
    yield lambda: ops.concat([x2, f(29, 11)], 1)
    yield from products(ops, versions("matmul"), f)
    yield from convolutions(ops, versions, image, f(6, 4, 3, 3), f(6), f(2, 6, 10, 10))
    yield from poolings(ops, versions, image)
    yield from normalisations(ops, versions, f)
    yield from attentions(ops, versions, f)
    yield from (lambda k=k: getattr(ops, k)((1237,), 1, 2, like=x2) for k in ("uniform", "normal"))
    yield lambda: ops.philox_uint32(1237, 1, 2, like=x2)
    yield lambda: ops.dropout(f(1237), 0.5, 1, 2)
    yield lambda: ops.embedding(f(3, 43), index)
    yield lambda: ops.gather(f(3, 7), 0, index)
    for v in versions("scatter_add"):
        yield lambda v=v: ops.embedding_backward(f(203, 43), index.ravel(), 3, version=v)
        yield lambda v=v: ops.scatter_add(f(3, 7), 0, index, f(29, 7), version=v)
    yield lambda: ops.sgd_(f(1237), f(1237), f(1237), 0.1, momentum=0.9)
    slots = [f(1237) for _ in range(4)]
    yield lambda: ops.adam_(*slots, None, 0.1, 0.9, 0.999, 1e-8, 0.1, 1, decoupled=True)


def products(ops, versions, f) -> Iterator[Callable]:
    halves = ("tensor_core", "mma_sync", "wgmma")
    singles = ("double_buffer", "tensor_core_tf32")

    def both_layouts(m: int, n: int, dtype: type, v: str) -> Iterator[Callable]:
        a, b, bias = f(m, 72).astype(dtype), f(72, n).astype(dtype), f(n).astype(dtype)
        yield lambda: ops.matmul(a, b, bias, version=v)
        yield lambda: ops.matmul(a.T.copy().T, b.T.copy().T, version=v)

    for v in versions:
        sizes = (1,) if v == "matvec" else (600, 60)
        if v not in halves:
            for n in sizes:
                yield from both_layouts(600, n, np.float32, v)
        if v not in singles:
            yield from both_layouts(600, sizes[0], np.float16, v)
    for v in halves[1:]:  # their large tiles
        yield next(both_layouts(1200, 3328, np.float16, v))


def convolutions(ops, versions, image, weight, bias, gradient) -> Iterator[Callable]:
    how = ((1, 1), (0, 0), (1, 1), 1)  # stride, padding, dilation, groups
    for v in versions("conv2d"):
        yield lambda v=v: ops.conv2d(image, weight, bias, *how, version=v)
    for v in versions("conv2d_backward_data"):
        yield lambda v=v: ops.conv2d_backward_data(gradient, weight, image.shape, *how, version=v)
    for v in versions("conv2d_backward_weight"):
        yield lambda v=v: ops.conv2d_backward_weight(gradient, image, weight.shape, *how, version=v)


def poolings(ops, versions, image) -> Iterator[Callable]:
    for size, stride in ((2, 2), (3, 2), (2, 3)):  # tiling windows, overlapping ones, gaps
        window = ((size, size), (stride, stride))
        n = (12 - size) // stride + 1
        gradient, index = image[..., :n, :n].copy(), np.zeros((2, 4, n, n), np.int64)
        yield lambda w=window: ops.max_pool2d(image, *w)
        yield lambda w=window, g=gradient, i=index: ops.max_pool2d_backward(g, i, image.shape, *w)
        yield lambda g=gradient, i=index: ops.max_pool2d_backward(g, i, image.shape)
        yield lambda w=window: ops.avg_pool2d(image, *w)
        yield lambda w=window, g=gradient: ops.avg_pool2d_backward(g, image.shape, *w)


def normalisations(ops, versions, f) -> Iterator[Callable]:
    for name in ("softmax", "log_softmax"):
        for v in versions(name):
            x = f(3, 29, 43) if v == "strided" else f(29, 203)
            axis = 1 if v == "strided" else -1
            yield lambda n=name, v=v, x=x, a=axis: getattr(ops, n)(x, a, version=v)
        for v in versions(f"{name}_backward"):
            x = f(3, 29, 43) if v == "strided" else f(29, 203)
            axis = 1 if v == "strided" else -1
            yield lambda n=name, v=v, x=x, a=axis: getattr(ops, f"{n}_backward")(x, x, a, version=v)
    logits, target = f(29, 43), np.zeros(29, np.int64)
    yield lambda: ops.cross_entropy(logits, target)
    yield lambda: ops.cross_entropy_backward(f(29), logits, f(29), target)
    for x in (f(5, 4, 12, 12), f(37, 19)):
        per = [f(x.shape[1]) for _ in range(4)]
        yield lambda x=x, p=per: ops.batch_norm(x, p[0], p[1], 1e-5)
        yield lambda x=x, p=per: ops.batch_norm_apply(x, *p)
        yield lambda x=x, p=per: ops.batch_norm_backward(x, x, p[0], p[1], p[2])
    for n in (203, 1000):
        x, row, column = f(129, n), f(n), f(129)
        for v in versions("layer_norm"):
            yield lambda x=x, w=row, v=v: ops.layer_norm(x, w, w, 1e-5, version=v)
            yield lambda x=x, w=row, v=v: ops.rms_norm(x, w, 1e-5, version=v)
        for v in ("block", "warp"):  # each with the sums for weight and bias
            given = (x, x, column, column, row)
            yield lambda a=given, v=v: ops.layer_norm_backward(*a, version=v)
            yield lambda a=given, v=v: ops.rms_norm_backward(*a[:3], a[4], version=v)


def attentions(ops, versions, f) -> Iterator[Callable]:
    masks = {"none": None, "add": f(33, 65), "keep": np.ones((33, 65), bool)}
    for width, kind in ((16, "none"), (64, "none"), (64, "add"), (64, "keep"), (128, "none")):
        q, k, mask = f(1, 2, 33, width), f(1, 2, 65, width), masks[kind]
        given = (q, q, k, k, q, f(1, 2, 33), mask)
        for v in versions("attention"):
            yield lambda q=q, k=k, m=mask, v=v: ops.attention(q, k, k, m, version=v)
            yield lambda a=given, v=v: ops.attention_backward(*a, version=v)


@contextmanager
def noting() -> Iterator[dict[Row, dict[Any, int]]]:
    """While open, launchers choose as for arrays on a GPU, and what they would launch is noted,
    with its bytes of dynamic shared memory."""
    from kernels.launchers import common

    rows: dict[Row, dict[Any, int]] = {}

    def launcher(family: str, version: str, kernel, grid, block) -> Callable[..., None]:
        def launch(*args) -> None:
            raw = kernel.instance(*args)
            rows.setdefault((family.split(".")[0], version), {})[raw] = kernel.shared

        return launch

    instead = {
        "launcher": launcher,
        "on_gpu": lambda a: True,
        "compute_capability": lambda a: (9, 0),
        "namespace": lambda a: np,
    }
    modules = [m for name, m in sys.modules.items() if name.startswith("kernels.launchers")]
    before = [(m, name, vars(m)[name]) for m in modules for name in instead if name in vars(m)]
    assert (common, "launcher", common.launcher) in before
    try:
        for module, name, _ in before:
            setattr(module, name, instead[name])
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


def measure(target: str) -> list[Line]:
    """Compile the kernels of the catalog for "sm_" + target: all for MAIN_TARGET (or what they need
    instead), for the others one instance of each template. Raises CompileError.

    Where nvdisasm is installed, opcodes are known of the versions in MAIN_TARGET that are about
    instructions: it takes half a second for each source.
    """
    ops = dispatch.dialect("cupy")
    with noting() as rows:
        for call in examples(ops):
            call()
    jobs: dict[str, list[str]] = {}
    main, templates, instead = target == MAIN_TARGET, set(), {}
    shown = {
        raw.code
        for family, version, idea in ops.CATALOG
        if family == "matmul" or "16-byte" in idea
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
        facts = dict(zip(jobs, built))

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


def table(target: str = MAIN_TARGET) -> list[Line] | None:
    """`measure` from the cache, or made now in a process of its own, which takes half a minute;
    None where NVRTC is not installed. Raises CompileError."""
    if not dispatch.installed("cupy") or not nvrtc.available():
        return None
    path = _file(target)
    if not path.exists():
        command = [sys.executable, "-m", "kernels.lab.gpu_model.resources", target, str(path)]
        folders = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise CompileError(done.stderr.strip())
    rows = json.loads(path.read_text())
    for row in rows:
        row[4]["opcodes"] = tuple(row[4]["opcodes"])
    return [Line(*row[:4], nvrtc.Facts(**row[4])) for row in rows]


def will_compile(target: str = MAIN_TARGET) -> bool:
    """Whether `table` would take its half minute."""
    return dispatch.installed("cupy") and nvrtc.available() and not _file(target).exists()


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


def _file(target: str) -> Path:
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
    return cache_folder() / f"resources-sm{target}-{digest.hexdigest()[:24]}.json"


if __name__ == "__main__":
    measured = [[*astuple(line)[:4], asdict(line.facts)] for line in measure(sys.argv[1])]
    temporary = Path(f"{sys.argv[2]}.{os.getpid()}")
    temporary.write_text(json.dumps(measured))
    temporary.replace(sys.argv[2])
