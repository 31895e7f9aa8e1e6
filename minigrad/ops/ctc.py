"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import math
from typing import Any

from kernels import dispatch
from minigrad.autograd.engine import grad
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Op
from minigrad.ops import repeated
from minigrad.ops.combine import pad_constant
from minigrad.ops.pointwise import POINTWISE
from minigrad.tensor import Tensor, functions, wrap

LOG_ADD, CTC_STEP = POINTWISE["logaddexp"], POINTWISE["ctc_step"]
IMPOSSIBLE = -1e30  # the logarithm of a probability of zero, in the recursion


class Ctc(Op):
    """Losses (N,) of log_probs (T, N, C) that spell targets (N, S), and the logarithms of the
    probabilities of all prefixes. times, lengths: (N,), of each sequence."""

    saves_outputs = (0, 1)
    grad_name = "CtcLossBackward0"

    @staticmethod
    def forward(
        log_probs: Any, targets: Any, times: Any, lengths: Any, blank: int, zero_infinity: bool
    ) -> Any:
        return dispatch.active.ctc(log_probs, targets, times, lengths, blank)

    @staticmethod
    def vjp(ctx: Any, g: Tensor, blank: int, zero_infinity: bool) -> tuple:
        options: dict[str, Any] = dict(blank=blank, zero_infinity=zero_infinity)
        x, targets, times, lengths, losses, prefixes = ctx.tensors()
        if mode.enabled:
            losses = _by_operations(x, targets, times, lengths, **options)
            (found,) = grad(losses, [x], g.to(losses.dtype), create_graph=True)
        else:
            given = g.to(losses.dtype), x, targets, times, lengths, losses, prefixes
            found = wrap(repeated.run("ctc_backward", *[t._array for t in given], **options))
        return found, None, None, None


def ctc(
    log_probs: Tensor,
    targets: Tensor,
    times: Tensor,
    lengths: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The losses (N,) as `functional.ctc_loss` has them, of numbers that were checked."""
    given = log_probs, targets, times, lengths
    if mode.observer is not None:
        return _by_operations(*given, blank, zero_infinity)
    losses = Ctc.apply(*given, blank=blank, zero_infinity=zero_infinity)[0]
    if zero_infinity:
        losses = losses.masked_fill(losses.detach() == math.inf, 0)
    return losses.to(log_probs.dtype)


def _by_operations(
    log_probs: Tensor,
    targets: Tensor,
    times: Tensor,
    lengths: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The same by a recursion of operations that have gradients of any order."""
    steps, batch, _ = log_probs.shape
    longest, where = targets.shape[1], {"device": log_probs.device}
    used = functions.arange(longest, **where) < lengths.unsqueeze(1)
    labels = functions.where(used, targets, blank)
    blanks = functions.full_like(labels, blank)
    symbols = functions.stack([blanks, labels], 2).reshape(batch, 2 * longest)
    symbols = functions.cat([symbols, symbols.new_full((batch, 1), blank)], 1)
    emitted = log_probs.transpose(0, 1).gather(2, symbols.unsqueeze(1).expand(-1, steps, -1))
    total = _spelled(emitted, symbols, times, blank)
    ends = lengths * 2
    last = total.gather(1, ends.unsqueeze(1)).squeeze(1)
    before = total.gather(1, (ends - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    before = functions.where(ends > 0, before, IMPOSSIBLE)
    losses = -LOG_ADD(last, before)
    none = times == 0
    losses = functions.where(none, functions.where(ends > 0, -IMPOSSIBLE, 0.0), losses)
    # torch's gradient holds for log_probs that are normalised: it has that of their mass added.
    running = functions.arange(steps, **where).unsqueeze(1) < times
    mass = (log_probs.exp() * running.unsqueeze(2)).sum((0, 2))
    losses = losses + (mass - mass.detach())
    impossible = losses > -IMPOSSIBLE / 10
    if zero_infinity:
        return functions.where(impossible, 0.0, losses)
    # as a factor, for the gradient is not to be finite either
    return losses * functions.ones_like(losses).masked_fill(impossible, math.inf)


def _spelled(emitted: Tensor, labels: Tensor, times: Tensor, blank: int) -> Tensor:
    """For each prefix of the labels (N, L), the logarithm of the probability that it is spelled
    after the time of its sequence; emitted (N, T, L)."""
    batch, steps, count = emitted.shape
    impossible = emitted.new_full((batch, count), IMPOSSIBLE)
    first = functions.arange(count, device=emitted.device) < 2
    emissions = emitted.unbind(1)
    total = functions.where(first, emissions[0], impossible)
    skips = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    toll = impossible.new_zeros(skips.shape).masked_fill(~skips, IMPOSSIBLE)
    toll = pad_constant(toll, (2, 0), IMPOSSIBLE)[:, :count]  # of a step over a label
    for t in range(1, steps):
        before = pad_constant(total, (2, 0), IMPOSSIBLE)
        step = CTC_STEP(total, before[:, 1:-1], before[:, :-2], toll, emissions[t])
        total = functions.where((times > t).unsqueeze(1), step, total)
    return total
