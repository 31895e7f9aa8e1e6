"""Train a network on images and print loss and accuracy by epoch, then the kernels that ran."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import time
from typing import Any

from minigrad.commands import CommandError, models, plot

HELP = "train a network on images"
DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10")
LEARNING_RATES = {"adam": 1e-3, "adamw": 1e-3, "sgd": 0.05}
MOMENTUM = 0.9
EVALUATION_BATCH = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", choices=DATASETS, default="digits", help="default: digits, which is included")
    add("--model", choices=models.MODELS, default="cnn", help="default: cnn")
    add("--epochs", type=positive(int), help="default: 12 on digits, else 3")
    add("--batch-size", type=positive(int), help="default: 32 on digits, else 128")
    add("--optimizer", choices=LEARNING_RATES, default="adam", help="default: adam")
    add("--lr", type=positive(float), help="default: 0.001, for sgd 0.05 (momentum 0.9)")
    add("--device", help="cpu or cuda; default: cuda where there is one")
    add("--backend", help="numba, cupy (CUDA C) or numpy; default: numba, on a GPU cupy")
    add("--seed", type=_seed, default=0, help="default: 0; the same seed gives the same result")
    add("--distributed", action="store_true", help="a rank of mpiexec: gradients are averaged")
    add("--plot", metavar="FILE.png", help="draw loss and accuracy (needs matplotlib)")
    add("--timeline", metavar="FILE", help="draw a step by kernel (.svg, .png or .txt)")
    add("--save", metavar="FILE", help="save the network after every epoch (see minigrad.load)")


def positive(kind: type):
    """A parser of numbers above 0; whole ones have at most 31 bits, as sizes of launches do."""
    end = 2**31 if kind is int else math.inf

    def parse(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < end:
            what = "a whole number" if kind is int else "a number"
            limit = f" and below {end}" if value >= end and kind is int else ""
            raise argparse.ArgumentTypeError(f"expected {what} above 0{limit}, got {text!r}")
        return value

    return parse


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 2**64
    if not -(2**63) <= value < 2**64:
        raise argparse.ArgumentTypeError(f"expected an integer of up to 64 bits, got {text!r}")
    return value


def run(args: argparse.Namespace) -> int:
    _check_output(args.save, "--save")
    _check_output(args.plot, "--plot")
    _check_output(args.timeline, "--timeline")
    if args.timeline and not args.timeline.endswith((".svg", ".png", ".txt")):
        raise CommandError(f"--timeline: expected a .svg, .png or .txt file: {args.timeline}")
    if args.plot:
        plot.require("--plot")
    if args.timeline and args.timeline.endswith(".png"):
        plot.require("--timeline")
    device = _configure(args)
    if args.distributed:
        return _train_distributed(args, device)
    return _train_alone(args, device)


def _train_distributed(args: argparse.Namespace, device) -> int:
    """Train as one of the ranks; the first one prints and saves."""
    from minigrad import distributed

    try:
        distributed.init_process_group("mpi")
    except distributed.DistNetworkError as error:
        raise CommandError(str(error)) from None
    try:
        if distributed.get_rank() == 0:
            return _train_alone(args, device)
        args.save = args.plot = args.timeline = None
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            return _train_alone(args, device)
    finally:
        distributed.destroy_process_group()


def _train_alone(args: argparse.Namespace, device) -> int:
    import kernels
    import minigrad

    minigrad.manual_seed(args.seed)
    train, test, scaling = _load(args.dataset)
    shape = tuple(train[0][0].shape)
    model = models.build(args.model, minigrad.nn, shape).to(device)
    count = sum(p.numel() for p in model.parameters())
    print(
        f"{args.model} with {count} parameters on {args.dataset} ({len(train)} train, {len(test)} "
        f"test), {args.optimizer}, backend {minigrad.backends.get()} on {device}",
        flush=True,
    )
    _announce_compilation(minigrad.backends.get())
    started = time.perf_counter()
    with kernels.trace() as trace:
        history = fit(model, train, test, args, device, scaling)
    seconds = time.perf_counter() - started
    print(f"test accuracy {history['valid_accuracy'][-1]:.2%} after {seconds:.1f} s")
    print(f"\n{trace}")
    if args.save:
        print(f"saved: {args.save}")
    if args.plot:
        plot.curves(history, args.plot, f"{args.model} on {args.dataset}")
        print(f"curves: {args.plot}")
    if args.timeline:
        _timeline(args, models.build(args.model, minigrad.nn, shape).to(device), train, device)
        print(f"timeline: {args.timeline}")
    return 0


def _check_output(path: str | None, option: str) -> None:
    """Raise CommandError before training for a path that can't be written."""
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise CommandError(f"{option}: there is no folder {folder}; create it first")
    if os.path.isdir(path):
        raise CommandError(f"{option}: {path} is a folder; name a file in it")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{option}: the folder {folder} is not writable")


def _configure(args: argparse.Namespace):
    """Choose backend and device, and set the defaults that depend on other options."""
    import minigrad

    if args.epochs is None:
        args.epochs = 12 if args.dataset == "digits" else 3
    if args.batch_size is None:
        args.batch_size = 32 if args.dataset == "digits" else 128
    if args.lr is None:
        args.lr = LEARNING_RATES[args.optimizer]
    try:
        minigrad.backends.set(args.backend or minigrad.backends.get())
        name = args.device or ("cuda" if minigrad.cuda.is_available() else "cpu")
        return minigrad.zeros(1, device=name).device
    except (ValueError, RuntimeError) as error:
        raise CommandError(str(error).splitlines()[0]) from None


def _announce_compilation(backend: str) -> None:
    """Announce that the first epoch compiles the kernels, if the cache is empty."""
    from kernels import simt

    folder = os.path.join(simt.cache_folder(), "host" if backend == "cupy" else "")
    if backend != "numpy" and not (os.path.isdir(folder) and os.listdir(folder)):
        print(f"first run: compiling the kernels, once; they are kept in {folder}", flush=True)


def _load(name: str):
    """The two data sets, standardised by channel with the training images' mean and deviation."""
    import numpy as np

    import minigrad
    from minigrad import datasets
    from minigrad.utils.data import TensorDataset

    try:
        train, test = datasets.load(name), datasets.load(name, train=False)
    except datasets.DatasetError as error:
        raise CommandError(str(error)) from None
    images = train.tensors[0].numpy()  # NumPy needs no kernels, of which a first run has none
    over = {"axis": (0, 2, 3), "keepdims": True, "dtype": np.float64}
    mean = images.mean(**over).astype(images.dtype)
    std = images.std(ddof=1, **over).astype(images.dtype)
    train, test = (
        TensorDataset(minigrad.from_numpy((part.tensors[0].numpy() - mean) / std), part.tensors[1])
        for part in (train, test)
    )
    return train, test, {"mean": minigrad.from_numpy(mean), "std": minigrad.from_numpy(std)}


def fit(model, train, test, args: argparse.Namespace, device, scaling: dict):
    """Train for `args.epochs` epochs, printing a line for each; the history."""
    import minigrad
    from minigrad import training
    from minigrad.utils.data import DataLoader

    generator = minigrad.Generator().manual_seed(args.seed)
    options: dict[str, Any] = {"shuffle": True, "generator": generator}
    network, sampler = model, None
    if args.distributed:  # each rank takes its part of every batch
        from minigrad.nn.parallel import DistributedDataParallel
        from minigrad.utils.data import DistributedSampler

        network, sampler = DistributedDataParallel(model), DistributedSampler(train, seed=args.seed)
        args.batch_size = -(-args.batch_size // sampler.num_replicas)
        options = {"sampler": sampler}

    class EachEpoch(training.Callback):
        def on_epoch_begin(self, fit) -> None:
            if sampler is not None:
                sampler.set_epoch(fit.epoch + 1)

        def on_epoch_end(self, fit) -> None:
            row = fit.history.rows[-1]
            print(
                f"epoch {fit.epoch:>3}/{fit.epochs}  train loss {row['loss']:.4f} accuracy "
                f"{row['accuracy']:7.2%}  test loss {row['valid_loss']:.4f} accuracy "
                f"{row['valid_accuracy']:7.2%}  {row['seconds']:.1f} s",
                flush=True,
            )
            if args.save:  # after every epoch, so that an interruption loses at most one
                _save(args, model, scaling, row["valid_accuracy"])

    try:
        return minigrad.fit(
            network,
            minigrad.nn.CrossEntropyLoss(),
            _optimizer(args, model.parameters()),
            DataLoader(train, args.batch_size, **options),
            DataLoader(test, EVALUATION_BATCH),
            args.epochs,
            ["accuracy"],
            [EachEpoch()],
            device=device,
            progress="bar",
        )
    except FloatingPointError as error:
        said = str(error).removeprefix("fit: ").partition(";")[0]
        raise CommandError(f"{said}; a smaller --lr may help") from None


def _optimizer(args: argparse.Namespace, parameters):
    from minigrad import optim

    if args.optimizer == "sgd":
        return optim.SGD(parameters, lr=args.lr, momentum=MOMENTUM)
    return {"adam": optim.Adam, "adamw": optim.AdamW}[args.optimizer](parameters, lr=args.lr)


def _timeline(args: argparse.Namespace, model, train, device) -> None:
    """Draw a step of a new network (the parameters of the trained one are in its optimiser's
    arena)."""
    import minigrad
    from minigrad import viz
    from minigrad.utils.data import DataLoader

    batch = [next(iter(DataLoader(train, batch_size=args.batch_size)))]
    loss, optimizer = minigrad.nn.CrossEntropyLoss(), _optimizer(args, model.parameters())

    def step() -> None:
        minigrad.fit(model, loss, optimizer, batch, device=device, progress=False)

    step()  # the first step allocates and compiles
    with viz.timeline() as timeline:
        step()
    timeline.picture().save(args.timeline)


def _save(args: argparse.Namespace, model, scaling: dict, accuracy: float) -> None:
    import minigrad

    minigrad.save(
        {
            "model": args.model,
            "dataset": args.dataset,
            "state_dict": model.state_dict(),
            "scaling": scaling,
            "test_accuracy": accuracy,
        },
        args.save,
    )
