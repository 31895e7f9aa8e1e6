"""Spectral normalisation (Miyato et al. 2018): a weight divided by its largest singular value."""

from __future__ import annotations

from typing import Any, TypeVar

import minigrad
from minigrad.nn.functional import normalize
from minigrad.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.nn.utils.weight_norm import check_can_hook, find_hook
from minigrad.tensor import Tensor

M = TypeVar("M", bound=Module)


def output_dim(module: Module, dim: int | None) -> int:
    """The dimension of the outputs in the weight of a layer."""
    if dim is None:
        return int(isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d))
    return dim


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight (outputs, all others)."""
    return weight.movedim(dim, 0).flatten(1)


def largest_singular_value(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u^T W v; u and v are copied, since later power iterations write into them."""
    return u.clone().dot(matrix.mv(v.clone()))


class SpectralNorm:
    """The hook that computes ``name`` from ``name_orig`` before each forward.

    ``name_u`` and ``name_v`` are the estimates of the singular vectors.
    """

    _version = 1

    def __init__(
        self,
        name: str = "weight",
        n_power_iterations: int = 1,
        dim: int = 0,
        eps: float = 1e-12,
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.n_power_iterations = name, n_power_iterations
        self.dim, self.eps = dim, eps

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised weight, after further power iterations if asked for."""
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with minigrad.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matrix.T.mv(u), dim=0, eps=self.eps))
                    u.copy_(normalize(matrix.mv(v), dim=0, eps=self.eps))
        return weight / largest_singular_value(matrix, u, v)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    def mark_version(self, module: Any, state: Any, prefix: str, metadata: dict) -> None:
        """For `state_dict`: the version that torch's files have."""
        metadata.setdefault("spectral_norm", {})[f"{self.name}.version"] = self._version


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide the parameter `name` by its largest singular value, before each forward.

    The value is estimated by power iterations, `n_power_iterations` per forward in training mode.
    dim: that of the outputs (default: 0; 1 for transposed convolutions); the others are flattened.
    The parameter becomes ``name_orig``; the singular vectors are the buffers ``name_u`` and
    ``name_v``. Returns the module.
    """
    hook = SpectralNorm(name, n_power_iterations, output_dim(module, dim), eps)
    check_can_hook(module, SpectralNorm, name, "spectral_norm")
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    height, width = as_matrix(weight.detach(), hook.dim).shape
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.data)
    for part, size in (("u", height), ("v", width)):
        start = weight.detach().new_empty(size).normal_()
        module.register_buffer(f"{name}_{part}", normalize(start, dim=0, eps=eps))
    module.register_forward_pre_hook(hook)
    module.register_state_dict_post_hook(hook.mark_version)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undo `spectral_norm`: the parameter has its present value. ValueError without such a hook."""
    found = find_hook(module, SpectralNorm, name)
    if found is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    number, hook = found
    with minigrad.no_grad():
        weight = hook.compute_weight(module, False)
    for old in (name, f"{name}_u", f"{name}_v", f"{name}_orig"):
        delattr(module, old)
    module.register_parameter(name, Parameter(weight))
    del module._forward_pre_hooks[number]
    for key, other in list(module._state_dict_hooks.items()):
        if other == hook.mark_version:
            del module._state_dict_hooks[key]
    return module
