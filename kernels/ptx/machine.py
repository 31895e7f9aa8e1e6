"""The machine that executes operations (machine/*.h), a library that is compiled once."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from functools import cache
from pathlib import Path

from kernels.host import compiler

_HERE = Path(__file__).parent / "machine"
# Nothing that the PTX does not fuse is fused; the loops over lanes become vector code.
_OPTIONS = ("-O2", "-ffp-contract=off", f"-I{_HERE}")

#: an operation, as the machine has it (Op in machine.h)
OPERATION = struct.Struct("<HBBBBBBiiiiiiiiq")


class Span(ctypes.Structure):
    """Memory that may be accessed: mirrors mgp::Span."""

    _fields_ = (("begin", ctypes.c_uint64), ("end", ctypes.c_uint64))


class Finding(ctypes.Structure):
    """How a launch ended: mirrors mgp::Finding."""

    _fields_ = (
        ("status", ctypes.c_int32),
        ("pc", ctypes.c_int32),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("address", ctypes.c_uint64),
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("bytes", ctypes.c_int32),
        ("writes", ctypes.c_int32),
        ("space", ctypes.c_int32),
        ("lanes", ctypes.c_int32),
        ("text", ctypes.c_char * 512),
    )


class Traffic(ctypes.Structure):
    """Mirrors mgp::Traffic."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("counts", "first", "second")),
        *((name, ctypes.c_uint32) for name in ("sms", "first_sets", "second_sets", "now")),
        ("written", ctypes.c_uint64),
        ("addresses", ctypes.c_void_p),
        ("address_room", ctypes.c_uint32),
        ("hottest", ctypes.c_uint64),
        ("widths", ctypes.c_void_p),
    )


class Chains(ctypes.Structure):
    """Mirrors mgp::Chains."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("links", "registers", "latency", "slots")),
        *((name, ctypes.c_uint64) for name in ("register_count", "cycles", "blocks")),
    )


class Launch(ctypes.Structure):
    """Mirrors mgp::Launch."""

    _fields_ = (
        ("ops", ctypes.c_char_p),
        ("lists", ctypes.c_char_p),
        ("constants", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("allocations", ctypes.POINTER(Span)),
        ("counts", ctypes.POINTER(ctypes.c_uint64)),
        ("allocation_count", ctypes.c_int64),
        ("parameter_bytes", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("entry", "register_bytes", "area_bytes")),
        *((name, ctypes.c_int32) for name in ("local_bytes", "local_room")),
        *((name, ctypes.c_uint32) for name in ("static_shared", "dynamic_shared", "total_shared")),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("reversed", ctypes.c_uint32),
        ("together", ctypes.c_uint32),
        ("chosen", ctypes.c_void_p),
        ("chosen_count", ctypes.c_uint64),
        ("room", ctypes.c_uint32),
        ("slice", ctypes.c_uint32),
        ("traffic", ctypes.POINTER(Traffic)),
        ("chains", ctypes.POINTER(Chains)),
    )


@cache
def library() -> ctypes.CDLL:
    """The machine, compiled at its first use. Raises CompileError without a C++ compiler."""
    digest = hashlib.sha256()
    for path in sorted(_HERE.iterdir()):
        digest.update(path.read_bytes())
    unit = f'// {digest.hexdigest()}\n#include "run.cpp"\n'
    compiler.runtime()  # whose functions its headers name
    loaded = ctypes.CDLL(str(compiler.library(unit, _OPTIONS, prelude=False)))
    loaded.mgp_operation.restype = ctypes.c_char_p
    loaded.mgp_operation.argtypes = (ctypes.c_int,)
    loaded.mgp_new.restype = ctypes.c_void_p
    loaded.mgp_new.argtypes = (ctypes.POINTER(Launch),)
    loaded.mgp_run.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Finding))
    loaded.mgp_output.restype = ctypes.c_uint64
    loaded.mgp_output.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    loaded.mgp_steps.restype = ctypes.c_uint64
    loaded.mgp_steps.argtypes = loaded.mgp_free.argtypes = (ctypes.c_void_p,)
    loaded.mgp_free.restype = None
    return loaded


@cache
def codes() -> dict[str, int]:
    """The machine's operations by name."""
    found: dict[str, int] = {}
    while name := library().mgp_operation(len(found)):
        found[name.decode()] = len(found)
    return found
