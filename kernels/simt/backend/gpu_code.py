"""A kernel's machine code for a GPU: from the cache, or compiled by numba-cuda and kept there.

It is found by what it depends on: the kernel and all it refers to, the types of its arguments, the
compute capability, and the versions of numba-cuda, NVIDIA's compilers and the driver. A process
that finds all of its kernels does not import numba-cuda.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from kernels.simt.store import fingerprint, modules
from kernels.support import cache, nvidia
from kernels.support.errors import LaunchError

_SUFFIX = ".gpu"  # a line of JSON, then what the driver loads
_COMPILERS = ("nvvm", "nvJitLink")


class Code(NamedTuple):
    """A compiled kernel: its name in the image that the driver loads, and its parameters: "array2"
    for one of two dimensions, "float16" to "float64", "integer"."""

    entry: str
    parameters: tuple[str, ...]
    image: bytes


class Function(NamedTuple):
    """A kernel that the driver has loaded."""

    handle: Any
    parameters: tuple[str, ...]


_loaded: WeakKeyDictionary[Any, dict[tuple, Function]] = WeakKeyDictionary()


def function(kernel: Any, args: tuple) -> Function:
    """The kernel for arguments of the types of `args`, loaded into the driver."""
    device = next(a for a in args if hasattr(a, "__cuda_array_interface__")).device
    key = device.compute_capability, tuple(map(_described, args))
    with kernel._lock:
        found = _loaded.setdefault(kernel, {})
        if key not in found:
            found[key] = _find_or_compile(kernel, key, args)
        return found[key]


def _find_or_compile(kernel: Any, key: tuple, args: tuple) -> Function:
    name = _name(kernel, *key)
    if found := _stored(name):
        return found
    with cache.alone(cache.cache_folder() / name):  # other ranks, other workers of the tests
        return _stored(name) or _made(kernel, key[0], name, args)


def _stored(name: str) -> Function | None:
    """What was kept by a name, loaded."""
    stored = cache.kept(name)
    if stored is None:
        return None
    try:
        header, _, image = stored.partition(b"\n")
        entry, parameters = json.loads(header)
        return _load(Code(entry, tuple(parameters), image))
    except (ValueError, LaunchError):  # of another system: a real error comes again when it is made
        cache.discard(name)
        return None


def _made(kernel: Any, capability: str, name: str, args: tuple) -> Function:
    compiled = _compiled(kernel, capability, args)
    parameters = tuple(map(_parameter, compiled.argument_types))
    code = Code(compiled.entry_name, parameters, _image(compiled))
    if _stands_alone(compiled._codelibrary):
        cache.keep(name, json.dumps(code[:2]).encode() + b"\n" + code.image)
    return _load(code)


# ---- the name in the cache


def _described(arg: Any) -> tuple:
    """What determines the type of an argument."""
    if hasattr(arg, "__cuda_array_interface__"):
        return arg.dtype.name, arg.ndim
    return (np.asarray(arg).dtype.name,)


def _name(kernel: Any, capability: str, described: tuple) -> str:
    parts = [
        modules.sources(),
        _compilers(),
        fingerprint.of(kernel.py_func),
        repr((capability, described, kernel.signature)),
        repr((kernel.fastmath, sorted(kernel.gpu_options.items()))),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    return cache.stem(kernel.__name__, digest) + _SUFFIX


@functools.cache
def _compilers() -> str:
    """numba-cuda, NVIDIA's compilers and the driver, and what they were told to do."""
    from importlib.metadata import version  # with the modules for mails, so only where it is needed

    from cuda.bindings import driver

    versions = nvidia.libraries(*_COMPILERS)
    asked = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_CUDA"))
    return repr((version("numba-cuda"), driver.cuDriverGetVersion(), versions, asked))


# ---- compiled by numba-cuda


def _compiled(kernel: Any, capability: str, args: tuple) -> Any:
    """numba-cuda's kernel for these arguments."""
    from kernels.simt.backend import ptx

    flags = "gpu", capability, kernel.fastmath, repr(kernel.gpu_options)
    with ptx.fewer_steps(flags), ptx.loading_later():
        dispatcher = kernel.on_gpu()
        if dispatcher.specialized:  # an explicit signature
            return next(iter(dispatcher.overloads.values()))
        return dispatcher.compile(tuple(map(_type_of, args)))


def _type_of(arg: Any) -> Any:
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    if hasattr(arg, "__cuda_array_interface__"):
        return types.Array(from_dtype(arg.dtype), arg.ndim, "C")
    return from_dtype(np.asarray(arg).dtype)


def _parameter(kind: Any) -> str:
    from numba.cuda import types

    if isinstance(kind, types.Array):
        return f"array{kind.ndim}"
    return f"float{kind.bitwidth}" if isinstance(kind, types.Float) else "integer"


def _image(compiled: Any) -> bytes:
    """Machine code for the current device, linked with what the kernel calls."""
    return bytes(compiled._codelibrary.get_cubin().code)


def _stands_alone(library: Any) -> bool:
    """Whether the code is good in another process: no addresses of this one, no set-up by it."""
    return not (library._setup_functions or library.referenced_objects)


# ---- loaded by the driver


def _load(code: Code) -> Function:
    """Raises LaunchError where the driver refuses the code."""
    from cuda.bindings import driver

    error, library = driver.cuLibraryLoadData(code.image, [], [], 0, [], [], 0)
    if not error:
        error, kernel = driver.cuLibraryGetKernel(library, code.entry.encode())
    if error:
        raise LaunchError(f"{code.entry}: the driver cannot load it: {error.name}")
    return Function(driver.CUfunction(int(kernel)), code.parameters)
