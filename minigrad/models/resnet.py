"""ResNet: K. He, X. Zhang, S. Ren and J. Sun, "Deep Residual Learning for Image Recognition", 2015
(arXiv:1512.03385). As in torchvision, a bottleneck's stride is in its 3 x 3 convolution."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from minigrad import nn
from minigrad.models.weights import WeightsEnum, build, published
from minigrad.tensor import Tensor

ResNet18_Weights = published("ResNet18", "resnet18-f37072fd")
ResNet34_Weights = published("ResNet34", "resnet34-b627a593")
ResNet50_Weights = published("ResNet50", "resnet50-0676ba61", "resnet50-11ad3fa6")
ResNet101_Weights = published("ResNet101", "resnet101-63fe2227", "resnet101-cd907fc2")
ResNet152_Weights = published("ResNet152", "resnet152-394f9c45", "resnet152-f82ba261")

Norm = Callable[[int], nn.Module]


def _conv(before: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, width, kernel, stride, kernel // 2, groups=groups, bias=False)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, added to the input or its projection `downsample`."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        norm_layer: Norm = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        self.conv1, self.bn1 = _conv(inplanes, planes, 3, stride), norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = _conv(planes, planes, 3), norm_layer(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """x (N, inplanes, H, W) to (N, planes, H / stride, W / stride)."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """Convolutions 1 x 1, 3 x 3 and 1 x 1 to four times `planes`, added to the input or its
    projection `downsample`."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        norm_layer: Norm = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        width, out = planes * base_width // 64 * groups, planes * self.expansion
        self.conv1, self.bn1 = _conv(inplanes, width, 1), norm_layer(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride, groups), norm_layer(width)
        self.conv3, self.bn3 = _conv(width, out, 1), norm_layer(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """x (N, inplanes, H, W) to (N, 4 planes, H / stride, W / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Images (N, 3, H, W) (224 x 224 in the paper) to (N, num_classes).

    Args:
        block: `BasicBlock` or `Bottleneck`; layers: how many of them in each of the four stages.
        zero_init_residual: each block is the identity at first.
        groups, width_per_group: of the 3 x 3 convolutions of a `Bottleneck`.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        before, make = (
            64,
            functools.partial(block, groups=groups, base_width=width_per_group, norm_layer=norm),
        )
        for stage, count in enumerate(layers):
            planes, stride = 64 << stage, 1 if stage == 0 else 2
            after, projection = planes * block.expansion, None
            if stride != 1 or before != after:
                projection = nn.Sequential(_conv(before, after, 1, stride), norm(after))
            rest = [make(after, planes) for _ in range(count - 1)]
            first = make(before, planes, stride, projection)
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, *rest))
            before = after
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(before, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(layer, BasicBlock | Bottleneck):
                last = layer.bn3 if isinstance(layer, Bottleneck) else layer.bn2
                nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the classes."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _resnet(
    block: type[BasicBlock] | type[Bottleneck],
    layers: Sequence[int],
    known: type[WeightsEnum],
    weights: Any,
    progress: bool,
    options: dict[str, Any],
) -> ResNet:
    return build(functools.partial(ResNet, block, layers), known, weights, progress, options)


def resnet18(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet with 18 layers, 11.7 million parameters."""
    return _resnet(BasicBlock, (2, 2, 2, 2), ResNet18_Weights, weights, progress, kwargs)


def resnet34(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet with 34 layers, 21.8 million parameters."""
    return _resnet(BasicBlock, (3, 4, 6, 3), ResNet34_Weights, weights, progress, kwargs)


def resnet50(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet with 50 layers, 25.6 million parameters."""
    return _resnet(Bottleneck, (3, 4, 6, 3), ResNet50_Weights, weights, progress, kwargs)


def resnet101(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet with 101 layers, 44.5 million parameters."""
    return _resnet(Bottleneck, (3, 4, 23, 3), ResNet101_Weights, weights, progress, kwargs)


def resnet152(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ResNet:
    """ResNet with 152 layers, 60.2 million parameters."""
    return _resnet(Bottleneck, (3, 8, 36, 3), ResNet152_Weights, weights, progress, kwargs)
