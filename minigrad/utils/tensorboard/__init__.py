"""`SummaryWriter`: scalars and text in the files that TensorBoard shows."""

from minigrad.utils.tensorboard.writer import SummaryWriter

__all__ = ["SummaryWriter"]
