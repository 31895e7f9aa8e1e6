"""Optimisers for several ranks: each keeps the state of a part of the parameters only.

Stage 1 of ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020). Stages 2 and 3, which divide gradients and parameters too, are
`minigrad.distributed.fsdp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import minigrad
from minigrad import distributed as dist
from minigrad._names import namespace
from minigrad.distributed.groups import resolve
from minigrad.optim.optimizer import Optimizer
from minigrad.tensor import Tensor

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """`optimizer_class(params, **defaults)` with its state divided among the ranks.

    Each rank updates the parameters that it owns, and sends them to the others. Gradients must be
    the same on all ranks: `DistributedDataParallel` averages them. Parameters are not cut: the
    largest go first, each to the rank that has least.

    parameters_as_bucket_view: no effect. overlap_with_ddp=True is not available.
    Raises RuntimeError for `state_dict()` without `consolidate_state_dict()` before.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not available in minigrad; "
                "leave it out: the result is the same"
            )
        self._group = process_group
        super().__init__(params, defaults)
        members = resolve(process_group)
        self._owners = _owners([group["params"] for group in self.param_groups], members.size)
        self._rank = members.rank
        self._all: dict[int, Any] | None = None
        mine = [self._part(group) for group in self.param_groups]
        self.optim = optimizer_class(mine, **defaults) if any(p["params"] for p in mine) else None
        for group, own in zip(self.param_groups, self.optim.param_groups if self.optim else ()):
            group.update({key: value for key, value in own.items() if key != "params"})

    def _part(self, group: dict[str, Any]) -> dict[str, Any]:
        """The group with this rank's parameters only."""
        mine = [p for p in group["params"] if self._owners[p] == self._rank]
        return {key: mine if key == "params" else value for key, value in group.items()}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's parameters, then exchange all."""
        loss = None
        if closure is not None:
            with minigrad.enable_grad():
                loss = closure()
        if self.optim is not None:
            for group, own in zip(self.param_groups, self.optim.param_groups):
                own.update({key: value for key, value in group.items() if key != "params"})
            self.optim.step()
        with minigrad.no_grad():
            works = [
                dist.broadcast(
                    parameter, dist.get_global_rank(self._group, owner), self._group, True
                )
                for parameter, owner in self._owners.items()
            ]
            for work in works:
                if work is not None:
                    work.wait()
        return loss

    def owned(self) -> list[Tensor]:
        """The parameters that this rank updates."""
        return [p for p, owner in self._owners.items() if owner == self._rank]

    # ---------------------------------------------------------------- saving

    def local_state(self) -> dict[int, dict[str, Any]]:
        """The state of this rank's parameters, by the number of the parameter in all groups."""
        numbers = {p: i for i, p in enumerate(self._owners)}
        state = {} if self.optim is None else self.optim.state
        return {numbers[p]: dict(entry) for p, entry in state.items()}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect all ranks' state on rank `to`, whose `state_dict()` then has it. All call it."""
        members = resolve(self._group)
        whole: dict[int, Any] = {}
        for rank in range(members.size):
            said: list[Any] = [self.local_state() if rank == self._rank else None]
            dist.broadcast_object_list(said, dist.get_global_rank(self._group, rank), self._group)
            if self._rank == dist.get_group_rank(self._group, to):
                whole.update(said[0])
        self._all = whole if self._rank == dist.get_group_rank(self._group, to) else None

    def state_dict(self) -> dict[str, Any]:
        """That of the whole optimiser, on the rank that `consolidate_state_dict` named."""
        if self._all is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self._rank})` on all ranks beforehand if you meant "
                "to save the global state."
            )
        return {**super().state_dict(), "state": self._all}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a whole optimiser's state; this rank keeps that of its own parameters."""
        number = 0
        groups, state = [], {}
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            chosen = []
            for parameter in group["params"]:
                if self._owners[parameter] == self._rank:
                    chosen.append(number)
                    if number in state_dict["state"]:
                        state[number] = copy(state_dict["state"][number])
                number += 1
            groups.append({**saved, "params": chosen})
            group.update({key: value for key, value in saved.items() if key != "params"})
        if self.optim is not None:
            self.optim.load_state_dict({"state": state, "param_groups": groups})


def _owners(groups: list[list[Tensor]], ranks: int) -> dict[Tensor, int]:
    """The rank of each parameter, in the order of the groups."""
    parameters = [p for group in groups for p in group]
    load, owner = [0] * ranks, {}
    for parameter in sorted(parameters, key=lambda p: -p.numel()):
        owner[parameter] = load.index(min(load))
        load[owner[parameter]] += parameter.numel()
    return {p: owner[p] for p in parameters}


__getattr__, __dir__ = namespace(__name__)
