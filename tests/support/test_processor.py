"""What is known of the processor, by the features that Numba is told of."""

from __future__ import annotations

import pytest

from kernels.support import processor


@pytest.mark.parametrize(
    ("name", "features", "registers"),
    [
        ("skylake-avx512", "+sse2,+avx,+avx2,+avx512f", (32, 16)),
        ("haswell", "+sse2,+avx,+avx2,+fma", (16, 8)),
        ("haswell", "+sse2,+avx,-avx512f", (16, 8)),
        ("nehalem", "+sse2", (16, 4)),
        ("generic", None, (16, 4)),
        ("apple-m1", "+neon", (32, 4)),
    ],
)
def test_vector_registers(monkeypatch, name, features, registers):
    monkeypatch.setenv("NUMBA_CPU_NAME", name)
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    if features is not None:
        monkeypatch.setenv("NUMBA_CPU_FEATURES", features)
    assert processor.vector_registers.__wrapped__() == registers


def test_vector_registers_of_this_processor(monkeypatch):
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    assert processor.vector_registers.__wrapped__().floats in (4, 8, 16)


@pytest.mark.parametrize(
    "files, cores",
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "1600000 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu.max": ""}, 8),
    ],
)
def test_cores_that_a_container_leaves(monkeypatch, tmp_path, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(processor, "_CGROUPS", tmp_path)
    monkeypatch.setattr(processor, "_limit", processor._limit.__wrapped__)
    monkeypatch.setattr(processor.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert processor.cores() == cores
