"""A convolutional network for images of 28 x 28, with batches from a DataLoader with pin_memory."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn
from minigrad.nn import functional as F
from minigrad.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions, two linear layers."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 7 * 7, 64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a bright bar in one of 10 places, and the number of that place."""
    labels = torch.randint(0, 10, (count,))
    x = 0.3 * torch.randn(count, 1, 28, 28)
    for i, label in enumerate(labels.tolist()):
        x[i, 0, 2 * label + 3 : 2 * label + 6] += 1.0
    return x, labels


def main(count: int = 1024, epochs: int = 3) -> tuple[list[float], float]:
    """The mean loss of each epoch, and the accuracy on new images."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(*images(count)), 32, shuffle=True, pin_memory=True)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
        print(f"epoch {epoch}  loss {losses[-1]:.4f}")
    model.eval()
    with torch.no_grad():
        x, y = images(200)
        accuracy = (model(x.to(device)).argmax(1).cpu() == y).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    return losses, accuracy


if __name__ == "__main__":
    main()
