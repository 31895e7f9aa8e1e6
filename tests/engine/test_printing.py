"""`repr` is torch's, with minigrad's name in dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg

CASES = {
    "whole": lambda m: m.tensor([1.0, 2.0]),
    "fractions": lambda m: m.tensor([[1.5, -2.25], [100.0, 0.125]]),
    "scalar": lambda m: m.tensor(3.14159),
    "integers": lambda m: m.tensor([[1, -20], [300, 4]]),
    "bools": lambda m: m.tensor([True, False]),
    "empty": lambda m: m.tensor([]),
    "empty_shape": lambda m: m.zeros(0, 3),
    "empty_int": lambda m: m.zeros(0, dtype=m.int64),
    "double": lambda m: m.tensor([1.0], dtype=m.float64),
    "int32": lambda m: m.tensor([1], dtype=m.int32),
    "half": lambda m: m.tensor([0.5, 2.0], dtype=m.float16),
    "scientific": lambda m: m.tensor([1e-5, 1.0, 1e5]),
    "small": lambda m: m.tensor([1e-5, 2e-5]),
    "large": lambda m: m.tensor([1e9, 2e9]),
    "large_whole": lambda m: m.tensor([123456.0, 2.0]),
    "special": lambda m: m.tensor([float("nan"), float("inf"), -float("inf"), 1.5]),
    "only_nan": lambda m: m.tensor([float("nan")]),
    "nan_scalar": lambda m: m.tensor(float("nan")),
    "zeros": lambda m: m.zeros(2, 2),
    "three_dims": lambda m: m.arange(12.0).reshape(2, 3, 2) / 3,
    "four_dims": lambda m: m.arange(8).reshape(2, 2, 1, 2),
    "long_vector": lambda m: m.arange(60),
    "long_floats": lambda m: m.arange(40.0) / 7,
    "summarised": lambda m: m.arange(2000),
    "summarised_matrix": lambda m: m.arange(10000.0).reshape(100, 100),
    "summarised_three": lambda m: m.arange(8000.0).reshape(20, 20, 20) / 7,
    "leaf": lambda m: m.ones(2, requires_grad=True),
    "result": lambda m: m.ones(2, requires_grad=True) * 2,
    "result_double": lambda m: m.ones(12, dtype=m.float64, requires_grad=True) / 3,
    "view": lambda m: m.ones(4, requires_grad=True).view(2, 2),
    "negative_zero": lambda m: m.tensor([-0.0, 1.0]),
    "one_by_one": lambda m: m.tensor([[7]]),
    "values_and_indices": lambda m: m.tensor([[3.0, 1.0, 2.0]]).max(1),
    "sorted": lambda m: m.tensor([3.0, 1.0, 2.0]).sort(descending=True),
    "top": lambda m: m.tensor([3.0, 1.0, 2.0]).topk(2),
}


@pytest.mark.parametrize("name", CASES)
def test_repr_matches_torch(name, torch):
    expected = repr(CASES[name](torch)).replace("torch.", "minigrad.")
    assert repr(CASES[name](mg)).split() == expected.split()
    if "dtype" not in expected:  # longer names may wrap differently
        assert repr(CASES[name](mg)) == expected


def test_notes_begin_a_line_where_torch_does(torch, rng):
    """A note that ends at the last columns of a line, and one that would exceed it."""
    for width in range(40, 90):
        try:
            for m in (mg, torch):
                m.set_printoptions(linewidth=width)
            for shape in ((5,), (2, 4), (3, 5)):
                x = rng.normal(size=shape).astype(np.float32)
                texts = [repr(m.tensor(x, requires_grad=True)) for m in (mg, torch)]
                assert texts[0] == texts[1]
        finally:
            for m in (mg, torch):
                m.set_printoptions(profile="default")


def test_options(torch):
    x = np.linspace(-1, 1, 30).astype(np.float32)
    try:
        for options in (
            {"precision": 2},
            {"sci_mode": True},
            {"threshold": 5, "edgeitems": 2},
            {"linewidth": 40},
        ):
            for m in (mg, torch):
                m.set_printoptions(profile="default")
                m.set_printoptions(**options)
            assert repr(mg.tensor(x)) == repr(torch.tensor(x))
    finally:
        for m in (mg, torch):
            m.set_printoptions(profile="default")


def test_str_and_numpy_free_fallback():
    assert str(mg.tensor([1.0])) == "tensor([1.])"
    assert f"{mg.ones(2)}" == "tensor([1., 1.])"


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.empty(2, 3, device="meta"),
        lambda m: m.empty(0, device="meta"),
        lambda m: m.empty(2, dtype=m.int64, device="meta"),
        lambda m: m.empty(2, 3, dtype=m.half, device="meta", requires_grad=True),
        lambda m: m.nn.Linear(2, 3, dtype=m.float64, device="meta").weight,
    ],
)
def test_tensors_without_data_as_torch(make, torch):
    assert repr(make(mg)).replace("minigrad", "torch") == repr(make(torch))
