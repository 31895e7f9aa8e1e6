"""Data sets of images, with torchvision's names, arguments and folders.

`root` is a folder of files, as torchvision leaves them there. `download=True` fetches MNIST,
Fashion-MNIST and CIFAR-10 where there is a connection; without one the error says which files to
put where. Samples are images of Pillow (extra `vision`), for `transform`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import minigrad
from minigrad import datasets as sources
from minigrad._names import namespace
from minigrad._pickle_reader import Reader, RefusedError
from minigrad.datasets.download import DatasetError, fetch
from minigrad.datasets.formats import read_cifar, read_idx
from minigrad.tensor import Tensor
from minigrad.utils.data import Dataset
from minigrad.vision._pillow import pillow
from minigrad.vision.transforms import functional as F

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "IMG_EXTENSIONS",
    "KMNIST",
    "MNIST",
    "DatasetError",
    "DatasetFolder",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "VisionDataset",
    "default_loader",
]

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class VisionDataset(Dataset):
    """A data set whose samples, or images and targets, go through transforms.

    transforms: of both (image, target); not together with `transform` and `target_transform`.
    """

    def __init__(
        self,
        root: str | os.PathLike | None = None,
        transforms: Callable | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
    ) -> None:
        if transforms is not None and (transform or target_transform):
            raise ValueError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.root = os.path.expanduser(root) if root is not None else None
        self.transforms, self.transform = transforms, transform
        self.target_transform = target_transform

    def _transformed(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transforms is not None:
            return self.transforms(image, target)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no length")

    def __repr__(self) -> str:
        lines = [f"Dataset {type(self).__name__}", f"    Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"    Root location: {self.root}")
        if self.transform is not None:
            lines.append(f"    Transform: {self.transform}")
        return "\n".join(lines)


# ------------------------------------------------------------------------ folders of images


def default_loader(path: str | os.PathLike) -> Any:
    """The image in a file, in colours."""
    with pillow("ImageFolder").open(path) as image:
        return image.convert("RGB")


class DatasetFolder(VisionDataset):
    """Samples in files, one folder for each class: `root/class/.../file`.

    Args:
        loader: reads a file, given its path.
        extensions: what names of files end with; or is_valid_file: a function of the path.
        allow_empty: a folder without such a file is a class, too.

    Attributes:
        classes: names, sorted; class_to_idx: their numbers; samples: (path, class); targets.
    """

    def __init__(
        self,
        root: str | os.PathLike,
        loader: Callable[[str], Any],
        extensions: Sequence[str] | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError(
                "Both extensions and is_valid_file cannot be None or not None at the same time"
            )
        self.loader, self.extensions = loader, extensions
        endings = tuple(extensions or ())
        self._is_valid = is_valid_file or (lambda path: path.lower().endswith(endings))
        self.classes, self.class_to_idx = self.find_classes(str(self.root))
        self.samples = self._find(allow_empty)
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The names of the classes, and their numbers. A subclass may define others."""
        if not os.path.isdir(directory):
            raise FileNotFoundError(f"{type(self).__name__}: there is no folder {directory}")
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        return classes, {name: number for number, name in enumerate(classes)}

    def _find(self, allow_empty: bool) -> list[tuple[str, int]]:
        found, empty = [], []
        for name, number in sorted(self.class_to_idx.items()):
            folder = os.path.join(str(self.root), name)
            paths = [
                os.path.join(where, file)
                for where, _, files in sorted(os.walk(folder, followlinks=True))
                for file in sorted(files)
            ]
            valid = [(path, number) for path in paths if self._is_valid(path)]
            found += valid
            if not valid:
                empty.append(name)
        if empty and not allow_empty:
            endings = f" Supported extensions are: {', '.join(self.extensions or ())}"
            raise FileNotFoundError(
                f"Found no valid file for the classes {', '.join(empty)}."
                f"{endings if self.extensions else ''}"
            )
        return found

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in files, one folder for each class: `root/dog/1.png`, `root/cat/2.png`."""

    def __init__(
        self,
        root: str | os.PathLike,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        endings = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(
            root, loader, endings, transform, target_transform, is_valid_file, allow_empty
        )
        self.imgs = self.samples


class FakeData(VisionDataset):
    """Noise, the same for the same index."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        rng = np.random.default_rng(index + self.random_offset)
        count, height, width = self.image_size
        pixels = rng.integers(0, 256, (height, width, count), dtype=np.uint8)
        return self._transformed(F.to_pil_image(pixels), int(rng.integers(self.num_classes)))

    def __len__(self) -> int:
        return self.size


# ------------------------------------------------------------------------ published data sets


class MNIST(VisionDataset):
    """Handwritten digits of 28 x 28: 60 000 to train, 10 000 to test.

    The files are in `root/MNIST/raw`, zipped or not. `data`: bytes (N, 28, 28); `targets`: (N,).
    """

    classes: ClassVar = [
        *("0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six"),
        *("7 - seven", "8 - eight", "9 - nine"),
    ]
    _mirrors: Sequence[str] = sources.MNIST_MIRRORS
    _checksums: Mapping[str, str] = sources.MNIST_SHA256

    def __init__(
        self,
        root: str | os.PathLike,
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        prefix = "train" if train else "t10k"
        images = read_idx(self._file(f"{prefix}-images-idx3", download), 3)
        labels = read_idx(self._file(f"{prefix}-labels-idx1", download), 1)
        if len(images) != len(labels):
            raise DatasetError(f"{self.raw_folder}: {len(images)} images, {len(labels)} labels")
        self.data = minigrad.from_numpy(images.copy())
        self.targets = minigrad.from_numpy(labels.astype(np.int64))

    @property
    def raw_folder(self) -> str:
        """Where the files are."""
        return os.path.join(str(self.root), type(self).__name__, "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The numbers of the classes."""
        return {name: number for number, name in enumerate(self.classes)}

    def _file(self, name: str, download: bool) -> Path:
        """One of the files; fetched where it is missing and that is asked for."""
        folder = Path(self.raw_folder)
        for path in (folder / f"{name}-ubyte", folder / f"{name}-ubyte.gz"):
            if path.exists():
                return path
        if download and self._mirrors:
            urls = [f"{mirror}{name}-ubyte.gz" for mirror in self._mirrors]
            return fetch(urls, folder, self._checksums[name])
        raise DatasetError(
            f"Dataset not found: there is no {folder / name}-ubyte or .gz. "
            + _advice(self._mirrors, "the file there")
        )

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = F.to_pil_image(self.data[index].numpy())
        return self._transformed(image, int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)


class FashionMNIST(MNIST):
    """Clothes of 28 x 28: 60 000 to train, 10 000 to test; in `root/FashionMNIST/raw`."""

    classes: ClassVar = [
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker"),
        *("Bag", "Ankle boot"),
    ]
    _mirrors, _checksums = sources.FASHION_MIRRORS, sources.FASHION_SHA256


class KMNIST(MNIST):
    """Japanese letters of 28 x 28: 60 000 to train, 10 000 to test; in `root/KMNIST/raw`, where you
    put them: minigrad does not download them."""

    classes: ClassVar = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
    _mirrors: Sequence[str] = ()


class CIFAR10(VisionDataset):
    """Photographs of 3 x 32 x 32: 50 000 to train, 10 000 to test.

    In `root`: the folder `cifar-10-batches-py` that torchvision leaves there, or the archive
    `cifar-10-binary.tar.gz`, which `download=True` fetches. `data`: bytes (N, 32, 32, 3) of NumPy;
    `targets`: a list.
    """

    classes: ClassVar = [
        *("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship"),
        "truck",
    ]
    base_folder = "cifar-10-batches-py"
    _train, _test = tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)
    _labels = "labels"
    _archive: str | None = sources.CIFAR_URL.rpartition("/")[2]

    def __init__(
        self,
        root: str | os.PathLike,
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train, folder = train, Path(str(self.root))
        names = self._train if train else self._test
        batches = folder / self.base_folder
        archive = folder / self._archive if self._archive else None
        if batches.is_dir():
            images, labels = _read_batches([batches / name for name in names], self._labels)
        elif archive and (archive.exists() or download):
            archive = fetch([sources.CIFAR_URL], folder, sources.CIFAR_SHA256)
            images, labels = read_cifar(archive, tuple(f"{name}.bin" for name in names))
        else:
            what = f"neither {batches} nor {archive}" if archive else f"no {batches}"
            part = "one of them there" if archive else "the folder there"
            raise DatasetError(f"Dataset not found: there is {what}. " + _advice(archive, part))
        self.data = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        self.targets = labels.tolist()
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._transformed(F.to_pil_image(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)


class CIFAR100(CIFAR10):
    """Photographs of 3 x 32 x 32 of 100 classes: 50 000 to train, 10 000 to test.

    In `root`: the folder `cifar-100-python` that torchvision leaves there; minigrad does not
    download it. The names of the classes are those in its file `meta`.
    """

    base_folder = "cifar-100-python"
    _train, _test, _labels, _archive = ("train",), ("test",), "fine_labels", None

    def __init__(self, root: str | os.PathLike, *args: Any, **named: Any) -> None:
        super().__init__(root, *args, **named)
        meta = _read_pickle(Path(str(self.root)) / self.base_folder / "meta")
        names = [x if isinstance(x, str) else x.decode() for x in meta["fine_label_names"]]
        vars(self)["classes"] = names  # of the files, not of the class
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}


def _advice(downloads: Any, part: str) -> str:
    copy = f"copy {part}"
    return f"You can use download=True to download it, or {copy}" if downloads else f"Please {copy}"


def _read_pickle(path: Path) -> dict[str, Any]:
    """The dict in a file, read without running code."""
    try:
        content = Reader(_no_storage, {}).read(path.read_bytes())
        return {k if isinstance(k, str) else k.decode(): v for k, v in content.items()}
    except RefusedError:
        raise
    except FileNotFoundError:
        raise DatasetError(f"Dataset not found or corrupted: there is no {path}") from None
    except Exception as error:
        raise DatasetError(f"{path} is damaged ({type(error).__name__}: {error})") from None


def _read_batches(paths: Sequence[Path], named: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 32, 32) and labels (N,) of CIFAR's pickles; `named`: the key of the labels."""
    images, labels = [], []
    for path in paths:
        batch = _read_pickle(path)
        try:
            pixels = np.asarray(_plain(batch["data"]), np.uint8).reshape(-1, 3, 32, 32)
            numbers = np.asarray(batch[named], np.int64)
        except Exception as error:
            raise DatasetError(f"{path} is damaged ({type(error).__name__}: {error})") from None
        if len(pixels) != len(numbers):
            raise DatasetError(f"{path}: {len(pixels)} images, {len(numbers)} labels")
        images.append(pixels)
        labels.append(numbers)
    return np.concatenate(images), np.concatenate(labels)


def _no_storage(*args: Any) -> Any:
    raise RefusedError("a tensor in a data set")


def _plain(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


_refuse, __dir__ = namespace(__name__)


def __getattr__(name: str) -> Any:
    if name[:1].isupper():
        raise AttributeError(
            f"module {__name__!r} has no {name}: it has CIFAR10, CIFAR100, DatasetFolder, "
            "FakeData, FashionMNIST, ImageFolder, KMNIST and MNIST; read other data with a "
            "Dataset of your own"
        )
    return _refuse(name)
