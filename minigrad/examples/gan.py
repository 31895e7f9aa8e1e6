"""A DCGAN (Radford et al. 2016): a generator learns to draw discs that the discriminator takes for
those of the data."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn

SIZE = 16  # of the images, 1 x 16 x 16, -1 to 1


def discs(count: int) -> torch.Tensor:
    """Images with a bright disc of radius 4 to 6, near the middle."""
    place = torch.arange(SIZE).float()
    x, y = (7.5 + 2 * torch.rand(2, count, 1, 1) - 1).unbind()
    radius = 4 + 2 * torch.rand(count, 1, 1)
    distance = ((place - x) ** 2 + (place[:, None] - y) ** 2).sqrt()
    return ((radius - distance).clamp(-1, 1)).unsqueeze(1)


def generator(noise: int, width: int) -> nn.Module:
    """Noise (N, noise, 1, 1) to images."""
    return nn.Sequential(
        nn.ConvTranspose2d(noise, 2 * width, 4, 1, 0, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(True),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(True),
        nn.ConvTranspose2d(width, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def discriminator(width: int) -> nn.Module:
    """Images to a logit each: how sure it is that they are of the data."""
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(2 * width, 1, 4, 1, 0, bias=False),
        nn.Flatten(0),
    )


def start(module: nn.Module) -> None:
    """The initial weights of the paper."""
    name = type(module).__name__
    if "Conv" in name:
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def difference(images: torch.Tensor, data: torch.Tensor) -> float:
    """The mean absolute difference of the mean images."""
    return (images.mean(0) - data.mean(0)).abs().mean().item()


def main(steps: int = 200, width: int = 16, batch: int = 32) -> tuple[float, float]:
    """How far the mean generated image is from that of the data, at the start and at the end."""
    torch.manual_seed(0)
    noise = 16
    netG, netD = generator(noise, width).apply(start), discriminator(width).apply(start)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    real_label, fake_label = torch.ones(batch), torch.zeros(batch)
    fixed = torch.randn(64, noise, 1, 1)
    with torch.no_grad():
        before = difference(netG(fixed), discs(256))
    for step in range(steps):
        netD.zero_grad()
        lossD = criterion(netD(discs(batch)), real_label)
        fake = netG(torch.randn(batch, noise, 1, 1))
        lossD = lossD + criterion(netD(fake.detach()), fake_label)
        lossD.backward()
        optimizerD.step()
        netG.zero_grad()
        lossG = criterion(netD(fake), real_label)
        lossG.backward()
        optimizerG.step()
        if step % 50 == 0:
            print(f"step {step:3d}  discriminator {lossD:.3f}  generator {lossG:.3f}")
    with torch.no_grad():
        images = netG(fixed)
        after = difference(images, discs(256))
    print(f"difference of the mean images {before:.3f} -> {after:.3f}")
    for row in images[0, 0, ::2].tolist():
        print("".join(" .:*#"[int(2.49 * (value + 1))] * 2 for value in row[::1]))
    return before, after


if __name__ == "__main__":
    main()
