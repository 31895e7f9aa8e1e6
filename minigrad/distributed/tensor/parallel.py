"""Layers whose weights are divided among ranks (tensor parallel), with torch's names.

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(block, mesh, {"mlp.0": ColwiseParallel(), "mlp.2": RowwiseParallel()})

A column-parallel layer has some of the output features on each rank, the row-parallel layer after
it the same ones of its input features. So a pair costs one all-reduce forward and one backward
(Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
Parallelism", 2019). All ranks get the same input and compute the same loss.

Parameters become plain tensors of this rank's part, so optimisers are made afterwards.
`state_dict()` has the parts; `full_state_dict` gathers them, `load_full_state_dict` divides.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import minigrad
from minigrad import distributed as dist
from minigrad._names import namespace
from minigrad.backends import array_module
from minigrad.distributed.device_mesh import DeviceMesh
from minigrad.distributed.groups import resolve
from minigrad.distributed.tensor.layers import (
    ColumnEmbedding,
    ColumnLinear,
    HeadwiseAttention,
    RowEmbedding,
    RowLinear,
    Slicing,
)
from minigrad.distributed.tensor.mappings import Layout, Replicate, Shard
from minigrad.nn.modules.attention import MultiheadAttention
from minigrad.nn.modules.linear import Linear
from minigrad.nn.modules.module import Module
from minigrad.nn.modules.sparse import Embedding
from minigrad.nn.parameter import Parameter
from minigrad.tensor import Tensor, wrap

__all__ = [
    "ColwiseParallel",
    "HeadwiseParallel",
    "ParallelStyle",
    "RowwiseParallel",
    "clip_grad_norm_",
    "full_state_dict",
    "load_full_state_dict",
    "parallelize_module",
]


class ParallelStyle:
    """How one layer is divided.

    classes: what a layer of a type becomes. `slicings(module)` says which parameters are divided,
    and along which dimension; parameters without one stay whole on every rank.
    """

    classes: ClassVar[dict[type, type]] = {}

    def __init__(
        self,
        *,
        input_layouts: Layout | None = None,
        output_layouts: Layout | None = None,
        use_local_output: bool = True,
    ) -> None:
        name = type(self).__name__
        if not use_local_output:
            raise NotImplementedError(f"{name}: minigrad has no DTensor; use_local_output=True")
        for layout in (input_layouts, output_layouts):
            if layout is not None and not isinstance(layout, Shard | Replicate):
                raise TypeError(f"{name}: expected Shard(dim) or Replicate(), got {layout!r}")
        self.input_layouts, self.output_layouts = input_layouts, output_layouts

    def slicings(self, module: Module) -> dict[str, Slicing]:
        raise NotImplementedError

    def check(self, name: str, module: Module, ranks: int) -> None:
        """Raise where the layer is of another type, or its sizes cannot be divided."""
        style, kind = type(self).__name__, type(module).__name__
        if type(module) not in self.classes:
            known = ", ".join(cls.__name__ for cls in self.classes)
            raise NotImplementedError(f"{style}: {name!r} is a {kind}; expected one of {known}")
        if getattr(module, "max_norm", None) or getattr(module, "scale_grad_by_freq", False):
            raise NotImplementedError(f"{style}: {name!r} has max_norm or scale_grad_by_freq")
        for parameter, slicing in self.slicings(module).items():
            found = _parameter(module, parameter)
            if found is not None and found.shape[slicing.dim] % (ranks * slicing.blocks):
                blocks = "" if slicing.blocks == 1 else f" in {slicing.blocks} blocks"
                raise ValueError(
                    f"{style}: dimension {slicing.dim} of {name}.{parameter} "
                    f"{tuple(found.shape)}{blocks} is not divisible by the {ranks} ranks of the "
                    "mesh"
                )

    def convert(self, module: Module, group: Any) -> None:
        """Make the layer, whose parameters have been divided, one that communicates."""
        module.__class__ = self.classes[type(module)]
        vars(module)["_group"] = group
        given = (self.input_layouts, self.output_layouts)
        module.layouts = tuple(
            default if layout is None else layout for layout, default in zip(given, module.layouts)
        )


class ColwiseParallel(ParallelStyle):
    """Each rank has some output features of a Linear, or some columns of an Embedding.

    input_layouts: Replicate() (default), or Shard(dim): the parts are gathered first.
    output_layouts: Shard(-1) (default), or Replicate(): the parts are gathered.
    blocks: the output features are so many blocks (3: query, key and value in one Linear), each of
        which is divided; torch has no such argument.
    """

    classes: ClassVar = {Linear: ColumnLinear, Embedding: ColumnEmbedding}

    def __init__(self, *, blocks: int = 1, **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(blocks, int) or blocks < 1:
            raise ValueError(f"ColwiseParallel: expected blocks >= 1, got {blocks!r}")
        self.blocks = blocks

    def slicings(self, module: Module) -> dict[str, Slicing]:
        if isinstance(module, Embedding):
            return {"weight": Slicing(1, self.blocks)}
        return dict.fromkeys(("weight", "bias"), Slicing(0, self.blocks))


class RowwiseParallel(ParallelStyle):
    """Each rank has some input features of a Linear, or some rows of an Embedding, and the results
    are added up. The bias is whole on every rank.

    input_layouts: of a Linear Shard(-1) (default), or Replicate(): each rank takes its part.
    output_layouts: Replicate() (default), or Shard(dim): each rank gets a part of the sum.
    """

    classes: ClassVar = {Linear: RowLinear, Embedding: RowEmbedding}

    def slicings(self, module: Module) -> dict[str, Slicing]:
        return {"weight": Slicing(0 if isinstance(module, Embedding) else 1)}


class HeadwiseParallel(ParallelStyle):
    """Each rank has some heads of an `nn.MultiheadAttention`: its projections are divided by
    columns, `out_proj` by rows. Input and output are whole. (torch has no style for this module.)
    """

    classes: ClassVar = {MultiheadAttention: HeadwiseAttention}

    def __init__(self) -> None:
        super().__init__()

    def slicings(self, module: Module) -> dict[str, Slicing]:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        return {
            **dict.fromkeys(("in_proj_weight", "in_proj_bias"), Slicing(0, 3)),
            **dict.fromkeys(names, Slicing(0)),
            **dict.fromkeys(("bias_k", "bias_v"), Slicing(2)),
            "out_proj.weight": Slicing(1),
        }

    def check(self, name: str, module: Module, ranks: int) -> None:
        super().check(name, module, ranks)
        if module.num_heads % ranks:
            raise ValueError(
                f"HeadwiseParallel: the {module.num_heads} heads of {name!r} are not divisible by "
                f"the {ranks} ranks of the mesh"
            )

    def convert(self, module: Module, group: Any) -> None:
        super().convert(module, group)
        module.num_heads //= group.size


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide the layers that a plan names among the ranks of a mesh of one dimension; returns
    `module`, changed in place. All ranks call it.

    parallelize_plan: a style for `module` itself, or names of submodules with their styles; `*`
        and `?` stand for parts of a name between dots ("layers.*.mlp.0").
    src_data_rank: the rank of the mesh whose parameters are divided; None: each rank divides its
        own, which are the same.

    Raises ValueError for sizes that cannot be divided, before anything is changed or sent.
    """
    group, mesh = _group(device_mesh)
    steps = list(_resolved(module, parallelize_plan))
    for name, layer, style in steps:
        style.check(name, layer, group.size)
    _refuse_half_tied(module, steps)
    made: dict[int, tuple[Parameter, Parameter]] = {}  # tied parameters stay tied
    for _, layer, style in steps:
        for name, slicing in style.slicings(layer).items():
            _divide(layer, name, slicing, group, mesh, src_data_rank, made)
        style.convert(layer, group)
    return module


def _group(mesh: DeviceMesh | None) -> tuple[Any, Any]:
    """(the group, what `dist.broadcast` takes for it)."""
    if mesh is not None and mesh.ndim != 1:
        raise ValueError(
            f"parallelize_module: expected a mesh of 1 dimension, got {mesh.ndim}; pick one by its "
            'name: mesh["tp"]'
        )
    given = None if mesh is None else mesh.get_group()
    return resolve(given), given


def _resolved(module: Module, plan: Any) -> Iterator[tuple[str, Module, ParallelStyle]]:
    """(name, layer, style) for each layer that a plan names."""
    if isinstance(plan, ParallelStyle):
        yield "", module, plan
        return
    if not isinstance(plan, dict):
        raise TypeError(
            "Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
            f"{type(plan)} found!"
        )
    names = dict(module.named_modules())
    for pattern, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(f"parallelize_module: expected a ParallelStyle, got {style!r}")
        parts = pattern.split(".")
        found = [
            name
            for name in names
            if len(atoms := name.split(".")) == len(parts)
            and all(map(fnmatch.fnmatchcase, atoms, parts))
        ]
        if not found:
            warnings.warn(
                f"parallelize_module: no submodule has the name {pattern!r}", stacklevel=3
            )
        for name in found:
            yield name, names[name], style


def _refuse_half_tied(module: Module, steps: list[tuple[str, Module, ParallelStyle]]) -> None:
    """ValueError for a parameter of several layers that are not all divided in the same way."""
    ways: dict[int, list[Slicing]] = {}
    names: dict[int, str] = {}
    for name, layer, style in steps:
        for parameter, slicing in style.slicings(layer).items():
            found = _parameter(layer, parameter)
            if found is not None:
                ways.setdefault(id(found), []).append(slicing)
                names[id(found)] = f"{name}.{parameter}".lstrip(".")
    held = [id(p) for owner in module.modules() for p in owner._parameters.values()]
    for key, slicings in ways.items():
        if len(set(slicings)) > 1 or held.count(key) != len(slicings):
            raise ValueError(
                f"parallelize_module: {names[key]} is shared by layers that are not all divided in "
                "the same way; give all of them a style that divides it alike"
            )


def _place(module: Module, name: str) -> tuple[Module, str]:
    """The module that has a parameter, and its name there."""
    path, _, last = name.rpartition(".")
    return module.get_submodule(path), last


def _parameter(module: Module, name: str) -> Parameter | None:
    owner, last = _place(module, name)
    return owner._parameters.get(last)


def _divide(
    module: Module,
    name: str,
    slicing: Slicing,
    group: Any,
    mesh: Any,
    source: int | None,
    made: dict[int, tuple[Parameter, Parameter]],
) -> None:
    """Put this rank's part in the place of a parameter."""
    owner, last = _place(module, name)
    whole = owner._parameters.get(last)
    if whole is None:
        return
    if id(whole) not in made:
        if source is not None:
            with minigrad.no_grad():
                dist.broadcast(whole.detach(), dist.get_global_rank(mesh, source), mesh)
        part = slicing.part(whole._array, group.rank, group.size)
        # The whole one is kept, so that its id is not given to another.
        made[id(whole)] = (whole, Parameter(wrap(part), whole.requires_grad))
    owner._parameters[last] = made[id(whole)][1]
    vars(owner).setdefault("_divided", {})[last] = (slicing, group)


# --- the parts as a whole


def _divided(module: Module) -> Iterator[tuple[str, Parameter, Slicing, Any]]:
    """(name, this rank's part, how it is divided, the group) of each divided parameter."""
    for prefix, owner in module.named_modules():
        for last, (slicing, group) in vars(owner).get("_divided", {}).items():
            name = f"{prefix}.{last}" if prefix else last
            part = owner._parameters[last]
            if part is not None:
                yield name, part, slicing, group


def full_state_dict(module: Module) -> dict[str, Any]:
    """`state_dict()` of the module before it was divided, on every rank. All ranks call it."""
    state = module.state_dict()
    for name, part, slicing, group in _divided(module):
        array = array_module(part._array).ascontiguousarray(part._array)
        parts = array_module(array).empty((group.size, *array.shape), array.dtype)
        group.all_gather(parts, array).wait()
        state[name] = wrap(slicing.whole(parts))
    return state


def load_full_state_dict(module: Module, state_dict: Any, strict: bool = True) -> Any:
    """Load what `full_state_dict` gives, or the `state_dict()` of an undivided module: each rank
    takes its parts. Raises what `load_state_dict` raises."""
    state = dict(state_dict)
    for name, part, slicing, group in _divided(module):
        if name not in state:
            continue
        array, blocks = state[name]._array, group.size * slicing.blocks
        expected = list(part.shape)
        expected[slicing.dim] *= group.size
        if list(array.shape) != expected or array.shape[slicing.dim] % blocks:
            raise RuntimeError(
                f"load_full_state_dict: size mismatch for {name}: expected the whole parameter "
                f"{expected}, got {list(array.shape)}"
            )
        state[name] = wrap(slicing.part(array, group.rank, group.size))
    return module.load_state_dict(state, strict)


def clip_grad_norm_(module: Module, max_norm: float) -> Tensor:
    """`nn.utils.clip_grad_norm_` of a module with divided layers: the norm, which it returns, is
    that of the whole gradients, so that all ranks scale alike. All ranks call it."""
    groups = {id(part): group for _, part, _, group in _divided(module)}
    if len({id(group) for group in groups.values()}) > 1:
        raise NotImplementedError("clip_grad_norm_: layers of several meshes; clip them one by one")
    with minigrad.no_grad():
        grads = [(id(p) in groups, p.grad) for p in module.parameters() if p.grad is not None]
        squares = [minigrad.zeros((), dtype=minigrad.float64) for _ in range(2)]
        for is_divided, grad in grads:
            squares[is_divided] += (grad.double() ** 2).sum().to(squares[0].device)
        for group in list(groups.values())[:1]:
            group.all_reduce(squares[1]._array, "SUM").wait()
        norm = (squares[0] + squares[1]).sqrt()
        scale = min(max_norm / (norm.item() + 1e-6), 1.0)
        for _, grad in grads:
            grad.mul_(scale)
    return norm.float()


__getattr__, __dir__ = namespace(__name__)
