"""`raw_kernel`: CUDA C source as a callable, on a GPU through CuPy, otherwise on the CPU."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from typing import Any

import numpy as np

from ..simt import pool
from ..simt.errors import ArgumentError, CompileError, KernelError, LaunchError
from ..simt.limits import launch_dimensions
from . import compiler, source
from .arguments import Packer, Parameter

_LIMIT_DYNAMIC_SHARED = 227 * 1024  # what an H100 lets a block have
_PARALLEL_SECONDS = 2e-4  # launches that are expected to be shorter stay on the calling thread
_TOO_MUCH_SHARED = 2
_PASSED_ON = re.compile(r"-(?:D|I|U|std=|include).*")
_FOR_A_GPU = re.compile(
    r"(?:-arch|--gpu-architecture|-lineinfo|--generate-line-info|-maxrregcount|--maxrregcount"
    r"|-G|--device-debug|-default-device|--ptxas-options|-Xptxas|-restrict|--restrict|--fmad"
    r"|-fmad|-ftz|--ftz|-prec-|--prec-|--extra-device-vectorization|-dlto|-rdc|-w).*"
)


def raw_kernel(code: str, name: str, options: tuple[str, ...] = ()) -> RawKernel:
    """The kernel `name` of the CUDA C source `code`, launched as `k(grid, block, args)`.

    `name` may name an instance of a template (`"scale<float, 4>"`) or a kernel in a namespace.
    `options` are NVRTC's (`-DN=4`, `-Ifolder`, `--use_fast_math`). With NumPy arrays the source is
    compiled by the machine's C++ compiler and runs on the CPU; with CuPy arrays on their GPU.
    Nothing is compiled before the first launch (or `compile()`). On the CPU the threads of a block
    take turns from the first on; MINIGRAD_THREAD_ORDER=reversed starts with the last, which shows
    many a missing barrier. What a shuffle reads from a lane that is not there, and shared memory
    that nothing has written, is poison: NaN as a float, -1 as an integer.

        k = raw_kernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }',
                       "twice")
        k((1,), (32,), (np.ones(32, np.float32),))
    """
    return RawKernel(code, name, options)


class _Launch(ctypes.Structure):
    """Mirrors Launch in runtime/runtime.cpp."""

    _fields_ = (
        ("run_threads", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("reversed", ctypes.c_uint),
    )


class _Report(ctypes.Structure):
    """Mirrors Report in runtime/report.h."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("message", ctypes.c_char * 2000),
        ("length", ctypes.c_size_t),
    )


class RawKernel:
    """A kernel of CUDA C source; see `raw_kernel`."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        if isinstance(options, str):
            raise TypeError(f"options is a tuple of strings, not the string {options!r}")
        self.code, self.name, self.options = code, name, tuple(options)
        self._lock = threading.Lock()
        self._on_cpu: _Compiled | None = None
        self._on_gpu: Any = None

    def __repr__(self) -> str:
        return f"<raw_kernel {self.name}>"

    def __call__(self, grid: Any, block: Any, args: tuple, *, shared_mem: int = 0) -> None:
        """Launch over `grid` blocks of `block` threads (tuples of 1 to 3 numbers) and wait.

        `shared_mem` is the number of bytes of dynamic shared memory (`extern __shared__`).
        """
        if not isinstance(args, tuple | list):
            raise ArgumentError(f"{self.name}: args is a tuple of arguments, not {type(args)}")
        for arg in args:
            if type(arg).__module__.partition(".")[0] == "cupy":
                return self._launch_on_gpu(grid, block, args, shared_mem)
        compiled = self._on_cpu
        if compiled is None:
            self.compile()
            compiled = self._on_cpu
        compiled(grid, block, args, shared_mem)

    def compile(self) -> None:
        """Compile for the CPU now. Raises CompileError with the compiler's messages."""
        with self._lock:
            if self._on_cpu is None:
                self._on_cpu = _Compiled(self.code, self.name, self.options)

    def _launch_on_gpu(self, grid: Any, block: Any, args: tuple, shared_mem: int) -> None:
        """Through cupy.RawModule, on the current stream, scalars cast as the parameters ask."""
        import cupy

        parameters = _parameters(self.code, self.name)
        if len(parameters) != len(args):
            raise ArgumentError(f"{self.name} takes {len(parameters)} arguments, not {len(args)}")
        with self._lock:
            if self._on_gpu is None:
                standard = () if any("std=" in o for o in self.options) else ("-std=c++17",)
                module = cupy.RawModule(
                    code=self.code,
                    options=(*standard, *self.options),
                    name_expressions=(self.name,),
                )
                self._on_gpu = module.get_function(self.name)
                if shared_mem > 48 * 1024:
                    self._on_gpu.max_dynamic_shared_size_bytes = shared_mem
        values = []
        for index, (text, value) in enumerate(zip(parameters, args)):
            where = f"{self.name}: argument {index + 1} ({source.parameter_name(text, index)})"
            values.append(_for_gpu(text, value, where))
        self._on_gpu(_numbers(grid), _numbers(block), tuple(values), shared_mem=shared_mem)


def _parameters(code: str, name: str) -> list[str]:
    """The parameters of a kernel as written. Raises CompileError where there is no such kernel."""
    found = source.kernels(code)
    plain = re.sub(r"<.*", "", name).rpartition("::")[2].strip()
    if plain not in found:
        listed = f"it defines {', '.join(found)}" if found else "it defines no __global__ function"
        raise CompileError(f"the source has no kernel {plain!r}; {listed}")
    return found[plain]


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
    "float": np.float32,
    "double": np.float64,
}


def _for_gpu(parameter: str, value: Any, where: str) -> Any:
    """An argument as CuPy must have it: a scalar of the parameter's type, a contiguous array."""
    if isinstance(value, np.ndarray) and value.ndim:
        raise ArgumentError(f"{where} is a NumPy array among CuPy arrays; pass cupy.asarray(...)")
    if hasattr(value, "flags") and not isinstance(value, np.generic | np.ndarray):
        if not value.flags.c_contiguous:
            raise ArgumentError(f"{where} is not contiguous; pass cupy.ascontiguousarray(array)")
        return value
    if "*" in parameter:
        return value
    words = re.sub(r"\b(const|volatile)\b|=.*", " ", parameter).split()
    kind = _C_TYPES.get(" ".join(words[:-1]))
    return value if kind is None else kind(value)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in value) if isinstance(value, tuple | list) else (int(value),)


class _Compiled:
    """A kernel in a shared library, and its launches."""

    def __init__(self, code: str, name: str, options: tuple[str, ...]) -> None:
        self.name = name
        texts = _parameters(code, name)
        self.library = _load(code, name, options)
        count = ctypes.c_int.in_dll(self.library, "mgh_count").value
        described = ctypes.POINTER(Parameter).in_dll(self.library, "mgh_parameters")[:count]
        names = [source.parameter_name(text, index) for index, text in enumerate(texts)]
        if len(names) != count:  # a macro in the parameter list
            names = [f"parameter {index + 1}" for index in range(count)]
        self.pack = Packer(name, described, names)
        self.run_threads = ctypes.cast(self.library.mgh_run_threads, ctypes.c_void_p).value
        self.runtime = compiler.runtime()
        self.configurations: dict[Any, tuple[_Launch, int]] = {}
        self.seconds_a_block = 0.0

    def __call__(self, grid: Any, block: Any, args: tuple, shared_mem: int) -> None:
        order = os.environ.get("MINIGRAD_THREAD_ORDER", "forward")
        try:
            launch, blocks = self.configurations[grid, block, shared_mem, order]
        except (KeyError, TypeError):  # TypeError: lists
            launch, blocks = self._configure(grid, block, shared_mem, order)
        packed = self.pack(args)
        threads = 1 if blocks == 1 else pool.get_num_threads()
        if threads > 1 and self.seconds_a_block * blocks < _PARALLEL_SECONDS:
            threads = 1
        start = time.perf_counter()
        if threads == 1:
            self._run(launch, packed, 0, blocks)
        else:
            pool.run(lambda a, b: self._run(launch, packed, a, b), blocks, threads)
        self.seconds_a_block = (time.perf_counter() - start) * threads / blocks

    def _run(self, launch: _Launch, packed: bytes, first: int, last: int) -> int:
        """Blocks `first` to `last` on this OS thread; 0. Raises what went wrong."""
        report = _Report()
        status = self.runtime.mgh_launch(
            ctypes.addressof(launch), packed, first, last, ctypes.addressof(report)
        )
        if self.runtime.mgh_output_size():
            self._print()
        if status:
            kind = LaunchError if status == _TOO_MUCH_SHARED else KernelError
            raise kind(f"{self.name}: {report.message.decode(errors='replace')}")
        return 0

    def _print(self) -> None:
        """Hand on what the kernel printed."""
        full = ctypes.c_int()
        room = self.runtime.mgh_output_size()
        text = ctypes.create_string_buffer(room)
        size = self.runtime.mgh_take_output(text, ctypes.c_size_t(room), ctypes.byref(full))
        sys.stdout.write(text.raw[:size].decode(errors="replace"))
        if full.value:
            sys.stdout.write("\n(printf: the rest did not fit into the buffer)\n")

    def _configure(self, grid: Any, block: Any, shared_mem: int, order: str) -> tuple[_Launch, int]:
        """Check a launch's dimensions as the hardware would."""
        name = self.name
        blocks, sizes = launch_dimensions(name, grid, block)
        if not isinstance(shared_mem, int | np.integer) or not (
            0 <= shared_mem <= _LIMIT_DYNAMIC_SHARED
        ):
            raise LaunchError(
                f"{name}: shared_mem is {shared_mem!r}; a block has from 0 to"
                f" {_LIMIT_DYNAMIC_SHARED} bytes of dynamic shared memory"
            )
        if order not in ("forward", "reversed"):
            raise LaunchError(f"MINIGRAD_THREAD_ORDER is 'forward' or 'reversed', not {order!r}")
        launch = _Launch(
            self.run_threads,
            (ctypes.c_uint * 3)(*blocks),
            (ctypes.c_uint * 3)(*sizes),
            int(shared_mem),
            order == "reversed",
        )
        total = blocks[0] * blocks[1] * blocks[2]
        if isinstance(grid, tuple) and isinstance(block, tuple):
            if len(self.configurations) > 1000:
                self.configurations.clear()
            self.configurations[grid, block, shared_mem, order] = launch, total
        return launch, total


def _options(options: tuple[str, ...]) -> tuple[str, ...]:
    """NVRTC's options as the host's compiler has them."""
    taken = []
    for option in options:
        if option in ("--use_fast_math", "-use_fast_math"):
            taken += ["-ffast-math", "-fno-finite-math-only"]
        elif _PASSED_ON.fullmatch(option):
            taken.append(option)
        elif option.startswith(("--std=", "--define-macro=", "--include-path=")):
            short = {"--std": "-std=", "--define-macro": "-D", "--include-path": "-I"}
            key, _, value = option.partition("=")
            taken.append(short[key] + value)
        elif not _FOR_A_GPU.fullmatch(option):
            raise CompileError(f"option {option!r} is not one that kernels on the CPU know")
    return tuple(o for o in taken if o not in ("-std=c++11", "-std=c++14"))  # the shim wants 17


def _load(code: str, name: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """The library with the kernel `name`, compiled if it is not in the cache."""
    compiler.runtime()
    gnu = compiler.is_gnu(compiler.find_compiler())
    stem = re.sub(r"\W+", "_", name).strip("_")
    unit = (
        '#include "minigrad/prelude.h"\n'
        f'#line 1 "{stem}.cu"\n{source.rewrite(code, gnu)}\n'
        f'#line 1 "the launch of {stem}"\nMGH_KERNEL({name})\n'
    )
    flags = ("-fvisibility=hidden", *_options(options))
    try:
        path = compiler.library(unit, flags, ((f"{stem}.cu", code),))
    except CompileError as error:
        raise CompileError(f"{name} does not compile:\n{error}") from None
    return ctypes.CDLL(str(path))
