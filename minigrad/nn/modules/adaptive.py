"""Adaptive softmax, for classes of which few are frequent."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import minigrad
from minigrad.nn import functional as F
from minigrad.nn.modules.container import ModuleList, Sequential
from minigrad.nn.modules.linear import Linear
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax over classes in order of their frequency (Grave et al. 2017).

    The head has an output for each class below ``cutoffs[0]``, and one for each cluster of further
    classes, from a cutoff to the next. A cluster's outputs come from fewer features, and only
    for inputs with a target in it.

    Shapes: input (N, in_features), target (N,) -> (output (N,): the targets' log-probabilities,
    loss: the mean of ``-output``); or input (in_features,), target ().

    Args:
        cutoffs: ascending, within 1 to n_classes - 1.
        div_value: cluster i projects to ``in_features / div_value ** (i + 1)`` features.
        head_bias: whether the head has a bias.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        whole = all(int(cutoff) == cutoff for cutoff in cutoffs)
        if not whole or cutoffs != sorted({*cutoffs} & {*range(1, n_classes)}):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **made),
                    Linear(width, stop - start, bias=False, **made),
                )
            )

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for layer in (self.head, *itertools.chain.from_iterable(self.tail)):
            layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> Any:
        _check(input_, target_)
        if target_.ndim == 0:
            output, loss = self(input_[None], target_[None])
            return _ASMoutput(output.squeeze(0), loss)
        least, most = target_.min().item(), target_.max().item()
        if least < 0 or most >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{least}, {most}] were found. "
            )
        places, output = target_, 0
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            inside = (target_ >= start) & (target_ < stop)
            rows = inside.nonzero().squeeze(1)
            if rows.numel():
                local = F.log_softmax(self.tail[i](input_[rows]), 1)
                local = local.gather(1, (target_[rows] - start)[:, None]).squeeze(1)
                output = output + local.new_zeros(len(target_)).index_copy(0, rows, local)
                places = places.masked_fill(inside, self.shortlist_size + i)
        head = F.log_softmax(self.head(input_), 1)
        output = output + head.gather(1, places[:, None]).squeeze(1)
        return _ASMoutput(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, layers in enumerate(self.tail):
            cluster = head[:, self.shortlist_size + i, None]
            parts.append(cluster + F.log_softmax(layers(input), 1))
        return minigrad.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class (N,) of each input."""
        return self.log_prob(input).argmax(1)


def _check(input: Tensor, target: Tensor) -> None:
    if target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and len(input) != len(target):
        raise RuntimeError("Input and target should have the same size in the batch dimension.")
    if input.ndim != target.ndim + 1:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
            f"inputs with size {input.size()}"
        )
