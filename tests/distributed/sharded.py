"""A program that trains one network in the four ways of dividing its state: `sharded.py`.

Rank 0 prints a line of JSON: per way the losses, the final parameters' sum of squares, the bytes
that arrays hold between steps, and the most that were gathered at one time.
"""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as torch
import minigrad.distributed as dist
from minigrad import nn
from minigrad.distributed.fsdp import (
    FullyShardedDataParallel,
    ModuleWrapPolicy,
    ShardingStrategy,
    fully_shard,
    units,
)
from minigrad.distributed.optim import ZeroRedundancyOptimizer
from minigrad.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, STEPS = 96, 4, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x)).tanh()


class Net(nn.Module):
    """Blocks, and a matrix that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.first(x)))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def stage0(net: Net) -> tuple:
    if dist.get_world_size() == 1:
        return net, adam(net.parameters())
    return DistributedDataParallel(net), adam(net.parameters())


def stage1(net: Net) -> tuple:
    wrapped = DistributedDataParallel(net)
    return wrapped, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)


def stage2(net: Net) -> tuple:
    wrapped = FullyShardedDataParallel(
        net,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sync_module_states=True,
    )
    return wrapped, adam(wrapped.parameters())


def stage3(net: Net) -> tuple:
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    return net, adam(net.parameters())


def train(make: Callable[[Net], tuple]) -> dict[str, Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    tracemalloc.start()
    net = Net()
    psi = sum(p.numel() for p in net.parameters())
    wrapped, optimizer = make(net)
    most, gather = 0, units.Unit.gather

    def watched(unit: units.Unit) -> None:
        nonlocal most
        gather(unit)
        most = max(most, sum(u.memory.array.nbytes for u in units.units(wrapped) if u.is_whole))

    units.Unit.gather = watched
    rng = np.random.default_rng(1)
    x = torch.tensor(rng.standard_normal((8, WIDTH)).astype("float32"))
    y = torch.tensor(rng.standard_normal((8, WIDTH)).astype("float32"))
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = ((wrapped(x[rank::size]) - y[rank::size]) ** 2).mean()
        loss.backward()
        total = loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        losses.append(total.item())
        optimizer.step()
    del loss, total
    gc.collect()
    held = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
    )
    tracemalloc.stop()
    units.Unit.gather = gather
    with FullyShardedDataParallel.summon_full_params(wrapped, writeback=False):
        squares = sum(float((p.detach() ** 2).sum()) for p in net.parameters())
        names = [name for name, _ in net.named_parameters()]
    owned = getattr(optimizer, "owned", list)()
    return {
        "losses": losses,
        "squares": squares,
        "names": names,
        "psi": psi,
        "share": sum(p.numel() for p in owned) / psi,
        "held": sum(trace.size for trace in held.traces),
        "gathered": most,
        "largest": max((u.memory.array.nbytes for u in units.units(wrapped)), default=0),
    }


def states() -> dict[str, bool]:
    """Saving and loading whole states."""
    torch.manual_seed(3)
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    wrapped = FullyShardedDataParallel(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
    found = wrapped.state_dict()
    same = list(found) == list(before)
    same = same and all(np.array_equal(found[k].numpy(), before[k].numpy()) for k in before)
    wrapped.load_state_dict({name: value * 2 for name, value in before.items()})
    twice = wrapped.state_dict()
    doubled = all(np.array_equal(twice[k].numpy(), 2 * before[k].numpy()) for k in before)
    (wrapped(torch.ones(2, WIDTH)).sum() * 100).backward()
    norm = wrapped.clip_grad_norm_(0.5).item()
    local = sum(float((p.grad**2).sum()) for p in wrapped.parameters())
    total = torch.tensor(local)
    dist.all_reduce(total)
    clipped = norm > 0.5 and abs(total.item() ** 0.5 - 0.5) < 1e-4
    plain = Net()
    optimizer = ZeroRedundancyOptimizer(plain.parameters(), torch.optim.Adam, lr=0.01)
    plain(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.consolidate_state_dict(1)
    whole = [optimizer.state_dict() if dist.get_rank() == 1 else None]
    dist.broadcast_object_list(whole, 1)
    complete = sorted(whole[0]["state"]) == list(range(len(list(plain.parameters()))))
    other = torch.optim.Adam(plain.parameters(), lr=0.5)
    other.load_state_dict(whole[0])
    optimizer.load_state_dict(whole[0])
    found = {"same": same, "doubled": doubled, "clipped": clipped, "complete": complete}
    return {name: bool(value) for name, value in found.items()}


class Small(nn.Module):
    """With a buffer, and a layer that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused = nn.Linear(5, 7), nn.Linear(7, 7)
        self.norm, self.last = nn.BatchNorm1d(7), nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).tanh())


def small(seed: int) -> Small:
    torch.manual_seed(seed)
    net = Small()
    net.norm.running_mean += seed
    return net


def batch(part: bool) -> torch.Tensor:
    x = torch.tensor(np.random.default_rng(4).standard_normal((8, 5)).astype("float32"))
    return x[dist.get_rank() :: dist.get_world_size()] if part else x


def backward_twice(net: nn.Module, part: bool) -> None:
    """Two passes, whose gradients add up. Adam would not notice gradients of another scale."""
    for factor in (1, 3):
        (net(batch(part)) ** 2).mean().mul(factor).backward()


def same(found: Any, expected: Any) -> bool:
    return all(
        np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
        for a, b in zip(found, expected, strict=True)
    )


def gradients() -> dict[str, bool]:
    """Of divided networks, against one rank's; what is broadcast; what is given back."""
    rank, found = dist.get_rank(), {}
    single = small(0)
    backward_twice(single, False)
    wanted = [torch.zeros_like(p) if p.grad is None else p.grad for p in single.parameters()]
    for name, strategy in (("2", "SHARD_GRAD_OP"), ("3", "FULL_SHARD")):
        net = small(rank)  # rank 0's must win
        wrapped = FullyShardedDataParallel(
            net,
            sharding_strategy=ShardingStrategy[strategy],
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}) if name == "3" else None,
            sync_module_states=True,
        )
        backward_twice(wrapped, True)
        parts = units.units(wrapped)
        found[f"{name}: given back"] = not any(u.is_whole or u.memory.array.any() for u in parts)
        with torch.no_grad():
            for unit in parts:
                grad = unit.shard.grad  # None where no parameter of the unit is used
                unit.shard.copy_(torch.zeros_like(unit.shard) if grad is None else grad)
        with FullyShardedDataParallel.summon_full_params(wrapped, writeback=False):
            found[f"{name}: gradients"] = same(net.parameters(), wanted)
        found[f"{name}: buffers"] = same(net.buffers(), single.buffers())
    return found


def owners() -> dict[str, bool]:
    """An optimiser whose state is divided: another rate in the middle, and a restart."""
    size = dist.get_world_size()
    single, net = small(0), small(0)
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9}
    plain = torch.optim.SGD(single.parameters(), **options)
    mine = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, **options)
    share = sum(p.numel() for p in mine.owned()) / sum(p.numel() for p in net.parameters())
    largest = max(p.numel() for p in net.parameters()) / sum(p.numel() for p in net.parameters())
    found = {"balanced": share < 1 / size + largest / 2}

    def steps(optimizer: Any, module: nn.Module) -> None:
        for _ in range(2):
            optimizer.zero_grad()
            backward_twice(module, False)
            optimizer.step()

    for optimizer, module in ((plain, single), (mine, net)):
        steps(optimizer, module)
        optimizer.param_groups[0]["lr"] = 0.03  # as a schedule does
        steps(optimizer, module)
    found["rate"] = same(net.parameters(), single.parameters())
    mine.consolidate_state_dict(0)
    state = [mine.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(state, 0)
    again = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=1.0)
    again.load_state_dict(state[0])
    steps(plain, single)
    steps(again, net)
    found["restart"] = same(net.parameters(), single.parameters())
    return found


def on_all(found: dict[str, bool]) -> dict[str, bool]:
    """What is true on every rank."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, found)
    return {name: all(one[name] for one in said) for name in found}


def memory() -> bool:
    """Whether pages go back to the system."""

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    one = units.Memory(1 << 23, np.float32)
    before = resident()
    one.array[...] = 1
    full = resident() - before
    one.give_back()
    return bool(full > 30 << 20 and resident() - before < 4 << 20 and one.array[5] == 0)


if __name__ == "__main__":
    dist.init_process_group("mpi")
    if dist.get_world_size() == 1:
        found = {"alone": train(stage0)}
    else:
        ways = {"0": stage0, "1": stage1, "2": stage2, "3": stage3}
        train(stage0)  # what loaded kernels keep is not to be counted
        found = {name: train(make) for name, make in ways.items()}
        found.update(states=on_all(states()), memory=memory())
        found.update(gradients=on_all(gradients()), owners=on_all(owners()))
    if dist.get_rank() == 0:
        print(json.dumps(found))
