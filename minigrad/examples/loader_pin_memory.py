"""A DataLoader with worker processes and pin_memory: batches are made while the network trains, and
on a GPU they are copied beside its kernels.

Without a GPU pin_memory only gives a warning, as in torch.
"""

from __future__ import annotations

import time

import minigrad as torch
from minigrad import nn
from minigrad.nn import functional as F
from minigrad.utils.data import DataLoader, Dataset


class Waves(Dataset):
    """Noisy sines of three frequencies: samples are computed when they are asked for."""

    def __init__(self, count: int, length: int) -> None:
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = index % 3
        phase = 6.28 * torch.rand(1)
        x = torch.sin((label + 1) * 0.2 * torch.arange(self.length).float() + phase)
        return x + 0.3 * torch.randn(self.length), label


def main(count: int = 960, workers: int = 2, epochs: int = 3, length: int = 64) -> list[float]:
    """The accuracy in each epoch."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Waves(count, length),
        batch_size=32,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=workers > 0,
    )
    model = nn.Sequential(nn.Linear(length, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    found = []
    for epoch in range(epochs):
        started, hits = time.perf_counter(), 0
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            output = model(x)
            loss = F.cross_entropy(output, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (output.argmax(1) == y).sum().item()
        found.append(hits / count)
        seconds = time.perf_counter() - started
        print(f"epoch {epoch}  accuracy {found[-1]:.3f}  {count / seconds:.0f} samples per second")
    return found


if __name__ == "__main__":
    main()
