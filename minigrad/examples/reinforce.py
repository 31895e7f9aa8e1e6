"""REINFORCE (Williams 1992) with a Categorical policy: walk along a line to the goal at its end."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn
from minigrad.distributions import Categorical


def main(episodes: int = 150, length: int = 6) -> list[int]:
    """The number of moves of each episode."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(length, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    moves = []
    for episode in range(episodes):
        place, terms = 0, []
        while place < length - 1 and len(terms) < 50:
            state = nn.functional.one_hot(torch.tensor(place), length).float()
            choice = Categorical(logits=policy(state))
            action = choice.sample()
            terms.append(choice.log_prob(action))
            place = max(place + 2 * int(action) - 1, 0)
        returns = -torch.arange(len(terms), 0, -1).float()  # each move costs 1
        advantage = (returns - returns.mean()) / (returns.std() + 1e-6) + returns / 10
        loss = -(torch.stack(terms) * advantage).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moves.append(len(terms))
        if episode % 50 == 0:
            print(f"episode {episode:3d}  moves {moves[-1]}")
    return moves


if __name__ == "__main__":
    main()
