"""Transforms of images, with the names and arguments of torchvision's: of images of Pillow (extra
`vision`) and of tensors (..., channels, height, width).

>>> import numpy as np
>>> from minigrad.vision import transforms
>>> transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])
>>> transform(np.full((4, 6, 3), 255, np.uint8)).shape
minigrad.Size([3, 4, 6])

Random ones follow `minigrad.manual_seed`.
"""

from minigrad._names import namespace
from minigrad.vision.transforms import functional
from minigrad.vision.transforms.functional import InterpolationMode
from minigrad.vision.transforms.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    ConvertImageDtype,
    FiveCrop,
    GaussianBlur,
    Grayscale,
    ImageClassification,
    Lambda,
    Normalize,
    Pad,
    PILToTensor,
    RandomAffine,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    TenCrop,
    ToPILImage,
    ToTensor,
)

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "ImageClassification",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomAffine",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "TenCrop",
    "ToPILImage",
    "ToTensor",
    "functional",
]

__getattr__, __dir__ = namespace(__name__, {"v2": f"{__name__}.v2"})
