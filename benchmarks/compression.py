"""Gradients sent in fewer bytes: what two ranks send per step, and the curve of losses.

    python -m benchmarks.compression [--json]

An MLP learns the digits (included) with DistributedDataParallel, once with each communication hook.
The bytes are those that a rank sends in a ring: of an all-reduce of n bytes among p ranks
2 (p - 1) / p * n, of an all-gather (p - 1) times its part, of an all-to-all all but its own part.
Losses are means over both ranks and the last 25 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import measure

RANKS, STEPS, EVERY, BATCH = 2, 300, 25, 64
HOOKS = ("float32", "bfloat16", "top 25 %", "top 1 %", "top 1 %, errors dropped")


class Counted:
    """A group of ranks that counts what this rank sends."""

    def __init__(self, group: Any) -> None:
        self.group, self.sent = group, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)

    def all_reduce(self, array: Any, *more: Any) -> Any:
        self.sent += 2 * (self.size - 1) / self.size * array.nbytes
        return self.group.all_reduce(array, *more)

    def all_gather(self, out: Any, part: Any) -> Any:
        self.sent += (self.size - 1) * part.nbytes
        return self.group.all_gather(out, part)

    def all_to_all(self, out: Any, parts: Any, *more: Any) -> Any:
        self.sent += (self.size - 1) / self.size * parts.nbytes
        return self.group.all_to_all(out, parts, *more)


def rank(name: str) -> None:
    """One rank; the first prints losses, bytes and accuracy as JSON."""
    import minigrad as torch
    import minigrad.distributed as dist
    from minigrad import datasets, nn
    from minigrad.distributed import compression, groups
    from minigrad.nn.parallel import DistributedDataParallel

    dist.init_process_group("mpi")
    me = dist.get_rank()
    torch.manual_seed(0)
    (x, y), (test_x, test_y) = (datasets.digits(part).tensors for part in (True, False))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    network = DistributedDataParallel(model, bucket_cap_mb=0.05)
    counted = Counted(groups.resolve(None))
    state = compression.TopKState(counted, 0.25 if "25" in name else 0.01)
    if name == "bfloat16":
        network.register_comm_hook(counted, compression.bf16_compress_hook)
    elif name.startswith("top"):
        network.register_comm_hook(state, compression.topk_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, seen = [], 0.0
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1)).tolist()
    for step in range(STEPS):
        at = [order[(step * BATCH + i) % len(x)] for i in range(me, BATCH, RANKS)]
        loss = nn.functional.cross_entropy(network(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if "dropped" in name:
            state.errors.clear()
        seen += loss.item() / EVERY
        if step % EVERY == EVERY - 1:
            mean = torch.tensor([seen])
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses.append(round(mean.item(), 4))
            seen = 0.0
    size = sum(p.numel() * 4 for p in model.parameters())
    sent = counted.sent / STEPS or 2 * (RANKS - 1) / RANKS * size
    with torch.no_grad():
        right = (model(test_x).argmax(1) == test_y).float().mean().item()
    if me == 0:
        print(json.dumps({"hook": name, "bytes": sent, "losses": losses, "accuracy": right}))


def run(name: str) -> dict:
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    program = [sys.executable, __file__, "--rank", name]
    settings = {
        "MINIGRAD_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(measure.ROOT),
    }
    done = subprocess.run(
        [mpiexec, "-n", str(RANKS), *program],
        capture_output=True, text=True, env={**os.environ, **settings}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results")
    parser.add_argument("--rank", metavar="HOOK", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.rank)
        return
    found = [run(name) for name in HOOKS]
    chosen = (0, 1, 3, 7, len(found[0]["losses"]) - 1)
    heads = "".join(f"{(i + 1) * EVERY:>9}" for i in chosen)
    print(f"{'sent as':<24}{'bytes/step':>11}{'share':>7}   loss at step{heads}  accuracy")
    for row in found:
        share = row["bytes"] / found[0]["bytes"]
        losses = "".join(f"{row['losses'][i]:>9.3f}" for i in chosen)
        print(
            f"{row['hook']:<24}{row['bytes']:>11,.0f}{share:>7.1%}   {'':<12}{losses}"
            f"{row['accuracy']:>10.1%}"
        )
    if arguments.json:
        measure.write_json(measure.results_path("compression"), 1, found)


if __name__ == "__main__":
    main()
