"""Tensors that a Module registers: `Parameter` (trained) and `Buffer` (state, not trained), also
without a shape, for lazy layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, SupportsIndex

import minigrad
from minigrad._foreign import conversion
from minigrad._names import kind, namespace
from minigrad.overrides import disabled
from minigrad.tensor import Tensor, every_attribute

_ENGINES = frozenset(
    "_array _counter _requires_grad _grad _node _index _view _hooks _accumulate_hooks".split()
)


class _Attached(dict):
    """The attributes that users gave a parameter; what is set here is set there."""

    __slots__ = ("_every",)
    update = MutableMapping.update
    pop = MutableMapping.pop
    popitem = MutableMapping.popitem
    setdefault = MutableMapping.setdefault
    clear = MutableMapping.clear

    def __init__(self, every: dict[str, Any]) -> None:
        super().__init__((k, v) for k, v in every.items() if k not in _ENGINES)
        self._every = every

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._every[name] = value

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        del self._every[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class Parameter(Tensor):
    """A Tensor that registers itself as a parameter when assigned to a Module attribute.

    Args:
        data: any tensor; the parameter shares its storage. None gives an empty parameter.
        requires_grad: whether the parameter is trained.
    """

    __torch_function__ = staticmethod(disabled)

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = minigrad.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter(): expected a minigrad.Tensor, got {kind(data)}; {conversion(data)}"
            )
        return Tensor._make_subclass(cls, data, requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        """Nothing to do: `__new__` shares the storage."""

    # Programs hand the attributes of one parameter to the next, `Parameter(x, **p.__dict__)`: those
    # of the engine would give it the other's memory and graph.
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return _Attached(every_attribute(self))

    @__dict__.setter
    def __dict__(self, attributes: Mapping[str, Any]) -> None:
        attached = _Attached(every_attribute(self))
        attached.clear()
        attached.update(attributes)

    def __copy__(self) -> Parameter:
        """A parameter of the same memory and attributes."""
        return _rebuild_parameter(type(self), self, self.requires_grad, self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = copied = type(self)(self.data.clone(), self.requires_grad)
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        parts = type(self), (self.data, self.requires_grad)
        attached = dict(self.__dict__)
        return (_rebuild_parameter, (parts[0], *parts[1], attached)) if attached else parts


def _rebuild_parameter(
    cls: type[Parameter], data: Tensor, requires_grad: bool, attributes: Mapping[str, Any]
) -> Parameter:
    parameter = cls(data, requires_grad)
    parameter.__dict__.update(attributes)
    return parameter


class Buffer(Tensor):
    """A Tensor that registers itself as a buffer when assigned to a Module attribute.

    Args:
        data: any tensor; the buffer shares its storage. None gives an empty buffer.
        persistent: whether the buffer is part of the module's `state_dict`.
    """

    persistent: bool
    __torch_function__ = staticmethod(disabled)

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = minigrad.empty(0)
        buffer = Tensor._make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """Nothing to do, see `__new__`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = copied = type(self)(self.data.clone(), persistent=self.persistent)
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _rebuild_buffer, (type(self), self.data, self.persistent)


def _rebuild_buffer(cls: type[Buffer], data: Tensor, persistent: bool) -> Buffer:
    return cls(data, persistent=persistent)


class _Uninitialized:
    """A parameter or buffer whose shape is not known yet; `materialize` gives it one."""

    _becomes: type[Tensor]

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def detach(self) -> Any:
        """Itself, for `state_dict`: there is nothing to detach yet."""
        return self

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a parameter or buffer of this shape, with uninitialised elements."""
        kind = {"device": device or self.device, "dtype": dtype or self.dtype}
        self._array = minigrad.empty(tuple(shape), **kind)._array
        self.__class__ = self._becomes

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(device=self.device, dtype=self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype)


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is not known yet."""

    _becomes = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Parameter.__new__(cls, minigrad.empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        """Nothing to do, see `__new__`."""


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer whose shape is not known yet."""

    _becomes = Buffer

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> Any:
        return Buffer.__new__(cls, minigrad.empty(0, device=device, dtype=dtype))

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> None:
        """Nothing to do, see `__new__`."""


# What `Module.to`, `state_dict` and optimisers ask of a parameter; other methods need elements.
_WITHOUT_ELEMENTS = """
    bfloat16 cpu cuda detach double float half is_complex is_contiguous is_floating_point
    is_inference is_pinned is_shared materialize pin_memory register_hook
    register_post_accumulate_grad_hook requires_grad_ retain_grad size to
""".split()
_OPERATORS = """
    add bool eq float ge getitem gt int iadd imul isub itruediv iter le len lt matmul mul ne neg pow
    radd rmatmul rmul rsub rtruediv setitem sub truediv
""".split()


def _refused(name: str) -> Callable:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            f"Attempted to use an uninitialized parameter in Tensor.{name}. A lazy module gives "
            "its parameters a shape at its first call: call it with an input (or load a "
            "state_dict) before their elements are read or set"
        )

    method.__name__ = name
    return method


for _name in dir(Tensor):
    _reads = _name not in _WITHOUT_ELEMENTS and callable(getattr(Tensor, _name))
    if _name[2:-2] in _OPERATORS if _name.startswith("_") else _reads:
        setattr(_Uninitialized, _name, _refused(_name))


def is_lazy(value: Any) -> bool:
    """Whether a value is a parameter or buffer without a shape."""
    return isinstance(value, _Uninitialized)


__getattr__, __dir__ = namespace(__name__)
