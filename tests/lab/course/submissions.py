"""Forty submissions, right, wrong and harmful, and what the judge must say of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

HEAD = """
import os, sys, time
import numpy as np
from numba import float32
from kernels import cuda, raw_kernel
"""
ADD_TEN = """
@cuda.jit
def add_ten(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + np.float32(10)
"""
SAXPY = """
@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + y[i]
"""
REVERSE_BLOCKS = """
@cuda.jit
def reverse_blocks(x, out):
    tile = cuda.shared.array(64, np.float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    cuda.syncthreads()
    out[i] = tile[63 - t]
"""
CUDA_C = """
__global__ void add_ten(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + 10.0f;
}
"""
EXERCISES = ["add_ten", "saxpy", "reverse_blocks"]
COURSE = "from kernels.lab.course import exercises, judge, tasks\n"


class Case(NamedTuple):
    """points that it gets; said: a part of what the judge says of it, in its problem or a hint."""

    text: str | bytes
    points: int = 0
    said: str = ""
    ending: str = ".py"


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return HEAD + text.replace(old, new)


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "metadata": {}, "source": text, "outputs": []} for text in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


GUARDED = "i < x.size"
GOOD = HEAD + ADD_TEN  # before what would harm: no point may be lost or won by it
RIGHT = {
    "right": Case(HEAD + ADD_TEN, 1),
    "two": Case(HEAD + ADD_TEN + SAXPY, 2),
    "three": Case(HEAD + ADD_TEN + SAXPY + REVERSE_BLOCKS, 3),
    "cuda-c": Case(CUDA_C, 1, ending=".cu"),
    "notes": Case(
        notebook("%matplotlib inline\nimport math", HEAD, ADD_TEN, "1 / 0"), 1, ending=".ipynb"
    ),
    "raw": Case(HEAD + f"add_ten = raw_kernel(r'''{CUDA_C}''', 'add_ten')", 1),
    "prints": Case(GOOD + "for i in range(100_000):\n    os.write(1, b'x' * 10_000)", 1),
    "declared": Case(  # its encoding
        ("# -*- coding: latin-1 -*-\n" + HEAD + ADD_TEN + "# caf\xe9").encode("latin-1"), 1
    ),
    "goes-on": Case(  # a thread of its own that does not end
        GOOD + "import threading\nthreading.Thread(target=threading.Event().wait).start()", 1
    ),
    "half": Case(HEAD + ADD_TEN + SAXPY.replace("a * ", ""), 1, "element 0 is"),
}
WRONG = {
    "early": Case(changed(ADD_TEN, GUARDED, "i < x.size - 1"), 0, "does the guard stop one too"),
    "late-guard": Case(changed(ADD_TEN, GUARDED, "i <= x.size"), 0, "a guard with <= lets"),
    "no-guard": Case(changed(ADD_TEN, GUARDED, "True"), 0, "more threads than elements"),
    "one-block": Case(changed(ADD_TEN, "cuda.grid(1)", "cuda.threadIdx.x"), 0, "is blockIdx used?"),
    "adds": Case(changed(ADD_TEN, "out[i] =", "out[i] +="), 0, "the result is added to"),
    "endless-true": Case(changed(ADD_TEN, "if i < x.size", "while True"), 0, "does not end"),
    "endless-kernel": Case(changed(ADD_TEN, "if i <", "while i <"), 0, "does `i` change?"),
    "slow": Case(
        HEAD + ADD_TEN.replace("if i < x.size:", "for i in range(x.size):"),
        0,
        "every thread does the work of all",
    ),
    "no-barrier": Case(
        changed(REVERSE_BLOCKS, "cuda.syncthreads()", "pass"), 0, "cuda.syncthreads() between"
    ),
    "divergent": Case(
        changed(REVERSE_BLOCKS, "cuda.syncthreads()", "if t < 32:\n        cuda.syncthreads()"),
        0,
        "not all threads reach the barrier",
    ),
    "uninitialised": Case(
        changed(REVERSE_BLOCKS, "tile[t] = x[i]", "if t:\n        tile[t] = x[i]"),
        0,
        "is read where no thread wrote it",
    ),
    "constants": Case(  # the results for the data that everyone sees
        HEAD + "RESULT = (np.random.default_rng(0).standard_normal(64, dtype=np.float32) + 10)\n"
        "RESULT = np.resize(RESULT, 1000)\n"
        + ADD_TEN.replace("x[i] + np.float32(10)", "cuda.const.array_like(RESULT)[i]"),
        0,
        "element 0 is",
    ),
    "signature": Case(changed(ADD_TEN, "(x, out)", "(x, out, n)"), 0, "the kernel does not run"),
    "signature-c": Case(CUDA_C.replace(", int n", ""), 0, "does not compile", ".cu"),
    "plain": Case(HEAD + ADD_TEN.replace("@cuda.jit\n", ""), 0, "write @cuda.jit above"),
}
HARMFUL = {
    "imports": Case("from kernels.lab.course.solutions import add_ten", 0, "may not import"),
    "late-import": Case(
        GOOD + "import kernels.lab\nadd_ten = kernels.lab.solutions.add_ten", 0, "may not import"
    ),
    "reads": Case(
        "import kernels.lab.course as c\nopen(c.__path__[0] + '/solutions/basics.py').read()",
        0,
        "may not read the solutions",
    ),
    "judge": Case(GOOD + COURSE + "judge.mistake = lambda *a: None", 0, "changes the judge"),
    "table": Case(
        GOOD + COURSE + "exercises._TABLE['saxpy'] = exercises._TABLE['add_ten']\nsaxpy = add_ten",
        0,
        "changes the judge",
    ),
    "easier": Case(
        GOOD + COURSE + "object.__setattr__(exercises._TABLE['add_ten'], 'problems', ())",
        0,
        "changes the judge",
    ),
    "numpy": Case(
        changed(ADD_TEN, "10", "9") + "np.allclose = lambda *a, **k: True", 0, "changes the judge"
    ),
    "while-judged": Case(  # what looks like a kernel, and changes the judge when it is looked at
        changed(ADD_TEN, "10", "9")
        + COURSE
        + "class Kernel:\n    __name__ = 'add_ten'\n    kernel = add_ten\n"
        "    @property\n    def py_func(self):\n"
        "        judge.np = type('np', (), {'allclose': lambda *a, **k: True})\n"
        "        return self.kernel.py_func\n"
        "add_ten = Kernel()",
        0,
        "changes the judge",
    ),
    "overwrites": Case(
        GOOD + "from kernels.lab.course import judge\nopen(judge.__file__, 'a')", 0, "may not write"
    ),
    "writes": Case(
        GOOD + "open(os.path.expanduser('~/minigrad-was-here'), 'w')", 0, "may not write"
    ),
    "deletes": Case(
        GOOD + "import shutil\nshutil.rmtree(os.path.dirname(__file__))", 0, "may not write"
    ),
    "removes": Case(GOOD + "os.remove(__file__)", 0, "may not write"),
    "renames": Case(GOOD + "os.rename(__file__, __file__ + '2')", 0, "may not write"),
    "links": Case(
        GOOD + "os.symlink(os.path.expanduser('~'), 'home')\nopen('home/here', 'w')",
        0,
        "may not write",
    ),
    "through-a-link": Case(
        "import kernels.lab.course as c\n"
        "open('/proc/self/root' + c.__path__[0] + '/solutions/basics.py').read()",
        0,
        "may not read the solutions",
    ),
    "from-a-folder": Case(
        "import os\nimport kernels.lab.course as c\nfolder = os.open(c.__path__[0], 0)\n"
        "os.read(os.open('solutions/basics.py', 0, dir_fd=folder), 10)",
        0,
        "may not open the folder",
    ),
    "peeks": Case(
        "import os\nexec(open(os.path.dirname(__file__) + '/right.py').read())",
        0,
        "may not read other submissions",
    ),
    "starts": Case(GOOD + "os.system('true')", 0, "may not start or end programs"),
    "forks": Case(GOOD + "os.fork()", 0, "may not start or end programs"),
    "kills": Case(GOOD + "os.kill(os.getppid(), 9)", 0, "may not start or end programs"),
    "network": Case(
        GOOD + "import socket\nsocket.socket().connect(('127.0.0.1', 9))", 0, "not use the network"
    ),
    "dies": Case("import os\nos._exit(3)", 0, "its process ended while dies.py was loaded"),
    "crashes": Case(
        "import ctypes\nctypes.string_at(0)", 0, "its process ended while crashes.py was loaded"
    ),
    "exits": Case(GOOD + "raise SystemExit('bye')", 0, "SystemExit: bye"),
    "hungry": Case("x = [bytearray(1 << 26) for _ in range(1000)]", 0, "GB of memory"),
    "latin-1": Case(
        (HEAD + ADD_TEN + "# caf\xe9").encode("latin-1"), 0, "is not utf-8: byte 0xe9 in line"
    ),
    "no-notebook": Case("[]", 0, "no-notebook.ipynb: ValueError: it is no notebook", ".ipynb"),
    "nothing": Case("x = 1", 0, "no kernel in it"),
    "misspelt": Case(HEAD + ADD_TEN.replace("add_ten", "ad_ten"), 0, "did you mean add_ten?"),
}
#: judged with a limit of a few seconds
ENDLESS = {
    "endless": Case("while True:\n    pass", 0, "stopped while endless.py was loaded"),
    "sleeps": Case(
        "import os, time\nos.setsid = None\ntime.sleep(100)", 0, "stopped while sleeps.py was"
    ),
}


def write(folder: Path, cases: dict[str, Case]) -> None:
    """The submissions as files."""
    for name, case in cases.items():
        text = case.text if isinstance(case.text, bytes) else case.text.encode()
        (folder / f"{name}{case.ending}").write_bytes(text)
