"""What programs ask of `torch.overrides`. Functions call no `__torch_function__` here, so that no
argument takes one over, and a mode that would see all calls is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from minigrad._names import namespace
from minigrad.tensor import Tensor

__all__ = [
    "TorchFunctionMode",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
]

_ABSENT = "functions of minigrad call no __torch_function__"


def has_torch_function(relevant_args: Iterable) -> bool:
    """False: no argument takes over a function."""
    return False


def has_torch_function_unary(obj: Any) -> bool:
    """False, see `has_torch_function`."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """False, see `has_torch_function`."""
    return False


def handle_torch_function(
    public_api: Callable, relevant_args: Iterable, *args: Any, **kwargs: Any
) -> NoReturn:
    """NotImplementedError: there is no argument to hand a call to."""
    raise NotImplementedError(f"handle_torch_function: {_ABSENT}")


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor, or has what torch takes for one."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


class TorchFunctionMode:
    """A block that sees the calls of functions: NotImplementedError where one begins."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__}: {_ABSENT}")

    def __exit__(self, *error: object) -> None:
        pass


__getattr__, __dir__ = namespace(__name__)
