"""CUDA C kernels on CuPy arrays: what CuPy needs to know, determined once for each kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.support.driver_launch import Address, DriverLaunch
from kernels.support.errors import ArgumentError
from kernels.support.limits import launch_dimensions
from kernels.support.memory import is_on_gpu

from . import source
from .library import parameters

_C_TYPES = {
    "bool": np.bool_,
    "char": np.int8,
    "signed char": np.int8,
    "unsigned char": np.uint8,
    "short": np.int16,
    "unsigned short": np.uint16,
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "long": np.int64,
    "unsigned long": np.uint64,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int32_t": np.int32,
    "uint32_t": np.uint32,
    "int64_t": np.int64,
    "uint64_t": np.uint64,
    "size_t": np.uint64,
    "half": np.float16,
    "__half": np.float16,
    "float": np.float32,
    "double": np.float64,
}


class OnGpu:
    """The kernel `name` of a source, launched through `function`, which is CuPy's.

    CuPy takes the type of a number from the number: each is cast to its parameter's type.
    """

    def __init__(self, name: str, code: str, function: Any) -> None:
        self.name, self.function = name, function
        texts = parameters(code, name)
        given = _template_arguments(code, name)
        self.kinds = [_kind(text, given) for text in texts]
        self.names = [source.parameter_name(text, index) for index, text in enumerate(texts)]

    def launch(self, grid: Any, block: Any, args: Sequence, shared_mem: int = 0) -> None:
        """Launch over `grid` blocks of `block` threads on the current stream."""
        kinds = self.kinds or [_POINTER] * len(args)  # where a macro has the parameters
        if len(kinds) != len(args):
            raise ArgumentError(f"{self.name} takes {len(kinds)} arguments, not {len(args)}")
        self._reserve(shared_mem)
        values = [self._value(i, kind, value) for i, (kind, value) in enumerate(zip(kinds, args))]
        self.function(_numbers(grid), _numbers(block), tuple(values), shared_mem=shared_mem)

    def bind(self, grid: Any, block: Any, shared_mem: int = 0) -> Callable[[Sequence], None]:
        """A function of the arguments that launches over these dimensions, unchecked."""
        grid, block, function = _numbers(grid), _numbers(block), self.function
        self._reserve(shared_mem)
        casts = [(i, kind) for i, kind in enumerate(self.kinds) if isinstance(kind, type)]

        def launch(args: Sequence) -> None:
            values = list(args)
            for i, kind in casts:
                values[i] = kind(values[i])
            function(grid, block, tuple(values), shared_mem=shared_mem)

        return launch

    def repeat(
        self, grid: Any, block: Any, shared_mem: int, args: Sequence, sources: Sequence, maps: dict
    ) -> Callable[[tuple], None]:
        """A function of values that launches as with `args`, but for arrays and numbers that come
        from these values: `sources` says for each argument which value that is and how many bytes
        it lies behind the address of an array, or None. maps: by the number of an argument that is
        a structure, its bytes as a function of that address."""
        from cuda.bindings import driver

        self._reserve(shared_mem)
        grid, block = launch_dimensions(self.name, grid, block)
        kinds = [_word_kind(kind, arg) for kind, arg in zip(self.kinds, args, strict=True)]
        sizes = [-(-arg.nbytes // 8) if k is None else 1 for k, arg in zip(kinds, args)]
        function = driver.CUfunction(self.function.kernel.ptr)
        launch = DriverLaunch(function, self.name, (*grid, *block), shared_mem, sizes)
        arrays, numbers = [], []
        for i, (kind, word, arg, found) in enumerate(zip(kinds, launch.starts, args, sources)):
            if kind is None:
                launch.write(word, arg.tobytes())
                numbers += [(launch.mapper(word, maps[i], found[1]), found[0])] if found else []
            elif is_on_gpu(arg):
                launch.buffer[word] = arg.data.ptr
                arrays += [Address(word, *found)] if found else []
            elif arg is not None:
                write = launch.writer(word, kind)
                write(arg)
                numbers += [(write, found[0])] if found else []
        return launch.repeat(arrays, numbers, list(args))

    def _reserve(self, shared_mem: int) -> None:
        if shared_mem > _LIMIT_SHARED:
            self.function.max_dynamic_shared_size_bytes = shared_mem

    def _value(self, index: int, kind: Any, value: Any) -> Any:
        """An argument as CuPy must have it: a number of its type, or a contiguous array."""
        if is_on_gpu(value):
            if value.flags.c_contiguous:
                return value
            problem = "is not contiguous; pass cupy.ascontiguousarray(array)"
        elif isinstance(value, np.ndarray) and value.ndim:
            problem = "is a NumPy array among CuPy arrays; pass cupy.asarray(...)"
        elif isinstance(kind, str) and type(value) in (int, float, bool):
            problem = f"is of type {kind}: pass a number of that size, such as np.float32({value})"
        else:
            return kind(value) if isinstance(kind, type) else value
        where = self.names[index] if self.names else "one of a macro's"
        raise ArgumentError(f"{self.name}: argument {index + 1} ({where}) {problem}")


_POINTER = None
_LIMIT_SHARED = 48 * 1024  # bytes of dynamic shared memory; more must be asked for


def _kind(parameter: str, given: dict[str, str]) -> type | str | None:
    """NumPy's type for a parameter that is a number, the C type as written where there is none,
    None for a pointer."""
    if "*" in parameter or "[" in parameter:
        return _POINTER
    words = re.sub(r"\b(const|volatile)\b|=.*", " ", parameter).split()
    written = " ".join(words[:-1])
    return _C_TYPES.get(given.get(written, written), written)


def _template_arguments(code: str, name: str) -> dict[str, str]:
    """What `name`, such as "scale<float, 4>", gives for the parameters of its template."""
    plain, _, given = name.partition("<")
    plain = plain.rpartition("::")[2].strip()
    head = rf"\btemplate\s*<([^<>]*)>\s*__global__\b[^;{{}}]*?\b{plain}\s*\("
    found = re.search(head, source.masked(code))
    if not given or not found:
        return {}
    names = [parameter.partition("=")[0].split()[-1] for parameter in found[1].split(",")]
    return dict(zip(names, (v.strip() for v in given.rstrip("> ").split(","))))


def _word_kind(kind: type | str | None, arg: Any) -> str | None:
    """What `DriverLaunch.writer` calls a parameter of one word; None for a structure."""
    if isinstance(kind, str) and isinstance(arg, np.generic | np.ndarray):
        return None
    if isinstance(kind, type) and np.issubdtype(kind, np.floating):
        return kind.__name__
    return "integer"


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in value) if isinstance(value, tuple | list) else (int(value),)
