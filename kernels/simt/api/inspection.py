"""What numba-cuda tells of a kernel: its types here, and what NVIDIA's compilers make of it.

The second needs no GPU, only the wheels of the extra `cuda13` (or `cuda12`); each method raises
CompileError without them. Their target is the device that the CPU stands for, `CC`.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any, TextIO

from kernels.simt.device.context import Device, get_current_device
from kernels.support.errors import CompileError

CC = Device.compute_capability
_SHARED = 164 * 1024  # bytes of shared memory of a multiprocessor
_REGISTERS, _UNIT, _WARP = Device.MAX_REGISTERS_PER_BLOCK, 256, Device.WARP_SIZE


class Overload:
    """A kernel for some types of arguments."""

    def __init__(self, kernel: Any, signature: tuple) -> None:
        self.kernel, self.signature = kernel, signature

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__}{self.signature}>"

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        """The blocks that run at once, by the limits of the device that stands for the CPU: 2048
        threads and 32 blocks for each multiprocessor, 164 KiB of dynamic shared memory."""
        sizes = blockdim if isinstance(blockdim, tuple) else (blockdim,)
        blocks = min(32, 2048 // max(1, math.prod(sizes)))
        if dynsmemsize:
            blocks = min(blocks, _SHARED // dynsmemsize)
        return blocks * get_current_device().MULTIPROCESSOR_COUNT


class Inspected:
    """Methods of a kernel that tell of it; `_specialised` holds what it was compiled for."""

    __name__: str
    _specialised: dict[Any, Any]
    declared: Any

    @property
    def overloads(self) -> dict[tuple, Overload]:
        """What explicit signatures declare and launches compiled so far, by the Numba types of the
        arguments."""
        declared = [tuple(kinds) for kinds, _ in self.declared]
        return {kinds: Overload(self, kinds) for kinds in (*declared, *self._compiled)}

    @property
    def _compiled(self) -> dict[tuple, Any]:
        found = dict.fromkeys(self._specialised.values())
        return {s.kinds(): s for s in found}

    @property
    def signatures(self) -> list[tuple]:
        """The types of the arguments that the kernel was compiled for so far."""
        return list(self._compiled)

    def inspect_types(self, file: TextIO | None = None) -> None:
        """Print the type of each variable, for each combination of argument types so far."""
        for kinds, compiled in self._compiled.items():
            print(f"{self.__name__} {kinds}", file=file or sys.stdout)
            print(compiled.passes()["types"], file=file or sys.stdout)

    def inspect_asm(self, signature: tuple | None = None) -> Any:
        """PTX for argument types; without `signature`, a dictionary of all compiled so far."""
        return self._each(signature, lambda one: self._library(one).get_asm_str(cc=CC))

    def inspect_llvm(self, signature: tuple | None = None) -> Any:
        """numba-cuda's LLVM code for argument types; without `signature`, a dictionary."""
        return self._each(signature, lambda one: self._library(one).get_llvm_str())

    def inspect_sass(self, signature: tuple | None = None) -> Any:
        """The machine code is in the lab, with its tools: see `lab.compiled(kernel, ...)`."""
        raise CompileError(
            f"{self.__name__}: inspect_sass needs nvdisasm; use lab.compiled({self.__name__},"
            " arrays...).sass, which says where to get it"
        )

    def get_regs_per_thread(self, signature: tuple | None = None) -> Any:
        """Registers per thread, as NVIDIA's assembler allocates them; see `inspect_asm`."""
        return self._each(signature, lambda one: self._facts(one)["registers"])

    def get_local_mem_per_thread(self, signature: tuple | None = None) -> Any:
        """Bytes of stack per thread."""
        return self._each(signature, lambda one: self._facts(one)["stack"])

    def get_shared_mem_per_block(self, signature: tuple | None = None) -> Any:
        """Bytes of static shared memory per block."""
        return self._each(signature, lambda one: self._facts(one)["shared"])

    def get_max_threads_per_block(self, signature: tuple | None = None) -> Any:
        """The most threads that a block can have: registers are given to warps in units."""

        def most(registers: int) -> int:
            per_warp = -(-registers * _WARP // _UNIT) * _UNIT
            return min(Device.MAX_THREADS_PER_BLOCK, _REGISTERS // per_warp * _WARP)

        return self._each(signature, lambda one: most(self._facts(one)["registers"]))

    def _each(self, signature: Any, tell: Any) -> Any:
        if signature is not None:
            return tell(signature)
        return {known: tell(known) for known in self._compiled}

    def _library(self, signature: Any) -> Any:
        from kernels.simt.api import to_numba_cuda

        return to_numba_cuda.library(self, signature, CC)

    def _facts(self, signature: Any) -> dict[str, int]:
        """The assembler's report on the kernel for these argument types."""
        from kernels.simt.backend import assembler

        ptx = self._library(signature).get_asm_str(cc=CC)
        entry = re.search(r"\.entry\s+([$\w]+)", ptx)[1]
        cubin, log = assembler.assembled(ptx, CC, self.gpu_options.get("max_registers"))
        return assembler.facts_of(log, entry) | {"shared": assembler.shared_bytes(cubin, entry)}


def compile_ptx(
    pyfunc: Any, sig: Any, *, cc: tuple[int, int] | None = None, **options: Any
) -> tuple[str, Any]:
    """(PTX, type of the result) of a function by numba-cuda's compiler; `options` are its own.

    Raises CompileError where numba-cuda is not installed, Numba's errors where it refuses.
    """
    from kernels.simt.api import to_numba_cuda

    return to_numba_cuda.compile_ptx(pyfunc, sig, cc or CC, options)


def compile_ptx_for_current_device(pyfunc: Any, sig: Any, **options: Any) -> tuple[str, Any]:
    """`compile_ptx` for the compute capability whose limits kernels have here, 8.0."""
    return compile_ptx(pyfunc, sig, **options)
