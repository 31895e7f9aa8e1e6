"""Data sets of images and pictures of several images, and programs that import torchvision."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import minigrad
from minigrad.utils.data import DataLoader
from minigrad.vision import datasets, io, transforms, utils

pytestmark = pytest.mark.usefixtures("reference_backend")


def test_image_folder(rng, tmp_path):
    wanted = []
    for number, name in enumerate(["ant", "bee"]):
        for i in range(3):
            path = tmp_path / name / ("deep" if i == 2 else "") / f"{i}.{'png' if i else 'PNG'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
            wanted.append((pixels, number))
    (tmp_path / "ant" / "notes.txt").write_text("no image")
    data = datasets.ImageFolder(tmp_path, transforms.PILToTensor(), lambda y: 10 * y)
    assert data.classes == ["ant", "bee"] and data.class_to_idx == {"ant": 0, "bee": 1}
    assert len(data) == 6 == len(data.imgs) and data.targets == [0, 0, 0, 1, 1, 1]
    found = {(x.numpy().tobytes(), y) for x, y in data}
    assert found == {(p.transpose(2, 0, 1).tobytes(), 10 * y) for p, y in wanted}
    batch, targets = next(iter(DataLoader(data, 6)))
    assert batch.shape == (6, 3, 4, 5) and targets.tolist() == [0, 0, 0, 10, 10, 10]
    assert repr(data).startswith("Dataset ImageFolder\n    Number of datapoints: 6\n    Root")
    only = datasets.ImageFolder(tmp_path, is_valid_file=lambda path: path.endswith("1.png"))
    assert len(only) == 2 and only[0][0].mode == "RGB"
    texts = datasets.DatasetFolder(tmp_path, len, (".txt",), allow_empty=True)
    assert len(texts) == 1 and texts[0][0] == len(str(tmp_path / "ant" / "notes.txt"))


def test_folders_that_are_no_data_sets(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        datasets.ImageFolder(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder"):
        datasets.ImageFolder(tmp_path)
    (tmp_path / "ant").mkdir()
    with pytest.raises(FileNotFoundError, match=r"classes ant. Supported extensions are: .jpg"):
        datasets.ImageFolder(tmp_path)
    assert len(datasets.ImageFolder(tmp_path, allow_empty=True)) == 0
    with pytest.raises(ValueError, match="cannot be None or not None at the same time"):
        datasets.DatasetFolder(tmp_path, len)


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wb") as file:
        file.write(header + array.tobytes())


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("kind", [datasets.MNIST, datasets.FashionMNIST])
def test_mnist_from_local_files(kind, ending, rng, tmp_path):
    images = rng.integers(0, 256, (7, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, 7, dtype=np.uint8)
    raw = tmp_path / kind.__name__ / "raw"
    write_idx(raw / f"t10k-images-idx3-ubyte{ending}", images)
    write_idx(raw / f"t10k-labels-idx1-ubyte{ending}", labels)
    data = kind(tmp_path, train=False, download=True)  # nothing is left to fetch
    assert len(data) == 7 and data.targets.tolist() == labels.tolist()
    assert data.data.dtype is minigrad.uint8 and data.data.shape == (7, 28, 28)
    image, label = data[3]
    assert image.mode == "L" and (np.asarray(image) == images[3]).all() and label == labels[3]
    scaled = kind(tmp_path, False, transforms.ToTensor(), str)
    assert scaled[3][0].shape == (1, 28, 28) and scaled[3][1] == str(labels[3])
    assert len(data.classes) == 10 == len(data.class_to_idx)
    with pytest.raises(RuntimeError, match=r"train-images-idx3-ubyte or .gz. You can use download"):
        kind(tmp_path)


def test_downloads_that_fail_say_what_to_do(monkeypatch, tmp_path):
    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("minigrad.datasets.download._download", offline)
    for kind, file in ((datasets.MNIST, "train-images-idx3-ubyte.gz"),
                       (datasets.CIFAR10, "cifar-10-binary.tar.gz")):  # fmt: skip
        with pytest.raises(RuntimeError, match=rf"{file} could not be .*no route.*copy the file"):
            kind(tmp_path, download=True)
        with pytest.raises(RuntimeError, match="Dataset not found: there is n"):
            kind(tmp_path)


def python_2_pickle(batch):
    """What Python 2 and its NumPy wrote, in which bytes are text."""
    data, labels = batch[b"data"], batch[b"labels"]
    text = (
        b"U\x04data"
        + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    )
    text += b"(K\x01" + b"J" + struct.pack("<i", len(data)) + b"M\x00\x0c\x86"
    text += b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN"
    text += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    text += b"I00\nT" + struct.pack("<i", data.size) + data.tobytes() + b"tb"
    numbers = b"U\x06labels](" + b"".join(b"K" + bytes([n]) for n in labels) + b"e"
    return b"\x80\x02}(" + numbers + text + b"u."


@pytest.mark.parametrize("write", [pickle.dumps, lambda b: pickle.dumps(b, 2), python_2_pickle])
def test_cifar10_from_local_files(write, rng, tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    batch = {
        b"data": rng.integers(0, 256, (3, 3072), dtype=np.uint8),
        b"labels": rng.integers(0, 10, 3).tolist(),
    }
    (folder / "test_batch").write_bytes(write(batch))
    data = datasets.CIFAR10(tmp_path, train=False, transform=transforms.PILToTensor())
    assert data.targets == batch[b"labels"] and data.data.shape == (3, 32, 32, 3)
    x, y = data[2]
    assert (x.numpy() == batch[b"data"][2].reshape(3, 32, 32)).all() and y == batch[b"labels"][2]
    with pytest.raises(RuntimeError, match="there is no .*data_batch_1"):
        datasets.CIFAR10(tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(pickle.UnpicklingError, match=r"the file names builtins.print"):
        datasets.CIFAR10(tmp_path, train=False)
    (folder / "test_batch").write_bytes(write(batch)[:-9])
    with pytest.raises(RuntimeError, match="test_batch is damaged"):
        datasets.CIFAR10(tmp_path, train=False)


def test_cifar100_from_local_files(rng, tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    batch = {
        b"data": rng.integers(0, 256, (3, 3072), dtype=np.uint8),
        b"coarse_labels": [0, 0, 0],
        b"fine_labels": [7, 99, 3],
    }
    (folder / "test").write_bytes(pickle.dumps(batch, 2))
    names = [f"class {i}".encode() for i in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names}, 2))
    data = datasets.CIFAR100(tmp_path, train=False, transform=transforms.PILToTensor())
    assert data.targets == [7, 99, 3] and data.class_to_idx["class 99"] == 99
    assert (data[1][0].numpy() == batch[b"data"][1].reshape(3, 32, 32)).all()
    for made in (datasets.CIFAR100, datasets.KMNIST):
        with pytest.raises(RuntimeError, match=r"there is no .*\. Please copy the f"):
            made(tmp_path / "none", download=True)


def test_fake_data():
    data = datasets.FakeData(5, (3, 6, 7), 4, transforms.ToTensor())
    assert len(data) == 5 and data[1][0].shape == (3, 6, 7)
    assert minigrad.equal(data[1][0], data[1][0]) and not minigrad.equal(data[1][0], data[2][0])
    assert all(0 <= y < 4 for _, y in (data[i] for i in range(5)))
    with pytest.raises(IndexError):
        data[5]
    with pytest.raises(AttributeError, match=r"has no ImageNet: it has CIFAR10, .*of your own"):
        _ = datasets.ImageNet


def test_grids(rng, tmp_path):
    x = rng.random((5, 3, 4, 6)).astype(np.float32)
    wanted = np.full((3, 2 * 5 + 1, 3 * 7 + 1), 0.5, np.float32)
    for i in range(5):
        row, column = divmod(i, 3)
        wanted[:, 5 * row + 1 : 5 * row + 5, 7 * column + 1 : 7 * column + 7] = x[i]
    found = utils.make_grid(minigrad.from_numpy(x), nrow=3, padding=1, pad_value=0.5)
    assert (found.numpy() == wanted).all()
    listed = utils.make_grid([minigrad.from_numpy(i) for i in x], 3, 1, pad_value=0.5)
    assert (listed.numpy() == wanted).all()
    scaled = utils.make_grid(minigrad.from_numpy(3 * x - 1), padding=0, normalize=True)
    low, high = x.min(), x.max()
    np.testing.assert_allclose(scaled[:, :, :6].numpy(), (x[0] - low) / (high - low), atol=1e-6)
    each = utils.make_grid(minigrad.from_numpy(x), padding=0, normalize=True, scale_each=True)
    assert [each[:, :, 6 * i : 6 * i + 6].max().item() for i in range(5)] == [1] * 5
    ranged = utils.make_grid(minigrad.from_numpy(x), 8, 0, True, (0.2, 0.6))
    np.testing.assert_allclose(
        ranged[:, :, 6:12].numpy(), ((x[1] - 0.2) / 0.4).clip(0, 1), 1e-5, 1e-6
    )
    assert utils.make_grid(minigrad.zeros(1, 28, 28)).shape == (3, 28, 28)
    utils.save_image(minigrad.from_numpy(x), tmp_path / "x.png", nrow=3, padding=1, pad_value=0.5)
    saved = np.asarray(Image.open(tmp_path / "x.png")).transpose(2, 0, 1)
    assert (saved == np.floor(wanted * 255 + 0.5)).all()
    with pytest.raises(TypeError, match="tensor or list of tensors expected, got list"):
        utils.make_grid([1])


def test_images_in_files(rng, tmp_path):
    pixels = minigrad.from_numpy(rng.integers(0, 256, (3, 5, 7), dtype=np.uint8))
    io.write_png(pixels, tmp_path / "a.png")
    assert io.read_image(tmp_path / "a.png").equal(pixels)
    raw = np.fromfile(tmp_path / "a.png", np.uint8)
    assert io.decode_image(minigrad.from_numpy(raw)).equal(pixels)
    grey = io.read_image(str(tmp_path / "a.png"), io.ImageReadMode.GRAY)
    image = Image.open(tmp_path / "a.png")
    assert (grey.numpy()[0] == np.asarray(image.convert("L"))).all()
    assert io.read_image(tmp_path / "a.png", "RGB_ALPHA").shape == (4, 5, 7)
    image.convert("P").save(tmp_path / "b.gif")
    assert io.read_image(tmp_path / "b.gif").shape == (3, 5, 7)
    flat = minigrad.full((3, 8, 8), 90, dtype=minigrad.uint8)
    io.write_jpeg(flat, tmp_path / "c.jpg", quality=95)
    assert (io.read_image(tmp_path / "c.jpg").int() - 90).abs().max().item() <= 2
    with pytest.raises(ValueError, match="'GRAY'.*got 'grey'"):
        io.read_image(tmp_path / "a.png", "grey")


def test_programs_that_import_torchvision(tmp_path):
    program = """
import torch, torchvision
import torchvision.transforms as T
import torchvision.transforms.functional as TF
import torchvision.transforms.v2 as v2
from torchvision.io import read_image
from torchvision import datasets, models, utils
from torchvision.models import resnet18, ResNet18_Weights
from torchvision.models.resnet import BasicBlock
transform = T.Compose([T.RandomResizedCrop(32), T.ToTensor(), T.Normalize((0.5,) * 3, (0.5,) * 3)])
loader = torch.utils.data.DataLoader(datasets.FakeData(4, (3, 40, 40), 3, transform), 2)
x, y = next(iter(loader))
model = resnet18(num_classes=3).eval()
print(model(x).shape, torchvision.models is models, torchvision.utils.make_grid(x).shape)
print(isinstance(model.layer1[0], BasicBlock), ResNet18_Weights.DEFAULT.name)
try:
    import torchvision.prototype
except ModuleNotFoundError as error:
    print(error)
"""
    command = [sys.executable, "-m", "minigrad", "run", "-"]
    environment = os.environ | {"MINIGRAD_BACKEND": "numpy"}
    done = subprocess.run(
        command, input=program, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.stdout.splitlines() == [
        "minigrad.Size([2, 3]) True minigrad.Size([3, 36, 70])",
        "True IMAGENET1K_V1",
        "No module named 'torchvision.prototype': this program runs on minigrad, which has no "
        "minigrad.vision.prototype",
    ], done.stderr
