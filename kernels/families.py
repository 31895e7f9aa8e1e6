"""Families of kernels: what there is to know of one apart from its kernels, declared once.

A declaration is the FAMILY at the end of a launcher, `kernels/launchers/<family>.py`: operations
with their versions, costs and a small problem each, and calls for the tests. From it derive the
operations of `kernels`, of its dialects and of the reference, the catalog, what `kernels.lab`
counts, profiles and compiles, and the tests of parity and of PTX (`kernels.launchers` has them
all). The kernels themselves are in `kernels/<dialect>/<family>.py`; a dialect without that file
lacks the family.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Spec = tuple[Shape, np.dtype] | None  # None for a result that is not wanted
Versions = Mapping[str, str]  # from a name to the one idea that the version adds, naive to fast
Call = tuple[str, tuple, dict[str, Any]]  # operation, arguments, keywords
Case = tuple[str, tuple, dict[str, Any], Any]  # a call, and what its errors are relative to


@dataclass(frozen=True)
class Operation:
    """An operation of a family.

    launch: its launcher, `launch(dialect, *args)`; the operation has its name.
    cost: from the arguments to the (shape, dtype) of each result and the floating-point operations.
        What works in place has None for the results, and `written`.
    problem: from a version to (args, keywords): a call small enough to be profiled in well under a
        second, for which that version runs.
    versions: those that `version=` takes. Where the launcher has no such argument, the shapes
        choose. None of them: the kernels are those of other operations.
    by_shape: further versions, which the launcher takes for some shapes alone.
    dialects: the versions by dialect, where they differ; a dialect that is not named there lacks
        the operation.
    written: from the arguments to the arrays that it changes in place.
    matrix: whether tensor cores could do it (matrix products and convolutions).
    gpu_only: versions that nothing but a GPU runs.
    """

    launch: Callable
    cost: Callable[..., tuple[list[Spec] | None, int]]
    problem: Callable[[str], tuple[tuple, dict[str, Any]]] | None = None
    versions: Versions = field(default_factory=dict)
    by_shape: Versions = field(default_factory=dict)
    dialects: Mapping[str, Versions] | None = None
    written: Callable[..., tuple] = lambda *args, **_: ()
    matrix: bool = False
    gpu_only: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.launch.__name__

    @property
    def takes_version(self) -> bool:
        return "version" in inspect.signature(self.launch).parameters

    def versions_in(self, dialect: str) -> Versions | None:
        """Its versions in a dialect; None where the dialect lacks it."""
        own = self.versions if self.dialects is None else self.dialects.get(dialect)
        return None if own is None else {**own, **self.by_shape}


@dataclass(frozen=True)
class Family:
    """Operations whose kernels share a file.

    cases: calls that tests compare with the reference, in shapes that are awkward and few. They get
        a random generator, and a function from an operation to its versions in a dialect.
    compiled: calls that launch every kernel, in float32 (products also in float16); what they
        launch on a GPU is compiled, and nothing is computed. They get the function alone.
    files: of the kernels in each dialect, where it is not one that has the family's name.
    """

    name: str
    operations: tuple[Operation, ...]
    cases: Callable[[np.random.Generator, Callable[[str], list[str]]], Iterator[Case]]
    compiled: Callable[[Callable[[str], list[str]]], Iterator[Call]]
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for operation in self.operations:
            if operation.problem is None and (operation.versions or operation.dialects):
                raise TypeError(
                    f"kernels/launchers/{self.name}.py: the operation {operation.name} has"
                    " versions: give it a problem, on which they are profiled"
                )

    def files_in(self, dialect: str) -> tuple[str, ...]:
        """The files that a dialect needs for it."""
        return self.files if self.files and dialect != "numpy" else (self.name,)


# What declarations are written with.


def like_first(flops_per_element: int) -> Callable:
    """The cost of an operation whose result is like its first argument."""
    return lambda x, *_, **__: ([(x.shape, x.dtype)], flops_per_element * x.size)


def floats(*shape: int) -> np.ndarray:
    """Normal numbers in float32, always the same."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def index(count: int, below: int) -> np.ndarray:
    """Indices from 0 to below - 1, always the same."""
    return np.random.default_rng(1).integers(0, below, count)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def as_for(version: str | None, *arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays in the dtype that a version takes."""
    return [a.astype(np.float16) if version == "mma_sync" else a for a in arrays]


def normal(rng: np.random.Generator, shape: int | Shape, dtype: Any = np.float32) -> np.ndarray:
    """Standard normal numbers, or integers of -9 .. 9 for an integer dtype."""
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
