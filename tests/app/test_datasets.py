"""Data sets: their files' formats, the downloader, and what they say when something is wrong."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad
from minigrad import datasets
from minigrad.datasets import download, formats


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server():
    """A web server on this machine: `server.files` maps names to bytes, `server.log` to ranges."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            wanted = self.headers.get("Range")
            httpd.log.append((name, wanted))
            if name not in httpd.files:
                self.send_error(404)
                return
            content = httpd.files[name]
            start = int(wanted[len("bytes=") : -1]) if wanted and httpd.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: httpd.break_after])

        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.files, httpd.log, httpd.break_after, httpd.ranges = {}, [], None, True
    httpd.url = f"http://127.0.0.1:{httpd.server_address[1]}/"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()
    thread.join()


# digits


def test_digits_are_what_the_authors_published():
    train, test = datasets.digits(), datasets.digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    for part in (train, test):
        images, labels = part.tensors
        assert images.dtype == minigrad.float32
        assert labels.dtype == minigrad.int64
        assert tuple(images.shape[1:]) == (1, 8, 8)
        assert (float(images.min()), float(images.max())) == (0.0, 1.0)
    labels = np.concatenate([train.tensors[1].numpy(), test.tensors[1].numpy()])
    # Table of the data set's description: digits of each class in its test part.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_are_pictures_of_their_labels():
    """The nearest training image names the digit: a shuffle of images without labels fails."""
    train, test = datasets.digits(), datasets.digits(train=False)
    x, y = (t.numpy().reshape(len(t), -1) for t in (train.tensors[0], test.tensors[0]))
    distance = (x**2).sum(1) - 2 * y @ x.T
    nearest = train.tensors[1].numpy()[distance.argmin(1)]
    assert (nearest == test.tensors[1].numpy()).mean() > 0.97


def test_train_and_test_share_no_image():
    train, test = datasets.digits(), datasets.digits(train=False)
    seen = {image.tobytes() for image in train.tensors[0].numpy()}
    shared = sum(image.tobytes() in seen for image in test.tensors[0].numpy())
    assert shared == 0


@pytest.mark.parametrize("fault", ["missing", "truncated", "not a zip", "other arrays", "pickled"])
def test_a_damaged_digits_file_is_named(tmp_path, fault):
    path = tmp_path / "digits.npz"
    whole = (download.Path(datasets.__file__).with_name("digits.npz")).read_bytes()
    if fault == "truncated":
        path.write_bytes(whole[:20000])
    elif fault == "not a zip":
        path.write_bytes(b"hello")
    elif fault == "other arrays":
        np.savez(path, images=np.zeros((3, 8, 8)), labels=np.zeros(3))
    elif fault == "pickled":
        np.savez(path, images=np.array([object()]), labels=np.zeros(3))
    with pytest.raises(datasets.DatasetError, match=r"digits\.npz is (missing|damaged)"):
        datasets._read_digits(path)


def test_an_unknown_data_set_lists_the_known():
    with pytest.raises(ValueError, match="'digits', 'fashion-mnist', 'mnist'.*got 'imagenet'"):
        datasets.load("imagenet")


# formats


def test_idx_round_trip(tmp_path, rng):
    images = rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_bytes(images)))
    np.testing.assert_array_equal(formats.read_idx(path, 3), images)


def test_faulty_idx_files_are_refused(tmp_path):
    path = tmp_path / "labels.gz"
    good = idx_bytes(np.arange(9, dtype=np.uint8))
    zipped = gzip.compress(good)
    huge = bytes((0, 0, 8, 1)) + struct.pack(">I", 2**32 - 1)
    for content, message in (
        (zipped[:-9], "not a whole gzip file"),
        (good, "not a whole gzip file"),
        (zipped[:12] + b"\xff" * 8 + zipped[20:], "not a whole gzip file"),
        (gzip.compress(good[:-1]), "9 bytes, and the file holds 8"),
        (gzip.compress(good + b"\0"), "9 bytes, and the file holds 10"),
        (gzip.compress(b"\0\0\x0d\1" + good[4:]), "unsigned bytes with 1 dimensions"),
        (gzip.compress(b""), "starts with nothing"),
        (gzip.compress(huge), "4294967295 bytes, and the file holds 0"),
    ):
        path.write_bytes(content)
        with pytest.raises(datasets.DatasetError, match=message) as caught:
            formats.read_idx(path, 1)
        assert str(path) in str(caught.value)
    with pytest.raises(datasets.DatasetError, match="no such file"):
        formats.read_idx(tmp_path / "absent.gz", 1)


def cifar_archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def cifar_records(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def test_cifar_records(tmp_path, rng):
    images = rng.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(0, 10, 6, dtype=np.uint8)
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(
        cifar_archive(
            {
                "a.bin": cifar_records(images[:4], labels[:4]),
                "b.bin": cifar_records(images[4:], labels[4:]),
            }
        )
    )
    got_images, got_labels = formats.read_cifar(path, ("a.bin", "b.bin"))
    np.testing.assert_array_equal(got_images, images)
    np.testing.assert_array_equal(got_labels, labels)


def test_faulty_cifar_archives_are_refused(tmp_path):
    path = tmp_path / "cifar.tar.gz"
    record = bytes(formats.CIFAR_RECORD)
    for content, message in (
        (b"no archive", "not a whole tar archive"),
        (cifar_archive({"a.bin": bytes(range(256)) * 300})[:-100], "not a whole tar archive"),
        (cifar_archive({"b.bin": record}), "a.bin.* not found"),
        (cifar_archive({"a.bin": record[:-1]}), "expected records of 3073 bytes, got 3072"),
        (cifar_archive({"a.bin": b""}), "got 0 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(datasets.DatasetError, match=message):
            formats.read_cifar(path, ("a.bin",))


# the downloader


def test_a_download_is_kept_and_not_repeated(server, tmp_path):
    server.files["data.gz"] = content = bytes(range(256)) * 5000
    for _ in range(2):
        path = download.fetch([server.url + "data.gz"], tmp_path / "new", sha256(content))
        assert path.read_bytes() == content
    assert len(server.log) == 1
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["data.gz"]


def test_a_broken_download_is_resumed(server, tmp_path):
    server.files["data.gz"] = content = bytes(range(256)) * 5000
    server.break_after = 300_000
    with pytest.raises(datasets.DatasetError, match="ended after 300000 of 1280000 bytes"):
        download.fetch([server.url + "data.gz"], tmp_path, sha256(content))
    assert [p.name for p in tmp_path.iterdir()] == ["data.gz.part"]
    server.break_after = None
    path = download.fetch([server.url + "data.gz"], tmp_path, sha256(content))
    assert path.read_bytes() == content
    assert server.log[-1] == ("data.gz", "bytes=300000-")


def test_a_server_that_cannot_resume_starts_over(server, tmp_path):
    server.files["data.gz"] = content = b"0123456789" * 1000
    server.ranges = False
    (tmp_path / "data.gz.part").write_bytes(content[:77])
    path = download.fetch([server.url + "data.gz"], tmp_path, sha256(content))
    assert path.read_bytes() == content


def test_a_complete_part_is_taken(server, tmp_path):
    server.files["data.gz"] = content = b"0123456789" * 1000
    (tmp_path / "data.gz.part").write_bytes(content)
    path = download.fetch([server.url + "data.gz"], tmp_path, sha256(content))
    assert path.read_bytes() == content


def test_the_second_mirror_is_asked(server, tmp_path):
    server.files["mirror/data.gz"] = content = b"0123456789"
    urls = [server.url + "data.gz", server.url + "mirror/data.gz"]
    assert download.fetch(urls, tmp_path, sha256(content)).read_bytes() == content


def test_two_that_download_at_once_do_it_once(server, tmp_path):
    server.files["data.gz"] = content = bytes(range(256)) * 5000
    fetch = functools.partial(download.fetch, [server.url + "data.gz"], tmp_path, sha256(content))
    with ThreadPoolExecutor() as pool:
        paths = [pool.submit(fetch) for _ in range(4)]
        assert {path.result().read_bytes() for path in paths} == {content}
    assert len(server.log) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["data.gz"]


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    server.files["data.gz"] = b"something else"
    with pytest.raises(datasets.DatasetError, match="checksum of what came is not"):
        download.fetch([server.url + "data.gz"], tmp_path, sha256(b"what was published"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_in_the_cache_is_named(server, tmp_path):
    (tmp_path / "data.gz").write_bytes(b"bit rot")
    with pytest.raises(datasets.DatasetError, match=r"data\.gz: the checksum differs.*delete it"):
        download.fetch([server.url + "data.gz"], tmp_path, sha256(b"whole"))
    assert server.log == []


def test_offline_says_what_to_do(tmp_path):
    with pytest.raises(datasets.DatasetError, match=r"(?s)could not be downloaded.*copy the file"):
        download.fetch(["http://127.0.0.1:9/data.gz"], tmp_path, sha256(b""))


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))
    assert datasets.cache_folder() == tmp_path / "datasets"
    assert datasets.cache_folder(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("MINIGRAD_CACHE_DIR")
    assert datasets.cache_folder().parts[-3:] == (".cache", "minigrad", "datasets")


# the data sets that are downloaded, from a server with small files of the same format


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("train", [True, False])
def test_mnist_and_fashion_mnist(server, tmp_path, monkeypatch, rng, name, train):
    prefix = "train" if train else "t10k"
    images = rng.integers(0, 256, (7, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, 7, dtype=np.uint8)
    sums = {}
    for file, array in (("images-idx3", images), ("labels-idx1", labels)):
        content = gzip.compress(idx_bytes(array))
        server.files[f"{prefix}-{file}-ubyte.gz"] = content
        sums[f"{prefix}-{file}"] = sha256(content)
    upper = "MNIST" if name == "mnist" else "FASHION"
    monkeypatch.setattr(datasets, f"{upper}_MIRRORS", (server.url,))
    monkeypatch.setattr(datasets, f"{upper}_SHA256", sums)
    part = datasets.BY_NAME[name](train=train, root=tmp_path)
    np.testing.assert_array_equal(part.tensors[0].numpy()[:, 0], images / np.float32(255))
    np.testing.assert_array_equal(part.tensors[1].numpy(), labels)
    assert len(list((tmp_path / name).iterdir())) == 2


def test_images_and_labels_must_agree(server, tmp_path, monkeypatch):
    sums = {}
    for file, array in (
        ("train-images-idx3", np.zeros((3, 28, 28), np.uint8)),
        ("train-labels-idx1", np.zeros(4, np.uint8)),
    ):
        content = server.files[f"{file}-ubyte.gz"] = gzip.compress(idx_bytes(array))
        sums[file] = sha256(content)
    monkeypatch.setattr(datasets, "MNIST_MIRRORS", (server.url,))
    monkeypatch.setattr(datasets, "MNIST_SHA256", sums)
    with pytest.raises(datasets.DatasetError, match="3 images and 4 labels"):
        datasets.mnist(root=tmp_path)


def test_cifar10(server, tmp_path, monkeypatch, rng):
    images = rng.integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(5, dtype=np.uint8)
    members = {
        f"data_batch_{i + 1}.bin": cifar_records(images[i : i + 1], labels[i : i + 1])
        for i in range(5)
    }
    members["test_batch.bin"] = cifar_records(images[:2], labels[:2])
    server.files["cifar-10-binary.tar.gz"] = content = cifar_archive(members)
    monkeypatch.setattr(datasets, "CIFAR_URL", server.url + "cifar-10-binary.tar.gz")
    monkeypatch.setattr(datasets, "CIFAR_SHA256", sha256(content))
    train = datasets.cifar10(root=tmp_path)
    np.testing.assert_array_equal(train.tensors[0].numpy(), images / np.float32(255))
    np.testing.assert_array_equal(train.tensors[1].numpy(), labels)
    assert len(datasets.cifar10(train=False, root=tmp_path)) == 2
    assert len(server.log) == 1
