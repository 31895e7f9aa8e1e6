"""A variational auto-encoder (Kingma & Welling 2014): patterns of 64 bits in two numbers."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn
from minigrad.distributions import Normal, kl_divergence
from minigrad.nn import functional as F
from minigrad.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    """An encoder to the mean and the logarithm of the variance, and a decoder to logits."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 4))
        self.decoder = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Normal]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        posterior = Normal(mean, (0.5 * log_variance).exp())
        return self.decoder(posterior.rsample()), posterior


def patterns(count: int) -> torch.Tensor:
    """A vertical or horizontal bar of 8 x 8 pixels each, with 2% of the pixels flipped."""
    x = torch.zeros(count, 8, 8)
    for i, place in enumerate(torch.randint(0, 12, (count,)).tolist()):
        bar = slice(place % 6, place % 6 + 3)
        x[(i, bar) if place < 6 else (i, slice(None), bar)] = 1
    flips = torch.bernoulli(torch.full(x.shape, 0.02))
    return (x + flips).remainder(2).flatten(1)


def main(count: int = 1024, epochs: int = 15, hidden: int = 64) -> tuple[list[float], float]:
    """The mean loss of each epoch (nats per pattern), and the share of right pixels."""
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(patterns(count)), 32, shuffle=True)
    model, prior = VAE(hidden), Normal(torch.zeros(2), torch.ones(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(epochs):
        total = 0.0
        for (x,) in loader:
            logits, posterior = model(x)
            reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
            loss = (reconstruction + kl_divergence(posterior, prior).sum()) / len(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
        print(f"epoch {epoch:2d}  loss {losses[-1]:.2f}")
    model.eval()
    with torch.no_grad():
        x = patterns(200)
        right = ((model(x)[0] > 0).float() == x).float().mean().item()
        print(f"right pixels {right:.3f}; a sample of the prior:")
        sample = model.decoder(prior.sample((1,)))[0].reshape(8, 8) > 0
    print("\n".join("".join(".#"[pixel] for pixel in row) for row in sample.int().tolist()))
    return losses, right


if __name__ == "__main__":
    main()
