"""Tensor and sequence parallel against one rank: `model_parallel.py`, started with 1, 2 or 4 ranks.

Each check compares with the same computation on this rank alone.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as torch
import minigrad.distributed as dist
from minigrad import nn
from minigrad.distributed.device_mesh import init_device_mesh
from minigrad.distributed.tensor import Replicate, Shard
from minigrad.distributed.tensor.parallel import (
    ColwiseParallel,
    HeadwiseParallel,
    RowwiseParallel,
    clip_grad_norm_,
    full_state_dict,
    load_full_state_dict,
    parallelize_module,
)
from minigrad.distributed.tensor.ring import ring_attention
from minigrad.nn import functional as F

SEED = int(os.environ.get("MINIGRAD_TEST_SEED", "0"))


def say(text: str) -> None:
    os.write(1, f"rank {dist.get_rank()}: {text}\n".encode())


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> torch.Tensor:
    """The same numbers on every rank."""
    rng = np.random.default_rng((SEED, seed, *shape))
    return torch.tensor(rng.standard_normal(shape).astype(dtype))


def close(found: Any, expected: Any, what: str, factor: float = 1) -> None:
    found, expected = (x.detach().double().numpy() for x in (found, expected))
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    error, scale = abs(found - expected).max(initial=0), abs(expected).max(initial=1e-30)
    assert error < 2e-6 * factor * max(scale, 1), f"{what}: {error:g} of {scale:g} (seed {SEED})"


def raises(kind: type, text: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"no {kind.__name__} with {text!r}")


# --- layers


class Block(nn.Module):
    """A transformer's block: the query, key and value in one Linear."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.head = width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, -1, self.head)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(out.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    """Tied embeddings, two blocks, and an attention layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(12, 16, padding_idx=3)
        self.blocks = nn.Sequential(Block(16, 4), Block(16, 4))
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True)
        self.last = nn.Linear(16, 12)
        self.last.weight = self.tokens.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.tokens(index))
        mask = random(4 * len(x), x.shape[1], x.shape[1], seed=5)  # another for each head
        found, weights = self.attention(x, x, x, attn_mask=mask)
        return self.last(x + found) * (weights**2).mean()


PLAN = {
    "tokens": RowwiseParallel(),
    "blocks.*.qkv": ColwiseParallel(blocks=3),
    "blocks.*.proj": RowwiseParallel(),
    "blocks.*.mlp.0": ColwiseParallel(),
    "blocks.*.mlp.2": RowwiseParallel(),
    "attention": HeadwiseParallel(),
    "last": ColwiseParallel(output_layouts=Replicate()),
}


def model(seed: int) -> Model:
    torch.manual_seed(seed)
    return Model()


def loss_of(net: nn.Module) -> torch.Tensor:
    rng = np.random.default_rng(SEED)
    index, target = (torch.tensor(rng.integers(0, 12, (3, 5))) for _ in range(2))
    return F.cross_entropy(net(index).flatten(0, 1), target.flatten())


def gathered_grads(net: nn.Module) -> dict[str, torch.Tensor]:
    """The gradients as one rank has them: put in the place of the parameters, then gathered."""
    kept = {name: p.detach().clone() for name, p in net.named_parameters()}
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
        found = {name: value.clone() for name, value in full_state_dict(net).items()}
        for name, p in net.named_parameters():
            p.copy_(kept[name])
    return found


def layers_train_as_one_rank() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    single, divided = model(SEED), model(SEED + dist.get_rank())  # rank 0's must win
    with torch.no_grad():
        for name, p in divided.named_parameters():
            dist.broadcast(p, 0) if "norm" in name or name.endswith("bias") else None
    parallelize_module(divided, mesh, PLAN)
    size = dist.get_world_size()
    assert divided.blocks[0].qkv.weight.shape == (48 // size, 16)
    assert divided.last.weight is divided.tokens.weight
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.01) for net in (single, divided)]
    for step in range(3):
        losses = []
        for net, optimizer in zip((single, divided), optimizers):
            optimizer.zero_grad()
            losses.append(loss_of(net))
            losses[-1].backward()
        close(losses[1], losses[0], f"loss {step}", 4)
        grads = gathered_grads(divided)
        for name, p in single.named_parameters():
            close(grads[name], p.grad, f"gradient of {name}, step {step}", 20)
        norm = nn.utils.clip_grad_norm_(single.parameters(), 0.5)
        close(clip_grad_norm_(divided, 0.5), norm, "norm", 4)
        for optimizer in optimizers:
            optimizer.step()
    state = full_state_dict(divided)
    assert list(state) == list(single.state_dict())
    other = parallelize_module(model(SEED + 9), mesh, PLAN)
    load_full_state_dict(other, state)
    close(loss_of(other), loss_of(divided), "loss after loading", 0.1)
    with torch.no_grad():
        close(loss_of(divided), loss_of(single), "loss after training", 100)


def layouts() -> None:
    """Every layout of one layer's input and output, and the gradients of its input."""
    size, rank = dist.get_world_size(), dist.get_rank()
    weights, x = random(8, 12, seed=1), random(4, 8, 12, seed=2)
    bias, g = random(8, seed=3), random(4, 8, 8, seed=4)

    def part(y: torch.Tensor, layout: Any) -> torch.Tensor:
        return y.chunk(size, layout.dim)[rank] if isinstance(layout, Shard) else y

    whole = x.clone().requires_grad_()
    layer = nn.Linear(12, 8)
    layer.load_state_dict({"weight": weights, "bias": bias})
    expected = layer(whole)
    expected.backward(g)
    styles = [
        (ColwiseParallel, Replicate(), Shard(-1)),
        (ColwiseParallel, Replicate(), Replicate()),
        (ColwiseParallel, Shard(1), Shard(-1)),
        (RowwiseParallel, Shard(-1), Replicate()),
        (RowwiseParallel, Replicate(), Replicate()),
        (RowwiseParallel, Shard(-1), Shard(1)),
    ]
    for style, before, after in styles:
        what = f"{style.__name__} {before} {after}"
        mine = nn.Linear(12, 8)
        mine.load_state_dict({"weight": weights, "bias": bias})
        parallelize_module(mine, None, style(input_layouts=before, output_layouts=after))
        given = part(x, before).clone().requires_grad_()
        found = mine(given)
        close(found, part(expected, after), what)
        found.backward(part(g, after))
        close(given.grad, part(whole.grad, before), f"{what}: gradient of the input", 4)
        grads = gathered_grads(mine)
        close(grads["weight"], layer.weight.grad, f"{what}: gradient of the weight", 10)
        close(grads["bias"], layer.bias.grad, f"{what}: gradient of the bias", 10)
    table = nn.Embedding(6, 8)
    table.load_state_dict({"weight": random(6, 8)})
    index = torch.tensor([[0, 5], [2, 2]])
    found = parallelize_module(table, None, ColwiseParallel(output_layouts=Replicate()))(index)
    close(found, random(6, 8)[index], "columns of an Embedding")


def heads() -> None:
    """Attention to something else, with weights of each head, and without weights."""
    x, y = random(3, 2, 12, seed=6), random(5, 2, 12, seed=7)
    for options in ({"average_attn_weights": False}, {"need_weights": False}):
        found = []
        for divide in (False, True):
            torch.manual_seed(SEED)
            layer = nn.MultiheadAttention(12, 4)
            with torch.no_grad():
                layer.in_proj_bias.copy_(random(36, seed=8))
            if divide:
                parallelize_module(layer, None, HeadwiseParallel())
            given = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            out, weights = layer(given[0], given[1], given[1], **options)
            loss = (out**2).sum() + (0 if weights is None else (weights**3).sum())
            loss.backward()
            found.append([out, *([] if weights is None else [weights]), *(g.grad for g in given)])
        for single, divided in zip(*found):
            close(divided, single, f"attention {options}", 10)


def two_axes() -> None:
    """Data parallel along one axis of a mesh, tensor parallel along the other."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh.get_coordinate() == [dist.get_rank() // 2, dist.get_rank() % 2]
    assert mesh["tp"].mesh.tolist() == [dist.get_rank() // 2 * 2, dist.get_rank() // 2 * 2 + 1]
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    single = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    state = {name: random(*p.shape, seed=i) for i, (name, p) in enumerate(net.named_parameters())}
    net.load_state_dict(state), single.load_state_dict(state)
    parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    data = nn.parallel.DistributedDataParallel(net, process_group=mesh.get_group("dp"))
    x = random(4, 6)
    (single(x) ** 2).mean().backward()
    (data(x.chunk(2)[mesh.get_local_rank("dp")]) ** 2).mean().backward()
    for name, p in single.named_parameters():
        close(gathered_grads(net)[name], p.grad, f"two axes: {name}", 4)


def double_backward() -> None:
    """The gradient of a gradient's norm."""
    nets = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(2)]
    for i, (a, b) in enumerate(zip(*(net.parameters() for net in nets))):
        with torch.no_grad():
            a.copy_(random(*a.shape, seed=i)), b.copy_(a)
    parallelize_module(nets[1], None, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for net in nets:
        x = random(3, 4).requires_grad_()
        (grad,) = torch.autograd.grad((net(x) ** 2).sum(), x, create_graph=True)
        (grad**2).sum().backward()
    grads = gathered_grads(nets[1])
    for name, p in nets[0].named_parameters():
        if p.grad is not None:
            close(grads[name], p.grad, f"second order: {name}", 10)


# --- the sequence


def ring() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype, factor in (("float32", 4), ("float64", 1e-6), ("float16", 2000)):
        for causal in (False, True):
            for heads, shared, width, wide, length in ((2, 2, 8, 8, 5), (4, 2, 7, 3, 1)):
                shapes = [(2, heads, size * length, width), (2, shared, size * length, width)]
                shapes += [(2, shared, size * length, wide), (2, heads, size * length, wide)]
                q, k, v, g = (random(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes))
                whole = [x.clone().requires_grad_() for x in (q, k, v)]
                expected = F.scaled_dot_product_attention(
                    *whole, is_causal=causal, enable_gqa=heads != shared
                )
                expected.backward(g)
                mine = [x.chunk(size, 2)[rank].clone().requires_grad_() for x in (q, k, v)]
                found = ring_attention(*mine, is_causal=causal)
                what = f"ring {dtype} causal={causal} {shapes}"
                assert found.dtype == q.dtype
                close(found, expected.chunk(size, 2)[rank], what, factor)
                found.backward(g.chunk(size, 2)[rank])
                for a, b, name in zip(mine, whole, "qkv"):
                    close(a.grad, b.grad.chunk(size, 2)[rank], f"{what}: d{name}", 4 * factor)


def ring_memory() -> None:
    """A rank holds two blocks of keys and values, whatever the number of ranks."""
    import tracemalloc

    size, length = dist.get_world_size(), 256
    q, k, v = (random(1, 1, length, 64, seed=dist.get_rank() + 4 * i) for i in range(3))
    ring_attention(q, k, v)  # what the kernels keep is not to be counted
    tracemalloc.start()
    ring_attention(q, k, v)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    block = length * 64 * 4
    # Keys and values twice, the result, that of a block and its copy; not the whole sequence.
    assert most < 8 * block + 20 * length * 4 + 65536, (most, block, size)


def errors() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    raises(
        RuntimeError,
        f"bigger than default world size {size}, but found {size + 1} ranks",
        lambda: init_device_mesh("cpu", (size + 1,)),
    )
    raises(
        RuntimeError,
        "same length",
        lambda: init_device_mesh("cpu", (size,), mesh_dim_names=("a", "b")),
    )
    raises(
        ValueError,
        f"ColwiseParallel: dimension 0 of a.weight (7, 4) is not divisible by the {size} ranks",
        lambda: parallelize_module(
            nn.ModuleDict({"a": nn.Linear(4, 7)}), None, {"a": ColwiseParallel()}
        ),
    )
    raises(
        ValueError,
        f"the 3 heads of '' are not divisible by the {size} ranks",
        lambda: parallelize_module(nn.MultiheadAttention(12, 3), None, HeadwiseParallel()),
    )
    raises(
        NotImplementedError,
        "is a LayerNorm; expected one of Linear, Embedding",
        lambda: parallelize_module(nn.LayerNorm(4), None, ColwiseParallel()),
    )
    tied = nn.ModuleList([nn.Embedding(8, 8), nn.Linear(8, 8)])
    tied[1].weight = tied[0].weight
    raises(
        ValueError,
        "0.weight is shared by layers that are not all divided in the same way",
        lambda: parallelize_module(tied, None, {"0": RowwiseParallel()}),
    )
    row = parallelize_module(nn.Linear(8, 4), None, RowwiseParallel())
    raises(RuntimeError, f"expected this rank's {8 // size} of 8", lambda: row(random(2, 8)))
    wrong = {"weight": random(4, 8)[:, :4], "bias": random(4)}
    raises(RuntimeError, "size mismatch for weight", lambda: load_full_state_dict(row, wrong))
    x = random(1, 1, 4, 4)
    raises(RuntimeError, "expected query (N, H, L, E)", lambda: ring_attention(x, x, x[:, :, 1:]))
    # Ranks that disagree: the group cannot be used afterwards, so each has its own.
    with_other = [dist.new_group(range(size)) for _ in range(2)]
    y = random(1, 1, 4 + rank, 4)
    raises(
        dist.DistBackendError,
        "rank 0: ring_attention of float32 (1, 1, 4, 4), (1, 1, 4, 4), (1, 1, 4, 4)",
        lambda: ring_attention(y, y, y, group=with_other[0]),
    )
    one = with_other[1]
    raises(
        dist.DistBackendError,
        "rank 0: ring_attention of",
        lambda: ring_attention(x, x, x, group=one) if rank == 0 else dist.barrier(one),
    )


def skips() -> None:
    """One rank leaves a layer out: the others' collective is named."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    parallelize_module(net, None, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    if dist.get_rank() == 1:
        dist.barrier()
    net(random(2, 4))


CHECKS = [layers_train_as_one_rank, layouts, heads, double_backward, ring, ring_memory, errors]

if __name__ == "__main__":
    dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=60))
    chosen = [globals()[name] for name in sys.argv[1:]]
    for check in chosen or CHECKS + ([two_axes] if dist.get_world_size() == 4 else []):
        if check is errors and dist.get_world_size() == 1:
            continue
        check()
        say(f"{check.__name__} passed")
