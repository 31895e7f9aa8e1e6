"""Launches are remembered: the next ones like them run without Python around them.

A plan that is one launch (`Single`) is remembered when it has run twice: many shapes come once, and
to remember a launch takes far longer than to run it. From then on
`dispatch.relaunch(dispatch.tracer, dispatch.active, operation, *operands)` finds it by the dtypes,
shapes and strides of the operands, allocates and launches, in machine code
(`kernels.simt.backend.relaunch`), for arrays on a GPU in Python (`relaunch_on_gpu`). It returns
None for all that it does not know: other dialects, very large arrays. `remembered` does the same
for a launcher of several launches or results, and `dispatch.together` for several operations:
after its second call with such operands it is watched.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels import dispatch
from kernels.launchers import relaunch_on_gpu
from kernels.launchers.plans import Plans
from kernels.launchers.relaunch_on_gpu import MAX_LAUNCHES
from kernels.sequence import Launch, Sequence, compiled_for
from kernels.support import forks
from kernels.support.interrupts import deferred
from kernels.support.memory import is_on_gpu, owner_of

MAX_BYTES = 1 << 24  # of operands and new arrays: beyond that, Python takes under a hundredth
SHORT_BYTES = 1 << 12  # launches up to this size are always short
MAX_OPERANDS = 64
_DATA = 4  # the word of an array's address among those of its argument
_MASK = 2**64 - 1


class Single:
    """A plan that is one launch, into a new result or into one that is given.

    launch: of `launcher`. allocate: makes the result. arguments: the kernel's arguments from the
    operands (arrays, numbers, None) and the result, of which they are views. operation: how callers
    of `dispatch.relaunch` name it; None where it cannot be remembered. into: its name for a result
    that is given, which they put before the operands; none of these may overlap it, but for the
    same elements in the same order.
    """

    __slots__ = (
        *("allocate", "arguments", "dialect", "into", "launch", "operation"),
        *("remembered", "seen"),  # generations of `_table`
    )

    def __init__(
        self,
        launch: Any,
        allocate: Callable[[], Any],
        arguments: Callable[[tuple, Any], tuple],
        dialect: Any,
        operation: Any = None,
        into: Any = None,
    ) -> None:
        self.launch, self.allocate, self.arguments = launch, allocate, arguments
        self.dialect, self.operation, self.into = dialect, operation, into
        self.remembered = self.seen = -1

    def __call__(self, operands: tuple, out: Any = None) -> Any:
        fresh = out is None
        if fresh:
            out = self.allocate()
            tracer = dispatch.tracer
            if tracer is not None:
                tracer.scratch(out)
        self.launch(*self.arguments(operands, out))
        if (self.operation if fresh else self.into) is None or not _may_remember():
            return out
        if self.seen != _table.generation:
            self.seen = _table.generation
        elif self.remembered != self.seen and (
            _remember(self, operands, out) if fresh else _remember_into(self, operands, out)
        ):
            self.remembered = _table.generation
        return out


class _Table:
    """The remembered launches, in a hash table with open addressing; a full one starts anew."""

    def __init__(self) -> None:
        self.generation = 0
        self.lock = forks.rlock()  # a handler of a signal may launch, too
        self.count = self.limit = 0
        self.kept: list[Any] = []
        self.before: list[Any] = []  # another thread may still run one of the former generation
        self.slots = np.zeros(0, np.uint64)
        self.state: Any = None

    def add(self, key: list[int], words: list[int], kept: Any) -> None:
        """Remember a launch by its key; `words` follow the hash and the length of the key."""
        with self.lock, deferred():
            self._start()
            if self.count >= self.limit:
                self._clear()
            place = spread(key)
            record = np.array([w & _MASK for w in (place, len(key), *words)], np.uint64)
            while self.slots[place % len(self.slots)]:
                place += 1
            self.kept.append((record, kept))
            self.slots[place % len(self.slots)] = record.ctypes.data
            self.count += 1

    def _start(self) -> None:
        """Let the callers of `dispatch.relaunch` come here."""
        from kernels.simt.backend import entry, helpers, relaunch

        if self.state is None:
            helpers.pool()
            self.state = relaunch.state()
            self._clear()
            dispatch.relaunch = entry.function("relaunch", self.state)

    def add_on_gpu(self, key: tuple, runs: list, new: Any, returned: int) -> None:
        """Remember launches on a GPU (`relaunch_on_gpu.remember`)."""
        import cupy

        from kernels.simt.backend import relaunch

        with self.lock, deferred():
            self._start()
            self.state[relaunch.THERE] = id(cupy.ndarray)
            self.state[relaunch.ELSEWHERE] = id(relaunch_on_gpu.relaunch)
            if relaunch_on_gpu.remember(key, runs, new, returned):
                self.generation += 1  # what was forgotten comes again

    def _clear(self) -> None:
        from kernels.simt.backend import relaunch

        self.before, self.kept, self.count = [self.slots, *self.kept], [], 0
        self.limit = MAX_LAUNCHES  # a full table would be searched without end
        self.slots = np.zeros(2 << self.limit.bit_length(), np.uint64)
        self.state[relaunch.SLOTS] = self.slots.ctypes.data
        self.state[relaunch.MASK] = len(self.slots) - 1
        self.generation += 1


_table = _Table()


def forget_on_gpu() -> None:
    """Forget all launches on a GPU: other kernels are chosen from now on."""
    with _table.lock:
        relaunch_on_gpu.forget()
        _table.generation += 1


def spread(key: list[int]) -> int:
    """The hash of a key, as the machine code computes it."""
    from kernels.simt.backend.relaunch import FACTOR

    found = len(key)
    for part in key:
        found = (found ^ (part & _MASK)) * FACTOR & _MASK
        found ^= found >> 32
    return found


def _remember(plan: Single, operands: tuple, out: Any) -> bool:
    """Remember the launch that has just run, if it is one of machine code on small arrays, and the
    copies of operands that it takes. Whether that is decided."""
    of = getattr(plan.launch, "of", None)
    if of is not None and is_on_gpu(out):
        return _remember_on_gpu(plan, operands, out, given=False)
    if of is None or not _is_small(operands, (out,)):  # None: what notes launches has its place
        return True
    module = plan.dialect.module
    shown, result = [_stand_in(operand) for operand in operands], _stand_in(out)
    args = plan.arguments(tuple(shown), result)
    known = [a for a in (*shown, result) if isinstance(a, np.ndarray)]
    if any(_is_copy(arg, known) for arg in args):
        asked = module, plan.operation
        return _learn_twice(plan.dialect, asked, operands, plan, 0) is not None
    kernel, grid, block = of
    launch = Launch(kernel, grid, block, args)
    _store(module, plan.operation, operands, shown, [launch], [result], 0)
    return True


def _remember_into(plan: Single, operands: tuple, out: Any) -> bool:
    """As `_remember`, for a launch that has written into a result that was given."""
    of = getattr(plan.launch, "of", None)
    given = (out, *operands)
    if of is not None and is_on_gpu(out):
        return _remember_on_gpu(plan, operands, out, given=True)
    if of is None or not _is_small(given, ()):
        return True
    module = plan.dialect.module
    shown = [_stand_in(operand) for operand in given]
    args = plan.arguments(tuple(shown[1:]), shown[0])
    kernel, grid, block = of
    launch = Launch(kernel, grid, block, args)
    _store(module, plan.into, given, shown, [launch], [], 0)  # not where an argument is a copy
    return True


def _remember_on_gpu(plan: Single, operands: tuple, out: Any, given: bool) -> bool:
    """As `_remember` or `_remember_into`, for a launch on a GPU."""
    values = (out, *operands) if given else operands
    if not relaunch_on_gpu.fits((*values, out)):
        return True
    try:
        shown = [relaunch_on_gpu.stand_in(v) for v in (values if given else (*values, out))]
    except MemoryError:
        return False
    result = shown[0] if given else shown.pop()
    known = tuple(shown[1:] if given else shown)
    kernel, grid, block = plan.launch.of
    args = [plan.arguments(known, result) for _ in range(2)]
    first, second = ([Launch(kernel, grid, block, found)] for found in args)
    runs = relaunch_on_gpu.repeats(second, first, [*shown, result])
    if runs is not None:
        operation = plan.into if given else plan.operation
        key = relaunch_on_gpu.key_of(plan.dialect.module, operation, values)
        _table.add_on_gpu(key, runs, () if given else (out,), 0)
    return True


def _is_copy(arg: Any, known: list[np.ndarray]) -> bool:
    """Whether an argument of a launch is in memory of its own."""
    if not isinstance(arg, np.ndarray) or not arg.size:
        return False
    return not any(np.may_share_memory(arg, a) for a in known)


def _is_small(operands: tuple, results: tuple) -> bool:
    """Whether machine code can take these operands, and finds that it is worth it."""
    from kernels.simt.backend import relaunch

    arrays = [a for a in (*operands, *results) if isinstance(a, np.ndarray)]
    numbers = sum(type(o) in (float, int, type(None)) for o in operands)
    return (
        len(operands) <= MAX_OPERANDS
        and all(type(a) is np.ndarray and a.ndim <= relaunch.MAX_NDIM for a in arrays)
        and len(arrays) + numbers == len(operands) + len(results)
        and sum(a.nbytes for a in arrays) <= MAX_BYTES
    )


def _key(operands: tuple) -> list[int]:
    """What tells operands from others: dtypes, shapes, strides, types of numbers."""
    key: list[int] = []
    for operand in operands:
        if isinstance(operand, np.ndarray):
            key += [id(operand.dtype), operand.ndim]
            key += [n for pair in zip(operand.shape, operand.strides) for n in pair]
        else:
            key.append(id(type(operand)))
    return key


def _store(
    module: Any,
    operation: Any,
    operands: tuple,
    shown: list,
    launches: list[Launch],
    made: list[np.ndarray],
    returned: int,
    lasting: tuple = (),
) -> bool:
    """Remember launches that were seen with the operands `shown` and the new arrays `made`, of
    which the first `returned` are results (0: the first alone). Whether it could be done.

    `lasting`: arrays that are the same in all such launches. Without new arrays the first operand
    is the result.
    """
    from kernels.simt.backend import relaunch

    made, places = _placed(made, launches, max(returned, 1))
    size = sum(a.nbytes for a in (*made, *shown) if isinstance(a, np.ndarray))
    compiled = [compiled_for(launch) for launch in launches]
    if len(made) > relaunch.MAX_MADE or size > MAX_BYTES or None in compiled:
        return False
    if not relaunch_on_gpu.handed_on(shown, launches):
        return False
    sequence = Sequence(launches, compiled)
    fixes = _fixes(sequence, launches, [*enumerate(shown), *places], lasting)
    if fixes is None:
        return False
    arrays = [word for a in made for word in (id(a.dtype), a.ndim, *a.shape)]
    codes = [word for i in range(len(launches)) for word in sequence.facts(i, size > SHORT_BYTES)]
    key = [id(module), id(operation), *_key(operands)]
    words = [len(made), returned, len(fixes) // 3, len(launches)]
    words += [len(sequence.words), *key, *arrays, *fixes, *codes, *map(int, sequence.words)]
    dtypes = [a.dtype for a in (*operands, *made) if isinstance(a, np.ndarray)]
    _table.add(key, words, (module, operation, dtypes, sequence.specialised, lasting))
    return True


def _stand_in(value: Any) -> Any:
    """An operand of the same kind at an address, or with an identity, of its own."""
    if isinstance(value, np.ndarray):
        reach = [(n - 1) * step for n, step in zip(value.shape, value.strides)]
        start = -sum(r for r in reach if r < 0)
        memory = np.zeros(start + sum(r for r in reach if r > 0) + value.itemsize, np.uint8)
        return np.ndarray(value.shape, value.dtype, memory, start, value.strides)
    if type(value) is float:
        return float("0.5")
    if type(value) is int:
        return int("-123456789" if value < 0 else "123456789")
    return value


def _placed(
    made: list[np.ndarray], launches: list[Launch], results: int
) -> tuple[list[np.ndarray], list[tuple[int, np.ndarray]]]:
    """The new arrays that are to be allocated, the results first, and where each new array lies:
    (the number of one of these, as -1, -2, ..., the array). Scratch takes the memory of scratch
    that is not used any more."""
    kept, places = made[:results], [(-1 - j, a) for j, a in enumerate(made[:results])]
    used: dict[int, tuple[int, int]] = {}  # the first and the last launch, by the memory's owner
    for i, launch in enumerate(launches):
        for a in launch.args:
            if isinstance(a, np.ndarray):
                owner = id(owner_of(a))
                used[owner] = used.get(owner, (i, i))[0], i
    spans = [(*used.get(id(owner_of(a)), (0, len(launches))), a) for a in made[results:]]
    ends: list[int] = []  # the last launches that use kept[results:]
    for first, last, array in sorted(spans, key=lambda span: span[:2]):
        free = [j for j, end in enumerate(ends) if end < first]
        at = max(free, key=lambda j: kept[results + j].nbytes, default=len(ends))
        if at == len(ends):
            kept.append(array)
            ends.append(last)
        ends[at] = last
        if array.nbytes > kept[results + at].nbytes:
            kept[results + at] = array
        places.append((-1 - results - at, array))
    return kept, places


def _by_owner(arrays: list[tuple[int, Any]]) -> dict[int, list[tuple[int, np.ndarray]]]:
    """Numbered arrays by the owner of their memory: those of others do not share it."""
    found: dict[int, list] = {}
    for number, array in arrays:
        if isinstance(array, np.ndarray):
            found.setdefault(id(owner_of(array)), []).append((number, array))
    return found


def _fixes(
    sequence: Sequence, launches: list[Launch], sources: list[tuple[int, Any]], lasting: tuple
) -> list[int] | None:
    """(word, source, offset or kind) of each argument that differs from call to call, from where it
    lies: an operand (0, 1, ...) or a new array (-1, -2, ...). None where an argument is in none of
    them, and does not last."""
    fixes: list[int] = []
    operands = {id(a): j for j, a in sources[::-1] if a is not None}
    spans = {
        owner: [(j, _reach(a)) for j, a in arrays] for owner, arrays in _by_owner(sources).items()
    }
    for n, launch in enumerate(launches):
        for i, arg in enumerate(launch.args):
            word = sequence.word(n, i)
            if not isinstance(arg, np.ndarray):
                if id(arg) in operands:
                    fixes += [word, operands[id(arg)], sequence.kind(n, i)]
            elif arg.size:
                address, first, last = _reach(arg)
                for j, (start, lowest, end) in spans.get(id(owner_of(arg)), ()):
                    if first < end and lowest < last:
                        if first < lowest or end < last:
                            return None  # no more than this part is allocated for the next call
                        fixes += [word + _DATA, j, address - start]
                        break
                else:
                    if not any(a is owner_of(arg) for a in lasting):
                        return None
    return fixes


def _reach(a: np.ndarray) -> tuple[int, int, int]:
    """Where an array lies: the address of its first element, its lowest and the one behind it."""
    address = a.ctypes.data
    if a.flags.c_contiguous:
        return address, address, address + a.nbytes
    return (address, *byte_bounds(a))


# -- launchers of several launches, or with several results ------------------------------------


class _Other(Exception):
    """A launcher does something besides launching."""


class _Disturbed(Exception):
    """Another thread traces launches meanwhile, and may have taken some of them; or later calls
    will launch other kernels."""


class _Watch(dispatch.Trace):
    """Notes the launches of this thread instead of running them."""

    def __init__(self, dialect: Any) -> None:
        super().__init__()
        self.dialect = dialect
        self.thread: int | None = threading.get_ident()  # None: it has ended
        self.launches: list[Launch] = []
        self.memory: list[np.ndarray] = []  # what launches write; what the host fills is not in it

    def takes(self, family: str, version: str, kernel, grid, block, args: tuple) -> bool:
        if self.thread != threading.get_ident():
            return False
        self.launches.append(Launch(kernel, grid, block, args))
        return True

    def has_numbers(self) -> bool:
        return self.thread != threading.get_ident()

    def contiguous(self, a: Any) -> Any:
        if self.thread != threading.get_ident():
            return super().contiguous(a)
        return getattr(self.dialect, "module", self.dialect).copy(a)  # as a launch

    def filled(self, zeros: Any) -> Any:
        if self.thread == threading.get_ident():
            raise _Other
        return zeros

    def scratch(self, memory: Any) -> Any:
        if self.thread == threading.get_ident():
            self.memory.append(memory)
        return memory


def for_now() -> None:
    """Called where a launch replaces the one of later calls, which is not to be remembered."""
    watch = dispatch.tracer
    if type(watch) is _Watch and watch.thread == threading.get_ident():
        raise _Disturbed


_seen = Plans(2 * MAX_LAUNCHES)  # by operands: when a call was remembered, or `_once`, or _NEVER
_NEVER = -1
_operations = Plans(2 * MAX_LAUNCHES)
_watching = forks.rlock()


def _named(*parts: Any) -> Any:
    """As `dispatch.named`, for parts of which there may be any number, such as a scale."""
    return _operations.get(parts) or _operations.keep(parts, parts)


def remembered(count: int) -> Callable[[Callable], Callable]:
    """Decorate a launcher `f(dialect, *operands, *constants)` that allocates and launches, and does
    nothing else: `count` operands (arrays or None), and constants that can be hashed."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(dialect: Any, *args: Any, **named: Any) -> Any:
            tracer, operands = dispatch.tracer, args[:count]
            try:
                operation = _named(function, *args[count:], *named.items())
            except TypeError:  # what cannot be hashed
                return function(dialect, *args, **named)
            result = dispatch.relaunch(tracer, dialect, operation, *operands)
            if result is None:

                def run(operands: tuple) -> Any:
                    return function(dialect, *operands, *args[count:], **named)

                result = _run_whole(dialect, operation, operands, run)
            return result

        return call

    return decorate


def several(dialect: Any, operation: Any, run: Callable[[tuple], Any]) -> Callable[[tuple], Any]:
    """A plan of several launches, a function of the operands, that is remembered as `Single` is."""
    return lambda operands: _run_whole(dialect.module, operation, operands, run)


def _run_together(function: Callable, operands: tuple) -> Any:
    """As `dispatch.run_together` says."""
    if type(dispatch.active) is not ModuleType:  # what records a step
        return function(*operands)
    return _run_whole(dispatch.active, function, operands, lambda shown: function(*shown))


dispatch.run_together = _run_together

_inside: set[int] = set()  # threads in a call that is to be remembered without its parts


def _may_remember() -> bool:
    """Whether this thread may remember what it runs."""
    return dispatch.tracer is None and not (_inside and threading.get_ident() in _inside)


def _once(generation: int) -> int:
    """That a call was seen once in this generation."""
    return -2 - generation


def _key_of_call(dialect: Any, operation: Any, operands: tuple) -> tuple:
    kinds = [(a.shape, a.strides, a.dtype) if type(a) is np.ndarray else type(a) for a in operands]
    return dialect, operation, *kinds


def _run_whole(dialect: Any, operation: Any, operands: tuple, run: Callable[[tuple], Any]) -> Any:
    """run(operands), which is remembered when it has run twice, from the launches of two more calls
    that run nothing."""
    if not _may_remember():
        return run(operands)
    there = type(operands[0]) is not np.ndarray and any(map(is_on_gpu, operands))
    key_of = relaunch_on_gpu.key_of if there else _key_of_call
    key = key_of(dialect, operation, operands)
    before, now = _seen.get(key), _table.generation
    if before in (_NEVER, now):
        return run(operands)
    me = threading.get_ident()
    _inside.add(me)
    try:
        result = run(operands)
    finally:
        _inside.discard(me)
    results = result if type(result) is tuple else (result,)
    if before != _once(now):
        values = (*operands, *results)
        fits = relaunch_on_gpu.fits(values) if there else _is_small(operands, results)
        _seen.pop(key, None)
        _seen.keep(key, _once(now) if fits else _NEVER)
        return result
    returned = len(results) if type(result) is tuple else 0
    if there:
        done = _learn_on_gpu(key, dialect, operands, run, returned)
    else:
        done = _learn_twice(dialect, (dialect, operation), operands, run, returned)
    if done is not None:
        _seen[key] = _table.generation if done else _NEVER
    return result


def _learn_twice(
    dialect: Any, asked: tuple, operands: tuple, again: Callable, returned: int
) -> bool | None:
    """Remember a call, which `relaunch` is asked for by two objects, from the launches of two more
    that run nothing. Whether it could be done; None: not now."""
    with _watching, deferred():
        shown = [_stand_in(operand) for operand in operands]
        try:
            (first, _), (second, outs) = (_watched(dialect, again, shown) for _ in range(2))
        except _Disturbed:
            return None
        except _Other:
            return False
        found = _arrays_of(first.launches, second, shown, outs)
        if found is None:
            return False
        made, lasting = found
        module, operation = asked
        launches = second.launches
        return _store(module, operation, operands, shown, launches, made, returned, lasting)


def _learn_on_gpu(
    key: tuple, dialect: Any, operands: tuple, again: Callable, returned: int
) -> bool | None:
    """As `_learn_twice`, for a call with arrays on a GPU."""
    with _watching, deferred():
        try:
            shown = [relaunch_on_gpu.stand_in(operand) for operand in operands]
            (first, _), (second, outs) = (_watched(dialect, again, shown) for _ in range(2))
        except (_Disturbed, MemoryError):
            return None
        except _Other:
            return False
        made = relaunch_on_gpu.made_by(outs, second.memory)
        if not made or not second.launches:
            return False
        runs = relaunch_on_gpu.repeats(second.launches, first.launches, [*shown, *made])
        if runs is not None:
            _table.add_on_gpu(key, runs, made, returned)
        return runs is not None


def _watched(dialect: Any, again: Callable, shown: list) -> tuple[_Watch, tuple]:
    """(what was seen, results) of a call in which nothing runs."""
    if dispatch.tracer is not None:
        raise _Disturbed
    watch, begun = _Watch(dialect), dispatch.begun
    with dispatch.tracing(watch):
        try:
            result = again(tuple(shown))
        finally:
            watch.thread = None
            if dispatch.begun != begun + 1:
                raise _Disturbed
    return watch, result if type(result) is tuple else (result,)


def _arrays_of(
    before: list[Launch], watch: _Watch, shown: list, results: tuple
) -> tuple[list[np.ndarray], tuple] | None:
    """(arrays that each call makes, the results first; arrays that last) of two calls with the same
    operands; None where they do not tell, or where the host fills one of these arrays."""

    scratch = {id(memory) for memory in watch.memory}

    def is_scratch(a: np.ndarray) -> bool:
        return a.flags.c_contiguous and id(owner_of(a)) in scratch

    launches = watch.launches
    in_place = len(results) == 1 and results[0] is shown[0]
    made = [] if in_place else list(results)
    for i, a in enumerate(made):
        if not is_scratch(a) or any(np.may_share_memory(a, b) for b in made[:i]):
            return None
    known = _by_owner([*enumerate(shown), *enumerate(made)])
    lasting: list[np.ndarray] = []
    if not launches or [launch[:3] for launch in before] != [launch[:3] for launch in launches]:
        return None
    for earlier, launch in zip(before, launches):
        for old, new in zip(earlier.args, launch.args, strict=True):
            if not isinstance(new, np.ndarray):
                continue
            root = owner_of(new)
            near = known.setdefault(id(root), [])
            if any(np.may_share_memory(new, a) for _, a in near):
                continue
            if root is owner_of(old):
                lasting.append(root)
            elif is_scratch(root):
                made.append(root)
                near.append((0, root))
            else:
                return None
    if in_place and made:  # the first of which would be taken for the result
        return None
    return made, tuple(lasting)
