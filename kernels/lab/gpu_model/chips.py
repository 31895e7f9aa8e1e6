"""What an SM of each compute capability does in a cycle, and how long it waits for memory.

Rates, in results of a lane per cycle and SM, are those of the table "Throughput of Native
Arithmetic Instructions" of NVIDIA's CUDA C++ Programming Guide; lanes of the load/store units, the
first level of the cache and its bytes per cycle are in the whitepapers that `gpus.SOURCES` names.
Latencies, in cycles and rounded, and
what the second level gives are measurements: Z. Jia et al., "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking" (2018) and the same of the Turing T4 (2019); W. Luo et al.,
"Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (2024), which
has the A100, RTX 4090 and H100; of 8.6, 10.0 and 12.0 there is none among them, and the nearest is
taken.

Looked up again in November 2026, in copies and in what others quote: the V100's 19, 28 and 193
cycles and the 2155 GB/s of its second level stand as here (Cornell's course on GPU architecture
gives 128 bytes per cycle for its L1, and 220 to 350 cycles for its memory); an RTX 2070 has 23 and
32 cycles (S. Feng, gpu-arch-microbenchmark), which fits 7.5. The L40's second level answers after
222 to 339 cycles, depending on which SM asks (Alpay and Basaran, arXiv 2606.22588), so that one
figure is a mean. The rows of 8.0 and later could not be read again.
"""

from __future__ import annotations

from typing import NamedTuple

from kernels.lab.gpu_model.gpus import GPU

SCHEDULERS = 4  # of an SM, each issues one instruction of a warp per cycle
COPY_SHARE = 0.92  # of the datasheet's bandwidth that a copy reaches
LAUNCH_SECONDS = 3e-6  # from one kernel's end to the next one's start
# Bytes that the second level gives an SM per cycle when all ask: 2155 GB/s of a V100 with 80 SMs
# at 1380 MHz, 1270 GB/s of a T4 with 40 at 1590 MHz (Jia et al.).
SECOND_LEVEL_BYTES = 20
ALU_LATENCY, SPECIAL_LATENCY, SHUFFLE_LATENCY = 4, 20, 24


class Chip(NamedTuple):
    """Lanes per cycle of float32, float64, integers, special functions, of load/store units; bytes
    per cycle and KiB of the first level; latencies of shared memory, the two levels, memory."""

    fp32: int
    fp64: int
    integer: int
    special: int
    load_store: int
    l1_bytes: int
    l1_kib: int
    shared_latency: int
    l1_latency: int
    l2_latency: int
    memory_latency: int


_CHIPS = {
    (7, 0): Chip(64, 32, 64, 16, 32, 128, 128, 19, 28, 193, 375),
    (7, 5): Chip(64, 2, 64, 16, 16, 64, 96, 22, 32, 188, 400),
    (8, 0): Chip(64, 32, 64, 16, 32, 128, 192, 29, 38, 262, 466),
    (8, 6): Chip(128, 2, 64, 16, 16, 128, 128, 29, 38, 262, 466),
    (8, 9): Chip(128, 2, 64, 16, 16, 128, 128, 30, 43, 273, 541),
    (9, 0): Chip(128, 64, 64, 16, 32, 128, 256, 29, 41, 263, 479),
    (10, 0): Chip(128, 64, 64, 16, 32, 128, 256, 29, 41, 263, 479),
    (12, 0): Chip(128, 2, 128, 16, 16, 128, 128, 30, 43, 273, 541),
}
# KiB of the first level that shared memory can be given: cuda_occupancy.h
_CARVE_OUTS = {
    (7, 0): (0, 8, 16, 32, 64, 96),
    (7, 5): (32, 64),
    (8, 0): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 6): (0, 8, 16, 32, 64, 100),
    (8, 9): (0, 8, 16, 32, 64, 100),
    (9, 0): (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    (10, 0): (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    (12, 0): (0, 8, 16, 32, 64, 100),
}


def chip(gpu: GPU) -> Chip:
    """The SM of a GPU."""
    return _CHIPS[gpu.cc]


def first_level_bytes(gpu: GPU, shared: int) -> int:
    """What an SM has left of its first level where its blocks use `shared` bytes together."""
    fitting = [kib for kib in _CARVE_OUTS[gpu.cc] if kib * 1024 >= shared]
    return (_CHIPS[gpu.cc].l1_kib - min(fitting, default=_CARVE_OUTS[gpu.cc][-1])) * 1024
