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

from minigrad.datasets.download import DatasetError, cache_folder, fetch
from minigrad.datasets.formats import read_cifar, read_idx

__all__ = ["DatasetError", "cache_folder", "cifar10", "digits", "fashion_mnist", "load", "mnist"]

DIGITS_TRAIN = 1437  # the file is shuffled: the first 1437 train, the last 360 test

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
FASHION_MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
FASHION_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"


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
    return _idx_dataset("mnist", MNIST_MIRRORS, MNIST_MD5, train, root)


def fashion_mnist(train: bool = True, root: str | os.PathLike | None = None):
    """60000 (train) or 10000 (test) images of clothes of 1x28x28 pixels; ten classes.

    H. Xiao, K. Rasul and R. Vollgraf, 2017 (arXiv:1708.07747, MIT licence). 30 MB to download,
    into `cache_folder(root)`.
    """
    return _idx_dataset("fashion-mnist", FASHION_MIRRORS, FASHION_MD5, train, root)


def cifar10(train: bool = True, root: str | os.PathLike | None = None):
    """50000 (train) or 10000 (test) photographs of 3x32x32 pixels; ten classes.

    A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. 170 MB to
    download, into `cache_folder(root)`; 600 MB of memory as float32.
    """
    archive = fetch([CIFAR_URL], cache_folder(root) / "cifar10", CIFAR_MD5)
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
        fetch([mirror + file for mirror in mirrors], folder, checksums[file])
        for file in (f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz")
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
