"""The doctor's questions to the NVIDIA driver, answered by a stand-in for its C library."""

from __future__ import annotations

import ctypes

from kernels.host import nvrtc
from minigrad.commands import doctor, gpu


class FakeDriver:
    """Answers as libcuda does: a status is returned, the rest is written through pointers."""

    def __init__(self, init: int = 0, version: int = 13020, count: int = 1) -> None:
        self.init, self.version, self.count = init, version, count

    def cuInit(self, flags):
        return self.init

    def cuDriverGetVersion(self, pointer):
        return self._write(pointer, self.version)

    def cuDeviceGetCount(self, pointer):
        return self._write(pointer, self.count)

    def cuDeviceGet(self, pointer, ordinal):
        return self._write(pointer, ordinal + 40)

    def cuDeviceGetName(self, buffer, length, device):
        assert device >= 40
        buffer.value = b"Example GPU"
        return 0

    def cuDeviceTotalMem_v2(self, pointer, device):
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_size_t))[0] = 24 << 30
        return 0

    def cuDeviceGetAttribute(self, pointer, which, device):
        return self._write(pointer, {75: 8, 76: 9, 16: 128}[which])

    @staticmethod
    def _write(pointer, value):
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = value
        return 0


def with_packages(monkeypatch, *names: str) -> None:
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: object() if name in names else None
    )
    monkeypatch.setattr(nvrtc, "available", lambda: "nvrtc" in names)


class FakeNvml:
    def __init__(self, init: int = 0) -> None:
        self.init = init

    def nvmlInit_v2(self):
        return self.init

    def nvmlSystemGetDriverVersion(self, buffer, length):
        buffer.value = b"999.11"
        return 0


def test_the_driver_version():
    assert gpu.driver_version(FakeNvml()) == "999.11"
    assert gpu.driver_version(FakeNvml(init=9)) is None


def test_a_gpu_is_described(monkeypatch):
    monkeypatch.setattr(gpu, "driver_version", lambda: "999.11")
    driver = gpu.query(FakeDriver(count=2))
    assert driver.cuda_version == "13.2"
    assert driver.problem is None
    assert [card.name for card in driver.gpus] == ["Example GPU"] * 2
    text = dict(doctor.gpus(driver))
    assert text["GPU 1"] == "Example GPU, 24 GiB, compute capability 8.9, 128 multiprocessors"
    assert text["driver"] == "999.11, for CUDA up to 13.2"


def test_no_library_no_driver(monkeypatch):
    monkeypatch.setattr(gpu, "library_name", lambda: "libsuchthingdoesnotexist.so")
    driver = gpu.query()
    assert driver.gpus == []
    assert driver.problem == "no NVIDIA driver (libsuchthingdoesnotexist.so not found)"


def test_a_driver_that_fails_or_sees_nothing():
    assert "cuInit failed (error 100)" in gpu.query(FakeDriver(init=100)).problem
    assert "sees no GPU" in gpu.query(FakeDriver(count=0)).problem


def test_the_verdict_with_everything_installed(monkeypatch):
    with_packages(monkeypatch, "numba_cuda", "cupy", "nvrtc", "matplotlib")
    rows = dict(doctor.verdict(gpu.query(FakeDriver())))
    assert rows["GPU"].startswith("yes")
    assert rows["PTX compile checks"] == "yes"
    assert "--plot" not in rows


def test_the_verdict_names_the_extra_that_fits_the_driver(monkeypatch):
    with_packages(monkeypatch, "numba_cuda", "nvrtc")
    for version, extra in ((13020, "cuda13"), (12040, "cuda12")):
        rows = dict(doctor.verdict(gpu.query(FakeDriver(version=version))))
        assert rows["GPU"] == f"not yet: CuPy missing; pip install 'minigrad[{extra}]'"
    with_packages(monkeypatch)
    rows = dict(doctor.verdict(gpu.query(FakeDriver())))
    assert "numba-cuda and CuPy and NVRTC missing" in rows["GPU"]
    with_packages(monkeypatch, "numba_cuda", "cupy")
    rows = dict(doctor.verdict(gpu.query(FakeDriver())))
    assert rows["GPU"] == "not yet: NVRTC missing; pip install 'minigrad[cuda13]'"
    assert rows["--plot"] == "no: pip install 'minigrad[plot]'"


def test_the_verdict_without_a_gpu_says_why(monkeypatch):
    with_packages(monkeypatch, "numba_cuda", "cupy")
    rows = dict(doctor.verdict(gpu.query(FakeDriver(count=0))))
    assert rows["GPU"] == "no: the NVIDIA driver is there but sees no GPU"
    assert rows["CPU"].startswith("yes")
