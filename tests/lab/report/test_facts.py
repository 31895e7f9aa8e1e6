"""Facts and pictures of a profile: occupancy, roofline, maps of accesses, single requests."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels import lab
from kernels.simt import cuda


@cuda.jit
def strided(x, out, stride):
    i = cuda.grid(1)
    out[i] = x[i * stride] * x[i * stride] + np.float32(1)


@cuda.jit
def transpose(a, out):
    tile = cuda.shared.array((32, 32), np.float32)
    x, y = cuda.grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[y, x]
    cuda.syncthreads()
    i = cuda.blockIdx.y * 32 + cuda.threadIdx.x
    j = cuda.blockIdx.x * 32 + cuda.threadIdx.y
    out[j, i] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


def profiled(stride: int, records: int = 100_000):
    x, out = np.ones(256 * stride, np.float32), np.zeros(256, np.float32)
    return lab.profile(strided, 4, 64, x, out, stride, records=records)


@pytest.fixture(scope="module")
def transposed():
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    return lab.profile(transpose, (2, 2), (32, 32), a, np.zeros_like(a), records=100_000)


def number(pattern: str, text: str) -> int:
    return int(re.search(pattern, text)[1])


@pytest.mark.parametrize("stride", [1, 2, 3, 9])
def test_the_pictures_of_all_requests_add_up_to_the_report(stride):
    report = profiled(stride)
    total = 0
    for block in range(4):
        for warp in range(2):
            for op, array, iterations in (("load", "x", 2), ("store", "out", 1)):
                for iteration in range(iterations):
                    where = dict(op=op, block=block, warp=warp, iteration=iteration)
                    text = lab.request_picture(report, array, **where).text
                    total += number(r"(\d+) sectors of 32 bytes for 32 lanes", text)
    assert total == report.totals.sectors


def test_the_repr_of_a_report_is_one_line():
    text = repr(profiled(1))
    expected = (
        "<strided, grid (4, 1, 1), block (64, 1, 1), races: 0, errors: 0; print() shows more>"
    )
    assert text == expected


def test_banks_of_a_request_are_the_reports(transposed):
    text = lab.request_picture(transposed, "tile").text
    assert "32 wavefronts, ideal 1: 31 lost" in text
    stores = lab.request_picture(transposed, "tile", op="store", block=3, warp=7).text
    assert "1 wavefront, ideal 1: no bank conflict" in stores
    assert "warp 7 of block 3 writes tile" in stores
    both = 32 * 4 * (32 + 1)  # each of 32 warps in 4 blocks loads and stores once
    assert transposed.totals.wavefronts == both


def test_a_map_counts_every_access(transposed):
    everything = lab.access_map(transposed, "tile").text
    assert "8,192 in all: 32x32, from 8 to 8 accesses" in everything
    one = lab.access_map(transposed, "tile", "load", block=0, warp=0).text
    assert "reads of tile by block 0, warp 0, 32 in all" in one
    first_column = [row.split() for row in one.splitlines()[1:]]
    assert {row[0] for row in first_column} == {"1"}
    assert {value for row in first_column for value in row[1:]} == {"0"}
    line = lab.access_map(profiled(2), "x", "load").text
    assert "reads of x, 512 in all: 16x32, from 0 to 2 reads" in line
    assert line.splitlines()[1].split()[:4] == ["2", "0", "2", "0"]


def test_mistakes_of_maps_are_named(transposed):
    with pytest.raises(ValueError, match="no array 'b'; its arrays: tile, a, out"):
        lab.access_map(transposed, "b")
    with pytest.raises(ValueError, match=r"profile\(\.\.\., records=1_000_000\) keeps them"):
        lab.access_map(profiled(1, records=0), "x")
    with pytest.raises(ValueError, match="no record of a load of a at line 1"):
        lab.request_picture(transposed, "a", line=1)
    with pytest.raises(ValueError, match="op: expected one of"):
        lab.access_map(transposed, "a", "read")


def test_the_roofline_of_a_report_is_that_of_the_whole_grid():
    whole = profiled(1).roofline("A100 SXM")
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    part = lab.profile(strided, 4, 64, x, out, 1, blocks=1).roofline("A100 SXM")
    assert whole.points == part.points
    (point,) = whole.points
    assert (point.name, point.flops) == ("strided", 2 * 256)
    assert point.bytes == 32 * (2 * 32 + 32)  # two loads and a store of 1 KiB
    assert "took 1 ms" in str(profiled(1).roofline("A100 SXM", seconds=1e-3))


@pytest.mark.needs("numba_cuda")
def test_the_occupancy_of_a_report(transposed):
    found = transposed.occupancy(8.0)
    assert (found.block, found.shared) == (1024, 4096)
    assert found == transposed.compiled(8.0).occupancy(1024)
    assert lab.compiled(transpose.py_func, *transposed.types, cc=8.0).registers == found.registers
    assert found.blocks == 2
    assert found.share == 1.0
