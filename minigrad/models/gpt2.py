"""GPT-2: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.

Parameters have the names and shapes of the common files (`transformer.h.0.attn.c_attn.weight`): as
in those, the weights of the linear layers in a block are stored transposed, (inputs, outputs).
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import minigrad
from minigrad import nn
from minigrad.models.sampling import sample
from minigrad.nn import functional as F
from minigrad.tensor import Tensor


@dataclass
class GPT2Config:
    """The sizes of a network; the defaults are those of the smallest published one."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None  # of the wide layer in a block, by default 4 n_embd
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ValueError(
                f"GPT2Config: n_embd ({self.n_embd}) must be a multiple of n_head ({self.n_head})"
            )

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> GPT2Config:
        """Of a published `config.json`."""
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content.get("activation_function", "gelu_new") != "gelu_new":
            raise ValueError(
                f"{path}: expected the activation gelu_new, got {content['activation_function']}"
            )
        return cls(**{f.name: content[f.name] for f in fields(cls) if f.name in content})


class Conv1D(nn.Module):
    """A linear layer whose weight is (inputs, outputs)."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(minigrad.empty(inputs, outputs))
        self.bias = nn.Parameter(minigrad.zeros(outputs))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) to (..., outputs)."""
        return F.linear(x, self.weight.T, self.bias)


class Attention(nn.Module):
    """Causal self-attention of `n_head` heads."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        width = config.n_embd
        self.c_attn, self.c_proj = Conv1D(3 * width, width), Conv1D(width, width)
        self.heads, self.dropout = config.n_head, config.attn_pdrop
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        """x (N, T, width) to the same shape."""
        n, t, width = x.shape
        parts = self.c_attn(x).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(n, t, width)))


class MLP(nn.Module):
    """Two linear layers, with the approximation of GELU by tanh between."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        inner = config.n_inner or 4 * config.n_embd
        self.c_fc, self.c_proj = Conv1D(inner, config.n_embd), Conv1D(config.n_embd, inner)
        self.dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., width) to the same shape."""
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class Block(nn.Module):
    """Attention and two linear layers, each on the layer norm of its input, which is added."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """x (N, T, width) to the same shape."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


def _names_of_files(
    model: nn.Module, state: MutableMapping[str, Any], prefix: str, *rest: Any
) -> None:
    """Before a load: the names of the file become those of the model.

    Files have the prefix `transformer.` or not, causal masks (`h.0.attn.bias`), which are no
    parameters, and `lm_head.weight`, which is `wte.weight`, or not.
    """
    body, head = f"{prefix}transformer.", f"{prefix}lm_head.weight"
    has_head = isinstance(model, GPT2LMHeadModel)
    for name in [name for name in state if name.startswith(prefix)]:
        short = name.removeprefix(body if name.startswith(body) else prefix)
        if short.endswith((".attn.bias", ".attn.masked_bias")):
            del state[name]
        elif short.startswith(("h.", "wte.", "wpe.", "ln_f.")):
            state[(body if has_head else prefix) + short] = state.pop(name)
        elif name == head and not has_head:
            del state[name]
    if has_head and head not in state and f"{body}wte.weight" in state:
        state[head] = state[f"{body}wte.weight"]


class GPT2Model(nn.Module):
    """Tokens (N, T) to their representations (N, T, n_embd)."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        for embedding in (self.wte, self.wpe):
            nn.init.normal_(embedding.weight, std=config.initializer_range)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.register_load_state_dict_pre_hook(_names_of_files)

    def forward(self, input_ids: Tensor) -> Tensor:
        """The output of the last block, normalised."""
        count = input_ids.shape[1]
        if count > self.config.n_positions:
            raise ValueError(
                f"GPT2Model: expected at most {self.config.n_positions} tokens (n_positions), got "
                f"{count}"
            )
        places = minigrad.arange(count, device=input_ids.device)
        x = self.drop(self.wte(input_ids) + self.wpe(places))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT2LMHeadModel(nn.Module):
    """Tokens (N, T) to the scores of each next token (N, T, vocab_size).

    The head's weight is that of the embedding. `load_state_dict` takes the common files, with the
    prefix `transformer.` or without.

    >>> import minigrad
    >>> config = minigrad.models.GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)
    >>> model = minigrad.models.GPT2LMHeadModel(config)
    >>> model(minigrad.tensor([[3, 1, 4, 1]])).shape
    minigrad.Size([1, 4, 20])
    """

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.transformer = GPT2Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self.register_load_state_dict_pre_hook(_names_of_files)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike) -> GPT2LMHeadModel:
        """The network in a folder with `config.json` and `model.safetensors` or
        `pytorch_model.bin`, as published."""
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(
                f"GPT2LMHeadModel: there is no {folder / 'config.json'}; expected a folder with it "
                "and model.safetensors, downloaded before"
            )
        model = cls(GPT2Config.from_file(folder / "config.json"))
        file = folder / "model.safetensors"
        state = (
            minigrad.safetensors.load_file(file)
            if file.exists()
            else minigrad.load(folder / "pytorch_model.bin", map_location="cpu")
        )
        model.load_state_dict(state)
        model.eval()
        return model

    def forward(self, input_ids: Tensor) -> Tensor:
        """The scores of each next token."""
        return self.lm_head(self.transformer(input_ids))

    @minigrad.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
    ) -> Tensor:
        """input_ids (N, T) followed by sampled tokens. temperature: 0 takes the likeliest ones;
        top_k: of so many likeliest ones only."""
        for _ in range(max_new_tokens):
            seen = input_ids[:, -self.config.n_positions :]
            following = sample(self(seen)[:, -1], temperature, top_k)
            input_ids = minigrad.cat([input_ids, following], 1)
        return input_ids
