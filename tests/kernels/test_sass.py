"""The inner loops of products in NVIDIA's machine code: how much of them multiplies and adds.

Each of an SM's four schedulers issues one instruction per cycle, so the share of FFMA among the
instructions of the innermost loop bounds the share of the peak that a kernel can reach.
"""

from __future__ import annotations

import pytest

from kernels import lab
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
}


def machine_code(dialect: str, family: str, version: str) -> list[str]:
    """The SASS for compute capability 8.0 of what a version launches."""
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
    shares = [sass.share(text) for text in machine_code(*row)]
    assert shares and min(shares) >= GATES[row]


def test_without_the_rewriting_the_gate_is_red(monkeypatch):
    monkeypatch.setattr(to_numba_cuda, "optimised", lambda func: func)
    to_numba_cuda._library.cache_clear()
    text, *_ = machine_code("numba", "matmul", "register_2d")
    to_numba_cuda._library.cache_clear()
    assert 0.5 < sass.share(text) < 0.65


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
    assert sass.share(text) == pytest.approx(2 / 3)
    assert sass.share("/*0000*/ EXIT ;") == 0
