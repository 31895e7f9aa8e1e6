"""Estimate a training step of a transformer on many GPUs, by the way of dividing it. Nothing is
run."""

from __future__ import annotations

import argparse
from typing import Any

from kernels.support.names import did_you_mean
from minigrad.commands import CommandError
from minigrad.commands.train import positive

HELP = "estimate memory, time and efficiency of training on many GPUs"
SHAPE = ("layers", "width", "heads", "vocabulary", "sequence")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="gpt2", help="gpt2 (default), gpt3-175b, llama-65b, ...; see --models")
    add("--models", action="store_true", help="list the models")
    for name in SHAPE:
        add(f"--{name}", type=positive(int), help=f"in place of the model's {name}")
    add("--gpu", default="H100 SXM", help="default: H100 SXM; see minigrad gpus")
    add("--nodes", type=positive(int), default=1, help="default: 1")
    add("--per-node", type=positive(int), default=8, help="GPUs of a node; default: 8")
    add(
        "--network",
        type=positive(float),
        default=400.0,
        help="Gbit/s of each GPU to other nodes; default: 400",
    )
    add(
        "--link",
        type=positive(float),
        help="GB/s of each GPU in its node, one direction; default: that of NVLink or PCIe",
    )
    add(
        "--batch",
        type=positive(int),
        help="sequences of a step; default: 512, or the next multiple of the GPUs",
    )


def run(args: argparse.Namespace) -> int:
    from minigrad import scale

    if args.models:
        for name, model in scale.MODELS.items():
            print(f"{name:<14} {model.parameters / 1e9:>8.2f} billion parameters  {_shape(model)}")
        return 0
    try:
        model = _model(args)
        cluster = scale.Cluster(args.gpu, args.nodes, args.per_node, args.network, args.link or 0.0)
        batch = args.batch or cluster.gpus * -(-512 // cluster.gpus)
        found = scale.plans(model, cluster, batch)
    except ValueError as error:
        raise CommandError(f"--{error}") from None
    print(_title(args.model, model, cluster, batch))
    print(table(scale.kinds(found)))
    print(_best(found, cluster))
    print("\nThis is an estimate from shapes and rated figures; nothing was run. It assumes:")
    print("\n".join(f"- {text}" for text in scale.ASSUMPTIONS))
    return 0


def _model(args: argparse.Namespace) -> Any:
    from dataclasses import replace

    from minigrad.scale import MODELS

    if args.model not in MODELS:
        near = did_you_mean(args.model, MODELS) or f"; there are {', '.join(MODELS)}"
        raise CommandError(
            f"--model: expected a name of --models, got {args.model!r}{near} (--layers, --width, "
            "--heads, --vocabulary and --sequence change its shape)"
        )
    given = {name: value for name in SHAPE if (value := getattr(args, name)) is not None}
    if "width" in given:  # the other sizes of the named model belong to its width
        given |= {"hidden": 0, "kv_heads": 0}
    return replace(MODELS[args.model], **given)


def _shape(model: Any) -> str:
    return (
        f"{model.layers} layers of width {model.width}, {model.heads} heads, vocabulary "
        f"{model.vocabulary}, sequence {model.sequence}"
    )


def _title(name: str, model: Any, cluster: Any, batch: int) -> str:
    return (
        f"{name}: {model.parameters:,} parameters, {_shape(model)}\n"
        f"{cluster.gpus} GPUs: {cluster.nodes} nodes of {cluster.per_node} {cluster.gpu.name}, "
        f"{cluster.link:g} GB/s inside a node, {cluster.network:g} Gbit/s per GPU between nodes\n"
        f"a step of {batch} sequences ({batch * model.sequence:,} tokens) in 16 bits\n"
    )


def table(kinds: dict[str, Any]) -> str:
    """The best plan of each kind, one per line."""
    rows = [
        f"{'divided':<32} {'memory':>9} {'fits':>5} {'step':>10} {'efficiency':>10} "
        f"{'compute':>8} {'tensor':>7} {'pipeline':>8} {'data':>6}"
    ]
    for name, one in kinds.items():
        share = {part: value / one.step for part, value in one.seconds.items()}
        rows.append(
            f"{name:<32} {one.bytes / 1e9:>6.1f} GB {'yes' if one.fits else 'NO':>5} "
            f"{_seconds(one.step):>10} {one.efficiency:>10.1%} "
            f"{share['compute'] + share['optimiser']:>8.1%} {share['tensor']:>7.1%} "
            f"{share['pipeline']:>8.1%} {share['data']:>6.1%}"
        )
    return "\n".join(rows)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def _best(found: list, cluster: Any) -> str:
    best = found[0]
    if not best.fits:
        return (
            f"\nno plan fits: the smallest ({best.plan}, micro-batches of {best.plan.micro}) needs "
            f"{best.bytes / 1e9:.1f} GB per GPU, {cluster.gpu.name} has {cluster.gpu.memory:g} GB"
        )
    memory = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in best.memory.items())
    rate = best.tokens / best.step
    return (
        f"\nbest: {best.plan}, micro-batches of {best.plan.micro}: a step of "
        f"{_seconds(best.step)}, {rate:,.0f} tokens/s, {best.tflops:.0f} TFLOP/s per GPU\n"
        f"  memory per GPU in GB: {memory}"
    )
