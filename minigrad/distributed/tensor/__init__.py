"""Tensors that are divided among ranks: how, by torch's names `Shard` and `Replicate`.

minigrad has no DTensor: a rank's part is a plain Tensor. `parallel` divides the layers of a
network, `ring` the sequence of attention.
"""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from minigrad.distributed.tensor.mappings import Replicate, Shard

__all__ = ["DeviceMesh", "Replicate", "Shard", "init_device_mesh"]

__getattr__, __dir__ = namespace(__name__)
