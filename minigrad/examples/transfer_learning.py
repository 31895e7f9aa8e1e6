"""Transfer learning: a ResNet18 learns the direction of stripes; its weights go to a file, from
there into a network for their width, of which only the new head trains."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import minigrad as torch
from minigrad import models, nn
from minigrad.nn import functional as F
from minigrad.utils.data import DataLoader, TensorDataset


def stripes(count: int, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images (count, 3, size, size) of stripes in noise, their directions (0 to 3, steps of 45
    degrees) and their widths (0 or 1)."""
    direction, width = torch.arange(count) % 4, torch.arange(count) // 4 % 2
    angle = direction.float() * (math.pi / 4)
    place = torch.arange(size).float()
    across = angle.cos().view(-1, 1, 1) * place + angle.sin().view(-1, 1, 1) * place.view(-1, 1)
    wave = torch.sin(across * (0.8 + 0.8 * width.float()).view(-1, 1, 1))
    return wave.unsqueeze(1) + 0.3 * torch.randn(count, 3, size, size), direction, width


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float, epochs: int) -> float:
    """Train the parameters that are not frozen; the mean loss of the last epoch."""
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The share of images whose class is found."""
    device = next(model.parameters()).device
    return (model.eval()(x.to(device)).argmax(1).cpu() == y).float().mean().item()


def main(
    count: int = 128, size: int = 32, epochs: int = 4, blocks: Sequence[int] = (2, 2, 2, 2)
) -> tuple[list[str], list[str], float]:
    """The keys that the file lacked, the tensors that changed in training, and the accuracy.

    blocks: in each stage of the network; those of ResNet18 by default.
    """
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, direction, width = stripes(count, size)

    first = models.ResNet(models.BasicBlock, blocks, num_classes=4).to(device)
    print(f"direction: loss {train(first, x, direction, 1e-3, epochs):.4f}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet18.pth")
        torch.save(first.state_dict(), path)
        state = torch.load(path, map_location=device)

    with torch.device("meta"):  # no memory for what is loaded or replaced
        model = models.ResNet(models.BasicBlock, blocks)
    model.fc = nn.Linear(model.fc.in_features, 2, device=device)
    state = {name: value for name, value in state.items() if not name.startswith("fc.")}
    keys = model.load_state_dict(state, strict=False, assign=True)
    print(keys)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("fc.")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()  # the running means of the batch norms stay, too
    loss = train(model, x, width, 1e-2, 2 * epochs)
    changed = [n for n, value in model.state_dict().items() if not torch.equal(value, before[n])]
    test, _, wanted = stripes(64, size)
    found = accuracy(model, test, wanted)
    print(f"width: loss {loss:.4f}, accuracy {found:.3f}, changed: {', '.join(changed)}")
    return keys.missing_keys, changed, found


if __name__ == "__main__":
    main()
