"""Launches that report every access to the lab: kernels compiled for recording, and what the
runtime needs to know about them (runtime/record.h)."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from kernels.support.errors import CompileError
from kernels.support.limits import Dimensions

from . import compiler
from .disassembly import Code, disassemble
from .library import Compiled, Launch, Report, run_blocks
from .source import masked

DEPTH = 14
LOAD, STORE, ATOMIC, BARRIER = range(4)


class Site(ctypes.Structure):
    """Mirrors Site in runtime/record.h."""

    _fields_ = (
        ("frame", ctypes.c_uint32 * DEPTH),
        ("frames", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("line", ctypes.c_int32),
    )


class Held(ctypes.Structure):
    """Mirrors Held in runtime/record.h."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("key", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_uint)),
    )


class Recorder(ctypes.Structure):
    """Mirrors Recorder in runtime/record.h."""

    _fields_ = (
        ("head", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in "note execute arrive declare outside finish".split()),
        ("base", ctypes.c_size_t),
        ("code", ctypes.c_void_p),
        ("code_size", ctypes.c_uint64),
        ("blocks", ctypes.c_void_p),
        ("loops", ctypes.c_void_p),
        ("sites", ctypes.POINTER(Site)),
        *((name, ctypes.c_int32) for name in ("first_site", "site_count", "site_room")),
        *((name, ctypes.c_int32) for name in ("held_count", "held_room", "first_held")),
        ("held", ctypes.POINTER(Held)),
        ("grain", ctypes.c_void_p),
        ("misfit", ctypes.c_int32),
        ("together", ctypes.c_int32),
    )


class Recorded:
    """A kernel compiled for recording."""

    def __init__(self, kernel: Any) -> None:
        if platform.system() != "Linux":
            raise CompileError(f"{kernel.name}: the lab records CUDA C on Linux only")
        self.kernel, self.name = kernel, kernel.name
        self.cooperative = kernel.module.cooperative
        self.library = kernel.module.on_cpu(compiler.RECORDED)
        self.compiled: Compiled = self.library.kernel(kernel.name)

    @cached_property
    def code(self) -> Code:
        return disassemble(self.library.loaded._name, self.library.file)

    @cached_property
    def variables(self) -> list[tuple[str, int, int]]:
        """(name, address, bytes) of the `__device__` variables; constant ones are no traffic."""
        text = masked(self.kernel.code)
        found = []
        for name in self.library.variables:
            plain = name.rpartition("::")[2]
            if re.search(rf"__constant__[^;{{}}()]*\b{plain}\b", text):
                continue
            memory = self.library.variable(name)
            found.append((name, memory.ctypes.data, memory.nbytes))
        return found

    @contextlib.contextmanager
    def shared_variables(self) -> Iterator[None]:
        """`__constant__` and `__device__` variables as launches that are not recorded see them."""
        module = self.kernel.module
        launched = module.compiled_for_cpu()
        if launched is not None:
            launched.pass_variables(self.library)
        try:
            yield
        finally:
            if self.library.has_changed():
                self.library.pass_variables(module.on_cpu())

    def recorder(self) -> Recorder:
        """The description of the code for the runtime; the lab fills in the rest."""
        code = self.code
        run = ctypes.cast(self.library.loaded.mgh_run_threads_0, ctypes.c_void_p).value
        self._tables = (
            np.array([code.innermost, code.headers], np.int32).T.copy(),
            np.array(code.loops, np.int32).reshape(-1, 3),
        )
        recorder = Recorder()
        recorder.base, recorder.code_size = run - code.entry, code.size
        recorder.code = code.table.ctypes.data
        recorder.blocks, recorder.loops = (table.ctypes.data for table in self._tables)
        recorder.misfit, recorder.together = -1, self.cooperative
        return recorder

    def run(
        self,
        packed: bytes,
        blocks: range,
        grid: Dimensions,
        block: Dimensions,
        shared: int,
        recorder: Recorder,
    ) -> Report:
        """Run some blocks of a grid; the report."""
        three = ctypes.c_uint * 3
        launch = Launch(
            self.compiled.run_threads, three(*grid), three(*block), shared, False,
            self.cooperative, True, ctypes.addressof(recorder),
        )  # fmt: skip
        report = run_blocks(launch, packed, blocks.start, blocks.stop)
        self.compiled.print_output()
        return report
