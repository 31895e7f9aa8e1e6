"""The code that kernels get on other processors, of which none is needed to look at it.

LLVM compiles for any processor. What a kernel's pipeline gets is compiled for processors with NEON,
AVX2 and AVX-512, and the listings are read: inner loops that multiply and add in vectors, and keep
what they sum in registers. `python -m tests.simt.backend.test_listings NAME FOLDER` writes those of
one processor: in a process of its own, which has compiled nothing before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest

import kernels
from kernels.simt import cuda
from kernels.simt.backend import codegen
from kernels.support import processor


class Processor(NamedTuple):
    """What listings are compiled for, and patterns of its instructions."""

    triple: str
    name: str
    registers: processor.Registers
    multiply_add: str
    vector: str
    scalar: str
    store: str
    jump: str
    stack: str


def x86(name: str, registers: processor.Registers, kind: str) -> Processor:
    return Processor(
        "x86_64-unknown-linux-gnu",
        name,
        registers,
        multiply_add=rf"\tvfm\w+ps\t.*%{kind}",
        vector=rf"\tv(add|sub|mul|max|fn?m\w+)ps\t.*%{kind}",
        scalar=r"\tv(add|sub|mul|max|fn?m\w+)ss\t",
        store=rf"\tvmov\w+\t%{kind}\d+, .*\(",
        jump=r"j\w+",
        stack="(%rsp)",
    )


PROCESSORS = {
    "neon": Processor(
        "aarch64-unknown-linux-gnu",
        "neoverse-n1",
        processor.Registers(32, 4),
        multiply_add=r"\tfmla\tv\d+\.4s",
        vector=r"\tf(mla|mls|add|mul|sub|maxnm)\tv\d+\.4s",
        scalar=r"\tf(madd|msub|add|mul|sub|maxnm)\ts\d",
        store=r"\tst\w+\t[qv]",
        jump=r"b\.\w+",
        stack="[sp",
    ),
    "avx2": x86("haswell", processor.Registers(16, 8), "ymm"),
    "avx512": x86("skylake-avx512", processor.Registers(32, 16), "zmm"),
}


@pytest.fixture(scope="module", params=PROCESSORS)
def listings(request, tmp_path_factory) -> tuple[Processor, dict[str, str]]:
    """A processor, and the assembly of the kernels that `launch` launches for it, by name."""
    folder = tmp_path_factory.mktemp("listings")
    environment = {**os.environ, "MINIGRAD_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.simt.backend.test_listings", request.param, str(folder)]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[3])
    return PROCESSORS[request.param], {path.stem: path.read_text() for path in folder.glob("*.s")}


@cuda.jit(debug=False)
def product(a, b, c):
    j, i = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


def launch() -> None:
    x = np.ones((256, 256), np.float32)
    for block in ((32, 8), (128, 8)):
        product[(256 // block[0], 256 // block[1]), block](x, x, np.empty_like(x))
    for version in ("tiled", "register_1d", "register_2d"):
        kernels.matmul(x, x, version=version)
    kernels.softmax(x)
    kernels.sum(x, 1)
    kernels.tanh(x)
    images = np.ones((4, 16, 30, 30), np.float32)
    for count in (32, 16):
        filters = np.ones((count, 16, 3, 3), np.float32)
        kernels.conv2d(images, filters, version="implicit_gemm")
        kernels.conv2d(images, filters, version="batch_gemm")


def write_listings(other: Processor, folder: Path) -> None:
    """Compile what `launch` launches, here and for the other processor."""
    finish = codegen.KernelLibrary._optimize_final_module

    def listed(library) -> None:
        name, number = library.name, 2
        while (folder / f"{name}.s").exists():  # another tile of the same kernel
            name, number = f"{library.name}_{number}", number + 1
        (folder / f"{name}.s").write_text(assembly(other, str(library._final_module)))
        finish(library)

    codegen.KernelLibrary._optimize_final_module = listed
    processor.vector_registers = lambda: other.registers  # whatever the processor at hand has
    launch()


def assembly(other: Processor, text: str) -> str:
    """An unoptimised module of this processor, compiled for the other one."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(other.triple)
    machine = target.create_target_machine(other.name, opt=3, reloc="pic")
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
    module = llvm.parse_assembly(re.sub(r"target (triple|datalayout) = .*", "", text))
    module.triple, module.data_layout = other.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


def inner_loops(other: Processor, text: str, least: int = 12) -> list[tuple[float, bool]]:
    """Of each loop with `least` products: their share of its instructions, whether it stores."""
    loop = re.compile(rf"^(\.LBB\w+):.*\n((?:\t.*\n)+?)\t{other.jump}\t\1\n", re.MULTILINE)
    bodies = [body for _, body in loop.findall(text)]
    counts = [(len(re.findall(other.multiply_add, body)), body) for body in bodies]
    return [
        (n / body.count("\n"), other.stack in body or bool(re.search(other.store, body)))
        for n, body in counts
        if n >= least
    ]


@pytest.mark.parametrize("name", ["matmul_tiled", "conv2d_implicit_gemm", "conv2d_implicit_gemm_2"])
def test_products_sum_in_registers(listings, name):
    other, texts = listings
    loops = inner_loops(other, texts[name])
    assert loops and min(share for share, _ in loops) > 0.5
    assert not any(stores for _, stores in loops)


@pytest.mark.parametrize("name", ["product", "product_2"])
def test_a_loop_that_asks_whether_to_stop_sums_in_registers(listings, name):
    other, texts = listings
    straight = re.split(r"^\.LBB\w+:|\t(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\t", texts[name], flags=re.M)
    products = [code for code in straight if len(re.findall(other.multiply_add, code)) >= 8]
    assert products
    assert not any(re.search(other.store, code) for code in products)


@pytest.mark.parametrize("name", ["matmul_register_1d", "matmul_register_2d"])
def test_results_of_a_thread_stay_in_registers(listings, name):
    """Where a processor has fewer, in parts, of eight vectors at least."""
    other, texts = listings
    loops = inner_loops(other, texts[name], 8)
    assert loops and min(share for share, _ in loops) > 0.35
    assert not any(stores for _, stores in loops)


def test_products_through_tables_sum_in_registers(listings):
    other, texts = listings
    loops = inner_loops(other, texts["conv2d_batch_gemm"])
    # Half of the instructions of a loop that is not unrolled are loads and its counter.
    assert loops and min(share for share, _ in loops) > 0.4
    assert not any(stores for _, stores in loops)


@pytest.mark.parametrize("name", ["softmax_several_rows", "reduce_rows_by_warp", "pointwise_tanh"])
def test_rows_are_vectors(listings, name):
    other, texts = listings
    vectors, scalars = (len(re.findall(p, texts[name])) for p in (other.vector, other.scalar))
    assert vectors > scalars


if __name__ == "__main__":
    write_listings(PROCESSORS[sys.argv[1]], Path(sys.argv[2]))
