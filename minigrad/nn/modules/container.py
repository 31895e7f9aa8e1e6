"""Modules that hold modules or parameters: Sequential, ModuleList/Dict, ParameterList/Dict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor, type_name

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Indexed(Module):
    """Base of Sequential and ModuleList: children named "0", "1", ..."""

    def _key(self, index: int) -> str:
        size = len(self)
        index = operator.index(index)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return list(self._modules)[index % size]

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def append(self, module: Module) -> Any:
        """Add `module` at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add every module of `modules` at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put `module` before position `index`."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, index: int) -> Module:
        """Remove the module at `index` and return it."""
        module = self._modules[self._key(index)]
        del self[index]
        return module

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self._modules.values())
        if isinstance(index, int):
            self._key(index)
        del modules[index]
        self._renumber(modules)


class Sequential(_Indexed):
    """Modules applied one after another: ``Sequential(a, b)(x) == b(a(x))``.

    Args: modules in order, or one OrderedDict of name -> module.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def insert(self, index: int, module: Module) -> Any:
        """Put `module` before position `index`, from -len(self) to len(self)."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        return super().insert(index, module)

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, "
                f"but {type(other)} is given."
            )
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*list(self) * _times(times))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        return self.extend(list(self) * (_times(times) - 1))


def _times(times: int) -> int:
    if not isinstance(times, int):
        raise TypeError(f"unsupported operand type(s) for *: Sequential and {type(times).__name__}")
    if times <= 0:
        raise ValueError(f"Non-positive multiplication factor {times} for Sequential")
    return times


class ModuleList(_Indexed):
    """A list of modules, registered in the enclosing module; it has no `forward`."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add every module of `modules` at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        return super().extend(modules)

    __iadd__ = extend

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def _described_children(self) -> Iterator[tuple[str, str]]:
        """Lines of the repr; equal neighbours share one."""
        for text, group in groupby(enumerate(map(repr, self)), key=lambda pair: pair[1]):
            places = [place for place, _ in group]
            if len(places) == 1:
                yield str(places[0]), text
            else:
                yield f"{places[0]}-{places[-1]}", f"{len(places)} x {text}"


class ModuleDict(Module):
    """A dict of modules, registered in the enclosing module, in insertion order."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """``(name, module)`` pairs."""
        return self._modules.items()

    def clear(self) -> None:
        """Remove everything."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove `key` and return its module."""
        return self._modules.pop(key)

    def update(self, modules: Any) -> None:
        """Add the pairs of a mapping or of an iterable of pairs."""
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(source: Any, kind: str) -> list[tuple[str, Any]]:
    if isinstance(source, (Mapping, ModuleDict, ParameterDict)):
        return list(source.items())
    if not isinstance(source, Iterable):
        raise TypeError(
            f"{kind}.update should be called with an iterable of key/value pairs, but got "
            + type(source).__name__
        )
    pairs = []
    for i, pair in enumerate(source):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{kind} update sequence element #{i} should be Iterable; is {type(pair).__name__}"
            )
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(
                f"{kind} update sequence element #{i} has length {len(pair)}; 2 is required"
            )
        pairs.append(pair)
    return pairs


def _as_parameter(value: Any) -> Any:
    """A tensor becomes a Parameter, as in torch; other values are unchanged."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _lines(pairs: Iterable[tuple[Any, Any]], kind: Callable[[Tensor], Any]) -> str:
    """Texts of (key, value) pairs. Indented, as torch's: nested modules follow as children."""

    def describe(value: Any) -> str:
        if not isinstance(value, Tensor):
            return f"Object of type: {type(value).__name__}"
        cls = "Parameter" if isinstance(value, Parameter) else "Tensor"
        place = f" ({value.device})" if value.is_cuda else ""
        size = "x".join(map(str, value.shape))
        return f"{cls} containing: [{kind(value)} of size {size}{place}]"

    return "\n".join(f"  ({key}): {describe(value)}" for key, value in pairs)


class ParameterList(Module):
    """A list of parameters, registered in the enclosing module; tensors become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")

    def _key(self, index: int) -> str:
        index = operator.index(index)
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._key(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def append(self, value: Any) -> ParameterList:
        """Add `value` at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add every value at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                + type(values).__name__
            )
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend

    def extra_repr(self) -> str:
        """A line per value, with its dtype and size."""
        return _lines(enumerate(self), lambda value: value.dtype)


class ParameterDict(Module):
    """A dict of parameters, registered in the enclosing module; tensors become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._names: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._names:
            raise AttributeError(f"'ParameterDict' object has no attribute '{key}'")
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._names[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, key: str) -> bool:
        return key in self._names

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._names.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return [self[name] for name in self._names]

    def items(self) -> Iterable[tuple[str, Any]]:
        """``(name, parameter)`` pairs."""
        return [(name, self[name]) for name in self._names]

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter `key`, or `default`."""
        return self[key] if key in self._names else default

    def pop(self, key: str) -> Any:
        """Remove `key` and return its parameter."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the newest pair and return it."""
        if not self._names:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._names))
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter `key`; if there is none, `default` becomes it."""
        if key not in self:
            self[key] = default
        return self[key]

    def copy(self) -> ParameterDict:
        """A new ParameterDict with the same parameters."""
        return ParameterDict(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict with `default` under each key."""
        return ParameterDict((key, default) for key in keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __or__(self, other: ParameterDict) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._names):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Add the pairs of a mapping or of an iterable of pairs."""
        for key, value in _pairs(parameters, "ParameterDict"):
            self[key] = value

    def extra_repr(self) -> str:
        """A line per value, with its type and size."""
        return _lines(self.items(), type_name)
