"""Memory and metadata of tensors: `as_strided`, `resize_`, and shape methods that work in place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad._view import BY_STORAGE
from minigrad.autograd.mode import mode
from minigrad.autograd.node import attach
from minigrad.backends import array_module
from minigrad.backends.memory import base_of, root_of
from minigrad.ops import shape as shapes
from minigrad.ops.inplace import check_writable, layout
from minigrad.ops.views import ViewOp
from minigrad.tensor import FUNCTIONS, Tensor, export, wrap

MAPPED: list[UntypedStorage] = []
"""The memory of arguments that `vmap` gives to its function element by element."""


def storage_of(array: Any) -> Any:
    """The memory behind an array as a vector of its elements."""
    root = array
    while (base := base_of(root)) is not None and base.dtype == root.dtype:
        root = base
    if not root.flags.c_contiguous:
        root = root.T if root.flags.f_contiguous else array_module(root).ascontiguousarray(root)
    owner, start, stop = root_of(array)
    return root.reshape(-1)[start:stop] if owner is root else root.reshape(-1)


def _offset(array: Any) -> int:
    """The position of an array's first element in its storage."""
    return wrap(array).storage_offset()


def _positions(shape: tuple, stride: Any, offset: int) -> np.ndarray:
    """Where each element of a strided view lies in its storage."""
    at = np.full(shape, offset, np.int64)
    for d, (n, step) in enumerate(zip(shape, stride, strict=True)):
        at += (np.arange(n) * step).reshape((-1,) + (1,) * (len(shape) - 1 - d))
    return at


class AsStrided(ViewOp):
    """A view of a tensor's storage of any shape, strides and offset, in elements."""

    of_storage = True

    @staticmethod
    def forward(x: Any, shape: tuple, stride: tuple, offset: int, own: Any = None) -> Any:
        storage = storage_of(x)
        steps = tuple(s * x.itemsize for s in stride)
        strided = array_module(x).lib.stride_tricks.as_strided
        return strided(storage[offset:], shape, steps)

    @classmethod
    def record(cls, inputs: tuple, attrs: dict, edges: tuple, outputs: tuple) -> None:
        """With the layout of the input, which says where its gradient is."""
        super().record(inputs, {**attrs, "own": layout(inputs[0]._array)}, edges, outputs)

    @staticmethod
    def vjp(
        ctx: Any, g: Tensor, shape: tuple, stride: tuple, offset: int, own: tuple
    ) -> tuple[Tensor]:
        at = _elements(own, shape, stride, offset).reshape(-1)
        xp, flat = array_module(g._array), g.reshape(-1)
        if (at < 0).any():  # elements of the storage that are none of the input
            flat, at = flat[wrap(xp.asarray(at >= 0))], at[at >= 0]
        zeros = FUNCTIONS["zeros"](math.prod(own[0]), dtype=g.dtype, device=g.device)
        return (zeros.index_add(0, wrap(xp.asarray(at)), flat).reshape(own[0]),)


def _by_storage(view: Tensor) -> tuple:
    shape, stride, offset, _ = layout(view._array)
    return AsStrided, {"shape": shape, "stride": stride, "offset": offset}


BY_STORAGE.append(_by_storage)


def _elements(own: tuple, shape: tuple, stride: Any, offset: int) -> np.ndarray:
    """Which element of an array of the layout `own`, counted by rows, each one of a strided view of
    its storage is; -1 for what is none. Of elements that share memory, the first."""
    places = _positions(*own[:3]).reshape(-1)
    source = np.full(own[3], -1, np.int64)
    source[places[::-1]] = np.arange(places.size)[::-1]
    return source[_positions(shape, stride, offset)]


def elements_at(array: Any, shape: tuple, stride: Any, offset: int) -> np.ndarray:
    """`_elements` of an array."""
    return _elements(layout(array), shape, stride, offset)


@export()
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view of input's memory with any shape, strides and offset, in elements."""
    shape, steps = tuple(int(n) for n in size), tuple(int(s) for s in stride)
    if len(shape) != len(steps):
        raise RuntimeError("mismatch in length of strides and shape")
    if min(steps, default=0) < 0:
        raise RuntimeError("as_strided: Negative strides are not supported at the moment")
    if min(shape, default=0) < 0:
        raise RuntimeError(f"as_strided: expected sizes of at least 0, got {list(shape)}")
    offset = _offset(input._array) if storage_offset is None else int(storage_offset)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if storage_offset is not None and UntypedStorage(input._array) in MAPPED:
        raise RuntimeError(
            "vmap: as_strided with a storage_offset of an argument, whose elements lie in one "
            "memory; leave it out, and take a slice that begins there: x[1:].as_strided(...)"
        )
    last = offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if 0 not in shape and last >= storage_of(input._array).size:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(steps)}, storage offset {offset}, "
            f"requiring a storage size of {last + 1} elements, are out of bounds for storage of "
            f"size {storage_of(input._array).size}"
        )
    return AsStrided.apply(input, shape=shape, stride=steps, offset=offset)


@export(function=False)
def as_strided_(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """`as_strided` of this tensor itself."""
    return _become(self, lambda x: as_strided(x, size, stride, storage_offset))


def _become(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Make a tensor the view of itself that a shape function gives."""
    check_writable(tensor)
    if not (mode.enabled and tensor.requires_grad):
        tensor._array = change(tensor.detach())._array
        tensor._counter[0] += 1
        tensor._reshaped = tensor._counter[0]
        if tensor._view is not None:
            tensor._view.chain = (_by_storage(tensor),)
        return tensor
    old = wrap(tensor._array)
    old._counter, old._view = tensor._counter, tensor._view
    old._requires_grad = True
    if tensor._node is not None:
        attach(old, tensor._node, tensor._index)
    found = change(old)
    tensor._array, tensor._view = found._array, old._view and found._view
    tensor._counter[0] += 1
    tensor._reshaped = tensor._counter[0]
    if tensor._view is not None:
        tensor._view.version = tensor._counter[0]  # its node is the one that was made just now
    node, index = tensor._node, tensor._index
    if found._node is not None:
        attach(tensor, found._node, found._index)
    if node is not None and node.retained:
        node.move_retained(index, tensor)
    return tensor


def _define(name: str, function: Callable) -> None:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _become(self, lambda x: function(x, *args, **kwargs))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{function.__name__}` of this tensor itself; its elements stay in place."
    setattr(Tensor, name, method)


_SHAPES: dict[str, Callable] = {
    "t_": shapes.t, "transpose_": shapes.transpose, "swapaxes_": shapes.swapaxes,
    "swapdims_": shapes.transpose, "squeeze_": shapes.squeeze, "unsqueeze_": shapes.unsqueeze,
}  # fmt: skip
for _name, _function in _SHAPES.items():
    _define(_name, _function)


@export(function=False)
def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Another shape for this tensor: its elements in order, then uninitialised ones."""
    shape = shapes.sizes(sizes, size)
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if min(shape, default=0) < 0:
        raise RuntimeError(f"resize_: expected sizes of at least 0, got {list(shape)}")
    if shape == self._array.shape and memory_format is None:  # a view stays as it lies
        return self
    count = 1
    for n in shape:
        count *= n
    storage = storage_of(self._array)[_offset(self._array) :]
    if count > storage.size:
        grown = array_module(storage).empty(count, storage.dtype)
        grown[: storage.size] = storage
        storage = grown
    self._array = storage[:count].reshape(shape)
    self._counter[0] += 1
    return self


@export()
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(input, *the_template._array.shape, memory_format=memory_format)


class UntypedStorage:
    """The memory behind tensors, as bytes. Tensors that are views of each other have the same
    `data_ptr()` here. It can be looked at, not changed."""

    def __init__(self, array: Any) -> None:
        if not hasattr(array, "strides"):
            raise NotImplementedError(
                f"{type(self).__name__}: minigrad makes no memory without a tensor; use "
                "minigrad.empty(n, dtype=minigrad.uint8).untyped_storage()"
            )
        self._array = array
        self._root, self._start, self._stop = root_of(array)

    def data_ptr(self) -> int:
        """The address of the first byte; 0 of no memory."""
        first = wrap(self._root).data_ptr() + self._start * self._root.itemsize
        return first if self.nbytes() else 0

    _cdata = property(data_ptr)

    def nbytes(self) -> int:
        """The number of bytes."""
        return (self._stop - self._start) * self._root.itemsize

    size = __len__ = nbytes

    def element_size(self) -> int:
        """1, that of a byte."""
        return 1

    @property
    def device(self) -> Any:
        """Where the memory is."""
        return wrap(self._root).device

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self.device.type == "cuda"

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        first = self._start * self._root.itemsize
        return list(wrap(self._root).cpu().numpy().tobytes("A")[first : first + self.nbytes()])

    def __getitem__(self, index: Any) -> Any:
        return self.tolist()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.resize_(index)

    def resize_(self, size: Any) -> None:
        """Not implemented."""
        raise NotImplementedError(
            "UntypedStorage: memory can't be written or resized by its storage in minigrad; write "
            "to the tensor, or use tensor.resize_()"
        )

    fill_ = copy_ = resize_

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return id(self._root), self._start, self._stop

    def __repr__(self) -> str:
        rows = "".join(f" {value}\n" for value in self.tolist())
        return f"{rows}[minigrad.storage.{self._named()} of size {self.size()}]"

    def _named(self) -> str:
        return f"UntypedStorage(device={self.device})"


class TypedStorage(UntypedStorage):
    """The memory behind tensors, as elements of their dtype."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self._elements = wrap(storage_of(array))

    @property
    def dtype(self) -> Any:
        """That of the elements."""
        return self._elements.dtype

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._array)

    def size(self) -> int:
        """The number of elements."""
        return self._elements.numel()

    __len__ = size

    def element_size(self) -> int:
        """The number of bytes of an element."""
        return self._elements.element_size()

    def tolist(self) -> list:
        """The elements as numbers."""
        return self._elements.tolist()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements[index] = value

    def fill_(self, value: Any) -> TypedStorage:
        """Set all elements."""
        self._elements.fill_(value)
        return self

    def _named(self) -> str:
        return f"TypedStorage(dtype={self.dtype}, device={self.device})"


@export(function=False)
def set_(
    self: Tensor,
    source: Any = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Use the memory of another tensor, or a part of a storage, from now on; without a source an
    empty memory. Unlike torch's it does not make a storage larger: RuntimeError.

    size: of a storage, by default all elements in a row; stride: by default those of rows.
    """
    if isinstance(source, UntypedStorage):
        elements = storage_of(source._array).view(self._array.dtype)
        shape = (elements.size - storage_offset,) if size is None else tuple(map(int, size))
    elif source is None:
        xp = array_module(self._array)
        source = wrap(xp.empty(0, self._array.dtype))
    elif source._array.dtype != self._array.dtype:
        raise RuntimeError(
            f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}"
        )
    if isinstance(source, Tensor):
        self._counter = source._counter
        if size is None:
            self._array = source._array
            return self
        elements, shape = storage_of(source._array), tuple(map(int, size))
    steps: Any = wrap(np.empty(shape, bool)).stride() if stride is None else tuple(map(int, stride))
    last = storage_offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if all(shape) and not 0 <= last < elements.size:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(steps)}, storage offset "
            f"{storage_offset} are out of bounds for storage of {elements.size} elements"
        )
    self._array = AsStrided.forward(elements, shape, steps, storage_offset)
    return self


@export(function=False)
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory behind this tensor and its views, as bytes."""
    return UntypedStorage(self._array)


@export(function=False)
def storage(self: Tensor) -> TypedStorage:
    """The memory behind this tensor and its views, as elements."""
    warnings.warn(
        "TypedStorage is deprecated; use tensor.untyped_storage() instead of tensor.storage()",
        UserWarning,
        stacklevel=2,
    )
    return TypedStorage(self._array)
