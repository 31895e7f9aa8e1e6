"""Object files of kernels, which load without Numba.

Importing Numba takes longer than all else that a process does before its first launch. A kernel
whose object file needs nothing but Python, C and its maths library is therefore stored as that file
(`<name>.o` beside the generated module), with what `entry` needs to call it. All others are kept in
Numba's own cache.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from kernels.simt.backend import entry
from kernels.support.cache import write

_SYMBOL = struct.Struct("<IBBHQQ")  # of ELF: name, info, other, section, value, size
# Numba's reference counting is linked into each object file and calls this for arrays that Numba
# owns. Arrays that come from outside have no such owner.
_NEVER_CALLED = "NRT_MemInfo_call_dtor"


def take_cache(function: Any) -> Any:
    """Numba's cache of a function, which then keeps nothing there by itself."""
    from numba.core.caching import NullCache

    taken, function._cache = function._cache, NullCache()
    return taken


def store(path: Path, compiled: Any) -> bool:
    """Keep the code of a kernel that Numba has compiled; False if it cannot run without Numba."""
    described = compiled.fndesc
    code = compiled.library._get_compiled_object()
    undefined, defined = _symbols(code)
    if entry.mark(described) not in defined or not all(
        name == _NEVER_CALLED or hasattr(ctypes.pythonapi, name) for name in undefined
    ):
        return False
    layout = entry.layout(compiled.target_context, described.argtypes)
    header = (entry.runner(described), *map(str, layout))
    write(path.with_suffix(".o"), " ".join(header).encode() + b"\n" + code)
    return True


def load(path: Path) -> Callable | None:
    """The entry point of the kernel whose module is at `path`, or None if it is not stored so."""
    try:
        header, _, code = path.with_suffix(".o").read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    symbol, *layout = header.decode().split(" ")
    engine = entry.engine()
    if llvm.address_of_symbol(_NEVER_CALLED) is None:  # Numba has not been imported
        abort = ctypes.cast(ctypes.pythonapi.abort, ctypes.c_void_p).value
        llvm.add_symbol(_NEVER_CALLED, abort)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return entry.make(engine.get_function_address(symbol), tuple(map(int, layout)))


def _symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Names that an object file refers to without defining them, and those that it defines.

    Only for ELF: nothing is defined in a file of another format.
    """
    sections = {s.name(): s.data() for s in llvm.ObjectFileRef.from_data(code).sections()}
    names: tuple[set[str], set[str]] = set(), set()
    for start, _, _, section, _, _ in _SYMBOL.iter_unpack(sections.get(b".symtab", b"")):
        text = sections[b".strtab"][start:].partition(b"\0")[0].decode()
        if text:
            names[section != 0].add(text)
    return names
