"""The kernels of recurrent.cu."""

from __future__ import annotations

from kernels.cuda_c.common import Kernel, family

_kernel = family("recurrent.cu")
_MODES = {"tanh": 0, "relu": 1, "gru": 2, "lstm": 3}


def _step(arrays, t):
    """For one step: the arrays, then T, B, H and the step."""
    states = next(a for a in arrays if a.ndim == 4)
    steps, batch, h = states.shape[1:]
    return *arrays, steps - 1, batch, h, t


def _of_step(*args):
    return _step(args[:-1], args[-1])


def _of_gate(x, product, sizes, gates, t):
    return x, product, sizes, gates, x.shape[1], gates.shape[2] // 4, t


def _of_sequence(x, weight, bias, sizes, states, gates):
    return x, weight, bias, sizes, states, gates, x.shape[0], *states.shape[2:]


def _of_sequence_backward(g, weight, *others):
    steps, batch, h = g.shape[1:]
    return g, weight, *others, steps - 1, batch, h


def gate(acc_t: str, mode: str, part: int) -> Kernel:
    """kernel(x, product, sizes, gates, t)."""
    return _kernel("gate", (0,), (acc_t, _MODES[mode], part), _of_gate)


def update(acc_t: str, mode: str) -> Kernel:
    """kernel(sizes, states, gates, t)."""
    return _kernel("update", (1,), (acc_t, _MODES[mode]), _of_step)


def cell(acc_t: str, mode: str) -> Kernel:
    """kernel(x, product, sizes, states, gates, t)."""
    return _kernel("cell", (0,), (acc_t, _MODES[mode]), _of_step)


def sequence(acc_t: str, mode: str, rows: int, width: int, has_bias: bool) -> Kernel:
    """kernel(x, weight, bias, sizes, states, gates): `rows` sequences per block, `width`
    threads."""
    constants = (acc_t, _MODES[mode], rows, width, has_bias)
    return _kernel("sequence", (0,), constants, _of_sequence)


def cell_backward(acc_t: str, mode: str) -> Kernel:
    """kernel(g, product, sizes, states, gates, past, dc, dx, dr, t)."""
    return _kernel("cell_backward", (0,), (acc_t, _MODES[mode]), _of_step)


def sequence_backward(acc_t: str, mode: str, rows: int, width: int) -> Kernel:
    """kernel(g, weight, sizes, states, gates, dh, dc, dx, dr): as `sequence`."""
    constants = (acc_t, _MODES[mode], rows, width)
    return _kernel("sequence_backward", (0,), constants, _of_sequence_backward)
