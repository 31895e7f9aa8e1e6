"""Data parallel training with 1, 2 and 4 ranks on the cores of this machine.

    python -m benchmarks.distributed [--json]

Each rank computes on one thread. Strong scaling divides one batch among the ranks, weak scaling
gives each rank a batch. Three times per row, each the lower quartile of the steps, which other
programs disturb least: a step with DistributedDataParallel, the same step without communication
(`no_sync`), and the communication alone (an all-reduce of each bucket). What a step takes longer
than its computing is the communication that computing did not hide; the overlap is the share that
it did hide. With more ranks than cores, ranks wait for each other's time on a core: these rows show
the cost of that, and no overlap. "load" is the number of runnable processes (mean of the last
minute) before the row: above 0 other programs take time, too, and figures say little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import measure
import numpy as np

RANKS = (1, 2, 4)
WIDTH, LAYERS = 512, 6
BATCH = 512  # strong: of all ranks; weak: of each two
WARM, STEPS = 3, 15


def quartile(call: Callable[[], None], steps: int) -> float:
    """Seconds of a call on this rank, all ranks beginning together."""
    import minigrad.distributed as dist

    taken = []
    for number in range(WARM + steps):
        dist.barrier()
        begun = time.perf_counter()
        call()
        if number >= WARM:
            taken.append(time.perf_counter() - begun)
    return statistics.quantiles(taken, n=4)[0]


def rank(batch: int, steps: int) -> None:
    """One rank: the first prints the slowest rank's times as JSON."""
    import minigrad as torch
    import minigrad.distributed as dist
    from minigrad import nn
    from minigrad.nn.parallel import DistributedDataParallel

    dist.init_process_group("mpi")
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers)
    network = DistributedDataParallel(model, bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rng = np.random.default_rng(dist.get_rank())
    x, y = (torch.tensor(rng.standard_normal((batch, WIDTH)).astype("float32")) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(network(x), y).backward()
        optimizer.step()

    def alone() -> None:
        with network.no_sync():
            step()

    def communicate() -> None:
        works = [dist.all_reduce(b, dist.ReduceOp.AVG, async_op=True) for b in buffers]
        for work in works:
            work.wait()

    buffers = [bucket.buffer() for bucket in network._reducer.buckets]
    found = torch.tensor([quartile(call, steps) for call in (step, alone, communicate)])
    dist.all_reduce(found, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        names = ("step", "compute", "communication")
        size = sum(buffer.numel() * 4 for buffer in buffers)
        print(json.dumps({**dict(zip(names, found.tolist())), "bytes": size}))


def run(ranks: int, batch: int, steps: int) -> dict:
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)]
    program = [sys.executable, __file__, "--rank", str(batch), "--steps", str(steps)]
    folder = str(measure.ROOT)
    environment = {
        **os.environ,
        "MINIGRAD_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": folder,
    }
    done = subprocess.run(
        [*(mpiexec if ranks > 1 else []), *program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{ranks} ranks failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def rows(steps: int) -> list[dict]:
    from minigrad.commands import doctor

    cores = doctor.cores()
    found: list[dict] = []
    for scaling in ("strong", "weak"):
        first = 0.0
        for ranks in RANKS:
            batch = BATCH // ranks if scaling == "strong" else BATCH // 2
            row = {"scaling": scaling, "ranks": ranks, "batch of a rank": batch}
            row["load"] = round(os.getloadavg()[0], 2)
            row |= run(ranks, batch, steps)
            first = first or row["step"]
            ideal = first / ranks if scaling == "strong" else first
            row["efficiency"] = ideal / row["step"]
            exposed = max(0.0, row["step"] - row["compute"])
            row["share of communication"] = exposed / row["step"]
            hidden = 1 - exposed / row["communication"]
            row["overlap"] = max(0.0, hidden) if 1 < ranks <= cores else None
            row["cores"] = cores
            found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default: {STEPS}")
    parser.add_argument("--rank", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.rank, arguments.steps)
        return
    found = rows(arguments.steps)
    print(f"{found[0]['bytes'] / 1e6:.1f} MB of gradients, {found[0]['cores']} cores")
    print("scaling ranks  batch      step   compute communication  efficiency  overlap  load")
    for row in found:
        times = [measure.format_seconds(row[k]) for k in ("step", "compute", "communication")]
        overlap = "-" if row["overlap"] is None else f"{row['overlap']:.0%}"
        more = "  more ranks than cores" if row["ranks"] > row["cores"] else ""
        print(
            f"{row['scaling']:<7} {row['ranks']:>5} {row['batch of a rank']:>6} {times[0]:>9} "
            f"{times[1]:>9} {times[2]:>13} {row['efficiency']:>11.0%} {overlap:>8} {row['load']:>5}"
            f"{more}"
        )
    if arguments.json:
        measure.write_json(measure.results_path("distributed"), 1, found)


if __name__ == "__main__":
    main()
