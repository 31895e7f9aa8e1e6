"""torch's samples of its modules, on minigrad's: results, gradients, state, copies and errors.

`python -m tests.nn.module_db` prints all differences.
"""

from __future__ import annotations

import pytest

import minigrad
from tests.nn import module_db

pytestmark = pytest.mark.needs("torch", "expecttest")


def _differences(entries: list, dtype: str) -> list[str]:
    return [
        found
        for entry in entries
        for training in (True, False)
        for found in module_db.differences(entry, dtype, training)
    ]


def test_a_few_modules(rng):
    """Some modules, other ones for another seed."""
    entries = module_db.entries()
    assert not _differences(list(rng.choice(entries, 12, replace=False)), "float64")


def test_a_wrong_module_is_found(monkeypatch):
    """The comparison fails on a wrong value, gradient, `repr` and state, and on a missing error."""
    (entry,) = [e for e in module_db.entries() if e.module_cls.__name__ == "BatchNorm1d"]
    right = minigrad.nn.BatchNorm1d.forward

    def state(self, x):
        y = right(self, x)
        if self.running_mean is not None:
            self.running_mean += 1
        return y

    def error(self, x):
        self.eps = abs(self.eps) or 1e-5
        return right(self, x)

    wrong = {
        "value": ("forward", lambda self, x: right(self, x) * 1.01),
        "gradient": ("forward", lambda self, x: right(self, x.detach())),
        "repr": ("extra_repr", lambda self: ""),
        "state": ("forward", state),
        "error": ("forward", error),
    }
    assert not _differences([entry], "float64")
    for name, (method, function) in wrong.items():
        with monkeypatch.context() as patch:
            patch.setattr(minigrad.nn.BatchNorm1d, method, function)
            assert _differences([entry], "float64"), name


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_modules(dtype):
    assert not module_db.missing()
    assert not _differences(module_db.entries(), dtype)
