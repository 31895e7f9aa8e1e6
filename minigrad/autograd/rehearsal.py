"""The backward pass of what has been recorded so far, without its launches: they only compile.

`kernels.support.ahead` runs it in a child process while this one compiles what comes first.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.support import ahead, launches
from minigrad.autograd import engine
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Node, Packed, next_number
from minigrad.backends.current import Found
from minigrad.tensor import wrap

_rehearsed = 0  # nodes with smaller numbers are no news


class _Collects(dispatch.Trace):
    """A trace that takes all launches over, and notes what they launch."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[tuple] = []

    def takes(self, family: str, version: str, kernel, grid, block, args: tuple) -> bool:
        return self.note(kernel, grid, block, 0, args)

    def note(self, kernel: Any, grid, block, shared_bytes: int, args: tuple) -> bool:
        self.launches.append((kernel, grid, block, shared_bytes, args))
        return True

    def contiguous(self, a: Any) -> Any:
        return np.empty(a.shape, a.dtype)


def _has_more() -> bool:
    """Whether operations have been recorded since the last call, on arrays of the CPU."""
    global _rehearsed
    last, _rehearsed = _rehearsed, next_number()
    recorder = dispatch.tracer is not None and type(dispatch.tracer) is not dispatch.Trace
    return _rehearsed - last > 1 and not recorder and Found.cupy is None


def _rehearse() -> None:
    """Compile what a backward pass through all that is alive of the graph would launch, the last
    launches first: the program begins with the others."""
    nodes = {one for one in gc.get_objects() if issubclass(type(one), Node) and _is_ours(one)}
    gc.freeze()  # the program's garbage, with what it does at its end, is the program's
    mode.enabled, mode.saved_hooks = False, ()
    trace = _Collects()
    launches.watch(trace.note)
    with dispatch.tracing(trace):
        _run_backward(nodes)
    for kernel, grid, block, shared_bytes, args in reversed(trace.launches):
        with contextlib.suppress(Exception):  # `Busy`; errors come where the launch is wanted
            kernel.bind(grid, block, *args, shared_bytes=shared_bytes)


def _is_ours(node: Node) -> bool:
    """Whether a node can run, and calls none of the program's functions."""
    if node.opaque or node.saved is None:
        return False
    return not any(type(saved) is Packed for saved in node.saved)


def _run_backward(nodes: set) -> None:
    """A backward pass without hooks through these nodes, from those whose results none uses."""
    work = engine.Pass(keep=True, create_graph=False)
    work.needed = nodes
    for node in sorted(nodes, key=lambda node: -node.number):
        grads = work.pending.get(node) or [wrap(np.empty(*out)) for out in node.outs]
        with contextlib.suppress(Exception):
            work.add(zip(node.edges, node.backward(grads)))


ahead.rehearse, ahead.has_more = _rehearse, _has_more
