"""RNN(64), LSTM(64) and GRU(64) over (batch, time, 10): which half of a sequence has the larger sum
of its first input."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn


class Classifier(nn.Module):
    """A recurrent layer, and a linear layer on its last output."""

    def __init__(self, layer: type[nn.Module], hidden: int) -> None:
        super().__init__()
        self.rnn = layer(10, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _ = self.rnn(x)
        return self.head(output[:, -1])


def main(steps: int = 100, hidden: int = 64, time: int = 20) -> dict[str, tuple[float, float]]:
    """The first and the last loss of each kind of layer."""
    found = {}
    for layer in (nn.RNN, nn.LSTM, nn.GRU):
        torch.manual_seed(0)
        model = Classifier(layer, hidden)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        losses = []
        for _ in range(steps):
            x = torch.randn(64, time, 10)
            halves = x[:, :, 0].reshape(64, 2, -1).sum(2)
            loss = nn.functional.cross_entropy(model(x), halves.argmax(1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        found[layer.__name__] = losses[0], losses[-1]
        print(f"{layer.__name__:4s}  loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    return found


if __name__ == "__main__":
    main()
