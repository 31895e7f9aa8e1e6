"""What a reader begins an exercise with: a signature, or the wrong kernel of a bug hunt."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np

from kernels.host import source
from kernels.lab.course.exercise import Exercise
from kernels.lab.course.tasks import broken

_C_TYPES = {
    "float32": "float", "float16": "__half", "int32": "int", "int64": "long long",
}  # fmt: skip


def start(exercise: Exercise, dialect: str) -> str:
    """The source, in "numba" or "cuda_c"."""
    if dialect == "cuda_c":
        return _broken_cuda_c(exercise.name) if exercise.broken else _cuda_c(exercise)
    if exercise.broken:
        return inspect.getsource(getattr(broken, exercise.name).py_func)
    return f"@cuda.jit\ndef {exercise.name}({exercise.signature}):\n    pass\n"


def _broken_cuda_c(name: str) -> str:
    code = Path(broken.__file__).with_suffix(".cu").read_text(encoding="utf-8")
    first, last = source.extent(code, name)
    lines = code.splitlines()[first - 1 : last]
    include = ["#include <cuda_fp16.h>", ""] if "__half" in "".join(lines) else []
    return "\n".join([*include, *lines, ""])


def _cuda_c(exercise: Exercise) -> str:
    """The signature, with the types of the first problem's arguments."""
    problem = exercise.problems[0](np.random.default_rng(0))
    names = [name.strip() for name in exercise.signature.split(",")]
    written = len(names) - len(problem.expected)
    parameters = []
    for number, (name, arg) in enumerate(zip(names, problem.args)):
        kind = _C_TYPES[np.asarray(arg).dtype.name]
        pointer = f"const {kind}* " if number < written else f"{kind}* "
        parameters.append((pointer if isinstance(arg, np.ndarray) else f"{kind} ") + name)
    parameters += [f"int {name}" for name in exercise.sizes]
    include = "#include <cuda_fp16.h>\n\n" if "__half" in "".join(parameters) else ""
    return f"{include}__global__ void {exercise.name}({', '.join(parameters)}) {{\n}}\n"
