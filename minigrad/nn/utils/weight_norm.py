"""Weight normalisation (Salimans & Kingma 2016): w = g v / |v|, the norm per slice along `dim`."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import minigrad
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter, is_lazy
from minigrad.tensor import Tensor

M = TypeVar("M", bound=Module)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The `pow`-norm of each slice along `dim`, with dimensions of size 1; of all of v, a scalar,
    for -1."""
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.ndim) if d != dim]
    return v.norm(pow, others, keepdim=True) if others else v.abs()


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v with the norms g."""
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm:
    """The hook that computes ``name`` from ``name_g`` and ``name_v`` before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight of the present norms and directions."""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return _weight_norm(v, g, self.dim)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def find_hook(module: Module, kind: type, name: str) -> tuple[int, Any] | None:
    """The number and the hook of this kind for the parameter, if the module has one."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and getattr(hook, "name", None) == name:
            return number, hook
    return None


def check_can_hook(module: Module, kind: type, name: str, function: str) -> None:
    """RuntimeError for a second hook, ValueError for a lazy parameter."""
    if find_hook(module, kind, name):
        raise RuntimeError(f"Cannot register two {function} hooks on the same parameter {name}")
    if is_lazy(getattr(module, name)):
        raise ValueError(
            f"The module passed to `{kind.__name__}` can't have uninitialized parameters. Run a "
            "forward pass first"
        )


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replace the parameter `name` by its norms ``name_g`` and directions ``name_v``.

    A hook computes the parameter from them before each forward. dim: the norms are those of the
    slices along it (each output channel, for 0); None for one norm of the whole parameter.
    Returns the module. torch prefers `parametrizations.weight_norm` today.
    """
    warnings.warn(
        "`minigrad.nn.utils.weight_norm` is deprecated in favor of "
        "`minigrad.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    check_can_hook(module, WeightNorm, name, "weight_norm")
    hook, weight = WeightNorm(name, dim), getattr(module, name)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight.detach(), 2, hook.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undo `weight_norm`: the parameter has its present value. ValueError if there is no hook."""
    found = find_hook(module, WeightNorm, name)
    if found is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    number, hook = found
    with minigrad.no_grad():
        weight = hook.compute_weight(module)
    for old in (name, f"{name}_g", f"{name}_v"):
        delattr(module, old)
    setattr(module, name, Parameter(weight))
    del module._forward_pre_hooks[number]
    return module
