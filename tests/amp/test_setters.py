"""What programs set without a block: autocast, and the type of new tensors."""

from __future__ import annotations

import pytest

import minigrad


def test_autocast_without_a_block(torch):
    for m in (minigrad, torch):
        x = m.ones(2, 2)
        assert m.get_autocast_cpu_dtype() == m.bfloat16 and m.get_autocast_gpu_dtype() == m.float16
        m.set_autocast_enabled("cpu", True)
        try:
            assert m.is_autocast_cpu_enabled() and not m.is_autocast_enabled("cuda")
            assert (x @ x).dtype == m.bfloat16
            m.set_autocast_dtype("cpu", m.float16)
            assert m.get_autocast_dtype("cpu") == m.float16 and (x @ x).dtype == m.float16
            m.set_autocast_enabled("cpu", False)
            assert (x @ x).dtype == m.float32 and m.get_autocast_dtype("cpu") == m.float16
            with m.autocast("cpu"):
                assert (x @ x).dtype == m.float16
        finally:
            m.set_autocast_enabled("cpu", False)
            m.set_autocast_dtype("cpu", m.bfloat16)
        with pytest.raises(RuntimeError):
            m.set_autocast_enabled("abacus", True)


def test_default_tensor_type(torch):
    for m, package in ((minigrad, "minigrad"), (torch, "torch")):
        try:
            for given in (m.DoubleTensor, f"{package}.DoubleTensor"):
                m.set_default_tensor_type(given)
                assert m.ones(1).dtype == m.get_default_dtype() == m.float64
                m.set_default_tensor_type(f"{package}.FloatTensor")
                assert m.ones(1).dtype == m.float32
            for wrong in (m.LongTensor, int):
                with pytest.raises(TypeError):
                    m.set_default_tensor_type(wrong)
        finally:
            m.set_default_dtype(m.float32)
    minigrad.set_default_tensor_type("torch.cuda.HalfTensor")
    try:
        assert minigrad.get_default_device().type == "cuda"
        assert minigrad.get_default_dtype() == minigrad.float16
    finally:
        minigrad.set_default_tensor_type(minigrad.FloatTensor)
    assert minigrad.get_default_device().type == "cpu"
