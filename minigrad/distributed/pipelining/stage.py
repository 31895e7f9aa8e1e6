"""One stage of a pipeline: some layers of a network, the stages before and after on other ranks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

import minigrad
from minigrad.autograd import engine
from minigrad.backends import array_module, device_module
from minigrad.devices import device as Device
from minigrad.distributed.groups import resolve
from minigrad.distributed.mpi import Work
from minigrad.nn.modules.module import Module
from minigrad.tensor import Tensor, wrap

Tensors = tuple[Tensor, ...]


class PipelineStage:
    """`submodule` as stage `stage_index` of `num_stages`, one on each rank of `group`.

    Stages pass on a tensor or a tuple of tensors, of any shapes that are the same for all
    micro-batches. Gradients flow back through those with a floating dtype.

    device: where the tensors that arrive are. input_args, output_args: no effect; shapes come with
    the first micro-batch. Raises ValueError for a stage that is not this rank's, RuntimeError for
    a group of another size.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
        dw_builder: Any = None,
    ) -> None:
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage: dw_builder= is not available in minigrad")
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submodule, self.group = submodule, resolve(group)
        self.stage_index, self.num_stages = stage_index, num_stages
        self.device = Device(device)
        if self.group.size != num_stages:
            raise RuntimeError(
                f"PipelineStage: {num_stages} stages need a group of {num_stages} ranks, got "
                f"{self.group.size}: start the program with mpiexec -n {num_stages}, or pass group="
            )
        if self.group.rank != stage_index:
            raise ValueError(
                f"PipelineStage: stage {stage_index} belongs to rank {stage_index} of the group, "
                f"and this is rank {self.group.rank}"
            )
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._arriving: list[tuple[tuple[int, ...], str]] = []  # shapes and dtypes of inputs
        self._sent_shapes = False
        self._kept: dict[int, tuple[Tensors, Tensors]] = {}  # inputs and outputs until backward

    # ---------------------------------------------------------------- computing

    def begin(self) -> None:
        """Forget the last step: the next may have other shapes, or the last one failed."""
        self._sent_shapes, self._kept = False, {}
        self._arriving = []

    @property
    def alive(self) -> int:
        """For how many micro-batches this stage holds its graph."""
        return len(self._kept)

    def forward(self, number: int, args: tuple, kwargs: dict, keep: bool) -> Any:
        """The output for a micro-batch; `keep`: a backward pass follows."""
        with minigrad.set_grad_enabled(keep):
            output = self.submodule(*args, **kwargs)
        if keep:
            inputs = tuple(x for x in args if isinstance(x, Tensor))
            self._kept[number] = (inputs, _tuple(output, self.stage_index))
        return output

    def backward(self, number: int, grads: list[Any], loss: Tensor | None = None) -> list[Any]:
        """The gradients (arrays) of a micro-batch's inputs from those of its outputs, or of the
        loss; `grads` are arrays for the outputs with a floating dtype."""
        inputs, outputs = self._kept.pop(number)
        if loss is None:
            roots = [x for x in outputs if x.is_floating_point()]
            pairs = [(x, wrap(g)) for x, g in zip(roots, grads, strict=True) if x.requires_grad]
        else:
            pairs = [(loss, wrap(grads[0]))]
        if pairs:
            engine.backward([x for x, _ in pairs], [g for _, g in pairs])
        if self.is_first:
            return []
        xp = array_module(inputs[0]._array)
        return [
            xp.zeros_like(x._array) if x._grad is None else xp.ascontiguousarray(x._grad._array)
            for x in inputs
            if x.is_floating_point()
        ]

    # ---------------------------------------------------------------- sending

    def send_outputs(self, output: Any) -> list[Work]:
        """Begin to send a micro-batch to the next stage; shapes go before the first."""
        if self.is_last:
            return []
        outputs, works = _tuple(output, self.stage_index), []
        if not self._sent_shapes:
            said = [(tuple(x.shape), x._array.dtype.name) for x in outputs]
            works.append(self.group.send_bytes(pickle.dumps(said), self.stage_index + 1, 0))
            self._sent_shapes = True
        arrays = [array_module(x._array).ascontiguousarray(x._array) for x in outputs]
        return works + self._send(arrays, self.stage_index + 1)

    def send_grads(self, grads: list[Any]) -> list[Work]:
        """Begin to send the gradients of a micro-batch's inputs to the stage before."""
        return self._send(grads, self.stage_index - 1)

    def _send(self, arrays: list[Any], to: int) -> list[Work]:
        return [self.group.send(array, to, 0) for array in arrays]

    # ---------------------------------------------------------------- receiving

    def receive_shapes(self) -> None:
        """Wait for the shapes of what the stage before sends."""
        if not self._arriving and not self.is_first:
            self._arriving = pickle.loads(self.group.receive_bytes(self.stage_index - 1, 0))

    def receive_inputs(self, keep: bool) -> tuple[Tensors, list[Work]]:
        """(the inputs of the next micro-batch, to be filled; the works to wait for)."""
        if self.is_first:
            return (), []
        made = [wrap(self._empty(*one)) for one in self._arriving]
        for x in made:
            x.requires_grad = keep and x.is_floating_point()
        arrays = [x._array for x in made]
        return tuple(made), self._receive(arrays, self.stage_index - 1)

    def receive_grads(self, number: int) -> tuple[list[Any], list[Work]]:
        """(the gradients of a micro-batch's outputs, to be filled; the works to wait for)."""
        if self.is_last:
            return [], []
        outputs = [x for x in self._kept[number][1] if x.is_floating_point()]
        arrays = [array_module(x._array).empty(x.shape, x._array.dtype) for x in outputs]
        return arrays, self._receive(arrays, self.stage_index + 1)

    def _receive(self, arrays: list[Any], source: int) -> list[Work]:
        return [self.group.receive(array, source, 0)[0] for array in arrays]

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return device_module(self.device.type).empty(shape, np.dtype(dtype))


def _tuple(output: Any, stage: int) -> Tensors:
    outputs = output if isinstance(output, tuple | list) else (output,)
    for x in outputs:
        if not isinstance(x, Tensor):
            raise TypeError(
                f"PipelineStage: expected a tensor or a tuple of tensors from stage {stage}, got "
                f"{type(x).__name__}"
            )
    return tuple(outputs)
