"""Data parallel training on several ranks that goes on after an interruption.

    mpiexec -n 2 python -m minigrad.examples.distributed checkpoints

Started again, with the same or another number of ranks, it continues from the last checkpoint with
the same losses.
"""

from __future__ import annotations

import sys

import minigrad as torch
import minigrad.distributed as dist
from minigrad import datasets, nn
from minigrad.distributed import checkpoint
from minigrad.nn import functional as F
from minigrad.nn.parallel import DistributedDataParallel
from minigrad.utils.data import DataLoader, DistributedSampler

BATCH = 48  # of all ranks together: it must not depend on their number


def main(folder: str, epochs: int = 3, every: int = 10) -> list[float]:
    """The loss of each step that this start has done."""
    dist.init_process_group("mpi")
    try:
        return train(folder, epochs, every)
    finally:
        dist.destroy_process_group()


def train(folder: str, epochs: int, every: int) -> list[float]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if BATCH % ranks:
        raise ValueError(f"a batch of {BATCH} cannot be divided among {ranks} ranks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    network = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = datasets.load("digits")
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, BATCH // ranks, sampler=sampler, drop_last=True)
    saver = checkpoint.Periodic(folder, network, optimizer, every)
    done = saver.restore()
    if rank == 0:
        print(f"{ranks} ranks, from step {done}", flush=True)
    losses = []
    per_epoch = len(data) // BATCH
    for epoch in range(done // per_epoch, epochs):
        sampler.set_epoch(epoch)
        for number, (x, y) in zip(range(per_epoch), loader):
            if epoch * per_epoch + number < saver.step:
                continue  # done before the interruption
            loss = F.cross_entropy(network(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses.append(mean.item())
            saver.after_step()
            if rank == 0 and saver.step % every == 0:
                print(f"step {saver.step:3d}  loss {losses[-1]:.4f}", flush=True)
    return losses


if __name__ == "__main__":
    main(sys.argv[1])
