"""The machine code of products on the CPU: their sums stay in vector registers."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

import numpy as np
import pytest

from kernels.cuda_c.common import Kernel
from kernels.cuda_c.conv_gemm import gemm_tile, implicit_gemm
from kernels.cuda_c.matmul import configure

X = np.ones(1, np.float32)
FLAGS = (False, False, False)  # nothing transposed, no bias
PRODUCTS = {
    "matmul": configure("vectorised", "float", FLAGS, 1, 512, 512, False)[0],
    "conv2d": implicit_gemm("float", gemm_tile(32, 288, 784, False), False, False),
}
INSTRUCTION = re.compile(r" +([0-9a-f]+):\t(\S+) *([^#<\n]*)")


def loops(kernel: Kernel) -> list[list[tuple[str, str]]]:
    """The innermost loops of a kernel, as (operation, operands) of their instructions."""
    library = kernel.instance(*[X] * 5).module.on_cpu().loaded._name
    command = ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", library]
    text = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    code = [(int(at, 16), op, rest.strip()) for at, op, rest in INSTRUCTION.findall(text)]
    found = []
    for last, op, target in code:
        if op.startswith("j") and re.fullmatch("[0-9a-f]+", target) and int(target, 16) < last:
            body = [(op, rest) for at, op, rest in code if int(target, 16) <= at < last]
            if not any(op.startswith(("j", "call")) for op, _ in body):
                found.append(body)
    return found


def _multiplies(op: str) -> bool:
    return re.fullmatch("v?(fmadd[0-9]+|mul)ps", op) is not None


def _stores(op: str, operands: str) -> bool:
    return operands.endswith(")") and not op.startswith(("cmp", "test"))


@pytest.mark.skipif(not shutil.which("objdump"), reason="needs binutils")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads code of x86-64")
@pytest.mark.parametrize("family", PRODUCTS)
def test_sums_stay_in_vector_registers(family):
    """In the innermost loop with the most products, nothing is stored."""
    body = max(loops(PRODUCTS[family]), key=lambda body: sum(_multiplies(op) for op, _ in body))
    products = [operands for op, operands in body if _multiplies(op)]
    assert len(products) >= 8
    assert [one for one in body if _stores(*one)] == []
