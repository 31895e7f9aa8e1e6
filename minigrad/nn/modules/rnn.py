"""Recurrent layers: RNN (Elman 1990), LSTM (Hochreiter & Schmidhuber 1997), GRU (Cho et al. 2014).

The input's part of all gates is one matrix product for all steps; the rest of the layer is one
operation, `minigrad.ops.recurrent`.
"""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import numpy as np

import minigrad
from minigrad.autograd.mode import mode
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.modules.module import Module
from minigrad.nn.parameter import Parameter
from minigrad.nn.utils.rnn import PackedSequence, padded_rows
from minigrad.ops.recurrent import recurrent, unrolled
from minigrad.ops.views import unshared
from minigrad.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


class RNNBase(Module):
    """Base of RNN, LSTM and GRU: parameters, checks, and the loop over layers and directions."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_options()
        self.dropout = float(dropout)
        self._suffixes = [
            f"_l{layer}{direction}"
            for layer in range(num_layers)
            for direction in (("", "_reverse") if bidirectional else ("",))
        ]
        for i, suffix in enumerate(self._suffixes):
            below = input_size if i < self._directions else self._width * self._directions
            for name, shape in self._shapes(below).items():
                value = minigrad.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name + suffix, Parameter(value))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _width(self) -> int:
        """Features of the state h."""
        return self.proj_size or self.hidden_size

    def _check_options(self) -> None:
        dropout, layers, hidden = self.dropout, self.num_layers, self.hidden_size
        number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
        if not number or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0 and layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={layers}",
                stacklevel=4,
            )
        kinds = dict(bias=bool, batch_first=bool, input_size=int, hidden_size=int)
        for name, wanted in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, wanted):
                raise TypeError(
                    f"{name} should be of type {wanted.__name__}, got: {type(value).__name__}"
                )
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= hidden:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {self.mode}")

    def _shapes(self, below: int) -> dict[str, tuple[int, ...]]:
        rows = _GATES[self.mode] * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, below),
            "weight_hh": (rows, self._width),
        }
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        return shapes

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list for each layer and direction."""
        names = list(self._shapes(0))
        return [[getattr(self, name + suffix) for name in names] for suffix in self._suffixes]

    def flatten_parameters(self) -> None:
        """Nothing to do: the kernels take the parameters where they are."""

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in ``+-1/sqrt(hidden_size)``."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            *(("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False)),
            *(("dropout", 0.0), ("bidirectional", False)),
        ):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    # ---------------------------------------------------------------- forward

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """(output, last states).

        Shapes: input (T, N, input_size), with `batch_first` (N, T, input_size), without a batch (T,
        input_size), or a `PackedSequence`; output the same with directions * width features; states
        (layers * directions, N, width), zeros by default, for LSTM the pair of h and c.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(
                f"{self._family}: Expected input to be 2D or 3D, got {input.dim()}D instead"
            )
        batched = input.dim() == 3
        self._check_states(hx, batched)
        if not batched:
            input = input.unsqueeze(1)
            hx = None if hx is None else self._each(hx, lambda s: s.unsqueeze(1))
        elif self.batch_first:
            input = input.transpose(0, 1)
        self._check_input(input)
        output, states = self._layers(input, self._first(input, input.shape[1], hx), None)
        if not batched:
            return output.squeeze(1), self._each(states, lambda s: s.squeeze(1))
        return (unshared(output.transpose(0, 1)) if self.batch_first else output), states

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        data, batch_sizes, order, back = input
        sizes = batch_sizes.numpy()
        steps, batch = len(sizes), int(sizes[0])
        if data.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {data.shape[-1]}"
            )
        if hx is not None and order is not None:
            hx = self._each(hx, lambda s: s.index_select(1, order))
        rows = minigrad.tensor(padded_rows(sizes.tolist()), device=data.device)
        there = np.flatnonzero(np.arange(batch) < sizes[:, None])
        padded = data.index_select(0, rows).reshape(steps, batch, -1)
        output, states = self._layers(padded, self._first(data, batch, hx), sizes)
        packed = output.reshape(steps * batch, -1)
        packed = packed.index_select(0, minigrad.from_numpy(there).to(data.device))
        if back is not None:
            states = self._each(states, lambda s: s.index_select(1, back))
        return PackedSequence(packed, batch_sizes, order, back), states

    @property
    def _family(self) -> str:
        return self.mode.partition("_")[0]

    def _each(self, hx: Any, function: Any) -> Any:
        """The function of h, or of h and c."""
        return tuple(map(function, hx)) if isinstance(hx, tuple | list) else function(hx)

    def _check_input(self, input: Tensor) -> None:
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.shape[-1]}"
            )
        if not input.shape[0]:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        own = self.weight_ih_l0.dtype
        if input.dtype != own and mode.autocast is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({own}). Convert "
                f"input: input.to({own}), or convert model: model.to({input.dtype})"
            )

    def _check_states(self, hx: Any, batched: bool) -> None:
        """The states have as many dimensions as the input."""
        if hx is None:
            return
        kind, wanted = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
        dims = [hx[0].dim(), hx[1].dim()] if self.mode == "LSTM" else [hx.dim()]
        if all(n == wanted for n in dims):
            return
        if len(dims) == 2:
            raise RuntimeError(
                f"For {kind} input, hx and cx should also be {wanted}-D but got "
                f"({dims[0]}-D, {dims[1]}-D) tensors"
            )
        raise RuntimeError(
            f"For {kind} input, hx should also be {wanted}-D but got {dims[0]}-D tensor"
        )

    def _state_sizes(self) -> tuple[int, ...]:
        """Features of each state."""
        return (self._width, self.hidden_size) if self.mode == "LSTM" else (self._width,)

    def _first(self, input: Tensor, batch: int, hx: Any) -> list[Tensor]:
        """The first states, (layers * directions, N, features) each, checked, or zeros."""
        count = self.num_layers * self._directions
        shapes = [(count, batch, size) for size in self._state_sizes()]
        if hx is None:
            kind: dict[str, Any] = {"dtype": input.dtype, "device": input.device}
            return [minigrad.zeros(shape, **kind) for shape in shapes]
        given = list(hx) if self.mode == "LSTM" else [hx]
        if len(given) != len(shapes):
            raise RuntimeError("lstm expects two hidden states")
        for i, (state, shape) in enumerate(zip(given, shapes)):
            if tuple(state.shape) != shape:
                which = f"hidden[{i}]" if len(shapes) == 2 else "hidden"
                raise RuntimeError(f"Expected {which} size {shape}, got {list(state.shape)}")
        return given

    def _layers(
        self, x: Tensor, first: list[Tensor], sizes: np.ndarray | None
    ) -> tuple[Tensor, Any]:
        """Output (T, N, directions * width) and last states of all layers and directions."""
        last: list[list[Tensor]] = [[] for _ in first]
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                number = layer * self._directions + direction
                output, states = self._run(x, number, [s[number] for s in first], sizes)
                outputs.append(output)
                for known, state in zip(last, states):
                    known.append(state)
            x = outputs[0] if len(outputs) == 1 else minigrad.cat(outputs, -1)
            if self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        stacked = tuple(minigrad.stack(states) for states in last)
        return x, stacked if self.mode == "LSTM" else stacked[0]

    def _run(
        self, x: Tensor, number: int, first: list[Tensor], sizes: np.ndarray | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Output (T, N, width) and last states (N, features) of one direction of one layer."""
        suffix = self._suffixes[number]
        parameter = {name: getattr(self, name + suffix) for name in self._shapes(0)}
        gates = F.linear(x, parameter["weight_ih"], parameter.get("bias_ih"))
        reverse = self.bidirectional and number % 2
        if reverse:
            gates, sizes = gates.flip(0), None if sizes is None else sizes[::-1].copy()
        one_operation = self.mode == "LSTM" and sizes is None and not self.proj_size
        if one_operation and mode.autocast is not None:  # which torch runs in 16 bits
            first = [state.to(gates.dtype) for state in first]
        kind = self.mode.rpartition("_")[2].lower()
        h, c = (*first, None)[:2]
        bias = parameter.get("bias_hh")
        given: tuple[Any, ...] = gates, parameter["weight_hh"], bias, h, c, kind, sizes
        if self.proj_size:
            states: Any = unrolled(*given, parameter["weight_hr"])
            output, last = states[0][1:], [s[-1] for s in states]
        else:
            states = recurrent(*given)
            output, last = states[0, 1:], [states[k, -1] for k in range(len(first))]
        output = unshared(output)  # of which the program gets copies otherwise
        return (output.flip(0) if reverse else output), last


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """The tensor in another order along a dimension."""
    return tensor.index_select(dim, permutation)


def _check_no_projection(proj_size: Any) -> None:
    if proj_size is not None:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu, over a sequence; see `RNNBase.forward`.

    Args:
        input_size, hidden_size: features of the input and of the state.
        num_layers: each takes the output of the one below; `dropout` acts between them.
        nonlinearity: "tanh" or "relu".
        batch_first: input and output are (N, T, features).
        bidirectional: a second set of layers reads the sequence backwards.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _check_no_projection(proj_size)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        options = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(f"RNN_{nonlinearity.upper()}", *options, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """c = f c + i g and h = o tanh(c), with gates i, f, o = sigmoid and g = tanh of W_ih x + b_ih +
    W_hh h + b_hh; see `RNN`. The states are (h, c). proj_size: h = W_hr h after each step (Sak et
    al. 2014), in plain operations."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__("LSTM", *options, proj_size, device, dtype)


class GRU(RNNBase):
    """h = (1 - z) n + z h with gates r, z = sigmoid of W_ih x + b_ih + W_hh h + b_hh and n =
    tanh(W_in x + b_in + r (W_hn h + b_hn)); see `RNN`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _check_no_projection(proj_size)
        options = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__("GRU", *options, device=device, dtype=dtype)


class RNNCellBase(Module):
    """Base of the cells: parameters, checks, and one step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        kind = {"device": device, "dtype": dtype}
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(minigrad.empty((rows, input_size), **kind))
        self.weight_hh = Parameter(minigrad.empty((rows, hidden_size), **kind))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(minigrad.empty(rows, **kind)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in ``+-1/sqrt(hidden_size)``."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _next(self, input: Tensor, hx: Any, mode: str) -> list[Tensor]:
        """The new states, (N, hidden_size) or without N."""
        if input.dim() not in (1, 2):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.dim()}D instead"
            )
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if input._array.shape[1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[1]} expected "
                f"{self.input_size}"
            )
        states = self._states(input, hx, batched, 2 if mode == "lstm" else 1)
        gates = F.linear(input, self.weight_ih, self.bias_ih).unsqueeze(0)
        h, c = (*states, None)[:2]
        found = recurrent(gates, self.weight_hh, self.bias_hh, h, c, mode)
        new = [unshared(found[k, 1]) for k in range(len(states))]
        return new if batched else [unshared(state.squeeze(0)) for state in new]

    def _states(self, input: Tensor, hx: Any, batched: bool, count: int) -> list[Tensor]:
        """The states before the step, (N, hidden_size), checked, or zeros."""
        name, shape = type(self).__name__, (input._array.shape[0], self.hidden_size)
        if hx is None:
            zeros = minigrad.zeros(shape, dtype=input.dtype, device=input.device)
            return [zeros] * count
        if count == 2 and isinstance(hx, Tensor):
            raise TypeError(
                "lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor"
            )
        given = list(hx) if count == 2 else [hx]
        for i, state in enumerate(given):
            if state.dim() not in (1, 2):
                which = f"hx[{i}]" if count == 2 else "hidden"
                raise ValueError(
                    f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead"
                )
        if len(given) != count:
            raise RuntimeError("lstm_cell expects two hidden states")
        states = [state if batched else state.unsqueeze(0) for state in given]
        for i, state in enumerate(states):
            _check_state(i, state, shape)
        return states


def _check_state(i: int, state: Tensor, shape: tuple[int, int]) -> None:
    """A cell's state has the batch size and the number of features."""
    if state._array.shape[0] != shape[0]:
        raise RuntimeError(
            f"Input batch size {shape[0]} doesn't match hidden{i} batch size {state.shape[0]}"
        )
    if state._array.shape[-1] != shape[1]:
        raise RuntimeError(
            f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected {shape[1]}"
        )


class RNNCell(RNNCellBase):
    """One step of `RNN`: input (N, input_size) and state (N, hidden_size) to the new state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._next(input, hx, self.nonlinearity)[0]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: input (N, input_size) and (h, c) to the new (h, c)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = self._next(input, hx, "lstm")
        return h, c


class GRUCell(RNNCellBase):
    """One step of `GRU`: input (N, input_size) and state (N, hidden_size) to the new state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._next(input, hx, "gru")[0]
