"""Estimates a training step of a transformer on many GPUs. Nothing is measured.

`cost` computes memory per GPU and the time of a step from shapes: of the model, of the cluster, and
of a plan, which says how the work is divided. `plans` tries the possible plans. `ASSUMPTIONS` lists
the simplifications; `benchmarks/scale.py` compares with published runs.

The plan of a matrix product is Megatron's (Shoeybi et al. 2019); of stages, 1F1B and its
interleaved form (Narayanan et al. 2021); of state, ZeRO's (Rajbhandari et al. 2020). The memory of
activations follows Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
Models".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernels import lab
from minigrad.estimate import ARITHMETIC, BANDWIDTH, CONTEXT, LAUNCH

LATENCY = 5e-6  # seconds of a step of a collective
STATE = 12  # bytes per parameter: float32 parameter and Adam's two moments
PARAMETER = GRADIENT = 2  # bytes per parameter in 16 bits
LAUNCHES = 12  # kernels of a layer's forward; backward has twice as many
# Between the GPUs of a node, GB/s of a GPU in one direction: NVIDIA's figures for NVLink (half of
# the advertised sum of both directions), else PCI Express with 16 lanes by generation.
NVLINK = {"V100 SXM2": 150, "A100 SXM": 300, "H100 SXM": 450, "H200 SXM": 450, "B200 SXM": 900}
PCIE = {7: 16, 8: 32, 9: 64, 10: 64, 12: 64}
ASSUMPTIONS = (
    f"matrix products run at {ARITHMETIC:.0%} of the rated 16-bit peak, other operations at "
    f"{BANDWIDTH:.0%} of the rated bandwidth, collectives at {BANDWIDTH:.0%} of the rated rate of "
    "the links: the fractions of minigrad gpus, which are set for good kernels in general and not "
    "for any of the published runs",
    "16-bit parameters and gradients, Adam with float32 parameters: 16 bytes per parameter; "
    f"{CONTEXT / 1e9} GB for the driver; no fragmentation, no workspaces",
    "collectives are rings; a node's GPUs use all its network links together; nothing else uses "
    "the network, no node is slow, the data are always ready",
    "nothing hides the all-reduces of tensor parallelism; those of data parallelism, and the "
    "gathering of ZeRO 3, hide behind computing as far as it lasts: published runs of ZeRO 3 with "
    "one or two sequences per GPU were 2 to 4 times slower",
    "the last stage has the loss besides its layers, and one layer less where they cannot be "
    "divided evenly; the slowest stage sets the pace; sends between stages are not hidden",
)


@dataclass(frozen=True)
class Transformer:
    """The shapes of a decoder. hidden: of the two or (gated) three matrices after attention."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    sequence: int
    hidden: int = 0
    kv_heads: int = 0
    gated: bool = False
    positions: bool = True  # learned
    tied: bool = True  # the last matrix is the embedding

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "vocabulary", "sequence"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided among {self.heads} heads")

    @property
    def inner(self) -> int:
        return self.hidden or 4 * self.width

    @property
    def matrices(self) -> int:
        """Parameters of a layer's matrices."""
        kv = self.width * (self.kv_heads or self.heads) // self.heads
        return self.width * (2 * self.width + 2 * kv + (3 if self.gated else 2) * self.inner)

    @property
    def layer(self) -> int:
        """Parameters of a layer: the matrices, biases and norms."""
        small = 2 * self.width if self.gated else 9 * self.width + self.inner
        return self.matrices + small

    @property
    def embeddings(self) -> int:
        rows = self.vocabulary * (1 if self.tied else 2) + self.sequence * self.positions
        return rows * self.width

    @property
    def parameters(self) -> int:
        last = self.width if self.gated else 2 * self.width  # the last norm
        return self.layers * self.layer + self.embeddings + last

    @property
    def layer_flops(self) -> float:
        """Of a token in a layer's forward: matrices and (uncut by the mask) attention."""
        return 2 * self.matrices + 4 * self.sequence * self.width

    @property
    def head_flops(self) -> float:
        return 2 * self.vocabulary * self.width

    def flops(self, recompute: bool = False) -> float:
        """Of a token in a step; recompute: the layers' forward a second time."""
        return (4 if recompute else 3) * self.layers * self.layer_flops + 3 * self.head_flops


def _llama(layers: int, width: int, heads: int, hidden: int, **more: Any) -> Transformer:
    shape = {"vocabulary": 32000, "sequence": 2048, **more}
    return Transformer(
        layers, width, heads, hidden=hidden, gated=True, positions=False, tied=False, **shape
    )


MODELS = {
    "gpt2": Transformer(12, 768, 12, 50257, 1024),
    "gpt2-medium": Transformer(24, 1024, 16, 50257, 1024),
    "gpt2-large": Transformer(36, 1280, 20, 50257, 1024),
    "gpt2-xl": Transformer(48, 1600, 25, 50257, 1024),
    "gpt3-13b": Transformer(40, 5120, 40, 50257, 2048),
    "gpt3-175b": Transformer(96, 12288, 96, 50257, 2048),
    "bloom-176b": Transformer(70, 14336, 112, 250880, 2048, positions=False),
    "mt-nlg-530b": Transformer(105, 20480, 128, 51200, 2048),
    "llama-7b": _llama(32, 4096, 32, 11008),
    "llama-65b": _llama(80, 8192, 64, 22016),
    "llama3-8b": _llama(32, 4096, 32, 14336, kv_heads=8, vocabulary=128256, sequence=8192),
    "llama3-70b": _llama(80, 8192, 64, 28672, kv_heads=8, vocabulary=128256, sequence=8192),
    "llama3-405b": _llama(126, 16384, 128, 53248, kv_heads=8, vocabulary=128256, sequence=8192),
}


@dataclass(frozen=True)
class Cluster:
    """nodes of per_node GPUs. network: Gbit/s of each GPU to other nodes; link: GB/s to the others
    of its node, in one direction (0: by the GPU)."""

    gpu: Any
    nodes: int
    per_node: int = 8
    network: float = 400.0
    link: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpu", lab.gpu(self.gpu))
        for name in ("nodes", "per_node", "network"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        if not self.link:
            found = [rate for name, rate in NVLINK.items() if self.gpu.name.startswith(name)]
            object.__setattr__(self, "link", float(found[0] if found else PCIE[self.gpu.cc[0]]))

    @property
    def gpus(self) -> int:
        return self.nodes * self.per_node

    @property
    def outside(self) -> float:
        """Bytes per second of a GPU to other nodes."""
        return self.network / 8 * 1e9 * BANDWIDTH

    @property
    def inside(self) -> float:
        return self.link * 1e9 * BANDWIDTH

    def collective(self, ranks: int, stride: int, size: float) -> float:
        """Seconds in which each of `ranks` gives or gets all of `size` bytes but its own part: a
        reduce-scatter or an all-gather. stride: between the numbers of neighbouring ranks."""
        if ranks == 1:
            return 0.0
        local = max(1, min(ranks, self.per_node // stride))
        nodes = -(-ranks // local)
        within = (local - 1) / local * size / self.inside
        between = (nodes - 1) / nodes * size / (local * self.outside)
        return max(within, between) + (ranks - 1) * LATENCY


@dataclass(frozen=True)
class Plan:
    """How the work is divided.

    tensor: ranks that share each matrix. pipeline: stages. data: ranks with parts of the batch.
    zero: which state is divided among these (0: none, 1: of the optimiser, 2: gradients too, 3:
    parameters too). micro: sequences of a micro-batch. recompute: layers compute their activations
    again in backward. sequence: norms and residuals are divided among the tensor ranks too.
    interleave: chunks of layers per stage. fused: attention keeps no matrix of scores.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    zero: int = 0
    micro: int = 1
    recompute: bool = False
    sequence: bool = False
    interleave: int = 1
    fused: bool = True

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        parts = [f"data {self.data}"] if self.data > 1 or self.gpus == 1 else []
        parts += [f"tensor {self.tensor}"] if self.tensor > 1 else []
        parts += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        parts += [f"ZeRO {self.zero}"] if self.zero else []
        parts += ["recompute"] if self.recompute else []
        return ", ".join(parts)


class Cost(NamedTuple):
    """Of a plan. seconds: compute, tensor, pipeline (bubble and sends), data (not hidden),
    optimiser. memory: parameters, gradients, state, activations, driver; bytes per GPU."""

    plan: Plan
    seconds: dict[str, float]
    memory: dict[str, float]
    tokens: int
    useful: float  # FLOP of the step, without those of recomputing
    card: Any

    @property
    def step(self) -> float:
        return sum(self.seconds.values())

    @property
    def bytes(self) -> float:
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        return self.bytes <= self.card.memory * 1e9

    @property
    def tflops(self) -> float:
        """Useful TFLOP/s of each GPU."""
        return self.useful / self.step / self.plan.gpus / 1e12

    @property
    def efficiency(self) -> float:
        """The useful part of the rated 16-bit peak."""
        return self.tflops / _peak(self.card)


def _peak(card: Any) -> float:
    peak = card.bf16 or card.fp16
    if peak is None:
        raise ValueError(f"{card.name} has no 16-bit tensor cores")
    return peak


def check(model: Transformer, cluster: Cluster, plan: Plan, batch: int) -> None:
    """Raise ValueError for a plan that is not possible."""
    if plan.gpus != cluster.gpus:
        raise ValueError(f"plan: {plan} needs {plan.gpus} GPUs, the cluster has {cluster.gpus}")
    if model.heads % plan.tensor:
        raise ValueError(f"plan: {model.heads} heads cannot be divided among {plan.tensor} ranks")
    if model.layers < plan.pipeline * plan.interleave:
        raise ValueError(f"plan: {model.layers} layers are too few for {plan.pipeline} stages")
    if batch % (plan.data * plan.micro):
        raise ValueError(
            f"plan: a batch of {batch} cannot be divided into micro-batches of {plan.micro} on "
            f"{plan.data} ranks"
        )
    if plan.zero not in (0, 1, 2, 3) or (plan.zero > 1 and plan.pipeline > 1):
        raise ValueError(
            f"plan: ZeRO {plan.zero}: expected 0 to 3, and 0 or 1 with stages, which need whole "
            "parameters and gradients for each micro-batch"
        )


def cost(model: Transformer, cluster: Cluster, plan: Plan, batch: int) -> Cost:
    """The estimate for a step of `batch` sequences. ValueError for a plan that is not possible."""
    check(model, cluster, plan, batch)
    micros = batch // (plan.data * plan.micro)
    layers = _most_layers(model, plan)
    forward, sends = _layer_seconds(model, cluster, plan)
    tokens = plan.micro * model.sequence
    head = 3 * tokens * model.head_flops / plan.tensor / _rate(cluster)
    layer = (4 if plan.recompute else 3) * forward
    # A micro-batch in the slowest stage. Where the layers cannot be divided, the last has fewer.
    one = max(layers * layer, (layers - (model.layers % plan.pipeline > 0)) * layer + head)
    # Two all-reduces in forward, two in backward: each a reduce-scatter and an all-gather.
    tensor = layers * (6 if plan.recompute else 4) * 2 * sends
    bubble = (plan.pipeline - 1) / plan.interleave
    between = _between_stages(model, cluster, plan) * (micros + plan.pipeline - 1)
    held = _stage_parameters(model, plan)
    seconds = {
        "compute": micros * one,
        "tensor": micros * tensor,
        "pipeline": bubble * (one + tensor) + between,
        "data": _data_seconds(cluster, plan, held, micros, one + tensor),
        "optimiser": 28 * held / (plan.data if plan.zero else 1) / _bandwidth(cluster),
    }
    useful = batch * model.sequence * model.flops()
    memory = _memory(model, plan, held, micros)
    return Cost(plan, seconds, memory, batch * model.sequence, useful, cluster.gpu)


def _most_layers(model: Transformer, plan: Plan) -> int:
    """Of a stage."""
    return -(-model.layers // plan.pipeline)


def _rate(cluster: Cluster) -> float:
    return _peak(cluster.gpu) * 1e12 * ARITHMETIC


def _bandwidth(cluster: Cluster) -> float:
    return cluster.gpu.bandwidth * 1e9 * BANDWIDTH


def _layer_seconds(model: Transformer, cluster: Cluster, plan: Plan) -> tuple[float, float]:
    """A third of forward and backward of a layer for a micro-batch, and half an all-reduce."""
    tokens = plan.micro * model.sequence
    arithmetic = tokens * model.layer_flops / plan.tensor / _rate(cluster)
    # Read and written: norms, residuals with dropout (whole on each rank, unless divided), the
    # function between the matrices, and scores of attention, where they are kept: written, softmax,
    # dropout, read.
    whole = 10 * model.width / (plan.tensor if plan.sequence else 1)
    inner = (3 if model.gated else 2) * model.inner / plan.tensor
    scores = 0 if plan.fused else 6 * model.heads * model.sequence / plan.tensor
    memory = 2 * tokens * (whole + inner + scores) / _bandwidth(cluster)
    size = 2 * tokens * model.width
    return max(arithmetic + memory, LAUNCHES * LAUNCH), cluster.collective(plan.tensor, 1, size)


def _between_stages(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Seconds for activations and their gradients of a micro-batch; the tensor ranks send parts."""
    if plan.pipeline == 1:
        return 0.0
    size = 2 * plan.micro * model.sequence * model.width / plan.tensor
    inside = plan.gpus <= cluster.per_node
    rate = cluster.inside if inside else cluster.outside
    return 2 * plan.interleave * (size / rate + LATENCY)


def _stage_parameters(model: Transformer, plan: Plan) -> float:
    """Parameters of the largest stage, per tensor rank."""
    ends = model.embeddings if plan.pipeline == 1 else model.vocabulary * model.width
    return (_most_layers(model, plan) * model.layer + ends) / plan.tensor


def _data_seconds(cluster: Cluster, plan: Plan, held: float, micros: int, one: float) -> float:
    """What computing does not hide. one: seconds of a micro-batch, two thirds of them backward."""
    whole = cluster.collective(plan.data, plan.tensor, 2 * held)
    if plan.zero == 3:  # gathered in forward and in backward, gradients added up: for each
        return micros * max(0.0, 3 * whole - one)
    if plan.zero == 2:  # gradients added up for each micro-batch, parameters gathered at the end
        return micros * max(0.0, whole - one * 2 / 3) + whole * (plan.data > 1)
    if plan.zero == 1:
        return max(0.0, whole - one * 2 / 3) + whole
    return max(0.0, 2 * whole - one * 2 / 3)


def _memory(model: Transformer, plan: Plan, held: float, micros: int) -> dict[str, float]:
    """Bytes per GPU of the first stage, which has most activations."""
    divided = [plan.data if plan.zero >= stage else 1 for stage in (3, 2, 1)]
    gathered = 2 * 2 * model.layer / plan.tensor if plan.zero == 3 and plan.data > 1 else 0
    tokens = plan.micro * model.sequence
    everywhere = 10 / (plan.tensor if plan.sequence else 1)
    inner = 8 + 4 * model.inner / model.width * (1.5 if model.gated else 1)
    scores = 0 if plan.fused else 5 * model.heads * model.sequence / model.width
    layer = tokens * model.width * (everywhere + (inner + scores) / plan.tensor)
    kept = 2 * tokens * model.width / (plan.tensor if plan.sequence else 1)
    flying = min(plan.pipeline, micros)  # micro-batches that the first stage has begun
    chunks = 1 + (plan.pipeline - 1) / plan.pipeline / plan.interleave if plan.interleave > 1 else 1
    activations = _most_layers(model, plan) * flying * chunks * (kept if plan.recompute else layer)
    logits = 6 * tokens * model.vocabulary / plan.tensor if plan.pipeline == 1 else 0
    return {
        "parameters": PARAMETER * held / divided[0] + gathered,
        "gradients": GRADIENT * held / divided[1],
        "state": STATE * held / divided[2],
        "activations": activations + logits + (layer if plan.recompute else 0),
        "driver": CONTEXT,
    }


# --- the search


def plans(model: Transformer, cluster: Cluster, batch: int) -> list[Cost]:
    """The estimates of all plans that are possible, the fastest that fit first."""
    found = [cost(model, cluster, plan, batch) for plan in _possible(model, cluster, batch)]
    if not found:
        raise ValueError(
            f"batch: {batch} sequences cannot be divided among {cluster.gpus} GPUs in any way"
        )
    return sorted(found, key=lambda one: (not one.fits, one.step if one.fits else one.bytes))


def _possible(model: Transformer, cluster: Cluster, batch: int) -> Iterator[Plan]:
    for tensor in _divisors(math.gcd(model.heads, cluster.per_node)):
        for pipeline in _divisors(math.gcd(model.layers, cluster.gpus)):
            if cluster.gpus % (tensor * pipeline):
                continue
            data = cluster.gpus // (tensor * pipeline)
            if batch % data:
                continue
            micros = [micro for micro in _divisors(batch // data) if micro <= 64]
            stages = (0,) if data == 1 else (0, 1) if pipeline > 1 else (0, 1, 2, 3)
            for zero in stages:
                for micro in micros:
                    plan = Plan(tensor, pipeline, data, zero, micro, sequence=tensor > 1)
                    yield plan
                    yield replace(plan, recompute=True)


def _divisors(number: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return small + [number // k for k in reversed(small) if k * k != number]


def kinds(found: list[Cost]) -> dict[str, Cost]:
    """The best estimate of each kind of plan, in the order of what it divides."""
    best: dict[str, Cost] = {}
    for one in found:
        best.setdefault(_kind(one.plan), one)
    return dict(sorted(best.items(), key=lambda item: _order(item[1].plan)))


def _kind(plan: Plan) -> str:
    parts = ["data"] if plan.data > 1 or plan.gpus == 1 else []
    parts += ["tensor"] if plan.tensor > 1 else []
    parts += ["pipeline"] if plan.pipeline > 1 else []
    return " + ".join(parts) + (f", ZeRO {plan.zero}" if plan.zero else "")


def _order(plan: Plan) -> tuple[int, int, int]:
    return plan.pipeline > 1, plan.tensor > 1, plan.zero
