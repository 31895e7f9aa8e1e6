"""What NVIDIA's compilers make of a kernel: registers, shared memory, spills, PTX and SASS.

No GPU is needed, only the wheels of the extra `cuda13` (or `cuda12`): numba-cuda and libNVVM write
PTX, and nvJitLink, which holds the assembler of the driver, makes of it the machine code of one
compute capability; NVRTC does both for CUDA C. SASS, the text of machine code, needs `nvdisasm`.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from kernels.lab.gpu_model import nvrtc, sass
from kernels.lab.gpu_model.occupancy import Occupancy, capability, occupancy
from kernels.simt.api.launch import jit
from kernels.simt.backend import assembler
from kernels.support.errors import CompileError

RESERVED_SHARED = 1024  # bytes that a cubin for 9.0 and later counts on top of the kernel's own


@dataclass(frozen=True)
class Compiled:
    """A kernel as machine code for one compute capability.

    registers per thread, static shared memory in bytes per block; stack, spill_stores and
    spill_loads in bytes per thread. ptx and cubin are what the compilers wrote, entry is the
    kernel's name there; source is its own text as (file, number of the first line, text).
    """

    name: str
    entry: str = field(repr=False)
    cc: tuple[int, int]
    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    source: tuple[str, int, str] = field(repr=False)

    def __str__(self) -> str:
        spilled = self.spill_stores or self.spill_loads
        return (
            f"{self.name} for compute capability {self.cc[0]}.{self.cc[1]}: {self.registers} "
            f"registers per thread, {self.shared} bytes of static shared memory per block, "
            f"{self.stack} bytes of stack, "
            + (
                f"{self.spill_stores} bytes spilled and {self.spill_loads} read back"
                if spilled
                else "nothing spilled"
            )
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": str(self)}

    @property
    def has_lines(self) -> bool:
        """Whether instructions are known by source line."""
        return re.search(r"^\s*\.file\s", self.ptx, re.MULTILINE) is not None

    def occupancy(self, block: int, shared: int = 0) -> Occupancy:
        """Its occupancy in blocks of `block` threads, with `shared` bytes of dynamic memory."""
        return occupancy(self.registers, self.shared + shared, block, self.cc)

    def sass(self) -> str:
        """The machine code as text, with comments that name source lines. Needs nvdisasm."""
        return sass.sass(self.cubin, "-g")

    def listing(self, code: str = "ptx") -> str:
        """Each source line, and below it the instructions ("ptx" or "sass") made of it.

        What a line becomes may stand in several places and out of order: the compiler moves
        instructions. Those of other files (inlined functions) come last. Without line numbers,
        which libNVVM refuses for some kernels, all instructions follow the source, in order.
        """
        if code not in ("ptx", "sass"):
            raise ValueError(f'listing: expected "ptx" or "sass", got {code!r}')
        path, first, text = self.source
        lines = ptx_lines(self.ptx) if code == "ptx" else sass_lines(self.sass())
        if not self.has_lines:
            lines = {("without line numbers", 0): [*itertools.chain(*lines.values())]}
        own = {number: made for (where, number), made in lines.items() if where.endswith(path)}
        rows = []
        for number, line in enumerate(text.splitlines(), first):
            rows.append(f"{number:>5} | {line}")
            rows += [f"      |     {one}" for one in own.pop(number, ())]
        other = {key: made for key, made in lines.items() if not key[0].endswith(path)}
        for (where, number), made in sorted(other.items()):
            rows += [f"{number:>5} | ({where})", *(f"      |     {one}" for one in made)]
        return "\n".join(rows).replace(self.entry, self.name)


def compiled(
    kernel: Any, *arguments: Any, cc: tuple[int, int] | float | str = (8, 0), lines: bool = True
) -> Compiled:
    """Compile a kernel for compute capability `cc`, with no GPU needed.

    kernel: `@cuda.jit`, its Python function, or `raw_kernel(...)` of CUDA C. `arguments`
    tell the types of a Numba kernel that has no signature: examples (arrays, numbers), or Numba
    types. lines: keep the source line of each instruction, for listings; a sixth of the time goes
    to that. Raises CompileError where the compilers are not installed, or refuse the source.
    """
    cc = capability(cc)
    if isinstance(kernel, FunctionType):
        kernel = jit(kernel)
    if hasattr(kernel, "py_func"):
        ptx, source = _from_numba(kernel, arguments, cc, lines)
        entry = re.search(r"\.entry\s+([$\w]+)", ptx)[1]
        options = getattr(kernel, "gpu_options", None) or getattr(kernel, "targetoptions", {})
        cubin, log = assembler.assembled(ptx, cc, options.get("max_registers"))
    elif hasattr(kernel, "code"):
        entry, log, ptx, cubin = _from_cuda_c(kernel, cc, lines)
        source = (nvrtc.FILE, 1, kernel.code)
    else:
        raise TypeError(f"compiled: expected a kernel (cuda.jit or raw_kernel), got {kernel!r}")
    facts = assembler.facts_of(log, entry)
    shared = assembler.shared_bytes(cubin, entry) - (RESERVED_SHARED if cc >= (9, 0) else 0)
    known = getattr(kernel, "__name__", None) or kernel.name
    return Compiled(
        known, entry, cc, shared=max(shared, 0), ptx=ptx, cubin=cubin, source=source, **facts
    )


def _from_numba(kernel: Any, arguments: tuple, cc: tuple[int, int], lines: bool) -> tuple:
    """(PTX, source) of a kernel in Python."""
    text = numba_ptx(kernel, _signature(kernel, arguments), cc, lines)
    own, first = inspect.getsourcelines(kernel.py_func)
    return text, (inspect.getfile(kernel.py_func), first, "".join(own))


def numba_ptx(kernel: Any, signature: Any, cc: tuple[int, int], lines: bool) -> str:
    """PTX of a kernel in Python, with line numbers if libNVVM can: it refuses those that Numba
    writes for some kernels, and with them drops labels of others. Raises CompileError."""
    from kernels.simt.api import to_numba_cuda

    try:
        from cuda.bindings import nvvm
        from numba.core.errors import NumbaError
        from numba.cuda.cudadrv.error import CCSupportError, NvvmError
    except ImportError as error:
        raise CompileError(f"{kernel.__name__}: {nvrtc.NEEDS}") from error
    try:
        if lines:
            with contextlib.suppress(nvvm.nvvmError):
                text = to_numba_cuda.ptx(kernel, signature, cc, lineinfo=True)
                if not _missing_labels(text):
                    return text
        return to_numba_cuda.ptx(kernel, signature, cc)
    except (NumbaError, CCSupportError, NvvmError, nvvm.nvvmError) as error:
        raise CompileError(f"{kernel.__name__}: {str(error).strip()}") from error


def _missing_labels(ptx: str) -> set[str]:
    """Labels that branches name and no line has."""
    named = set(re.findall(r"\bbra(?:\.uni)?\s+([$\w]+)", ptx))
    return named - set(re.findall(r"^([$\w]+):", ptx, re.MULTILINE))


def _signature(kernel: Any, arguments: tuple) -> Any:
    """The types to compile for: those of `arguments`, else the kernel's own signature."""
    from numba import typeof, types

    if not arguments:
        own = getattr(kernel, "signature", None)
        if own is None and inspect.signature(kernel.py_func).parameters:
            raise TypeError(
                f"compiled: {kernel.__name__} has no signature; give example arguments, "
                f"compiled({kernel.__name__}, x, ...), or their Numba types"
            )
        return own or ()
    return tuple([a if isinstance(a, types.Type) else typeof(a) for a in arguments])


def _from_cuda_c(kernel: Any, cc: tuple[int, int], lines: bool) -> tuple[str, str, str, bytes]:
    """(the name in the PTX, the assembler's report, PTX, machine code) of a kernel in CUDA C."""
    own = f"{cc[0]}{cc[1]}a"  # with what GPUs of this compute capability alone have
    target = own if own in nvrtc.targets(kernel.code) else own[:-1]
    options = ("--ptxas-options=-v", *(["-lineinfo"] if lines else []), *kernel.options)
    (name,), *rest = nvrtc.translate(kernel.code, [kernel.name], f"sm_{target}", options)
    return name, *rest


def ptx_lines(ptx: str) -> dict[tuple[str, int], list[str]]:
    """The instructions of PTX, by the (file, line) that they were made of."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx, re.MULTILINE))
    found: dict[tuple[str, int], list[str]] = {}
    here = ("", 0)
    for line in ptx.splitlines():
        text = line.strip()
        if match := re.match(r"\.loc\s+(\d+)\s+(\d+)", text):
            here = (files.get(match[1], "?"), int(match[2]))
        elif text.endswith(";") and not text.startswith("."):
            found.setdefault(here, []).append(" ".join(text.split()))
    return found


def sass_lines(sass: str) -> dict[tuple[str, int], list[str]]:
    """The instructions of SASS, by the (file, line) that they were made of."""
    found: dict[tuple[str, int], list[str]] = {}
    here, continued = ("", 0), False
    for line in sass.splitlines():
        if match := re.search(r'//## File "([^"]+)", line (\d+)', line):
            if not continued:  # "inlined at" lines follow the line of the instruction itself
                here = (match[1], int(match[2]))
            continued = True
            continue
        continued = False
        match = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;?\s*(/\*.*)?$", line)
        if match and match[1] != "NOP":  # fills the last line of the instruction cache
            found.setdefault(here, []).append(" ".join(match[1].split()))
    return found
