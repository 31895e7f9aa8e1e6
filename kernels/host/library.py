"""CUDA C compiled for the CPU: a shared library of kernels and variables, and their launches."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.support import thread_pool
from kernels.support.errors import CompileError, KernelError, LaunchError
from kernels.support.limits import Dimensions, launch_dimensions

from . import checked, compiler, source
from .arguments import Packer, Parameter
from .unit import Unit

_LIMIT_DYNAMIC_SHARED = 227 * 1024  # what an H100 lets a block have
_LIMIT_COOPERATIVE = 16384  # threads: each has two of the 65530 mappings that Linux lets us have
_PARALLEL_SECONDS = 2e-4  # launches that are expected to be shorter stay on the calling thread
_TOO_MUCH_SHARED, _ILLEGAL_ACCESS, _INTERRUPTED = 2, 3, 5  # Status in runtime/report.h
# Not -ffast-math: with it g++ links what flushes subnormals to zero in all of the process.
_FAST_MATH = ["-fassociative-math", "-freciprocal-math", "-fno-signed-zeros"]
_PASSED_ON = re.compile(r"-(?:D|I|U|std=|include).*")
_FOR_A_GPU = re.compile(
    r"(?:-arch|--gpu-architecture|-lineinfo|--generate-line-info|-maxrregcount|--maxrregcount"
    r"|-G|--device-debug|-default-device|--ptxas-options|-Xptxas|-restrict|--restrict|--fmad"
    r"|-fmad|-ftz|--ftz|-prec-|--prec-|--extra-device-vectorization|-dlto|-rdc|-w).*"
)

# os.environ's own dictionary: os.environ.get takes 1 us, as long as the launch of a small kernel.
settings: dict[bytes, bytes] = os.environ._data


class Launch(ctypes.Structure):
    """Mirrors Launch in runtime/runtime.cpp."""

    _fields_ = (
        ("run_threads", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("reversed", ctypes.c_uint),
        ("cooperative", ctypes.c_uint),
        ("checked", ctypes.c_uint),
        ("recorder", ctypes.c_void_p),
    )


class Report(ctypes.Structure):
    """Mirrors Report in runtime/report.h."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("message", ctypes.c_char * 2000),
        ("length", ctypes.c_size_t),
        ("address", ctypes.c_size_t),
        ("begin", ctypes.c_size_t),
        ("end", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("writes", ctypes.c_int),
        ("slot", ctypes.c_int),
        ("line", ctypes.c_int),
        ("frames", ctypes.c_int),
        ("base", ctypes.c_size_t),
        ("frame", ctypes.c_size_t * 16),
        ("named", ctypes.c_int),
        ("where", ctypes.c_int * 2),
        ("who", ctypes.c_longlong * 2),
    )


class _Global(ctypes.Structure):
    """Mirrors mgh::Global in include/minigrad/entry.h."""

    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Library:
    """The kernels `names` and all `variables` of a source, compiled or from the cache."""

    def __init__(
        self,
        code: str,
        names: tuple[str, ...],
        variables: tuple[str, ...],
        options: tuple[str, ...],
        mode: str = compiler.PLAIN,
    ) -> None:
        self.names, self.variables, self.mode = names, variables, mode
        self.code, self.options = code, options
        self.parameters = [parameters(code, name) for name in names]
        stem = re.sub(r"\W+", "_", names[0] if len(names) == 1 else "module").strip("_")
        self.file = f"{stem}.cu"  # the source's name in messages
        self.trivial = False  # structures are, under the recorder: see MGH_COPIED
        try:
            self.loaded = _load(code, names, variables, options, mode, stem)
        except CompileError as error:
            if mode != compiler.RECORDED:
                raise
            try:
                options = (*options, "-DMGH_TRIVIAL")
                self.loaded = _load(code, names, variables, options, mode, stem)
            except CompileError:
                raise error from None
            self.trivial = True
        self.kernels: dict[str, Compiled] = {}
        self.passed = {name: self.variable(name).tobytes() for name in variables}

    def kernel(self, name: str) -> Compiled:
        if name not in self.kernels:
            number = self.names.index(name)
            if not hasattr(self.loaded, f"mgh_count_{number}"):  # the compiler refuses it: why?
                Library(self.code, (name,), self.variables, self.options, self.mode)
                raise CompileError(f"{name} does not compile together with its module's others")
            self.kernels[name] = Compiled(self, number, name, self.parameters[number])
        return self.kernels[name]

    def variable(self, name: str) -> np.ndarray:
        """The bytes of a variable, to read and to write."""
        number = self.variables.index(name)
        found = _Global.in_dll(self.loaded, f"mgh_global_{number}")
        return np.ctypeslib.as_array((ctypes.c_uint8 * found.bytes).from_address(found.address))

    def pass_variables(self, other: Library) -> None:
        """Give the same module, compiled in another way, what its variables have become here."""
        for name in self.variables:
            now = self.variable(name).tobytes()
            if now != self.passed[name]:
                other.variable(name)[:] = np.frombuffer(now, np.uint8)
                self.passed[name] = other.passed[name] = now

    def has_changed(self) -> bool:
        """Whether a variable is not what the other library was given."""
        return any(self.variable(n).tobytes() != before for n, before in self.passed.items())


class Compiled:
    """A kernel in a shared library, and its launches."""

    def __init__(self, library: Library, number: int, name: str, texts: list[str]) -> None:
        self.name, self.library = name, library
        loaded = library.loaded
        count = ctypes.c_int.in_dll(loaded, f"mgh_count_{number}").value
        parameters = ctypes.POINTER(Parameter).in_dll(loaded, f"mgh_parameters_{number}")
        described = parameters[:count]
        names = [source.parameter_name(text, index) for index, text in enumerate(texts)]
        if len(names) != count:  # a macro in the parameter list
            names = [f"parameter {index + 1}" for index in range(count)]
        self.pack = Packer(name, described, names)
        function = getattr(loaded, f"mgh_run_threads_{number}")
        self.run_threads = ctypes.cast(function, ctypes.c_void_p).value
        self.runtime = compiler.runtime()
        self.seconds_a_block = 0.0
        bound = f"mgh_bound_{number}"
        #: threads of a block, by __launch_bounds__
        self.most = ctypes.c_uint.in_dll(loaded, bound).value if hasattr(loaded, bound) else 1024

    def configure(
        self, grid: Any, block: Any, shared_mem: int = 0, cooperative: bool = False
    ) -> Callable[[Sequence], None]:
        """A function of the arguments that launches the kernel over these dimensions.

        Raises LaunchError where the hardware would refuse them.
        """
        blocks, sizes = self.dimensions(grid, block)
        total = blocks[0] * blocks[1] * blocks[2]
        self._check(shared_mem, cooperative, total * sizes[0] * sizes[1] * sizes[2])
        orders = {}
        for order in (b"forward", b"reversed"):
            orders[order] = Launch(
                self.run_threads,
                (ctypes.c_uint * 3)(*blocks),
                (ctypes.c_uint * 3)(*sizes),
                int(shared_mem),
                order == b"reversed",
                cooperative,
                self.library.mode != compiler.PLAIN,
            )
        one_thread = total == 1 or cooperative

        def launch(args: Sequence) -> None:
            order = settings.get(b"MINIGRAD_THREAD_ORDER", b"forward")
            if order not in orders:
                raise LaunchError(
                    f"MINIGRAD_THREAD_ORDER is 'forward' or 'reversed', not {order.decode()!r}"
                )
            if self.library.mode == compiler.CHECKED:
                with checked.placed(self.pack, args) as (packed, slots):
                    self._launch(orders[order], packed, total, one_thread, slots)
            else:
                self._launch(orders[order], self.pack(args), total, one_thread)

        return launch

    def dimensions(self, grid: Any, block: Any) -> tuple[Dimensions, Dimensions]:
        """Grid and block as three numbers each. Raises LaunchError where there is too much."""
        blocks, sizes = launch_dimensions(self.name, grid, block)
        threads = sizes[0] * sizes[1] * sizes[2]
        if threads > self.most:
            raise LaunchError(
                f"{self.name}: {threads} threads per block, but its __launch_bounds__ allows"
                f" {self.most}"
            )
        return blocks, sizes

    def _launch(
        self,
        launch: Launch,
        packed: bytes,
        blocks: int,
        one_thread: bool,
        slots: list[checked.Slot] | None = None,
    ) -> None:
        """Run all blocks, on several OS threads where that pays."""
        threads = 1 if one_thread else thread_pool.get_num_threads()
        if threads > 1 and self.seconds_a_block * blocks < _PARALLEL_SECONDS:
            threads = 1
        start = time.perf_counter()
        stop = ctypes.c_int()
        if threads == 1:
            self._run(launch, packed, 0, blocks, stop, slots)
        else:
            run = lambda a, b: self._run(launch, packed, a, b, stop, slots)  # noqa: E731
            thread_pool.run(
                run, blocks, threads, lambda: self.runtime.mgh_stop(ctypes.addressof(stop))
            )
        self.seconds_a_block = (time.perf_counter() - start) * threads / blocks

    def _run(
        self,
        launch: Launch,
        packed: bytes,
        first: int,
        last: int,
        stop: ctypes.c_int,
        slots: list[checked.Slot] | None,
    ) -> int:
        """Blocks `first` to `last` on this OS thread; 0. Raises what went wrong."""
        report = run_blocks(launch, packed, first, last, stop)
        status = report.status
        self.print_output()
        if status in (_ILLEGAL_ACCESS, checked.OUT_OF_BOUNDS) and slots is not None:
            path, code = self.library.loaded._name, self.library.code
            raise checked.explain(self.name, report, slots, path, code)
        if status:
            kind = LaunchError if status == _TOO_MUCH_SHARED else KernelError
            hint = "; MINIGRAD_CUDA_DEBUG=1 shows where" if status == _ILLEGAL_ACCESS else ""
            raise kind(f"{self.name}: {report.message.decode(errors='replace')}{hint}")
        return 0

    def print_output(self) -> None:
        """Write what the kernel printed to standard output."""
        room = self.runtime.mgh_output_size()
        if not room:
            return
        full = ctypes.c_int()
        text = ctypes.create_string_buffer(room)
        size = self.runtime.mgh_take_output(text, ctypes.c_size_t(room), ctypes.byref(full))
        sys.stdout.write(text.raw[:size].decode(errors="replace"))
        if full.value:
            sys.stdout.write("\n(printf: the rest did not fit into the buffer)\n")

    def _check(self, shared_mem: int, cooperative: bool, threads: int) -> None:
        """Raise LaunchError where a launch asks for more than there is."""
        name = self.name
        if not isinstance(shared_mem, int | np.integer) or not (
            0 <= shared_mem <= _LIMIT_DYNAMIC_SHARED
        ):
            raise LaunchError(
                f"{name}: shared_mem is {shared_mem!r}; a block has from 0 to"
                f" {_LIMIT_DYNAMIC_SHARED} bytes of dynamic shared memory"
            )
        if cooperative and threads > _LIMIT_COOPERATIVE:
            raise LaunchError(
                f"{name}: a cooperative launch of {threads} threads; on the CPU at most"
                f" {_LIMIT_COOPERATIVE} run at once"
            )


def run_blocks(
    launch: Launch, packed: bytes, first: int, last: int, stop: ctypes.c_int | None = None
) -> Report:
    """Run blocks of a launch on this OS thread; the report. Raises KeyboardInterrupt where
    Ctrl-C ended it, or `stop` became 2 (runtime/interrupt.h)."""
    report = Report()
    if stop is None:  # not `stop or`: a ctypes number that is 0 is false
        stop = ctypes.c_int()
    compiler.runtime().mgh_launch(
        ctypes.addressof(launch),
        packed,
        first,
        last,
        ctypes.addressof(report),
        ctypes.addressof(stop),
    )
    if report.status == _INTERRUPTED:
        raise KeyboardInterrupt
    return report


def parameters(code: str, name: str) -> list[str]:
    """The parameters of a kernel as written. Raises CompileError where there is no such kernel."""
    found = source.kernels(code)
    plain = re.sub(r"<.*", "", name).rpartition("::")[2].strip()
    if plain not in found and re.search(r"#\s*define\b[^\n]*(\\\n[^\n]*)*__global__", code):
        return []  # a macro writes kernels: the compiler will know
    if plain not in found:
        listed = f"it defines {', '.join(found)}" if found else "it defines no __global__ function"
        raise CompileError(f"the source has no kernel {plain!r}; {listed}")
    return found[plain]


def _options(options: tuple[str, ...]) -> tuple[str, ...]:
    """NVRTC's options as the host's compiler has them."""
    taken = []
    for option in options:
        if option in ("--use_fast_math", "-use_fast_math"):
            taken += _FAST_MATH
        elif _PASSED_ON.fullmatch(option):
            taken.append(option)
        elif option.startswith(("--std=", "--define-macro=", "--include-path=")):
            short = {"--std": "-std=", "--define-macro": "-D", "--include-path": "-I"}
            key, _, value = option.partition("=")
            taken.append(short[key] + value)
        elif not _FOR_A_GPU.fullmatch(option):
            raise CompileError(f"option {option!r} is not one that kernels on the CPU know")
    return tuple(o for o in taken if o not in ("-std=c++11", "-std=c++14"))  # the shim wants 17


def _load(
    code: str,
    names: tuple[str, ...],
    variables: tuple[str, ...],
    options: tuple[str, ...],
    mode: str,
    stem: str,
) -> ctypes.CDLL:
    """The library with the kernels `names`, compiled if it is not in the cache."""
    compiler.runtime()
    gnu = compiler.is_gnu(compiler.find_compiler())
    unit = Unit(code, names, variables, stem, gnu)
    # What the kernels do not call is not compiled: it may hold what there is not on a CPU.
    flags = ("-fvisibility=hidden", *(("-fwhole-program",) if gnu else ()), *_options(options))
    files = ((f"{stem}.cu", code),)
    try:
        path = compiler.library(unit.text(), flags, files, mode, smaller=unit.smaller)
    except CompileError as error:
        raise CompileError(unit.explain(str(error))) from None
    return ctypes.CDLL(str(path))
