"""The assembler of NVIDIA's driver, nvJitLink: machine code of PTX, and what it reports of it."""

from __future__ import annotations

import re
import struct

from kernels.simt.backend.ptx import NOT_INSTALLED
from kernels.support.errors import CompileError


def assembled(ptx: str, cc: tuple[int, int], most: int | None) -> tuple[bytes, str]:
    """(machine code, the assembler's report) of PTX."""
    try:
        from cuda.bindings import nvjitlink
    except ImportError as error:
        raise CompileError(NOT_INSTALLED) from error

    options = [f"-arch=sm_{cc[0]}{cc[1]}", "-verbose", "-lineinfo"]
    if most:
        options.append(f"-maxrregcount={most}")
    code = ptx.encode()
    handle = nvjitlink.create(len(options), options)
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), "kernel")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        text = log.decode().strip("\0\n ") or str(error)
        if "cudaCG" in text:
            text = "a barrier of the grid needs CUDA's device library, which is not linked here"
        raise CompileError(f"nvJitLink: {text}") from error
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin), log.decode()


def facts_of(log: str, entry: str) -> dict[str, int]:
    """The numbers of a kernel in the assembler's report."""
    report = log[log.index(f"Compiling entry function '{entry}'") :]
    own = report[report.index(f"Function properties for {entry}") :]
    numbers = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", own
    )
    stack, stores, loads = map(int, numbers.groups())
    registers = int(re.search(r"Used (\d+) registers", report)[1])
    return dict(registers=registers, stack=stack, spill_stores=stores, spill_loads=loads)


def shared_bytes(cubin: bytes, entry: str) -> int:
    """The size of the section of a cubin (an ELF file) that holds the kernel's shared memory."""
    table, step, count, names = (
        *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HHH", cubin, 0x3A),
    )  # fmt: skip
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * step) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, _, size in headers:
        end = cubin.index(b"\0", strings + name)
        if cubin[strings + name : end].decode() == f".nv.shared.{entry}":
            return size
    return 0
