"""Layers for networks of images, with torchvision's names."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.vision.ops.misc import FrozenBatchNorm2d

__all__ = ["FrozenBatchNorm2d"]

__getattr__, __dir__ = namespace(__name__)
