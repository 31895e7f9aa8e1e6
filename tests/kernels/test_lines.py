"""Every line of the pointwise table and every derivative, compiled in both dialects.

Many lines are one kernel: one for each would take minutes to compile. tests/kernels/test_pointwise
launches some lines as users do, tests/engine/test_operations all of them on the reference backend.
"""

from __future__ import annotations

import linecache
import math
import re

import numpy as np
import pytest

from kernels import host, reference
from kernels.numba_cuda.common import scalar_type
from kernels.numba_cuda.pointwise import translate
from kernels.pointwise import TABLE, Expr
from kernels.simt import cuda
from tests.kernels.helpers import DEVICES, as_wide, assert_close, get, normal, put, wide
from tests.kernels.test_tables import PARAMS, sample

TOGETHER = 40  # lines of a kernel
F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
FLOAT_LINES = [expr for expr in TABLE.values() if expr.domain != "int"]
INT_LINES = [expr for expr in TABLE.values() if expr.domain != "float"]


def params_of(line: Expr, values: dict[str, float]) -> list[float]:
    return [values[p] for p in line.params]


def float_rows(rng) -> list[tuple[Expr, list[np.ndarray]]]:
    """Each line and each of its derivatives with float32 inputs."""
    rows = []
    for expr in FLOAT_LINES:
        arrays = [a if a.dtype == bool else a.astype(np.float32) for a in sample(expr, rng)]
        values = dict(zip(expr.args, arrays))
        values["y"] = reference.pointwise(expr, *arrays, params=params_of(expr, PARAMS))
        values["g"] = normal(rng, arrays[0].shape)
        for line in (expr, *filter(None, map(expr.vjp, range(len(expr.args))))):
            rows.append((line, [np.ascontiguousarray(values[a]) for a in line.args]))
    return rows


def integers(expr: Expr, dtype: type, rng) -> list[np.ndarray]:
    """Inputs for which NumPy's and C's integers agree: no division by zero, no negative shift."""
    high = 2 if dtype is bool else 7
    low = 0 if dtype in (bool, np.uint8) else -6
    arrays = [rng.integers(low, high, 100).astype(dtype) for _ in expr.args]
    if expr.name in ("floor_divide", "remainder", "fmod") or "shift" in expr.name:
        arrays[1] = np.abs(arrays[1]) + np.asarray(dtype(1))
    return [a > 0 if name in expr.masks else a for name, a in zip(expr.args, arrays)]


def text_of_all(lines: list[Expr], values: dict[str, float], dtype: np.dtype) -> str:
    """A kernel whose row k of `out` is line k of the rows of `taken`, which lie in their order."""
    body, row = ["def lines(taken, out):", "    i = cuda.grid(1)", "    if i < out.shape[1]:"], 0
    for k, line in enumerate(lines):
        statements, result = translate(line.text, dtype)
        loads = []
        for name in line.args:
            loads.append(f"{name} = taken[{row}, i]" + (" != 0" if name in line.masks else ""))
            row += 1
        loads += [f"{name} = T({values[name]})" for name in line.params]
        if line.result == "bool":
            result = f"(T(1) if {result} else T(0))"
        own = "|".join((r"t\d+", *line.args, *line.params))  # names that other lines have too
        for statement in (*loads, *statements, f"out[{k}, i] = {result}"):
            body.append("        " + re.sub(rf"\b({own})\b(?!\()", rf"\1_{k}", statement))
    return "\n".join([*body, ""])


def run_all(rows, values: dict[str, float], dtype: np.dtype, device: str) -> np.ndarray:
    """The results of lines with their inputs, computed by one kernel."""
    text = text_of_all([line for line, _ in rows], values, dtype)
    label = f"<lines from {rows[0][0].name}, {dtype}>"
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    space = {"cuda": cuda, "libdevice": cuda.libdevice, "math": math, "T": scalar_type(dtype)}
    space["__name__"] = "kernels.numba_cuda.pointwise"  # compiled for a GPU as those there
    exec(compile(text, label, "exec"), space)
    taken = np.array([array for _, arrays in rows for array in arrays]).astype(dtype)
    out = put(np.zeros((len(rows), taken.shape[1]), dtype), device)
    cuda.jit(space["lines"])[-(-taken.shape[1] // 32), 32](put(taken, device), out)
    return get(out)


parts = pytest.mark.parametrize(
    "first", range(0, len(float_rows(np.random.default_rng(0))), TOGETHER)
)


@pytest.mark.parametrize("device", DEVICES)
@parts
def test_float_lines_and_derivatives(first, device):
    """In float32 against the reference in float64, on numbers that float32 holds."""
    rows = float_rows(np.random.default_rng(0))[first : first + TOGETHER]
    for found, (line, given) in zip(run_all(rows, PARAMS, F32, device), rows):
        with np.errstate(all="ignore"):
            exact = reference.pointwise(line, *map(as_wide, given), params=params_of(line, PARAMS))
            scale = sum(np.abs(wide(a)) for a in given) + 10
        assert_close(found, wide(np.asarray(exact)), scale, terms=9)


@pytest.mark.parametrize("device", DEVICES)
def test_integer_lines(device, rng):
    rows = [(expr, integers(expr, np.int64, rng)) for expr in INT_LINES]
    twos = {p: 2 for expr in INT_LINES for p in expr.params}
    for found, (expr, given) in zip(run_all(rows, twos, I64, device), rows):
        want = reference.pointwise(expr, *given, params=params_of(expr, twos))
        np.testing.assert_array_equal(found, want, err_msg=expr.name)


@parts
def test_lines_and_derivatives_in_cuda_c(first, monkeypatch):
    """As one translation unit, without checks, as the kernels of this project run."""
    from kernels.cuda_c.common import source
    from kernels.cuda_c.pointwise import text
    from kernels.launchers.pointwise import Form, Operand

    rows = float_rows(np.random.default_rng(0))[first : first + TOGETHER]
    code, functions = [source("pointwise.cuh")], []
    for k, (line, given) in enumerate(rows):
        result = np.dtype(bool) if line.result == "bool" else F32
        form = Form(tuple(Operand(a.dtype) for a in given), F32, result)
        code.append(f"namespace n{k} {{\n{text(line, form)}}}\n")
        functions.append(f"n{k}::pointwise_{line.name.replace('.', '_')}")
    monkeypatch.setenv("MINIGRAD_CUDA_DEBUG", "0")
    module = host.raw_module("".join(code), (), tuple(functions))
    for name, (line, given) in zip(functions, rows):
        params = params_of(line, PARAMS)
        out = np.empty(given[0].shape, bool if line.result == "bool" else F32)
        module.get_function(name)((1,), (32,), (*given, *params, out, out.size))
        with np.errstate(all="ignore"):
            exact = reference.pointwise(line, *map(as_wide, given), params=params)
            scale = sum(np.abs(wide(a)) for a in given) + 10
        assert_close(out, wide(np.asarray(exact)), scale, terms=9)
