"""The rest of a call, and the backward pass of what was recorded: their launches only compile.

`kernels.support.ahead` forks a child for it where a kernel must be compiled. The child goes on in
the place of the program, with arrays that nobody computes, up to where the program's own code would
run: a whole step in `minigrad.fit`, a whole network that has only modules of this package, or one
operation. Then it compiles what would have been launched, and what the gradients would launch.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.support import ahead, launches
from minigrad.autograd import engine
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Node, Packed, next_number
from minigrad.backends.current import Found
from minigrad.tensor import wrap

#: Modules that compute: what they call is run in a child.
_PACKAGES = {
    "kernels": set(
        "by_device dispatch families launchers numba_cuda operations pointwise reduction sequence"
        " simt support".split()
    ),
    "minigrad": set(
        "_foreign _kernels _meta _names _out _overlap amp autograd backends compiler.arrays"
        " compiler.late compiler.lower compiler.places compiler.record creation devices dtypes fft"
        " func linalg models nn ops optim random signal special tensor training.loop utils.hooks"
        " variates".split()
    ),
}
_LIBRARIES = {*sys.stdlib_module_names, "ml_dtypes", "numpy"}

#: What a program does after a backward pass, by the class of what it does it with: optimisers.
steps: dict[type, Callable[[Any], None]] = {}
#: Traces under which launches run, so that a child goes on with its own.
traces: set[type] = {type(None), dispatch.Trace}
_last, _recorded = 0, False  # whether there are nodes that the last child did not see
_entered = contextlib.ExitStack()  # what is never left


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


def _may_begin() -> bool:
    """Whether operations are on arrays of the CPU, and launches run under the trace that is on."""
    global _last, _recorded
    _recorded, _last = next_number() - _last > 1, next_number()
    return type(dispatch.tracer) in traces and Found.cupy is None


def _begin() -> None:
    """Let this child run the rest of the call that needs a kernel, such as a network's, as far as
    this package's own code goes, without its launches."""
    gc.disable()  # the program's garbage, with what it does at its end, is the program's
    trace, outermost = _Collects(), _outermost(sys._getframe())
    mode.recorder = None  # of a step that is compiled: this is no part of it
    launches.watch(trace.note)
    _entered.enter_context(dispatch.tracing(trace))

    def watch(frame: FrameType, event: str, _: Any) -> None:
        try:
            if (event == "return" and frame is outermost) or (event == "call" and _leaves(frame)):
                sys.setprofile(None)
                _compile(trace)
        except BaseException:  # or the child would go on as the program
            ahead.leave()

    if outermost is None:
        _compile(trace)
    sys.setprofile(watch)


def _outermost(frame: FrameType | None) -> FrameType | None:
    """The last of this package's frames up to which none is the program's."""
    found = None
    while frame is not None and _is_known(frame):
        if _module(frame)[0] in _PACKAGES:
            found = frame
        frame = frame.f_back
    return found


def _module(frame: FrameType) -> list[str]:
    return str(frame.f_globals.get("__name__")).split(".")


def _leaves(frame: FrameType) -> bool:
    """Whether a call is one of what is not known; imports are."""
    caller = frame.f_back
    if caller is None or _module(caller)[0] in ("importlib", "_frozen_importlib"):
        return False
    return not _is_known(frame) and _is_known(caller)


def _is_known(frame: FrameType) -> bool:
    """Whether a frame computes and does nothing else: no files, no network, no program."""
    return _are_known(".".join(_module(frame)), frame.f_code.co_filename)


@functools.cache
def _are_known(module: str, file: str) -> bool:
    """Whether the functions in a file compute and do nothing else. A file of the program's may have
    the name of a module of Python's."""
    package, *rest = module.split(".")
    if package.startswith("namedtuple_"):
        return True
    folder = _folder(package)
    if not file.startswith(("<", folder)) or "site-packages" in file.removeprefix(folder):
        return False
    if package in _PACKAGES:
        return not rest or rest[0] in _PACKAGES[package] or ".".join(rest) in _PACKAGES[package]
    return package in _LIBRARIES


def _folder(package: str) -> str:
    """Where a package is, or Python's library."""
    if package in _PACKAGES or package in _LIBRARIES - sys.stdlib_module_names:
        return os.path.dirname(str(sys.modules[package].__file__)) + os.sep
    return os.path.dirname(os.__file__) + os.sep


def _compile(trace: _Collects) -> None:
    """Compile what the rest of the call and a backward pass through all that is alive of the graph
    would launch, the last launches first: the program begins with the others. If all of these are
    compiled, those that others replace meanwhile."""
    try:
        if not (trace.launches or _recorded or ahead.postponed):
            return
        living = gc.get_objects()
        gc.freeze()
        gc.enable()
        mode.enabled, mode.saved_hooks = False, ()
        nodes = {one for one in living if issubclass(type(one), Node) and _is_ours(one)}
        _run_backward(nodes)
        for kind, step in steps.items():
            for one in [one for one in living if issubclass(type(one), kind)] if nodes else []:
                with _only_known():
                    step(one)
        before = ahead.compiled
        _bind(trace)
        if ahead.compiled == before:
            for launch in ahead.postponed.values():
                launch()
            _bind(trace)
    finally:
        ahead.leave()


def _bind(trace: _Collects) -> None:
    """Compile the kernels of the launches that were noted, the last first."""
    while trace.launches:
        kernel, grid, block, shared_bytes, args = trace.launches.pop()
        with contextlib.suppress(Exception):  # `Busy`; errors come where the launch is wanted
            kernel.bind(grid, block, *args, shared_bytes=shared_bytes)


@contextlib.contextmanager
def _only_known() -> Iterator[None]:
    """End what runs here where it fails, or calls the program's code."""

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _leaves(frame):
            raise InterruptedError

    sys.setprofile(watch)
    with contextlib.suppress(Exception):
        yield
    sys.setprofile(None)


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
        with _only_known():
            work.add(node.edges, node.backward(grads))


ahead.begin, ahead.may_begin = _begin, _may_begin
