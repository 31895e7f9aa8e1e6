"""The slow, faithful way to run a kernel: each CUDA thread executes the Python function itself.

Any Python works, `breakpoint()` and `print` too. It serves functions that the compiler cannot
express, and it is the oracle that tests compare the compiler with. Threads run one at a time in a
fixed order (`schedule`), and values have CUDA's types (`values`). A thread that reaches a barrier
or a warp collective waits until all participants have.
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from kernels.simt.device.context import Device
from kernels.simt.interpreter.functions import KERNEL_MARK, call_device_function, interpretable
from kernels.simt.interpreter.schedule import Scheduler, Task
from kernels.simt.interpreter.values import Int, KernelArray, as_dtype, cast, value_of
from kernels.simt.ir import stubs
from kernels.support.errors import CompileError, KernelError, LaunchError
from kernels.support.names import counted

WARP_SIZE = stubs.WARP_SIZE
FULL_MASK = 0xFFFFFFFF
SPIN = 1000
"""Consecutive loads of one element after which the thread yields to the others."""

Site = tuple[tuple[CodeType, int], ...]
Triple = tuple[int, int, int]


def run(
    function: Callable,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    shared_bytes: int = 0,
) -> None:
    """Run a kernel's Python function over a grid.

    `args` are NumPy arrays (written in place) and scalars. Raises LaunchError for a launch that
    hardware refuses, KernelError for barriers that not all threads reach and for endless spinning,
    KernelIndexError for an index outside its array; other exceptions of the function come through
    with a note of the thread.
    """
    launch = Launch(function, _triple("grid", grid), _triple("block", block), args, shared_bytes)
    with np.errstate(all="ignore"):
        launch.scheduler.run()


def _triple(what: str, size: int | Sequence[int]) -> Triple:
    parts = (size,) if isinstance(size, int | np.integer) else tuple(size)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"{what}: expected one to three sizes, got {size!r}")
    triple = (*map(int, parts), 1, 1)[:3]
    for axis, length in zip("XYZ", triple):
        limit = getattr(Device, f"MAX_{what.upper()}_DIM_{axis}")
        if not 1 <= length <= limit:
            raise LaunchError(f"{what}: size {length} in {axis.lower()} is not in 1..{limit}")
    return triple


def _positions(size: Triple) -> Iterator[Triple]:
    """All (x, y, z) below `size`, x fastest."""
    return ((x, y, z) for z, y, x in itertools.product(*(range(n) for n in reversed(size))))


class Launch:
    """One grid: its blocks are started in order, and run concurrently once they wait."""

    def __init__(
        self, function: Callable, grid: Triple, block: Triple, args: Sequence[Any], shared: int
    ) -> None:
        threads = block[0] * block[1] * block[2]
        if threads > Device.MAX_THREADS_PER_BLOCK:
            raise LaunchError(f"{threads} threads per block; hardware allows 1024")
        self.grid, self.block, self.shared_bytes = grid, block, shared
        self.function = interpretable(function)
        self.args = [value_of(arg) for arg in args]
        self.live: dict[int, Block] = {}
        self.grid_waiters: list[Thread] = []
        self.started_all = False
        self.scheduler = Scheduler(self._tasks(), self._stuck)

    def _tasks(self) -> Iterator[Task]:
        for number, position in enumerate(_positions(self.grid)):
            block = self.live[number] = Block(self, number, position)
            for thread in block.threads:
                yield thread.task
        self.started_all = True

    def finished(self, block: Block) -> None:
        del self.live[block.number]
        self.release_grid()

    def release_grid(self) -> None:
        """Release a grid barrier that every live thread of the grid has reached."""
        waiting = self.grid_waiters
        if not waiting or not self.started_all:
            return
        if len(waiting) == sum(block.live for block in self.live.values()):
            self.grid_waiters = []
            for thread in waiting:
                self.scheduler.resume(thread.task)

    def _stuck(self) -> None:
        """All threads wait and no block is left to start, so a grid barrier may be complete."""
        self.started_all = True
        before = len(self.grid_waiters)
        self.release_grid()
        if before != len(self.grid_waiters):
            return
        for block in self.live.values():
            for warp in block.warps:
                if warp.release_convergence():
                    return
        waiting = [t for block in self.live.values() for t in block.threads if t.waits_for]
        raise KernelError(_divergence(waiting))


def _divergence(waiting: list[Thread]) -> str:
    """Which threads wait where, at a collective that can never be complete."""
    places: dict[str, list[Thread]] = {}
    for thread in waiting:
        places.setdefault(f"{thread.waits_for} at {_location(thread.site)}", []).append(thread)
    lines = []
    for place, threads in places.items():
        first = threads[0]
        lines.append(
            f"{counted(len(threads), 'thread')} waiting in {place}, first thread {first.index} of"
            f" block {first.block.index}"
        )
    return (
        "divergent barrier or warp operation: not all threads that take part can reach it;"
        " hardware hangs or goes on with wrong data. " + "; ".join(lines)
    )


def _missed(waiting: list[Thread], ended: Thread) -> str:
    first = waiting[0]
    return (
        f"divergent barrier: {first.waits_for or 'syncthreads'} at {_location(first.site)} is"
        f" reached by only some live threads of block {first.block.index}: thread {first.index} is"
        f" there, thread {ended.index} bypassed it and reached the kernel's end. Hardware hangs"
        " or goes on with wrong data; move the barrier out of the branch, or return early"
    )


def _location(site: Site) -> str:
    code, instruction = site[0]
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return f"{code.co_filename}:{line}"
    return code.co_filename


class Block:
    """A block: its shared memory, its barrier and its warps."""

    def __init__(self, launch: Launch, number: int, index: Triple) -> None:
        self.launch, self.number, self.index = launch, number, index
        self.static: dict[tuple[CodeType, int], KernelArray] = {}
        self.dynamic = _poisoned(max(launch.shared_bytes, 0))
        positions = list(_positions(launch.block))
        self.live = len(positions)
        self.threads = [self.make_thread(i, position) for i, position in enumerate(positions)]
        self.warps = [
            _Warp(self, self.threads[first : first + WARP_SIZE])
            for first in range(0, self.live, WARP_SIZE)
        ]
        for thread in self.threads:
            thread.warp = self.warps[thread.number // WARP_SIZE]
        self.waiting: list[Thread] = []
        self.ended: Thread | None = None  # one that ran to the end of the kernel

    def make_thread(self, number: int, index: Triple) -> Thread:
        return Thread(self, number, index)

    def arrive(self, thread: Thread, kind: str, value: Any) -> Any:
        """`syncthreads` and its voting variants, which all live threads must reach."""
        thread.value = value
        self.waiting.append(thread)
        self.release_if_complete()
        return thread.wait(kind)

    def shuffled(self, thread: Thread, name: str, source: int, value: Any, got: Any) -> None:
        """A thread gave `value` to a shuffle and got lane `source`'s: for who looks on."""

    def release_if_complete(self) -> None:
        """Release a barrier that every live thread has reached; hardware counts arrivals."""
        waiting = self.waiting
        if waiting and self.ended is not None:
            raise KernelError(_missed(waiting, self.ended))
        if not waiting or len(waiting) < self.live:
            return
        self.waiting = []
        votes = [bool(thread.value) for thread in waiting]
        outcome = (sum(votes), all(votes), any(votes))
        for thread in waiting:
            self.launch.scheduler.resume(thread.task, outcome)

    def exited(self, thread: Thread) -> None:
        self.live -= 1
        if not thread.returned_early():
            self.ended = thread
        thread.warp.release_if_complete()
        if self.live:
            self.release_if_complete()
            self.launch.release_grid()
        else:
            self.launch.finished(self)

    def shared_array(self, site: tuple[CodeType, int], shape: Any, dtype: np.dtype) -> KernelArray:
        if shape == 0:
            count = len(self.dynamic) // dtype.itemsize
            return self.dynamic[: count * dtype.itemsize].view(dtype).view(KernelArray)
        if site not in self.static:
            array = _array(shape, dtype)
            used = sum(np.asarray(other).nbytes for other in self.static.values())
            used += np.asarray(array).nbytes
            if used > Device.MAX_SHARED_MEMORY_PER_BLOCK:
                raise LaunchError(
                    f"{used} bytes of static shared memory at {_location((site,))}; hardware has"
                    f" {Device.MAX_SHARED_MEMORY_PER_BLOCK} a block"
                )
            self.static[site] = array
        return self.static[site]


def _poisoned(count: int) -> np.ndarray:
    """Uninitialised memory that shows: every byte is 0xFF (NaN, or -1)."""
    return np.full(count, 0xFF, np.uint8)


def _array(shape: Any, dtype: np.dtype) -> KernelArray:
    shape = tuple(map(int, shape)) if isinstance(shape, tuple | list) else (int(shape),)
    count = int(np.prod(shape, dtype=np.int64))
    return _poisoned(count * dtype.itemsize).view(dtype).reshape(shape).view(KernelArray)


class _Warp:
    """32 threads and their pending collectives, keyed by operation, mask and place."""

    def __init__(self, block: Block, threads: list[Thread]) -> None:
        self.block, self.threads = block, threads
        self.pending: dict[tuple[str, int, Site], dict[int, Thread]] = {}

    def arrive(self, thread: Thread, name: str, mask: int, value: Any) -> dict[int, Any]:
        """Wait for the live lanes of `mask`; returns the values by lane."""
        if not mask >> thread.lane & 1:
            raise KernelError(
                f"{name}: lane {thread.lane} is not in its own mask {mask:#010x}, {thread.where()}"
            )
        thread.value = value
        self.pending.setdefault((name, mask, thread.site), {})[thread.lane] = thread
        self.release_if_complete()
        return thread.wait(name)

    def release_if_complete(self) -> None:
        live = sum(1 << thread.lane for thread in self.threads if not thread.done)
        for key, present in list(self.pending.items()):
            name, mask, _ = key
            arrived = sum(1 << lane for lane in present)
            if name != "activemask" and mask & live & ~arrived == 0:
                self._release(key)

    def _release(self, key: tuple[str, int, Site]) -> None:
        present = self.pending.pop(key)
        values = {lane: thread.value for lane, thread in sorted(present.items())}
        for thread in present.values():
            self.block.launch.scheduler.resume(thread.task, values)

    def release_convergence(self) -> bool:
        """Complete an `activemask`: all lanes that can reach it have."""
        for key in self.pending:
            if key[0] == "activemask":
                self._release(key)
                return True
        return False


class Thread:
    """A CUDA thread; while it runs, the stubs act through it."""

    def __init__(self, block: Block, number: int, index: Triple) -> None:
        self.block, self.number, self.index = block, number, index
        self.lane = number % WARP_SIZE
        self.warp: _Warp = None  # set when the block's warps exist
        self.task = Task(block.number * 1024 + number, self._body)
        self.done = False
        self.waits_for = ""
        self.site: Site = ()
        self.value: Any = None
        self._frame: FrameType | None = None
        self._last_load: Any = None
        self._repeats = 0

    def _body(self) -> None:
        launch = self.block.launch
        try:
            with stubs.entered(self), np.errstate(all="ignore"):
                result = launch.function(*launch.args)
            if result is not None:
                raise CompileError(f"a kernel returns nothing, not {result!r}; write to an array")
        except Exception as error:
            error.add_note(f"in {self.where()}")
            raise
        finally:
            self.done = True
        self.block.exited(self)

    def returned_early(self) -> bool:
        """Whether the kernel ended at a `return` statement rather than at its end.

        A thread that has returned holds up no barrier; one that reaches the end while others wait
        at a barrier has bypassed it. A finished frame still has its last line.
        """
        frame, self._frame = self._frame, None
        if frame is None:
            return False
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return not line or re.search(r"\breturn\b", line) is not None

    def wait(self, what: str) -> Any:
        self.waits_for = what
        outcome = self.block.launch.scheduler.wait(self.task)
        self.waits_for = ""
        return outcome

    def where(self) -> str:
        """This thread and, while it runs, its source line."""
        frames = kernel_frames()
        line = f", {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else ""
        return f"block {self.block.index}, thread {self.index}{line}"

    def name_of(self, array: Any) -> str:
        """The kernel's variable that holds the array."""
        for frame in kernel_frames()[:1]:
            for name, value in frame.f_locals.items():
                if value is array:
                    return name
        return "array"

    def tick(self, array: Any, index: Any, stores: bool = False) -> None:
        """Called before each access: a thread that repeats a load waits for another thread."""
        key = (id(array), None if stores else index)
        if key != self._last_load:
            self._last_load, self._repeats = key, 0
            return
        self._repeats += 1
        if self._repeats >= SPIN:
            self._repeats = 0
            self.yield_to_others()

    def yield_to_others(self) -> None:
        if not self.block.launch.scheduler.yield_to_others(self.task):
            raise KernelError(
                f"endless wait: {self.where()} keeps reading what no other thread will write"
            )

    # --- what stubs ask for

    def special(self, name: str) -> Any:
        if self._frame is None:
            self._frame = kernel_frames()[-1]
        launch = self.block.launch
        if name == "laneid":
            return Int(self.lane)
        if name == "warpsize":
            return Int(WARP_SIZE)
        return {
            "threadIdx": self.index,
            "blockIdx": self.block.index,
            "blockDim": launch.block,
            "gridDim": launch.grid,
        }[name]

    def call(self, name: str, args: tuple, kwargs: dict) -> Any:
        if self._frame is None:
            self._frame = kernel_frames()[-1]
        method = _CALLS.get(name)
        if method is not None:
            return method(self, *args, **kwargs)
        return call_device_function(self, name, args, kwargs)

    def at(self) -> Thread:
        """Note the place in the source, before waiting there."""
        frames = kernel_frames()
        self.site = tuple((frame.f_code, frame.f_lasti) for frame in frames)
        return self


def kernel_frames() -> list[FrameType]:
    """The kernel's own frames, innermost first."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not Thread._body.__code__:
        if KERNEL_MARK in frame.f_globals:
            frames.append(frame)
        frame = frame.f_back
    return frames


# --- the stubs, by name


def _grid(thread: Thread, ndim: Any) -> Any:
    block = thread.block.launch.block
    return _by_dimension(
        ndim, [b * n + t for b, n, t in zip(thread.block.index, block, thread.index)]
    )


def _gridsize(thread: Thread, ndim: Any) -> Any:
    launch = thread.block.launch
    return _by_dimension(ndim, [b * n for b, n in zip(launch.block, launch.grid)])


def _by_dimension(ndim: Any, sizes: list[int]) -> Any:
    if ndim not in (1, 2, 3):
        raise ValueError(f"expected 1, 2 or 3 dimensions, got {ndim}")
    return Int(sizes[0]) if ndim == 1 else tuple(map(Int, sizes[:ndim]))


def _barrier(name: str, choose: Callable[[tuple], Any]) -> Callable:
    def call(thread: Thread, predicate: Any = True) -> Any:
        return choose(thread.at().block.arrive(thread, name, predicate))

    return call


def _shared_array(thread: Thread, shape: Any, dtype: Any, alignment: Any = None) -> KernelArray:
    frame = kernel_frames()[0]
    return thread.block.shared_array((frame.f_code, frame.f_lasti), shape, as_dtype(dtype))


def _local_array(thread: Thread, shape: Any, dtype: Any, alignment: Any = None) -> KernelArray:
    return _array(shape, as_dtype(dtype))


def _constant(thread: Thread, array: Any) -> KernelArray:
    constant = np.array(array)
    constant.flags.writeable = False
    return constant.view(KernelArray)


def _mask(mask: Any) -> int:
    return int(mask) & FULL_MASK


def _shuffle(name: str, source: Callable[[int, int], int]) -> Callable:
    def call(thread: Thread, mask: Any, value: Any, where: Any) -> Any:
        values = thread.at().warp.arrive(thread, name, _mask(mask), value)
        lane = source(thread.lane, int(where))
        got = values.get(lane, value)  # beyond the warp, or from a lane that is not there
        thread.block.shuffled(thread, name, lane if lane in values else thread.lane, value, got)
        return got

    return call


def _vote(name: str, decide: Callable[[dict[int, Any], Thread], Any]) -> Callable:
    def call(thread: Thread, mask: Any = FULL_MASK, value: Any = True) -> Any:
        return decide(thread.at().warp.arrive(thread, name, _mask(mask), value), thread)

    return call


def _lanes(values: dict[int, Any], matches: Callable[[Any], bool], kind: Any = np.int32) -> Int:
    bits = sum(1 << lane for lane, value in values.items() if matches(value))
    return cast(np.dtype(kind), Int(bits))


def _all_equal(values: dict[int, Any]) -> bool:
    first, *others = values.values()
    return all(value == first for value in others)


def _match_all(values: dict[int, Any], thread: Thread) -> tuple[Int, bool]:
    equal = _all_equal(values)
    return _lanes(values, lambda value: equal), equal


def _active(thread: Thread) -> Int:
    return _lanes(thread.at().warp.arrive(thread, "activemask", FULL_MASK, True), bool, np.uint32)


def _grid_sync(thread: Thread, *group: Any) -> Int:
    launch = thread.at().block.launch
    launch.grid_waiters.append(thread)
    launch.release_grid()
    thread.wait("grid.sync")
    return Int(0)


class GridGroup:
    """`cuda.cg.this_grid()`."""

    def sync(self) -> Int:
        return stubs.grid_group_sync()


def _pass(thread: Thread, *ignored: Any) -> None:
    return None


def _sleep(thread: Thread, nanoseconds: Any) -> None:
    thread.yield_to_others()


def _store(thread: Thread, array: Any, index: Any, value: Any) -> None:
    array[index] = value


_CALLS: dict[str, Callable] = {
    "grid": _grid,
    "gridsize": _gridsize,
    "syncthreads": _barrier("syncthreads", lambda votes: None),
    "syncthreads_count": _barrier("syncthreads_count", lambda votes: Int(votes[0])),
    "syncthreads_and": _barrier("syncthreads_and", lambda votes: Int(votes[1])),
    "syncthreads_or": _barrier("syncthreads_or", lambda votes: Int(votes[2])),
    "syncwarp": _vote("syncwarp", lambda values, thread: None),
    "shared.array": _shared_array,
    "local.array": _local_array,
    "const.array_like": _constant,
    "shfl_sync": _shuffle("shfl_sync", lambda lane, source: source % WARP_SIZE),
    "shfl_up_sync": _shuffle("shfl_up_sync", lambda lane, delta: lane - delta),
    "shfl_down_sync": _shuffle("shfl_down_sync", lambda lane, delta: lane + delta),
    "shfl_xor_sync": _shuffle("shfl_xor_sync", lambda lane, flip: lane ^ flip),
    "all_sync": _vote("all_sync", lambda values, thread: all(values.values())),
    "any_sync": _vote("any_sync", lambda values, thread: any(values.values())),
    "eq_sync": _vote("eq_sync", lambda values, thread: _all_equal(values)),
    "ballot_sync": _vote("ballot_sync", lambda values, thread: _lanes(values, bool)),
    "match_any_sync": _vote(
        "match_any_sync",
        lambda values, thread: _lanes(values, lambda value: value == values[thread.lane]),
    ),
    "match_all_sync": _vote("match_all_sync", _match_all),
    "activemask": _active,
    "lanemask_lt": lambda thread: cast(np.dtype(np.uint32), Int((1 << thread.lane) - 1)),
    "threadfence": _pass,
    "threadfence_block": _pass,
    "threadfence_system": _pass,
    "nanosleep": _sleep,
    "cg.this_grid": lambda thread: GridGroup(),
    "cg.GridGroup.sync": _grid_sync,
}
_CALLS |= dict.fromkeys(stubs.LOADS, lambda thread, array, index: array[index])
_CALLS |= dict.fromkeys(stubs.STORES, _store)
