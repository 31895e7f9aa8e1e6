"""torch's module of placements: `Shard`, `Replicate`, and those that minigrad has none of."""

from minigrad._names import namespace
from minigrad.distributed.tensor.dtensor import _StridedShard  # noqa: F401
from minigrad.distributed.tensor.mappings import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

__getattr__, __dir__ = namespace(__name__)
