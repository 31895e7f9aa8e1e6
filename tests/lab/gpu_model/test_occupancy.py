"""Occupancy against NVIDIA's own `cuda_occupancy.h`, and the limits against the driver's table."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernels import lab
from kernels.lab.gpu_model.occupancy import LIMITS, MAX_THREADS

REGISTERS = (0, 1, 8, 24, 32, 33, 40, 64, 65, 96, 128, 168, 200, 255)
BLOCKS = (1, 31, 32, 33, 64, 96, 128, 192, 250, 256, 384, 512, 640, 768, 1000, 1024, 1025)
SHARED = (
    0,
    1,
    256,
    257,
    1088,
    4096,
    8448,
    16 * 1024,
    33_000,
    48 * 1024,
    65_536,
    99 * 1024,
    232_448,
)

PROGRAM = r"""
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    int major, minor, warps, kib, registers, shared, block;
    while (scanf("%d %d %d %d %d %d %d", &major, &minor, &warps, &kib, &registers, &shared, &block)
           == 7) {
        cudaOccDeviceProp device;
        device.computeMajor = major; device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = warps * 32;
        device.regsPerBlock = 65536; device.regsPerMultiprocessor = 65536; device.warpSize = 32;
        device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
        device.sharedMemPerBlock = 48 * 1024; device.sharedMemPerMultiprocessor = kib * 1024;
        device.sharedMemPerBlockOptin = kib * 1024 - device.reservedSharedMemPerBlock;
        device.numSms = 1;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.sharedSizeBytes = 0;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared; kernel.numBlockBarriers = 1;
        cudaOccDeviceState state; cudaOccResult found;
        cudaOccError status = cudaOccMaxActiveBlocksPerMultiprocessor(
            &found, &device, &kernel, &state, block, shared);
        printf("%d %d %d %d %d %d %u\n", (int)status, found.activeBlocksPerMultiprocessor,
               found.blockLimitWarps, found.blockLimitRegs, found.blockLimitSharedMem,
               found.blockLimitBlocks, found.limitingFactors);
    }
}
"""
#: bits of cudaOccLimitingFactor
FACTORS = {"warps": 1, "registers": 2, "shared memory": 4, "blocks": 8}


def cuda_headers() -> Path:
    import nvidia

    for folder in nvidia.__path__:
        for found in Path(folder).glob("*/include/cuda_occupancy.h"):
            return found.parent
    raise FileNotFoundError("cuda_occupancy.h is in none of the folders of the nvidia wheels")


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """NVIDIA's calculator as a function: rows of numbers in, rows of numbers out."""
    folder = cuda_headers()
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to compile cuda_occupancy.h")
    source = tmp_path_factory.mktemp("occupancy") / "calculator.cpp"
    source.write_text(PROGRAM)
    binary = source.with_suffix("")
    subprocess.run(["g++", "-O1", f"-I{folder}", source, "-o", binary], check=True)

    def calculate(rows):
        text = "\n".join(" ".join(map(str, row)) for row in rows)
        done = subprocess.run([binary], input=text, capture_output=True, text=True, check=True)
        return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]

    return calculate


@pytest.mark.needs("nvidia")
def test_the_table_equals_nvidias_header(header):
    cases = list(itertools.product(LIMITS, REGISTERS, SHARED, BLOCKS))
    theirs = header(
        (*cc, LIMITS[cc].warps, LIMITS[cc].shared_kib, registers, shared, block)
        for cc, registers, shared, block in cases
    )
    for (cc, registers, shared, block), (status, blocks, *limits, factors) in zip(cases, theirs):
        ours = lab.occupancy(registers, shared, block, cc)
        where = (cc, registers, shared, block)
        if status != 0:  # the header calls a block that no SM has room for an error
            assert ours.blocks == 0, where
            continue
        assert ours.blocks == blocks, where
        if blocks == 0:
            continue
        if registers and shared:  # theirs knows no limit where nothing is asked for
            assert tuple(ours.limits.values()) == tuple(limits), where
        named = {name for name, bit in FACTORS.items() if factors & bit}
        assert set(ours.limited_by) == named, where


@pytest.mark.needs("nvidia")
def test_the_limits_of_an_sm_equal_the_ones_in_cccl():
    """The C++ library of the CUDA wheels has the Programming Guide's table as code."""
    path = cuda_headers() / "cccl" / "cuda" / "__device" / "arch_traits.h"
    if not path.exists():
        pytest.skip("needs a CUDA wheel with libcu++'s arch_traits.h")
    found = {}
    for body in re.split(r"arch_traits<arch_id::sm_", path.read_text())[1:]:
        number = body[: body.index(">")]
        values = dict(re.findall(r"max_(\w+)_per_multiprocessor\s*= ([\d *]+);", body))
        if number.isdigit() and {"shared_memory", "blocks", "threads"} <= set(values):
            cc = (int(number[:-1]), int(number[-1]))
            sizes = {name: eval(text) for name, text in values.items()}
            found[cc] = (sizes["blocks"], sizes["threads"] // 32, sizes["shared_memory"] // 1024)
    checked = {cc: tuple(LIMITS[cc]) for cc in found if cc in LIMITS}
    assert len(checked) >= 5
    assert checked == {cc: found[cc] for cc in checked}


def test_a_known_launch():
    """The tiled matmul: 256 threads, 2 KiB; on an 8.6 six blocks fill its 48 warps."""
    found = lab.occupancy(registers=40, shared=2048, block=256, cc=(8, 6))
    assert (found.blocks, found.warps, found.share) == (6, 48, 1.0)
    assert found.limits == {"warps": 6, "registers": 6, "shared memory": 33, "blocks": 16}
    assert found.limited_by == ("warps", "registers")
    assert lab.occupancy(64, 2048, 256, 8.6).limited_by == ("registers",)
    assert lab.occupancy(32, 48 * 1024, 128, "8.6").limited_by == ("shared memory",)
    assert lab.occupancy(32, 0, 32, 8.6).limited_by == ("blocks",)


def test_the_text_says_what_limits_and_what_would_help():
    text = str(lab.occupancy(128, 0, 256, 9.0))
    assert "occupancy 25%: 2 blocks, 16 of 64 warps" in text
    assert re.search(r"registers +allow +2 blocks +<- limits", text)
    assert "fewer registers" in text
    assert "would fail" in str(lab.occupancy(255, 0, 1024, 8.0))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"compute capability 6\.1: expected one of 7\.0, 7\.5"):
        lab.occupancy(32, 0, 128, 6.1)
    for wrong in ("sm_80", (8,), None, [8, 0, 0]):
        with pytest.raises(ValueError, match=r"expected 8\.6, '8\.6' or \(8, 6\), got"):
            lab.occupancy(32, 0, 128, wrong)
    assert lab.occupancy(32, 0, 128, 9) == lab.occupancy(32, 0, 128, [9, 0])
    with pytest.raises(ValueError, match="block=0"):
        lab.occupancy(32, 0, 0, 8.0)


def test_the_picture_has_a_bar_for_each_size_and_marks_this_one():
    picture = lab.occupancy(40, 8192, 256, 8.6).picture()
    rows = picture.text.splitlines()[3:]
    assert len(rows) == MAX_THREADS // 32
    assert [row for row in rows if row.endswith("<- this launch")] == [rows[7]]
    assert rows[7].split()[:3] == ["256", "6", "100%"]
    bars = [s for kind, s in picture.shapes if kind == "rect"][1:]
    tall = {rows[i].split()[2]: round(bar["height"], 6) for i, bar in enumerate(bars)}
    assert tall["100%"] == 190.0
    assert len({bar["fill"] for bar in bars}) == 2
