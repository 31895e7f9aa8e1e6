"""`cuda.jit`, kernels and their launches on the CPU. Numba is imported by the first launch."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from kernels.simt.api.inspection import Inspected
from kernels.simt.backend import gpu_launch
from kernels.simt.driver import arguments
from kernels.simt.ir.jitted import Jitted
from kernels.simt.ir.safety import Safety
from kernels.support import forks, launches, thread_pool
from kernels.support.errors import LaunchError, Unstructured
from kernels.support.interrupts import deferred
from kernels.support.limits import launch_dimensions

_LIMIT_SHARED = 48 * 1024  # bytes of dynamic shared memory


def jit(
    func_or_sig: Any = None,
    *,
    device: bool = False,
    debug: bool | None = None,
    fastmath: bool = False,
    **ignored: Any,
) -> Any:
    """Decorate a kernel, or with `device=True` a function that kernels call.

    `func_or_sig` may be an explicit signature ("void(float32[::1], int32)", a Numba signature, a
    tuple of types). An index outside of its array raises IndexError: the compiler proves that there
    is none where it can, and checks each access where it cannot. `debug=True` checks all that can
    be checked, `debug=False` nothing; so does MINIGRAD_CUDA_DEBUG (1 or 0) for kernels that leave
    it out. `extensions` are objects whose prepare_args(type, value, stream=, retr=) replaces an
    argument. `inline`, `opt`, `lineinfo`, `max_registers`, `link` and the like only matter to a
    GPU's compiler.
    """
    options = {"device": device, "debug": debug, "fastmath": fastmath, "gpu": ignored}
    if isinstance(func_or_sig, FunctionType):
        return Kernel(func_or_sig, None, **options)
    if isinstance(func_or_sig, Kernel):
        return func_or_sig
    if (
        callable(func_or_sig)
        and not hasattr(func_or_sig, "args")
        and not isinstance(func_or_sig, type)
    ):
        raise TypeError(f"cuda.jit decorates functions written in Python, not {func_or_sig!r}")
    return lambda func: Kernel(func, func_or_sig, **options)


_SHIPPED = ("kernels", "minigrad")  # packages whose kernels are tested in checked mode


class Kernel(Inspected, Jitted):
    """A `@cuda.jit` function. `kernel[grid, block, stream, shared_bytes](*args)` launches it."""

    def __init__(self, func: FunctionType, signature: Any, **options: Any) -> None:
        super().__init__(func, signature, **options)
        self._launchers: dict[Any, Launcher] = {}
        self._specialised: dict[Any, Any] = {}
        self._lock = forks.rlock()

    def __getattr__(self, name: str) -> Any:
        mine = self.__dict__.get("__name__")  # not there while the kernel is copied
        raise AttributeError(f"the kernel {mine} has no {name!r} on the CPU")

    @functools.cached_property
    def declared(self) -> list[tuple]:
        """(argument types, return type or None) of each explicit signature."""
        from kernels.simt.backend import inference

        listed = self.signature if isinstance(self.signature, list) else [self.signature]
        return [] if self.signature is None else [inference.declared_types(s) for s in listed]

    def __repr__(self) -> str:
        return f"<cuda.jit {'device function' if self.device else 'kernel'} {self.__qualname__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.device:
            return self.py_func(*args, **kwargs)
        raise LaunchError(
            f"{self.__name__}: a kernel needs a launch configuration:"
            f" {self.__name__}[grid, block](...)"
        )

    def __getitem__(self, config: Any) -> Launcher:
        try:
            return self._launchers[config]
        except (KeyError, TypeError):
            if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
                raise LaunchError(
                    f"{self.__name__}: launch as kernel[grid, block, stream, shared_bytes](...),"
                    f" not kernel[{config!r}]"
                ) from None
            launcher = self.configure(*config)
            try:
                if len(self._launchers) > 1000:
                    self._launchers.clear()
                self._launchers[config] = launcher
            except TypeError:  # a list as grid: not hashable
                pass
            return launcher

    def configure(self, grid: Any, block: Any, stream: Any = 0, shared_bytes: int = 0) -> Launcher:
        """A launcher for these dimensions. Raises LaunchError where the hardware would refuse."""
        name = self.__name__
        if self.device:
            raise LaunchError(f"{name} is a device function; call it from a kernel")
        grid, block = launch_dimensions(name, grid, block)
        if not 0 <= shared_bytes <= _LIMIT_SHARED:
            raise LaunchError(
                f"{name}: {shared_bytes} bytes of dynamic shared memory; at most {_LIMIT_SHARED}"
            )
        bounds = self.gpu_options.get("launch_bounds")
        most = bounds[0] if isinstance(bounds, tuple) else bounds
        if most and math.prod(block) > most:
            raise LaunchError(
                f"{name}: {math.prod(block)} threads per block, but launch_bounds allows {most}"
            )
        made = ExtendedLauncher if self.gpu_options.get("extensions") else Launcher
        return made(self, grid, block, stream, int(shared_bytes))

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable:
        """A launcher of one thread for each of `ntasks` tasks; the kernel checks its bounds."""
        if ntasks < 0:
            raise LaunchError(f"{self.__name__}: forall({ntasks}) needs a count of tasks")
        if ntasks == 0:
            return lambda *args: None
        block = tpb or 256
        return self[-(-ntasks // block), block, stream, sharedmem]

    def bind(self, grid: Any, block: Any, *args: Any, shared_bytes: int = 0) -> Callable:
        """A callable for hot paths: `bind(...)(*args)` launches with next to no overhead.

        Types come from the explicit signature or from the example `args`; later arguments must
        have the same types and layouts, which is not checked again.
        """
        launcher = self.configure(grid, block, 0, shared_bytes)
        return launcher.bind(args)

    def specialise(self, block: tuple[int, int, int], args: tuple) -> Any:
        """The compiled kernel for these (normalised) arguments and block dimensions."""
        return _driver().for_arguments(self, block, args)

    def specialize(self, *args: Any) -> Kernel:
        """numba-cuda's kernel for the types of `args` only; here each launch finds its own."""
        return self

    def interpreted(self, block: tuple[int, int, int], reason: Unstructured) -> Any:
        """The interpreted kernel, for one that cannot be compiled."""
        from kernels.simt.api.fallback import Interpreted

        return Interpreted(self, block, reason)

    @property
    def safety(self) -> Safety:
        """What keeps a launch inside of its arrays: see `jit`."""
        asked = os.environ.get("MINIGRAD_CUDA_DEBUG", "")
        debug = self.debug if self.debug is not None or not asked else asked != "0"
        if debug:
            return Safety.DEBUG
        if (self.py_func.__module__ or "").partition(".")[0] in _SHIPPED:
            return Safety.SHIPPED
        return Safety.PROVEN if debug is None else Safety.UNCHECKED

    def inspect_cpu(self, block: Any = None) -> str:
        """The Python generated for the CPU, one module per specialisation so far."""
        found = dict.fromkeys(s for s in self._specialised.values())
        texts = [s.text for s in found if _fits(s, block)]
        if not texts:
            raise LaunchError(f"{self.__name__}: launch the kernel first; nothing is compiled yet")
        return "\n\n".join(texts)

    def inspect_passes(self, block: Any = None) -> Any:
        """The kernel after each pass of the compiler: names of passes with texts, `print` it.

        Of the last specialisation so far, or the last one for `block`.
        """
        found = [s for s in dict.fromkeys(self._specialised.values()) if _fits(s, block)]
        if not found:
            raise LaunchError(f"{self.__name__}: launch the kernel first; nothing is compiled yet")
        return found[-1].passes()

    def ptx(self, signature: Any, cc: tuple[int, int] = (8, 0)) -> str:
        """The PTX that numba-cuda makes of this kernel, with no GPU needed."""
        from kernels.simt.api import to_numba_cuda

        return to_numba_cuda.ptx(self, signature, cc)

    def bind_on_gpu(self, grid: Any, block: Any, *args: Any) -> Callable:
        """As `bind`, for CuPy arrays; launches on CuPy's current stream."""
        return gpu_launch.bind(self, grid, block, args)

    def repeat_on_gpu(
        self, grid: Any, block: Any, args: tuple, source: Callable
    ) -> Callable[[tuple], None] | None:
        """A launch whose arguments come from other values each time (`gpu_launch.repeat`)."""
        return gpu_launch.repeat(self, grid, block, args, source)

    def on_gpu(self) -> Any:
        """This kernel as one of numba-cuda's own, for launches on a GPU."""
        from kernels.simt.api import to_numba_cuda

        return to_numba_cuda.dispatcher(self)


@functools.cache
def _driver() -> Any:
    """What compiles kernels. Its import brings Numba."""
    with deferred():
        from kernels.simt.driver import specialise

        return specialise


def _fits(specialisation: Any, block: Any) -> bool:
    """Whether a specialisation is for `block`, of which trailing ones may be left out."""
    sizes = tuple(block) if isinstance(block, Iterable) else (block,)
    return block is None or specialisation.block[: len(sizes)] == sizes


class Launcher:
    """A kernel with its launch configuration."""

    __slots__ = ("_cost", "_known", "block", "blocks", "grid", "kernel", "shared_bytes", "stream")

    def __init__(self, kernel: Kernel, grid, block, stream: Any, shared_bytes: int) -> None:
        self.kernel, self.grid, self.block = kernel, grid, block
        self.stream, self.shared_bytes = stream, shared_bytes
        self.blocks = grid[0] * grid[1] * grid[2]
        self._known: dict[Any, Any] = {}
        self._cost = 0  # nanoseconds that the last launch took, if it may be shared

    def __call__(self, *args: Any) -> None:
        if launches.watcher is not None and launches.watcher(
            self.kernel, self.grid, self.block, self.shared_bytes, args
        ):
            return
        key = tuple([arguments.token(arg) for arg in args])
        compiled = self._known.get(key)
        if compiled is None:
            if any(part is None for part in key):  # `in` would find None equal to float64's dtype
                return self._unusual(args)
            try:
                compiled = self.kernel.specialise(self.block, args)
            except Unstructured as reason:
                compiled = self.kernel.interpreted(self.block, reason)
            self._known[key] = compiled
        self.run(compiled, args)

    def _unusual(self, args: tuple) -> None:
        """Arguments that are not plain NumPy: device arrays, wrappers, arrays on a GPU."""
        if any(arguments.has_gpu_memory(arg) for arg in args):
            self.kernel.on_gpu()[self.grid, self.block, self.stream, self.shared_bytes](*args)
            return
        where = self.kernel.__name__
        Launcher.__call__(self, *(arguments.normalise(arg, where) for arg in args))

    def run(self, compiled: Any, args: tuple) -> None:
        """Run all blocks, on several OS threads where that is faster."""
        blocks = self.blocks  # a grid barrier, or the interpreter: all of them together
        if compiled.one_thread or blocks == 1 or thread_pool.get_num_threads() == 1:
            compiled.run(self.grid, 0, blocks, self.shared_bytes, args)
            return
        self._cost = compiled.run_shared(self.grid, self.shared_bytes, args, self._cost or 1)

    def bind(self, args: tuple) -> Callable:
        """See Kernel.bind."""
        if args:
            args = tuple(arguments.normalise(arg, self.kernel.__name__) for arg in args)
            try:
                compiled = self.kernel.specialise(self.block, args)
            except Unstructured as reason:
                compiled = self.kernel.interpreted(self.block, reason)
                return lambda *args: self.run(compiled, args)
        else:
            with deferred():
                compiled = _driver().for_signature(self.kernel, self.block)
        return compiled.bound(self)


class ExtendedLauncher(Launcher):
    """Of a kernel with `extensions`: they replace arguments, the last extension first."""

    __slots__ = ()

    def __call__(self, *args: Any) -> None:
        from numba import typeof

        after: list[Callable[[], Any]] = []
        values = []
        for arg in args:
            try:
                value, kind = arg, typeof(arg)
            except ValueError:  # a device array, cuda.Out(array)
                value = arguments.normalise(arg, self.kernel.__name__)
                kind = typeof(value)
            for extension in reversed(self.kernel.gpu_options["extensions"]):
                kind, value = extension.prepare_args(kind, value, stream=self.stream, retr=after)
            values.append(value)
        super().__call__(*values)
        for copy_back in after:
            copy_back()
