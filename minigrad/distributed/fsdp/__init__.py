"""Fully sharded data parallel training: each rank keeps a part of every parameter, gradient and
optimiser state, and gathers the parameters of a layer while it computes with them.

    for block in model.blocks:
        fully_shard(block)          # a unit: gathered together
    fully_shard(model)              # what is left
    optimizer = optim.AdamW(model.parameters())     # of this rank's parts

or `FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}))`. Gradients are
averaged over the ranks, so N ranks with an Nth of each batch train as one rank does.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import minigrad
from minigrad import distributed as dist
from minigrad._absent import absent
from minigrad._names import namespace
from minigrad.distributed.fsdp import units, wrap
from minigrad.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor

CPUOffloadPolicy = absent("CPUOffloadPolicy", "parameters stay where they are in minigrad")
MixedPrecisionPolicy = absent(
    "MixedPrecisionPolicy", "minigrad divides parameters in their dtype; fix: minigrad.autocast"
)

__all__ = [
    "CPUOffloadPolicy",
    "FullyShardedDataParallel",
    "MixedPrecisionPolicy",
    "ModuleWrapPolicy",
    "ShardingStrategy",
    "fully_shard",
    "size_based_auto_wrap_policy",
]


class ShardingStrategy(enum.Enum):
    """FULL_SHARD is stage 3 of ZeRO, SHARD_GRAD_OP stage 2: parameters stay whole from forward to
    the end of backward."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3


def fully_shard(module: Module, *, mesh: Any = None, reshard_after_forward: bool = True) -> Module:
    """Divide the parameters of `module` that are in no unit yet among the ranks; returns `module`.

    mesh: a DeviceMesh of one dimension, or a group; default: all ranks.
    reshard_after_forward: give whole parameters back between forward and backward (ZeRO stage 3;
        False: stage 2). Only `backward()` of all leaves fills the shards' gradients.

    Raises ValueError where dtypes or `requires_grad` of a unit's parameters differ.
    """
    group = mesh.get_group() if hasattr(mesh, "get_group") else mesh
    units.shard(module, group, reshard_after_forward)
    return module


class FullyShardedDataParallel(Module):
    """`module`, whose parameters are divided among the ranks.

    auto_wrap_policy: which modules inside become a unit of their own (`ModuleWrapPolicy`, or
        `policy(module, recurse, nonwrapped_numel)`); without one, all parameters are one unit.
    sync_module_states: rank 0's parameters and buffers go to all first.

    `state_dict()` and `load_state_dict()` take whole parameters, under the names of `module`; all
    ranks call them. Raises NotImplementedError for what is not available.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: Any = None,
        auto_wrap_policy: wrap.Policy | None = None,
        backward_prefetch: Any = None,
        mixed_precision: Any = None,
        ignored_modules: Any = None,
        param_init_fn: Any = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
    ) -> None:
        super().__init__()
        _refuse_options(
            cpu_offload=cpu_offload,
            mixed_precision=mixed_precision,
            ignored_modules=ignored_modules,
            param_init_fn=param_init_fn,
            use_orig_params=use_orig_params or None,
        )
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if strategy is ShardingStrategy.NO_SHARD:
            raise NotImplementedError(
                "FullyShardedDataParallel: for NO_SHARD use nn.parallel.DistributedDataParallel"
            )
        self.module, self.process_group, self.sharding_strategy = module, process_group, strategy
        reshard = strategy is ShardingStrategy.FULL_SHARD
        inner = [] if auto_wrap_policy is None else wrap.chosen(module, auto_wrap_policy)
        for one in (*inner, module):
            units.shard(one, process_group, reshard, sync_module_states)
        if sync_module_states:
            first = dist.get_process_group_ranks(process_group)[0]
            for buffer in module.buffers():
                dist.broadcast(buffer, first, process_group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def no_sync(self) -> Any:
        raise NotImplementedError(
            "FullyShardedDataParallel.no_sync: leave it out; every backward pass adds this rank's "
            "part of the gradients up, with the same result"
        )

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module, recurse: bool = True, writeback: bool = True
    ) -> Iterator[None]:
        """Inside, the modules have whole parameters under their own names. All ranks call it.

        writeback: each rank's part of what was changed remains.
        """
        found = units.units(module)
        for unit in found:
            unit.summon()
        try:
            yield
        finally:
            for unit in found:
                unit.dismiss(writeback)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        with self.summon_full_params(self, writeback=False):
            found = self.module.state_dict(*args, **kwargs)
            for name, value in found.items():
                if isinstance(value, Tensor):
                    found[name] = value.clone()
        return found

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        with self.summon_full_params(self):
            return self.module.load_state_dict(state_dict, *args, **kwargs)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """`nn.utils.clip_grad_norm_` with the norm of all ranks' gradients, which it returns."""
        if norm_type != 2:
            raise NotImplementedError("FullyShardedDataParallel.clip_grad_norm_: norm_type=2 only")
        with minigrad.no_grad():
            grads = [p.grad for p in self.parameters() if p.grad is not None]
            total = minigrad.zeros(1, dtype=minigrad.float64)
            for grad in grads:
                total += (grad.double() ** 2).sum()
            dist.all_reduce(total, group=self.process_group)
            norm = total[0].sqrt()
            scale = min(max_norm / (norm.item() + 1e-6), 1.0)
            for grad in grads:
                grad.mul_(scale)
        return norm.float()


def _refuse_options(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(
                f"FullyShardedDataParallel: {name}= is not available in minigrad; leave it out"
            )


__getattr__, __dir__ = namespace(__name__)
