"""What a GPU's compiler makes of the kernels, without a GPU: PTX for three generations.

`calls` runs every family of the catalog but those of `test_ptx_network`, in float32, every version
of every ladder; the kernels that it launches are written down, and each is compiled to PTX for
compute capability 7.5, 8.0 and 9.0, and by ptxas to machine code. Gates: no double in a float32
kernel, no local memory, no spilled register. A row of the catalog that no call launches fails.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels import lab
from kernels import numba_cuda as nc
from kernels.launchers.embedding import VERSIONS as SCATTERS
from kernels.launchers.pointwise import Form, Operand
from kernels.launchers.reduction import VERSIONS as REDUCERS
from kernels.launchers.scan import VERSIONS as SCANS
from kernels.launchers.transpose import VERSIONS as TRANSPOSES
from kernels.numba_cuda.pointwise import kernel
from kernels.pointwise import TABLE
from kernels.reduction import TABLE as REDUCTIONS
from kernels.simt.api.launch import Kernel

numba_cuda = pytest.importorskip("numba_cuda", reason="needs the extra cuda13 (numba-cuda)")
GENERATIONS = [(7, 5), (8, 0), (9, 0)]
PARTS = 6  # of the kernels, for parallel workers; all generations of a kernel in one part
# libdevice reduces large arguments of these with doubles and a table in local memory, as nvcc's
# own sinf does; the float32 path that ordinary arguments take has neither.
WITH_DOUBLES = {
    "pointwise_sin",
    "pointwise_sin_vjp0",
    "pointwise_cos",
    "pointwise_cos_vjp0",
    "pointwise_tan",
}


def calls():
    """Every family and version, as functions to call; odd sizes that no other test has, so that
    each binds its kernel anew."""
    rng = np.random.default_rng(3)

    def f(*shape):
        return rng.random(shape, dtype=np.float32)

    index = rng.integers(0, 3, (29, 7))
    x2, x3 = f(29, 43), f(3, 29, 43)
    yield lambda: nc.pointwise(TABLE["add"], x2, x2[0])
    yield from (lambda n=n: nc.pointwise(TABLE["add"], f(n), f(n)) for n in (1237, 97))
    for version in REDUCERS:
        yield lambda v=version: nc.reduce("sum", f(3343), version=v)
    for name in REDUCTIONS:
        for shape, axis in [((29, 11), 1), ((29, 203), 1), ((2, 70_001), 1), ((37, 43), 0)]:
            yield lambda n=name, s=shape, a=axis: nc.reduce(n, f(*s), a)
    for version in TRANSPOSES:
        yield lambda v=version: nc.transpose(x3, (0, 2, 1), version=v)
    for version in SCANS:
        yield lambda v=version: nc.cumsum(f(2, 33_001), version=v)
    yield lambda: nc.cumsum(x3, 1)
    yield lambda: nc.concat([x2, f(29, 11)], 1)
    yield from (lambda k=k: getattr(nc, k)((1237,), 1, 2) for k in ("uniform", "normal"))
    yield lambda: nc.philox_uint32(1237, 1, 2)
    yield lambda: nc.dropout(f(1237), 0.5, 1, 2)
    yield lambda: nc.embedding(f(3, 43), index)
    yield lambda: nc.gather(f(3, 7), 0, index)
    for version in SCATTERS:
        yield lambda v=version: nc.embedding_backward(f(203, 43), index.ravel(), 3, version=v)
        yield lambda v=version: nc.scatter_add(f(3, 7), 0, index, f(29, 7), version=v)
    for momentum, first in [(0.0, False), (0.9, False), (0.9, True)]:
        how = dict(momentum=momentum, first=first, nesterov=first)
        yield lambda h=how: nc.sgd_(f(1237), f(1237), f(1237), 0.1, **h)
    for top, decoupled in [(None, False), (f(1237), True)]:
        slots = (f(1237), f(1237), f(1237), f(1237), top)
        yield lambda s=slots, d=decoupled: nc.adam_(*s, 0.1, 0.9, 0.999, 1e-8, 0.1, 1, decoupled=d)


FAMILIES = (
    "pointwise reduce transpose concat cumsum philox_uint32 uniform normal dropout embedding gather"
    " embedding_backward scatter_add sgd_ adam_".split()
)


@pytest.fixture(scope="module")
def launched():
    """(the kernels that `calls` launches, the trace of those launches). Nothing is computed: which
    kernels are launched is wanted, and compiling them for the CPU takes a minute."""
    found, recording = {}, True

    def bind(self, *args, **kwargs):
        found[id(self)] = self
        bound = None

        def launch(*arrays):  # a plan may keep this for a later test, which computes
            nonlocal bound
            if not recording:
                bound = bound or real(self, *args, **kwargs)
                bound(*arrays)

        return launch

    real, Kernel.bind = Kernel.bind, bind
    try:
        with kernels.trace() as trace:
            for call in calls():
                call()
    finally:
        Kernel.bind, recording = real, False
    return list(found.values()), trace


def rows() -> set[tuple[str, str]]:
    """(family, version) of the rows of the catalog that `calls` must launch."""
    return {(family, version) for family, version, _ in nc.CATALOG if family in FAMILIES}


def test_every_row_of_the_catalog_is_compiled(launched):
    ran = {(family.split(".")[0], version) for family, version in launched[1].rows}
    assert rows() <= ran, f"no call launches {sorted(rows() - ran)}"


def lines():
    """Every line of the table and every derivative, as contiguous float32 kernels."""
    f32 = np.dtype(np.float32)
    for line in TABLE.values():
        if line.domain == "int":
            continue
        for expr in (line, *(line.vjp(i) for i in range(len(line.args)))):
            if expr is not None:
                masks = [np.dtype(bool) if a in expr.masks else f32 for a in expr.args]
                result = np.dtype(bool) if expr.result == "bool" else f32
                yield kernel(expr, Form(tuple(map(Operand, masks)), f32, result))


def problems(kernel) -> list[str]:
    """What a float32 kernel must not have, in its PTX and after ptxas."""
    found = []
    for cc in GENERATIONS:
        made = lab.compiled(kernel, cc=cc, lines=False)
        words = [f"{made.spill_stores} spilled bytes"] if made.spill_stores else []
        if kernel.__name__ not in WITH_DOUBLES:
            words += [word for word in (".f64", ".local") if word in made.ptx]
            words += [f"{made.stack} bytes of stack"] if made.stack else []
        found += [f"{cc}: {word}" for word in words]
    return found


def failures(kernels) -> dict[str, list[str]]:
    return {k.py_func.__code__.co_filename + k.__name__: p for k in kernels if (p := problems(k))}


@pytest.mark.parametrize("part", range(PARTS))
def test_launched_kernels(launched, part):
    kernels, _ = launched
    assert len(kernels) >= len(rows())  # a row may have several, as there are many reductions
    assert failures(kernels[part::PARTS]) == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_line_of_the_table(part):
    assert failures(list(lines())[part::PARTS]) == {}


def test_the_gate_sees_a_double():
    """A kernel with a Python float in it must fail."""
    from kernels.simt import cuda

    def doubled(x):
        x[cuda.grid(1)] += 0.1

    assert "(8, 0): .f64" in problems(cuda.jit("void(float32[::1])")(doubled))


def test_a_kernel_has_a_copy_of_its_own():
    """Even where it lies in memory where another one lay."""
    from kernels.simt import cuda
    from kernels.simt.api import to_numba_cuda

    def made(number):
        @cuda.jit
        def store(x):
            x[0] = number

        return store

    for number in range(20):
        copy = to_numba_cuda.dispatcher(made(number)).py_func
        assert copy.__closure__[0].cell_contents == number
