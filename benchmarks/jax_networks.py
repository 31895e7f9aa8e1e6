"""The networks of `benchmarks.compiled` as jitted training steps of JAX, with Adam."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def linear(x, weights: dict, name: str):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def mlp(weights: dict, x):
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(linear(x, weights, "1"))
    x = jax.nn.relu(linear(x, weights, "3"))
    return linear(x, weights, "5")


def cnn(weights: dict, x):
    for number in (0, 3, 6):
        kernel, order = weights[f"{number}.weight"], ("NCHW", "OIHW", "NCHW")
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=order)
        x = jax.nn.relu(x + weights[f"{number}.bias"][:, None, None])
        if number < 6:
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(x.shape[0], -1)
    return linear(jax.nn.relu(linear(x, weights, "9")), weights, "11")


def step_of(forward: Callable, shape: tuple[int, ...]) -> Callable:
    """make(networks, weights) -> a step: loss, gradients and update in one jitted function."""

    def make(networks: ModuleType, arrays: dict[str, np.ndarray]) -> Callable:
        x = jnp.asarray(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
        y = jnp.asarray(np.random.default_rng(1).integers(0, 10, shape[0]))

        def loss_of(weights):
            scores = jax.nn.log_softmax(forward(weights, x))
            return -jnp.take_along_axis(scores, y[:, None], 1).mean()

        @partial(jax.jit, donate_argnums=0)
        def update(state):
            weights, mean, square, count = state
            loss, grads = jax.value_and_grad(loss_of)(weights)
            count = count + 1
            every = jax.tree.map
            mean = every(lambda m, g: BETA1 * m + (1 - BETA1) * g, mean, grads)
            square = every(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, square, grads)
            root = jnp.sqrt(1 - BETA2**count)
            rate = networks.RATE / (1 - BETA1**count)
            weights = every(
                lambda w, m, v: w - rate * m / (jnp.sqrt(v) / root + EPS), weights, mean, square
            )
            return (weights, mean, square, count), loss

        weights = {name: jnp.asarray(w) for name, w in arrays.items()}
        zeros = [{name: jnp.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
        state = [(weights, *zeros, jnp.float32(0))]

        def step():
            state[0], loss = update(state[0])
            return loss.block_until_ready()

        return step

    return make


STEPS = {
    "mlp 784-512-256-10, batch 128": step_of(mlp, (128, 1, 28, 28)),
    "cnn 8x8, batch 64": step_of(cnn, (64, 1, 8, 8)),
    "cnn 28x28, batch 32": step_of(cnn, (32, 1, 28, 28)),
}
