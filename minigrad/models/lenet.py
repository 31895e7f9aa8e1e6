"""LeNet-5: Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-Based Learning Applied to
Document Recognition", 1998, in the form of today's tutorials: ReLU and max pooling."""

from __future__ import annotations

from minigrad import nn
from minigrad.nn import functional as F
from minigrad.tensor import Tensor


class LeNet(nn.Module):
    """Images (N, in_channels, size, size) to (N, num_classes).

    size: 32 as in the paper, or 28, which the first convolution pads to it.

    >>> import minigrad
    >>> model = minigrad.models.LeNet()
    >>> model(minigrad.zeros(5, 1, 28, 28)).shape
    minigrad.Size([5, 10])
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, size: int = 28) -> None:
        super().__init__()
        if size not in (28, 32):
            raise ValueError(f"LeNet: expected images of size 28 or 32, got {size}")
        self.conv1 = nn.Conv2d(in_channels, 6, 5, padding=(32 - size) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the classes."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))
