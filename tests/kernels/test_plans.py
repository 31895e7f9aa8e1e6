"""The caches of plans: bounded, whole under threads, and none beside them."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import kernels
from kernels import launchers
from kernels.launchers.plans import Plans, place

LAUNCHERS = [
    importlib.import_module(f"kernels.launchers.{found.name}")
    for found in pkgutil.iter_modules(launchers.__path__)
]


def test_a_full_cache_drops_the_older_half():
    plans = Plans(4)
    for number in range(5):
        assert plans.keep((number,), number) == number
    assert list(plans) == [(2,), (3,), (4,)]
    assert plans.keep((3,), "another") == 3
    assert [Plans(1).keep((i,), i) for i in range(3)] == [0, 1, 2]


def test_threads_find_their_own_plans():
    """Many threads in a cache far too small for them: bounded, and no plan under another's key."""
    plans, wrong, start = Plans(8), [], threading.Barrier(8)

    def use(seed: int) -> None:
        start.wait()
        for number in np.random.default_rng(seed).integers(0, 40, 4000).tolist():
            plan = plans.get((number,)) or plans.keep((number,), [number])
            if plan != [number] or len(plans) > 8:
                wrong.append((number, plan, len(plans)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


def test_no_launcher_keeps_plans_in_another_way():
    for module in LAUNCHERS:
        own = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        dictionaries = [n for n, v in own.items() if type(v) is dict and not v]
        memoised = [
            n
            for n, v in own.items()
            if hasattr(v, "cache_info") and v.__module__ == module.__name__
            if n != "compute_dtype"  # of a dozen dtypes
        ]
        assert dictionaries == memoised == [], f"{module.__name__}: use kernels.launchers.plans"


@pytest.mark.parametrize("operation", ["softmax", "matmul", "layer_norm", "uniform", "sum"])
def test_many_shapes_leave_few_plans(operation, monkeypatch):
    small = {module: Plans(16) for module in LAUNCHERS if hasattr(module, "_plans")}
    for module, plans in small.items():
        monkeypatch.setattr(module, "_plans", plans)
    more = {"matmul": (np.eye(8, dtype=np.float32),), "layer_norm": (None, None, 1e-5)}
    for n in range(1, 60):
        x = np.ones((n, 8), np.float32)
        if operation == "uniform":
            found = kernels.uniform((n * 2000,), 1, 2, backend="numba")
            assert found.size == n * 2000
        else:
            found = getattr(kernels, operation)(x, *more.get(operation, ()), backend="numba")
    assert max(map(len, small.values())) > 8
    assert all(len(plans) <= 16 for plans in small.values())


def test_the_place_of_an_array():
    class OnGpu:
        __cuda_array_interface__ = None

        def __init__(self, number: int) -> None:
            self.device = type("Device", (), {"id": number})()

    assert place(np.ones(1)) is place(None) is True
    places = {place(OnGpu(0)), place(OnGpu(1)), place(np.ones(1))}
    assert len(places) == 3
    assert place(OnGpu(1)) in places


NOTED_FIRST = """
import numpy as np
import kernels
from kernels.lab.gpu_model.resources import noting

x = np.random.default_rng(0).normal(size=(5, 40))
with noting() as rows:
    kernels.layer_norm(x, None, None, 1e-5, backend="numba")
assert rows
found, wanted = (kernels.layer_norm(x, None, None, 1e-5, backend=b)[0] for b in ("numba", "numpy"))
np.testing.assert_allclose(found, wanted, atol=1e-9)
"""


def test_operations_that_were_noted_first_run_afterwards():
    """Launchers that are imported meanwhile must not keep what notes their launches."""
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", NOTED_FIRST], check=True, cwd=root)
