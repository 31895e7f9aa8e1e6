"""Recurrent layers: checks, states and saved gates, and the version for the size of the state."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

import kernels
from kernels import dispatch
from kernels.families import Family, Operation, floats, normal, ones
from kernels.launchers.common import (
    Dialect,
    ceil_div,
    check_floating,
    check_version,
    compute_dtype,
    contiguous,
    empty,
    launcher,
    namespace,
    on_gpu,
    zeros,
)
from kernels.launchers.matmul import matmul
from kernels.launchers.plans import Plans, place
from kernels.launchers.pointwise import pointwise
from kernels.launchers.relaunch import remembered
from kernels.pointwise import TABLE

GATES = {"tanh": 1, "relu": 1, "gru": 3, "lstm": 4}
VERSIONS = {
    "gates": "per step a product, a kernel per gate and one for the state",
    "cell": "per step a product, and one kernel for all gates",
    "sequence": "all steps in one launch: the state of a block's sequences in shared memory",
}
BACKWARD = {
    "cell": "per step one kernel for all gates, and a product",
    "sequence": "all steps in one launch, the last one first",
}
THREADS = 128  # of a block of the kernels for one step
UNITS = 1024  # threads of a block, so units of the state, that `sequence` takes
SHARED = 32 * 1024  # bytes of shared memory that a block of `sequence` takes

FEW_STEPS = 64  # up to so many, a CPU remembers the launches of all steps together

_plans = Plans()
_MATMUL = dispatch.named("matmul")


def _check(name: str, mode: str, version, versions, weight, *arrays) -> int:
    """H. ValueError for a mode, a version or a weight that does not fit, TypeError for dtypes."""
    check_version(name, version, versions)
    check_floating(name, weight, *arrays)
    if mode not in GATES:
        raise ValueError(f"{name}: expected a mode among {tuple(GATES)}, got {mode!r}")
    h = weight.shape[-1]
    if weight.shape != (GATES[mode] * h, h):
        raise ValueError(
            f"{name}: expected a weight ({GATES[mode]} * H, H) for {mode!r}, got {weight.shape}"
        )
    return h


def _check_forward(x, weight, bias, h, c, mode: str, sizes, version) -> None:
    name = "recurrent"
    width = _check(name, mode, version, VERSIONS, weight, x, bias, h, c)
    rows = GATES[mode] * width
    if x.ndim != 3 or x.shape[2] != rows:
        raise ValueError(f"{name}: expected x (T, B, {rows}), got {x.shape}")
    if bias is not None and bias.shape != (rows,):
        raise ValueError(f"{name}: expected a bias of shape ({rows},), got {bias.shape}")
    if (c is not None) != (mode == "lstm"):
        raise ValueError(f"{name}: c is the cell's state of 'lstm', and mode is {mode!r}")
    for state in (h, c):
        if state is not None and state.shape != (x.shape[1], width):
            raise ValueError(
                f"{name}: expected states of shape {(x.shape[1], width)}, got {state.shape}"
            )
    _check_sizes(name, sizes, *x.shape[:2])


def _check_sizes(name: str, sizes, steps: int, batch: int) -> None:
    if sizes is None:
        return
    if sizes.shape != (steps,) or sizes.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected {steps} integers as sizes, got {sizes!r}")
    if steps and not 0 <= sizes.min() <= sizes.max() <= batch:
        raise ValueError(f"{name}: expected sizes of 0 to {batch}, got {sizes!r}")


class _Plan:
    """What the calls with operands of one kind share."""

    def __init__(self, dialect: Dialect, name: str, x, width: int, mode: str, version) -> None:
        self.steps, self.batch, self.h = *x.shape[:2], width
        self.parts, self.mode, self.dtype = GATES[mode], mode, x.dtype
        self.dialect, self.kernels = dialect, dialect.recurrent
        self.acc_t = dialect.common.scalar_type(x.dtype)
        self.padded = ceil_div(max(width, 1), 32) * 32
        self.rows = self._rows(on_gpu(x), name.endswith("backward"))
        if version == "sequence" and not self.rows:
            raise ValueError(
                f"{name}: version 'sequence' takes states of up to {UNITS}, not {width}"
            )
        # On a GPU launches cost more than the steps; on a CPU the tiles of a matrix product win.
        self.version = version or ("sequence" if self.rows and on_gpu(x) else "cell")
        self.every = namespace(x).full((max(self.steps, 1),), self.batch, np.int64)
        self.none = empty((1,), x.dtype, x)
        if self.version == "sequence":
            self.grid, self.block = ceil_div(self.batch, self.rows), self.padded
        else:
            self.block = min(self.padded, THREADS)
            self.grid = (ceil_div(width, self.block), self.batch)

    def _rows(self, gpu: bool, backward: bool) -> int:
        """Sequences per block of `sequence`: few on a GPU, which has many blocks at once; more use
        an element of the weight more often. 0 where not even one fits."""
        one = self.padded * compute_dtype(self.dtype).itemsize * (self.parts if backward else 1)
        fit = SHARED // one if self.padded <= UNITS else 0
        wanted = self.batch // 128 if gpu else self.batch
        return next((n for n in (4, 2, 1) if n <= fit and (n <= wanted or n == 1)), 0)

    def launch(self, name: str, kernel):
        return launcher(name, self.version, kernel, self.grid, self.block)

    def product(self, a, b, bias=None):
        """As `matmul`, by a remembered launch where there is one."""
        found = dispatch.relaunch(dispatch.tracer, self.dialect.module, _MATMUL, a, b, bias)
        return matmul(self.dialect, a, b, bias) if found is None else found

    def sizes(self, sizes):
        """Per step, how many sequences have it, where the states lie."""
        if sizes is None:
            return self.every
        return namespace(self.every).asarray(sizes.astype(np.int64, copy=False))


def _planned(dialect: Dialect, name: str, x, weight, mode: str, version, make, *flags):
    where = type(x) is ndarray or place(x)
    key = (dialect, name, where, x.shape, x.dtype, weight.shape, mode, version, *flags)
    found = _plans.get(key)
    if found is None:
        plan = _Plan(dialect, name, x, weight.shape[1], mode, version)
        found = _plans.keep(key, (plan, make(plan, *flags)))
    return found


def _plan_forward(plan: _Plan, has_bias: bool):
    kernels, name = plan.kernels, "recurrent"
    flags = (plan.acc_t, plan.mode)
    if plan.version == "sequence":
        kernel = kernels.sequence(*flags, plan.rows, plan.padded, has_bias)
        run = plan.launch(name, kernel)

        def sequence(x, weight, bias, sizes, states, gates):
            bias = plan.none if bias is None else contiguous(bias)
            run(x, contiguous(weight.T), bias, sizes, states, gates)

        return sequence
    if plan.version == "cell" or plan.parts == 1:  # a layer without gates
        step = plan.launch(name, kernels.cell(*flags))
    else:
        step = _step_by_gates(plan)

    def cell(x, weight, bias, sizes, states, gates):
        columns = weight.T
        for t in range(plan.steps):
            product = plan.product(states[0, t], columns, bias)
            step(x, product, sizes, states, gates, t)

    return cell


def _step_by_gates(plan: _Plan):
    """A step of the version `gates`."""
    parts = [
        plan.launch("recurrent", plan.kernels.gate(plan.acc_t, plan.mode, part))
        for part in range(plan.parts)
    ]
    update = plan.launch("recurrent", plan.kernels.update(plan.acc_t, plan.mode))

    def step(x, product, sizes, states, gates, t):
        for gate in parts:
            gate(x, product, sizes, gates, t)
        update(sizes, states, gates, t)

    return step


def recurrent(
    dialect: Dialect, x, weight, bias, h, c, mode: str, sizes=None, version: str | None = None
):
    """One direction of a recurrent layer; mode "tanh", "relu", "lstm" or "gru".

    x (T, B, gates * H): the part of the gates that depends on the input; weight (gates * H, H),
    bias (gates * H,) or None: the other part; h (B, H), for "lstm" also c: the first states. sizes:
    T integers (a NumPy array): how many sequences, the first ones, have a step; the others keep
    their state. Returns all states (1, T + 1, B, H), for "lstm" (2, T + 1, B, H) with those of the
    cell, and what the gradients need of the gates. ValueError for shapes, TypeError for dtypes that
    do not fit.
    """
    _check_forward(x, weight, bias, h, c, mode, sizes, version)
    if sizes is None and len(x) <= FEW_STEPS and not on_gpu(x):
        return _forward_of_few(dialect, x, weight, bias, h, c, mode, version)
    return _forward(dialect, x, weight, bias, h, c, mode, version, sizes)


def _forward(dialect: Dialect, x, weight, bias, h, c, mode: str, version: str | None, sizes=None):
    flags = _plan_forward, bias is not None
    plan, run = _planned(dialect, "recurrent", x, weight, mode, version, *flags)
    first = [state for state in (h, c) if state is not None]
    states = empty((len(first), plan.steps + 1, *h.shape), x.dtype, x)
    for k, state in enumerate(first):
        pointwise(dialect, TABLE["copy"], state, dtype=x.dtype, out=states[k, 0])
    held = 4 * plan.h if plan.parts > 1 else 0
    gates = (empty if sizes is None else zeros)((*x.shape[:2], held), x.dtype, x)
    if x.size:
        given = gates if held else plan.none.reshape(1, 1, 1)
        run(contiguous(x), weight, bias, plan.sizes(sizes), states, given)
    return states, gates


_forward_of_few = remembered(5)(_forward)


def _plan_backward(plan: _Plan):
    kernels, name = plan.kernels, "recurrent_backward"
    flags = (plan.acc_t, plan.mode)
    if plan.version == "sequence":
        run = plan.launch(name, kernels.sequence_backward(*flags, plan.rows, plan.padded))

        def sequence(g, weight, sizes, states, gates, dh, dc, dx, dr):
            run(g, contiguous(weight), sizes, states, gates, dh, dc, dx, dr)

        return sequence
    step = plan.launch(name, kernels.cell_backward(*flags))

    def cell(g, weight, sizes, states, gates, past, dc, dx, dr):
        product = empty(past.shape, past.dtype, past)
        for part in (past, dc, product):
            pointwise(plan.dialect, TABLE["copy"], 0, dtype=part.dtype, out=part)
        for t in reversed(range(plan.steps)):
            step(g, product, sizes, states, gates, past, dc, dx, dr, t + 1)
            product = plan.product(dr[t] if plan.mode == "gru" else dx[t], weight)
        step(g, product, sizes, states, gates, past, dc, dx, dr, 0)

    return cell


def recurrent_backward(
    dialect: Dialect, g, weight, states, gates, mode: str, sizes=None, version: str | None = None
):
    """Gradients of recurrent, for g like its result `states`: with respect to x, to h @ weight.T +
    bias of all steps (the same array for all modes but "gru"), and to the first states (1 or 2, B,
    H). The same errors."""
    name = "recurrent_backward"
    width = _check(name, mode, version, BACKWARD, weight, g, states, gates)
    steps, batch = gates.shape[:2]
    shape = (2 if mode == "lstm" else 1, steps + 1, batch, width)
    if g.shape != shape or states.shape != shape:
        raise ValueError(
            f"{name}: expected g and states of shape {shape}, got {g.shape} and {states.shape}"
        )
    _check_sizes(name, sizes, steps, batch)
    if sizes is None and steps <= FEW_STEPS and not on_gpu(g):
        dx, *others = _backward_of_few(dialect, g, weight, states, gates, mode, version)
    else:
        dx, *others = _backward(dialect, g, weight, states, gates, mode, version, sizes)
    return dx, (others[0] if mode == "gru" else dx), others[-1]


def _backward(dialect: Dialect, g, weight, states, gates, mode: str, version, sizes=None):
    """What `recurrent_backward` returns, without the second result where it is the first."""
    name, (steps, batch), width = "recurrent_backward", gates.shape[:2], weight.shape[1]
    dx = empty((steps, batch, GATES[mode] * width), g.dtype, g)
    plan, run = _planned(dialect, name, dx, weight, mode, version, _plan_backward)
    dr = empty(dx.shape, g.dtype, g) if mode == "gru" else dx
    first = empty((len(g), batch, width), g.dtype, g)
    results = (dx, dr, first) if mode == "gru" else (dx, first)
    if not dx.size:
        first[...] = g.sum(1)
        return results
    given = contiguous(gates) if gates.size else plan.none.reshape(1, 1, 1)
    other = dr if mode == "gru" else plan.none.reshape(1, 1, 1)
    arrays = contiguous(g), weight, plan.sizes(sizes), contiguous(states), given
    run(*arrays, first[0], first[-1], dx, other)
    return results


_backward_of_few = remembered(4)(_backward)


def _cost(x, weight, bias, h, c, mode, *_, **__):
    held = 4 * h.shape[1] if GATES[mode] > 1 else 0
    shape = (2 if mode == "lstm" else 1, x.shape[0] + 1, *h.shape)
    specs = [(shape, x.dtype), ((*x.shape[:2], held), x.dtype)]
    return specs, x.size * (2 * h.shape[1] + 6)


def _cost_backward(g, weight, states, gates, mode, *_, **__):
    (steps, batch), (rows, width) = gates.shape[:2], weight.shape
    gates_of = ((steps, batch, rows), g.dtype)
    first = ((len(g), batch, width), g.dtype)
    flops = steps * batch * rows * (2 * width + 8)
    return [gates_of, gates_of, first], flops


def _problem(version: str):
    return (floats(3, 5, 80), floats(80, 20), floats(80), *floats(2, 5, 20), "lstm"), {}


def _problem_backward(version: str):
    args, _ = _problem(version)
    states, gates = kernels.recurrent(*args, backend="numpy")
    return (floats(*states.shape), args[1], states, gates, "lstm"), {}


def _cases(rng, versions):
    steps, batch, h = 4, 7, 37
    for mode, parts in GATES.items():
        x, weight = normal(rng, (steps, batch, parts * h)), 0.2 * normal(rng, (parts * h, h))
        weight, bias = weight.astype(np.float32), normal(rng, parts * h)
        first = (normal(rng, (batch, h)), normal(rng, (batch, h)) if mode == "lstm" else None)
        sizes = None if mode == "relu" else np.array([7, 7, 3, 1])
        args = x, weight, bias, *first, mode, sizes
        for version in VERSIONS:
            yield "recurrent", args, {"version": version}, 40
        states, gates = kernels.recurrent(*args, backend="numpy")
        given = normal(rng, states.shape), weight, states, gates, mode, sizes
        for version in BACKWARD:
            yield "recurrent_backward", given, {"version": version}, 100
    yield "recurrent", (x, weight, None, *first, mode, sizes), {}, 40


def _compiled(versions):
    steps, batch, h = 3, 5, 40
    for mode, parts in GATES.items():
        x, weight, bias = ones(steps, batch, parts * h), ones(parts * h, h), ones(parts * h)
        c = ones(batch, h) if mode == "lstm" else None
        for version in versions("recurrent"):
            yield "recurrent", (x, weight, bias, ones(batch, h), c, mode), {"version": version}
        states = ones(2 if c is not None else 1, steps + 1, batch, h)
        gates = ones(steps, batch, 4 * h if parts > 1 else 0)
        for version in versions("recurrent_backward"):
            given = states, weight, states, gates, mode
            yield "recurrent_backward", given, {"version": version}


FAMILY = Family(
    "recurrent",
    (
        Operation(recurrent, _cost, _problem, VERSIONS, matrix=True),
        Operation(recurrent_backward, _cost_backward, _problem_backward, BACKWARD, matrix=True),
    ),
    _cases,
    _compiled,
)
