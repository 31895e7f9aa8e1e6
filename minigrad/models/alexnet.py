"""AlexNet, in the form of A. Krizhevsky, "One weird trick for parallelizing convolutional neural
networks", 2014 (arXiv:1404.5997)."""

from __future__ import annotations

from typing import Any

from minigrad import nn
from minigrad.models.weights import build, published
from minigrad.tensor import Tensor

AlexNet_Weights = published("AlexNet", "alexnet-owt-7be5be79")


class AlexNet(nn.Module):
    """Images (N, 3, H, W) of at least 63 x 63 (224 x 224 in the paper) to (N, num_classes)."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width, kernel, stride, padding, pooled in (
            (64, 11, 4, 2, True),
            (192, 5, 1, 2, True),
            (384, 3, 1, 1, False),
            (256, 3, 1, 1, False),
            (256, 3, 1, 1, True),
        ):
            layers += [nn.Conv2d(before, width, kernel, stride, padding), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(3, 2)] if pooled else []
            before = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True)),
            *(nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(inplace=True)),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the classes."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> AlexNet:
    """AlexNet, 61 million parameters."""
    return build(AlexNet, AlexNet_Weights, weights, progress, kwargs)
