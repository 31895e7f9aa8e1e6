"""CUDA C sources as kernels that the launchers bind: files, types, and instances of templates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kernels.cuda_c.tensor_map import is_map, map_at
from kernels.host import RawKernel, RawModule
from kernels.launchers.common import compute_dtype
from kernels.support.errors import ArgumentError
from kernels.support.memory import is_on_gpu

_HERE = Path(__file__).parent
_C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "__half",
    "float32": "float",
    "float64": "double",
    "bfloat16": "__nv_bfloat16",
}
_HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


@functools.cache
def storage_type(dtype: np.dtype) -> str:
    """The C type of an array element of the dtype. TypeError for one that kernels do not take."""
    if dtype.name not in _C_TYPES:
        raise TypeError(f"the CUDA C kernels take no arrays of {dtype}")
    return _C_TYPES[dtype.name]


def scalar_type(dtype: np.dtype) -> str:
    """The C type of a value of the dtype in registers."""
    return storage_type(compute_dtype(dtype))


@functools.cache
def source(file: str) -> str:
    """The text of a file of this folder, with the .cuh files that it includes in their place."""
    text = (_HERE / file).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: source(match[1]), text)


@functools.cache
def compiled(text: str, name: str) -> RawKernel:
    """The kernel `name` of a source, with the headers that its types need."""
    headers = [h for t, h in _HEADERS.items() if re.search(rf"\b{t}\b", f"{name} {text}")]
    options = ("-arch=sm_90a",) if "needs sm_90a" in text else ()
    code = "".join(f"#include <{h}>\n" for h in headers) + text
    return RawModule(code, options, (name,), checked_by_default=False).get_function(name)


class Kernel:
    """A kernel of a .cu file, an instance of a template for what its launcher passes.

    text: the source; name: of the template. constants: its arguments, C types and numbers; the
    types of the arrays at the positions `types` come before them. arguments: turns what the
    launcher passes, arrays and numbers, into the pointers and sizes that the kernel takes.
    shared: bytes of dynamic shared memory.
    """

    def __init__(
        self,
        text: str,
        name: str,
        types: tuple[int, ...],
        constants: tuple,
        arguments: Callable,
        shared: int = 0,
    ) -> None:
        self.text, self.name, self.types = text, name, types
        self.constants, self.arguments, self.shared = constants, arguments, shared

    def instance(self, *args) -> RawKernel:
        """The kernel for arguments of these types."""
        parts = [storage_type(args[i].dtype) for i in self.types]
        parts += [c if isinstance(c, str) else str(int(c)) for c in self.constants]
        return compiled(self.text, f"{self.name}<{', '.join(parts)}>" if parts else self.name)

    def bind(self, grid, block, *args) -> Callable[..., None]:
        """A function that launches the kernel for arguments of the types of `args`."""
        return self._bound(self.instance(*args).on_cpu(grid, block, self.shared))

    def bind_on_gpu(self, grid, block, *args) -> Callable[..., None]:
        """As `bind`, for CuPy arrays. CuPy passes the elements of a NumPy array, and addresses of
        any GPU: the function raises ArgumentError for arrays elsewhere than those of `args`."""
        run = self._bound(self.instance(*args).on_gpu().bind(grid, block, self.shared))
        own, device = next((type(a), a.data.device_id) for a in args if is_on_gpu(a))

        def launch(*args) -> None:
            for a in args:
                there = a.data.device_id if type(a) is own else device
                if there != device or type(a) is np.ndarray:
                    raise ArgumentError(f"{self.name}: expected arrays on one GPU; move them first")
            run(*args)

        return launch

    def repeat_on_gpu(self, grid, block, args, source) -> Callable[[tuple], None] | None:
        """As that of a kernel in Python (`kernels.simt.backend.gpu_launch.repeat`); None where what
        changes from launch to launch does not come as it is passed, nor as a map in its place."""
        given = list(self.arguments(*args))
        maps = {i: map_at(args[i]) for i, v in enumerate(given) if is_map(v)}
        for i, arg in enumerate(args):
            if source(arg) and i not in maps and not any(_is_same(arg, v) for v in given):
                return None
        sources = [source(args[i] if i in maps else v) for i, v in enumerate(given)]
        function = self.instance(*args).on_gpu()
        return function.repeat(grid, block, self.shared, given, sources, maps)

    def _bound(self, run: Callable[[Sequence], None]) -> Callable[..., None]:
        arguments = self.arguments
        if arguments is as_passed:
            return lambda *args: run(args)
        return lambda *args: run(arguments(*args))


def _is_same(arg, given) -> bool:
    """Whether a kernel is given an argument: that number, or an array at that address."""
    return arg is given or (is_on_gpu(arg) and is_on_gpu(given) and arg.data.ptr == given.data.ptr)


def as_passed(*args):
    """The `arguments` of a kernel that takes what its launcher passes."""
    return args


def family(file: str) -> Callable[..., Kernel]:
    """`kernel(name, types, constants, arguments)` for the kernels of one .cu file."""
    return functools.partial(Kernel, source(file))
