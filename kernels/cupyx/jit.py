"""`cupyx.jit`: kernels written in Python with CuPy's names, through the compiler of `kernels.simt`.

The indices and most functions are that compiler's own. What CuPy spells in another way
(`shared_memory`, `range`, `laneid`) is rewritten in the kernel's syntax tree.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from kernels.cupy._absent import unknown
from kernels.simt import cuda
from kernels.support.limits import launch_dimensions

threadIdx, blockIdx, blockDim, gridDim = cuda.threadIdx, cuda.blockIdx, cuda.blockDim, cuda.gridDim
warpsize, syncthreads, syncwarp = cuda.warpsize, cuda.syncthreads, cuda.syncwarp
grid, gridsize = cuda.grid, cuda.gridsize
atomic_add, atomic_sub, atomic_exch = cuda.atomic.add, cuda.atomic.sub, cuda.atomic.exch
atomic_min, atomic_max, atomic_cas = cuda.atomic.min, cuda.atomic.max, cuda.atomic.cas
atomic_inc, atomic_dec = cuda.atomic.inc, cuda.atomic.dec
atomic_and, atomic_or, atomic_xor = cuda.atomic.and_, cuda.atomic.or_, cuda.atomic.xor
shfl_sync, shfl_xor_sync = cuda.shfl_sync, cuda.shfl_xor_sync
shfl_up_sync, shfl_down_sync = cuda.shfl_up_sync, cuda.shfl_down_sync


def _in_kernels(name: str) -> Callable:
    def refused(*args: Any, **options: Any) -> Any:
        raise RuntimeError(f"cupyx.jit.{name} can only be called in a kernel")

    refused.__name__ = name
    return refused


shared_memory, range, laneid = map(_in_kernels, ("shared_memory", "range", "laneid"))
_numbers = itertools.count()


def rawkernel(*, mode: str = "cuda", device: bool = False) -> Callable[[FunctionType], Any]:
    """Decorate a kernel, or with `device=True` a function that kernels call.

    Launch as kernel[grid, block](*args) or kernel(grid, block, args, shared_mem=0).
    """
    if mode not in ("cuda", "numpy"):
        raise ValueError(f"mode must be either 'cuda' or 'numpy', not {mode!r}")
    return lambda function: JitKernel(function, device)


class JitKernel:
    """A kernel of `rawkernel`; `kernel` is the same for `kernels.simt`."""

    def __init__(self, function: FunctionType, device: bool) -> None:
        self._func, self.device = function, device
        functools.update_wrapper(self, function)

    @functools.cached_property
    def kernel(self) -> Any:
        return cuda.jit(_translated(self._func), device=self.device)

    def __repr__(self) -> str:
        return f"<cupyx.jit.rawkernel {self._func.__qualname__}>"

    def __call__(
        self, grid: Any, block: Any, args: tuple, shared_mem: int = 0, stream: Any = None
    ) -> None:
        if self.device:
            raise RuntimeError(f"{self._func.__name__} is a device function; call it in a kernel")
        launch_dimensions(self._func.__name__, grid, block)
        self.kernel[grid, block, 0, shared_mem](*args)

    def __getitem__(self, grid_and_block: tuple) -> Callable:
        grid, block = grid_and_block
        return lambda *args, shared_mem=0, stream=None: self(grid, block, args, shared_mem)


def _translated(function: FunctionType) -> FunctionType:
    """The function in the names that `kernels.simt` knows."""
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source)
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    (definition,) = tree.body
    definition.decorator_list = []
    text = ast.unparse(ast.fix_missing_locations(_Translator(known).visit(tree))) + "\n"
    name = f"<cupyx.jit {function.__qualname__} {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {k: v.kernel if _is_device(v, function) else v for k, v in known.items()}
    scope.update({_CUDA: cuda, _RANGE: builtins.range})
    exec(compile(text, name, "exec"), scope)
    made = scope[definition.name]
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


def _is_device(value: Any, caller: FunctionType) -> bool:
    """Whether a global of a kernel is a device function that it may call."""
    return isinstance(value, JitKernel) and value.device and value._func is not caller


_CUDA, _RANGE = "_minigrad_cuda", "_minigrad_range"


class _Translator(ast.NodeTransformer):
    """Rewrites calls of the functions that have another form in numba.cuda."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known

    def _value(self, node: ast.expr) -> Any:
        """What a name or an attribute stands for where the kernel is defined."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, None)
        return None

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        called = self._value(node.func)
        options = {word.arg: word.value for word in node.keywords}
        if called is shared_memory:
            dtype, size = (*node.args, *options.values())[:2]
            if isinstance(size, ast.Constant) and size.value is None:
                size = ast.Constant(0)  # as many as the launch asks for
            return ast.Call(ast.parse(f"{_CUDA}.shared.array", mode="eval").body, [size, dtype], [])
        if called is laneid:
            return ast.parse(f"{_CUDA}.laneid", mode="eval").body
        if called is range:
            return ast.Call(ast.Name(_RANGE), node.args, [])
        if called is syncwarp or called in (shfl_sync, shfl_up_sync, shfl_down_sync, shfl_xor_sync):
            node.args += [v for key, v in options.items() if key == "mask"]
            node.keywords = []
        return node


#: parts of the module that are C++ libraries in CuPy
_ABSENT = {
    "cg": "cooperative groups: use cupy.RawKernel with cooperative_groups.h, or numba.cuda.cg",
    "cub": "CUB's collectives: write the reduction with shared_memory or shfl_down_sync",
    "thrust": "Thrust's algorithms: use the array functions (cupy.sort, cupy.cumsum)",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"cupyx.jit.{name} is not on the CPU; {_ABSENT[name]}")
    raise unknown("cupyx.jit", name, globals())
