"""Cutting a network into stages."""

from __future__ import annotations

import enum
from typing import Any

from minigrad.distributed.pipelining.stage import PipelineStage
from minigrad.nn.modules.container import Sequential
from minigrad.nn.modules.module import Module


class SplitPoint(enum.Enum):
    """Where a stage ends: before a submodule, or after it."""

    BEGINNING = 1
    END = 2


class Pipe:
    """The stages of a network, from `pipeline`."""

    def __init__(self, stages: list[Module]) -> None:
        self._stages = stages

    @property
    def num_stages(self) -> int:
        return len(self._stages)

    def get_stage_module(self, stage_idx: int) -> Module:
        """The submodules of one stage, under the names that they have in the network."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return self._stages[stage_idx]

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        module = self.get_stage_module(stage_index).to(device)
        return PipelineStage(module, stage_index, self.num_stages, device, group=group)


def pipeline(
    module: Module,
    mb_args: tuple = (),
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Cut an `nn.Sequential` at the children that `split_spec` names.

    mb_args, mb_kwargs: no effect (torch traces the network with them). Raises NotImplementedError
    for another network: make a module for each stage, and `PipelineStage` of it.
    """
    if not isinstance(module, Sequential) or split_policy is not None:
        raise NotImplementedError(
            f"pipeline: minigrad cuts an nn.Sequential at split_spec, got {type(module).__name__}"
            "; make a module for each stage, and PipelineStage(module, ...) of it"
        )
    children, spec = dict(module.named_children()), split_spec or {}
    unknown = [name for name in spec if name not in children]
    if unknown:
        raise ValueError(f"pipeline: no child has the name {unknown[0]!r}; expected {[*children]}")
    stages: list[dict[str, Module]] = [{}]
    for name, child in children.items():
        if spec.get(name) is SplitPoint.BEGINNING:
            stages.append({})
        stages[-1][name] = child
        if spec.get(name) is SplitPoint.END:
            stages.append({})
    made: list[Module] = []
    for parts in stages:
        if not parts:
            raise ValueError(f"pipeline: a stage of {spec} would have no layers")
        stage = Sequential()
        for name, child in parts.items():
            stage.add_module(name, child)
        made.append(stage)
    return Pipe(made)
