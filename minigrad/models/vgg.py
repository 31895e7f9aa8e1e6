"""VGG: K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
Recognition", 2014 (arXiv:1409.1556), the configurations A, B, D and E."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from minigrad import nn
from minigrad.models.weights import WeightsEnum, build, published
from minigrad.tensor import Tensor

_WIDTHS = (64, 128, 256, 512, 512)  # of the five groups of convolutions, each with a pooling


def _configuration(*counts: int) -> list[int | str]:
    """Widths of convolutions, and "M" for a pooling, of groups with so many convolutions."""
    found: list[int | str] = []
    for width, count in zip(_WIDTHS, counts):
        found += [*[width] * count, "M"]
    return found


cfgs: dict[str, list[int | str]] = {
    "A": _configuration(1, 1, 2, 2, 2),
    "B": _configuration(2, 2, 2, 2, 2),
    "D": _configuration(2, 2, 3, 3, 3),
    "E": _configuration(2, 2, 4, 4, 4),
}

VGG11_Weights = published("VGG11", "vgg11-8a719046")
VGG11_BN_Weights = published("VGG11_BN", "vgg11_bn-6002323d")
VGG13_Weights = published("VGG13", "vgg13-19584684")
VGG13_BN_Weights = published("VGG13_BN", "vgg13_bn-abd245e5")
VGG16_Weights = published("VGG16", "vgg16-397923af")
VGG16_BN_Weights = published("VGG16_BN", "vgg16_bn-6c64b313")
VGG19_Weights = published("VGG19", "vgg19-dcbb9e9d")
VGG19_BN_Weights = published("VGG19_BN", "vgg19_bn-c79401a0")


class VGG(nn.Module):
    """Images (N, 3, H, W) of at least 32 x 32 (224 x 224 in the paper) to (N, num_classes).

    init_weights: draw the initial weights as torchvision does; False leaves those of the layers.
    """

    def __init__(
        self,
        features: nn.Module,
        num_classes: int = 1000,
        init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            *(nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(dropout)),
            *(nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout)),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            self.apply(_initialise)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the classes."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def _initialise(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, 0, 0.01)
    else:
        return
    nn.init.zeros_(layer.bias)


def make_layers(cfg: Sequence[int | str], batch_norm: bool = False) -> nn.Sequential:
    """The convolutions of a configuration: `make_layers(cfgs["D"])` are those of VGG16."""
    layers: list[nn.Module] = []
    before = 3
    for part in cfg:
        if isinstance(part, str):
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(before, part, 3, padding=1))
        layers += [nn.BatchNorm2d(part)] if batch_norm else []
        layers.append(nn.ReLU(inplace=True))
        before = part
    return nn.Sequential(*layers)


def _vgg(
    cfg: str,
    batch_norm: bool,
    known: type[WeightsEnum],
    weights: Any,
    progress: bool,
    options: dict[str, Any],
) -> VGG:
    make = functools.partial(VGG, make_layers(cfgs[cfg], batch_norm))
    return build(make, known, weights, progress, options)


def vgg11(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 11 layers, configuration A."""
    return _vgg("A", False, VGG11_Weights, weights, progress, kwargs)


def vgg11_bn(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 11 layers and batch normalisation."""
    return _vgg("A", True, VGG11_BN_Weights, weights, progress, kwargs)


def vgg13(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 13 layers, configuration B."""
    return _vgg("B", False, VGG13_Weights, weights, progress, kwargs)


def vgg13_bn(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 13 layers and batch normalisation."""
    return _vgg("B", True, VGG13_BN_Weights, weights, progress, kwargs)


def vgg16(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 16 layers, configuration D; 138 million parameters."""
    return _vgg("D", False, VGG16_Weights, weights, progress, kwargs)


def vgg16_bn(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 16 layers and batch normalisation."""
    return _vgg("D", True, VGG16_BN_Weights, weights, progress, kwargs)


def vgg19(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 19 layers, configuration E."""
    return _vgg("E", False, VGG19_Weights, weights, progress, kwargs)


def vgg19_bn(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> VGG:
    """VGG with 19 layers and batch normalisation."""
    return _vgg("E", True, VGG19_BN_Weights, weights, progress, kwargs)
