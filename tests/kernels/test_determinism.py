"""Which kernels run where results must repeat bit by bit."""

from __future__ import annotations

import pytest

from kernels.launchers import determinism, embedding


def test_deterministic_additions(monkeypatch):
    """`use_deterministic_algorithms` takes the version with a fixed order on a GPU."""
    monkeypatch.setattr(embedding, "on_gpu", lambda array: True)
    monkeypatch.setattr(determinism, "_mode", "default")
    assert embedding._chosen("scatter_add", None, None, 1) == "atomic"
    determinism.use_deterministic_algorithms(True)
    assert embedding._chosen("scatter_add", None, None, 132) == "lines"
    assert embedding._chosen("scatter_add", None, None, 1) == "split"
    assert embedding._chosen("scatter_add", "atomic", None, 1) == "atomic"
    with pytest.raises(RuntimeError, match="max_pool2d_backward does not have a deterministic"):
        determinism.refuse("max_pool2d_backward")
    determinism.set_deterministic_debug_mode("warn")
    assert determinism.get_deterministic_debug_mode() == 1
    assert determinism.is_deterministic_algorithms_warn_only_enabled()
    with pytest.warns(UserWarning, match="does not have a deterministic"):
        determinism.refuse("max_pool2d_backward")
    with pytest.raises(RuntimeError, match="got 3"):
        determinism.set_deterministic_debug_mode(3)
    determinism.set_deterministic_debug_mode(0)
    assert not determinism.are_deterministic_algorithms_enabled()
    determinism.refuse("max_pool2d_backward")
