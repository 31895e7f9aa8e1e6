"""Recurrent layers over a sequence, fused; recorded gradients are composed of plain operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import dispatch
from minigrad.autograd.engine import grad
from minigrad.autograd.mode import mode as grad_mode
from minigrad.autograd.node import Op
from minigrad.ops.combine import cat, stack
from minigrad.ops.matmul import linear
from minigrad.tensor import Tensor, wrap


class Recurrent(Op):
    """All states of one direction of a layer: (states, saved gates)."""

    saves_outputs = (0, 1)
    first_only = True
    grad_name = "CudnnRnnBackward0"

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any, h: Any, c: Any, mode: str, sizes: Any) -> Any:
        return dispatch.active.recurrent(x, weight, bias, h, c, mode, sizes)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, mode: str, sizes: Any) -> tuple:
        *inputs, states, gates = ctx.tensors()
        if grad_mode.enabled:
            return _recorded_gradients(ctx, g, inputs, mode, sizes)
        weight, states = inputs[1]._array, states._array
        dx, dr, first = dispatch.active.recurrent_backward(
            g._array, weight, states, gates._array, mode, sizes
        )
        need, rows = ctx.needs, dr.reshape(-1, weight.shape[0])
        before = states[0, :-1].reshape(-1, weight.shape[1])
        return (
            wrap(dx) if need[0] else None,
            wrap(dispatch.active.matmul(rows.T, before)) if need[1] else None,
            wrap(dispatch.active.reduce("sum", rows, 0)) if need[2] else None,
            wrap(first[0]) if need[3] else None,
            wrap(first[1]) if need[4] else None,
        )


def _recorded_gradients(ctx: Any, g: Tensor, inputs: list, mode: str, sizes: Any) -> tuple:
    """The gradients as tensors that can be differentiated again."""
    wanted = [x for x, need in zip(inputs, ctx.needs) if need]
    found = iter(grad(unrolled(*inputs, mode, sizes), wanted, g, create_graph=True))
    return tuple([next(found) if need else None for need in ctx.needs])


def recurrent(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    h: Tensor,
    c: Tensor | None,
    mode: str,
    sizes: np.ndarray | None = None,
) -> Tensor:
    """The states (1, T + 1, B, H) of one direction of a recurrent layer, the first one `h`; for
    mode "lstm" (2, T + 1, B, H) with those of the cell, the first one `c`.

    x (T, B, gates * H): the part of the gates that depends on the input. weight (gates * H, H) and
    bias (gates * H,) or None: the other part. mode: "tanh", "relu", "gru" (gates r, z, n) or "lstm"
    (i, f, g, o). sizes: per step how many sequences, the first ones, have it; the others keep their
    state.
    """
    if grad_mode.autocast is None:
        for state in (h,) if c is None else (h, c):
            if state.dtype != x.dtype:
                own, other = (t.dtype.legacy_name.removesuffix("Tensor") for t in (state, x))
                raise RuntimeError(
                    f"mat1 and mat2 must have the same dtype, but got {own} and {other}"
                )
    else:  # the gates come from a product in 16 bits
        kept = x if mode in ("tanh", "relu") else h if c is None else c  # as operations have it
        given = (x, weight, bias, h, c)
        x, weight, bias, h, c = (t if t is None else t.to(kept.dtype) for t in given)  # type: ignore
    if grad_mode.observer is not None:
        return unrolled(x, weight, bias, h, c, mode, sizes)  # type: ignore[return-value]
    return Recurrent.apply(x, weight, bias, h, c, mode=mode, sizes=sizes)


def unrolled(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    h: Tensor,
    c: Tensor | None,
    mode: str,
    sizes: np.ndarray | None = None,
    projection: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """`recurrent` in plain operations, a few per step. With a projection (P, H) of the state of
    "lstm" weight is (4 * H, P) and h (B, P): the states of h and those of c, apart."""
    if projection is not None and grad_mode.autocast is not None:
        h = h.to(x.dtype)  # as the projections after each step have it
    hidden: list[Tensor] = [h]
    cells: list[Any] = [c]
    for t in range(x._array.shape[0]):
        n = x._array.shape[1] if sizes is None else int(sizes[t])
        h, c = hidden[-1], cells[-1]
        new = _step(
            x[t, :n], linear(h[:n], weight, bias), h[:n], None if c is None else c[:n], mode
        )
        if projection is not None:
            new = (linear(new[0], projection), new[1])
        kept = n < x._array.shape[1]
        hidden.append(cat([new[0], h[n:]]) if kept else new[0])
        if c is not None:
            cells.append(cat([new[1], c[n:]]) if kept else new[1])
    states = stack(hidden)
    if mode != "lstm":
        return states.unsqueeze(0)
    apart = states, stack(cells)
    return apart if projection is not None else stack(apart)


def _step(
    x: Tensor, product: Tensor, h: Tensor, c: Tensor | None, mode: str
) -> tuple[Tensor, Tensor | None]:
    """The next h and c (None but for "lstm")."""
    if mode in ("tanh", "relu"):
        return getattr(x + product, mode)(), None
    if mode == "lstm":
        i, f, g, o = (x + product).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    a, b = x.chunk(3, 1), product.chunk(3, 1)
    r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
    n = (a[2] + r * b[2]).tanh()
    return n + z * (h - n), None
