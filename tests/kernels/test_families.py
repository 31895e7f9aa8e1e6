"""Declarations of families: complete, and what is missing is said in words.

The places in which arrays lie: no operation runs on one what it bound for another.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import kernels
from kernels import dispatch, launchers
from kernels.families import Family, Operation, like_first
from kernels.launchers import declared, relaunch
from kernels.launchers.common import Dialect
from kernels.launchers.plans import Plans
from kernels.simt.api.launch import Kernel

DIALECTS = ("numba", "cupy")
# of the launchers
HELPERS = {"attention_tiles", "common", "conv_batch", "conv_gemm", "conv_mma", "conv_phases"}
HELPERS |= {
    "conv_costs",
    "conv_few",
    "conv_plane",
    "conv_planes",
    "conv_product",
    "conv_tables",
    "conv_tiled",
    "conv_winograd",
    "determinism",
    "expression",
    "layout",
}
HELPERS |= {"copies", "plans", "relaunch", "relaunch_on_gpu"}
every_family = pytest.mark.parametrize("family", declared().values(), ids=lambda f: f.name)


def versions(family: Family, dialect: str):
    return functools.partial(launchers.versions, dialect)


def test_every_launcher_declares_its_family():
    found = {module.name for module in pkgutil.iter_modules(launchers.__path__)} - HELPERS
    assert found == set(declared()), "end the launcher with FAMILY = kernels.families.Family(...)"


@every_family
def test_a_family_has_examples_of_each_operation(family, rng):
    where = f"kernels/launchers/{family.name}.py"
    cases = {name for name, *_ in family.cases(rng, versions(family, "numba"))}
    missing = {operation.name for operation in family.operations} - cases
    assert not missing, f"{where}: `cases` of FAMILY has no call of {sorted(missing)}"
    for dialect in DIALECTS:
        if not launchers.lacks(dialect, family):
            calls = {name for name, *_ in family.compiled(versions(family, dialect))}
            own = {o.name for o in family.operations if o.versions_in(dialect)}
            assert own <= calls, f"{where}: `compiled` has no call of {sorted(own - calls)}"


@every_family
def test_the_reference_has_the_operations(family):
    for operation in family.operations:
        assert launchers.has("numpy", family, operation), launchers.reason(
            "numpy", family, operation.name
        )
        oracle = inspect.signature(getattr(dispatch.dialect("numpy"), operation.name))
        own = list(inspect.signature(operation.launch).parameters)[1:]
        names = [name for name in own if name not in ("version", "like")]
        assert list(oracle.parameters) == names, operation.name


@every_family
def test_every_dialect_has_the_same_operations(family):
    lacking = [
        launchers.reason(dialect, family, operation.name)
        for dialect in DIALECTS
        for operation in family.operations
        if not launchers.has(dialect, family, operation)
    ]
    assert lacking == []


def twice(dialect, x, version=None):
    """An operation of a family that no dialect has."""
    return dialect.doubling.kernel(x)


@pytest.fixture
def doubling(monkeypatch):
    """A declared family with no kernels and no reference."""
    for dialect in dispatch.DIALECTS:  # they read the declarations when they are imported
        dispatch.dialect(dialect)
    operation = Operation(twice, like_first(1), lambda v: ((np.ones(3),), {}), {"simple": "one"})
    family = Family("doubling", (operation,), lambda *_: iter(()), lambda *_: iter(()))
    monkeypatch.setattr(launchers, "declared", lambda: {"doubling": family})
    monkeypatch.setattr(launchers, "operations", lambda: {"twice": operation})
    return family


def test_a_dialect_that_lacks_a_family_says_so(doubling, monkeypatch):
    def nothing_is_found(*_):
        raise AssertionError

    stub = launchers.exports("cupy", nothing_is_found)["twice"]
    with pytest.raises(NotImplementedError, match=r"twice: .*'cupy' .*\(family 'doubling'\)"):
        stub(np.ones(3))
    assert "kernels/cuda_c/doubling.py" in launchers.reason("cupy", doubling, "twice")
    monkeypatch.setattr(launchers, "_files", lambda d: {"doubling"} if d != "cupy" else frozenset())
    with pytest.raises(NotImplementedError, match="use backend='numba' or 'numpy', or write"):
        stub(np.ones(3))
    assert launchers.catalog("cupy") == []
    assert launchers.catalog("numba") == [("twice", "simple", "one")]
    with pytest.raises(NotImplementedError, match="'numba' lacks the family 'doubling'"):
        twice(Dialect("kernels.numba_cuda"), np.ones(3))


def test_an_operation_that_one_dialect_has(doubling):
    operation = Operation(twice, like_first(1), lambda v: ((), {}), dialects={"numba": {"a": "b"}})
    assert operation.versions_in("numba") == {"a": "b"}
    assert operation.versions_in("cupy") is None


def test_versions_need_a_problem():
    with pytest.raises(TypeError, match=r"launchers/doubling.py: .* twice has versions: give it"):
        operation = Operation(twice, like_first(1), versions={"simple": "one"})
        Family("doubling", (operation,), iter, iter)


def test_unknown_versions():
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"cumsum: expected a version among .*'blelloch'"):
        kernels.cumsum(x, version="fast", backend="numba")
    with pytest.raises(ValueError, match="batch_norm_apply: takes no version; the shapes choose"):
        kernels.batch_norm_apply(x, x[0], x[0], None, None, version="planes", backend="numba")
    with pytest.raises(ValueError, match="pointwise: takes no version"):
        kernels.exp(x, version="strided", backend="numba")


class OnGpu:
    """Stands for CuPy's array: NumPy's, said to lie on a GPU of some number."""

    def __init__(self, array: np.ndarray, number: int) -> None:
        self.array = array
        self.device = SimpleNamespace(id=number, compute_capability="80")

    @property
    def __cuda_array_interface__(self) -> dict:
        return self.array.__array_interface__

    def _like(self, value):
        return OnGpu(value, self.device.id) if isinstance(value, np.ndarray) else value

    def __getattr__(self, name: str):
        value = getattr(self.array, name)
        if callable(value):
            return lambda *args, **kwargs: self._like(value(*map(on_cpu, args), **kwargs))
        return self._like(value)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, key):
        return self._like(self.array[on_cpu(key)])

    def __setitem__(self, key, value) -> None:
        self.array[key] = on_cpu(value)


def _operator(name: str):
    return lambda self, *others: self._like(getattr(self.array, name)(*map(on_cpu, others)))


for _name in "lt le gt ge eq ne and or".split():
    setattr(OnGpu, f"__{_name}__", _operator(f"__{_name}__"))
OnGpu.__hash__ = object.__hash__


def on_cpu(value):
    return value.array if isinstance(value, OnGpu) else value


class Namespace:
    """The functions of NumPy or a module of it, with results on a GPU."""

    def __init__(self, number: int, module: ModuleType = np) -> None:
        self.number, self.module = number, module

    def __getattr__(self, name: str):
        function = getattr(self.module, name)
        if isinstance(function, ModuleType):
            return Namespace(self.number, function)

        def there(*args, **kwargs):
            value = function(*map(on_cpu, args), **kwargs)
            return OnGpu(value, self.number) if isinstance(value, np.ndarray) else value

        return there


def number_of(value) -> int | None:
    """Of the GPU where an array lies, -1 for the CPU; None for what is no array."""
    if isinstance(value, OnGpu):
        return value.device.id
    return -1 if isinstance(value, np.ndarray) else None


def placed(value, number: int):
    if isinstance(value, list):
        return [placed(v, number) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    return value.copy() if number < 0 else OnGpu(value.copy(), number)


@every_family
def test_what_is_bound_in_one_place_does_not_run_in_another(family, rng, monkeypatch):
    """Each call on the CPU, on two GPUs, and once more: every launch is where it was bound."""
    launched = []

    def bound(number: int):
        def launch(*args):
            there = {number_of(a) for a in args} - {None}
            assert there == {number}, f"bound on {number}, called with arrays on {there}"
            launched.append(number)

        return launch

    def bind_on_gpu(self, grid, block, *args):
        return bound(next(n for a in args if (n := number_of(a)) is not None))

    monkeypatch.setattr(Kernel, "bind", lambda *_: bound(-1))
    monkeypatch.setattr(Kernel, "bind_on_gpu", bind_on_gpu)
    monkeypatch.setattr(dispatch, "relaunch", lambda *_: None)  # of launches before this test
    monkeypatch.setattr(relaunch, "MAX_BYTES", -1)  # and nothing is remembered
    real = sys.modules["kernels.launchers.common"].namespace

    def namespace(a):
        return Namespace(a.device.id) if isinstance(a, OnGpu) else real(a)

    for name, module in list(sys.modules.items()):
        if name.startswith("kernels.launchers"):
            if "namespace" in vars(module):
                monkeypatch.setattr(module, "namespace", namespace)
            if "_plans" in vars(module):
                monkeypatch.setattr(module, "_plans", Plans())
    operations = dispatch.dialect("numba")
    for name, args, keywords, _ in family.cases(rng, versions(family, "numba")):
        call = getattr(operations, name)
        takes_like = "like" in inspect.signature(call).parameters
        for number in (-1, 0, 1, -1):
            like = {"like": placed(np.zeros(1), number)} if takes_like else {}
            before = len(launched)
            call(*[placed(a, number) for a in args], **keywords, **like)
            assert set(launched[before:]) == {number}, f"{name} launched nothing"
