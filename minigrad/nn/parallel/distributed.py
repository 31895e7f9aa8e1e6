"""Data parallel training: every rank has the network, and a part of each batch.

Gradients are averaged in buckets, in the order in which backward completes them, so that the ranks
communicate while the rest of backward still runs (Li et al., "PyTorch Distributed: Experiences on
Accelerating Data Parallel Training", VLDB 2020).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import minigrad
from minigrad import distributed as dist
from minigrad.autograd import engine
from minigrad.autograd.mode import mode
from minigrad.backends import array_module
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor, wrap

FIRST_BUCKET = 1 << 20  # bytes: the first is small, so that communication begins early
BUCKET_MB = 25.0


class GradBucket:
    """Some parameters' gradients in one flat tensor; what a communication hook gets."""

    def __init__(self, index: int, parameters: list[Parameter], is_last: bool) -> None:
        self._index, self._parameters, self._is_last = index, parameters, is_last
        first = parameters[0]._array
        size = sum(p.numel() for p in parameters)
        self._buffer = wrap(array_module(first).zeros(size, first.dtype))
        self.waiting: set[int] = set()
        self.result: Any = None
        self.places: dict[int, slice] = {}
        end = 0
        for parameter in parameters:
            self.places[id(parameter)] = slice(end, end + parameter.numel())
            end += parameter.numel()

    def index(self) -> int:
        """The number of the bucket: 0 is complete first."""
        return self._index

    def buffer(self) -> Tensor:
        """This rank's gradients, flat."""
        return self._buffer

    def parameters(self) -> list[Parameter]:
        return list(self._parameters)

    def gradients(self) -> list[Tensor]:
        """Views of `buffer()` with the parameters' shapes."""
        return [self._buffer[self.places[id(p)]].view(p.shape) for p in self._parameters]

    def is_last(self) -> bool:
        return self._is_last


class _Average:
    """The default communication: the mean over the ranks."""

    def __init__(self, group: Any, bucket: GradBucket) -> None:
        self._buffer = bucket.buffer()
        self._work = dist.all_reduce(self._buffer, dist.ReduceOp.AVG, group, async_op=True)

    def wait(self) -> Tensor:
        self._work.wait()
        return self._buffer


class _Reducer:
    """Observes backward passes for one network; see `engine.Observer`."""

    def __init__(
        self,
        buckets: list[GradBucket],
        names: dict[int, str],
        unused: bool,
        hook: Callable[[GradBucket], Any],
    ) -> None:
        self.buckets, self.names, self.unused, self.hook = buckets, names, unused, hook
        self.bucket_of = {id(p): bucket for bucket in buckets for p in bucket.parameters()}
        self.leaves: set[int] = set()
        self.following = 0  # the bucket that is communicated next: all ranks keep one order

    def arm(self) -> None:
        """The next backward pass is to be averaged."""
        self.leaves = set(self.bucket_of)

    def begin(self) -> None:
        self.following = 0
        for bucket in self.buckets:
            bucket.waiting, bucket.result = set(bucket.places), None

    def ready(self, leaf: Tensor, grad: Tensor) -> None:
        bucket = self.bucket_of[id(leaf)]
        total = grad if leaf._grad is None else leaf._grad + grad  # what no_sync has kept
        bucket.buffer()._array[bucket.places[id(leaf)]] = total._array.reshape(-1)
        bucket.waiting.discard(id(leaf))
        self._send()

    def _send(self) -> None:
        while self.following < len(self.buckets) and not self.buckets[self.following].waiting:
            bucket = self.buckets[self.following]
            bucket.result = self.hook(bucket)
            self.following += 1

    def end(self) -> None:
        missing = [key for bucket in self.buckets for key in bucket.waiting]
        for key in missing:
            bucket = self.bucket_of[key]
            parameter = next(p for p in bucket.parameters() if id(p) == key)
            kept = 0 if parameter._grad is None else parameter._grad._array.reshape(-1)
            bucket.buffer()._array[bucket.places[key]] = kept
            bucket.waiting.discard(key)
        self._send()
        for bucket in self.buckets:
            averaged = bucket.result.wait()._array
            for parameter in bucket.parameters():
                part = averaged[bucket.places[id(parameter)]].reshape(parameter.shape)
                if parameter._grad is None:
                    parameter._grad = wrap(part.copy())
                else:
                    parameter._grad._array[...] = part
        self.leaves = set()
        if missing and not self.unused:
            names = ", ".join(self.names[key] for key in missing[:5])
            raise RuntimeError(
                "Expected to have finished reduction in this backward pass: parameters that did "
                f"not contribute to the loss: {names}{', ...' if len(missing) > 5 else ''}. Pass "
                "find_unused_parameters=True to DistributedDataParallel, or use all of them"
            )

    def fail(self) -> None:
        self.leaves = set()


class DistributedDataParallel(Module):
    """`module` with the same parameters on every rank, and gradients averaged over the ranks.

    broadcast_buffers: rank 0's buffers (running means of batch norm) go to all before each forward.
    bucket_cap_mb: the size of a bucket, by default 25 (the first has 1 MB).
    find_unused_parameters: parameters that a loss does not depend on count as zero; without it they
        are an error.

    Parameters and buffers become those of rank 0. Raises ValueError before `init_process_group`,
    DistBackendError if the ranks' networks have other shapes.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        self.module, self.process_group = module, process_group
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        if init_sync:
            with minigrad.no_grad():
                for tensor in (*module.parameters(), *module.buffers()):
                    dist.broadcast(tensor, self._first, process_group)
        cap = BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb
        names = {id(p): name for name, p in trained}
        buckets = _buckets([p for _, p in reversed(trained)], int(cap * (1 << 20)))
        average = functools.partial(_Average, process_group)
        self._reducer = _Reducer(buckets, names, find_unused_parameters, average)
        engine.observers.append(self._reducer)
        weakref.finalize(self, engine.observers.remove, self._reducer)

    @property
    def _first(self) -> int:
        return dist.get_process_group_ranks(self.process_group)[0]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if mode.enabled and self.require_backward_grad_sync:
            if self.broadcast_buffers:
                with minigrad.no_grad():
                    for buffer in self.module.buffers():
                        dist.broadcast(buffer, self._first, self.process_group)
            self._reducer.arm()
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of passes inside stay on this rank, and are averaged with those of the next."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        self._reducer.leaves = set()
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Replace the average of a bucket: `hook(state, bucket)` returns something whose `wait()`
        gives the flat tensor of averaged gradients. See `minigrad.distributed.compression`."""
        self._reducer.hook = lambda bucket: hook(state, bucket)


def _buckets(parameters: list[Parameter], cap: int) -> list[GradBucket]:
    """Parameters in the order of backward, in groups of one dtype and at most `cap` bytes."""
    groups: list[list[Parameter]] = []
    room = 0
    for parameter in parameters:
        size = parameter._array.nbytes
        last = groups[-1][0]._array if groups else None
        if last is None or size > room or last.dtype != parameter._array.dtype:
            groups.append([])
            room = min(FIRST_BUCKET, cap) if len(groups) == 1 else cap
        groups[-1].append(parameter)
        room -= size
    count = len(groups)
    return [GradBucket(i, group, i == count - 1) for i, group in enumerate(groups)]
