"""One flat buffer for the parameters of a group, so that one kernel launch updates them all.

The user has parameters as separate Tensors; for small parameters, one launch each would cost more
than the update itself.  So each parameter gets a *slot* in a flat array, its *home*:

- The first step copies the parameter's values into its slot and makes the Tensor's storage a view
  of it.  From then on nothing is copied: forward and backward read the view, the optimiser updates
  the flat array.  The state of the optimiser (momentum, moments) is flat from the start, and
  ``optimizer.state[p]`` contains views of it.
- Neighbouring slots that need the same update form a *run*; one launch updates a run.  Usually a
  run is all of a group.  A parameter without a gradient, or with another step count, ends a run.
- Every backward pass creates new gradients, so those of a run are gathered: one pass over memory
  that is probably in the cache.  A launch for a single parameter reads its gradient directly.
- A large parameter has an arena of its own, in the memory where it is, and so a run of its own: to
  copy its gradients would take longer than a launch, and as much memory again.

Moving the storage must not be visible.  It would be if something else shares the old memory (``w =
p.detach()`` before the first step, two parameters of one tensor, the arena of another optimiser).
So a parameter is moved only if its array has no other owner; until then it is updated in place by a
launch of its own.  The same check covers ``p.data = other`` and ``module.to(...)``: the parameter
is moved back as soon as nothing shares the new memory.  If something shares the old one (``w =
p.data`` before), it gets another home.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from minigrad.backends import array_module, current
from minigrad.backends.memory import divide
from minigrad.devices import address
from minigrad.tensor import Tensor, wrap

_LARGE = 1 << 19  # bytes of a parameter that has an arena of its own
_ALIGNMENT = 64  # bytes: a cache line; enough for vector loads on a GPU


def _owners(tensor: Tensor) -> int:
    return sys.getrefcount(tensor._array)


def _base_owners(tensor: Tensor) -> int:
    return sys.getrefcount(tensor._array.base)


# The counts for an array that only its tensor refers to. They are measured, because the number of
# references during a call depends on the interpreter.
_SOLE_OWNER = _owners(wrap(np.empty(1)))
_SOLE_BASE_OWNER = _base_owners(wrap(np.empty((1, 1)).reshape(1)))


def start_value(initial: float, complex_: bool) -> complex:
    """What state begins with: both parts of complex numbers begin with `initial`."""
    return complex(initial, initial) if complex_ else initial


def _real(flat: Any) -> Any:
    """`real_parts` of an array."""
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _flat(tensor: Tensor) -> Any:
    """All numbers of a tensor, a view where that is possible."""
    array = tensor._array.reshape(-1)
    if array.dtype.kind == "c":
        array = array_module(array).ascontiguousarray(array)
    return _real(array)


def is_sole_owner(tensor: Tensor) -> bool:
    """Whether only `tensor` refers to its memory (a view of a NumPy array refers to its owner)."""
    array = tensor._array
    base = array.base
    shared_base = base is not None and not isinstance(base, type(array))
    del array
    if shared_base or _owners(tensor) != _SOLE_OWNER:
        return False
    if base is None:
        return True
    chained = base.base is not None
    del base
    return not chained and _base_owners(tensor) == _SOLE_BASE_OWNER


_COUNTER = attrgetter("param._counter")


def _is_large(array: Any) -> bool:
    return array.nbytes >= _LARGE


class Slot:
    """One parameter's place in an arena.

    Attributes:
        start, stop: its elements in the flat arrays.
        home: the view of the arena's values in the parameter's shape.
        settled: whether the parameter has been there.
        gathered: that of the arena's gradients, from the first time that they are gathered.
        state: the Tensors (views of the arena's state) last stored in ``optimizer.state[param]``.
    """

    __slots__ = (
        "arena", "gathered", "home", "index", "param", "settled", "start", "state", "stop",
    )  # fmt: skip

    def __init__(self, arena: Arena, param: Tensor, index: int, start: int) -> None:
        self.arena = arena
        self.param = param
        self.index = index
        self.start = start
        self.stop = start + param._array.size
        self.home = param._array
        if not arena.in_place:
            self.home = arena.values[start : self.stop].reshape(param._array.shape)
        self.settled = arena.in_place
        self.gathered: Any = None
        self.state: dict[str, Tensor] = {}

    def fits(self) -> bool:
        """Whether the parameter still has the shape, dtype and device of the slot."""
        array, home = self.param._array, self.home
        same = array.shape == home.shape and array.dtype == home.dtype
        return same and self.param.device == wrap(home).device

    def is_free(self) -> bool:
        """Whether the parameter, which is not at home, can be moved there."""
        return self.fits() and not (self.settled and self.arena.is_shared(self))

    def settle(self) -> bool:
        """Move the parameter home if nothing shares its memory; whether it is at home."""
        param, home = self.param, self.home
        if param._array is home:
            return True
        if not is_sole_owner(param):
            return False
        with current.of((home,)):
            home[...] = param._array
        param._array = home
        self.settled = True
        return True

    def adopt(self, state: dict[str, Any], names: Sequence[str], initial: float) -> bool:
        """Make ``state[name]`` a view of the arena for every name; True if some were missing.

        Values set from outside (`load_state_dict`, the user) are copied into the arena.
        """
        fresh = False
        for name in names:
            given = state.get(name)
            mine = self.state.get(name)
            if given is mine and mine is not None:
                continue
            fresh = fresh or given is None
            value = start_value(initial, self.home.dtype.kind == "c")
            if given is not None:
                value = given.to(self.param.device)._array
            with current.of((self.home,)):
                view = self.arena.state(name)[self.start : self.stop].reshape(self.home.shape)
                view[...] = value
            state[name] = self.state[name] = wrap(view)
        return fresh

    def adopt_step(self, state: dict[str, Any]) -> None:
        """Make ``state["step"]`` a scalar view of the arena's counters."""
        current = state.get("step")
        if current is not None and current is self.state.get("step"):
            return
        counter = self.arena.steps[self.index : self.index + 1].reshape(())
        counter[...] = 0 if current is None else float(current)
        state["step"] = self.state["step"] = wrap(counter)


class Arena:
    """Flat values, gradients and state of parameters that share a dtype and a device.

    in_place: the values are those of one parameter, where they are.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        first = params[0]._array
        self._xp = array_module(first)
        self._dtype = first.dtype
        self._align = max(_ALIGNMENT // first.dtype.itemsize, 1)
        starts = [0]
        for param in params:
            padded = -(-param._array.size // self._align) * self._align
            starts.append(starts[-1] + padded)
        self._size = starts.pop()
        self._parts = [(a, a + p._array.size) for a, p in zip(starts, params, strict=True)]
        self.in_place = _is_large(first) and first.flags.c_contiguous
        self.values = first.reshape(-1) if self.in_place else self._flat()
        self.grads: Any = None
        self.steps = np.zeros(len(params), np.float32)  # on the host, because the launcher reads it
        divide(self.steps, [(i, i + 1) for i in range(len(params))])
        self._state: dict[str, Any] = {}
        self.slots = [
            Slot(self, param, i, start)
            for i, (param, start) in enumerate(zip(params, starts, strict=True))
        ]
        self._own = self._views()

    def _views(self) -> int:
        return sys.getrefcount(self.values.base)

    def is_shared(self, slot: Slot) -> bool:
        """Whether anything else may refer to memory that the parameter of a slot has left."""
        alone = sys.getrefcount(slot.home) == _SOLE_OWNER
        return self.in_place or not alone or self._views() != self._own

    def _flat(self) -> Any:
        """Zeros, aligned to a cache line. Launches also process the gaps, so these must be zero."""
        raw = self._xp.zeros(self._size + self._align, self._dtype)
        skip = -address(raw) % _ALIGNMENT // self._dtype.itemsize
        divide(raw, [(skip + start, skip + stop) for start, stop in self._parts])
        return raw[skip : skip + self._size]

    def state(self, name: str) -> Any:
        """The flat array of one kind of state, created at first use."""
        if name not in self._state:
            self._state[name] = self._flat()
        return self._state[name]

    def gather(self, slots: Sequence[Slot]) -> Any:
        """The gradients of neighbouring slots as one flat array."""
        if self.grads is None:
            self.grads = self._flat()
        for slot in slots:
            if slot.gathered is None:
                slot.gathered = self.grads[slot.start : slot.stop].reshape(slot.home.shape)
            slot.gathered[...] = slot.param.grad._array
        return self.grads[slots[0].start : slots[-1].stop]


class Run:
    """Neighbouring parameters that one launch updates.

    Attributes:
        param, grad: flat arrays (n,); of complex parameters, the real and imaginary parts (2 n,).
        step: how many updates these parameters have had, this one included.
        fresh: whether their state is new.
    """

    __slots__ = ("_gpu", "_slots", "at_home", "fresh", "grad", "param", "step")

    def __init__(self, slot: Slot, step: int, fresh: bool, at_home: bool) -> None:
        self._slots = [slot]
        self.step = step
        self.fresh = fresh
        self.at_home = at_home

    def takes(self, slot: Slot, step: int, fresh: bool, at_home: bool) -> bool:
        """Add `slot`, of the same arena, if it continues this run."""
        last = self._slots[-1]
        if not (
            at_home
            and self.at_home
            and slot.index == last.index + 1
            and step == self.step
            and fresh == self.fresh
        ):
            return False
        self._slots.append(slot)
        return True

    def gradients(self) -> list[tuple[Tensor, Any]]:
        """The parameters, each with the array of its gradient."""
        grads: list[Any] = [slot.param.grad for slot in self._slots]
        return [(slot.param, grad._array) for slot, grad in zip(self._slots, grads, strict=True)]

    def gradient_views(self) -> list[Any]:
        """Where `grad` has the gradient of each parameter."""
        if len(self._slots) == 1:
            home = self._slots[0].home
            grad = self.grad.view(home.dtype) if home.dtype.kind == "c" else self.grad
            return [grad.reshape(home.shape)]
        grads = self._slots[0].arena.grads
        return [grads[s.start : s.stop].reshape(s.home.shape) for s in self._slots]

    def place_of_count(self) -> tuple[int, int]:
        """Which count of updates is that of this run."""
        return id(self._slots[0].arena), self._slots[0].index

    def count(self) -> int:
        """How many updates these parameters have had so far."""
        return int(self._slots[0].arena.steps[self._slots[0].index])

    def updated_again(self) -> None:
        """Count a further update of the same parameters, which is done."""
        first, last = self._slots[0], self._slots[-1]
        if self.step:
            first.arena.steps[first.index : last.index + 1] += 1
            self.step = self.count()
        for counter in map(_COUNTER, self._slots):
            counter[0] += 1

    def state(self, name: str) -> Any:
        """The flat state array (n,) of this run."""
        first, last = self._slots[0], self._slots[-1]
        return _real(first.arena.state(name)[first.start : last.stop])

    def __enter__(self) -> Run:
        first = self._slots[0]
        self._gpu = current.of((first.param._array,))
        self._gpu.__enter__()
        if self.at_home:
            self.param = _real(first.arena.values[first.start : self._slots[-1].stop])
        else:
            self.param = _flat(first.param)  # a copy if it is not contiguous
        if len(self._slots) == 1:
            self.grad = _flat(first.param.grad)
        else:
            self.grad = _real(first.arena.gather(self._slots))
        return self

    def __exit__(self, failed: type[BaseException] | None, *rest: Any) -> None:
        self._gpu.__exit__(failed, *rest)
        if failed is not None:
            return
        if not self.at_home:
            array = self._slots[0].param._array
            if not array.flags.c_contiguous:
                array[...] = self.param.view(array.dtype).reshape(array.shape)
        for counter in map(_COUNTER, self._slots):
            counter[0] += 1  # autograd must see the in-place change


class Arenas:
    """All slots of an optimiser, created when parameters first have a gradient."""

    def __init__(self) -> None:
        self._slots: dict[Tensor, Slot] = {}

    def _slots_of(self, params: Sequence[Tensor]) -> list[Slot]:
        slots = self._slots
        missing: dict[Any, list[Tensor]] = {}
        for param in params:
            slot, array = slots.get(param), param._array
            if slot is None or (array is not slot.home and not slot.is_free()):
                own = id(param) if _is_large(array) else None
                missing.setdefault((str(array.dtype), str(param.device), own), []).append(param)
        for together in missing.values():
            with current.of((together[0]._array,)):
                slots |= {slot.param: slot for slot in Arena(together).slots}
        return [slots[param] for param in params]

    def runs(
        self,
        params: Sequence[Tensor],
        state: dict[Tensor, dict[str, Any]],
        names: Sequence[str],
        initial: float = 0.0,
        counted: bool = True,
    ) -> Iterator[Run]:
        """The runs that update every parameter of `params` that has a gradient.

        Args:
            state: that of the optimiser; it is moved into the arenas.
            names: the kinds of flat state that the update needs.
            initial: initial value of that state.
            counted: whether the optimiser keeps a step count per parameter.
        """
        runs: list[Run] = []
        last: dict[Arena, Run] = {}
        for slot in self._slots_of([p for p in params if p.grad is not None]):
            step, fresh = 0, False
            if names or counted:
                own = state[slot.param]
                if counted:
                    slot.adopt_step(own)  # first, as in torch
                fresh = slot.adopt(own, names, initial)
                if counted:
                    slot.arena.steps[slot.index] += 1
                    step = int(slot.arena.steps[slot.index])
            at_home = slot.settle()
            run = last.get(slot.arena)
            if run is None or not run.takes(slot, step, fresh, at_home):
                last[slot.arena] = Run(slot, step, fresh, at_home)
                runs.append(last[slot.arena])
        return iter(runs)
