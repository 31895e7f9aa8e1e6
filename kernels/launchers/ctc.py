"""Connectionist temporal classification: the losses of sequences, and their gradient."""

from __future__ import annotations

import numpy as np

import kernels
from kernels.families import Family, Operation, ones
from kernels.launchers.common import (
    GPU_BLOCK,
    MAX_GRID_YZ,
    Dialect,
    ceil_div,
    check_floating,
    compute_dtype,
    contiguous,
    empty,
    on_gpu,
)
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch import remembered
from kernels.support.bounds import all_below

VERSIONS = {"states": "a block per sequence, a thread per state"}

_plans = Plans()


def _check(name: str, log_probs, targets, times, lengths, blank: int) -> None:
    check_floating(name, log_probs)
    sequences = log_probs.shape[1:2]
    shapes = targets.shape[:1], times.shape, lengths.shape
    if log_probs.ndim != 3 or targets.ndim != 2 or any(shape != sequences for shape in shapes):
        raise ValueError(
            f"{name}: expected log_probs (T, N, C), targets (N, S), times and lengths (N,), got"
            f" {log_probs.shape}, {targets.shape}, {times.shape} and {lengths.shape}"
        )
    if {a.dtype for a in (targets, times, lengths)} != {np.dtype(np.int64)}:
        raise TypeError(
            f"{name}: expected targets, times and lengths of int64, got {targets.dtype},"
            f" {times.dtype} and {lengths.dtype}"
        )
    if not 0 <= blank < log_probs.shape[2]:
        raise ValueError(f"{name}: expected 0 <= blank < {log_probs.shape[2]}, got {blank}")
    if max(log_probs.shape[:2]) > MAX_GRID_YZ:
        raise ValueError(
            f"{name}: expected at most {MAX_GRID_YZ} steps and sequences, got {log_probs.shape};"
            " take parts of them"
        )


def _check_numbers(name: str, log_probs, targets, times, lengths) -> None:
    """Raise IndexError for times, lengths and labels that are too large, or below 0 (on the CPU: a
    GPU would have to wait)."""
    if on_gpu(log_probs):
        return
    steps, _, classes = log_probs.shape
    for what, numbers, most in (("time", times, steps), ("length", lengths, targets.shape[1])):
        if not all_below(numbers, most + 1):
            wrong = numbers[(numbers < 0) | (numbers > most)][0]
            raise IndexError(f"{name}: expected every {what} in 0 .. {most}, got {wrong}")
    if not all_below(targets, classes):
        used = np.arange(targets.shape[1]) < lengths[:, None]
        wrong = targets[used & ((targets < 0) | (targets >= classes))]
        if wrong.size:
            raise IndexError(f"{name}: target {wrong[0]} is out of bounds for {classes} classes")


def _block(states: int) -> int:
    """Threads for a row of states."""
    return min(32 * ceil_div(states, 32), GPU_BLOCK)


def ctc(dialect: Dialect, log_probs, targets, times, lengths, blank: int = 0):
    """The losses (N,) of log_probs (T, N, C) that spell targets (N, S), and what the gradient needs
    again: the logarithms of the probabilities of all prefixes (N, T, 2 S + 3).

    times, lengths: (N,), the steps and the labels of each sequence, at most T and S. Labels are
    classes but `blank`. Both results are float32 for 16-bit floats; a loss is infinite where no
    path spells the labels. Raises ValueError for shapes, TypeError for dtypes that do not fit, and
    for arrays on the CPU IndexError for numbers that are too large or below 0; labels behind the
    length of a sequence are not read.
    """
    _check("ctc", log_probs, targets, times, lengths, blank)
    _check_numbers("ctc", log_probs, targets, times, lengths)
    return _forward(dialect, log_probs, targets, times, lengths, blank)


@remembered(4)
def _forward(dialect: Dialect, log_probs, targets, times, lengths, blank: int):
    steps, batch, _ = log_probs.shape
    states, kind = 2 * targets.shape[1] + 1, compute_dtype(log_probs.dtype)
    symbols = empty((batch, states + 2), np.dtype(np.int32), log_probs)
    rows = empty((batch, steps, states + 2), kind, log_probs)
    losses = empty((batch,), kind, log_probs)
    if batch:
        kernel, constants = dialect.ctc.prefixes, (log_probs.dtype,)
        block = _block(states)
        launch = _plans.launch("ctc", "states", kernel, constants, batch, block, log_probs)
        given = (contiguous(a) for a in (log_probs, targets, times, lengths))
        launch(*given, blank, symbols, rows, losses)
    return losses, rows


def ctc_backward(
    dialect: Dialect,
    g,
    log_probs,
    targets,
    times,
    lengths,
    losses,
    prefixes,
    blank: int = 0,
    zero_infinity: bool = False,
):
    """The gradient of the losses with respect to log_probs, for g (N,), and what `ctc` gave.

    It is that of log_probs that are normalised, as torch has it: exp(log_probs) minus the part of
    the paths that pass a class. Where a loss is infinite it is NaN, or with zero_infinity 0. Errors
    as there.
    """
    name, given = "ctc_backward", (log_probs, targets, times, lengths)
    _check(name, *given, blank)
    _check_numbers(name, *given)
    (steps, batch, _), width = log_probs.shape, 2 * targets.shape[1] + 3
    shapes, kind = ((batch,), (batch,), (batch, steps, width)), compute_dtype(log_probs.dtype)
    for what, a, shape in zip(("g", "losses", "prefixes"), (g, losses, prefixes), shapes):
        if (a.shape, a.dtype) != (shape, kind):
            raise ValueError(
                f"{name}: expected {what} of shape {shape} and {kind}, got {a.shape} and {a.dtype}"
            )
    return _backward(dialect, g, *given, losses, prefixes, blank, bool(zero_infinity))


@remembered(7)
def _backward(
    dialect: Dialect,
    g,
    log_probs,
    targets,
    times,
    lengths,
    losses,
    prefixes,
    blank: int,
    zero_infinity: bool,
):
    name = "ctc_backward"
    d = empty(log_probs.shape, log_probs.dtype, log_probs)
    if not d.size:
        return d
    (steps, batch, classes), states = log_probs.shape, 2 * targets.shape[1] + 1
    kind, long, k = prefixes.dtype, np.dtype(np.int64), dialect.ctc
    before, heads = (empty((batch, n), long, d) for n in (targets.shape[1], classes))
    symbols = empty((batch, states + 2), np.dtype(np.int32), d)
    suffixes = empty((batch, 2, states + 2), kind, d)
    parts = empty((batch, steps, states), kind, d)
    log_probs, times, lengths = (contiguous(a) for a in (log_probs, times, lengths))
    block = _block(states)

    def launch(kernel, constants, grid, block):
        return _plans.launch(name, "states", kernel, constants, grid, block, d)

    launch(k.links, (), batch, block)(contiguous(targets), lengths, blank, symbols, before, heads)
    given = log_probs, times, lengths, symbols, prefixes, losses
    launch(k.shares, (d.dtype,), batch, block)(*given, suffixes, parts)
    block = min(32 * ceil_div(classes, 32), GPU_BLOCK)
    grid = ceil_div(classes, block), batch, steps
    launch(k.collect, (d.dtype,), grid, block)(
        contiguous(g), log_probs, times, lengths, blank, before, heads, losses, parts,
        zero_infinity, d,
    )  # fmt: skip
    return d


def _cost(log_probs, targets, *_, **__):
    steps, batch, _ = log_probs.shape
    states = 2 * targets.shape[1] + 1
    kind = compute_dtype(log_probs.dtype)
    return [((batch,), kind), ((batch, steps, states + 2), kind)], 9 * batch * steps * states


def _cost_backward(g, log_probs, targets, *_, **__):
    steps, batch, _ = log_probs.shape
    states = 2 * targets.shape[1] + 1
    return [(log_probs.shape, log_probs.dtype)], 13 * batch * steps * states + 3 * log_probs.size


def sequences(rng, steps: int, batch: int, classes: int, longest: int) -> tuple:
    """Random arguments of `ctc`, of sequences of several lengths. Blank is class 0."""
    scores = rng.standard_normal((steps, batch, classes)).astype(np.float32)
    log_probs = scores - np.log(np.exp(scores).sum(2, keepdims=True))
    targets = rng.integers(1, classes, (batch, longest))
    times = rng.integers(max(steps - 3, 0), steps + 1, batch)
    lengths = rng.integers(0, longest + 1, batch)
    times[:1], lengths[:1] = steps, longest
    return log_probs, targets, times, lengths


def _backward_of(given: tuple) -> tuple:
    """Arguments of `ctc_backward`."""
    return np.ones(len(given[1]), np.float32), *given, *kernels.ctc(*given, backend="numpy")


def _cases(rng, versions):
    for steps, batch, classes, longest in [(20, 3, 7, 5), (5, 2, 33, 1), (40, 2, 5, 17)]:
        given = sequences(rng, steps, batch, classes, longest)
        yield "ctc", given, {}, 4 * steps
        yield "ctc_backward", _backward_of(given), {"zero_infinity": True}, 4 * steps


def _compiled(versions):
    given = ones(5, 3, 7), *(np.zeros(shape, np.int64) for shape in ((3, 2), 3, 3))
    yield "ctc", given, {}
    yield "ctc_backward", (ones(3), *given, ones(3), ones(3, 5, 7)), {}


def _problem(version: str) -> tuple:
    return sequences(np.random.default_rng(0), 12, 3, 9, 4)


FAMILY = Family(
    "ctc",
    (
        Operation(ctc, _cost, lambda version: (_problem(version), {}), by_shape=VERSIONS),
        Operation(
            ctc_backward,
            _cost_backward,
            lambda version: (_backward_of(_problem(version)), {}),
            by_shape=VERSIONS,
        ),
    ),
    _cases,
    _compiled,
)
