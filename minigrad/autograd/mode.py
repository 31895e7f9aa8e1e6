"""Grad mode: whether operations are recorded. One flag per thread, as in torch."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable)


# The `_Unusual` attributes that are not as usual, by thread: while there are none, each operation
# saves looking at four attributes of its thread
unusual: set[tuple[int, str]] = set()


class _Unusual:
    """An attribute of the mode that few programs set."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, mode: _Mode, owner: type) -> Any:
        return vars(mode).get(self.name, self.default)

    def __set__(self, mode: _Mode, value: Any) -> None:
        vars(mode)[self.name] = value
        change = unusual.discard if value is self.default else unusual.add
        change((threading.get_ident(), self.name))


class _Mode(threading.local):
    enabled = True
    inference = False
    anomaly: Any = _Unusual(False)  # whether nodes remember where they were made
    check_nan = True  # and whether backward passes then search for NaN
    # of `autograd.graph.saved_tensors_hooks`, the innermost last
    saved_hooks: Any = _Unusual(())
    hooks_refused: str | None = None  # why there must be none
    autocast: Any = _Unusual(None)  # what the blocks of `amp.autocast` in force cast, or None
    running: Any = None  # the backward pass, an `engine.Pass`
    recorder: Any = None  # of a step that `compile` records
    # (operation, inputs, attributes, outputs) of each call are reported to it: `onnx.export`
    observer: Any = _Unusual(None)
    plain = False  # whether objects of subclasses of Tensor are taken as tensors, unasked
    # the ways that attention may take: `sdpa_kernel`; all but "math" are the one fused kernel
    attention = frozenset({"math", "flash", "mem_efficient", "cudnn"})


mode = _Mode()

inferring: list[bool] = []  # one entry for each block of `inference_mode` that a thread is in
inferred: list[bool] = []  # not empty once there may be inference tensors
sparse_gradients: list[bool] = []  # not empty once a leaf has had one
batching: list[Any] = []  # the levels of `vmap` in force, of all threads
# Once there has been one: what becomes of a gradient on its way to a tensor of a shape
crossing: list[Callable] = []
# and what becomes of the factors of a product that is such a gradient
joining: list[Callable] = []

INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
    "inference mode in computation tracked by autograd. To work around this, you can make a clone "
    "to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
    "`torch.inference_mode()`."
)
_WRITTEN = (
    "You can make a clone to get a normal tensor before doing inplace update.See "
    "https://github.com/pytorch/rfcs/pull/17 for more details."
)


class Unversioned(list):
    """The version counter of inference tensors: always -1, and only inference mode may write."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__((-1,))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.check_write("Inplace update to inference tensor", _WRITTEN)

    def check_write(self, what: str, advice: str = "") -> None:
        """RuntimeError outside of inference mode."""
        if not mode.inference:
            raise RuntimeError(f"{what} outside InferenceMode is not allowed.{advice}")


def new_counter() -> list[int]:
    """The version counter of a new tensor."""
    return Unversioned() if mode.inference else [0]


def autocasts(function: F) -> F:
    """Decorator of a function of several operations that `autocast` treats as one, by its name:
    its arguments are cast, and what it calls runs in their dtypes."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not unusual or mode.autocast is None:
            return function(*args, **kwargs) if kwargs else function(*args)
        return mode.autocast.call(function, args, kwargs)

    return cast(F, wrapper)


class _ModeSwitch:
    """A context manager that also decorates functions and generator functions."""

    target = True

    def __init__(self) -> None:
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(mode.enabled)
        mode.enabled = self.target and not mode.inference

    def __exit__(self, *exc: Any) -> None:
        mode.enabled = self._previous.pop()

    def clone(self) -> _ModeSwitch:
        return type(self)()

    def __call__(self, function: Callable) -> Callable:
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapper

    def _wrap_generator(self, function: Callable) -> Callable:
        """Each resumption runs in this mode; in between, the mode of the caller is restored."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            sent = None
            while True:
                try:
                    with self.clone():
                        item = generator.send(sent)
                except StopIteration as stop:
                    return stop.value
                sent = yield item

        return wrapper


class no_grad(_ModeSwitch):
    """Operations inside are not recorded: `with no_grad(): ...` or `@no_grad()`."""

    target = False

    def __new__(cls, function: Callable | None = None) -> Any:
        """Supports `@no_grad` without parentheses."""
        switch = super().__new__(cls)
        if function is None:
            return switch
        switch.__init__()
        return switch(function)


class enable_grad(no_grad):
    """Operations inside are recorded, even within `no_grad`."""

    target = True


class inference_mode(_ModeSwitch):
    """Like `no_grad`, for evaluation: what is made inside is an inference tensor, which autograd
    refuses to save and which only such a block may change in place. `enable_grad` inside has no
    effect."""

    def __new__(cls, mode: bool | Callable = True) -> Any:
        switch = super().__new__(cls)
        if not callable(mode):
            return switch
        switch.__init__()
        return switch(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.active = mode
        self.target = not mode

    def clone(self) -> inference_mode:
        return inference_mode(self.active)

    def __enter__(self) -> None:
        self._previous.append(mode.inference)
        mode.inference = self.active
        super().__enter__()
        if self.active:
            inferring.append(True)
            inferred[:] = (True,)

    def __exit__(self, *exc: Any) -> None:
        if self.active:
            inferring.pop()
        super().__exit__(*exc)
        mode.inference = self._previous.pop()


class set_grad_enabled(_ModeSwitch):
    """Switch recording on or off immediately, and back at the end of a `with` block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.target = bool(mode)
        self._outside = _set(self.target)

    def __enter__(self) -> None:
        self._previous.append(self._outside)
        mode.enabled = self.target

    def clone(self) -> set_grad_enabled:
        return set_grad_enabled(self.target)

    def __call__(self, function: Callable) -> Callable:
        mode.enabled = self._outside  # used as a decorator: switch only during calls
        return super().__call__(function)


def _set(enabled: bool) -> bool:
    previous, mode.enabled = mode.enabled, enabled and not mode.inference
    return previous


def is_grad_enabled() -> bool:
    """Whether operations are being recorded in this thread."""
    return mode.enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside `inference_mode`."""
    return mode.inference
