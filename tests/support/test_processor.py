"""What is known of the processor, by the features that Numba is told of."""

from __future__ import annotations

import pytest

from kernels.support import processor


@pytest.mark.parametrize(
    ("name", "features", "floats"),
    [
        ("skylake-avx512", "+sse2,+avx,+avx2,+avx512f", 512),
        ("haswell", "+sse2,+avx,+avx2,+fma", 128),
        ("haswell", "+sse2,+avx,-avx512f", 128),
        ("nehalem", "+sse2", 64),
        ("generic", None, 64),
        ("apple-m1", "+neon", 128),
    ],
)
def test_register_floats(monkeypatch, name, features, floats):
    monkeypatch.setenv("NUMBA_CPU_NAME", name)
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    if features is not None:
        monkeypatch.setenv("NUMBA_CPU_FEATURES", features)
    assert processor.register_floats.__wrapped__() == floats


def test_register_floats_of_this_processor(monkeypatch):
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    assert processor.register_floats.__wrapped__() in (64, 128, 512)
