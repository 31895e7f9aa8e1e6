"""Deep Q-learning (Mnih et al. 2015) with a replay memory and a target network: walk to the goal in
a room with a wall that has one gap."""

from __future__ import annotations

import random
from collections import deque, namedtuple

import minigrad as torch
from minigrad import nn
from minigrad.nn import functional as F

Transition = namedtuple("Transition", "state action reward next_state running")


class Room:
    """Places (row, column) of a square; the start is top left, the goal top right."""

    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self, size: int) -> None:
        self.size, self.goal = size, (0, size - 1)
        middle = size // 2
        self.wall = {(row, middle) for row in range(size - 1)}  # the gap is at the bottom
        self.shortest = 2 * (size - 1) + size - 1

    def state(self) -> torch.Tensor:
        row, column = self.place
        return F.one_hot(torch.tensor(row * self.size + column), self.size**2).float()

    def reset(self) -> torch.Tensor:
        self.place = (0, 0)
        return self.state()

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        row, column = (a + b for a, b in zip(self.place, self.moves[action], strict=True))
        inside = 0 <= row < self.size and 0 <= column < self.size
        if inside and (row, column) not in self.wall:
            self.place = (row, column)
        done = self.place == self.goal
        return self.state(), 0.0 if done else -1.0, done


def main(episodes: int = 120, size: int = 4) -> tuple[list[int], int]:
    """The number of moves of each episode, the last without exploring, and the fewest possible."""
    torch.manual_seed(0)
    rng, room = random.Random(0), Room(size)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(size**2, 32), nn.ReLU(), nn.Linear(32, len(room.moves)))

    policy, target = network(), network()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3, amsgrad=True)
    memory: deque[Transition] = deque(maxlen=1000)
    moves = []
    for episode in range(episodes):
        explore = 0.0 if episode == episodes - 1 else max(0.05, 1 - 2 * episode / episodes)
        state, done, count = room.reset(), False, 0
        while not done and count < 60:
            if rng.random() < explore:
                action = rng.randrange(len(room.moves))
            else:
                with torch.no_grad():
                    action = policy(state).argmax().item()
            following, reward, done = room.step(action)
            memory.append(Transition(state, action, reward, following, not done))
            state, count = following, count + 1
            if len(memory) >= 64:
                learn(policy, target, optimizer, rng.sample(memory, 32))
        moves.append(count)
        if episode % 20 == 0 or episode == episodes - 1:
            print(f"episode {episode:3d}  moves {count}  of at least {room.shortest}")
    return moves, room.shortest


def learn(policy: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, batch: list):
    """One step of the policy towards rewards and the target network's values."""
    states, actions, rewards, following, running = zip(*batch, strict=True)
    values = policy(torch.stack(states)).gather(1, torch.tensor(actions).unsqueeze(1))
    with torch.no_grad():
        best = target(torch.stack(following)).max(1).values
        expected = torch.tensor(rewards) + 0.95 * best * torch.tensor(running)
    loss = F.smooth_l1_loss(values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(target.parameters(), policy.parameters(), strict=True):
            old.lerp_(new, 0.02)


if __name__ == "__main__":
    main()
