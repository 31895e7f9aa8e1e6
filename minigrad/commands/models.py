"""The two networks that `minigrad train` and the benchmarks train.

Each takes the module `nn` that builds it, so that a benchmark can make the same network of
`torch.nn`; nothing here imports one.
"""

from __future__ import annotations

from types import ModuleType

MODELS = ("cnn", "mlp")


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


def build(name: str, nn: ModuleType, shape: tuple[int, int, int], classes: int = 10):
    """The network `name` ("cnn" or "mlp") for images of `shape` (channels, height, width)."""
    if name not in MODELS:
        raise ValueError(f"model: expected one of {list(MODELS)}, got {name!r}")
    return {"cnn": cnn, "mlp": mlp}[name](nn, *shape, classes)
