"""Numbers of a recorded step that each replay takes anew: seeds and offsets of random generators,
the options and step counts of optimisers, and what Python computes from those.

A `Late` number remembers how it was computed. It can be added, multiplied and so on; comparing two
makes a condition of the recording (`Numbers.conditions`), and what needs the number itself, such as
`float` or `math.sqrt`, cannot be recorded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from minigrad.compiler.arrays import stop
from minigrad.random import Generator
from minigrad.tensor import Tensor
from minigrad.utils._pytree import tree_leaves, tree_map


class Draw(int):
    """A seed or an offset of a generator: the same number is another one at the next step.

    call: how many calls of the generator the step has made before; None for the seed.
    """

    generator: Generator
    call: int | None

    @classmethod
    def of(cls, value: int, generator: Generator, call: int | None) -> Draw:
        made = cls(value)
        made.generator, made.call = generator, call
        return made

    def __and__(self, mask: int) -> Draw:
        return Draw.of(int(self) & mask, self.generator, self.call)


class Late:
    """A number that is `value` while a step is recorded, and `again()` when it is replayed."""

    __slots__ = ("again", "numbers", "value")

    def __init__(self, numbers: Numbers, again: Callable[[], Any], value: Any) -> None:
        self.numbers, self.again, self.value = numbers, again, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`isinstance` finds a number: who checks an argument must accept it."""
        return float

    def __hash__(self) -> int:
        return id(self)


def _computed(operation: Callable) -> Callable:
    def method(self: Late, *others: Any) -> Any:
        if any(isinstance(o, Tensor) for o in others):
            return NotImplemented
        first = self.again
        if not others:
            return Late(self.numbers, lambda: operation(first()), operation(self.value))
        (other,) = others
        if type(other) is Late:
            second, value = other.again, operation(self.value, other.value)
            return Late(self.numbers, lambda: operation(first(), second()), value)
        return Late(self.numbers, lambda: operation(first(), other), operation(self.value, other))

    return method


def _swapped(operation: Callable) -> Callable:
    return lambda a, b: operation(b, a)


def _condition(operation: Callable) -> Callable:
    def method(self: Late, *others: Any) -> bool:
        found = _computed(operation)(self, *others)
        if found is NotImplemented:
            return found
        self.numbers.conditions.append((found.again, found.value))
        return found.value

    return method


def _needed(operation: Callable) -> Callable:
    def method(self: Late, *args: Any) -> Any:
        stop("an option of an optimiser as a number of Python")
        return operation(self.value, *args)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _operation = getattr(operator, _name)
    setattr(Late, f"__{_name}__", _computed(_operation))
    setattr(Late, f"__r{_name}__", _computed(_swapped(_operation)))
for _name in ("neg", "pos", "abs"):
    setattr(Late, f"__{_name}__", _computed(getattr(operator, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Late, f"__{_name}__", _condition(getattr(operator, _name)))
setattr(Late, "__bool__", _condition(bool))  # noqa: B010
setattr(Late, "__index__", _condition(operator.index))  # noqa: B010 - how often, which
for _name, _operation in (("float", float), ("int", int)):
    setattr(Late, f"__{_name}__", _needed(_operation))


class Numbers:
    """The late numbers of a recording.

    conditions: what a replay must find as it was, as (function, its value).
    """

    def __init__(self) -> None:
        self.conditions: list[tuple[Callable[[], Any], Any]] = []
        self._plain: dict[int, tuple[float, Late]] = {}

    def late(self, again: Callable[[], Any]) -> Late:
        """The number that a function gives."""
        return Late(self, again, again())

    def plain(self, value: Any) -> Any:
        """A float that stands for a late number, known by its identity; other values themselves.

        Operations take floats as they are, and pass them on to their launches."""
        if type(value) is not Late:
            return value
        made = float(value.value) + 0.0  # a new object
        self._plain[id(made)] = made, value
        return made

    def found(self, value: Any) -> Any:
        """The late number that a float stands for; other values themselves."""
        known = self._plain.get(id(value)) if type(value) is float else None
        return value if known is None else known[1]

    def release(self) -> None:
        """Forget what only the recording needed."""
        self._plain.clear()

    def named(self, args: tuple, kwargs: dict) -> tuple[tuple, dict, set[int]]:
        """Arguments with late numbers in place of the floats that stand for them; the ids of those
        numbers, which must be among the arguments of the launches."""
        passed = {
            id(self.found(leaf)) for leaf in tree_leaves((args, kwargs)) if id(leaf) in self._plain
        }
        if passed:
            args, kwargs = tree_map(self.found, args), tree_map(self.found, kwargs)
        return args, kwargs, passed

    def options(self, group: dict[str, Any]) -> dict[str, Any]:
        """The options of an optimiser's group, with late numbers; all others are conditions."""
        found: dict[str, Any] = {}
        fixed: dict[str, Any] = {}
        for key, value in group.items():
            if key.startswith("param"):
                found[key] = value
            elif _is_number(value):
                found[key] = self.late(partial(_option, group, key))
            elif type(value) is tuple and all(map(_is_number, value)):
                places = range(len(value))
                found[key] = tuple([self.late(partial(_option, group, key, i)) for i in places])
            else:
                found[key] = fixed[key] = value
        self.conditions.append((lambda: {key: group.get(key) for key in fixed}, fixed))
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Tensor)) and not isinstance(value, bool)


def _option(group: dict[str, Any], key: str, place: int | None = None) -> Any:
    value = group[key] if place is None else group[key][place]
    return value.item() if isinstance(value, Tensor) else value


def value_now(value: Any) -> Any:
    """The number that a late number or a draw is while the step is recorded."""
    if type(value) is Late:
        return value.value
    return int(value) if type(value) is Draw else value
