"""The code that kernels get on an ARM processor, of which none is needed to look at it.

LLVM compiles for any processor. What a kernel's pipeline gets is compiled for one with NEON as
well, and its listing is read: inner loops that multiply and add in vectors, and keep what they sum
in registers. `python -m tests.simt.backend.test_aarch64 FOLDER` writes the listings: in a process
of its own, which has compiled nothing before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.fixture(scope="module")
def listings(tmp_path_factory) -> dict[str, str]:
    """The assembly of the kernels that `launch` launches, by name."""
    folder = tmp_path_factory.mktemp("listings")
    environment = {**os.environ, "MINIGRAD_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.simt.backend.test_aarch64", str(folder)]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[3])
    return {path.stem: path.read_text() for path in folder.glob("*.s")}


def launch() -> None:
    x = np.ones((256, 256), np.float32)
    kernels.matmul(x, x, version="tiled")
    kernels.softmax(x)
    kernels.sum(x, 1)
    kernels.tanh(x)
    images = np.ones((4, 16, 30, 30), np.float32)
    for count in (32, 16):
        filters = np.ones((count, 16, 3, 3), np.float32)
        kernels.conv2d(images, filters, version="implicit_gemm")


def write_listings(folder: Path) -> None:
    """Compile what `launch` launches, here and for the other processor."""
    finish = codegen.KernelLibrary._optimize_final_module

    def listed(library) -> None:
        name, number = library.name, 2
        while (folder / f"{name}.s").exists():  # another tile of the same kernel
            name, number = f"{library.name}_{number}", number + 1
        (folder / f"{name}.s").write_text(assembly(str(library._final_module)))
        finish(library)

    codegen.KernelLibrary._optimize_final_module = listed
    for module in (unroll_jam, conv_gemm):  # whatever the processor at hand has
        module.register_floats = lambda: FLOATS
    launch()


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


def test_products(listings):
    loops = inner_loops(listings["matmul_tiled"])
    assert loops and min(share for share, _ in loops) > 0.65
    assert not any(spills for _, spills in loops)


@pytest.mark.parametrize(
    "name, spilling",
    [("conv2d_implicit_gemm", 0), ("conv2d_implicit_gemm_2", 1)],
    ids=["32 filters", "16 filters"],
)
def test_convolutions(listings, name, spilling):
    """LLVM 20 unrolls four rows of threads (16 filters) and spills the sums of the last one."""
    loops = inner_loops(listings[name])
    good = [share > 0.5 and not spills for share, spills in loops]
    assert sum(good) >= max(1, len(loops) - spilling)


@pytest.mark.parametrize("name", ["softmax_one_read", "reduce_rows_by_warp", "pointwise_tanh"])
def test_rows_are_vectors(listings, name):
    arithmetic = r"\tf(mla|mls|add|mul|sub|maxnm)\tv\d+\.4s"
    alone = r"\tf(madd|msub|add|mul|sub|maxnm)\ts\d"
    assert len(re.findall(arithmetic, listings[name])) > len(re.findall(alone, listings[name]))


if __name__ == "__main__":
    write_listings(Path(sys.argv[1]))
