"""Compiled specialisations of a kernel: for given argument types and block dimensions."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.backend import entry, helpers, interrupt, machine_code, sharing
from kernels.simt.driver import arguments
from kernels.simt.ir.safety import Safety
from kernels.simt.store import fingerprint, modules
from kernels.support import ahead, cache, limits, processor, thread_pool
from kernels.support.errors import (
    ArgumentError,
    CompileError,
    KernelIndexError,
    LaunchError,
    SimtError,
)
from kernels.support.interrupts import deferred

if TYPE_CHECKING:
    from numba.core import types

_A_NUMBER = np.dtype(np.float64)  # any number, where the one signature says which type it becomes
_LONG = 200_000  # ns: shorter launches that need Python stay on the calling thread


def for_arguments(kernel: Any, block: tuple[int, int, int], args: tuple) -> Specialisation:
    """The specialisation of `kernel` for normalised `args`, compiled now if need be."""
    names = parameter_names(kernel)
    if kernel.py_func.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise CompileError(
            f"kernel {kernel.__name__!r}: name the parameters; *args and **kwargs are"
            " not compiled for the CPU"
        )
    if len(args) != len(names):
        raise ArgumentError(
            f"{kernel.__name__}: takes {len(names)} arguments ({', '.join(names)}), got {len(args)}"
        )
    positive = (i for i, arg in enumerate(args) if arguments.is_signed(arg) and arg >= 0)
    return _for_types_of(kernel, block, args, frozenset(positive))


def _for_types_of(
    kernel: Any, block, args: tuple, positive: frozenset[int], safety: Safety | None = None
) -> Specialisation:
    def kinds() -> tuple[types.Type, ...]:
        found = tuple(
            arguments.numba_type(arg, f"{kernel.__name__}, argument {name!r}")
            for name, arg in zip(parameter_names(kernel), args)
        )
        return found if kernel.signature is None else matching_signature(kernel, found)

    described = tuple(map(arguments.describe, args))
    if kernel.signature is not None and not isinstance(kernel.signature, list):
        described = tuple(_A_NUMBER if isinstance(d, np.dtype) else d for d in described)
    return _get(kernel, block, described, positive, kinds, safety)


def for_signature(kernel: Any, block: tuple[int, int, int]) -> Specialisation:
    """The specialisation for the kernel's one explicit signature."""
    if kernel.signature is None:
        raise LaunchError(
            f"{kernel.__name__}: bind() without example arguments needs an explicit signature"
        )
    from numba.core import types

    options = signatures(kernel)
    if len(options) != 1:
        raise LaunchError(f"{kernel.__name__}: bind() needs example arguments: several signatures")
    kinds = options[0]
    positive = (i for i, k in enumerate(kinds) if isinstance(k, types.Integer) and k.signed)
    return _get(kernel, block, kinds, frozenset(positive), lambda: kinds)


def parameter_names(kernel: Any) -> tuple[str, ...]:
    code = kernel.py_func.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def signatures(kernel: Any) -> list[tuple[types.Type, ...]]:
    """The explicit signatures of a kernel as tuples of Numba types."""
    from numba.core import types

    from kernels.simt.backend import inference

    given = kernel.signature
    several = isinstance(given, list)
    result = []
    for one in given if several else [given]:
        args, returns = inference.declared_types(one)
        if returns not in (None, types.void):
            raise TypeError(
                f"{kernel.__name__}: CUDA kernels must have void return type, not {returns}"
            )
        result.append(tuple(_storage(kind) for kind in args))
    return result


def _storage(kind: types.Type) -> types.Type:
    from numba.core import types

    from kernels.simt.devlib import half

    if isinstance(kind, types.Array) and kind.dtype == types.float16:
        return kind.copy(dtype=half.float16)
    return types.float32 if kind == types.float16 else kind


def matching_signature(kernel: Any, kinds: tuple) -> tuple:
    """The explicit signature that the arguments fit best, with their actual layouts."""
    from kernels.simt.backend import inference

    fitting = []
    for option in signatures(kernel):
        if len(option) == len(kinds):
            merged = [_fit(wanted, kind) for wanted, kind in zip(option, kinds)]
            if None not in merged:
                fitting.append(tuple(merged))
    if fitting:
        return min(fitting, key=lambda option: inference.conversions(kinds, option))
    raise ArgumentError(
        f"{kernel.__name__}: no signature fits the arguments ({', '.join(map(str, kinds))});"
        f" declared: {'; '.join(', '.join(map(str, s)) for s in signatures(kernel))}. Convert the"
        " arrays, as in x.astype(numpy.int32): a GPU would take their bytes for other numbers"
    )


def _fit(wanted: types.Type, kind: types.Type) -> types.Type | None:
    from numba.core import types

    if isinstance(wanted, types.Array) != isinstance(kind, types.Array):
        return None
    if isinstance(wanted, types.Array):
        if wanted.ndim != kind.ndim or wanted.layout not in ("A", kind.layout):
            return None
        if wanted.dtype == kind.dtype:
            return kind
        # the memory is that of the array; the kernel sees numbers as its signature says
        numbers = wanted.dtype, kind.dtype
        whole = all(isinstance(number, types.Integer) for number in numbers)
        alike = whole and wanted.dtype.bitwidth == kind.dtype.bitwidth
        return kind.copy(dtype=wanted.dtype) if alike else None
    if wanted == kind:
        return wanted
    numbers = isinstance(wanted, types.Number | types.Boolean) and isinstance(
        kind, types.Number | types.Boolean
    )
    return wanted if numbers else None


def _get(
    kernel: Any,
    block,
    described: tuple,
    positive: frozenset[int],
    kinds: Callable[[], tuple],
    safety: Safety | None = None,
) -> Specialisation:
    """The specialisation for `described` arguments; `kinds()` are their Numba types."""
    safety = safety or kernel.safety
    key = (block, described, positive, safety)
    found = kernel._specialised.get(key)
    if found is None:
        with deferred(), kernel._lock:
            found = kernel._specialised.get(key)  # of another thread
            if found is None:
                found = Specialisation(kernel, block, described, positive, safety, kinds)
                kernel._specialised[key] = found
    return found


class Specialisation:
    """Machine code for one combination of types and block, and how to run it."""

    def __init__(
        self,
        kernel: Any,
        block: tuple[int, int, int],
        described: tuple,
        positive: frozenset[int],
        safety: Safety,
        kinds: Callable[[], tuple],
    ):
        self.kernel, self.block, self.safety = kernel, block, safety
        self.described, self.positive = described, positive
        self.halves = tuple(i for i, kind in enumerate(described) if arguments.is_half(kind))
        self.entry: Any = None
        self.error = entry.report()
        self.grid: tuple[int, int, int] = (1, 1, 1)
        self.sites: tuple = ()
        self.checked = self.cooperative = self.one_thread = False
        name = self._name(described, positive)
        if not self._load(modules.find(name), kinds):
            with ahead.compiling(cache.cache_folder() / name):
                if not self._load(modules.find(name), kinds):  # nobody has made it meanwhile
                    self._compile(name, kinds(), positive)

    # -- compilation -----------------------------------------------------------------------

    def _name(self, described: tuple, positive: frozenset[int]) -> str:
        parts = [
            modules.toolchain(),
            fingerprint.of(self.kernel.py_func),
            repr((self.block, described, sorted(positive), self.kernel.signature)),
            repr((self.safety, self.kernel.fastmath, *processor.vector_registers())),
            _extensions(self.kernel.py_func),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
        return cache.stem(self.kernel.py_func.__name__, digest)

    def _load(self, path: Path | None, kinds: Callable[[], tuple]) -> bool:
        """Load the code from the cache; False if it is not there."""
        if path is None:
            return False
        try:
            self.path, self.constants = path, tuple(modules.constants_of(path).values())
            self.entry = machine_code.load(path)
            if self.entry is None:
                self._use(modules.load(path, {}), kinds())
        except Exception:  # code that another system made; a real error comes again later
            modules.discard(path)
            return False
        return True

    def _compile(self, name: str, kinds: tuple, positive: frozenset[int]) -> None:
        from kernels.simt.backend.compiler_lock import few_collections
        from kernels.simt.driver import pipeline

        kernel = self.kernel
        with few_collections():
            program, text, given = pipeline.generate(
                kernel.py_func, kinds, self.block, positive, self.safety, kernel.fastmath
            )
            frozen = {
                name: value if name in program.captured else modules.frozen(value)
                for name, value in program.constants.items()
            }
            given |= dict.fromkeys(program.captured)  # another process has other device memory
            try:
                self._make(name, text, frozen, given, kinds)
            except OSError as error:  # a full disk
                if ahead.rehearsing:  # another folder would serve nobody
                    raise
                cache.fall_back(error)
                self._make(name, text, frozen, given, kinds)

    def _make(self, name: str, text: str, frozen: dict, given: dict, kinds: tuple) -> None:
        """Compile the generated module `text` and keep what was made in the cache."""
        from numba.core.errors import NumbaError

        from kernels.simt.backend import explain

        self.path, self.constants = modules.save(name, text, frozen), tuple(frozen.values())
        module = modules.load(self.path, given)
        numbas = machine_code.take_cache(getattr(module, self.kernel.py_func.__name__))
        try:
            compiled = self._use(module, kinds)
        except NumbaError as error:
            raise explain.unlowered(self.kernel, text, str(error)) from None
        if given:  # another process could not load it
            return
        if not (self.checked or self.cooperative) and machine_code.store(self.path, compiled):
            self.entry = machine_code.load(self.path)
        else:
            numbas.save_overload(compiled.signature.args, compiled)
        modules.seal(self.path)

    def _use(self, module: ModuleType, kinds: tuple) -> Any:
        """Load or compile the machine code of a generated module."""
        passed = [arguments.storage(kind)[0] for kind in kinds]
        passed += [arguments.numba_type(value, "a constant array") for value in self.constants]
        function = getattr(module, self.kernel.py_func.__name__)
        signature = (*header_types(), *passed)
        function.compile(signature)
        compiled = function.overloads[signature]
        point = entry.of(compiled)
        self.checked = bool(module.CHECKED)
        self.entry = self.guarded(point) if self.checked else point
        self.cooperative = self.one_thread = bool(module.COOPERATIVE)
        self.sites = module.SITES
        return compiled

    def kinds(self) -> tuple[types.Type, ...]:
        """The Numba types of the parameters."""
        found = tuple(map(arguments.type_of, self.described))
        return found if self.kernel.signature is None else matching_signature(self.kernel, found)

    @property
    def text(self) -> str:
        """The generated module's source."""
        return self.path.read_text(encoding="utf-8")

    def passes(self) -> Any:
        """The kernel after each pass, compiled once more."""
        from kernels.simt.driver import listing, pipeline

        func, kinds = self.kernel.py_func, self.kinds()
        given = func, kinds, self.block, self.positive, self.safety, self.kernel.fastmath
        return listing.passes(pipeline.Compilation(*given))

    # -- running ---------------------------------------------------------------------------

    def prepared(self, args: tuple) -> tuple:
        """Arguments as the machine code takes them."""
        if self.halves:
            args = tuple(
                arg.view(np.uint16) if i in self.halves else arg for i, arg in enumerate(args)
            )
        return (*args, *self.constants) if self.constants else args

    def run(self, grid, first: int, last: int, shared: int, args: tuple) -> None:
        """Run the blocks `first` to `last` on this OS thread."""
        gx, gy, gz = grid
        status = self.entry(first, last, gx, gy, gz, shared, self.error, *self.prepared(args))
        if status:
            self.failed(status, grid, first, last, shared, args)

    def run_shared(self, grid, shared: int, args: tuple, cost: int) -> int:
        """Run the whole grid, on several OS threads where that is faster; `cost`: how many
        nanoseconds it is expected to take on one. Returns how many it took."""
        gx, gy, gz = grid
        blocks, run = gx * gy * gz, self.shared
        if run is None:
            return self._run_in_python(grid, shared, args, cost)
        told = run(cost, blocks, gx, gy, gz, shared, self.error, *self.prepared(args))
        helpers.start()
        status = told & sharing.STATUSES
        if status:
            self.failed(status, grid, 0, blocks, shared, args)
        return told >> sharing.TOLD

    @functools.cached_property
    def shared(self) -> Callable[..., int] | None:
        """What runs whole launches in machine code; None for a kernel that needs Python."""
        helpers.pool()
        return entry.shared(self.entry)

    def _run_in_python(self, grid, shared: int, args: tuple, cost: int) -> int:
        """`run_shared` for a kernel that needs the GIL."""
        gx, gy, gz = grid
        blocks = gx * gy * gz
        threads = thread_pool.get_num_threads() if cost > _LONG else 1
        start = time.perf_counter()
        if threads == 1:
            self.run(grid, 0, blocks, shared, args)
        else:
            entry, error, passed = self.entry, self.error, self.prepared(args)
            run = lambda first, last: entry(first, last, gx, gy, gz, shared, error, *passed)  # noqa: E731
            try:
                status = thread_pool.run(run, blocks, threads, self.stop)
            except BaseException:
                self.error[limits.STOP] = 0
                raise
            if status:
                self.failed(status, grid, 0, blocks, shared, args)
        return int((time.perf_counter() - start) * threads * 1e9)

    def stop(self) -> None:
        """End a launch that is running."""
        self.error[limits.STOP] = 1

    def bound(self, launcher: Any) -> Callable:
        """A callable that runs the launcher's whole grid."""
        if launcher.blocks > 1 and not self.one_thread:  # `set_num_threads` may come later
            return lambda *args: launcher.run(self, args)
        gx, gy, gz = launcher.grid
        entry, error, blocks, shared = (
            self.entry,
            self.error,
            launcher.blocks,
            launcher.shared_bytes,
        )
        if self.halves or self.constants:
            return lambda *args: self.run(launcher.grid, 0, blocks, shared, args)

        def launch(*args: Any) -> None:
            status = entry(0, blocks, gx, gy, gz, shared, error, *args)
            if status:
                self.failed(status, launcher.grid, 0, blocks, shared, args)

        return launch

    def failed(self, status: int, grid, first: int, last: int, shared: int, args: tuple) -> None:
        """Raise the error of a status; after an unexpected sign, run the general version."""
        from kernels.simt.ir import checks

        if status == entry.REFUSED:
            names = ", ".join(parameter_names(self.kernel))
            kinds = ", ".join(map(str, self.described))
            raise ArgumentError(
                f"{self.kernel.__name__}: was compiled for ({names}) = ({kinds}); launch it with"
                " as many arguments and with arrays of these dimensions, or bind it again"
            )
        if status == interrupt.INTERRUPTED:
            self.error[limits.STOP] = 0
            entry.reraise()
        if status == checks.ZERO_STEP:
            raise ValueError(f"{self.kernel.__name__}: range() arg 3 must not be zero")
        if status == checks.UNEXPECTED_SIGN:
            general = _for_types_of(self.kernel, self.block, args, frozenset(), self.safety)
            general.run(grid, first, last, shared, args)
            return
        if status == checks.UNPROVEN:
            with_checks = _for_types_of(self.kernel, self.block, args, self.positive, Safety.BOUNDS)
            with_checks.run(grid, first, last, shared, args)
            return
        self.grid = grid
        raise self.explain()

    def explain(self) -> SimtError:
        """The exception for what the last run recorded."""
        from kernels.simt.ir import checks

        filename = self.kernel.py_func.__code__.co_filename
        name = self.kernel.__name__
        return checks.explain(name, self.error, self.sites, self.block, self.grid, filename)

    def guarded(self, entry: Callable) -> Callable:
        """`entry` for checked mode: its violations and the kernel's own exceptions explained."""
        from kernels.simt.ir import checks

        def call(*args: Any) -> int:
            self.grid = args[2:5]
            self.error[0] = 0
            try:
                return entry(*args)
            except checks.CheckFailed:
                raise self.explain() from None
            except IndexError as error:  # from a device function that is not inlined
                raise KernelIndexError(
                    f"{self.kernel.__name__}: {error} in a device function"
                ) from None
            except Exception as error:
                if self.error[0] != checks.RAISED:
                    raise
                thread = checks.coordinates(int(self.error[3]), self.block)
                block = checks.coordinates(int(self.error[2]), self.grid)
                line = self.sites[int(self.error[1])][2]
                where = f"tid={thread} ctaid={block}, line {line}: {error}"
                raise type(error)(where) from None

        return call


def header_types() -> tuple[types.Type, ...]:
    """The types of the leading arguments of a compiled kernel: blocks, grid, memory, report."""
    from numba.core import types

    return (types.intp,) * 6 + (types.Array(types.intp, 1, "C"),)


def _extensions(func: Any) -> str:
    """What users have registered with Numba on which the code of `func` depends."""
    if "numba" not in sys.modules:
        return ""
    from kernels.simt.backend import target

    return target.extensions(fingerprint.names(func))
