"""Published weights: where they are, how they are read, which images they were trained on."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minigrad import hub
from minigrad._names import kind
from minigrad.nn import Module

_HOST = "https://download.pytorch.org/models/"
_FOR_IMAGENET = {"num_classes": 1000}


class WeightsEnum(enum.Enum):
    """The weights of one network, trained on ImageNet-1K: `ResNet18_Weights.DEFAULT`.

    A member's value: the name of its file without `.pth`, and the size to which the smaller side of
    an image is brought before the centre of 224 x 224 is taken.
    """

    @property
    def url(self) -> str:
        """Where the file is published."""
        return f"{_HOST}{self.value[0]}.pth"

    @property
    def meta(self) -> dict[str, Any]:
        """The number of classes."""
        return dict(_FOR_IMAGENET)

    @property
    def transforms(self) -> Callable[[], Any]:
        """`weights.transforms()` makes of an image the network's input (3, 224, 224)."""
        from minigrad.vision.transforms import ImageClassification

        return lambda: ImageClassification(crop_size=224, resize_size=self.value[1])

    def get_state_dict(self, progress: bool = True, check_hash: bool = True) -> Any:
        """The parameters by name, downloaded once and compared with their SHA-256.

        RuntimeError where there is no connection; it names the folder in which a copy is found.
        """
        try:
            return hub.load_state_dict_from_url(
                self.url, map_location="cpu", progress=progress, check_hash=check_hash
            )
        except OSError as error:  # urllib's errors are OSErrors
            folder = Path(hub.get_dir(), "checkpoints")
            raise RuntimeError(
                f"{type(self).__name__}.{self.name}: {self.url} could not be downloaded ({error}). "
                f"If this machine is offline, copy the file from another one into {folder}, or "
                "load a file of your own: model.load_state_dict(minigrad.load(path))"
            ) from None


def published(network: str, v1: str, v2: str | None = None) -> type[WeightsEnum]:
    """The class `NETWORK_Weights` with the members IMAGENET1K_V1, perhaps V2, and DEFAULT."""
    members = {"IMAGENET1K_V1": (v1, 256)}
    if v2 is not None:
        members["IMAGENET1K_V2"] = (v2, 232)
    members["DEFAULT"] = list(members.values())[-1]
    make: Any = WeightsEnum  # called with a name and members, an Enum makes a subclass
    made = make(f"{network}_Weights", members, module=__package__)
    made.__doc__ = f"Published weights of {network}, see `WeightsEnum`."
    return made


def build(
    make: Callable[..., Module],
    known: type[WeightsEnum],
    weights: Any,
    progress: bool,
    options: dict[str, Any],
) -> Any:
    """A network, with published weights where `weights` says which: a member, its name, or, as
    older programs pass them, `pretrained=True`."""
    if options.pop("pretrained", False) or weights is True:
        weights = "IMAGENET1K_V1"
    if weights is None or weights is False:
        return make(**options)
    if isinstance(weights, str):
        name = weights.rpartition(".")[2]
        if name not in known.__members__:
            raise ValueError(f"weights: expected one of {[*known.__members__]}, got {weights!r}")
        weights = known[name]
    if not isinstance(weights, known):
        raise TypeError(f"weights: expected {known.__name__} or None, got {kind(weights)}")
    count = options.setdefault("num_classes", weights.meta["num_classes"])
    if count != weights.meta["num_classes"]:
        raise ValueError(
            f"The parameter 'num_classes' expected value {weights.meta['num_classes']} but got "
            f"{count} instead; replace the last layer after loading"
        )
    model = make(**options)
    model.load_state_dict(weights.get_state_dict(progress))
    return model
