"""The states of all random generators that a run draws from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad


def get_state(loaders: Sequence[Any]) -> dict[str, Any]:
    """The states of `random`, `numpy.random`, minigrad, and the generators of loaders."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "minigrad": minigrad.get_rng_state(),
        "loader": [generator.get_state() for generator in _generators(loaders)],
    }


def set_state(state: dict[str, Any], loaders: Sequence[Any] | None) -> None:
    """Restore what `get_state` gave; without loaders, not their generators."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(tuple(state["numpy"]))
    minigrad.set_rng_state(state["minigrad"].cpu())
    if loaders is None:
        return
    generators = _generators(loaders)
    if len(generators) != len(state["loader"]):
        raise ValueError(
            f"fit: the checkpoint is of a run whose loaders had {len(state['loader'])} random "
            f"generators, these have {len(generators)}"
        )
    for generator, value in zip(generators, state["loader"]):
        generator.set_state(value.cpu())


def _generators(loaders: Sequence[Any]) -> list[minigrad.Generator]:
    """The generators of DataLoaders and their samplers, each once."""
    found = {}
    for loader in loaders:
        batches = getattr(loader, "batch_sampler", None)
        sampler, inner = getattr(loader, "sampler", None), getattr(batches, "sampler", None)
        for owner in (loader, sampler, batches, inner):
            generator = getattr(owner, "generator", None)
            if isinstance(generator, minigrad.Generator):
                found[id(generator)] = generator
    return list(found.values())
