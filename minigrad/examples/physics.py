"""A physics-informed network (Raissi et al. 2019): the damped oscillator u'' + u' / 2 + u = 0 with
u(0) = 1 and u'(0) = 0, from the equation alone."""

from __future__ import annotations

import math

import minigrad as torch
from minigrad import nn

DAMPING, STIFFNESS, END = 0.5, 1.0, 6.0


def exact(t: torch.Tensor) -> torch.Tensor:
    """The solution, from the characteristic polynomial."""
    rate = DAMPING / 2
    frequency = math.sqrt(STIFFNESS - rate**2)
    return (-rate * t).exp() * ((frequency * t).cos() + rate / frequency * (frequency * t).sin())


def derivative(u: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """du/dt of each element, itself differentiable."""
    (found,) = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
    assert found is not None
    return found


def main(steps: int = 1000, width: int = 32, points: int = 40) -> tuple[list[float], float]:
    """The loss of each step, and the largest error of the solution."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1 ** (1 / steps))
    t = torch.linspace(0, END, points).unsqueeze(1).requires_grad_()
    losses = []
    for step in range(steps):
        u = 1 + t**2 * model(t)  # u(0) = 1 and u'(0) = 0 for every model
        first = derivative(u, t)
        residual = derivative(first, t) + DAMPING * first + STIFFNESS * u
        loss = (residual**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 200 == 0:
            print(f"step {step:4d}  loss {losses[-1]:.2e}")
    with torch.no_grad():
        error = (1 + t**2 * model(t) - exact(t)).abs().max().item()
    print(f"largest error {error:.4f}")
    return losses, error


if __name__ == "__main__":
    main()
