"""PTX modules: `load` parses an image; `Module.launch` runs a kernel on memory of this process."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernels.ptx import arithmetic, control, findings, machine, memory, parser, tensors
from kernels.ptx.lowering import HANDLERS, Lowered, bits_of, lower
from kernels.ptx.nodes import Immediate, Program, Variable
from kernels.ptx.study import Study
from kernels.support import forks
from kernels.support.errors import ArgumentError, CompileError, LaunchError
from kernels.support.limits import launch_dimensions

OPCODES = frozenset(HANDLERS)  #: that instructions may have, from the modules imported for this
_ = (arithmetic, control, memory, tensors)
_BUDGET = 1 << 22  # operations of warps between two looks at Ctrl-C
_LIMIT_SHARED = 227 * 1024
_running = forks.lock()  # atomics are those of one launch: launches run one after the other


def load(image: bytes | str) -> Module:
    """The module of a PTX text. Raises CompileError with the line of what is not known."""
    if isinstance(image, bytes):
        if image[:4] == b"\x7fELF":
            raise CompileError("the image is machine code (a cubin), which runs on GPUs only")
        image = image.partition(b"\0")[0].decode()
    return Module(parser.parse(image))


class Module:
    """Kernels and variables of a PTX text.

    kernels: their names; globals: (address, bytes) of variables by name, which live as long as the
    module. Kernels are lowered at their first launch.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kernels = [name for name, f in program.functions.items() if f.is_kernel]
        self._memory, self.globals = _place_variables(program)
        self._lowered: dict[str, Lowered] = {}
        self._lock = forks.lock()

    def __repr__(self) -> str:
        return f"<PTX module for {self.program.target}: {', '.join(self.kernels)}>"

    def kernel(self, name: str) -> Lowered:
        """A kernel as operations. Raises CompileError where the module has none such, or where an
        instruction of it is not known."""
        if name not in self.kernels:
            raise CompileError(f"the module has no kernel {name!r}; it has {self.kernels}")
        with self._lock:
            if name not in self._lowered:
                self._lowered[name] = lower(self.program, name, self.globals)
            return self._lowered[name]

    def launch(
        self,
        name: str,
        grid: Sequence[int] | int,
        block: Sequence[int] | int,
        shared_bytes: int,
        params: bytes | Sequence[int],
        *,
        allocations: Iterable[tuple[int, int]] | None = None,
        cooperative: bool = False,
        counts: np.ndarray | None = None,
        study: Study | None = None,
    ) -> None:
        """Run a kernel over `grid` blocks of `block` threads and wait.

        shared_bytes: of dynamic shared memory. params: the parameters' bytes as the kernel
        declares them, or the address of each (as cuLaunchKernel's kernelParams). allocations:
        (base, bytes) of the memory that the kernel may access besides the module's variables; with
        None, addresses are not checked. cooperative: all blocks run at once. counts: uint64 of the
        shape (operations, 2), to which how often warps executed each operation is added, and
        how many lanes. study: which blocks to run, and what else to count.
        Raises LaunchError for what hardware refuses, KernelIndexError for an access outside of
        all memory, KernelError for other faults.
        """
        kernel = self.kernel(name)
        blocks, sizes = launch_dimensions(name, grid, block)
        _check(kernel, sizes, shared_bytes)
        packed = self._parameters(kernel, params)
        spans, table = self._spans(allocations)
        launch = machine.Launch(
            ops=kernel.ops,
            lists=kernel.lists,
            constants=kernel.constants,
            parameters=packed,
            allocations=spans,
            counts=None if counts is None else counts.ctypes.data_as(
                ctypes.POINTER(ctypes.c_uint64)
            ),
            allocation_count=-1 if table is None else len(table),
            parameter_bytes=len(packed),
            entry=0,
            register_bytes=kernel.register_bytes,
            area_bytes=kernel.area_bytes,
            local_bytes=kernel.local_bytes,
            local_room=kernel.local_room,
            static_shared=kernel.static_shared,
            dynamic_shared=shared_bytes,
            total_shared=_total_shared(kernel, shared_bytes),
            grid=tuple(blocks),
            block=tuple(sizes),
            reversed=os.environ.get("MINIGRAD_THREAD_ORDER") == "reversed",
            together=cooperative,
        )  # fmt: skip
        if study is not None:
            study.enter(launch)
        with _running:
            _run(kernel, launch, table, study)

    def _parameters(self, kernel: Lowered, params: bytes | Sequence[int]) -> bytes:
        if isinstance(params, bytes | bytearray):
            if len(params) < kernel.parameter_bytes:
                raise ArgumentError(
                    f"{kernel.name}: {len(params)} bytes of parameters, not"
                    f" {kernel.parameter_bytes}"
                )
            return bytes(params)
        if len(params) != len(kernel.parameters):
            raise ArgumentError(
                f"{kernel.name} has {len(kernel.parameters)} parameters, not {len(params)}"
            )
        packed = bytearray(kernel.parameter_bytes)
        for address, (at, size) in zip(params, kernel.parameters.values()):
            packed[at : at + size] = ctypes.string_at(address, size)
        return bytes(packed)

    def _spans(
        self, allocations: Iterable[tuple[int, int]] | None
    ) -> tuple[Any, list[tuple[int, int]] | None]:
        """The memory that may be accessed, in order, as the machine takes it."""
        if allocations is None:
            return None, None
        table = sorted({*self.globals.values(), *((int(a), int(n)) for a, n in allocations)})
        table = [(base, size) for base, size in table if size]
        spans = (machine.Span * max(len(table), 1))()
        for span, (base, size) in zip(spans, table):
            span.begin, span.end = base, base + size
        return spans, table


def _run(
    kernel: Lowered,
    launch: machine.Launch,
    table: list[tuple[int, int]] | None,
    study: Study | None,
) -> None:
    library = machine.library()
    state = library.mgp_new(ctypes.byref(launch))
    if not state:
        raise MemoryError(f"{kernel.name}: no memory for running the kernel")
    found = machine.Finding()
    try:
        status = findings.RUNNING
        while status == findings.RUNNING:
            status = library.mgp_run(state, _BUDGET, ctypes.byref(found))
            _print(state)
            if study is not None and study.is_enough(library.mgp_steps(state)):
                status = findings.FINISHED
    finally:
        library.mgp_free(state)
    if status != findings.FINISHED:
        raise findings.error(kernel, found, table)


def _print(state: int) -> None:
    """Write what the kernel printed to standard output."""
    text = ctypes.c_void_p()
    size = machine.library().mgp_output(state, ctypes.byref(text))
    if size:
        sys.stdout.write(ctypes.string_at(text, size).decode(errors="replace"))


def _total_shared(kernel: Lowered, dynamic: int) -> int:
    if not dynamic:
        return kernel.static_shared
    align = kernel.alignment
    return (kernel.static_shared + align - 1) // align * align + dynamic


def _check(kernel: Lowered, block: Sequence[int], shared_bytes: int) -> None:
    """Raise LaunchError for what hardware refuses."""
    threads = block[0] * block[1] * block[2]
    most = 1
    for n in kernel.most_threads:
        most *= n
    if kernel.most_threads and threads > most:
        raise LaunchError(f"{kernel.name}: a block of {threads} threads; it is compiled for {most}")
    total = _total_shared(kernel, shared_bytes)
    if shared_bytes < 0 or total > _LIMIT_SHARED:
        raise LaunchError(
            f"{kernel.name}: {total} bytes of shared memory; a block has at most {_LIMIT_SHARED}"
        )


def _place_variables(program: Program) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Memory for the variables in .global and .const, with their initial values."""
    placed = [
        v for v in program.variables.values() if v.space in ("global", "const") and not v.external
    ]
    offsets, at = {}, 0
    for variable in placed:
        align = max(variable.align, 16)
        at = (at + align - 1) // align * align
        offsets[variable.name] = at
        at += variable.bytes
    room = ctypes.create_string_buffer(at + 256)
    base = (ctypes.addressof(room) + 255) // 256 * 256
    found = {v.name: (base + offsets[v.name], v.bytes) for v in placed}
    addresses = {name: program.address(name) for name in program.functions}
    addresses |= {name: place for name, (place, _) in found.items()}
    for variable in placed:
        values = b"".join(_initial(value, variable, addresses) for value in variable.values)
        ctypes.memset(found[variable.name][0], 0, variable.bytes)
        ctypes.memmove(found[variable.name][0], values, min(len(values), variable.bytes))
    return room, found


def _initial(value: Any, variable: Variable, addresses: dict[str, int]) -> bytes:
    size = variable.type.bytes
    if isinstance(value, Immediate):
        bits = bits_of(value, variable.type) & ((1 << 8 * size) - 1)
        return bits.to_bytes(size, "little")
    if value.name not in addresses:
        raise CompileError(f"PTX line {variable.line}: the address of {value.name} is not known")
    offset = getattr(value, "offset", 0)
    return struct.pack("<Q", addresses[value.name] + offset)[:size]
