"""Ten programs for a GPU, as their authors write them: `minigrad run`, compared with NumPy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.ndimage
import scipy.special

from kernels import door

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.skipif(door.no_gpu() is None, reason="there is a GPU: nothing changes")
REFERENCES: dict[str, Callable[[dict[str, np.ndarray]], None]] = {}


def reference(check: Callable) -> Callable:
    REFERENCES[check.__name__] = check
    return check


@reference
def kmeans(r):
    x, centers = r["points"].astype(float), r["centers_norm"]
    distances = ((x[:, None] - centers[None]) ** 2).sum(-1)
    labels = r["labels_norm"]
    assert (distances[np.arange(len(x)), labels] <= distances.min(1) * (1 + 1e-5)).all()
    for c in range(len(centers)):
        np.testing.assert_allclose(centers[c], x[labels == c].mean(0), rtol=1e-4)
    for method in ("elementwise", "raw"):
        np.testing.assert_allclose(r[f"centers_{method}"], centers, rtol=1e-4)
        assert (r[f"labels_{method}"] == labels).mean() > 0.999


@reference
def conjugate_gradient(r):
    np.testing.assert_allclose(r["x"], np.linalg.solve(r["dense"], r["b"]), atol=1e-8)
    matrix = scipy.sparse.csr_matrix((r["data"], r["indices"], r["indptr"]))
    np.testing.assert_allclose(r["y"], scipy.sparse.linalg.spsolve(matrix, r["rhs"]), atol=1e-8)


@reference
def black_scholes(r):
    s, x, t, rate, v = r["stock"], r["strike"], r["years"], 0.02, 0.3
    d1 = (np.log(s / x) + (rate + v * v / 2) * t) / (v * np.sqrt(t))
    d2 = d1 - v * np.sqrt(t)
    call = s * scipy.special.ndtr(d1) - x * np.exp(-rate * t) * scipy.special.ndtr(d2)
    put = call - s + x * np.exp(-rate * t)
    density = np.exp(-d1 * d1 / 2) / np.sqrt(2 * np.pi)
    for name in ("call", "put"):  # the program's polynomial is accurate to 7.5e-8 of the price
        np.testing.assert_allclose(r[name], locals()[name], atol=2e-5)
        np.testing.assert_allclose(r[f"{name}2"], locals()[name], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(r["delta"], scipy.special.ndtr(d1), rtol=1e-12)
    np.testing.assert_allclose(r["gamma"], density / (s * v * np.sqrt(t)), rtol=1e-12)
    np.testing.assert_allclose(r["vega"], s * density * np.sqrt(t), rtol=1e-12)


@reference
def image_filters(r):
    image = r["image"].astype(float)
    blurred = scipy.ndimage.uniform_filter(image, 5, mode="nearest")
    np.testing.assert_allclose(r["blurred"], blurred, rtol=1e-5)
    padded = np.pad(image, 2, constant_values=np.nan)
    total, weights = 0.0, 0.0
    for dy in range(5):
        for dx in range(5):
            part = padded[dy : dy + image.shape[0], dx : dx + image.shape[1]]
            weight = np.exp(-((dy - 2) ** 2 + (dx - 2) ** 2) / 4.5 - (part - image) ** 2 / 0.08)
            total += np.nan_to_num(weight * part)
            weights += np.nan_to_num(weight)
    np.testing.assert_allclose(r["smooth"], total / weights, rtol=1e-4)
    bins = np.minimum((r["image"] * 64).astype(int), 63)
    np.testing.assert_array_equal(r["bins"], np.bincount(bins.ravel(), minlength=64))
    soft = scipy.ndimage.gaussian_filter(r["image"], 1.0)
    magnitude = np.hypot(*(scipy.ndimage.sobel(soft, axis, mode="nearest") for axis in (1, 0)))
    np.testing.assert_array_equal(r["strong"], magnitude / magnitude.max() > 0.5)
    np.testing.assert_array_equal(r["labels"], scipy.ndimage.label(r["strong"])[0])


@reference
def nbody(r):
    x, v, m = (r[name].astype(float) for name in ("position", "velocity", "mass"))

    def acceleration():
        d = x[None] - x[:, None]
        return (d * m[None, :, None] / ((d**2).sum(-1) + 0.05**2)[..., None] ** 1.5).sum(1)

    a = acceleration()
    for _ in range(int(r["steps"])):
        v += r["dt"] / 2 * a
        x += r["dt"] * v
        a = acceleration()
        v += r["dt"] / 2 * a
    np.testing.assert_allclose(r["after"], x, atol=1e-4)
    np.testing.assert_allclose(r["kinetic"], (0.5 * m[:, None] * v**2).sum(), rtol=1e-4)


@reference
def lattice_boltzmann(r):
    cx, cy = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1]), np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    f = r["f"].copy()
    for _ in range(int(r["steps"])):
        rho = f.sum(0)
        ux, uy = np.tensordot(cx, f, 1) / rho, np.tensordot(cy, f, 1) / rho
        cu = 3 * (cx[:, None, None] * ux + cy[:, None, None] * uy)
        square = 1.5 * (ux**2 + uy**2)
        feq = w[:, None, None] * rho * (1 + cu + cu**2 / 2 - square)
        after = np.where(r["solid"], f[[0, 3, 4, 1, 2, 7, 8, 5, 6]], f - (f - feq) / r["tau"])
        f = np.stack([np.roll(after[q], (cx[q], cy[q]), (0, 1)) for q in range(9)])
    for name in ("ArraySolver", "KernelSolver"):
        np.testing.assert_allclose(r[name], f, rtol=1e-10)


@reference
def fft_filters(r):
    fy, fx = (np.fft.fftfreq(n) for n in r["image"].shape)
    gain = 1 / (1 + (np.hypot(fy[:, None], fx) / 0.1) ** 4)
    np.testing.assert_allclose(r["low"], np.fft.ifft2(gain * np.fft.fft2(r["image"])).real)
    soft = 1 - np.exp(-2 * (np.pi * 2) ** 2 * (fy[:, None] ** 2 + fx**2))
    high = np.fft.ifft2(soft * np.fft.fft2(r["image"])).real
    np.testing.assert_allclose(r["high"], high, atol=1e-12)
    frames = np.lib.stride_tricks.sliding_window_view(r["noisy"], 256)[::64]
    power = np.abs(np.fft.rfft(frames * np.hanning(256))) ** 2
    np.testing.assert_allclose(r["power"], power, rtol=1e-9)
    response = np.correlate(r["received"], r["pulse"], "full")[len(r["pulse"]) - 1 :]
    np.testing.assert_allclose(r["response"], response, atol=1e-9)
    assert np.argmax(r["response"]) == 700
    strongest = np.sort(np.abs(scipy.fft.dct(r["smooth"], norm="ortho")))[::-1]
    assert strongest[9] > 1e-6 > strongest[10]
    b, a = scipy.signal.butter(4, 0.1)
    np.testing.assert_allclose(r["filtered"], scipy.signal.filtfilt(b, a, r["noisy"]), rtol=1e-9)


@reference
def sparse_solvers(r):
    expected = np.linalg.solve(r["matrix"], r["rhs"])
    for name in ("cg", "pcg", "gmres", "direct", "splu", "jacobi"):
        np.testing.assert_allclose(r[name], expected, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(r["values"], np.linalg.eigvalsh(r["matrix"])[-3:])


@reference
def monte_carlo(r):
    """Seeds are fixed; the tolerances are five standard errors of each estimate."""
    assert abs(r["pi"] - np.pi) < 5 * 1.64 / np.sqrt(64 * 64 * 100)
    d1 = 0.05 / 0.2 + 0.1
    european = 100 * (scipy.special.ndtr(d1) - np.exp(-0.05) * scipy.special.ndtr(d1 - 0.2))
    assert abs(r["european"] - european) < 5 * 14.7 / np.sqrt(64 * 64 * 4)
    rng = np.random.default_rng(0)
    paths = np.cumsum((0.05 - 0.02) / 16 + 0.2 / 4 * rng.standard_normal((100_000, 16)), axis=1)
    asian = np.exp(-0.05) * np.maximum(100 * np.exp(paths).mean(1) - 100, 0)
    assert abs(r["asian"] - asian.mean()) < 5 * asian.std() * np.hypot(1 / 64, 1 / 316)
    onsager = (1 - np.sinh(2 * 0.7) ** -4) ** 0.125
    assert abs(r["cold"] - onsager) < 0.02 and r["hot"] < 0.15


@reference
def particle_in_cell(r):
    x, v, dt = r["x0"].copy(), r["v0"].copy(), float(r["dt"])
    cells, length = len(r["density"]), 4 * np.pi
    cell, n = length / cells, len(x)
    k = 2 * np.pi * np.fft.rfftfreq(cells, cell)
    energies = []
    for step in range(len(r["energies"])):
        left = np.floor(x / cell).astype(int)
        share = x / cell - left
        left, right = left % cells, (left + 1) % cells
        density = np.bincount(left, 1 - share, cells) + np.bincount(right, share, cells)
        density *= cells / n
        if step == 0:
            np.testing.assert_allclose(r["density"], density, rtol=1e-10)
        spectrum = np.fft.rfft(1 - density)
        spectrum[1:] *= -1j / k[1:]
        spectrum[0] = 0
        field = np.fft.irfft(spectrum, cells)
        v -= dt * ((1 - share) * field[left] + share * field[right])
        x = (x + dt * v) % length
        energies.append(0.5 * (field**2).sum() * cell)
    np.testing.assert_allclose(r["energies"], energies, rtol=1e-8)
    np.testing.assert_allclose(r["v"], v, atol=1e-9)


def test_gpu_programs_that_use_cupy(tmp_path):
    """All in one process, and in one test: parallel workers would each run them."""
    plain = {k: v for k, v in os.environ.items() if k != "MINIGRAD_INSTALL"}
    command = [sys.executable, "-m", "minigrad", "run", str(FOLDER / "run_all.py"), str(tmp_path)]
    done = subprocess.run(
        [*command, *REFERENCES], capture_output=True, text=True, env=plain, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = []
    for name, check in REFERENCES.items():
        with np.load(tmp_path / f"{name}.npz") as computed:
            try:
                check(dict(computed))
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_programs_know_nothing_of_minigrad():
    for name in REFERENCES:
        text = (FOLDER / f"{name}.py").read_text()
        assert "minigrad" not in text and len(text.splitlines()) >= 100, name


#: (program, right line, wrong line, its arguments, the finding, what it shows of the source)
PLANTED = [
    (
        "black_scholes",
        "    if i >= stock.shape[0]:\n        return\n",
        "",
        ["--options", "300"],
        "price_options: bounds:",
        "root = math.sqrt(years[i])",
    ),
    (
        "conjugate_gradient",
        "if (lane == 0) y[warp] = sum;",
        "y[warp] = sum;",
        ["--size", "4", "--grid", "2", "--tol", "1e9"],
        "spmv<double>: race: global y",
        "y[warp] = sum;",
    ),
    (
        "fft_filters",
        'float64 fx, float64 fy, float64 cutoff, int32 order",\n'
        '    "float64 out_re, float64 out_im",\n    """\n'
        "    double ratio = sqrt(fx * fx",
        'raw float64 fx, float64 fy, float64 cutoff, int32 order",\n'
        '    "float64 out_re, float64 out_im",\n    """\n'
        "    double ratio = sqrt(fx[i] * fx[i]",
        ["--size", "8"],
        "butterworth: bounds: out of bounds: index 18 of fx",
        "double ratio = sqrt(fx[i] * fx[i] + fy * fy) / cutoff;",
    ),
    (
        "kmeans",
        "        cached[i] = centers[i];\n    }\n    __syncthreads();\n",
        "        cached[i] = centers[i];\n    }\n",
        ["--points", "200", "--max-iter", "1"],
        "assign: race: shared",
        "cached[i] = centers[i];",
    ),
    (
        "lattice_boltzmann",
        "(self.f, self.other, self.solid",
        "(self.f, self.f, self.solid",
        ["--nx", "16", "--ny", "10", "--steps", "1"],
        "collide_and_stream: race: global",
        "here[q] = f[q, x, y]",
    ),
    (
        "sparse_solvers",
        "atomicAdd(residual, fabs(value - u[i * n + j]));",
        "*residual += fabs(value - u[i * n + j]);",
        ["--grid", "3"],
        "jacobi: race: global residual",
        "*residual += fabs(value - u[i * n + j]);",
    ),
    (
        "nbody",
        "                x, y, z, tile[k, 0], tile[k, 1], tile[k, 2], tile[k, 3], ax, ay, az\n"
        "            )\n        cuda.syncthreads()\n",
        "                x, y, z, tile[k, 0], tile[k, 1], tile[k, 2], tile[k, 3], ax, ay, az\n"
        "            )\n",
        ["--bodies", "130", "--steps", "1"],
        "accelerate: race: shared tile",
        "tile[t, 0] = position[j, 0]",
    ),
    (
        "image_filters",
        "if x < width and y < height:",
        "if x <= width and y < height:",
        ["--height", "20", "--width", "31"],
        "box_blur: bounds:",
        "out[y, x] = total",
    ),
    (
        "particle_in_cell",
        "for (int i = threadIdx.x; i < cells; i += blockDim.x) local[i] = 0.0;",
        "",
        ["--particles", "300", "--cells", "16", "--steps", "1"],
        "deposit: uninitialised:",
        "atomicAdd(&local[left]",
    ),
    (
        "monte_carlo",
        "            partial[t] += partial[t + width]\n        cuda.syncthreads()\n",
        "            partial[t] += partial[t + width]\n            cuda.syncthreads()\n",
        ["--blocks", "1", "--iterations", "1"],
        "asian_option: barrier:",
        "cuda.syncthreads()",
    ),
]


@pytest.mark.slow
def test_planted_bugs_are_found_in_cupy_programs(tmp_path):
    tests = []
    assert {name for name, *_ in PLANTED} == REFERENCES.keys()
    for name, right, wrong, arguments, *_ in PLANTED:
        text = (FOLDER / f"{name}.py").read_text()
        assert text.count(right) == 1
        (tmp_path / f"planted_{name}.py").write_text(text.replace(right, wrong))
        tests.append(f"def test_{name}():\n    planted_{name}.main({arguments})\n")
    imports = "".join(f"import planted_{name}\n" for name, *_ in PLANTED)
    (tmp_path / "test_planted.py").write_text(imports + "\n\n" + "\n\n".join(tests))
    plain = {k: v for k, v in os.environ.items() if k != "MINIGRAD_INSTALL"}
    options = "-p kernels.pytest_plugin -p no:cacheprovider -q -n0 --cuda=cpu".split()
    checks = "--cuda-check=bounds,races,uninitialised,barriers"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, checks],
        capture_output=True, text=True, env=plain, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert f"{len(PLANTED)} failed" in done.stdout, done.stdout + done.stderr
    for *_, finding, source in PLANTED:
        _, found, after = done.stdout.partition(finding)
        assert found, f"{finding}\n{done.stdout}"
        first = after.partition("fix: ")[0]
        assert re.search(r"thread \(.*, line \d+ +" + re.escape(source), first), after[:2000]
