"""The inner loops of products in NVIDIA's machine code: how much of them multiplies and adds.

Each of an SM's four schedulers issues one instruction per cycle, so the share of FFMA among the
instructions of the innermost loop bounds the share of the peak that a kernel can reach.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernels
from kernels import lab
from kernels.cuda_c.matmul import WGMMA
from kernels.lab.gpu_model import nvrtc, resources, sass
from kernels.simt.api import to_numba_cuda

pytestmark = [pytest.mark.needs("numba_cuda"), pytest.mark.needs("nvidia")]

GATES = {
    ("numba", "matmul", "register_2d"): 0.75,
    ("numba", "matmul", "warp_tile"): 0.75,
    ("numba", "conv2d", "implicit_gemm"): 0.6,
    ("cupy", "matmul", "vectorised"): 0.75,
    ("cupy", "matmul", "warp_tile"): 0.75,
    ("cupy", "matmul", "double_buffer"): 0.75,
    ("cupy", "conv2d", "implicit_gemm"): 0.6,
    ("cupy", "conv2d", "double_buffer"): 0.75,
}


WIDE = 0.02  # of the instructions of an inner loop


def machine_code(dialect: str, family: str, version: str) -> list[str]:
    """The SASS for compute capability 8.0 of what a version launches."""
    if family == "conv2d":  # with enough blocks for the large tiles
        with resources.noting() as rows:
            images, filters = np.ones((32, 64, 34, 34), "f"), np.ones((64, 64, 3, 3), "f")
            kernels.conv2d(images, filters, version=version, backend=dialect)
        launches = rows[family, version]
    else:
        launches = resources.launched(dialect, family)[family, version]
    if dialect == "numba":
        return [lab.compiled(kernel, *args, lines=False).sass() for kernel, args in launches[:2]]
    texts = []
    for raw in dict.fromkeys(kernel.instance(*args) for kernel, args in launches[:2]):
        *_, cubin = nvrtc.translate(raw.code, [raw.name], "sm_80")
        texts.append(sass.sass(cubin))
    return texts


@pytest.mark.parametrize("row", GATES, ids="-".join)
def test_inner_loops_multiply_and_add(row):
    """And there are next to no integers of 64 bits among them."""
    texts = machine_code(*row)
    assert texts and min(map(sass.share, texts)) >= GATES[row]
    assert max(map(sass.wide_share, texts)) <= WIDE


LOADS = 4  # of a thread from global memory, before it stores or waits for the first of them
READERS = [("softmax", "one_read"), ("softmax", "split"), ("layer_norm", "one_read"),
           ("reduce", "block")]  # fmt: skip


def loads_at_once(family: str, version: str, *change: str) -> int:
    """The longest run of loads in a kernel, between which nothing is stored and no thread waits."""
    kernel, args = resources.launched("cupy", family)[family, version][0]
    raw = kernel.instance(*args)
    code = raw.code.replace(*change) if change else raw.code
    *_, cubin = nvrtc.translate(code, [raw.name], "sm_80")
    found = re.findall(r"\b(LDG|STS|STG|BAR|BRA|SHFL)\b", sass.sass(cubin))
    return max(len(run) for run in re.findall("l+", "".join("-l"[f == "LDG"] for f in found)))


@pytest.mark.parametrize("reader", READERS, ids="-".join)
def test_loads_do_not_wait_for_each_other(reader):
    assert loads_at_once(*reader) >= LOADS


def test_loads_whose_distance_is_not_known_wait():
    assert loads_at_once("softmax", "one_read", "i += BLOCK", "i += blockDim.x") < LOADS


def test_without_the_rewriting_the_gate_is_red(monkeypatch):
    monkeypatch.setattr(to_numba_cuda, "optimised", lambda func: func)
    to_numba_cuda._library.cache_clear()
    text, *_ = machine_code("numba", "matmul", "register_2d")
    to_numba_cuda._library.cache_clear()
    assert 0.5 < sass.share(text) < 0.65 and sass.wide_share(text) > WIDE


# What the warpgroups of `wgmma` that multiply do in a step, in order: four products of a group, the
# wait for the group before, its slot given back. In the end, the wait for the last group.
PIPELINE = ["HGMMA"] * 4 + ["DEPBAR.LE gsb0, 0x1", "ARRIVE.TRANS64.A1T0", "DEPBAR.LE gsb0, 0x0"]
_STEP = re.compile(r"(HGMMA)|(?:WARPGROUP|SYNCS)\.(DEPBAR[^;]*?|ARRIVE\.TRANS64\.A1T0)(?= ;| RZ)")


def wgmma_pipelines(*change: str) -> list[list[str]]:
    """Those of a kernel of each tile, in the source with a change."""
    kernels = [k.instance(*a) for k, a in resources.launched("cupy", "matmul")["matmul", "wgmma"]]
    names = list({tuple(raw.name.split(", ")[-3:-1]): raw.name for raw in kernels}.values())
    assert len(names) == len(WGMMA)
    code = kernels[0].code.replace(*change) if change else kernels[0].code
    _, log, _, cubin = nvrtc.translate(code, names, "sm_90a", ("--ptxas-options=-v",))
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", log)]
    assert "serialized" not in log and sorted(registers)[2:] == [168, 168]
    assert max(sorted(registers)[:2]) <= 128  # of one warpgroup: two blocks of 256 threads
    assert set(re.findall(r"(\d+) bytes spill", log)) == {"0"}
    texts = re.split(r"^\.text\.\w+:$", sass.sass(cubin), flags=re.MULTILINE)[1:]
    return [["".join(step.groups("")) for step in _STEP.finditer(text)] for text in texts]


def test_products_of_warpgroups_overlap():
    pipelines = wgmma_pipelines()
    assert pipelines == [PIPELINE] * 4


def test_products_that_do_not_overlap_are_seen():
    pipelines = wgmma_pipelines("wait_for_products<1>()", "wait_for_products<0>()")
    assert all(steps != PIPELINE for steps in pipelines)


def test_loops_are_found():
    text = """
.L_x_1:
        /*0010*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_2:
        /*0020*/                   FFMA R4, R3, R2, R4 ;
        /*0030*/              @!P1 FFMA.FTZ R5, R3, R2, R5 ;
        /*0040*/               @P0 BRA `(.L_x_2) ;
        /*0050*/               @P2 BRA `(.L_x_1) ;
        /*0060*/                   BRA `(.L_x_3) ;
.L_x_3:
        /*0070*/                   EXIT ;
"""
    assert sass.innermost_loops(text) == [{"FFMA": 2, "BRA": 1}]
    assert sass.wide_share(text) == 0
    wide = [
        "IADD3.X R1, R1, 0x0, RZ",
        "IMAD.WIDE.U32 R2, R1, 0x4, R2",
        "ISETP.GE.U32.AND.EX P0, R1",
    ]
    for instruction in (*wide, "LEA.HI.X R1, R2, R3, R4", "USHF.L.U64.HI UR4, UR4, 0x2, UR5"):
        with_one = text.replace("@!P1 FFMA.FTZ R5, R3, R2, R5", instruction)
        assert sass.wide_share(with_one) == pytest.approx(1 / 3)
    assert sass.share(text) == pytest.approx(2 / 3)
    assert sass.share("/*0000*/ EXIT ;") == 0
