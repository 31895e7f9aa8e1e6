"""Show the hardware and packages of this machine, where kernels run, and how to install the
rest."""

from __future__ import annotations

import argparse
import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernels.support.processor import cores
from minigrad.commands import gpu

HELP = "show the hardware and packages, and where kernels run"
PACKAGES = ("numpy", "numba", "ml_dtypes", "tqdm")
EXTRAS = ("numba-cuda", "cupy-cuda13x", "cupy-cuda12x", "matplotlib", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__


def run(args: argparse.Namespace) -> int:
    driver = gpu.query()
    for title, rows in (
        ("machine", machine()),
        ("packages", packages()),
        ("gpu", gpus(driver)),
        ("cache", cache()),
        ("what runs where", verdict(driver)),
    ):
        print(title)
        for name, value in rows:
            print(f"  {name:<25} {value}")
    return 0


Rows = list[tuple[str, str]]


def machine() -> Rows:
    from kernels import simt

    return [
        ("system", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        ("CPU", cpu_name()),
        ("cores", f"{cores()} usable by this process"),
        ("kernel threads", f"{simt.get_num_threads()} (environment: MINIGRAD_NUM_THREADS)"),
    ]


def cpu_name() -> str:
    """The name of the processor, if the system provides it."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def installed(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def packages() -> Rows:
    rows = [(name, installed(name) or "missing") for name in PACKAGES]
    return rows + [(name, installed(name) or "not installed (optional)") for name in EXTRAS]


def gpus(driver: gpu.Driver) -> Rows:
    rows = [("driver", "none")]
    if driver.cuda_version:
        name = gpu.driver_version() or "of unknown version"
        rows = [("driver", f"{name}, for CUDA up to {driver.cuda_version}")]
    for index, card in enumerate(driver.gpus):
        major, minor = card.capability
        rows.append(
            (
                f"GPU {index}",
                f"{card.name}, {card.memory / 2**30:.0f} GiB, compute capability {major}.{minor}, "
                f"{card.multiprocessors} multiprocessors",
            )
        )
    if driver.problem:
        rows.append(("GPU", driver.problem))
    rows += [
        (f"{name} wheel", found)
        for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvvm")
        if (found := installed(name))
    ]
    return rows


def cache() -> Rows:
    from kernels import simt
    from minigrad import datasets

    rows = []
    for name, folder in (
        ("kernels", Path(simt.cache_folder())),
        ("data sets", datasets.cache_folder()),
    ):
        files, size = usage(folder)
        rows.append((name, f"{folder} ({files} file(s), {size / 2**20:.1f} MiB)"))
    return [*rows, ("", "delete a folder to empty it; MINIGRAD_CACHE_DIR moves both")]


def usage(folder: Path) -> tuple[int, int]:
    """The number of files in a folder (recursive) and their bytes; ignores files deleted
    meanwhile."""
    count = size = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                size += path.stat().st_size
                count += 1
        except OSError:
            continue
    return count, size


def verdict(driver: gpu.Driver) -> Rows:
    """Where kernels run, and what to install for the rest."""
    from kernels.host import nvrtc

    rows = [("CPU", "yes: the Numba CUDA kernels, compiled for this processor (device cpu)")]
    numba_cuda = importlib.util.find_spec("numba_cuda") is not None
    parts = {
        "numba-cuda": numba_cuda,
        "CuPy": importlib.util.find_spec("cupy") is not None,
        "NVRTC": nvrtc.available(),
    }
    missing = " and ".join(name for name, found in parts.items() if not found)
    if not driver.gpus:
        rows.append(("GPU", f"no: {driver.problem}"))
    elif not missing:
        rows.append(("GPU", "yes: the same kernels in CUDA C (device cuda)"))
    else:
        major = int((driver.cuda_version or "12").partition(".")[0])
        extra = "cuda13" if major >= 13 else "cuda12"
        rows.append(("GPU", f"not yet: {missing} missing; pip install 'minigrad[{extra}]'"))
    rows.append(
        ("PTX compile checks", "yes" if numba_cuda else "no: pip install 'minigrad[cuda13]'")
    )
    if importlib.util.find_spec("matplotlib") is None:
        rows.append(("--plot", "no: pip install 'minigrad[plot]'"))
    return rows
