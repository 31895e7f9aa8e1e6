"""Estimate the memory, time and energy of a training step on current GPUs. No GPU is used."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from minigrad.commands import CommandError, models
from minigrad.commands.train import positive

HELP = "estimate memory, time and energy of a training step, by GPU"
OPTIMIZERS = ("adam", "adamw", "sgd")
SHAPES = {"cnn": (3, 32, 32), "mlp": (3, 32, 32), "vgg16": (3, 224, 224)}
CLASSES = {"cnn": 10, "mlp": 10, "vgg16": 1000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="cnn", help="cnn (default), mlp, vgg16, or your Module as package.m:C")
    add("--batch", type=positive(int), default=64, help="samples per step; default: 64")
    add("--shape", type=_shape, help="of one sample, such as 3,224,224; default: that of the model")
    add("--integers", action="store_true", help="the inputs are indices, for an embedding")
    add("--optimizer", choices=OPTIMIZERS, default="adam", help="default: adam")
    kinds = ("fp32", "tf32", "fp16", "bf16")
    add("--precision", choices=kinds, default="fp32", help="default: fp32, on CUDA cores")
    add("--gpu", metavar="NAME", help="where the time goes on one GPU, such as 'RTX 4090'")
    add("--plot", metavar="FILE", help="draw the times (.svg, .png or .txt)")


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"expected sizes above 0, such as 3,224,224, got {text!r}")
    return shape


def run(args: argparse.Namespace) -> int:
    from minigrad import estimate

    build, shape = _model(args.model, args.shape)
    chosen = None if args.gpu is None else _gpu(args.gpu, args.precision)
    try:
        step = estimate.training_step(build, shape, args.batch, args.optimizer, args.integers)
    except Exception as error:  # raised by the user's Module, so it is about the input
        raise CommandError(f"{args.model} on {args.batch} x {shape}: {_line(error)}") from error
    print(_needs(args, shape, step))
    found = _estimates(step, args.precision)
    print(table(found))
    missing = _without(args.precision)
    if missing:
        print(f"without tensor cores for {args.precision}: {', '.join(missing)}")
    if chosen is not None:
        print(f"\non {chosen.name}:\n{step.on(chosen, args.precision).table()}")
    print("\nThis is an estimate from shapes and rated figures; nothing was run, and real steps")
    print("mostly take longer. It assumes:")
    print("\n".join(f"- {text}" for text in estimate.ASSUMPTIONS))
    if args.plot:
        try:
            picture(found, f"{args.model}, batch {args.batch}, {args.precision}").save(args.plot)
        except (OSError, ValueError, RuntimeError) as error:
            raise CommandError(f"--plot: {_line(error)}") from None
        print(f"picture: {args.plot}")
    return 0


def _gpu(name: str, precision: str) -> Any:
    from kernels import lab

    try:
        card = lab.gpu(name)
    except ValueError as error:
        raise CommandError(f"--{_line(error)}") from None
    if card.peak(precision) is None:
        raise CommandError(f"--gpu: {card.name} has no tensor cores for {precision}")
    return card


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _model(name: str, shape: tuple[int, ...] | None) -> tuple[Callable[[], Any], tuple[int, ...]]:
    """A function that builds the model, and the shape of one sample."""
    import minigrad

    if name in SHAPES:
        shape = shape or SHAPES[name]
        if len(shape) != 3:
            raise CommandError(f"--shape: {name} takes channels,height,width, got {shape}")
        return lambda: models.build(name, minigrad.nn, shape, CLASSES[name]), shape
    module, _, attribute = name.partition(":")
    if not attribute:
        raise CommandError(f"--model: expected {', '.join(SHAPES)} or package.module:Class: {name}")
    if shape is None:
        raise CommandError("--shape: a Module needs the shape of one sample, such as 3,32,32")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute), shape
    except (ImportError, AttributeError) as error:
        raise CommandError(f"--model: {_line(error)}") from None
    finally:
        sys.path.remove(os.getcwd())


def _estimates(step: Any, precision: str) -> list:
    """The estimates for all GPUs with this precision, the fastest first."""
    from kernels import lab

    able = [card for card in lab.GPUS if card.peak(precision) is not None]
    return sorted((step.on(card, precision) for card in able), key=lambda found: found.seconds)


def _without(precision: str) -> list[str]:
    from kernels import lab

    return [card.name for card in lab.GPUS if card.peak(precision) is None]


def _needs(args: argparse.Namespace, shape: tuple[int, ...], step: Any) -> str:
    """The first lines: the requirements of the step on any GPU."""
    size = "x".join(map(str, shape))
    rows = [
        f"{args.model}: {step.parameters // 4:,} parameters, a step of {args.batch} samples of "
        f"{size} with {args.optimizer}, {args.precision}",
        f"  {step.flops / 1e9:,.1f} GFLOP, at least {step.bytes / 1e9:,.2f} GB of memory traffic, "
        f"{len(step.launches)} kernels",
        "  memory in MB (float32): "
        + ", ".join(
            f"{name} {value / 1e6:,.1f}"
            for name, value in (
                ("parameters", step.parameters),
                ("gradients", step.gradients),
                ("optimiser", step.optimizer),
                ("activations", step.activations),
            )
        ),
        f"  peak in {args.precision}: {step.memory(args.precision) / 1e6:,.1f} MB\n",
    ]
    return "\n".join(rows)


def table(found: list) -> str:
    """The estimates as text, one line per GPU."""
    rows = [
        f"{'GPU':<22} {'kind':<12} {'price':<6} {'memory':>7} {'fits':>5} {'step':>10} "
        f"{'samples/s':>10} {'J/step':>8}"
    ]
    for one in found:
        card = one.gpu
        rows.append(
            f"{card.name:<22} {card.kind:<12} {card.price:<6} {card.memory:>4.0f} GB "
            f"{'yes' if one.fits else 'NO':>5} {one.seconds * 1e3:>7.2f} ms {one.samples:>10,.0f} "
            f"{one.joules:>8.2f}"
        )
    return "\n".join(rows)


def picture(found: list, title: str) -> Any:
    """The estimated times as bars; GPUs with too little memory are grey."""
    from kernels.lab.draw.canvas import BLUE, GREEN, GRID, INK, MUTED, Picture

    tall, left, width = 20, 170, 360
    drawing = Picture(680, 74 + tall * len(found), f"Estimated step: {title}", table(found))
    drawing.label(16, 42, "blue: data centre, green: consumer, grey: does not fit", 11, MUTED)
    longest = max(one.seconds for one in found)
    for i, one in enumerate(found):
        y = 56 + i * tall
        colour = (GREEN if one.gpu.kind == "consumer" else BLUE) if one.fits else GRID
        wide = max(width * one.seconds / longest, 1)
        drawing.label(left - 8, y + 12, one.gpu.name, 11, INK, "end")
        drawing.rect(left, y + 2, wide, tall - 6, fill=colour)
        text = f"{one.seconds * 1e3:,.2f} ms" + ("" if one.fits else ", does not fit")
        drawing.label(left + wide + 6, y + 12, text, 11, MUTED)
    return drawing
