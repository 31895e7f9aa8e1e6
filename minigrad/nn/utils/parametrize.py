"""Parametrisation: a parameter or buffer that is computed from others each time it is read.

``module.weight`` becomes a property of the module's class; what it is computed from is kept, and
trained, under ``module.parametrizations.weight``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any, ClassVar

import minigrad
from minigrad._names import namespace
from minigrad.nn.modules.container import ModuleDict, ModuleList
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

__getattr__, __dir__ = namespace(__name__)


class _Cache:
    """Values of parametrised tensors by (module, name), while `cached()` is active."""

    depth = 0
    values: ClassVar[dict[tuple[int, str], Tensor]] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within this context each parametrised tensor is computed once, when it is first read.

    Example::

        with nn.utils.parametrize.cached():
            for x in sequence:
                state = cell(x, state)  # cell.weight_hh is computed once
    """
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values = {}


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _same_kind(what: str, wanted: Tensor, got: Any, shape: bool = True) -> None:
    """ValueError unless `got` is a tensor with the dtype and the shape (or device) of `wanted`."""
    if not isinstance(got, Tensor):
        raise ValueError(f"{what} must return a tensor. Got {type(got).__name__}.")
    for kind in ("dtype", "shape") if shape else ("dtype", "device"):
        before, after = getattr(wanted, kind), getattr(got, kind)
        if before != after:
            unless = ", unless the `unsafe` flag is enabled" if shape else ""
            raise ValueError(
                f"{what} may not change the {kind} of the tensor{unless}: it was {before} and "
                f"becomes {after}"
            )


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, in order, and the tensors it is computed from.

    Those are named ``original``, or ``original0``, ``original1``, ... where the `right_inverse` of
    the first parametrisation returns several.
    """

    def __init__(
        self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False
    ) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        value = original.detach().clone()
        new = self._inverted(original.detach())
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            _same_kind("`right_inverse`", original, new, shape=False)
            original.set_(new)  # the same object, which an optimiser may have already
            _register(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                        f"tuple...). Got element {i} of the sequence with type "
                        f"{type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _register(self, f"original{i}", part.requires_grad_(original.requires_grad))
        if not unsafe:
            _same_kind("A parametrization", value, self())

    def _inverted(self, value: Any) -> Any:
        """What `original` becomes: the right inverses from the last to the first."""
        with minigrad.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # then it is taken as the identity
                        value = module.right_inverse(value)
        if not isinstance(value, Tensor | Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(value).__name__}"
            )
        return value

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the original tensors so that the parametrised one becomes `value`."""
        with minigrad.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
        if self.is_tensor:
            found: Sequence[Any] = [value]
        elif isinstance(value, Sequence) and len(value) == self.ntensors:
            found = value
        else:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                f"Got {type(value).__name__}."
            )
        for target, part in zip(self._originals(), found, strict=True):
            _same_kind("`right_inverse`", target, part, shape=False)
            target.set_(part)

    def forward(self) -> Tensor:
        """The parametrised tensor."""
        first, *others = self
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    """A copy of a parametrised module; `__getstate__` refuses all else."""
    if id(self) not in memo:
        memo[id(self)] = replica = self.__new__(type(self))
        replica.__dict__.update(deepcopy(self.__dict__, memo))
    return memo[id(self)]


def _no_state(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): save "
        "model.state_dict(), and load it into a module with the same parametrizations"
    )


def _inject_class(module: Module) -> None:
    """Give the module a class of its own, which can hold properties."""
    cls = type(module)
    members: dict[str, Any] = {"__getstate__": _no_state}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, name: str) -> None:
    def get(self: Module) -> Tensor:
        parametrization = self.parametrizations[name]
        if not _Cache.depth:
            return parametrization()
        key = (id(self), name)
        if key not in _Cache.values:
            _Cache.values[key] = parametrization()
        return _Cache.values[key]

    def set_(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, set_))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let ``module.weight`` be ``parametrization(original)``, differentiably; returns the module.

    module: has a parameter or buffer `tensor_name`, which may be parametrised already (then the new
    parametrisation applies to the result of the others).
    parametrization: a module from a tensor to one of the same shape and dtype. Its method
    ``right_inverse(X)``, if it has one, gives the initial original, or several of them, and
    allows assignment to ``module.weight``.
    unsafe: shape and dtype may change; nothing is checked.

    Example::

        class Symmetric(nn.Module):
            def forward(self, X):
                return X.triu() + X.triu(1).mT

        layer = nn.Linear(3, 3)
        nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
        layer.weight  # symmetric; layer.parametrizations.weight.original is the parameter
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        entries: Any = module.parametrizations
        if not unsafe:
            _check_next(getattr(module, tensor_name), parametrization)
        entries[tensor_name].append(parametrization)
        entries[tensor_name].unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    entry = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _inject_class(module)
        module.parametrizations = ModuleDict()
    _inject_property(module, tensor_name)
    module.parametrizations[tensor_name] = entry
    return module


def _check_next(value: Tensor, parametrization: Any) -> None:
    """A parametrisation after others keeps shape and dtype, and so does its inverse."""
    with minigrad.no_grad():
        result = parametrization(value)
        _same_kind("A parametrization", value, result)
        if hasattr(parametrization, "right_inverse"):
            try:
                inverted = parametrization.right_inverse(result)
            except NotImplementedError:
                return
            _same_kind("parametrization.right_inverse", value, inverted)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrisation, of that tensor if it is named."""
    entries = getattr(module, "parametrizations", None)
    if not isinstance(entries, ModuleDict):
        return False
    return len(entries) > 0 if tensor_name is None else tensor_name in entries


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor a plain parameter or buffer again; returns the module.

    leave_parametrized: keep the parametrised value, otherwise the original one.
    ValueError if the tensor is not parametrised, or has several originals of which none can stay.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    entry: Any = module.parametrizations[tensor_name]
    if entry.is_tensor:
        original = entry.original
        if leave_parametrized:
            with minigrad.no_grad():
                original.set_(getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class, without the one that its parametrisations have added."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` the parametrisations of the other module, of one tensor or all, and the
    tensors they are computed from (shared, not copied); returns `to_module`."""
    if not is_parametrized(from_module):
        return to_module
    entries: Any = from_module.parametrizations
    for name in entries if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in entries[name]:
            register_parametrization(to_module, name, parametrization)
        target: Any = to_module.parametrizations[name]
        for key in ("original", *(f"original{i}" for i in range(target.ntensors))):
            if hasattr(entries[name], key):
                setattr(target, key, getattr(entries[name], key))
    return to_module
