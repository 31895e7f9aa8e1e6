"""Collectives with gradients: `distributed.nn.functional.all_reduce` and others."""

from minigrad._names import namespace
from minigrad.distributed.nn import functional
from minigrad.distributed.nn.functional import all_gather, all_reduce, broadcast, reduce_scatter

__all__ = ["all_gather", "all_reduce", "broadcast", "functional", "reduce_scatter"]

__getattr__, __dir__ = namespace(__name__)
