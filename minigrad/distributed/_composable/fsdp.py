"""torch's older place of `distributed.fsdp.fully_shard`."""

from minigrad._names import namespace
from minigrad.distributed.fsdp import fully_shard

__all__ = ["fully_shard"]

__getattr__, __dir__ = namespace(__name__)
