"""The state of a model and its optimiser under names that do not depend on how it is divided.

Parameters have the names of the model without its wrappers (DistributedDataParallel, FSDP); the
state of the optimiser has them, too, where `Optimizer.state_dict` has numbers. What is divided, by
FSDP or `parallelize_module`, is `Shard`s: so a checkpoint of one way of dividing fits another.

Parameters share memory with the model, and states with the optimiser: `checkpoint.load` writes into
these. Buffers are those of the first rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from minigrad._names import namespace
from minigrad.distributed.checkpoint.files import Shard, shards
from minigrad.distributed.fsdp import FullyShardedDataParallel, units
from minigrad.distributed.groups import resolve
from minigrad.distributed.optim import ZeroRedundancyOptimizer
from minigrad.distributed.tensor.layers import Slicing
from minigrad.nn.modules.module import Module
from minigrad.nn.parallel import DistributedDataParallel
from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Tensor

__all__ = [
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

EXTRA = "_extra_state"
State = dict[str, Any]


class _Part(NamedTuple):
    """What of a parameter is here. tensor: what an optimiser updates. of: the part of it, or of
    another tensor of its shape, that belongs to the parameter, as a value of a state dict.
    identity: equal for two names of one parameter."""

    identity: tuple
    tensor: Tensor
    of: Callable[[Tensor], Any]


def _whole(tensor: Tensor) -> Tensor:
    return tensor.detach()


def _flat(tensor: Tensor, part: slice, shape: tuple[int, ...], start: int) -> Shard:
    """Of a unit of FSDP: `part` of its flat tensor, which begins at `start` of the parameter."""
    return Shard(tensor.detach()[part], shape, start)


def _sliced(tensor: Tensor, slicing: Slicing, group: Any) -> tuple[Shard, ...]:
    """Of a tensor-parallel layer: of each block this rank's rows, along the divided dimension."""
    shape = list(tensor.shape)
    shape[slicing.dim] *= group.size
    moved = tensor.detach().movedim(slicing.dim, 0)
    rows = moved.shape[0] // slicing.blocks
    each = moved.numel() // slicing.blocks
    return tuple(
        Shard(
            moved[block * rows : (block + 1) * rows],
            tuple(shape),
            (block * group.size + group.rank) * each,
            slicing.dim,
        )
        for block in range(slicing.blocks)
    )


# --- names


def _modules(module: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """Each module with the beginning of its parameters' names, as if there were no wrappers."""
    while isinstance(module, DistributedDataParallel | FullyShardedDataParallel):
        module = module.module
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _modules(child, f"{prefix}{name}.")


def _divided(unit: units.Unit) -> Iterator[tuple[Module, str, _Part]]:
    """What of the parameters of a unit is in this rank's shard."""
    for (leaf, whole), places in zip(unit.whole.values(), unit.places):
        low = min(max(whole.start, unit.mine.start), whole.stop)
        high = max(min(whole.stop, unit.mine.stop), low)
        part = slice(low - unit.mine.start, high - unit.mine.start) if low < high else slice(0, 0)
        shape, start = tuple(leaf.shape), low - whole.start
        of = functools.partial(_flat, part=part, shape=shape, start=start)
        for owner, name in places:
            if name in vars(owner).get("_divided", {}):
                raise NotImplementedError(
                    "get_model_state_dict: FSDP of layers that parallelize_module has divided"
                )
            yield owner, name, _Part((id(unit), whole.start, whole.stop), unit.shard, of)


def _parts(model: Module) -> dict[str, _Part]:
    """The parameters by name."""
    prefixes = {id(module): prefix for prefix, module in _modules(model)}
    found: dict[str, _Part] = {}
    for prefix, module in _modules(model):
        for name, tensor in module._parameters.items():
            if tensor is not None and name != units.FLAT:
                of: Callable[[Tensor], Any] = _whole
                if name in vars(module).get("_divided", {}):
                    slicing, group = vars(module)["_divided"][name]
                    of = functools.partial(_sliced, slicing=slicing, group=group)
                found[prefix + name] = _Part((id(tensor),), tensor, of)
        if "_unit" in module.__dict__:
            for owner, name, part in _divided(module.__dict__["_unit"]):
                found[prefixes[id(owner)] + name] = part
    return found


def _first_names(parts: dict[str, _Part]) -> dict[str, _Part]:
    """Without the further names of what is used twice."""
    seen: dict[tuple, str] = {}
    for name in sorted(parts):
        seen.setdefault(parts[name].identity, name)
    return {name: parts[name] for name in seen.values()}


# --- models


def get_model_state_dict(model: Module, *, submodules: Any = None, options: Any = None) -> State:
    """Parameters and persistent buffers by name; `Shard`s where they are divided."""
    _refuse("get_model_state_dict", submodules, options)
    return _state(model, _copies(model))


def _state(model: Module, group: Any) -> State:
    """The model's own tensors; with a group, copies of its first rank's buffers."""
    found: State = {name: part.of(part.tensor) for name, part in _parts(model).items()}
    for prefix, module in _modules(model):
        for name, value in module._own_state().items():
            if name in module._buffers:
                found[prefix + name] = value.detach() if group is None else _first(value, group)
        if module._has_extra_state():
            found[prefix + EXTRA] = module.get_extra_state()
    return found


def _copies(model: Module) -> Any:
    """The group whose ranks have copies of the model's buffers; None without one."""
    if isinstance(model, DistributedDataParallel | FullyShardedDataParallel):
        return resolve(model.process_group)
    found = units.units(model)
    return found[0].group if found else None


def _first(buffer: Tensor, group: Any) -> Tensor:
    """The buffer of the group's first rank: running means differ between ranks."""
    copied = buffer.detach().clone()
    group.broadcast(copied._array, 0).wait()
    return copied


def set_model_state_dict(model: Module, model_state_dict: State, *, options: Any = None) -> None:
    """Put what `get_model_state_dict` gave, and `checkpoint.load` has filled, into a model."""
    operation = "set_model_state_dict"
    _refuse(operation, None, options)
    targets = _state(model, None)
    _same_names(operation, targets, model_state_dict)
    for name, target in targets.items():
        if shards(target):
            _copy(operation, name, target, model_state_dict[name])
    for prefix, module in _modules(model):
        if module._has_extra_state():
            module.set_extra_state(model_state_dict[prefix + EXTRA])
        if "_unit" in module.__dict__:
            module.__dict__["_unit"].release()  # gathered again from the shards


# --- optimisers


def get_optimizer_state_dict(
    model: Module, optimizers: Any, *, submodules: Any = None, options: Any = None
) -> State:
    """{"state": {name: state}, "param_groups": [options with names as "params"]}.

    A parameter that has had no step gets the state of a first one, to load into. Raises
    NotImplementedError for an optimiser whose state is not by parameter (LBFGS).
    """
    _refuse("get_optimizer_state_dict", submodules, options)
    state: State = {}
    groups = []
    for part, options_of, states in _groups(model, optimizers):
        for name, here in part.items():
            if here.tensor in states:
                own = states[here.tensor]
                state[name] = {key: _like(here, value) for key, value in own.items()}
        groups.append({**options_of, "params": list(part)})
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: State, *, options: Any = None
) -> None:
    """Put what `get_optimizer_state_dict` gave, and `checkpoint.load` has filled, into optimisers.

    Raises ValueError where the groups have other parameters.
    """
    operation = "set_optimizer_state_dict"
    _refuse(operation, None, options)
    targets = get_optimizer_state_dict(model, optimizers)
    _same_names(operation, targets["state"], optim_state_dict["state"])
    for name, target in targets["state"].items():
        given = optim_state_dict["state"][name]
        _same_names(operation, target, given, f"{name}.")
        for key, value in target.items():
            if shards(value):
                _copy(operation, f"{name}.{key}", value, given[key])
    pairs = zip(_param_groups(optimizers), targets["param_groups"], strict=True)
    saved = optim_state_dict["param_groups"]
    for number, (group, target) in enumerate(pairs):
        if number >= len(saved) or set(saved[number]["params"]) != set(target["params"]):
            raise ValueError(
                f"{operation}: group {number} of the optimiser has the parameters "
                f"{sorted(target['params'])}, and that of the checkpoint "
                f"{sorted(saved[number]['params']) if number < len(saved) else 'does not exist'}"
            )
        group.update({key: value for key, value in saved[number].items() if key != "params"})


def _all(optimizers: Any) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _param_groups(optimizers: Any) -> list[dict[str, Any]]:
    return [group for optimizer in _all(optimizers) for group in optimizer.param_groups]


def _groups(model: Module, optimizers: Any) -> Iterator[tuple[dict[str, _Part], dict, Any]]:
    """Of each group: its parameters by name, its options, and the states of what this rank
    updates."""
    by_tensor: dict[int, dict[str, _Part]] = {}
    for name, part in _first_names(_parts(model)).items():
        by_tensor.setdefault(id(part.tensor), {})[name] = part
    for optimizer in _all(optimizers):
        inner = optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer
        if inner is not None:
            _begin_state(inner)
        for group in optimizer.param_groups:
            names: dict[str, _Part] = {}
            for tensor in group["params"]:
                if id(tensor) not in by_tensor:
                    raise ValueError(
                        "get_optimizer_state_dict: the optimiser has a parameter of shape "
                        f"{tuple(tensor.shape)} that is none of the model's"
                    )
                names |= by_tensor[id(tensor)]
            options = {key: value for key, value in group.items() if key != "params"}
            yield names, options, {} if inner is None else inner.state


def _begin_state(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            if tensor.requires_grad and not optimizer.state.get(tensor):
                try:
                    state = optimizer._first_state(group, tensor)
                except NotImplementedError:
                    raise NotImplementedError(
                        f"get_optimizer_state_dict: {type(optimizer).__name__} has no state by "
                        "parameter; put its state_dict() into the checkpoint instead"
                    ) from None
                if state:
                    optimizer.state[tensor] = state


def _like(part: _Part, value: Any) -> Any:
    """The state of a parameter: divided as the parameter is, if it has its size."""
    if isinstance(value, Tensor) and value.shape == part.tensor.shape:
        return part.of(value)
    return value


# --- both


def get_state_dict(
    model: Module, optimizers: Any, *, submodules: Any = None, options: Any = None
) -> tuple[State, State]:
    """(`get_model_state_dict`, `get_optimizer_state_dict`)."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: State,
    optim_state_dict: State,
    options: Any = None,
) -> None:
    """`set_model_state_dict` and `set_optimizer_state_dict`."""
    set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)


def _same_names(operation: str, targets: Iterable, given: Iterable, prefix: str = "") -> None:
    missing, more = sorted(set(targets) - set(given)), sorted(set(given) - set(targets))
    if missing or more:
        said = f"without {prefix}{missing[0]!r}" if missing else f"with {prefix}{more[0]!r}"
        raise ValueError(f"{operation}: expected the names of this model, got a state dict {said}")


def _copy(operation: str, name: str, target: Any, given: Any) -> None:
    """Write what is given, whole or in the same parts, into a tensor of the model, unless it is its
    own memory."""
    ours, theirs = shards(target), shards(given)
    if not theirs or theirs[0].shape != ours[0].shape:
        shape = theirs[0].shape if theirs else given
        raise ValueError(f"{operation}: {name} has shape {ours[0].shape}, got {shape}")
    for part in ours:
        same = [
            one
            for one in theirs
            if (one.start, one.stop, one.dim) == (part.start, part.stop, part.dim)
        ]
        if same:
            source = same[0].tensor
        elif isinstance(given, Tensor):
            moved = given.detach().movedim(part.dim, 0)
            source = moved.reshape(-1)[part.start : part.stop].view(part.tensor.shape)
        else:
            raise ValueError(f"{operation}: {name} is divided in another way than in this model")
        if part.tensor._array is not source._array:
            part.tensor._array[...] = source.to(part.tensor.device)._array
            part.tensor._counter[0] += 1


def _refuse(operation: str, submodules: Any, options: Any) -> None:
    if submodules is not None or options is not None:
        raise NotImplementedError(
            f"{operation}: submodules= and options= are not available in minigrad; leave them out"
        )


__getattr__, __dir__ = namespace(__name__)
