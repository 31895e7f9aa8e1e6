"""Every version of the main operations, in both dialects, beside the libraries and the machine.

    minigrad bench cpu [--only matmul] [--minutes 9] [--plot DIR] [--json]
    minigrad bench gpu ...

An operation's versions, NumPy's and torch's function for it, a copy and a matrix product of a
library take turns. The limit is the time that the machine needs at least: the operation's bytes at
the speed of that copy, or its arithmetic at the speed of the fastest library's product,
whichever is longer; what beats it has its data in a cache, or computes faster than that library.
Results are compared with the reference in float64 first, on other inputs, in memory that holds NaN.

With `--json` each operation is written as soon as it is done, and a second run on the same day
goes on where the first one stopped: `--minutes` does it in parts. `--plot` draws what the file has.
"""

# ruff: noqa: E402 - the thread counts must be set before NumPy loads its BLAS

from __future__ import annotations

import os
import sys

_THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv[:-1] else "1"
for _name in ("OPENBLAS", "OMP", "MKL", "MINIGRAD"):
    os.environ[f"{_name}_NUM_THREADS"] = _THREADS

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import ml_dtypes
import numpy as np
from ladder_problems import PROBLEMS, Problem

from kernels import dispatch, launchers, reference, simt
from kernels.door import no_gpu

DIALECTS = {"numba": "Numba", "cupy": "CUDA C"}


class Host:
    """NumPy's arrays, and this processor."""

    name, dtypes, side = "cpu", ("float32",), 512  # side: of the product for the limit

    def size(self, problem: Problem) -> tuple[int, ...]:
        return problem.sizes["cpu"]

    def put(self, array: np.ndarray) -> Any:
        return array

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def torch(self, torch: Any, array: Any) -> Any:
        return torch.from_numpy(array)

    def finish(self) -> None:
        """All that was launched has ended."""

    def copy(self, target: Any, source: Any) -> None:
        np.copyto(target, source)


class Device:
    """CuPy's arrays, and a GPU."""

    name, dtypes = "gpu", ("float32", "float16")

    def __init__(self, software: bool) -> None:
        self.software, self.side = software, 64 if software else 4096
        if software:
            from tests import software_gpu

            software_gpu.install()
        elif reason := no_gpu():
            sys.exit(f"minigrad bench gpu: {reason}")
        import cupy

        self.cupy, self.finish = cupy, cupy.cuda.Device().synchronize

    def size(self, problem: Problem) -> tuple[int, ...]:
        if self.software:
            return tuple([min(n, 64) for n in problem.sizes["cpu"]])
        return problem.sizes["gpu"]

    def put(self, array: np.ndarray) -> Any:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        return array.get()

    def torch(self, torch: Any, array: Any) -> Any:
        return torch.from_dlpack(array)

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source


Place = Host | Device


def torch_for(place: Place) -> Any:
    """torch, if it is installed and has such a device."""
    try:
        import torch
    except ImportError:
        return None
    if place.name == "gpu" and not torch.cuda.is_available():
        return None
    torch.set_num_threads(int(_THREADS))
    torch.set_grad_enabled(False)
    if place.name == "gpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch


def rounded(problem: Problem, arrays: tuple, dtype: str) -> tuple:
    """The floating arrays in the dtype, but for those that are always float32."""
    return tuple([
        a.astype(dtype) if a.dtype == np.float32 and i not in problem.float32 else a
        for i, a in enumerate(arrays)
    ])  # fmt: skip


def call_of(problem: Problem, dialect: str, version: str, args: tuple) -> Callable[[], Any]:
    operation = getattr(dispatch.dialect(dialect), problem.operation)
    return lambda: operation(*args, version=version)


def as_list(result: Any) -> list:
    return list(result) if isinstance(result, tuple) else [result]


def poison(place: Place, results: list) -> None:
    """Leave memory of these sizes behind that holds NaN: the next arrays of that size get it."""
    for array in results:
        value = np.nan if array.dtype.kind == "f" else 77
        left = place.put(np.full(array.shape, value, array.dtype))
        del left


def error_of(place: Place, result: list, expected: list) -> float:
    """The largest error of a result, relative to the largest number in it, in units of rounding
    of its dtype. NaN for a shape or a number that cannot be compared."""
    errors = [0.0]
    for a, b in zip(map(place.get, result), expected, strict=True):
        if a.shape != b.shape:
            return float("nan")
        unit = float(ml_dtypes.finfo(a.dtype).eps)
        errors.append(float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max()) / unit)
    return float(np.max(errors))  # NaN if one is


def allowed(version: str, dtype: str) -> float:
    """The error that a version may have, in units of rounding: TF32 has 13 bits less."""
    return 64.0 * (2**13 if "tf32" in version and dtype == "float32" else 1)


def check(problem: Problem, place: Place, dtype: str, keys: list) -> dict[tuple, float | str]:
    """The error of each version, or why it does not take the problem."""
    size = place.size(problem)
    arrays = rounded(problem, problem.arrays(np.random.default_rng(time.time_ns()), *size), dtype)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    operation = getattr(reference, problem.operation)
    exact = as_list(operation(*problem.arguments(tuple(wide), size)))
    args = problem.arguments(tuple(map(place.put, arrays)), size)
    found: dict[tuple, float | str] = {}
    for dialect, version in keys:
        run = call_of(problem, dialect, version, args)
        try:
            poison(place, as_list(run()))
            found[dialect, version] = error_of(place, as_list(run()), exact)
        except (ValueError, RuntimeError, TypeError, NotImplementedError) as refused:
            found[dialect, version] = str(refused)
    return found


def least(problem: Problem, args: tuple) -> tuple[int, int]:
    """(floating-point operations, bytes read and written) of a problem."""
    made, flops = launchers.operations()[problem.operation].cost(*args)
    arrays = [a for a in args if hasattr(a, "nbytes")]
    written = sum(int(np.prod(shape)) * np.dtype(d).itemsize for shape, d in filter(None, made))
    return flops, sum(a.nbytes for a in arrays) + written


def versions(operation: Any, dialect: str, device: str) -> list[str]:
    """The versions that the device runs, naive to fast, but for those that the shapes choose."""
    own = operation.versions if operation.dialects is None else operation.dialects[dialect]
    return [name for name in own if device == "gpu" or name not in operation.gpu_only]


def libraries(problem: Problem, place: Place, arrays: tuple, torch: Any) -> dict[Any, Callable]:
    """The functions of NumPy and torch for the problem, and what the limit is taken from."""
    size, n = place.size(problem), place.side
    found: dict[Any, Callable] = {}
    if place.name == "cpu" and problem.numpy is not None:
        found["NumPy"] = lambda: problem.numpy(*arrays)
    square = place.put(np.ones((n, n), arrays[0].dtype))
    found["product"] = lambda: square @ square
    if torch is not None:
        tensors = [place.torch(torch, a) for a in arrays]
        extra = problem.rest(*size) if problem.torch_takes_rest else ()
        found["torch"] = problem.torch(torch, *tensors, *extra)
        matrix = place.torch(torch, square)
        found["torch's product"] = lambda: matrix @ matrix
    half = max(least(problem, problem.arguments(arrays, size))[1] // 2, 1)
    source, target = (place.put(np.ones(half, np.uint8)) for _ in range(2))
    found["copy"] = lambda: place.copy(target, source)
    return found


def limit_of(problem: Problem, place: Place, args: tuple, times: dict) -> dict:
    """What all rows of a problem share: its work, and the limit. Takes the times of the product
    and the copy out of `times`."""
    flops, moved = least(problem, args)
    products = [times.pop(name).median for name in ("product", "torch's product") if name in times]
    speed, copy = 2 * place.side**3 / min(products), times.pop("copy").median
    by = {"arithmetic": flops / speed, "bytes": copy}
    name = max(by, key=lambda name: by[name])
    return {
        "operation": problem.operation, "size": list(place.size(problem)), "flops": flops,
        "bytes": moved, "limit": by[name], "limited by": name, "product GFLOP/s": speed / 1e9,
        "copy GB/s": moved / copy / 1e9,
    }  # fmt: skip


def measured(problem: Problem, place: Place, dtype: str, turns: int) -> list[dict]:
    """A row for each version and each library."""
    operation = launchers.operations()[problem.operation]
    keys = [(d, version) for d in DIALECTS for version in versions(operation, d, place.name)]
    errors = check(problem, place, dtype, keys)
    size = place.size(problem)
    arrays = rounded(problem, problem.arrays(np.random.default_rng(0), *size), dtype)
    there = tuple(map(place.put, arrays))
    args = problem.arguments(there, size)
    functions: dict[Any, Callable] = {
        key: call_of(problem, *key, args) for key in keys if not isinstance(errors[key], str)
    }
    functions |= libraries(problem, place, there, torch_for(place))
    times = measure.side_by_side(functions, turns, 0.05, finish=place.finish)
    common = {**limit_of(problem, place, args, times), "dtype": dtype}
    rows = []
    for key in [*keys, *(name for name in times if isinstance(name, str))]:
        name, version = key if isinstance(key, tuple) else (key, "")
        row = {**common, "by": DIALECTS.get(name, name), "version": version}
        if key in times:
            row |= {"time": times[key], "share": common["limit"] / times[key].median}
        error = errors.get(key)
        if isinstance(error, str):
            row["refused"] = error
        elif error is not None:
            row |= {"error": error, "right": error <= allowed(version, dtype)}
        rows.append(row)
    return rows


def show(rows: list[dict]) -> None:
    """The table of an operation."""
    first = rows[0]
    size = " x ".join(map(str, first["size"]))
    print(f"\n{first['operation']}, {size}, {first['dtype']}: the limit is"
          f" {measure.format_seconds(first['limit'])}, by {first['limited by']}")  # fmt: skip
    for row in rows:
        name = f"  {row['by']:<7} {row['version']:<20}"
        if "time" not in row:
            print(f"{name} refused: {row['refused'].splitlines()[0][:70]}")
            continue
        wrong = "" if row.get("right", True) else f"  WRONG: error {row['error']:.3g}"
        print(f"{name} {row['time']}   {row['share']:6.1%} of the limit{wrong}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="default: cpu")
    parser.add_argument("--software", action="store_true", help="a GPU in software: no times")
    parser.add_argument("--only", default="", help="only the operations whose name holds this")
    parser.add_argument("--turns", type=int, default=7, help="turns of each; default: 7")
    parser.add_argument("--threads", type=int, default=1, help="of all, on a CPU; default: 1")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after these")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/..., resume")
    parser.add_argument("--plot", metavar="DIR", help="draw ladders.png and roofline.png there")
    args = parser.parse_args()
    simt.set_num_threads(args.threads)
    place: Place = Host() if args.device == "cpu" else Device(args.software)
    path = Path(measure.results_path(f"ladders-{args.device}-{args.threads}-threads"))
    rows = json.loads(path.read_text())["rows"] if args.json and path.exists() else []
    done = {(row["operation"], row["dtype"]) for row in rows}
    began = time.monotonic()
    for problem in PROBLEMS:
        for dtype in place.dtypes if problem.half else place.dtypes[:1]:
            if args.only not in problem.operation or (problem.operation, dtype) in done:
                continue
            if time.monotonic() - began > 60 * args.minutes:
                print("\nthe minutes are over; with --json the same command goes on from here")
                return 0
            found = measured(problem, place, dtype, args.turns)
            show(found)
            rows += measure.plain(found)
            if args.json:
                measure.write_json(str(path), args.threads, rows)
    if args.plot:
        from ladder_pictures import draw

        draw(rows, Path(args.plot))
    return 0 if all(row.get("right", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
