"""The networks that `minigrad train` and the benchmarks train, and VGG16 for `minigrad gpus`.

Each takes the module `nn` to build from, so that a benchmark can build the same network with
`torch.nn`; nothing is imported here.
"""

from __future__ import annotations

from types import ModuleType

MODELS = ("cnn", "mlp")  # choices of `minigrad train`


def cnn(nn: ModuleType, channels: int, height: int, width: int, classes: int = 10):
    """Conv(32) - pool - Conv(64) - pool - Conv(64) - Linear(64) - Linear(`classes`).

    3x3 convolutions that keep the size, 2x2 max pooling, ReLU between the layers. Input
    (N, channels, height, width), output (N, classes).
    """
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def mlp(nn: ModuleType, channels: int, height: int, width: int, classes: int = 10):
    """Linear(512) - Linear(256) - Linear(`classes`) with ReLU between; shapes as in `cnn`."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )


def vgg16(nn: ModuleType, channels: int, height: int, width: int, classes: int = 1000):
    """VGG16 (K. Simonyan, A. Zisserman, 2014, configuration D): 13 3x3 convolutions, 3 linear
    layers. Input (N, channels, height, width), 224 x 224 in the paper, output (N, classes)."""
    layers = []
    for size, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, size, 3, padding=1), nn.ReLU()]
            channels = size
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * (height // 32) * (width // 32), 4096)]
    layers += [nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, classes))


def build(name: str, nn: ModuleType, shape: tuple[int, int, int], classes: int = 10):
    """The network `name` for images of `shape` (channels, height, width)."""
    makers = {"cnn": cnn, "mlp": mlp, "vgg16": vgg16}
    if name not in makers:
        raise ValueError(f"model: expected one of {list(makers)}, got {name!r}")
    return makers[name](nn, *shape, classes)
