"""`SummaryWriter`: scalars and text in the files that TensorBoard shows."""

from minigrad._names import namespace
from minigrad.utils.tensorboard.writer import SummaryWriter

__all__ = ["SummaryWriter"]


__getattr__, __dir__ = namespace(__name__)
