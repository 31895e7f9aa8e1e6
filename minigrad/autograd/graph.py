"""`autograd.graph`: nodes, hooks on the tensors that operations save for backward, and
`increment_version`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from minigrad._names import namespace
from minigrad.autograd import mode as modes
from minigrad.autograd.mode import mode
from minigrad.autograd.node import Node, edge, shown, split
from minigrad.tensor import Tensor
from minigrad.utils.hooks import Hooks, RemovableHandle

__all__ = [
    "GradientEdge",
    "Node",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor goes: the input `output_nr` of a node."""

    node: Any
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor goes; RuntimeError if it has none."""
    found = edge(tensor) if tensor.requires_grad else None
    if found is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not "
                           "require gradients")  # fmt: skip
    return GradientEdge(*shown(*split(found)))


def increment_version(tensor: Tensor | tuple[Tensor, ...]) -> None:
    """Tell autograd that the memory was changed without it (for example by a kernel on the array):
    a backward pass that needs the old values then raises instead of using the new ones."""
    for one in (tensor,) if isinstance(tensor, Tensor) else tensor:
        one._counter[0] += 1


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn(gradients)` in each backward pass that computes gradients of some of the tensors,
    once it has all that it will compute; the others are None.

    mode: "any" calls `fn(gradient)` with the first of them instead.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    found: WeakKeyDictionary[Any, list] = WeakKeyDictionary()  # per pass
    missing: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def arrives(i: int, grad: Tensor) -> None:
        now = modes.mode.running
        if now not in found:
            found[now] = [None] * len(tensors)
            missing[now] = sum(map(now.reaches, tensors)) if mode == "all" else 1
        found[now][i] = grad
        missing[now] -= 1
        if missing[now] == 0:
            fn(found[now] if mode == "all" else grad)

    chosen = [t for t in tensors if mode == "all" or t.requires_grad]
    handles = [t.register_hook(partial(arrives, i)) for i, t in enumerate(chosen)]
    return reduce(RemovableHandle.join, handles, RemovableHandle(Hooks()))


class saved_tensors_hooks:
    """A block whose operations keep `pack_hook(tensor)` in place of each tensor that they save for
    backward; `unpack_hook` of it gives the tensor back, when backward needs it.

    The innermost block counts. Neither hook may change the tensor in place.
    """

    def __init__(self, pack_hook: Callable, unpack_hook: Callable) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if mode.hooks_refused is not None:
            raise RuntimeError(mode.hooks_refused)
        mode.saved_hooks = (*mode.saved_hooks, (self.pack_hook, self.unpack_hook))

    def __exit__(self, *error: object) -> None:
        mode.saved_hooks = mode.saved_hooks[:-1]


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which `saved_tensors_hooks` raises RuntimeError with this message."""
    if mode.saved_hooks:
        raise RuntimeError(error_message)
    outer, mode.hooks_refused = mode.hooks_refused, error_message
    try:
        yield
    finally:
        mode.hooks_refused = outer


class save_on_cpu(saved_tensors_hooks):
    """A block whose operations keep what they save for backward in the memory of the CPU.

    pin_memory: in page-locked memory, from which copies to a GPU are faster.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            kept = tensor.detach().cpu()
            kept = kept.clone() if kept._array is tensor._array else kept
            return tensor.device, kept.pin_memory() if pin_memory and tensor.is_cuda else kept

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


__getattr__, __dir__ = namespace(__name__)
