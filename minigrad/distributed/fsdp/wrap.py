"""Which modules become a unit of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minigrad.nn.modules.module import Module

Policy = Callable[..., bool]


class ModuleWrapPolicy:
    """Modules of some classes: `ModuleWrapPolicy({Block})`."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        return recurse or isinstance(module, self._classes)


def size_based_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = 100_000_000
) -> bool:
    """Modules with at least `min_num_params` parameters that are in no unit yet."""
    return nonwrapped_numel >= min_num_params


def chosen(module: Module, policy: Policy) -> list[Module]:
    """The modules below `module` that `policy(module, recurse, count)` chooses, inner ones first.

    With recurse=True it says whether to look further inside, with False whether to take the module;
    count: of its parameters that are in no chosen module.
    """
    found: list[Module] = []

    def visit(parent: Module) -> int:
        taken = 0
        for child in parent.children():
            count = sum(p.numel() for p in child.parameters())
            inside = visit(child) if policy(child, True, count) else 0
            if count > inside and policy(child, False, count - inside):
                found.append(child)
                inside = count
            taken += inside
        return taken

    visit(module)
    return found
