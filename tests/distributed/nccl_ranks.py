"""The backend "nccl" on the software GPU, with a stand-in for NCCL: `nccl_ranks.py CHECK ...`."""
# ruff: noqa: E402 (the software GPU comes before anything that looks for a driver)

from __future__ import annotations

import datetime
import os
import sys
from typing import Any

import numpy as np

from tests import software_gpu
from tests.distributed import nccl_stand_in as nccl

REAL = "REAL_GPU" in os.environ
RANK = int(os.environ.get("RANK", os.environ.get("PMI_RANK", "0")))
if not REAL:
    software_gpu.install()
    nccl.install()
    if "SHARE_GPU" not in os.environ:
        import cupy

        cupy.cuda.runtime.deviceGetPCIBusId = lambda number: f"0000:{RANK:02x}:{number:02x}.0"

import minigrad as torch
import minigrad.distributed as dist
from minigrad import nn
from minigrad.distributed import staging
from minigrad.nn.parallel import DistributedDataParallel
from tests.distributed import model_parallel, pipelines, programs
from tests.distributed.model_parallel import close, raises, random, say

programs.BACKEND = "nccl"


def start(seconds: float = 120) -> tuple[int, int]:
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=seconds))
    return dist.get_rank(), dist.get_world_size()


def values() -> None:
    """Every collective, messages and groups, as on the CPU; then what NCCL was called with."""
    with torch.device("cuda"):
        programs.collectives()
        rank, size = dist.get_rank(), dist.get_world_size()
        programs.start = lambda *_: (rank, size)
        programs.messages()
        programs.groups()
        del nccl.calls[:]
        x = torch.ones(3, 5, dtype=torch.bfloat16)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        dist.all_reduce(torch.ones(7, dtype=torch.complex64))
        dist.reduce(torch.ones(2, dtype=torch.int64), 1, dist.ReduceOp.MAX)
        dist.broadcast(torch.ones(3, dtype=torch.int16), 1)
        dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * size))
        out = torch.empty(size, 2)
        dist.all_gather_into_tensor(out, torch.ones(2))
    assert nccl.calls == [
        ("allReduce", 15, nccl.NCCL_BFLOAT16, nccl.NCCL_AVG),
        ("allReduce", 14, nccl.NCCL_FLOAT32, nccl.NCCL_SUM),
        ("reduce", 2, nccl.NCCL_INT64, nccl.NCCL_MAX, 1),
        ("broadcast", 6, nccl.NCCL_INT8, 1),
        ("reduceScatter", 4, nccl.NCCL_FLOAT32, nccl.NCCL_SUM),
        ("allGather", 8, nccl.NCCL_INT8),
    ], nccl.calls
    assert x.cpu().tolist() == [[1.0] * 5] * 3


def streams() -> None:
    """A collective waits for the caller's stream, and the caller's stream for `wait()`."""
    rank, size = start()
    total = sum(range(1, size + 1))
    other = torch.cuda.Stream()
    with torch.device("cuda"), torch.cuda.stream(other):
        x = torch.zeros(1000)
        at, written = x._array.data.ptr, np.full(1000, rank + 1, np.float32).tobytes()
        # Work of this stream, which nothing has waited for:
        nccl._enqueue(other.cuda_stream, lambda: nccl._write(at, written))
        work = dist.all_reduce(x, async_op=True)
        work._work.event.synchronize()  # the group's stream runs before the host waits for `other`
        y = torch.ones(1000) * 2
        work.wait()
        z = x * y
        assert z.cpu().tolist() == [2.0 * total] * 1000
        assert not software_gpu.take_fault()
        del x  # its memory may be used by others only when NCCL has done with it
        w = torch.full((1000,), 1.0)
        held = [dist.all_reduce(w, async_op=True) for _ in range(3)]
        del w
        for work in held:
            work.wait()
            assert work.is_completed() or torch.cuda.synchronize() is None
        assert held[-1].is_completed()


def training() -> None:
    """Data, tensor, sequence and pipeline parallel on GPUs: one rank's results."""
    rank, size = start()
    with torch.device("cuda"):
        net, single = (nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in "ab")
        for i, (a, b) in enumerate(zip(net.parameters(), single.parameters())):
            a.data, b.data = random(*a.shape, seed=i).cuda(), random(*a.shape, seed=i).cuda()
        x = random(2 * size, 6).cuda()
        wrapped = DistributedDataParallel(net)
        (single(x) ** 2).mean().backward()
        (wrapped(x.chunk(size)[rank]) ** 2).mean().backward()
        for a, b in zip(net.parameters(), single.parameters()):
            close(a.grad.cpu(), b.grad.cpu(), "data parallel", 4)
        q = [random(1, 2, 4 * size, 8, seed=i).cuda() for i in range(3)]
        mine = [t.chunk(size, 2)[rank].clone().requires_grad_() for t in q]
        whole = [t.clone().requires_grad_() for t in q]
        found = model_parallel.ring_attention(*mine, is_causal=True)
        expected = nn.functional.scaled_dot_product_attention(*whole, is_causal=True)
        close(found.cpu(), expected.chunk(size, 2)[rank].cpu(), "ring", 4)
        (found**2).sum().backward()
        (expected**2).sum().backward()
        for a, b in zip(mine, whole):
            close(a.grad.cpu(), b.grad.chunk(size, 2)[rank].cpu(), "ring: gradients", 8)
        layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        state = {n: random(*p.shape, seed=9).cuda() for n, p in layers.named_parameters()}
        layers.load_state_dict(state)
        expected = layers(x)
        plan = {"0": model_parallel.ColwiseParallel(), "2": model_parallel.RowwiseParallel()}
        model_parallel.parallelize_module(layers, None, plan)
        close(layers(x).cpu(), expected.cpu(), "tensor parallel", 4)
        stage = pipelines.PipelineStage(
            nn.Sequential(nn.Linear(6, 6), nn.Tanh()), rank, size, "cuda"
        )
        for schedule_class in pipelines.SCHEDULES:
            losses: list[Any] = []
            schedule = schedule_class(stage, 4, nn.functional.mse_loss)
            batch = random(8, 6).cuda()
            given = (batch,) if rank == 0 else ()
            target = batch if rank == size - 1 else None
            schedule.step(*given, target=target, losses=losses)
            assert all(p.grad is not None for p in stage.submodule.parameters())
            assert len(losses) == (4 if rank == size - 1 else 0)


def mistakes() -> None:
    """Each on a group of its own, which it breaks."""
    rank, size = start()
    nccl.SECONDS = 1.0
    seconds = (30, 30, 2, 30, 1)
    groups = [dist.new_group(range(size), datetime.timedelta(seconds=s)) for s in seconds]
    with torch.device("cuda"):
        x, y = torch.ones(3), torch.ones(3 + rank)
        text = "rank 0: all_reduce(SUM) float32 (3,) (call "
        raises(dist.DistBackendError, text, lambda: dist.all_reduce(y, group=groups[0]))
        raises(
            dist.DistBackendError,
            "the group failed before: the ranks call different things",
            lambda: dist.all_reduce(x, group=groups[0]),
        )

        def skipped() -> None:
            dist.barrier(groups[1]) if rank == 1 else dist.all_reduce(x, group=groups[1])

        raises(dist.DistBackendError, "rank 1: barrier", skipped)
        if rank == 0:
            text = "all_reduce(SUM) float32 (3,): rank 1, 2 has not called it in 2 s"
            raises(dist.DistBackendError, text, lambda: dist.all_reduce(x, group=groups[2]))
        wrong = "recv expects float32 (4,), tag 0, and rank 0 called send of float32 (3,)"
        if rank == 0:
            dist.isend(x, 1, groups[3])
        elif rank == 1:
            raises(dist.DistBackendError, wrong, lambda: dist.recv(torch.ones(4), 0, groups[3]))
            late = "rank 1 of 3 has waited for recv of float32 (3,) from rank 0 for 1 s"
            raises(dist.DistBackendError, late, lambda: dist.recv(x, 0, groups[4]))
        raises(RuntimeError, 'backend is "nccl"', lambda: dist.all_reduce(x.cpu()))
        short = x.to(torch.int16)
        raises(TypeError, "not supported for NCCL process group: int16",
               lambda: dist.all_reduce(short))  # fmt: skip
        raises(ValueError, "Cannot use ReduceOp.BXOR with NCCL",
               lambda: dist.all_reduce(x.to(torch.int32), dist.ReduceOp.BXOR))  # fmt: skip
        raises(ValueError, "NCCL needs the rank that sends", lambda: dist.recv(x))
    dist.barrier()
    assert nccl.calls.count(("abort",)) >= 2


def shared_gpu() -> None:
    raises(dist.DistBackendError, "ranks 0 and 1 use the same GPU", start)
    sys.exit()


def killed() -> None:
    """Rank 1 dies: the others' next collective names it."""
    rank, _ = start()
    dist.barrier()
    if rank == 1:
        os._exit(9)
    with torch.device("cuda"):
        raises(dist.DistBackendError, "rank 1 has died", lambda: dist.all_reduce(torch.ones(1)))
    sys.exit(3)


def no_watch() -> None:
    """For a rank that ends: the watcher of another ends its process."""
    from minigrad.distributed import nccl as ours

    rank, _ = start()
    dist.barrier()
    if rank == 1:
        os._exit(9)
    work = ours.Work(dist.groups._world.group, "all_reduce(SUM) float32 (3,)", (), None)
    work.event = type("Never", (), {"done": False})()  # the GPU waits for rank 1
    dist.groups._world.group._launched.append(work)
    import time

    time.sleep(15)
    say("nobody has ended this")


def through_mpi() -> None:
    """Tensors on GPUs in an MPI that does not know GPUs, and in one that does (here all memory is
    the host's)."""
    dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=30))
    rank, size = dist.get_rank(), dist.get_world_size()
    copies: list[Any] = []
    write = staging._write
    staging._write = lambda array, host: (copies.append(array), write(array, host))
    for aware in "01":
        os.environ["MINIGRAD_CUDA_AWARE_MPI"] = aware
        with torch.device("cuda"):
            x = torch.full((3,), float(rank), dtype=torch.float16)
            dist.all_reduce(x)
            assert x.cpu().tolist() == [float(sum(range(size)))] * 3
            parts = [torch.empty(2) for _ in range(size)]
            dist.all_gather(parts, torch.full((2,), float(rank)))
            assert [part.cpu().tolist() for part in parts] == [[r, r] for r in range(size)]
            dist.gather(parts[rank], [p * 0 for p in parts] if rank == 1 else None, 1)
            dist.scatter(parts[0], [p + 1 for p in parts] if rank == 1 else None, 1)
            assert parts[0].cpu().tolist() == [rank + 1.0] * 2
            y = torch.zeros(4)
            peer = (rank + 1) % size
            for work in (dist.isend(torch.full((4,), rank + 5.0), peer), dist.irecv(y)):
                work.wait()
            assert y.cpu().tolist() == [(rank - 1) % size + 5.0] * 4
        assert len(copies) == (4 if rank != 1 else 5), (aware, len(copies))
    del os.environ["MINIGRAD_CUDA_AWARE_MPI"]


def on_gpus() -> None:
    """Every collective, on as many GPUs as there are ranks."""
    torch.cuda.set_device(RANK)
    with torch.device("cuda"):
        programs.collectives()
        rank, size = dist.get_rank(), dist.get_world_size()
        programs.start = lambda *_: (rank, size)
        if size > 1:
            programs.messages()


if __name__ == "__main__":
    for name, port in zip(sys.argv[1:], os.environ.get("PORTS", "-----").split("-")):
        if port:
            os.environ["MASTER_PORT"] = port  # the store of the last check may still be served
        globals()[name]()
        dist.destroy_process_group()
        planted = "waited for 0-1-1" if name == "mistakes" else "none"  # that message never arrives
        assert not [fault for fault in nccl.faults if planted not in fault], nccl.faults
        assert REAL or not software_gpu.take_fault()
        os.write(1, f"rank {RANK}: {name} passed\n".encode())
