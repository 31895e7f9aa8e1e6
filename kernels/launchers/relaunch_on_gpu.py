"""Launches on a GPU are remembered, as `relaunch` has those on the CPU.

A plan that is one launch (`relaunch.Single`) is remembered when it has run. From then on
`dispatch.relaunch` finds it by the dtypes, shapes, strides and GPUs of the operands: one look-up,
one allocation, and a launch into whose arguments only addresses and numbers are written. Which
argument lies where in which operand is seen once, on arrays that stand in for the operands.

None where nothing is remembered, or where a launch fails: the caller takes the long way, which
explains the failure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.launchers.common import on_gpu
from kernels.launchers.plans import Plans
from kernels.sequence import Launch
from kernels.support.memory import is_on_gpu

MAX_BYTES = 1 << 26  # of the arrays that stand in for operands
MAX_LAUNCHES = 1 << 15  # remembered, there and on the CPU
_known = Plans(MAX_LAUNCHES)  # functions of the operands
_ndarray: Any = None  # CuPy's, from the first launch on


def relaunch(tracer: Any, active: Any, operation: Any, *operands: Any) -> Any:
    """As `dispatch.relaunch`, where some operand is an array on a GPU and nothing is traced."""
    found = _known.get(key_of(active, operation, operands))
    if found is None:
        return None
    try:
        return found(operands)
    except Exception:
        return None


def key_of(dialect: Any, operation: Any, operands: Sequence) -> tuple:
    """What a launch is found by: its operation, and what tells its operands from others."""
    ndarray, key = _ndarray or _find_ndarray(), [dialect, operation]
    for a in operands:
        if type(a) is ndarray:
            key += (a.dtype, a.shape, a.strides, a.data.device_id)
        else:
            key.append(type(a))
    return tuple(key)


def _find_ndarray() -> Any:
    global _ndarray
    import cupy

    _ndarray = cupy.ndarray
    return _ndarray


def remember(key: tuple, runs: list, new: Sequence, returned: int) -> bool:
    """Remember launches, functions of the operands and of new arrays like `new`; the first is the
    result, or a tuple of the first `returned`, or the first operand if there are none. Whether
    others had to be forgotten."""
    full = len(_known) >= _known.limit
    _known.keep(key, _made(runs, new, returned) if new else _written(runs))
    return full


def forget() -> None:
    """Forget all launches."""
    _known.clear()


def _written(runs: list) -> Callable[[tuple], Any]:
    def launch(operands: tuple) -> Any:
        for run in runs:
            run(operands)
        return operands[0]

    return launch


def _made(runs: list, new: Sequence, returned: int) -> Callable[[tuple], Any]:
    """A function that makes the new arrays, on CuPy's current GPU: None unless that is theirs."""
    import cupy

    there = new[0].data.device_id
    make, runtime = cupy.ndarray, cupy.cuda.runtime
    current = runtime.getDevice if runtime.getDeviceCount() > 1 else None
    kinds = [(a.shape, a.dtype) for a in new]
    if len(runs) == len(new) == 1 and not returned and current is None:
        return _made_alone(runs[0], make, *kinds[0])

    def launch(operands: tuple) -> Any:
        if current is not None and current() != there:
            return None
        made = []
        for shape, dtype in kinds:
            made.append(make(shape, dtype))
        values = (*operands, *made)
        for run in runs:
            run(values)
        return tuple(made[:returned]) if returned else made[0]

    return launch


def _made_alone(run: Callable, make: Callable, shape: tuple, dtype: Any) -> Callable:
    """One launch with one result, on the only GPU."""

    def launch(operands: tuple) -> Any:
        out = make(shape, dtype)
        run((*operands, out))
        return out

    return launch


def repeats(launches: list[Launch], before: list[Launch], values: Sequence) -> list | None:
    """The launches as functions of `values`, arrays and numbers that their arguments come from.
    Other arguments must be the same as in the launches `before`; None where they are not."""
    if [launch[:3] for launch in launches] != [launch[:3] for launch in before]:
        return None
    if not handed_on(values, launches):
        return None
    made = []
    for (kernel, grid, block, args), earlier in zip(launches, before, strict=True):
        lasting = set()
        for arg, old in zip(args, earlier.args, strict=True):
            if on_gpu(arg):
                lasting |= {arg.data.ptr} & {old.data.ptr}
            elif arg is not old and arg != old:
                return None
        source = functools.partial(_source, values, lasting)
        try:
            run = kernel.repeat_on_gpu(grid, block, args, source)
        except LookupError:
            return None
        if run is None:
            return None
        made.append(run)
    return made


def handed_on(values: Sequence, launches: list[Launch]) -> bool:
    """Whether launches get each number among values as it is. One that was converted before is in
    them as a constant: that of the call that was watched."""
    given = {id(arg) for launch in launches for arg in launch.args}
    return all(id(v) in given for v in values if type(v) in (int, float))


def fits(values: Sequence) -> bool:
    """Whether all values are numbers, or arrays of CuPy that are not too large, have elements, and
    begin where their memory begins."""
    arrays = [a for a in values if is_on_gpu(a)]
    if not arrays or any(not a.size or min(a.strides, default=0) < 0 for a in arrays):
        return False
    others = sum(type(v) in (float, int, type(None)) for v in values)
    return len(arrays) + others == len(values) and sum(a.nbytes for a in arrays) <= MAX_BYTES


def _reach(a: Any) -> tuple[int, int]:
    """Where the memory of an array begins and ends."""
    steps = [(n - 1) * step for n, step in zip(a.shape, a.strides)]
    first = a.data.ptr + sum(s for s in steps if s < 0)
    return first, a.data.ptr + sum(s for s in steps if s > 0) + a.itemsize


def stand_in(value: Any) -> Any:
    """A value of the same kind in memory, or with an identity, of its own."""
    if is_on_gpu(value):
        import cupy

        first, last = _reach(value)
        memory = cupy.zeros(last - first, np.uint8).data
        return cupy.ndarray(value.shape, value.dtype, memory, value.strides)
    if type(value) is float:
        return float("0.5")
    return int("123456789") if type(value) is int else value


def made_by(results: Sequence, memory: Sequence) -> list | None:
    """The arrays that launches write beside their operands: the results first, each a whole one of
    `memory` in its shape. None for a result that is not."""
    starts = {a.data.ptr: a for a in memory if a.size}
    for result in results:
        whole = starts.pop(result.data.ptr, None)
        if whole is None or whole.nbytes != result.nbytes or not result.flags.c_contiguous:
            return None
    return [*results, *starts.values()]


def _source(values: Sequence, lasting: set[int], arg: Any) -> tuple[int, int] | None:
    """Which of the values an argument comes from, and how many bytes behind its address it lies;
    None for one that is always the same. LookupError for an array that is in none of them, nor at
    an address that lasts."""
    if not on_gpu(arg):
        found = next((i for i, v in enumerate(values) if v is arg and v is not None), None)
        return None if found is None else (found, 0)
    if not arg.size:
        return None
    first, last = _reach(arg)
    for i, value in enumerate(values):
        if on_gpu(value):
            start, end = _reach(value)
            if start <= first and last <= end:
                return i, arg.data.ptr - value.data.ptr
    if arg.data.ptr not in lasting:
        raise LookupError
    return None
