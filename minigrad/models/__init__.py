"""Networks: LeNet, AlexNet, VGG, ResNet, a character RNN and GPT-2.

Their parameters have the names and shapes of torchvision's networks, and GPT-2's those of the
common files, so that published weights load. `minigrad run` and `as_torch()` give this package for
`torchvision.models`.
"""

from __future__ import annotations

from typing import Any

from minigrad._names import namespace, suggestion
from minigrad.models.alexnet import AlexNet, AlexNet_Weights, alexnet
from minigrad.models.char_rnn import CharRNN
from minigrad.models.gpt2 import GPT2Config, GPT2LMHeadModel, GPT2Model
from minigrad.models.lenet import LeNet
from minigrad.models.resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    ResNet18_Weights,
    ResNet34_Weights,
    ResNet50_Weights,
    ResNet101_Weights,
    ResNet152_Weights,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
)
from minigrad.models.vgg import (
    VGG,
    VGG11_BN_Weights,
    VGG11_Weights,
    VGG13_BN_Weights,
    VGG13_Weights,
    VGG16_BN_Weights,
    VGG16_Weights,
    VGG19_BN_Weights,
    VGG19_Weights,
    vgg11,
    vgg11_bn,
    vgg13,
    vgg13_bn,
    vgg16,
    vgg16_bn,
    vgg19,
    vgg19_bn,
)
from minigrad.models.weights import WeightsEnum
from minigrad.nn import Module

__all__ = [
    "VGG", "AlexNet", "AlexNet_Weights", "BasicBlock", "Bottleneck", "CharRNN", "GPT2Config",
    "GPT2LMHeadModel", "GPT2Model", "LeNet", "ResNet", "ResNet18_Weights", "ResNet34_Weights",
    "ResNet50_Weights", "ResNet101_Weights", "ResNet152_Weights", "VGG11_BN_Weights",
    "VGG11_Weights", "VGG13_BN_Weights", "VGG13_Weights", "VGG16_BN_Weights", "VGG16_Weights",
    "VGG19_BN_Weights", "VGG19_Weights", "WeightsEnum", "alexnet", "get_model", "list_models",
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg11_bn", "vgg13",
    "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
]  # fmt: skip

_BUILDERS = (
    *(alexnet, resnet18, resnet34, resnet50, resnet101, resnet152),
    *(vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn),
)


def list_models() -> list[str]:
    """The names that `get_model` knows."""
    return sorted(builder.__name__ for builder in _BUILDERS)


def get_model(name: str, **config: Any) -> Module:
    """A network by its name: `get_model("resnet18", num_classes=10)`.

    >>> from minigrad import models
    >>> type(models.get_model("resnet18", num_classes=10)).__name__
    'ResNet'
    """
    for builder in _BUILDERS:
        if builder.__name__ == name.lower():
            return builder(**config)
    close = suggestion(name, list_models())
    hint = f"; did you mean {close!r}?" if close else f"; there are {', '.join(list_models())}"
    raise ValueError(f"Unknown model {name}{hint}")


__getattr__, __dir__ = namespace(__name__)
