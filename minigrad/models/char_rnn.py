"""A recurrent network that predicts the next character of a text."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad import nn
from minigrad.models.sampling import sample
from minigrad.tensor import Tensor

_LAYERS: dict[str, type[nn.Module]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class CharRNN(nn.Module):
    """Characters (N, T) as numbers below `vocabulary` to scores (N, T, vocabulary).

    Its parts are `encoder` (an embedding), `rnn` and `decoder` (a linear layer).

    >>> import minigrad
    >>> model = minigrad.models.CharRNN(5, hidden_size=8)
    >>> scores, state = model(minigrad.tensor([[0, 3, 1]]))
    >>> scores.shape
    minigrad.Size([1, 3, 5])
    """

    def __init__(
        self,
        vocabulary: int,
        hidden_size: int = 128,
        num_layers: int = 2,
        rnn: str = "lstm",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if rnn not in _LAYERS:
            raise ValueError(f"CharRNN: expected rnn to be one of {[*_LAYERS]}, got {rnn!r}")
        self.encoder = nn.Embedding(vocabulary, hidden_size)
        self.rnn = _LAYERS[rnn](
            hidden_size, hidden_size, num_layers, batch_first=True, dropout=dropout
        )
        self.decoder = nn.Linear(hidden_size, vocabulary)

    def forward(self, input: Tensor, hidden: Any = None) -> tuple[Tensor, Any]:
        """The scores of each next character, and the state after the last one."""
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output), hidden

    @minigrad.no_grad()
    def generate(
        self, prompt: Tensor, count: int, temperature: float = 1.0, top_k: int | None = None
    ) -> Tensor:
        """prompt (N, T) followed by `count` sampled characters; see `sample` for the others."""
        found, hidden = [prompt], None
        for _ in range(count):
            scores, hidden = self(found[-1], hidden)
            found.append(sample(scores[:, -1], temperature, top_k))
        return minigrad.cat(found, 1)
