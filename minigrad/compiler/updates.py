"""Steps of optimisers: their updates are recorded as other operations are, with late numbers for
options and step counts, on the flat arrays of their arenas."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from kernels import dispatch
from minigrad.autograd.mode import mode, no_grad
from minigrad.compiler.graph import GIVEN, TEMPORARY, Call
from minigrad.compiler.late import Late, Numbers, value_now
from minigrad.compiler.places import assign, place_of
from minigrad.ops.sparse_tensor import SparseTensor
from minigrad.optim.arena import Run
from minigrad.optim.optimizer import Optimizer
from minigrad.optim.per_parameter import NUMBERS, PerParameter


class Updates:
    """The steps of optimisers in a recording.

    rebound: whether one moved memory (its first step does): the next step is to be recorded
        instead. updated: ids of the version counters that they increment. after: what a replay
        does at its end, to count the steps.
    """

    def __init__(self) -> None:
        self.rebound = self.inside = False
        self.updated: set[int] = set()
        self.after: list[Callable[[], None]] = []
        self._scalars: dict[int, _Scalar] = {}  # by the id of the tensor
        self._counts: dict[tuple[int, int], int] = {}  # updates so far, by the place of the count

    def step(self, recorder: Any, optimizer: Any, step: Callable, args: tuple, kwargs: dict) -> Any:
        """Run and record one step."""
        name = f"{type(optimizer).__name__}.step"
        flat = step is inspect.unwrap(Optimizer.step)
        if not flat and step is not inspect.unwrap(PerParameter.step):
            why = getattr(optimizer, "_not_recorded", "whose step is not one of minigrad's")
            recorder.stop(f"{name}, {why}")
        if any(args) or any(kwargs.values()):
            recorder.stop(f"{name} with a closure")
        if optimizer._has_step_hooks():
            recorder.stop(f"{name} with hooks")
        if any(isinstance(p._grad, SparseTensor) for p in _given(optimizer)):
            recorder.stop(f"{name} with sparse gradients")
        if (
            not flat
            and recorder.reason is None
            and not self.rebound  # the step before has made state that is not traced
            and all(map(optimizer.state.get, _given(optimizer)))
        ):
            return self._one_by_one(recorder, optimizer, step)
        with recorder.unlifted(optimizer), no_grad():
            self.rebound |= not flat  # it makes its state
            if recorder.reason is not None or not flat:
                return step(optimizer, *args, **kwargs)
            _depends_on(recorder, optimizer)
            for group, run in optimizer._runs():
                with run:
                    if not run.param.size:
                        continue
                    self._gather(recorder, run)
                    with self._recording(recorder):
                        self._update(recorder.numbers, optimizer, group, run)
            for tensor, array, _ in recorder.lifted.values():
                if tensor._array is not array and type(tensor._array) is type(array):
                    self.rebound = True  # the arena has just taken the parameters
        return None

    @contextmanager
    def _recording(self, recorder: Any) -> Iterator[None]:
        """Record operations on the arrays of the arena."""
        dialect = dispatch.active
        mode.recorder, dispatch.active = recorder, recorder.stand_in
        self.inside = True
        try:
            yield
        finally:
            self.inside = False
            mode.recorder, dispatch.active = None, dialect

    def _update(self, numbers: Numbers, optimizer: Any, group: dict, run: Run) -> None:
        """Update a run of parameters, with late numbers."""
        count = run.step
        if count:
            place = run.place_of_count()
            more = self._counts[place] = self._counts.get(place, 0) + 1
            run.step = numbers.late(lambda: run.count() + more)  # type: ignore[assignment]
            run.step.value = count  # type: ignore[attr-defined]
        try:
            optimizer._update(numbers.options(group), run)
        finally:
            run.step = count

        def counted() -> None:
            optimizer._opt_called = True
            run.updated_again()

        self.after.append(counted)

    def _one_by_one(self, recorder: Any, optimizer: Any, step: Callable) -> Any:
        """Record the step of an optimiser that updates each parameter by itself, with late numbers
        for its options and for the state that Python computes with."""
        _depends_on(recorder, optimizer)
        if not self._scalars:
            self.after.append(self._keep_scalars)
        groups, state = optimizer.param_groups, optimizer.state
        optimizer.param_groups = [recorder.numbers.options(group) for group in groups]
        optimizer.state = {
            param: {
                name: self._scalar(recorder, tensor) if name in NUMBERS else tensor
                for name, tensor in state[param].items()
            }
            for param in _given(optimizer)
        }
        try:
            return step(optimizer)
        finally:
            optimizer.param_groups, optimizer.state = groups, state
            for scalar in self._scalars.values():
                recorder.lifted[id(scalar.tensor)][1][...] = value_now(scalar.now)
            self.after.append(partial(setattr, optimizer, "_opt_called", True))

    def _scalar(self, recorder: Any, tensor: Any) -> _Scalar:
        known = self._scalars.get(id(tensor))
        if known is None:
            value = recorder.lifted[id(tensor)][1].item()
            now = Late(recorder.numbers, lambda: tensor._array.item(), value)
            known = self._scalars[id(tensor)] = _Scalar(tensor, now)
        return known

    def _keep_scalars(self) -> None:
        """What a replay does at its end: all new values follow from the old ones."""
        new = [(scalar.tensor, scalar.now.again()) for scalar in self._scalars.values()]
        for tensor, value in new:
            tensor._array[...] = value

    def _gather(self, recorder: Any, run: Run) -> None:
        """Before each update, the gradients go to where the update reads them."""
        if run.fresh or not run.at_home:
            self.rebound = True
            return
        memory, placed = recorder.memory, recorder.placed
        for place, (param, grad) in zip(run.gradient_views(), run.gradients(), strict=True):
            self.updated.add(id(param._counter))
            buffer, there = memory.find(grad), place_of(grad) == place_of(place)
            if there and buffer in placed:
                recorder.stop_quietly("a gradient that two optimisers read")
            elif buffer is None or buffer.kind != TEMPORARY or buffer in placed:
                _copied(recorder, place, grad)
            elif there:
                placed[buffer] = buffer.owner
            elif grad.flags.c_contiguous and grad.nbytes == buffer.stop - buffer.start:
                placed[buffer] = place
            else:
                _copied(recorder, place, grad)


class _Scalar:
    """A number in the state of an optimiser, for which Python reads and writes a tensor."""

    def __init__(self, tensor: Any, now: Any) -> None:
        self.tensor, self.now = tensor, now

    def item(self) -> Any:
        return self.now

    def __iadd__(self, other: Any) -> _Scalar:
        self.now = self._rounded(self.now + self._rounded(other))
        return self

    def __imul__(self, other: Any) -> _Scalar:
        self.now = self._rounded(self.now * self._rounded(other))
        return self

    def fill_(self, value: Any) -> _Scalar:
        self.now = self._rounded(value if type(value) is Late else self.now * 0 + value)
        return self

    def _rounded(self, value: Any) -> Any:
        """A number in the dtype of the tensor, which computes in that and keeps it."""
        dtype = self.tensor._array.dtype.type
        if type(value) is not Late:
            return dtype(value).item()
        now = dtype(value.value).item()
        return Late(value.numbers, lambda: dtype(value.again()).item(), now)


def _given(optimizer: Any) -> list[Any]:
    """The parameters that have a gradient."""
    groups = optimizer.param_groups
    return [p for group in groups for p in group["params"] if p.grad is not None]


def _depends_on(recorder: Any, optimizer: Any) -> None:
    """Groups and state that a loaded checkpoint would replace, and hooks."""
    groups, state = list(optimizer.param_groups), optimizer.state

    def same() -> bool:
        now = optimizer.param_groups
        return (
            optimizer.state is state
            and len(now) == len(groups)
            and all(a is b for a, b in zip(now, groups, strict=True))
            and not optimizer._has_step_hooks()
        )

    recorder.numbers.conditions.append((same, True))


def _copied(recorder: Any, place: np.ndarray, grad: np.ndarray) -> None:
    if place_of(grad) != place_of(place):
        recorder.memory.add(place, GIVEN)
        recorder.calls.append(Call("copy", assign, (place, grad), writes=(place,)))
