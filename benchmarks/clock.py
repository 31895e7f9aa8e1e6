"""The lab's clock beside published measurements: `python -m benchmarks.clock [TABLE ...] [--json]`.

`--plot FILE` draws the comparison, `--read FILE` takes the rows of an earlier run's JSON.

Each table is a ladder of kernels that somebody measured on a GPU and published. The kernels here
(clock_kernels.cu) have the structure that the source describes; where it leaves a block size
open, 256 threads are taken. No constant was fitted. Two rules were settled while the A6000's table
was looked at, against machine code and whitepapers: that the assembler joins neighbouring loads of
shared memory, and that these take the load/store units as others do. The other tables had no part.
Needs the extra `cuda13`, no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels import lab, raw_kernel
from kernels.lab.draw.canvas import (
    BLUE,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    Picture,
    fitted,
    plain,
    width_of,
)  # fmt: skip

CODE = (Path(__file__).parent / "clock_kernels.cu").read_text()
N, COUNT = 4096, 1 << 25


class Row(NamedTuple):
    """A version: its kernel, grid and block, what was published and what that counts."""

    kernel: str
    grid: Any
    block: Any
    published: float


class Table(NamedTuple):
    """One source. work: what is divided by the seconds, for the published unit."""

    gpu: Any
    source: str
    unit: str
    work: float
    arguments: Callable[[], tuple]
    rows: tuple[Row, ...]


def _product() -> tuple:
    a = np.ones((N, N), np.float32)
    return a, a.copy(), np.zeros_like(a), np.int32(N)


def _sum(dtype: str) -> Callable[[], tuple]:
    return lambda: (np.ones(COUNT, dtype), np.zeros(COUNT // 256, dtype), np.int32(COUNT))


def _softmax() -> tuple:
    x = np.ones((N, N), np.float32)
    return x, np.zeros_like(x), np.int32(N)


def _products(*published: float) -> tuple[Row, ...]:
    tiles = [
        ("naive", 32, (32, 32)), ("coalesced", 32, 1024), ("shared_tile", 32, 1024),
        ("tile_1d", 64, 512), ("tile_2d", 128, 256), ("vectorised", 128, 256),
        ("warp_tile", 128, 128),
    ]  # fmt: skip
    return tuple(
        Row(name, (N // tile, N // tile), block, known)
        for (name, tile, block), known in zip(tiles, published)
    )


def _sums(dtype: str, loading: int, *published: float) -> tuple[Row, ...]:
    names = [f"{name}<{dtype}>" for name in ("tree", "neighbours", "halves", "many_loads")]
    grids = (COUNT // 256,) * 3 + (loading,)
    return tuple(Row(n, g, 256, known) for n, g, known in zip(names, grids, published))


_LAPTOP = lab.gpu("RTX 3060")._replace(  # 3050 of laptops: its SMs, clock and memory
    name="RTX 3050 Laptop", sms=16, boost=1500, fp32=6.1, memory=4, bandwidth=192, l2=2
)
TABLES = {
    "products-a6000": Table(
        "RTX A6000", "S. Boehm, How to Optimize a CUDA Matmul Kernel (2022)", "GFLOP/s",
        2e-9 * N**3, _product, _products(309, 1987, 2980, 8475, 15972, 18237, 21779),
    ),
    "products-3090": Table(
        "RTX 3090", "L. Mao, CUDA GEMM Optimization (2024), V00 to V06 vectorised", "GFLOP/s",
        2e-9 * N**3, _product, _products(278, 1722, 2662, 8913, 13025, 19669, 20165),
    ),
    "sums-3090": Table(
        "RTX 3090", "masterskepticista, Parallel Reductions in CUDA (2025)", "GB/s",
        4e-9 * COUNT, _sum("float32"), _sums("float", 82 * 6, 223, 317, 331, 859),
    ),
    "sums-v100": Table(
        "V100", "Optimizing Reduction using CUDA from Scratch, doubles, 256 threads", "GB/s",
        8e-9 * COUNT, _sum("float64"), _sums("double", 80 * 8, 303, 427, 649.5, 872.6),
    ),
    "softmax-3050": Table(
        _LAPTOP, "Pupking, 04_fused_softmax: 5.878 and 1.650 ms", "GB/s",
        8e-9 * N**2, _softmax,
        (Row("softmax_rows", N // 256, 256, 22.8), Row("softmax_shared", N, 256, 81.3)),
    ),
}  # fmt: skip


def measured(name: str) -> list[dict[str, Any]]:
    """The rows of a table, with what the clock says."""
    table = TABLES[name]
    arguments, found = table.arguments(), []
    for row in table.rows:
        kernel = raw_kernel(CODE, row.kernel)
        e = lab.time(kernel, row.grid, row.block, *arguments, gpu=table.gpu)
        estimated = table.work / e.seconds
        found.append(
            {
                "table": name, "kernel": row.kernel, "unit": table.unit,
                "published": row.published, "estimated": estimated,
                "low": table.work / e.high, "high": table.work / e.low,
                "ratio": estimated / row.published, "bound": e.bound,
            }
        )  # fmt: skip
    return found


def picture(rows: list[dict[str, Any]]) -> Picture:
    """Each version's estimate over what was published, with its range, on a logarithmic axis."""
    title = "The clock's estimates over published measurements"
    left, right, step, most = 230, 700, 19, 4.0
    names = list(dict.fromkeys(row["table"] for row in rows))
    drawn = Picture(860, 100 + step * len(rows) + 30 * len(names), title)
    within = sum(1 / 1.5 <= row["ratio"] <= 1.5 for row in rows)
    said = [title, f"{within} of {len(rows)} within a factor of 1.5"]

    def at(ratio: float) -> float:
        share = (math.log(ratio) + math.log(most)) / (2 * math.log(most))
        return left + (right - left) * min(max(share, 0), 1)

    top, bottom = 66, drawn.height - 34
    drawn.rect(at(1 / 1.5), top, at(1.5) - at(1 / 1.5), bottom - top, "#eef4fb")
    for ratio in (0.25, 0.5, 1, 2, 4):
        drawn.line(at(ratio), top, at(ratio), bottom, INK if ratio == 1 else GRID)
        drawn.label(at(ratio), top - 6, f"x {plain(ratio)}", 10, MUTED, "middle")
    drawn.label(16, 42, f"{said[1]} (blue band); bars: the clock's range", 11, MUTED)
    drawn.label(right + 16, top - 6, "published, estimated", 10, MUTED)
    y = top + 8.0
    for name in names:
        table = TABLES[name]
        y += 10
        card = lab.gpu(table.gpu).name
        said.append(f"{card}, {table.unit}: {table.source}")
        heading = fitted(said[-1], 820, 11)
        drawn.rect(12, y - 4, width_of(heading, 11), 16, PAPER)
        drawn.label(16, y + 8, heading, 11, INK)
        y += 20
        for row in (one for one in rows if one["table"] == name):
            low, high = (row[end] / row["published"] for end in ("low", "high"))
            drawn.label(left - 10, y + 9, row["kernel"], 10, INK, "end", mono=True)
            drawn.rect(at(low), y + 2, max(at(high) - at(low), 1), 7, "#bcd5ee", radius=2)
            good = 1 / 1.5 <= row["ratio"] <= 1.5
            colour = BLUE if good else ORANGE
            drawn.rect(at(row["ratio"]) - 4, y + 1.5, 8, 8, colour, radius=4)
            values = ", ".join(_rounded(row[key]) for key in ("published", "estimated"))
            drawn.label(right + 16, y + 9, values, 10, INK)
            said.append(f"  {row['kernel']}: {values}, x {row['ratio']:.2f}, {row['bound']}")
            y += step
    note = "left of x 1: the clock says slower than measured; orange: more than 1.5 off"
    drawn.label(left, bottom + 18, note, 11, MUTED)
    drawn.text = "\n".join(said)
    return drawn


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read", metavar="FILE", help="the rows of an earlier run, in JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw them (.svg, .png or .txt)")
    options = parser.parse_args()
    if options.read:
        known = json.loads(Path(options.read).read_text())["rows"]
        picture(known).save(options.plot or "clock.svg")
        return
    every = []
    for name in options.tables or TABLES:
        table = TABLES[name]
        rows = measured(name)
        every += rows
        if options.json:
            continue
        print(f"\n{lab.gpu(table.gpu).name}, {table.unit}: {table.source}")
        print(f"{'':18} {'published':>9} {'estimated':>9} {'range':>15} {'ratio':>6}  bound")
        for r in rows:
            print(
                f"{r['kernel']:18} {r['published']:9.4g} {r['estimated']:9.0f}"
                f" {r['low']:7.0f}-{r['high']:<7.0f} {r['ratio']:6.2f}  {r['bound']}"
            )
    if options.json:
        print(json.dumps({"rows": every}, indent=1))
    if options.plot:
        picture(every).save(options.plot)


if __name__ == "__main__":
    main()
