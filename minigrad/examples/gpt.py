"""A small GPT on the characters of a text, and a sample of what it has learnt."""

from __future__ import annotations

import minigrad as torch
from minigrad import nn
from minigrad.nn import functional as F

TEXT = "the quick brown fox jumps over the lazy dog. " * 20


class Block(nn.Module):
    """Causal self-attention and two linear layers, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, width = x.shape
        parts = self.qkv(self.ln1(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Embeddings of characters and places, blocks, and a score for each next character."""

    def __init__(self, vocabulary: int, block: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.block = block
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        places = torch.arange(index.shape[1], device=index.device)
        return self.head(self.norm(self.blocks(self.tokens(index) + self.places(places))))

    @torch.no_grad()
    def generate(
        self, index: torch.Tensor, count: int, temperature: float = 1.0, top_k: int | None = None
    ) -> torch.Tensor:
        """index (N, T) with `count` sampled characters more, each one of the `top_k` likeliest."""
        for _ in range(count):
            logits = self(index[:, -self.block :])[:, -1] / temperature
            if top_k is not None:
                least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                logits = logits.masked_fill(logits < least, -torch.inf)
            index = torch.cat([index, torch.multinomial(logits.softmax(-1), 1)], 1)
        return index


def main(steps: int = 150, width: int = 64, layers: int = 2) -> tuple[list[float], str]:
    """The loss of each step, and a sample."""
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(c) for c in TEXT])
    model, block = GPT(len(letters), 32, layers, 4, width), 32
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        starts = torch.randint(0, len(data) - block - 1, (16,)).tolist()
        x = torch.stack([data[i : i + block] for i in starts])
        y = torch.stack([data[i + 1 : i + block + 1] for i in starts])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:3d}  loss {losses[-1]:.4f}")
    start = torch.tensor([[letters.index("t")]])
    sample = model.generate(start, 40, temperature=0.8, top_k=5)[0].tolist()
    text = "".join(letters[i] for i in sample)
    print(text)
    return losses, text


if __name__ == "__main__":
    main()
