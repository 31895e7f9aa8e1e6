"""The training loop with autocast and GradScaler, on a GPU in float16, else in bfloat16."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn


def main(steps: int = 100) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler(device)
    x = torch.randn(128, 16, device=device)
    y = (x[:, :4].abs()).argmax(1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device_type=device):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        if step % 25 == 0:
            print(f"step {step:3d}  loss {losses[-1]:.4f}  scale {scaler.get_scale():.0f}")
    return losses


if __name__ == "__main__":
    main()
