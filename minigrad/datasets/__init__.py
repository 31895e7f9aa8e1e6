"""Data sets of small images, each as a `TensorDataset` of (image, class) pairs.

Images are float32 of shape (channels, height, width) with values in [0, 1], classes are int64.

>>> import minigrad
>>> train = minigrad.datasets.digits()
>>> image, label = train[0]
>>> len(train), tuple(image.shape), int(label)
(1437, (1, 8, 8), 2)

`digits` ships with the package; the others are downloaded at their first use, checked, and stored
in `cache_folder()`. If a data set is not available, DatasetError gives the reason.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from minigrad._names import namespace
from minigrad.datasets.download import DatasetError, cache_folder, fetch
from minigrad.datasets.formats import read_cifar, read_idx

__all__ = ["DatasetError", "cache_folder", "cifar10", "digits", "fashion_mnist", "load", "mnist"]

DIGITS_TRAIN = 1437  # the file is shuffled: the first 1437 train, the last 360 test

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_SHA256 = {
    "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
FASHION_MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
FASHION_SHA256 = {
    "train-images-idx3": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"


def digits(train: bool = True):
    """1437 (train) or 360 (test) handwritten digits of 1x8x8 pixels; ten classes.

    The test part of UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak,
    1998, doi:10.24432/C50P49, CC BY 4.0), split here; `DIGITS.md` beside the file says how it was
    made. The same people wrote both parts, so test accuracy does not measure new handwriting.
    """
    images, labels = _read_digits(Path(__file__).with_name("digits.npz"))
    part = slice(0, DIGITS_TRAIN) if train else slice(DIGITS_TRAIN, None)
    return _dataset(images[part, None], labels[part], 16)


def mnist(train: bool = True, root: str | os.PathLike | None = None):
    """60000 (train) or 10000 (test) handwritten digits of 1x28x28 pixels; ten classes.

    Y. LeCun, C. Cortes and C. Burges, 1998. 11 MB to download, into `cache_folder(root)`.
    """
    return _idx_dataset("mnist", MNIST_MIRRORS, MNIST_SHA256, train, root)


def fashion_mnist(train: bool = True, root: str | os.PathLike | None = None):
    """60000 (train) or 10000 (test) images of clothes of 1x28x28 pixels; ten classes.

    H. Xiao, K. Rasul and R. Vollgraf, 2017 (arXiv:1708.07747, MIT licence). 30 MB to download,
    into `cache_folder(root)`.
    """
    return _idx_dataset("fashion-mnist", FASHION_MIRRORS, FASHION_SHA256, train, root)


def cifar10(train: bool = True, root: str | os.PathLike | None = None):
    """50000 (train) or 10000 (test) photographs of 3x32x32 pixels; ten classes.

    A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. 170 MB to
    download, into `cache_folder(root)`; 600 MB of memory as float32.
    """
    archive = fetch([CIFAR_URL], cache_folder(root) / "cifar10", CIFAR_SHA256)
    names = tuple(f"data_batch_{i}.bin" for i in range(1, 6)) if train else ("test_batch.bin",)
    return _dataset(*read_cifar(archive, names), 255)


BY_NAME: dict[str, Callable] = {
    "digits": digits,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
}


def load(name: str, train: bool = True):
    """A data set by its name: "digits", "mnist", "fashion-mnist" or "cifar10"."""
    if name not in BY_NAME:
        raise ValueError(f"datasets.load: expected one of {sorted(BY_NAME)}, got {name!r}")
    return BY_NAME[name](train)


def _read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file["images"], file["labels"]
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing; install minigrad again") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} is damaged ({error}); install minigrad again") from None
    if images.shape != (1797, 8, 8) or labels.shape != (1797,):
        raise DatasetError(
            f"{path} is damaged (expected 1797 images of 8x8, got {images.shape} with labels "
            f"{labels.shape}); install minigrad again"
        )
    return images, labels


def _idx_dataset(name: str, mirrors, checksums, train: bool, root):
    folder = cache_folder(root) / name
    prefix = "train" if train else "t10k"
    paths = [
        fetch([f"{mirror}{file}-ubyte.gz" for mirror in mirrors], folder, checksums[file])
        for file in (f"{prefix}-images-idx3", f"{prefix}-labels-idx1")
    ]
    images, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    if len(images) != len(labels):
        raise DatasetError(f"{folder}: {len(images)} images and {len(labels)} labels")
    return _dataset(images[:, None], labels, 255)


def _dataset(images: np.ndarray, labels: np.ndarray, white: int):
    """A TensorDataset of images scaled from 0..`white` to [0, 1] and their labels."""
    import minigrad
    from minigrad.utils.data import TensorDataset

    pixels = images.astype(np.float32)
    pixels /= white
    return TensorDataset(minigrad.from_numpy(pixels), minigrad.from_numpy(labels.astype(np.int64)))


__getattr__, __dir__ = namespace(__name__)
