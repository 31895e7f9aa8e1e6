"""VGG16 with frozen features and a new head, on small images of four colours of noise.

`python -m minigrad.examples.vgg16_transfer vgg16-397923af.pth` takes the published weights, from a
file that was downloaded before. Without one the features are as they are drawn, and still separate
these images.
"""

from __future__ import annotations

import sys

import minigrad as torch
from minigrad import models, nn
from minigrad.nn import functional as F
from minigrad.utils.data import DataLoader, TensorDataset
from minigrad.vision import transforms


def network(weights: str | None, classes: int, cfg: str = "D") -> models.VGG:
    """VGG16 (configuration D) whose features do not train, with two linear layers for its three."""
    with torch.device("meta"):  # 138 million parameters: no memory for those that are replaced
        model = models.vgg16()
    if weights is None:
        model.features = models.vgg.make_layers(models.vgg.cfgs[cfg])
        for layer in model.features:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)
    else:
        model.load_state_dict(torch.load(weights, map_location="cpu"), assign=True)
    for parameter in model.features.parameters():
        parameter.requires_grad = False
    model.avgpool = nn.AdaptiveAvgPool2d((1, 1))
    model.classifier = nn.Sequential(
        *(nn.BatchNorm1d(512, momentum=0.5), nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.2)),
        nn.Linear(64, classes),
    )
    return model


def images(count: int, classes: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise (count, 3, size, size) in [0, 1], brighter in the channels of its class."""
    labels = torch.arange(count) % classes
    x = 0.5 * torch.rand(count, 3, size, size)
    for bit in range(2):
        x[:, bit] += 0.5 * ((labels >> bit) & 1).float().view(-1, 1, 1)
    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return normalize(x), labels


def main(
    weights: str | None = None, count: int = 96, size: int = 32, epochs: int = 5, cfg: str = "D"
) -> tuple[list[float], float]:
    """The mean loss of each epoch, and the accuracy on new images."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network(weights, 4, cfg).to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    frozen = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in trained)
    print(f"{sum(p.numel() for p in trained)} parameters train, {frozen} do not")
    optimizer = torch.optim.Adam(trained, lr=3e-3)
    loader = DataLoader(TensorDataset(*images(count, 4, size)), 16, shuffle=True)
    losses = []
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
        print(f"epoch {epoch}  loss {losses[-1]:.4f}")
    model.eval()
    with torch.no_grad():
        x, y = images(32, 4, size)
        accuracy = (model(x.to(device)).argmax(1).cpu() == y).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    return losses, accuracy


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
