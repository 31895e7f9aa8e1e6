"""What an SM of each compute capability does in a cycle, and how long it waits for memory.

Each constant has its source beside it, or says that it is an assumption, with the range that is
known of it. The table of chips:

- lanes of float32, float64, integers and special functions: results per cycle and SM in the table
  "Throughput of Native Arithmetic Instructions" of NVIDIA's CUDA C++ Programming Guide;
- lanes of the load/store units, the first level's bytes per cycle and KiB: the whitepapers that
  `gpus.SOURCES` names;
- latencies, 7.0: 19 (shared memory), 28 and 193 cycles are in Z. Jia et al., "Dissecting the NVIDIA
  Volta GPU Architecture via Microbenchmarking" (2018); for memory 220 to 350 are reported as well
  (Cornell's course on GPU architecture), so that 375 is at the upper end. 7.5: the same authors on
  the T4 (2019); an RTX 2070 has 23 and 32 (S. Feng, gpu-arch-microbenchmark);
- latencies of 8.0, 8.9 and 9.0: W. Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
  Architecture via Microbenchmarking" (2024; A100, RTX 4090, H100), whose tables could not be read
  again in November 2026: they stand from memory. A survey of an application rounds all three to 20,
  200 and 400 cycles (ultsonch 2023.106546, table 3). The L40's second level answers after 222 to
  339, depending on which SM asks (Alpay and Basaran, arXiv 2606.22588). Take 20 % either way;
- 8.6, 10.0 and 12.0: an assumption, the nearest chip's. RTX 3090s are reported to need 20 % longer.
"""

from __future__ import annotations

from typing import NamedTuple

from kernels.lab.gpu_model.gpus import GPU

# Of an SM, each issues one instruction of a warp per cycle: the whitepapers, 7.0 to 12.0.
SCHEDULERS = 4
# Of the datasheet's bandwidth that a copy reaches. NvBench on an RTX 3080: 0.920 for the sum of
# two arrays of 256 MB (R100001, Programming-Massively-Parallel-Processors). Others: a V100 0.97 for
# reads alone (jhlee508, reduction-cuda), an L4 0.80 (rtferraz, cuda-kernel-engineering), a laptop's
# RTX 4050 0.96 (GPGPUTasks2025 #313).
COPY_SHARE = 0.92
# Of a launch with nothing before it, and of one that waits in a queue. NvBench on an RTX 3080 (the
# same): 3.1 and 1.7 us for 4 elements.
LAUNCH_SECONDS, QUEUED_SECONDS = 3e-6, 1.7e-6
# Bytes that the second level gives an SM per cycle when all ask: 2155 GB/s of a V100 with 80 SMs
# at 1380 MHz, 1270 GB/s of a T4 with 40 at 1590 MHz (Jia et al.). Later chips: an assumption, 20 to
# 50.
SECOND_LEVEL_BYTES = 20
# Cycles. 4: Jia et al. on 7.0 and 7.5. Shuffles: 22 on 7.0 (Jia et al.) to 24. Special functions:
# an assumption, 18 to 40.
ALU_LATENCY, SPECIAL_LATENCY, SHUFFLE_LATENCY = 4, 20, 24
# Cycles of a barrier after the last warp came, and per warp that comes: L. Zhang et al., "A Study
# of Single and Multi-device Synchronization Methods in Nvidia GPUs" (2020), 22 and 1 / 0.475 on a
# V100, from memory. Other chips: an assumption.
BARRIER_LATENCY, BARRIER_CYCLES = 22, 2
# Of an atomic addition of float32 to an address that all lanes of all warps add to. An RTX 3090
# adds 2^25 numbers at 2.47 GB/s, and at 9.9 GB/s where four are added first: 1.62 ns
# (MasterSkepticista, "Embarrassingly Parallel Reduction in CUDA", 2025). Other chips: an
# assumption, 0.5 to 3 ns.
SAME_ADDRESS_SECONDS = 1.62e-9


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
