"""Pipelines against one rank: `pipelines.py [check ...]`, started with 1, 2 or 4 ranks."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Any

import minigrad as torch
import minigrad.distributed as dist
from minigrad import nn
from minigrad.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    SplitPoint,
    Timeline,
    ideal_bubble,
    pipeline,
)
from minigrad.nn import functional as F
from tests.distributed.model_parallel import close, raises, random, say

SCHEDULES = (ScheduleGPipe, Schedule1F1B)


class Part(nn.Module):
    """Passes on a stream, its mask (integers) and a second stream that few layers change."""

    def __init__(self, first: bool, last: bool) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.first, self.last = first, last

    def forward(self, x: Any, mask: Any = None, side: Any = None, scale: float = 1.0) -> Any:
        if self.first:
            mask, side = (x > 0).to(torch.int64), x.sum(1, keepdim=True)
        x = x + self.linear(self.norm(x)).tanh() * mask * scale
        return x * side if self.last else (x, mask, side * x.mean(1, keepdim=True))


class Whole(nn.Module):
    def __init__(self, parts: list[Part]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        passed: Any = (x,)
        for part in self.parts:
            passed = part(*(passed if isinstance(passed, tuple) else (passed,)), scale=scale)
        return passed


def whole(size: int) -> Whole:
    torch.manual_seed(7)
    return Whole([Part(i == 0, i == size - 1) for i in range(size)])


def equal() -> None:
    """Losses, outputs, gradients and parameters of several steps, of other batches each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for schedule_class in SCHEDULES:
        for count in (1, 2, 5, 8):
            single, mine = whole(size), whole(size).parts[rank]
            stage = PipelineStage(mine, rank, size, "cpu")
            schedule = schedule_class(stage, count, loss_fn=F.mse_loss)
            optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (single, mine)]
            for step in range(3):
                what = f"{schedule_class.__name__} {count} micro-batches, step {step}"
                x = random(2 * count * (1 + step % 2), 6, seed=step)
                y = random(*x.shape, seed=step + 10)
                expected = single(x, scale=0.5)
                loss = F.mse_loss(expected, y)
                loss.backward()
                losses: list[Any] = []
                given = (x,) if rank == 0 else ()
                target = y if rank == size - 1 else None
                found = schedule.step(*given, target=target, losses=losses, scale=0.5)
                if rank == size - 1:
                    close(found, expected, f"{what}: output", 10)
                    assert len(losses) == count
                    close(torch.stack(losses).mean(), loss, f"{what}: loss", 10)
                else:
                    assert found is None and losses == []
                for name, p in mine.named_parameters():
                    wanted = dict(single.parts[rank].named_parameters())[name].grad
                    close(p.grad, wanted, f"{what}: gradient of {name}", 40)
                if step != 1:  # the gradients of step 1 are added to those of step 2
                    for optimizer in optimizers:
                        optimizer.step()
                        optimizer.zero_grad()
            x = random(2 * count, 6)
            graphs: list[bool] = []
            handle = mine.linear.register_forward_hook(
                lambda module, given, out, graphs=graphs: graphs.append(out.requires_grad)
            )
            found = schedule.eval(*((x,) if rank == 0 else ()), scale=0.5)
            handle.remove()
            assert graphs == [False] * count and schedule.most_alive == 0
            if rank == size - 1:
                assert not found.requires_grad
                close(found, single(x, scale=0.5), f"{schedule_class.__name__}: eval", 40)


def alive() -> None:
    """1F1B holds at most as many graphs as there are stages from this one on; GPipe all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(nn.Linear(3, 3), rank, size, "cpu")
    for schedule_class, most in ((ScheduleGPipe, 8), (Schedule1F1B, size - rank)):
        schedule = schedule_class(stage, 8, loss_fn=F.mse_loss)
        x = random(8, 3)
        schedule.step(*((x,) if rank == 0 else ()), target=x if rank == size - 1 else None)
        assert schedule.most_alive == most, (schedule_class.__name__, schedule.most_alive)


class Slow(torch.autograd.Function):
    """Takes a known time, which no processor is needed for."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        time.sleep(0.04)
        return g


class SlowLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Slow.apply(x * self.scale)


def bubble(picture: str = "") -> None:
    """The measured idle share is that of theory, and the schedules differ in their order."""
    rank, size = dist.get_rank(), dist.get_world_size()
    count = 2 * size
    stage = PipelineStage(SlowLayer(), rank, size, "cpu")
    x = random(count, 2)
    for schedule_class in SCHEDULES:
        schedule = schedule_class(stage, count, loss_fn=F.mse_loss)
        theory = ideal_bubble(size, count)
        for _ in range(10):  # until no other program uses the processor for long
            schedule.step(*((x,) if rank == 0 else ()), target=x if rank == size - 1 else None)
            best = schedule.timeline()
            assert best.bubble > theory - 0.03, (best.bubble, theory, str(best))
            if best.bubble < theory + 0.05:
                break
        else:
            raise AssertionError((best.bubble, theory, str(best)))
        ideal = Timeline.ideal(schedule_class, size, count)
        assert str(ideal).splitlines()[1:] == str(best).splitlines()[1:]
        assert len(best.events) == 2 * count * size
        if picture and rank == 0:
            best.picture().save(picture.format(schedule_class.__name__))
        if rank == 0:
            say(str(best).splitlines()[0])


def split() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(2 * size)])
    spec = {str(2 * i): SplitPoint.BEGINNING for i in range(1, size)}
    pipe = pipeline(net, (random(1, 4),), split_spec=spec)
    assert pipe.num_stages == size
    stage = pipe.build_stage(rank, "cpu")
    assert list(stage.submodule.state_dict()) == [
        f"{2 * rank + i}.{name}" for i in range(2) for name in ("weight", "bias")
    ]
    x = random(4, 4)
    found = Schedule1F1B(stage, 2).step(*((x,) if rank == 0 else ()))
    if rank == size - 1:
        close(found, net(x), "pipeline()", 4)


def errors() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    layer = nn.Linear(3, 3)
    raises(ValueError, "out of range", lambda: PipelineStage(layer, size, size, "cpu"))
    raises(
        RuntimeError,
        f"{size + 1} stages need a group of {size + 1} ranks, got {size}",
        lambda: PipelineStage(layer, rank, size + 1, "cpu"),
    )
    other = (rank + 1) % size
    raises(
        ValueError,
        f"stage {other} belongs to rank {other} of the group, and this is rank {rank}",
        lambda: PipelineStage(layer, other, size, "cpu"),
    )
    # Every rank gets an error; the groups cannot be used afterwards.
    groups = [dist.new_group(range(size)) for _ in range(5)]
    stages = [PipelineStage(layer, rank, size, "cpu", group=group) for group in groups]
    x = random(6, 3)
    given = (x,) if rank == 0 else ()
    target = x if rank == size - 1 else None
    raises(
        dist.DistBackendError,
        "rank 0: Schedule1F1B.step, 2 micro-batches, backward",
        lambda: Schedule1F1B(stages[0], 2 if rank == 0 else 3, F.mse_loss).step(
            *given, target=target
        ),
    )
    text = "ScheduleGPipe.step: 4 micro-batches do not divide argument 0 of shape (6, 3)"
    raises(
        ValueError if rank == 0 else dist.DistBackendError,
        text,
        lambda: ScheduleGPipe(stages[1], 4).step(*given),
    )
    raises(
        ValueError if rank == size - 1 else dist.DistBackendError,
        "the last stage needs a target",
        lambda: ScheduleGPipe(stages[2], 2, F.mse_loss).step(*given),
    )
    raises(
        dist.DistBackendError,
        "ScheduleGPipe.step, 2 micro-batches, backward",
        lambda: (
            dist.barrier(groups[3])
            if rank == 1
            else ScheduleGPipe(stages[3], 2, F.mse_loss).step(*given, target=target)
        ),
    )
    raises(
        dist.DistBackendError,
        "ScheduleGPipe.step" if rank else "Schedule1F1B.step",
        lambda: (ScheduleGPipe if rank else Schedule1F1B)(stages[4], 2).step(*given),
    )
    dist.barrier()


def stops() -> None:
    """The last stage does not begin its backward pass: the others say what they wait for."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(range(size), timeout=datetime.timedelta(seconds=1))
    stage = PipelineStage(nn.Linear(3, 3), rank, size, "cpu", group=group)
    x = random(4, 3)

    def broken(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise LookupError("no loss")

    schedule = Schedule1F1B(stage, 2, broken)
    if rank == size - 1:
        raises(LookupError, "no loss", lambda: schedule.step(*(() if rank else (x,)), target=x))
    else:
        text = f"Schedule1F1B.step: stage {rank} of {size}, before backward of micro-batch 0: "
        raises(dist.DistBackendError, text, lambda: schedule.step(*(() if rank else (x,))))
    dist.barrier()


CHECKS = [equal, alive, bubble, split, errors, stops]

if __name__ == "__main__":
    dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=60))
    chosen = [globals()[name] for name in sys.argv[1:2]]
    alone = (errors, stops) if dist.get_world_size() == 1 else ()
    for check in chosen or [check for check in CHECKS if check not in alone]:
        check(*sys.argv[2:])
        say(f"{check.__name__} passed")
