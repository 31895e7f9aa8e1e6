"""Pruning: parameters of a module multiplied by a mask, with torch's names.

A pruned `weight` is the parameter `weight_orig` times the buffer `weight_mask`, computed by a hook
before each forward. `remove` makes it a parameter again, with zeros where it was pruned.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor


class BasePruningMethod(ABC):
    """Base class of methods: they define `compute_mask`, and PRUNING_TYPE: what of a tensor they
    choose from ("unstructured": elements, "structured": slices along `dim`, "global")."""

    _tensor_name: str
    PRUNING_TYPE: str

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of t: zeros where it is pruned, in addition to those of `default_mask`."""

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor of a module."""
        name = self._tensor_name
        mask, orig = getattr(module, f"{name}_mask"), getattr(module, f"{name}_orig")
        return mask.to(orig.dtype) * orig

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune the parameter `name`, in addition to what is pruned already. importance_scores:
        numbers to choose by in place of the values. Returns the method that is now a hook."""
        found = _find(module, name)
        method = cls(*args, **kwargs)
        method._tensor_name = name
        orig = getattr(module, name) if found is None else getattr(module, f"{name}_orig")
        if importance_scores is None:
            importance_scores = getattr(module, name).detach()
        elif importance_scores.shape != orig.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        if found is None:
            before = minigrad.ones_like(importance_scores)
        else:
            number, old = found
            del module._forward_pre_hooks[number]
            before = getattr(module, f"{name}_mask").detach()
            chain = PruningContainer(old) if not isinstance(old, PruningContainer) else old
            chain.add_pruning_method(method)
            method = chain
        mask = method.compute_mask(importance_scores, before.clone())
        if found is None:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", orig)
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Any = None
    ) -> Tensor:
        """A pruned copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        before = minigrad.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, before)

    def remove(self, module: Module) -> None:
        """Make the pruned tensor a parameter; the caller removes the hook."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig: Any = module._parameters.pop(f"{name}_orig")
        orig.data = weight.data
        del module._buffers[f"{name}_mask"]
        setattr(module, name, orig)


class PruningContainer(BasePruningMethod):
    """Methods, one after another, on the same parameter."""

    def __init__(self, *args: Any) -> None:
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in methods:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add a method for the same parameter."""
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found "
                f"'{method._tensor_name}'"
            )
        self._pruning_methods += (method,)  # type: ignore[operator]

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the newest method, which chooses from what the others have left."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        kind = method.PRUNING_TYPE
        if kind == "unstructured":
            left: Any = mask == 1
        elif kind == "structured":
            others = [d for d in range(t.ndim) if d != method.dim % t.ndim]
            left = (slice(None),) * (method.dim % t.ndim) + (mask.sum(others) != 0,)
        elif kind == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
        new = mask.clone()
        new[left] = method.compute_mask(t[left], mask[left]).to(mask.dtype)
        return new


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it was."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes `amount` elements (a number, or a share from 0 to 1) at random."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: int | float) -> None:
        _check_amount(amount)
        self.amount = amount

    def scores(self, t: Tensor) -> Tensor:
        """The lowest of these are pruned."""
        return minigrad.rand_like(t)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros at the lowest scores."""
        count = _number(self.amount, t.nelement())
        mask = default_mask.clone()
        if count:
            lowest = self.scores(t).reshape(-1).topk(count, largest=False).indices
            mask.view(-1)[lowest] = 0
        return mask


class L1Unstructured(RandomUnstructured):
    """Prunes the `amount` elements (a number, or a share from 0 to 1) of least absolute value."""

    def scores(self, t: Tensor) -> Tensor:
        """The absolute values."""
        return t.abs()


class RandomStructured(BasePruningMethod):
    """Prunes `amount` slices (a number, or a share from 0 to 1) along `dim` at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def scores(self, t: Tensor) -> Tensor:
        """The slices with the lowest of these are pruned."""
        return minigrad.rand(t.shape[self.dim])

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in the slices of the lowest scores."""
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to a multidimensional tensors. Found a "
                f"tensor of shape {tuple(t.shape)} with {t.ndim} dims"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        count = _number(self.amount, t.shape[self.dim])
        if not count:
            return default_mask
        lowest = self.scores(t).topk(count, largest=False).indices
        mask = minigrad.ones_like(t)
        mask[(slice(None),) * (self.dim % t.ndim) + (lowest,)] = 0
        return mask * default_mask.to(mask.dtype)


class LnStructured(RandomStructured):
    """Prunes the `amount` slices along `dim` of the least norm of order n."""

    def __init__(self, amount: int | float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Tensor) -> Tensor:
        """The norms."""
        others = [d for d in range(t.ndim) if d != self.dim % t.ndim]
        return minigrad.norm(t, p=self.n, dim=others)


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The given mask, and zeros where there were some."""
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Give a parameter the form of a pruned one, with a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prune elements at random, see `RandomUnstructured`."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: int | float, importance_scores: Any = None
) -> Module:
    """Prune the elements of least absolute value, see `L1Unstructured`."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prune slices along `dim` at random, see `RandomStructured`."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module,
    name: str,
    amount: int | float,
    n: Any,
    dim: int,
    importance_scores: Any = None,
) -> Module:
    """Prune the slices along `dim` of least norm, see `LnStructured`."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune by a given mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune parameters, (module, name), as if they were one: `amount` counts across all."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs, given = list(parameters), importance_scores or {}
    if not isinstance(given, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    values = [given.get((m, n), getattr(m, n)).detach() for m, n in pairs]
    masks = [getattr(m, f"{n}_mask", minigrad.ones_like(getattr(m, n))) for m, n in pairs]
    scores = minigrad.nn.utils.parameters_to_vector(values)
    whole = PruningContainer()
    whole._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    whole.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    final = whole.compute_mask(scores, minigrad.nn.utils.parameters_to_vector(masks))
    at = 0
    for module, name in pairs:
        param = getattr(module, name)
        custom_from_mask(module, name, final[at : at + param.numel()].view_as(param))
        at += param.numel()


def remove(module: Module, name: str) -> Module:
    """Make a pruned tensor a parameter again; ValueError if it is not pruned."""
    found = _find(module, name)
    if found is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    found[1].remove(module)
    del module._forward_pre_hooks[found[0]]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of a module, or of one in it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for part in module.modules()
        for hook in part._forward_pre_hooks.values()
    )


def _find(module: Module, name: str) -> tuple[int, Any] | None:
    """The number and the hook that prunes a parameter."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return number, hook
    return None


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if float(amount) < 0 or (not whole and float(amount) > 1):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _number(amount: int | float, size: int) -> int:
    """How many of `size` are pruned."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if amount > size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={size}"
        )
    return int(amount)


__getattr__, __dir__ = namespace(__name__)
