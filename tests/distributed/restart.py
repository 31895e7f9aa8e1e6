"""A program that saves its training every two steps, and goes on from there.

`restart.py WAY FOLDER` prints the process of each rank, and the loss of each step. With a third
argument it waits after the fifth step.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import minigrad as torch
import minigrad.distributed as dist
from minigrad import nn
from minigrad.distributed import checkpoint
from minigrad.distributed.tensor import Replicate
from minigrad.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from tests.distributed import sharded
from tests.distributed.sharded import WIDTH, Net

STEPS, EVERY, BATCH = 8, 2, 12


def tensor_parallel(net: Net) -> tuple:
    whole = Replicate()
    columns, rows = ColwiseParallel(output_layouts=whole), RowwiseParallel(input_layouts=whole)
    plan = {"blocks.*.linear": rows, "first": columns, "last": columns}
    parallelize_module(net, None, plan)
    return net, sharded.adam(net.parameters())


WAYS = {
    "ddp": sharded.stage0,
    "zero": sharded.stage1,
    "fsdp": sharded.stage3,
    "tensor": tensor_parallel,
}


def main(way: str, folder: str, waits: str = "") -> None:
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    os.write(1, f"rank {rank} has process {os.getpid()}\n".encode())
    torch.manual_seed(0)
    net = Net()
    wrapped, optimizer = WAYS[way](net)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    saver = checkpoint.Periodic(
        folder, wrapped, optimizer, every=EVERY, more={"schedule": schedule}
    )
    for step in range(saver.restore(), STEPS):
        rng = np.random.default_rng(step)  # the data of a step do not depend on the ranks
        x, y = (
            torch.tensor(rng.standard_normal((BATCH, WIDTH)).astype("float32")) for _ in range(2)
        )
        optimizer.zero_grad()
        if way != "tensor":  # its ranks have the same data
            x, y = x[rank::size], y[rank::size]
        loss = nn.functional.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        total = loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        saver.after_step()
        if rank == 0:
            os.write(1, f"loss {step} {total.item():.8f}\n".encode())
        if waits and step == 4:
            time.sleep(60)  # the test kills a rank here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
