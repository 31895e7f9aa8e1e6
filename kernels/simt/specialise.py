"""Compiled specialisations of a kernel: for given argument types and block dimensions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numba.core import types
from numba.core.runtime import rtsys

from . import arguments, cache, fingerprint, pool
from .errors import ArgumentError, KernelIndexError, LaunchError, SimtError

_HEADER = (types.intp,) * 6 + (types.Array(types.intp, 1, "C"),)


def for_arguments(kernel: Any, block: tuple[int, int, int], args: tuple) -> Specialisation:
    """The specialisation of `kernel` for normalised `args`, compiled now if need be."""
    names = parameter_names(kernel)
    if len(args) != len(names):
        raise ArgumentError(
            f"{kernel.__name__}: takes {len(names)} arguments ({', '.join(names)}), got {len(args)}"
        )
    kinds = tuple(
        arguments.numba_type(arg, f"{kernel.__name__}, argument {name!r}")
        for name, arg in zip(names, args)
    )
    if kernel.signature is not None:
        kinds = _matching_signature(kernel, kinds)
    positive = frozenset(
        i
        for i, (kind, arg) in enumerate(zip(kinds, args))
        if isinstance(kind, types.Integer) and kind.signed and arg >= 0
    )
    return _get(kernel, block, kinds, positive)


def for_signature(kernel: Any, block: tuple[int, int, int]) -> Specialisation:
    """The specialisation for the kernel's one explicit signature."""
    if kernel.signature is None:
        raise LaunchError(
            f"{kernel.__name__}: bind() without example arguments needs an explicit signature"
        )
    options = signatures(kernel)
    if len(options) != 1:
        raise LaunchError(f"{kernel.__name__}: bind() needs example arguments: several signatures")
    positive = (i for i, k in enumerate(options[0]) if isinstance(k, types.Integer) and k.signed)
    return _get(kernel, block, options[0], frozenset(positive))


def parameter_names(kernel: Any) -> tuple[str, ...]:
    code = kernel.py_func.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def signatures(kernel: Any) -> list[tuple[types.Type, ...]]:
    """The explicit signatures of a kernel as tuples of Numba types."""
    from numba.core import sigutils

    given = kernel.signature
    several = isinstance(given, list)
    result = []
    for one in given if several else [given]:
        args, returns = sigutils.normalize_signature(one)
        if returns not in (None, types.void):
            raise TypeError(
                f"{kernel.__name__}: CUDA kernels must have void return type, not {returns}"
            )
        result.append(tuple(_storage(kind) for kind in args))
    return result


def _storage(kind: types.Type) -> types.Type:
    from . import devlib_half

    if isinstance(kind, types.Array) and kind.dtype == types.float16:
        return kind.copy(dtype=devlib_half.float16)
    return types.float32 if kind == types.float16 else kind


def _matching_signature(kernel: Any, kinds: tuple) -> tuple:
    """The first explicit signature that the arguments fit, with their actual layouts."""
    for option in signatures(kernel):
        if len(option) == len(kinds):
            merged = [_fit(wanted, kind) for wanted, kind in zip(option, kinds)]
            if None not in merged:
                return tuple(merged)
    raise ArgumentError(
        f"{kernel.__name__}: no signature fits the arguments ({', '.join(map(str, kinds))});"
        f" declared: {'; '.join(str(s) for s in signatures(kernel))}"
    )


def _fit(wanted: types.Type, kind: types.Type) -> types.Type | None:
    if isinstance(wanted, types.Array) != isinstance(kind, types.Array):
        return None
    if isinstance(wanted, types.Array):
        if wanted.dtype != kind.dtype or wanted.ndim != kind.ndim:
            return None
        return kind if wanted.layout in ("A", kind.layout) else None
    if wanted == kind:
        return wanted
    numbers = isinstance(wanted, types.Number | types.Boolean) and isinstance(
        kind, types.Number | types.Boolean
    )
    return wanted if numbers else None


def _get(kernel: Any, block, kinds: tuple, positive: frozenset[int]) -> Specialisation:
    checked = kernel.checked
    key = (block, kinds, positive, checked)
    with kernel._lock:
        found = kernel._specialised.get(key)
        if found is None:
            found = kernel._specialised[key] = Specialisation(
                kernel, block, kinds, positive, checked
            )
    return found


class Specialisation:
    """Machine code for one combination of types and block, and how to run it."""

    one_thread = False

    def __init__(self, kernel: Any, block, kinds: tuple, positive: frozenset[int], checked: bool):
        self.kernel, self.block, self.kinds = kernel, block, kinds
        self.positive, self.checked = positive, checked
        self.cost = 0.0  # seconds a block, as last measured
        self.halves = tuple(
            i for i, kind in enumerate(kinds) if arguments.storage(kind)[1] is not None
        )
        self.error = np.zeros(16, np.int64)
        self.grid: tuple[int, int, int] = (1, 1, 1)
        self._compile()

    # -- compilation -----------------------------------------------------------------------

    def _name(self) -> str:
        parts = [
            cache.toolchain(),
            fingerprint.of(self.kernel.py_func),
            repr((self.block, self.kinds, sorted(self.positive))),
            repr((self.checked, self.kernel.fastmath)),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
        return f"{self.kernel.py_func.__name__}_{digest}"

    def _compile(self) -> None:
        name = self._name()
        path = cache.find(name)
        if path is not None and not _needs_objects(path):
            try:
                self._use(path, cache.load(path, {}))
                return
            except Exception:  # whatever a damaged file leads to; a real error comes again below
                cache.discard(path)
        from . import compiler

        program, text, given = compiler.generate(
            self.kernel.py_func,
            self.kinds,
            self.block,
            self.positive,
            self.checked,
            self.kernel.fastmath,
        )
        frozen = {name: value.copy() for name, value in program.constants.items()}
        path = cache.save(name, text, frozen)
        self._use(path, cache.load(path, given))

    def _use(self, path: Path, module: ModuleType) -> None:
        """Take the machine code of a generated module, from Numba's cache or compiled now."""
        self.path: Path = path
        constants = cache.constants_of(path)
        self.constants = tuple(constants.values())
        self.cooperative = self.one_thread = bool(module.COOPERATIVE)
        passed = [arguments.storage(kind)[0] for kind in self.kinds]
        passed += [arguments.numba_type(value, name) for name, value in constants.items()]
        function = getattr(module, self.kernel.py_func.__name__)
        signature = (*_HEADER, *passed)
        self.entry = _entry_point(function, signature, quick=module.SELF_CONTAINED)
        self.sites = module.SITES
        if self.checked:
            self.entry = self.guarded(self.entry)

    @property
    def text(self) -> str:
        """The generated module's source."""
        return self.path.read_text()

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

    def run_parallel(self, grid, shared: int, args: tuple, threads: int) -> None:
        """Run the whole grid on several OS threads."""
        gx, gy, gz = grid
        entry, error, passed = self.entry, self.error, self.prepared(args)
        blocks = gx * gy * gz
        status = pool.run(
            lambda first, last: entry(first, last, gx, gy, gz, shared, error, *passed),
            blocks,
            threads,
        )
        if status:
            self.failed(status, grid, 0, blocks, shared, args)

    def bound(self, launcher: Any) -> Callable:
        """A callable that runs the launcher's whole grid."""
        if launcher.blocks > 1 and not self.one_thread and pool.get_num_threads() > 1:
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
        """Raise what a status other than 0 means; go on in the general code after a sign."""
        from . import checks

        if status == checks.UNEXPECTED_SIGN:
            general = _get(self.kernel, self.block, self.kinds, frozenset())
            general.run(grid, first, last, shared, args)
            return
        self.grid = grid
        raise self.explain()

    def explain(self) -> SimtError:
        """The exception for what the last run recorded."""
        from . import checks

        filename = self.kernel.py_func.__code__.co_filename
        name = self.kernel.__name__
        return checks.explain(name, self.error, self.sites, self.block, self.grid, filename)

    def guarded(self, entry: Callable) -> Callable:
        """`entry` for checked mode: its violations and the kernel's own exceptions explained."""
        from . import checks

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


def _entry_point(function: Any, signature: tuple, quick: bool) -> Callable:
    """The compiled function for Python: from Numba's cache where it is, else compiled.

    Numba's own way to its cache first builds the tables of all that it could compile, which takes
    longer than loading the code. The code of one function by itself does not need them (`quick`).
    """
    try:
        stored = function._cache
        if quick:
            target = function.targetctx
            rtsys.initialize(target)
            key = stored._index_key(signature, target.codegen())
            data = stored._cache_file.load(key)
            if data is not None:
                return stored._impl.rebuild(target, data).entry_point
    except (AttributeError, TypeError):  # another Numba, with another inside
        pass
    function.compile(signature)
    return function.overloads[signature].entry_point


def _needs_objects(path: Path) -> bool:
    with path.open() as file:
        return any(line.startswith("NEEDS_OBJECTS = True") for line in file)
