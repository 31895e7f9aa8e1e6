"""Programs that the tests start with several ranks: `programs.py NAME`."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import ml_dtypes
import numpy as np

import minigrad as torch
import minigrad.distributed as dist
from minigrad import nn
from minigrad.distributed import _functional_collectives as functional_collectives
from minigrad.distributed import checkpoint
from minigrad.nn.parallel import DistributedDataParallel
from minigrad.utils.data import DataLoader, DistributedSampler, TensorDataset

BACKEND = "mpi"


def start(seconds: float = 60) -> tuple[int, int]:
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=seconds))
    return dist.get_rank(), dist.get_world_size()


def say(text: str) -> None:
    """Print a line at once: `print` writes its end apart, and lines of two ranks would mix."""
    os.write(1, f"{text}\n".encode())


def values(rank: int, dtype: str, shape: tuple) -> np.ndarray:
    made = np.random.default_rng(rank).integers(0, 5, shape)
    return made.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def collectives() -> None:
    """Every collective against NumPy, over dtypes, shapes and layouts."""
    rank, size = start()
    reductions = {
        dist.ReduceOp.SUM: lambda a: a.sum(0),
        dist.ReduceOp.PRODUCT: lambda a: a.prod(0),
        dist.ReduceOp.MIN: lambda a: a.min(0),
        dist.ReduceOp.MAX: lambda a: a.max(0),
    }
    for dtype in ("float32", "float64", "int64", "int32", "uint8", "float16", "bfloat16", "bool"):
        for shape in ((), (0,), (7,), (33, 5)):
            mine = values(rank, dtype, shape)
            all_of_them = np.stack([values(r, dtype, shape) for r in range(size)])
            for op, expected in reductions.items():
                x = torch.tensor(mine)
                dist.all_reduce(x, op)
                wanted = expected(all_of_them.astype("float64")).astype(mine.dtype)
                assert np.array_equal(x.cpu().numpy(), wanted), (dtype, shape, op)
            found = [torch.zeros(shape, dtype=torch.tensor(mine).dtype) for _ in range(size)]
            dist.all_gather(found, torch.tensor(mine))
            assert all(np.array_equal(f.cpu().numpy(), a) for f, a in zip(found, all_of_them))
            x = torch.tensor(mine)
            dist.broadcast(x, size - 1)
            assert np.array_equal(x.cpu().numpy(), all_of_them[-1])
    x = torch.arange(12.0).reshape(3, 4).t() * (rank + 1)  # not contiguous, in place
    view = x[::2]
    dist.all_reduce(view)
    factor = sum(range(1, size + 1))
    assert np.array_equal(x.cpu().numpy()[::2], np.arange(12.0).reshape(3, 4).T[::2] * factor)
    assert np.array_equal(x.cpu().numpy()[1::2], np.arange(12.0).reshape(3, 4).T[1::2] * (rank + 1))
    x = torch.full((3,), float(rank))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [(size - 1) / 2] * 3
    x = torch.full((2,), float(rank))
    last = size - 1
    dist.reduce(x, last)
    assert x.tolist() == ([sum(range(size))] * 2 if rank == last else [rank] * 2)
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size) + rank)
    assert out.tolist() == [size * (2 * rank + i) + sum(range(size)) for i in range(2)]
    parts = [torch.full((2,), float(i)) for i in range(size)]
    dist.reduce_scatter(out, parts)
    assert out.tolist() == [rank * size] * 2
    dist.scatter(out, [p * 10 for p in parts] if rank == 0 else None, 0)
    assert out.tolist() == [rank * 10] * 2
    held = [torch.empty(1) for _ in range(size)] if rank == last else None
    dist.gather(torch.tensor([float(rank)]), held, last)
    assert held is None or [h.item() for h in held] == list(range(size))
    whole = torch.empty(size, 2)
    dist.all_gather_into_tensor(whole, torch.full((2,), float(rank)))
    assert whole[:, 0].tolist() == list(range(size))
    given = [torch.full((rank + 1,), float(10 * rank + i)) for i in range(size)]
    taken = [torch.empty(i + 1) for i in range(size)]
    dist.all_to_all(taken, given)
    assert [t.tolist() for t in taken] == [[10.0 * i + rank] * (i + 1) for i in range(size)]
    flat = torch.empty(size, 3)
    dist.all_to_all_single(flat, torch.arange(3.0 * size).reshape(size, 3) + 100 * rank)
    assert flat[:, 0].tolist() == [3 * rank + 100 * i for i in range(size)]
    rows = torch.full((size, 2), float(rank), requires_grad=True)  # i + 1 rows come from rank i
    sent, received = [rank + 1] * size, [i + 1 for i in range(size)]
    exchange = functional_collectives.all_to_all_single_autograd
    result = functional_collectives.wait_tensor(
        exchange(rows.repeat_interleave(rank + 1, 0), received, sent, dist.group.WORLD)
    )
    assert result[:, 0].tolist() == [float(i) for i in range(size) for _ in range(i + 1)]
    (result * (rank + 1)).sum().backward()
    assert rows.grad[:, 1].tolist() == [(rank + 1.0) * (i + 1) for i in range(size)]
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 100})
    assert [o["rank"] for o in objects] == list(range(size))
    said = [rank, "from"]
    dist.broadcast_object_list(said, last)
    assert said == [last, "from"]
    gathered = [None] * size if rank == last else None
    dist.gather_object({"rank": rank}, gathered, last)
    assert gathered == (None if rank != last else [{"rank": i} for i in range(size)])
    given: list = [None]
    dist.scatter_object_list(
        given, [f"for {i}" for i in range(size)] if rank == last else None, last
    )
    assert given == [f"for {rank}"]
    work = dist.all_reduce(x := torch.ones(1000), async_op=True)
    work.wait()
    work.wait()
    assert x[0].item() == size
    dist.barrier()


def messages() -> None:
    """A ring, a message from anybody, and two kinds by their tags."""
    rank, size = start()
    right, left = (rank + 1) % size, (rank - 1) % size
    got = torch.empty(3)
    if BACKEND != "nccl":  # where two that send first wait for each other: see below
        works = [dist.isend(torch.full((3,), float(rank)), right), dist.irecv(got, left)]
        for work in works:
            work.wait()
        assert got.tolist() == [left] * 3
    # Too large to be buffered: a wait for the send must not stop the receives. And messages of one
    # tag keep their order, whichever is waited for first.
    gives = [torch.full((1 << 17,), float(rank + 10 * i)) for i in range(2)]
    takes = [torch.empty(1 << 17) for _ in gives]
    operations = [dist.P2POp(dist.isend, give, right) for give in gives]
    operations += [dist.P2POp(dist.irecv, take, left) for take in takes]
    first, second, *received = dist.batch_isend_irecv(operations)
    for work in (first, second, *reversed(received)):
        work.wait()
    assert [take[-1].item() for take in takes] == [left, left + 10]
    if BACKEND == "nccl":  # NCCL has no messages from anybody, and no tags
        return
    if rank == 0:
        senders = set()
        for _ in range(size - 1):
            who = dist.recv(got)
            assert got.tolist() == [who] * 3
            senders.add(who)
        assert senders == set(range(1, size))
        dist.send(torch.ones(2), 1, tag=7)
        dist.send(torch.zeros(2), 1, tag=8)
    else:
        dist.send(torch.full((3,), float(rank)), 0)
    if rank == 1:
        late, early = torch.empty(2), torch.empty(2)
        dist.recv(late, 0, tag=8)
        dist.recv(early, 0, tag=7)
        assert (late.tolist(), early.tolist()) == ([0, 0], [1, 1])


def groups() -> None:
    rank, size = start()
    even = dist.new_group(range(0, size, 2))
    if rank % 2 == 0:
        x = torch.tensor([1.0])
        dist.all_reduce(x, group=even)
        assert x.item() == (size + 1) // 2
        assert dist.get_rank(even) == rank // 2
        y = torch.tensor([float(rank)])
        dist.broadcast(y, dist.get_process_group_ranks(even)[-1], group=even)
        assert y.item() == (size - 1) // 2 * 2
    else:
        assert dist.get_rank(even) == -1
        try:
            dist.all_reduce(torch.ones(1), group=even)
        except ValueError as error:
            assert "not a member" in str(error)
        else:
            raise AssertionError("a rank outside the group takes part")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 1))


def train(hook: str = "", sync_every: int = 1) -> None:
    """Prints the mean loss and, at the end, a checksum of the parameters of every rank."""
    distributed = "PMI_RANK" in os.environ
    rank, size = start() if distributed else (0, 1)
    torch.manual_seed(rank)  # rank 0's parameters must win
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
    wrapped = model
    if distributed:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0005)
        assert len(wrapped._reducer.buckets) > 1
        if hook == "bf16":
            wrapped.register_comm_hook(None, dist.compression.bf16_compress_hook)
        if hook == "topk":
            state = dist.compression.TopKState(None, 0.25)
            wrapped.register_comm_hook(state, dist.compression.topk_hook)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((32, 10)).astype("float32"))
    y = x.sum(1, keepdim=True)
    for step in range(6):
        optimizer.zero_grad()
        halves = [slice(0, 16), slice(16, 32)] if sync_every == 2 else [slice(0, 32)]
        total = 0.0
        for number, half in enumerate(halves):
            part = x[half][rank::size], y[half][rank::size]
            if distributed and number < len(halves) - 1:
                with wrapped.no_sync():
                    loss = ((wrapped(part[0]) - part[1]) ** 2).mean() / len(halves)
                    loss.backward()
            else:
                loss = ((wrapped(part[0]) - part[1]) ** 2).mean() / len(halves)
                loss.backward()
            total = total + loss.detach()
        if distributed:
            dist.all_reduce(total, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"loss {step} {total.item():.7f}")
        optimizer.step()
    if distributed:
        flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        all_of_them = [torch.empty_like(flat) for _ in range(size)]
        dist.all_gather(all_of_them, flat)
        assert all(np.array_equal(one.numpy(), flat.numpy()) for one in all_of_them)


def unused(find: str = "") -> None:
    """A parameter that the loss does not depend on, on one rank only."""
    rank, size = start(20)
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts["a"](x) + (self.parts["b"](x) if rank == 0 else 0)

    net = DistributedDataParallel(Net(), find_unused_parameters=bool(find))
    net(torch.ones(1, 2)).sum().backward()
    assert model["b"].weight.grad.tolist() == [[1 / size] * 2]


def buffers() -> None:
    """Running means become those of rank 0."""
    rank, size = start()
    torch.manual_seed(rank)
    net = DistributedDataParallel(network())
    for _ in range(2):
        net(torch.randn(8, 10) + 5 * rank).sum().backward()
    net.eval()
    net(torch.randn(8, 10))
    mean = net.module[1].running_mean
    means = [torch.empty_like(mean) for _ in range(size)]
    dist.all_gather(means, mean)
    assert np.array_equal(means[0].numpy(), means[-1].numpy())


def sampler() -> None:
    _, size = start()
    data = TensorDataset(torch.arange(10))
    mine = DistributedSampler(data, seed=3)
    orders = []
    for epoch in range(2):
        mine.set_epoch(epoch)
        got = [int(i) for (batch,) in DataLoader(data, batch_size=2, sampler=mine) for i in batch]
        found = [None] * size
        dist.all_gather_object(found, got)
        assert {i for part in found for i in part} == set(range(10))
        assert len({len(part) for part in found}) == 1
        orders.append(found)
    assert orders[0] != orders[1]


# --- mistakes: what each rank prints is tested


def disagree(what: str) -> None:
    rank, _ = start(20)
    try:
        if what == "shape":
            dist.all_reduce(torch.ones(3 + rank))
        elif what == "dtype":
            dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank else torch.float32))
        elif what == "skipped":
            if rank == 0:
                dist.all_reduce(torch.ones(3))
            dist.barrier()
        elif what == "ended" and rank == 0:
            dist.all_reduce(torch.ones(3))
        elif what == "network":
            DistributedDataParallel(nn.Linear(2 + rank, 1))
        elif what == "message":
            if rank == 0:
                dist.send(torch.ones(3), 1)
            else:
                dist.recv(torch.ones(4), 0)
    except dist.DistBackendError as error:
        say(f"rank {rank} said: {error}")


def cannot_save(what: str, folder: str) -> None:
    """One rank cannot write, or has another tensor."""
    rank, _ = start(20)
    x = torch.ones(3 + rank * (what == "shape")) + rank * (what == "values")
    if what == "full" and rank == 1:

        def full(handle: int) -> None:
            raise OSError("no space left")

        os.fsync = full
    if what == "load":
        checkpoint.save({"x": x}, checkpoint_id=folder)
        x = torch.ones(3 + rank)
    try:
        operation = checkpoint.load if what == "load" else checkpoint.save
        operation({"x": x}, checkpoint_id=folder)
    except checkpoint.CheckpointException as error:
        say(f"rank {rank} said: {error}")


def running_means(folder: str) -> None:
    """Buffers of DistributedDataParallel, which differ between ranks, are the first rank's."""
    rank, size = start(20)
    torch.manual_seed(0)
    net = DistributedDataParallel(network())
    net(torch.randn(8, 10) + 5 * rank)
    mean = net.module[1].running_mean
    means = [torch.empty_like(mean) for _ in range(size)]
    dist.all_gather(means, mean)
    assert not np.array_equal(means[0].numpy(), means[1].numpy())
    saver = checkpoint.Periodic(folder, net, torch.optim.SGD(net.parameters(), lr=0.1), every=1)
    saver.after_step()
    assert np.array_equal(mean.numpy(), means[rank].numpy())  # a save changes nothing
    mean.zero_()
    assert saver.restore() == 1
    assert np.array_equal(mean.numpy(), means[0].numpy())
    mean.copy_(means[rank])
    try:
        checkpoint.save({"net": net.state_dict()}, checkpoint_id=folder)
    except checkpoint.CheckpointException as error:
        assert "net.module.1.running_mean has other values on rank 1" in str(error)
    else:
        raise AssertionError("one rank's buffers are lost")


def slow() -> None:
    rank, _ = start(1)
    if rank == 1:
        time.sleep(3)
    try:
        dist.barrier()
    except dist.DistBackendError as error:
        say(f"rank {rank} said: {error}")


def batch_norm() -> None:
    """SyncBatchNorm on parts of a batch: what BatchNorm does with the whole, and its gradients."""
    rank, size = start()
    whole = torch.tensor(np.random.default_rng(0).standard_normal((3 * size + 1, 4, 5)) * 3 + 100)
    upstream = torch.tensor(np.random.default_rng(1).standard_normal(whole.shape))
    own = slice(3 * rank, None if rank == size - 1 else 3 * rank + 3)  # the last has one more
    for momentum in (0.1, None):
        alone = nn.Sequential(nn.BatchNorm1d(4, momentum=momentum, dtype=torch.float64))
        part = nn.SyncBatchNorm.convert_sync_batchnorm(
            nn.Sequential(nn.BatchNorm1d(4, momentum=momentum, dtype=torch.float64))
        )
        assert type(part[0]) is nn.SyncBatchNorm
        for _ in range(2):
            x, y = whole.clone().requires_grad_(), whole[own].clone().requires_grad_()
            expected, found = alone(x), part(y)
            expected.backward(upstream)
            found.backward(upstream[own])
            assert torch.allclose(found, expected[own])
            assert torch.allclose(y.grad, x.grad[own], atol=1e-9)
        for p, q in zip(part.parameters(), alone.parameters()):
            dist.all_reduce(p.grad)
            assert torch.allclose(p.grad, q.grad)
        for p, q in zip(part.buffers(), alone.buffers()):
            assert torch.allclose(p, q)
        assert torch.allclose(part.eval()(whole), alone.eval()(whole))


def gradients() -> None:
    """Collectives with gradients, beside one process that has all ranks' tensors and losses."""
    rank, size = start()
    given = [torch.tensor(values(r, "float64", (2, 3)), requires_grad=True) for r in range(size)]
    rates = [torch.tensor(values(r + 9, "float64", (2, 3))) for r in range(size)]
    mine, upstream = given[rank].detach().requires_grad_(), rates[rank]
    F = dist.nn.functional

    def compare(found: torch.Tensor, expected: list) -> None:
        """found: this rank's result; expected: each rank's, of one process."""
        assert torch.allclose(found, expected[rank]), (found, expected[rank])
        (wanted,) = torch.autograd.grad(
            sum((e * r).sum() for e, r in zip(expected, rates)), [given[rank]], allow_unused=True
        )
        (got,) = torch.autograd.grad((found * upstream).sum(), [mine])
        assert torch.allclose(got, torch.zeros(2, 3).double() if wanted is None else wanted)

    total = torch.stack(given).sum(0)
    compare(F.all_reduce(mine), [total] * size)
    compare(F.all_reduce(mine, dist.ReduceOp.AVG), [total / size] * size)
    whole = [g * r for r, g in enumerate(given)]
    compare(sum(r * x for r, x in enumerate(F.all_gather(mine))), [sum(whole)] * size)
    compare(F.broadcast(mine, 1), [given[1]] * size)
    parts = [mine * (r + 1) for r in range(size)]
    out = torch.empty(2, 3, dtype=torch.float64)
    compare(F.reduce_scatter(out, parts), [total * (r + 1) for r in range(size)])
    assert torch.allclose(out, total * (rank + 1))
    try:
        F.all_reduce(mine, dist.ReduceOp.MAX)
    except NotImplementedError as error:
        assert "SUM and AVG" in str(error)
    else:
        raise AssertionError("MAX")


def fails() -> None:
    rank, _ = start()
    if rank == 1:
        raise LookupError("out of cheese")
    dist.barrier()


def killed(victim: str = "1") -> None:
    rank, _ = start()
    say(f"rank {rank} has process {os.getpid()}")
    dist.barrier()
    if rank == int(victim):
        if os.fork() == 0:  # a child that would keep mpiexec waiting
            time.sleep(60)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    dist.barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
