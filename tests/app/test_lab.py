"""`minigrad lab`: ladders, kernels in files, and the one line that a mistake gets."""

from __future__ import annotations

import json

import pytest

from minigrad import cli
from minigrad.commands import lab as command

SOURCE = """
import numpy as np
from kernels import cuda


@cuda.jit
def scale(x, out, factor):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * factor


@cuda.jit(device=True)
def helper(x):
    return x
"""
EXAMPLE = """

def example():
    return 2, 64, (np.ones(100, np.float32), np.zeros(100, np.float32), 3)
"""
SECOND = """

@cuda.jit
def shift(x):
    i = cuda.grid(1)
    x[i + 1] = x[i]


def example_shift():
    return 1, 32, (np.arange(32),)
"""


@pytest.fixture
def kernel_file(tmp_path):
    def write(text: str):
        path = tmp_path / f"mine_{abs(hash(text))}.py"
        path.write_text(text)
        return path

    return write


def lab(capsys, *argv: object) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of `minigrad lab ARGV`."""
    try:
        status = cli.main(["lab", *map(str, argv)])
    except SystemExit as error:
        status = error.code
    return (status, *capsys.readouterr())


def test_the_families_are_listed(capsys):
    status, out, _ = lab(capsys)
    assert status == 0 and "naive, tile, padded" in out and "FILE.py::KERNEL" in out


def test_a_ladder(capsys, tmp_path):
    status, out, _ = lab(capsys, "transpose", "--json", tmp_path / "t.json")
    assert status == 0
    listings, _, summary = out.partition("── transpose\n")
    assert listings.count("no races, no errors") == 4
    assert "tile[tx, k]" in listings and "!" in listings
    assert [line.split()[0] for line in summary.split("\n\n")[0].splitlines()[2:]] == [
        "naive",
        "tile",
        "padded",
        "few",
    ]
    assert json.loads((tmp_path / "t-2.json").read_text())["name"] == "transpose_tile"


def test_one_version(capsys):
    status, out, _ = lab(capsys, "transpose", "--version", "padded")
    assert status == 0 and "transpose_padded" in out and "transpose_naive" not in out


def test_a_kernel_with_an_example(capsys, kernel_file, tmp_path):
    path = kernel_file(SOURCE + EXAMPLE)
    png = tmp_path / "scale.png"
    status, out, _ = lab(capsys, f"{path}::scale", "--png", png)
    assert status == 0 and "scale: grid 2 (2 blocks), 64 threads per block" in out
    assert "out[i] = x[i] * factor" in out and png.read_bytes().startswith(b"\x89PNG")
    status, out, _ = lab(capsys, path, "--blocks", "1")
    assert status == 0 and "1 of 2 blocks" in out


def test_a_kernel_with_arguments_from_the_command_line(capsys, kernel_file):
    path = kernel_file(SOURCE + SECOND)
    where = ["--grid", "4", "--block", "32,1"]
    args = ["--args", "float32[100]", "zeros:float32[100]", "0.5"]
    status, out, _ = lab(capsys, f"{path}::scale", *where, *args)
    assert status == 0 and "4 blocks" in out


CUDA_C = """#include "mine.cuh"
#define HALF 0.5f
template <int TILE>
__global__ void turn(const float* x, float* out) {
    __shared__ float s[TILE][TILE];
    s[threadIdx.y][threadIdx.x] = half_of(x[threadIdx.y * TILE + threadIdx.x]);
    __syncthreads();
    out[threadIdx.y * TILE + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}
__global__ void shift(float* x) {
    x[threadIdx.x + 1] = x[threadIdx.x];
}
"""


def test_a_kernel_in_cuda_c(capsys, tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(CUDA_C)
    (tmp_path / "mine.cuh").write_text(
        "__device__ float half_of(float x) {\n    return x / 2;\n}\n"
    )
    png = tmp_path / "turn.png"
    where = ["--grid", "1", "--block", "32,32", "--png", png, "--args", "float32[32,32]"]
    status, out, _ = lab(capsys, f"{path}::turn<32>", *where, "zeros:float32[32,32]")
    assert status == 0 and "turn<32>: grid 1 (1 block), 32 x 32 threads" in out
    assert "x32!" in out and "··· mine.cuh" in out and "return x / 2" in out
    assert "#define" not in out and png.read_bytes().startswith(b"\x89PNG")
    status, out, _ = lab(
        capsys, f"{path}::shift", "--grid", "1", "--block", "32", "--args", "float32[32]"
    )
    assert status == 1 and "race 1:" in out and "index 32 of x, which has 32 elements" in out
    status, _, err = lab(capsys, path)
    assert status == 2 and "its kernels are turn, shift" in err
    status, _, err = lab(capsys, f"{path}::shift")
    assert status == 2 and "shift(x) has no launch configuration: pass options, for example" in err


def test_a_kernel_that_is_named_as_an_exercise_is_checked(capsys, kernel_file, tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(
        "__global__ void relu(const float* x, float* out, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) out[i] = x[i] > 0 ? x[i] : 0;\n}\n"
    )
    status, out, _ = lab(capsys, path)
    assert status == 0 and "the exercise relu(x, out)" in out and "right" in out
    wrong = SOURCE.replace("def scale(x, out, factor)", "def relu(x, out)").replace(" * factor", "")
    status, out, _ = lab(capsys, f"{kernel_file(wrong)}::relu")
    assert status == 1 and "not yet\nelement" in out and "relu: grid" in out


def test_cuda_c_that_is_no_text(capsys, tmp_path):
    path = tmp_path / "binary.cu"
    path.write_bytes(b"\xff\xfe\x00")
    status, _, err = lab(capsys, f"{path}::k")
    assert status == 2 and "binary.cu is not a text in UTF-8" in err


def test_a_ladder_in_cuda_c(capsys):
    status, out, _ = lab(capsys, "transpose", "--dialect", "cuda_c", "--version", "padded")
    assert status == 0 and "tile[tx][k]" in out and "no races, no errors" in out


def test_findings_make_the_status_one(capsys, kernel_file):
    status, out, _ = lab(capsys, f"{kernel_file(SOURCE + SECOND)}::shift")
    assert status == 1 and "race 1:" in out and "error 1: out of bounds: index 32 of x" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["mattmul"], "no kernel family 'mattmul'"),
        (["matmul", "--version", "fast"], "matmul has no version 'fast'; it has naive"),
        (["matmul", "--grid", "3"], "are for file.py::kernel"),
        (["nothing.py::k"], "there is no file nothing.py"),
        (["./::k"], "it is a folder; name the file in it"),
        (["{file}::other"], "has no kernel 'other'; its kernels are scale, shift"),
        (["{file}"], "which kernel of"),
        (["{file}::scale"], "scale(x, out, factor) has no launch configuration"),
        (["{file}::scale", "--grid", "1"], "--grid, --block and --args go together"),
        (["{file}::scale", "--grid", "a", "--block", "1", "--args", "1"], "--grid: expected 256"),
        (["{file}::scale", "--grid", "1", "--block", "1", "--args", "f32[3]"], "--args: expected"),
        (["{file}::scale", "--grid", "1", "--block", "1", "--args", "1"], "takes 3 arguments"),
        (
            ["{file}::shift", "--grid", "1", "--block", "2000", "--args", "int64[9]"],
            "it must be from 1 to 1024",
        ),
        (["{broken}"], "raises NameError when it is imported"),
        (["{odd}::scale"], "example() must return (grid, block, args)"),
    ],
)
def test_mistakes_get_one_kind_message(capsys, kernel_file, argv, message):
    files = {
        "file": kernel_file(SOURCE + SECOND),
        "broken": kernel_file("oops"),
        "odd": kernel_file(SOURCE + "\n\ndef example():\n    return 1\n"),
    }
    status, out, err = lab(capsys, *[text.format(**files) for text in argv])
    assert status == 2 and message in err and out == ""


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["trnspose"], "no kernel family 'trnspose'; did you mean transpose?"),
        (["transpose", "--version", "padde"], "did you mean padded?"),
        (["transpose", "--gpu", "RTX 4095"], "got 'RTX 4095'; did you mean RTX 4090?"),
    ],
)
def test_what_is_misspelt_is_suggested(capsys, argv, reason):
    status, _, error = lab(capsys, *argv)
    assert status == 2 and reason in error


def test_a_misspelt_kernel_is_suggested(capsys, kernel_file):
    path = kernel_file(SOURCE + EXAMPLE)
    assert "did you mean scale?" in lab(capsys, f"{path}::scal")[2]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_output_fits_the_terminal(capsys, kernel_file, monkeypatch, width):
    monkeypatch.setattr(command, "_width", lambda: width)
    path = kernel_file(SOURCE.replace("out[i] =", "out[i] = x[0] + x[-1] * factor + ") + EXAMPLE)
    for target in (f"{path}::scale", "transpose"):
        status, out, _ = lab(capsys, target)
        assert status == 0
        assert max(map(len, out.splitlines())) <= width
        assert "sectors" in out


@pytest.mark.needs("numba_cuda")
@pytest.mark.parametrize("dialect", ["numba", "cuda_c"])
def test_a_gpu_adds_registers_occupancy_roofline_clock_and_machine_code(capsys, dialect):
    status, out, _ = lab(capsys, "transpose", "--dialect", dialect, "--gpu", "RTX 4090")
    assert status == 0
    for row in (
        " per thread, nothing spilled",
        "occupancy   100%: ",
        "memory limits it: at least",
        "clock  ",
    ):
        assert row in out
    assert "SASS" in out and " LDG" in out and " STG" in out
    versions = out.partition("on GeForce RTX 4090\n\nversion")[2].split("\n\n")[0].splitlines()
    assert [row.split()[0] for row in versions[1:]] == ["naive", "tile", "padded", "few"]
    naive, tile = (float(row.split()[4]) for row in versions[1:3])
    assert naive > 3 * tile  # nanoseconds, of the sectors that each moves
