"""The code that kernels get on an ARM processor, of which none is needed to look at it.

LLVM compiles for any processor. What a kernel's pipeline gets is compiled for one with NEON as
well, and its listing is read: inner loops that multiply and add in vectors, and keep what they sum
in registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

import kernels
from kernels.numba_cuda import conv_gemm
from kernels.simt.backend import codegen
from kernels.simt.transforms import unroll_jam

FLOATS = 128  # in the registers of NEON
TRIPLE, PROCESSOR = "aarch64-unknown-linux-gnu", "neoverse-n1"
MULTIPLY_ADD = r"\tfmla\tv\d+\.4s"
LOOP = re.compile(r"^(\.LBB\w+):\n((?:\t.*\n)+?)\tb\.\w+\t\1\n", re.MULTILINE)


@pytest.fixture
def listing(monkeypatch, tmp_path) -> Callable[[Callable], dict[str, str]]:
    """The assembly of each kernel that a function compiles, by the name of the kernel."""
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    given, finish = {}, codegen.KernelLibrary._optimize_final_module

    def remember(library) -> None:
        given[library.name] = str(library._final_module)
        finish(library)

    monkeypatch.setattr(codegen.KernelLibrary, "_optimize_final_module", remember)
    for module in (unroll_jam, conv_gemm):  # whatever the processor at hand has
        monkeypatch.setattr(module, "register_floats", lambda: FLOATS)

    def compiled(work: Callable) -> dict[str, str]:
        work()
        return {name: assembly(text) for name, text in given.items()}

    return compiled


def assembly(text: str) -> str:
    """An unoptimised module of this processor, compiled for the other one."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(PROCESSOR, opt=3, reloc="pic")
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
    module = llvm.parse_assembly(re.sub(r"target (triple|datalayout) = .*", "", text))
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


def inner_loops(text: str) -> list[tuple[float, bool]]:
    """Of each loop with many products: their share of its instructions, whether it uses a stack."""
    bodies = [body for _, body in LOOP.findall(text)]
    counts = [(len(re.findall(MULTIPLY_ADD, body)), body) for body in bodies]
    return [(n / body.count("\n"), "[sp" in body) for n, body in counts if n >= 16]


def test_products(listing):
    a = np.ones((256, 256), np.float32)
    texts = listing(lambda: kernels.matmul(a, a, version="tiled"))
    loops = inner_loops(texts["matmul_tiled"])
    assert loops and min(share for share, _ in loops) > 0.65
    assert not any(spills for _, spills in loops)


@pytest.mark.parametrize("filters, spilling", [(32, 0), (16, 1)])
def test_convolutions(listing, filters, spilling):
    """LLVM 20 unrolls four rows of threads (16 filters) and spills the sums of the last one."""
    images, filters = np.ones((4, 16, 30, 30), "f"), np.ones((filters, 16, 3, 3), "f")
    texts = listing(lambda: kernels.conv2d(images, filters, version="implicit_gemm"))
    loops = inner_loops(texts["conv2d_implicit_gemm"])
    good = [share > 0.5 and not spills for share, spills in loops]
    assert sum(good) >= max(1, len(loops) - spilling)


@pytest.mark.parametrize(
    "name, work",
    [
        ("softmax_one_read", lambda x: kernels.softmax(x)),
        ("reduce_rows_by_warp", lambda x: kernels.sum(x, 1)),
        ("pointwise_tanh", lambda x: kernels.tanh(x)),
    ],
    ids=["softmax", "sum", "tanh"],
)
def test_rows_are_vectors(listing, name, work):
    texts = listing(lambda: work(np.ones((64, 256), np.float32)))
    arithmetic = r"\tf(mla|mls|add|mul|sub|maxnm)\tv\d+\.4s"
    alone = r"\tf(madd|msub|add|mul|sub|maxnm)\ts\d"
    assert len(re.findall(arithmetic, texts[name])) > len(re.findall(alone, texts[name]))
