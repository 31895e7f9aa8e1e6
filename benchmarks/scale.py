"""The estimates of `minigrad scale` beside published training runs.

    python -m benchmarks.scale [--json]

Nothing is run: the rows take a second. Each run has its source; "micro ?" marks where the source
does not say the size of the micro-batches: then the fastest one that fits is taken. Interleaved
schedules whose source does not say how many chunks a stage has are taken to have two.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import NamedTuple

import measure

from minigrad.scale import MODELS, Cluster, Cost, Plan, Transformer, cost

MEGATRON = "Narayanan et al. 2021, Efficient Large-Scale Language Model Training, arXiv 2104.04473"
MPT = "MosaicML, llm-foundry, scripts/train/benchmarking/README.md"


class Run(NamedTuple):
    """unit: "hardware" TFLOP/s of a GPU (recomputing counts), "model" TFLOP/s (it does not), tokens
    per second of a GPU, or seconds of a step. micro: None where the source does not say it."""

    name: str
    source: str
    model: Transformer
    cluster: Cluster
    plan: Plan
    batch: int
    micro: int | None
    unit: str
    published: float


def _megatron() -> list[Run]:
    rows = (  # parameters, layers, width, heads, tensor, pipeline, GPUs, batch, TFLOP/s
        ("1.7B", 24, 2304, 24, 1, 1, 32, 512, 137),
        ("3.6B", 30, 3072, 32, 2, 1, 64, 512, 138),
        ("7.5B", 36, 4096, 32, 4, 1, 128, 512, 142),
        ("18.4B", 40, 6144, 48, 8, 1, 256, 1024, 135),
        ("39.1B", 48, 8192, 64, 8, 2, 512, 1536, 138),
        ("76.1B", 60, 10240, 80, 8, 4, 1024, 1792, 140),
        ("145.6B", 80, 12288, 96, 8, 8, 1536, 2304, 148),
        ("310.1B", 96, 16384, 128, 8, 16, 1920, 2160, 155),
        ("529.6B", 105, 20480, 128, 8, 35, 2520, 2520, 163),
        ("1008B", 128, 25600, 160, 8, 64, 3072, 3072, 163),
    )
    found = []
    for name, layers, width, heads, tensor, pipeline, gpus, batch, tflops in rows:
        data = gpus // (tensor * pipeline)
        plan = Plan(
            tensor,
            pipeline,
            data,
            recompute=True,
            fused=False,
            interleave=2 if layers >= 2 * pipeline > 2 else 1,
        )
        model = Transformer(layers, width, heads, 51200, 2048)
        cluster = Cluster("A100 SXM 80GB", gpus // 8, network=200)
        source = f"{MEGATRON}, table 1"
        run = Run(f"Megatron {name}", source, model, cluster, plan, batch, None, "hardware", tflops)
        found.append(run)
    return found


def _zero3() -> list[Run]:
    found = []
    sizes = {"175B": Transformer(96, 12288, 96, 51200, 2048), "530B": MODELS["mt-nlg-530b"]}
    for name, gpus, micro, batch, tflops in (
        ("175B", 384, 4, 1536, 144),
        ("175B", 768, 2, 1536, 88),
        ("175B", 1536, 1, 1536, 44),
        ("530B", 640, 4, 2560, 138),
        ("530B", 2240, 1, 2240, 48),
    ):
        plan = Plan(data=gpus, zero=3, recompute=True, fused=False)
        cluster = Cluster("A100 SXM 80GB", gpus // 8, network=200)
        found.append(
            Run(
                f"ZeRO 3, {name}, {gpus} GPUs",
                f"{MEGATRON}, table 2 (DeepSpeed of 2021)",
                sizes[name],
                cluster,
                plan,
                batch,
                micro,
                "hardware",
                tflops,
            )
        )
    return found


def _mt_nlg() -> list[Run]:
    found = []
    for nodes, seconds in ((280, 60.1), (350, 50.2), (420, 44.4)):
        plan = Plan(8, 35, nodes // 35, recompute=True, fused=False)
        cluster = Cluster("A100 SXM 80GB", nodes, network=200)
        source = "Smith et al. 2022, Megatron-Turing NLG 530B, arXiv 2201.11990, section 2.4"
        run = Run(
            f"MT-NLG 530B, {nodes * 8} GPUs",
            source,
            MODELS["mt-nlg-530b"],
            cluster,
            plan,
            1920,
            1,
            "s",
            seconds,
        )
        found.append(run)
    return found


def _mpt(width: int, layers: int, heads: int) -> Transformer:
    return Transformer(layers, width, heads, 50368, 2048)


def _others() -> list[Run]:
    a100, h100 = "A100 SXM 80GB", "H100 SXM 80GB"
    bloom = Plan(4, 12, 8, 1, recompute=True, fused=False)
    llama3 = Plan(8, 16, 64, 1, sequence=True, interleave=2)
    sharded = Plan(data=8, zero=3)
    return [
        Run(
            "BLOOM 176B, 384 GPUs",
            "BigScience, train/tr11-176B-ml/README.md: 105 s; 4 links of 100 Gbit/s per node",
            MODELS["bloom-176b"],
            Cluster(a100, 48, network=50),
            bloom,
            2048,
            2,
            "s",
            105,
        ),
        Run(
            "OPT-175B, 992 GPUs",
            "Zhang et al. 2022, OPT, arXiv 2205.01068, section 2.4: up to 147 TFLOP/s; taken as "
            "FSDP, tensor 8, 2M tokens, recomputing counted",
            MODELS["gpt3-175b"],
            Cluster(a100, 124, network=200),
            Plan(8, 1, 124, 3, recompute=True, fused=False),
            992,
            8,
            "hardware",
            147,
        ),
        Run(
            "LLaMA 65B, 2048 GPUs",
            "Touvron et al. 2023, LLaMA, arXiv 2302.13971, section 2.4: 380 tokens/s; the division "
            "is not published: taken as tensor 8 with sequence, ZeRO 3",
            MODELS["llama-65b"],
            Cluster(a100, 256, network=200),
            Plan(8, 1, 256, 3, sequence=True),
            2048,
            None,
            "tokens/s",
            380,
        ),
        Run(
            "Llama 3 405B, 8192 GPUs",
            "Grattafiori et al. 2024, The Llama 3 Herd of Models, arXiv 2407.21783, table 4",
            MODELS["llama3-405b"],
            Cluster(h100, 1024, network=400),
            llama3,
            2048,
            1,
            "model",
            430,
        ),
        Run(
            "Llama 3 405B, 16384 GPUs",
            "Grattafiori et al. 2024, The Llama 3 Herd of Models, arXiv 2407.21783, table 4",
            MODELS["llama3-405b"],
            Cluster(h100, 2048, network=400),
            replace(llama3, data=128),
            2048,
            1,
            "model",
            400,
        ),
        Run(
            "MPT 7B, 8 A100",
            f"{MPT}: FSDP",
            _mpt(4096, 32, 32),
            Cluster(a100, 1, network=200),
            sharded,
            96,
            6,
            "tokens/s",
            4641,
        ),
        Run(
            "MPT 70B, 64 A100",
            f"{MPT}: FSDP, 1600 Gbit/s per node",
            _mpt(8192, 80, 64),
            Cluster(a100, 8, network=200),
            replace(sharded, data=64, recompute=True),
            2048,
            8,
            "tokens/s",
            410,
        ),
        Run(
            "MPT 7B, 8 H100",
            f"{MPT}: FSDP",
            _mpt(4096, 32, 32),
            Cluster(h100, 1, network=400),
            sharded,
            48,
            6,
            "tokens/s",
            10643,
        ),
        Run(
            "MPT 70B, 64 H100",
            f"{MPT}: FSDP; the network is taken as 400 Gbit/s per GPU",
            _mpt(8192, 80, 64),
            Cluster(h100, 8, network=400),
            replace(sharded, data=64, recompute=True),
            2048,
            8,
            "tokens/s",
            1039,
        ),
    ]


RUNS = (*_megatron(), *_mt_nlg(), *_zero3(), *_others())


def estimate(run: Run) -> Cost:
    """The estimate of a run, with the fastest micro-batch that fits where none is published."""
    if run.micro is not None:
        plan = replace(run.plan, micro=run.micro)
        return cost(run.model, run.cluster, plan, run.batch)
    each = run.batch // run.plan.data
    sizes = [k for k in (1, 2, 4, 8, 16) if each % k == 0]
    found = [cost(run.model, run.cluster, replace(run.plan, micro=k), run.batch) for k in sizes]
    fitting = [one for one in found if one.fits] or found[:1]
    return min(fitting, key=lambda one: one.step)


def predicted(run: Run, found: Cost) -> float:
    """The estimate in the unit of the publication."""
    if run.unit == "s":
        return found.step
    rate = found.tokens / found.step / run.cluster.gpus
    if run.unit == "tokens/s":
        return rate
    return rate * run.model.flops(run.plan.recompute and run.unit == "hardware") / 1e12


def rows() -> list[dict]:
    found = []
    for run in RUNS:
        one = estimate(run)
        value = predicted(run, one)
        # Above 0: the estimate is faster than the run.
        faster = run.published / value if run.unit == "s" else value / run.published
        found.append(
            {
                "run": run.name,
                "plan": f"{one.plan}, micro {one.plan.micro}{'' if run.micro else ' ?'}",
                "unit": run.unit,
                "published": run.published,
                "estimate": round(value, 1),
                "faster": round(faster - 1, 3),
                "GB": round(one.bytes / 1e9, 1),
                "source": run.source,
            }
        )
    return found


def table(found: list[dict]) -> str:
    """The rows as a table of Markdown."""
    lines = ["| run | published | estimate | error |", "|---|---:|---:|---:|"]
    units = {"hardware": "TFLOP/s", "model": "TFLOP/s", "tokens/s": "tokens/s", "s": "s"}
    for row in found:
        unit = units[row["unit"]]
        lines.append(
            f"| {row['run']} | {row['published']:g} {unit} | {row['estimate']:g} {unit} | "
            f"{row['faster']:+.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results")
    arguments = parser.parse_args()
    found = rows()
    for row in found:
        print(
            f"{row['run']:<26} {row['published']:>8g} {row['estimate']:>9g} {row['unit']:<9}"
            f"{row['faster']:>+7.1%}  {row['GB']:>5} GB  {row['plan']}"
        )
    if arguments.json:
        measure.write_json(measure.results_path("scale"), 1, found)


if __name__ == "__main__":
    main()
