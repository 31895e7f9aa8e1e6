"""`compile`, and the functions and modules that it returns."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from numpy import ndarray

from kernels import dispatch
from kernels.launchers.plans import place
from kernels.support import forks
from minigrad import dtypes
from minigrad.autograd.mode import mode, unusual
from minigrad.compiler import stance
from minigrad.compiler.capture import capture
from minigrad.compiler.entry import Entry, Instance
from minigrad.compiler.graph import Unsupported
from minigrad.compiler.places import WORD, address, bounds, sharing
from minigrad.layouts import NoDenseArray
from minigrad.nn import Module
from minigrad.tensor import Tensor
from minigrad.utils._pytree import CONTAINERS, tree_leaves
from minigrad.utils.hooks import every_call

_MAX_ENTRIES = 8  # recordings for one signature
_MAX_SIGNATURES = 128

_BACKENDS = ("minigrad", "inductor", "cudagraphs", "eager")
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_recording = forks.rlock()
_all: weakref.WeakSet[Compiled] = weakref.WeakSet()


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "minigrad",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """A function or module that records its calls and replays them; also a decorator.

    model: a function of tensors, such as a training step, or a module, which gives a module with
        the same parameters.
    fullgraph: raise `Unsupported` for a step that cannot be recorded, instead of running it
        eagerly. `report()` of the result says what was recorded, and why not.
    backend: "eager" never records; every other name means the one compiler that there is.
    dynamic, mode, options: accepted, without effect: each shape has a recording of its own.
    disable: return `model` itself.

    A step that prints, logs or uses a file is not recorded: it does so at each call.

    What a step leaves in `.grad` is memory that the next replay writes: `clone()` what you keep.
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
            options=options, disable=disable,
        )  # fmt: skip
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    if backend not in _BACKENDS:
        raise ValueError(f"compile: expected a backend among {_BACKENDS}, got {backend!r}")
    if mode not in _MODES:
        raise ValueError(f"compile: expected a mode among {_MODES}, got {mode!r}")
    if disable or backend == "eager":
        return model
    if isinstance(model, Module):
        return CompiledModule(model, fullgraph)
    return Compiled(model, fullgraph)


class Compiled:
    """A function whose calls are recorded and replayed."""

    def __init__(self, function: Callable, fullgraph: bool = False) -> None:
        self.__name__ = type(function).__name__
        functools.update_wrapper(self, function)
        self._function, self._fullgraph = function, fullgraph
        self._entries: dict[tuple, list[Entry]] = {}
        self._reasons: dict[tuple, str] = {}  # signatures that run eagerly
        self._unsettled: set[tuple] = set()  # those whose next call is eager, so that an optimiser
        # can take the parameters into its arena: it needs them for itself
        self.recorded = self.replayed = self.eager = 0
        self._lock = forks.rlock()  # a replay has one memory
        _all.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer = mode.recorder is not None  # it is part of an outer step
        if outer or every_call or (unusual and (mode.anomaly or mode.saved_hooks)):
            return self._function(*args, **kwargs)
        if stance.state.stance == "force_eager":
            return self._eagerly(args, kwargs)
        with self._lock:
            return self._call(args, kwargs)

    def _call(self, args: tuple, kwargs: dict) -> Any:
        try:
            key, arguments = _signature(args, kwargs)
        except NoDenseArray:
            return self._with_sparse(args, kwargs)
        if key in self._unsettled:
            self._unsettled.discard(key)
            gc.collect()  # of what a compiler has left that still refers to parameters
            return self._eagerly(args, kwargs)
        if key in self._reasons:
            return self._eagerly(args, kwargs)
        found = self._find(key)
        if found is None and stance.state.stance != "default" and self._waits():
            return self._eagerly(args, kwargs)
        if found is None:
            with _recording:  # it gives all tensors of the process other arrays meanwhile
                found = self._find(key)
                if found is None:
                    return self._record(key, args, kwargs)
        self.replayed += 1
        entry, instance = found
        return entry.replay(instance, arguments)

    def _with_sparse(self, args: tuple, kwargs: dict) -> Any:
        """A call with sparse tensors among the arguments."""
        reason = "an argument is a sparse tensor"
        if self._fullgraph:
            raise Unsupported(reason)
        self._reasons[(reason,)] = reason
        return self._eagerly(args, kwargs)

    def _waits(self) -> bool:
        """Whether a call without a recording runs eagerly in this stance; RuntimeError where it
        must not be."""
        now = stance.state.stance
        if now == "fail_on_recompile":
            raise RuntimeError(
                f"compile: {self.__name__} has no recording for this call, and the stance is "
                "'fail_on_recompile'. Fix: call it so in the stance 'default' before"
            )
        return now == "eager_on_recompile" or not (self.eager or self.recorded)

    def _find(self, key: tuple) -> tuple[Entry, Instance] | None:
        """A recording that is valid and has memory that is free."""
        for entry in self._entries.get(key, ()):
            if entry.valid():
                instance = entry.instance()
                return None if instance is None else (entry, instance)
        return None

    def __get__(self, instance: Any, owner: type) -> Any:
        """As a decorator of a method: one compiled function for each object."""
        if instance is None:
            return self
        own = Compiled(self._function.__get__(instance, owner), self._fullgraph)
        instance.__dict__[self._function.__name__] = own
        return own

    def _eagerly(self, args: tuple, kwargs: dict) -> Any:
        self.eager += 1
        return self._function(*args, **kwargs)

    def _record(self, key: tuple, args: tuple, kwargs: dict) -> Any:
        entries = self._entries.setdefault(key, [])
        if len(entries) >= _MAX_ENTRIES or len(self._entries) > _MAX_SIGNATURES:
            count = len(entries) if len(entries) >= _MAX_ENTRIES else len(self._entries)
            text = f"{count} recordings, and what they depend on has changed again"
            warnings.warn(f"compile: {self.__name__} runs eagerly: {text}", stacklevel=3)
            self._reasons[key] = text
            return self._eagerly(args, kwargs)
        watched = (self._function, args, kwargs)
        result, entry, reason = capture(self._function, args, kwargs, self._fullgraph, watched)
        self.recorded += 1
        if entry is not None:
            entries.append(entry)
        elif reason is not None:
            self._reasons[key] = reason
        else:
            self._unsettled.add(key)
        return result

    def kernels(self) -> list[Any]:
        """The kernels that fusion has generated, for all recordings so far."""
        return list(dict.fromkeys(k for entry in self._all_entries() for k in entry.kernels()))

    def report(self) -> str:
        """What was recorded, and what runs eagerly and why."""
        counts = f"{self.recorded} recorded, {self.replayed} replayed, {self.eager} eager"
        lines = [f"{self.__name__}: {counts}"]
        lines += [f"  recorded: {entry.summary()}" for entry in self._all_entries()]
        lines += [f"  eager: {reason}" for reason in self._reasons.values()]
        return "\n".join(lines)

    def _all_entries(self) -> list[Entry]:
        return [entry for entries in self._entries.values() for entry in entries]

    def reset(self) -> None:
        """Forget all recordings."""
        self._entries.clear()
        self._reasons.clear()

    def __deepcopy__(self, memo: dict) -> Any:
        from copy import deepcopy

        return Compiled(deepcopy(self._function, memo), self._fullgraph)

    def __reduce__(self) -> tuple:
        return Compiled, (self._function, self._fullgraph)

    def __repr__(self) -> str:
        return f"<compiled {self._function!r}>"


class CompiledModule(Module):
    """A module whose forward and backward passes are recorded; it holds the original one."""

    def __init__(self, module: Module, fullgraph: bool = False) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["forward"] = Compiled(module.__call__, fullgraph)
        self.train(module.training)

    @property
    def _compiled(self) -> Compiled:
        return self.__dict__["forward"]

    def kernels(self) -> list[Any]:
        """The kernels that fusion has generated."""
        return self._compiled.kernels()

    def report(self) -> str:
        """What was recorded, and what runs eagerly and why."""
        return self._compiled.report()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)


def disable(function: Callable | None = None, recursive: bool = True) -> Any:
    """A function that a compiled one may call, and that is never recorded: the step is eager."""
    if function is None:
        return disable

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if mode.recorder is not None:
            mode.recorder.stop(f"{getattr(function, '__name__', function)}, which is disabled")
        return function(*args, **kwargs)

    return wrapper


def allow_in_graph(fn: Any) -> Any:
    """`fn` as it is: every function may be recorded, because its operations are."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """`fn` as it is: what it returns without tensors is constant in a recording anyway."""
    return fn


def is_compiling() -> bool:
    """Whether this runs while a step is being recorded."""
    return mode.recorder is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: networks are exported by `onnx.export`, which runs them as they are."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing: results of a replayed CUDA graph are memory of their own."""


def reset() -> None:
    """Forget the recordings of all compiled functions."""
    for compiled in list(_all):
        compiled.reset()


_PLAIN = (int, float, bool, str, type(None), complex, dtypes.dtype)


def _signature(args: tuple, kwargs: dict) -> tuple[tuple, list[Tensor]]:
    """What a recording is chosen by, and the tensors among the arguments, each once."""
    arguments: list[Tensor] = []
    numbers: dict[int, int] = {}
    parts: list[Any] = [
        mode.enabled,
        mode.inference,
        tuple(mode.autocast.dtypes.items()) if unusual and mode.autocast is not None else None,
        dispatch.backend(),
        dtypes.default_numpy(),
    ]
    leaves: Sequence[Any] = args
    if kwargs or any(isinstance(arg, CONTAINERS) for arg in args):
        leaves = tree_leaves((args, kwargs))
        parts.append(_form((args, kwargs)))
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            number = numbers.setdefault(id(leaf), len(numbers))
            if number == len(arguments):
                arguments.append(leaf)
            array = leaf._array
            parts += (
                number, type(array) is ndarray or place(array), array.shape, array.dtype,
                leaf.requires_grad, leaf._node is None and leaf._view is None, leaf._grad is None,
                0 in array.strides, bool(leaf._hooks or leaf._accumulate_hooks),
            )  # fmt: skip
        elif type(leaf) in _PLAIN:
            parts += (type(leaf), leaf if leaf == leaf and leaf else repr(leaf))  # NaN, 0.0, -0.0
        else:
            parts.append(id(leaf))
    if len(arguments) > 1:
        for group in sharing([(number, t._array) for number, t in enumerate(arguments)]):
            first = min(bounds(array)[0] for _, array in group)
            shared = [(n, address(a) - first, a.strides) for n, a in group]
            parts.append((first % WORD, *shared))
    return tuple(parts), arguments


def _form(tree: Any) -> Any:
    """The structure of arguments, without their leaves."""
    if isinstance(tree, dict):
        return ("dict", *[(key, _form(value)) for key, value in tree.items()])
    if isinstance(tree, CONTAINERS):
        return (type(tree).__name__, *[_form(value) for value in tree])
    return None
