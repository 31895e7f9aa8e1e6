"""Names that libraries import from torch's inner modules."""

from __future__ import annotations

import importlib

import minigrad


def test_tensors_in_groups(torch):
    def program(t):
        module = importlib.import_module(f"{t.__name__}.utils._foreach_utils")
        first = [t.ones(2), t.ones(3).double(), t.ones(4), t.ones(1).int()]
        second = [t.full((1,), float(i)) for i in range(4)]
        group = module._group_tensors_by_device_and_dtype
        found = group([first, second, []], with_indices=True)
        return {
            (str(device), str(dtype).split(".")[1]): ([[x.tolist() for x in p] for p in lists], n)
            for (device, dtype), (lists, n) in found.items()
        }

    assert program(minigrad) == program(torch)


def test_questions_of_libraries(torch):
    for t in (minigrad, torch):
        fake = importlib.import_module(f"{t.__name__}._subclasses.fake_tensor")
        assert not fake.is_fake(t.ones(1))
        names = importlib.import_module(f"{t.__name__}.ao.quantization")
        assert issubclass(names.ObserverBase, t.nn.Module)
        assert issubclass(names.FakeQuantizeBase, t.nn.Module)
    assert minigrad.ao.quantization.quantize_dynamic is minigrad.quantization.quantize_dynamic
