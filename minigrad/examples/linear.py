"""A linear regressor with SGD: 32 rows of 10 inputs."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn


def main(epochs: int = 200) -> list[float]:
    """The loss of each epoch."""
    torch.manual_seed(0)
    x = torch.randn(32, 10)
    y = x @ torch.randn(10, 1) + 0.5
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(epochs):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if epoch % 50 == 0:
            print(f"epoch {epoch:3d}  loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
