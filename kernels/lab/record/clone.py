"""The instrumented clone of a kernel: generated, compiled and kept in the cache as kernels are."""

from __future__ import annotations

import ast
import hashlib
import pickle
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.core.errors import NumbaError

from kernels.lab.record import recorder
from kernels.lab.record.instrument import HEAD, Place, Site, instrument, shared_arrays
from kernels.simt.backend import entry, explain
from kernels.simt.driver import arguments, pipeline, specialise
from kernels.simt.emit.module import SPIN_LIMIT
from kernels.simt.frontend import source
from kernels.simt.ir import memory
from kernels.simt.ir.program import ArrayDecl, Program
from kernels.simt.ir.safety import Safety
from kernels.simt.store import fingerprint, modules
from kernels.simt.transforms import canonicalise
from kernels.support.cache import stem, write
from kernels.support.errors import ArgumentError

Dimensions = tuple[int, int, int]
MAX_ROUNDS = 1 << 21  # of a loop whose end depends on memory: some seconds under the recorder


class Shared(NamedTuple):
    """A shared array; `nbytes` is 0 for dynamic shared memory. All that is accessed in it begins at
    a multiple of `grain` bytes."""

    name: str
    nbytes: int
    itemsize: int
    grain: int
    shape: tuple[int, ...]


class Facts(NamedTuple):
    """The metadata of a clone."""

    sites: list[Site]
    shared: list[Shared]
    parameters: list[str]
    cooperative: bool
    missed: list[str]  # accesses that are not recorded
    sources: dict[Place, str]  # of every line that is executed
    constants: list[np.ndarray]
    returns: list[int]  # lines of the kernel's `return` statements


class Clone:
    """The clone for one combination of argument types and block."""

    def __init__(self, kernel: Any, block: Dimensions, args: tuple) -> None:
        self.name = kernel.__name__
        function = getattr(kernel, "py_func", kernel)
        names = function.__code__.co_varnames[
            : function.__code__.co_argcount + function.__code__.co_kwonlyargcount
        ]
        if len(args) != len(names):
            raise ArgumentError(
                f"{self.name}: takes {len(names)} arguments ({', '.join(names)}), got {len(args)}"
            )
        kinds = tuple(
            arguments.numba_type(arg, f"{self.name}, argument {name!r}")
            for name, arg in zip(names, args)
        )
        if getattr(kernel, "signature", None) is not None:
            kinds = specialise.matching_signature(kernel, kinds)
        self.kernel, self.kinds = kernel, kinds
        described = tuple(map(arguments.describe, args))
        self.halves = [arguments.is_half(kind) for kind in described]
        filename = function.__code__.co_filename  # in reports: of this session of a notebook
        digest = "\n".join(
            (_tools(), fingerprint.of(function), filename, repr((block, kinds, described)))
        )
        digest = hashlib.sha256(digest.encode()).hexdigest()[:20]
        name = stem(f"lab_{function.__name__}", digest)
        path, given = modules.find(name), {}
        found = path is not None
        if not found:
            path, given = _generate(function, kinds, block, name)
        self.facts: Facts = pickle.loads(path.with_suffix(".pickle").read_bytes())
        module = modules.load(path, given)
        clone = getattr(module, function.__name__)
        passed = [arguments.storage(kind)[0] for kind in kinds]
        passed += [arguments.numba_type(c, "a constant array") for c in self.facts.constants]
        recorder.linked()  # what its machine code calls by name
        signature = (*specialise.header_types(), *passed, types.int64)
        try:
            clone.compile(signature)
        except NumbaError as error:
            known = SimpleNamespace(py_func=function, __name__=function.__name__)
            raise explain.unlowered(known, path.read_text(encoding="utf-8"), str(error)) from None
        if not (found or given):
            modules.seal(path)
        self.entry: Callable[..., int] = entry.of(clone.overloads[signature])
        self.sites = module.SITES

    def run(
        self, blocks: range, grid: Dimensions, shared: int, error, args: tuple, head: int
    ) -> int:
        """Run some blocks of a grid; the status, as of a compiled kernel."""
        passed = [a.view(np.uint16) if half else a for a, half in zip(args, self.halves)]
        given = (*passed, *self.facts.constants, head)
        return self.entry(blocks.start, blocks.stop, *grid, shared, error, *given)


@lru_cache(maxsize=1)
def _tools() -> str:
    """A digest of the compiler and of this package, which generate clones."""
    digest = hashlib.sha256(modules.toolchain().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _generate(function, kinds: tuple[types.Type, ...], block: Dimensions, stem: str):
    """Write the clone's module and facts; (the module's path, objects it cannot import)."""
    program, array_types, typed = pipeline.typed_form(function, kinds, block, Safety.RECORDED)
    constants = [value.copy() for value in program.constants.values()]
    shared = [
        Shared(a.name, _nbytes(a), memory.itemsize(a.dtype), _grain(program, a), a.shape or ())
        for a in (program.arrays[name] for name in shared_arrays(program))
    ]
    sites, missed = instrument(program, typed)
    canonicalise.prepare(program)  # what is loaded may differ between threads now
    array_types[HEAD] = types.int64
    _, text, given = pipeline.emit(program, kinds, array_types)
    text = text.replace(f"_SPIN_LIMIT = {SPIN_LIMIT}", f"_SPIN_LIMIT = {MAX_ROUNDS}")
    facts = Facts(
        sites,
        shared,
        list(program.params),
        program.cooperative,
        missed,
        _sources(function, sites),
        constants,
        [n.lineno for n in ast.walk(source.of(function).tree) if isinstance(n, ast.Return)],
    )
    path = modules.save(stem, text, {})
    write(path.with_suffix(".pickle"), pickle.dumps(facts))
    return path, given


def _nbytes(array: ArrayDecl) -> int:
    return int(np.prod(array.shape)) * memory.itemsize(array.dtype) if array.shape else 0


def _grain(program: Program, array: ArrayDecl) -> int:
    together = [array]
    if array.shape is None:  # arrays of several types may lie in dynamic shared memory
        together = [a for a in program.arrays.values() if a.space == "shared" and a.shape is None]
    return min(
        1 if isinstance(a.dtype, types.Record) else memory.itemsize(a.dtype) for a in together
    )


def _sources(function, sites: list[Site]) -> dict[Place, str]:
    """The text of the kernel, and of each line of other functions that is inlined in it."""
    import linecache

    text = source.of(function)
    lines = text.text.splitlines()
    found = {(text.filename, text.first_line + i): line for i, line in enumerate(lines)}
    for site in sites:
        for place in (site.place, *site.lines):
            if place not in found:
                found[place] = linecache.getline(*place).rstrip("\n")
    return found
