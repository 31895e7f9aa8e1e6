"""Runs a kernel as the PTX that NVIDIA's compilers make of it, and counts its instructions.

No GPU is needed, only the wheels of the extra `cuda13` (or `cuda12`) and a C++ compiler.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from kernels import ptx as machine
from kernels.host.on_gpu import OnGpu
from kernels.lab.gpu_model import nvrtc
from kernels.lab.gpu_model.compiled import numba_ptx
from kernels.lab.gpu_model.occupancy import capability
from kernels.simt.api.launch import jit
from kernels.support.errors import ArgumentError


@dataclass(frozen=True)
class PtxExecuted:
    """How often warps executed something, and for how many lanes."""

    warps: int
    lanes: int


@dataclass(frozen=True)
class PtxRun:
    """What a launch executed.

    instructions: by form, such as "fma.rn.f32"; lines: by (file, line) of the source, where the
    compiler knows it; ptx: the text. Forms and lines with most executions come first.
    """

    name: str
    cc: tuple[int, int]
    instructions: dict[str, PtxExecuted]
    lines: dict[tuple[str, int], PtxExecuted]
    ptx: str = field(repr=False)

    @property
    def executed(self) -> PtxExecuted:
        """All of them."""
        every = self.instructions.values()
        return PtxExecuted(sum(e.warps for e in every), sum(e.lanes for e in every))

    def __str__(self) -> str:
        total = self.executed
        rows = [
            f"{self.name} as PTX for compute capability {self.cc[0]}.{self.cc[1]}: warps executed"
            f" {total.warps} instructions with {total.lanes / max(total.warps, 1):.1f} lanes each",
            "",
            f"{'executions':>12}  {'lanes':>5}  instruction",
        ]
        rows += [_row(e, form) for form, e in self.instructions.items()]
        if self.lines:
            rows += ["", f"{'executions':>12}  {'lanes':>5}  source line"]
            for (file, line), e in self.lines.items():
                rows.append(_row(e, f"{PurePath(file).name}:{line}"))
        return "\n".join(rows)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": str(self)}


def _row(executed: PtxExecuted, what: str) -> str:
    return f"{executed.warps:>12}  {executed.lanes / max(executed.warps, 1):>5.1f}  {what}"


def ptx(
    kernel: Any,
    grid: Any,
    block: Any,
    *arguments: Any,
    cc: tuple[int, int] | float | str = (8, 0),
    shared: int = 0,
) -> PtxRun:
    """Launch a kernel as PTX for compute capability `cc` on NumPy arrays, and count what it does.

    kernel: `@cuda.jit`, its Python function, or `raw_kernel(...)` of CUDA C; arguments as
    for a launch; shared: bytes of dynamic shared memory. The arrays are changed as by a launch.
    Each access is checked: KernelIndexError for one outside of the arrays, KernelError for a
    misaligned one, a divergent barrier, a mask without its own lane. Raises CompileError where
    NVIDIA's compilers are not installed, or for an instruction that needs a GPU (wgmma).
    """
    cc = capability(cc)
    (name, text), values = entry_and_values(kernel, arguments, cc)
    module = module_of(text)
    lowered = module.kernel(name)
    counts = np.zeros((len(lowered.origins), 2), np.uint64)
    module.launch(
        name, grid, block, shared, packed(lowered.parameters.values(), values, name),
        allocations=allocations_of(arguments), counts=counts,
    )  # fmt: skip
    known = getattr(kernel, "__name__", None) or kernel.name
    return PtxRun(known, cc, *_counted(lowered, counts), text)


def entry_and_values(
    kernel: Any, arguments: tuple, cc: tuple[int, int]
) -> tuple[tuple[str, str], list[bytes]]:
    """A kernel's name in the PTX and the PTX, for the types of its arguments; the bytes of its
    parameters."""
    if callable(kernel) and not hasattr(kernel, "py_func") and hasattr(kernel, "__code__"):
        kernel = jit(kernel)
    if hasattr(kernel, "code"):
        kinds = OnGpu(kernel.name, kernel.code, None).kinds
        if len(kinds) != len(arguments):
            raise ArgumentError(f"{kernel.name} takes {len(kinds)} arguments, not {len(arguments)}")
        values = [_in_c(value, kind) for value, kind in zip(arguments, kinds)]
        return _from_nvrtc(kernel.code, kernel.name, kernel.options, cc), values
    if not hasattr(kernel, "py_func"):
        raise TypeError(f"ptx: expected a kernel (cuda.jit or raw_kernel), got {kernel!r}")
    from numba import typeof

    from kernels.simt.backend.inference import declared_types

    signature = getattr(kernel, "signature", None)
    types = tuple(map(typeof, arguments)) if signature is None else declared_types(signature)[0]
    if len(types) != len(arguments):
        raise ArgumentError(f"{kernel.__name__} takes {len(types)} arguments, not {len(arguments)}")
    values = [piece for value, kind in zip(arguments, types) for piece in _in_numba(value, kind)]
    return _from_numba(kernel, tuple(types), cc), values


@functools.lru_cache(maxsize=256)
def _from_nvrtc(
    code: str, name: str, options: tuple[str, ...], cc: tuple[int, int]
) -> tuple[str, str]:
    target = f"compute_{cc[0]}{cc[1]}"
    (entry,), _, text, _ = nvrtc.translate(code, [name], target, ("-lineinfo", *options))
    return entry, text


@functools.lru_cache(maxsize=256)
def _from_numba(kernel: Any, types: tuple, cc: tuple[int, int]) -> tuple[str, str]:
    text = numba_ptx(kernel, types, cc, lines=True)
    (entry,) = module_of(text).kernels
    return entry, text


@functools.lru_cache(maxsize=64)
def module_of(text: str) -> machine.Module:
    return machine.load(text)


# -- parameters --------------------------------------------------------------------------------


def _in_c(value: Any, kind: Any) -> bytes:
    """An argument as CUDA C's parameter has it."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value.ctypes.data.to_bytes(8, "little")
    if value is None:
        return bytes(8)
    if isinstance(kind, type):
        return kind(value).tobytes()
    if hasattr(value, "tobytes"):  # a number of NumPy's, or a structure
        return value.tobytes()
    raise ArgumentError(f"ptx: {value!r} for a parameter of type {kind}: pass a NumPy number")


def _in_numba(value: Any, kind: Any) -> list[bytes]:
    """An argument as numba-cuda passes it: an array as its pointers, sizes and strides."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.Array):
        numbers = [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape]
        return [int(n).to_bytes(8, "little", signed=True) for n in (*numbers, *value.strides)]
    if isinstance(kind, types.BaseTuple):
        return [piece for one, t in zip(value, kind) for piece in _in_numba(one, t)]
    if isinstance(kind, types.NoneType | types.Omitted):
        return []
    if isinstance(kind, types.Complex):
        dtype = as_dtype(kind.underlying_float)
        return [dtype.type(value.real).tobytes(), dtype.type(value.imag).tobytes()]
    if isinstance(kind, types.Boolean):
        return [bytes([bool(value)])]
    return [as_dtype(kind).type(value).tobytes()]


def packed(places: Any, values: list[bytes], name: str) -> bytes:
    places = list(places)
    if len(places) != len(values):
        raise ArgumentError(f"{name} has {len(places)} parameters, not {len(values)}")
    packed = bytearray(max((at + size for at, size in places), default=0))
    for (at, size), value in zip(places, values):
        packed[at : at + len(value)] = value[:size]
    return bytes(packed)


def allocations_of(arguments: tuple) -> list[tuple[int, int]]:
    """The memory of the arrays among the arguments: a view may touch what it is a view of."""
    found = []
    for value in arguments:
        if isinstance(value, list | tuple):
            found += allocations_of(tuple(value))
        if isinstance(value, np.ndarray):
            low, high = np.lib.array_utils.byte_bounds(value)
            found.append((low, high - low))
    return _merged(found)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same memory with no overlaps."""
    merged: list[list[int]] = []
    for base, size in sorted(spans):
        if merged and base < merged[-1][0] + merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], base + size - merged[-1][0])
        else:
            merged.append([base, size])
    return [(base, size) for base, size in merged]


# -- counts ------------------------------------------------------------------------------------


def _counted(lowered: Any, counts: np.ndarray) -> tuple[dict, dict]:
    """Executions by form and by source line; an instruction's first operation counts for it."""
    forms: dict[str, list[int]] = {}
    lines: dict[tuple[str, int], list[int]] = {}
    before = None
    for origin, (warps, lanes) in zip(lowered.origins, counts.tolist()):
        if origin is before or not warps:
            continue
        before = origin
        keys = [(forms, origin.text)]
        if origin.location is not None:
            file = origin.location.file
            own = PurePath(file).name == nvrtc.FILE  # which NVRTC places in the current folder
            keys.append((lines, (nvrtc.FILE if own else file, origin.location.line)))
        for table, key in keys:
            total = table.setdefault(key, [0, 0])
            total[0] += warps
            total[1] += lanes
    return _ordered(forms), _ordered(lines)


def _ordered(table: dict) -> dict:
    rows = sorted(table.items(), key=lambda row: (-row[1][0], str(row[0])))
    return {key: PtxExecuted(*total) for key, total in rows}
