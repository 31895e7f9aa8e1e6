"""Bad input: every kind that a user meets, the exception it raises and what the message names.

One place to see them all; the rooms' own tests go deeper.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kernels
import minigrad
import minigrad.nn.functional as F
from kernels.simt import cuda

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("numba", "numpy")


@pytest.fixture(params=BACKENDS)
def backend(request):
    with minigrad.backends.use(request.param):
        yield


# shapes and dtypes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: minigrad.ones(3) + minigrad.ones(4), ("3", "4")),
        (lambda: minigrad.ones(2, 3) @ minigrad.ones(4, 5), ("3", "4")),
        (lambda: minigrad.ones(6).reshape(4, 2), ("[4, 2]", "6")),
        (lambda: minigrad.cat([minigrad.ones(2, 3), minigrad.ones(2, 4)]), ("3", "4")),
        (lambda: F.linear(minigrad.ones(2, 5), minigrad.ones(3, 4)), ("5", "4")),
        (
            lambda: F.conv2d(minigrad.ones(1, 3, 8, 8), minigrad.ones(4, 2, 3, 3)),
            ("channels", "3"),
        ),
        (
            lambda: F.conv2d(minigrad.ones(1, 1, 2, 2), minigrad.ones(1, 1, 3, 3)),
            ("Kernel size", "2"),
        ),
        (
            lambda: F.cross_entropy(minigrad.ones(4, 3), minigrad.zeros(5, dtype=minigrad.int64)),
            ("4", "5"),
        ),
    ],
)
def test_shapes_that_do_not_match(backend, call, words):
    with pytest.raises((RuntimeError, ValueError)) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: minigrad.ones(2, 2) @ minigrad.ones(2, 2, dtype=minigrad.float64), ("dtype",)),
        (lambda: F.embedding(minigrad.ones(2), minigrad.ones(3, 4)), ("embedding", "FloatTensor")),
        (lambda: minigrad.tensor([1, 2], requires_grad=True), ("floating point",)),
        (lambda: minigrad.tensor([1, 2]).mean(), ("mean", "floating point")),
        (lambda: minigrad.ones(3)[minigrad.ones(3)], ("ind",)),
        (lambda: F.cross_entropy(minigrad.ones(2, 3), minigrad.ones(2)), ("float32",)),
    ],
)
def test_wrong_dtypes(backend, call, words):
    with pytest.raises((RuntimeError, IndexError, TypeError)) as caught:
        call()
    for word in words:
        assert word.lower() in str(caught.value).lower()


def test_a_class_that_is_not_there(backend):
    with pytest.raises((IndexError, RuntimeError), match="7"):
        F.cross_entropy(minigrad.ones(2, 3), minigrad.tensor([0, 7]))


def test_an_index_that_is_not_there(backend):
    with pytest.raises(IndexError, match="5"):
        minigrad.ones(3)[5]
    with pytest.raises(IndexError):
        F.embedding(minigrad.tensor([0, 9]), minigrad.ones(3, 4))


# devices and backends


def test_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match="tpu"):
        minigrad.ones(2, device="tpu")
    if not minigrad.cuda.is_available():
        with pytest.raises((RuntimeError, AssertionError), match="(?i)cuda"):
            minigrad.ones(2).to("cuda")


def test_an_unknown_backend():
    with pytest.raises(ValueError, match="'tensorrt'"):
        minigrad.backends.set("tensorrt")
    with pytest.raises(ValueError, match="'tensorrt'"):
        kernels.matmul(np.ones((2, 2)), np.ones((2, 2)), backend="tensorrt")


def test_an_unknown_backend_in_the_environment():
    done = subprocess.run(
        [sys.executable, "-c", "import minigrad; minigrad.ones(2) + 1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MINIGRAD_BACKEND": "tensorrt"},
    )
    assert done.returncode == 1
    assert "'tensorrt'" in done.stderr.splitlines()[-1]


# backward


def test_backward_twice(backend):
    x = minigrad.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_backward_on_a_non_scalar(backend):
    with pytest.raises(RuntimeError, match="scalar"):
        (minigrad.ones(3, requires_grad=True) * 2).backward()


def test_backward_without_a_graph():
    with pytest.raises(RuntimeError, match="does not require grad"):
        minigrad.ones(3).sum().backward()


def test_in_place_on_a_saved_value(backend):
    x = minigrad.ones(3, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_on_a_leaf():
    with pytest.raises(RuntimeError, match="leaf"):
        minigrad.ones(3, requires_grad=True).add_(1)


# files


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    path = tmp_path / "net.mg"
    minigrad.save({"weight": minigrad.arange(1000.0)}, path)
    return path


@pytest.mark.parametrize("keep", [0, 1, 50, 0.5, -1])
def test_a_truncated_checkpoint(checkpoint, keep):
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep])
    with pytest.raises((RuntimeError, ValueError, EOFError, OSError)) as caught:
        minigrad.load(checkpoint)
    assert "net.mg" in str(caught.value)


class Hostile:
    def __reduce__(self):
        return (os.system, ("echo hostile > hostile-ran",))


def test_a_hostile_checkpoint_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = tmp_path / "bare.pkl"
    bare.write_bytes(pickle.dumps({"weight": Hostile()}))
    zipped = tmp_path / "zipped.pt"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Hostile()))
    array = tmp_path / "array.npz"
    np.savez(array, weight=np.array([Hostile()], dtype=object))
    for path in (bare, zipped, array):
        with pytest.raises(Exception, match=path.name):
            minigrad.load(path)
    assert not (tmp_path / "hostile-ran").exists()


def test_a_missing_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.mg"):
        minigrad.load(tmp_path / "absent.mg")


def test_an_interrupted_save_leaves_the_old_file(checkpoint):
    """A process that is killed while it saves, over and over: the file is always a whole one."""
    code = (
        "import minigrad, sys\n"
        "big = {'weight': minigrad.ones(2_000_000)}\n"
        "print('ready', flush=True)\n"
        "while True: minigrad.save(big, sys.argv[1])\n"
    )
    for pause in (0.0, 0.01, 0.05):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(checkpoint)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "MINIGRAD_BACKEND": "numpy"},
        )
        process.stdout.readline()
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        weight = minigrad.load(checkpoint)["weight"]
        assert len(weight) in (1000, 2_000_000)


def test_a_save_that_fails_leaves_the_old_file(checkpoint):
    before = checkpoint.read_bytes()
    with pytest.raises(Exception):  # noqa: B017 - which one is the serialiser's affair
        minigrad.save({"weight": minigrad.ones(10), "bad": lambda: None}, checkpoint)
    assert checkpoint.read_bytes() == before
    assert [p.name for p in checkpoint.parent.iterdir()] == ["net.mg"]


def test_a_state_dict_of_another_network():
    net = minigrad.nn.Linear(3, 2)
    with pytest.raises(RuntimeError, match=r"(?s)Missing key.*bias"):
        net.load_state_dict({"weight": minigrad.zeros(2, 3)})
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        net.load_state_dict({"weight": minigrad.zeros(2, 4), "bias": minigrad.zeros(2)})


# kernels


@cuda.jit
def copy(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


def test_a_block_too_large():
    x = np.zeros(2048, np.float32)
    with pytest.raises(Exception, match="1024"):
        copy[1, 1025](x, x.copy())
    with pytest.raises(Exception, match="64"):
        copy[1, (2, 2, 128)](x, x.copy())


def reads_too_far(x, out):
    i = cuda.grid(1)
    out[i] = x[i + 1]


def test_a_kernel_that_reads_out_of_bounds():
    x, out = np.zeros(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(IndexError) as caught:
        cuda.jit(debug=True)(reads_too_far)[2, 4](x, out)
    message = str(caught.value)
    line = reads_too_far.__code__.co_firstlineno + 2
    for word in ("x", "8", "(8,)", "(1, 0, 0)", "(3, 0, 0)", str(line), "test_bad_input.py"):
        assert word in message, f"no {word} in: {message}"


def test_a_kernel_family_checks_before_it_launches(backend):
    with kernels.trace() as trace, pytest.raises((ValueError, RuntimeError), match="matmul"):
        kernels.matmul(np.ones((2, 3), np.float32), np.ones((4, 5), np.float32))
    assert not trace.rows
