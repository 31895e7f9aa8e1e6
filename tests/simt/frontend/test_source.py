"""Where kernels come from: notebook cells, doctests, exec, other import names, generated code."""

from __future__ import annotations

import doctest
import linecache
import types as python_types
import warnings

import numpy as np
import pytest
from numba import int64

from kernels.simt import cuda
from kernels.simt.api.fallback import InterpretedKernelWarning
from kernels.support.errors import CompileError


def from_text(text, filename, register):
    """Defines what `text` holds, as a notebook cell (registered) or as a bare exec does."""
    if register:
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    module = python_types.ModuleType("cell")
    module.__dict__.update(cuda=cuda, np=np)
    exec(compile(text, filename, "exec"), module.__dict__)
    return module


CELL = """
@cuda.jit
def kernel(a):
    tile = cuda.shared.array(8, np.int64)
    i = cuda.threadIdx.x
    tile[i] = a[i]
    cuda.syncthreads()
    a[i] = tile[7 - i]
"""


def test_notebook_cell():
    kernel = from_text(CELL, "<ipython-input-7-0123abcd>", register=True).kernel
    a = np.arange(8)
    kernel[1, 8](a)
    assert a.tolist() == list(range(8))[::-1]


def test_redefined_notebook_cell_is_not_stale():
    changed = CELL.replace("7 - i", "i ^ 1")
    for text, expected in ((CELL, list(range(8))[::-1]), (changed, [1, 0, 3, 2, 5, 4, 7, 6])):
        kernel = from_text(text, "<ipython-input-8-89abcdef>", register=True).kernel
        a = np.arange(8)
        kernel[1, 8](a)
        assert a.tolist() == expected


def test_function_without_source_is_interpreted():
    kernel = from_text(CELL, "<string>", register=False).kernel
    a = np.arange(8)
    with pytest.warns(InterpretedKernelWarning, match="source of kernel 'kernel'"):
        kernel[1, 8](a)
    assert a.tolist() == list(range(8))[::-1]


@pytest.mark.parametrize(
    "statement",
    [
        "a[i] = (lambda x: 7 - x)(a[i])",
        "def other(x): return 7 - x\n    a[i] = other(a[i])",
        "pair = (7, 0)\n    a[i] = max(*pair) - a[i]",
        "pair = cuda.int2(7, a[i])\n    a[i] = pair.x - pair.y",
    ],
)
def test_inner_functions_starred_calls_and_vectors_are_compiled(statement):
    text = f"@cuda.jit\ndef kernel(a):\n    i = cuda.threadIdx.x\n    {statement}\n"
    kernel = from_text(text, f"<ipython-input-{statement}>", register=True).kernel
    a = np.arange(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterpretedKernelWarning)
        kernel[1, 8](a)
    assert a.tolist() == list(range(8))[::-1]


def test_lambda_device_function(jit):
    square = cuda.jit(lambda x: x * x, device=True)

    @jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = square(i)

    out = np.zeros(4, np.int64)
    kernel[1, 4](out)
    assert out.tolist() == [0, 1, 4, 9]


def test_doctest():
    text = """
    >>> import numpy as np
    >>> from kernels.simt import cuda
    >>> @cuda.jit
    ... def double(a):
    ...     i = cuda.grid(1)
    ...     if i < a.size:
    ...         a[i] *= 2
    >>> a = np.arange(5)
    >>> double[1, 32](a)
    >>> a
    array([0, 2, 4, 6, 8])
    """
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(doctest.DocTestParser().get_doctest(text, {}, "double", None, 0))
    assert runner.failures == 0


def test_other_import_names(jit):
    import kernels.simt.cuda as c
    from kernels.simt.cuda import grid, shared, syncthreads, threadIdx

    @jit
    def kernel(a):
        tile = shared.array(8, int64)
        tile[threadIdx.x] = a[grid(1)]
        syncthreads()
        a[c.grid(1)] = tile[7 - c.threadIdx.x]

    a = np.arange(8)
    kernel[1, 8](a)
    assert a.tolist() == list(range(8))[::-1]


def test_parts_are_imported_as_those_of_numba_cuda():
    from kernels.cuda import libdevice, random
    from kernels.cuda.libdevice import rsqrtf
    from kernels.cuda.random import xoroshiro128p_uniform_float32 as uniform

    assert rsqrtf is libdevice.rsqrtf
    assert uniform is random.xoroshiro128p_uniform_float32
    with pytest.raises(ImportError, match=r"kernels\.cuda\.random"):
        from kernels.cuda.random import tausworthe  # noqa: F401


@pytest.mark.needs("numba.cuda")
def test_the_real_numba_cuda_names_are_understood(jit):
    from numba import cuda as numba_cuda

    @jit
    def kernel(a):
        tile = numba_cuda.shared.array(8, int64)
        i = numba_cuda.threadIdx.x
        tile[i] = a[numba_cuda.grid(1)]
        numba_cuda.syncthreads()
        a[i] = tile[7 - i]

    a = np.arange(8)
    kernel[1, 8](a)
    assert a.tolist() == list(range(8))[::-1]


def test_inspect_cpu_shows_two_loops_for_a_barrier():
    @cuda.jit
    def reverse(a):
        tile = cuda.shared.array(32, int64)
        i = cuda.threadIdx.x
        tile[i] = a[i]
        cuda.syncthreads()
        a[i] = tile[31 - i]

    a = np.arange(32)
    reverse[1, 32](a)
    text = reverse.inspect_cpu()
    text = text if isinstance(text, str) else "\n".join(map(str, text.values()))
    assert "syncthreads()" not in "\n".join(
        line.split("#")[0] for line in text.splitlines() if '"""' not in line
    )
    loops = [line for line in text.splitlines() if line.strip().startswith(("for ", "while "))]
    assert len(loops) >= 2
    compile(text, "<generated>", "exec")


def test_lambdas_whose_lines_are_no_statement():
    """Found in the whole file, by their lines and columns."""
    found = []
    for f in (lambda v: v + 1, lambda v: v * 10):
        found.append(f)
    for f in {
        "a": lambda v: v - 1,
        "b": lambda v: (
            v
            - 2
        ),
    }.values():  # fmt: skip
        found.append(f)
    if last := lambda v: v + 5:
        found.append(last)
    for f, expected in zip(found, (4, 30, 2, 1, 8), strict=True):
        out = np.zeros(1)
        cuda.jit(_calling(cuda.jit(device=True)(f)))[1, 1](out)
        assert out[0] == expected


def _calling(inner):
    def kernel(out):
        out[0] = inner(3)

    return kernel


def test_a_kernel_that_is_a_lambda_is_refused():
    kernel = cuda.jit(lambda a: None)
    with pytest.raises(CompileError, match=r"test_source\.py:\d+: .*define the kernel by `def`"):
        kernel[1, 1](np.zeros(1))
