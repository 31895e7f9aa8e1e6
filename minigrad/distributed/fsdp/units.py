"""Parameters that are whole only while they are needed.

The parameters of a unit (a layer, say) are one flat array, of which each rank keeps a part. The
whole array is gathered before the unit's forward, given back after it, gathered again when a
gradient arrives, and given back when the unit's gradients are complete; these are then added up
over the ranks, and each rank keeps its part of the sum. (ZeRO stages 2 and 3: Rajbhandari et al.,
SC 2020; layer by layer as in Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data
Parallel", VLDB 2023.)

The graph keeps views of the whole parameters between forward and backward. So the memory is not
freed, which would need other views: its pages go back to the system, and the addresses remain.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from minigrad import distributed as dist
from minigrad.autograd import engine
from minigrad.distributed.groups import resolve
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor, wrap

FLAT = "_flat_param"  # the name under which a module has its unit's shard
Place = tuple[Module, str]


class Memory:
    """An array whose pages can be given back to the system while views of it exist.

    After `give_back` it reads as zeros, and takes no memory until it is written again.
    """

    def __init__(self, size: int, dtype: Any) -> None:
        if not hasattr(mmap, "MADV_DONTNEED"):
            raise NotImplementedError("fully_shard: giving memory back needs Linux")
        count = max(size * np.dtype(dtype).itemsize, 1)
        self._map = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.array = np.frombuffer(self._map, np.uint8)[: size * np.dtype(dtype).itemsize]
        self.array = self.array.view(dtype)

    def give_back(self) -> None:
        self._map.madvise(mmap.MADV_DONTNEED)


class Unit:
    """The flat parameters of some modules.

    shard: this rank's part, a Parameter (padded size / ranks,), which optimisers update; the last
    ranks' parts end with zeros where the size is no multiple of the ranks.
    reshard: whether the whole parameters are given back between forward and backward.
    """

    sending: Unit | None = None  # whose gradients are under way: at most one, to save memory
    idle: ClassVar[list[Unit]] = []  # gathered in a backward pass that reaches no parameter of them

    def __init__(
        self, module: Module, parameters: dict[Parameter, list[Place]], group: Any, reshard: bool
    ) -> None:
        self.module, self.group, self.reshard = module, resolve(group), reshard
        first = _same(list(parameters))
        self.size = sum(p.numel() for p in parameters)
        each = -(-self.size // self.group.size)
        self.memory = Memory(each * self.group.size, first._array.dtype)
        self.places = list(parameters.values())
        self.whole: dict[int, tuple[Tensor, slice]] = {}
        end = 0
        for parameter, places in parameters.items():
            part = slice(end, end := end + parameter.numel())
            view = self.memory.array[part].reshape(parameter.shape)
            view[...] = parameter._array
            leaf = wrap(view)
            leaf.requires_grad = first.requires_grad
            self.whole[id(leaf)] = (leaf, part)
            for owner, name in places:
                del owner._parameters[name]
                owner.__dict__[name] = leaf
        self.leaves = set(self.whole)
        self.mine = slice(self.group.rank * each, (self.group.rank + 1) * each)
        shard = wrap(self.memory.array[self.mine].copy())
        self.shard = Parameter(shard, first.requires_grad)
        module.register_parameter(FLAT, self.shard)
        self.is_whole, self.is_summoned = True, False
        self._waiting: set[int] = set()
        self._flat: Any = None
        self._work: Any = None
        self._result: Any = None
        self.release()

    # ---------------------------------------------------------------- parameters

    def gather(self) -> None:
        """Make the parameters whole."""
        if self.is_whole:
            return
        own = np.ascontiguousarray(self.shard._array)
        self.group.all_gather(self.memory.array.reshape(self.group.size, -1), own).wait()
        self.is_whole = True

    def release(self) -> None:
        """Keep this rank's part only."""
        if self.is_whole and not self.is_summoned:
            self.memory.give_back()
            self.is_whole = False

    def before_forward(self, module: Module, args: tuple) -> None:
        self.gather()

    def after_forward(self, module: Module, args: tuple, output: Any) -> None:
        following = [t for t in _tensors(output) if t.requires_grad and t._node is not None]
        for tensor in following:
            tensor.register_hook(self._before_backward)
        if self.reshard or not following:
            self.release()

    def _before_backward(self, grad: Tensor) -> None:
        self.gather()
        if not self._waiting:
            Unit.idle.append(self)

    # ---------------------------------------------------------------- gradients

    def begin(self) -> None:
        self._waiting = set(self.leaves)

    def ready(self, leaf: Tensor, grad: Tensor) -> None:
        if self._flat is None:
            if Unit.sending is not None:
                Unit.sending.finish()
            self._flat = np.zeros(self.memory.array.size, self.memory.array.dtype)
        self._flat[self.whole[id(leaf)][1]] = grad._array.reshape(-1)
        self._waiting.discard(id(leaf))
        if not self._waiting:
            self._send()

    def _send(self) -> None:
        """All gradients are there: each rank gets its part of the mean."""
        self._result = np.empty(self.shard._array.size, self._flat.dtype)
        parts = self._flat.reshape(self.group.size, -1)
        self._work = self.group.reduce_scatter(self._result, parts, "AVG")
        self._flat, Unit.sending = None, self
        self.release()

    def end(self) -> None:
        if self._waiting:  # parameters that the loss does not depend on have zeros
            self._waiting = set()
            if self._flat is None:
                self._flat = np.zeros(self.memory.array.size, self.memory.array.dtype)
            self._send()
        self.finish()
        Unit.release_idle()

    @staticmethod
    def release_idle() -> None:
        """At the end of a pass: nothing else would give the parameters of these back."""
        while Unit.idle:
            Unit.idle.pop().release()

    def finish(self) -> None:
        """Wait for this rank's part of the gradients."""
        if self._work is None:
            return
        self._work.wait()
        grad = self.shard._grad
        if grad is None:
            self.shard._grad = wrap(self._result)
        else:
            grad._array[...] += self._result
        self._work = self._result = None
        if Unit.sending is self:
            Unit.sending = None

    def fail(self) -> None:
        self._waiting, self._flat, self._work, self._result = set(), None, None, None
        Unit.sending = None
        self.release()
        Unit.release_idle()

    # ---------------------------------------------------------------- the module as it was

    def summon(self) -> None:
        """Whole parameters under their own names."""
        self.gather()
        self.is_summoned = True
        del self.module._parameters[FLAT]
        for (leaf, _), places in zip(self.whole.values(), self.places):
            made = Parameter(wrap(leaf._array), self.shard.requires_grad)
            for owner, name in places:
                owner.__dict__.pop(name, None)
                owner._parameters[name] = made

    def dismiss(self, writeback: bool) -> None:
        """The opposite; writeback: what was changed remains."""
        for (leaf, part), places in zip(self.whole.values(), self.places):
            for owner, name in places:
                parameter = owner._parameters.pop(name)
                array = leaf._array if parameter is None else parameter._array
                if array is not leaf._array:
                    self.memory.array[part] = array.reshape(-1)
                owner.__dict__[name] = leaf
        if writeback:
            self.shard._array[...] = self.memory.array[self.mine]
            self.shard._counter[0] += 1
        self.module._parameters[FLAT] = self.shard
        self.is_summoned = False
        self.release()


class _Observer:
    """An `engine.Observer` of a unit's whole parameters, which does not keep the unit alive."""

    def __init__(self, unit: Unit) -> None:
        self.leaves, self._reference = unit.leaves, weakref.ref(unit)

    def _unit(self) -> Unit:
        unit = self._reference()
        assert unit is not None, "a pass has reached the parameters of a unit that is gone"
        return unit

    def begin(self) -> None:
        self._unit().begin()

    def ready(self, leaf: Tensor, grad: Tensor) -> None:
        self._unit().ready(leaf, grad)

    def end(self) -> None:
        self._unit().end()

    def fail(self) -> None:
        self._unit().fail()


def _same(parameters: list[Parameter]) -> Parameter:
    """The first parameter, after a check that all are of its kind."""
    first = parameters[0]
    for other in parameters:
        if not isinstance(other._array, np.ndarray):
            raise NotImplementedError("fully_shard: parameters on a GPU cannot be divided yet")
        if other.dtype != first.dtype:
            raise ValueError(
                f"Must flatten tensors with uniform dtype but got {first.dtype} and {other.dtype}"
            )
        if other.requires_grad != first.requires_grad:
            raise ValueError(
                "Must flatten tensors with uniform `requires_grad`: shard the modules with frozen "
                "parameters by themselves"
            )
    return first


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)


def shard(module: Module, group: Any, reshard: bool, sync: bool = False) -> Unit | None:
    """Make one unit of the parameters below `module` that are in no unit yet; None without any."""
    parameters: dict[Parameter, list[Place]] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None and name != FLAT:
                parameters.setdefault(parameter, []).append((owner, name))
    if not parameters:
        return None
    if sync:
        first = dist.get_process_group_ranks(group)[0]
        for parameter in parameters:
            dist.broadcast(parameter.detach(), first, group)
    unit = Unit(module, parameters, group, reshard)
    module.__dict__["_unit"] = unit
    module.register_forward_pre_hook(unit.before_forward)
    module.register_forward_hook(unit.after_forward)
    observer = _Observer(unit)
    engine.observers.append(observer)
    weakref.finalize(unit, engine.observers.remove, observer)
    return unit


def units(module: Module) -> list[Unit]:
    """The units below a module, in the order of `modules()`."""
    return [m.__dict__["_unit"] for m in module.modules() if "_unit" in m.__dict__]
