"""The class by the name of its file in torch."""

from __future__ import annotations

from minigrad.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

__all__ = ["FullyShardedDataParallel", "ShardingStrategy"]
