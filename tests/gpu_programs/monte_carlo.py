"""Monte Carlo: pi, an Asian option and the Ising model, with random numbers on the device.

python monte_carlo.py --paths 100000
"""

import argparse
import math

import cupy as cp
import numpy as np
from numba import cuda, float64
from numba.cuda.random import (
    create_xoroshiro128p_states,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
)

THREADS = 64


@cuda.jit
def count_inside(states, iterations, out):
    thread = cuda.grid(1)
    if thread >= out.size:
        return
    inside = 0
    for _ in range(iterations):
        x = xoroshiro128p_uniform_float32(states, thread)
        y = xoroshiro128p_uniform_float32(states, thread)
        if x**2 + y**2 <= 1.0:
            inside += 1
    out[thread] = inside


@cuda.jit
def asian_option(states, payoffs, spot, strike, rate, volatility, years, steps):
    partial = cuda.shared.array(THREADS, float64)
    thread = cuda.grid(1)
    t = cuda.threadIdx.x
    dt = years / steps
    drift = (rate - 0.5 * volatility * volatility) * dt
    scale = volatility * math.sqrt(dt)
    price = spot
    total = 0.0
    for _ in range(steps):
        price *= math.exp(drift + scale * xoroshiro128p_normal_float64(states, thread))
        total += price
    partial[t] = max(total / steps - strike, 0.0)
    cuda.syncthreads()
    width = THREADS // 2
    while width > 0:
        if t < width:
            partial[t] += partial[t + width]
        cuda.syncthreads()
        width //= 2
    if t == 0:
        payoffs[cuda.blockIdx.x] = partial[0]


metropolis = cp.RawKernel(
    r"""
extern "C" __global__
void metropolis(int* spins, const float* uniform, int n, int color, float beta) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= n || (i + j) % 2 != color) return;
    int sum = spins[((i + 1) % n) * n + j] + spins[((i + n - 1) % n) * n + j]
            + spins[i * n + (j + 1) % n] + spins[i * n + (j + n - 1) % n];
    float delta = 2.0f * spins[i * n + j] * sum;
    if (delta <= 0.0f || uniform[i * n + j] < expf(-beta * delta)) {
        spins[i * n + j] = -spins[i * n + j];
    }
}
""",
    "metropolis",
)


def estimate_pi(blocks, iterations, seed):
    states = create_xoroshiro128p_states(blocks * THREADS, seed=seed)
    out = np.zeros(blocks * THREADS, dtype=np.int64)
    count_inside[blocks, THREADS](states, iterations, out)
    return 4.0 * out.sum() / (out.size * iterations)


def price_asian(blocks, seed):
    states = create_xoroshiro128p_states(blocks * THREADS, seed=seed)
    payoffs = cuda.device_array(blocks, dtype=np.float64)
    asian_option[blocks, THREADS](states, payoffs, 100.0, 100.0, 0.05, 0.2, 1.0, 16)
    return math.exp(-0.05) * payoffs.copy_to_host().sum() / (blocks * THREADS)


def european_by_arrays(paths, seed):
    generator = cp.random.RandomState(seed)
    z = generator.standard_normal(paths)
    final = 100.0 * cp.exp((0.05 - 0.5 * 0.2**2) + 0.2 * z)
    return float(cp.exp(-0.05) * cp.maximum(final - 100.0, 0).mean())


def ising(n, sweeps, beta, seed):
    cp.random.seed(seed)
    spins = cp.ones((n, n), dtype=cp.int32)
    grid, block = ((n + 15) // 16, (n + 15) // 16), (16, 16)
    for _ in range(sweeps):
        for color in (0, 1):
            uniform = cp.random.rand(n, n, dtype=cp.float32)
            metropolis(grid, block, (spins, uniform, n, color, cp.float32(beta)))
    return float(abs(spins.mean()))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args(argv)
    pi = estimate_pi(args.blocks, args.iterations, args.seed)
    asian = price_asian(args.blocks, args.seed)
    european = european_by_arrays(args.blocks * THREADS * 4, args.seed)
    cold, hot = ising(32, 40, 0.7, args.seed), ising(32, 40, 0.1, args.seed)
    print(f"pi {pi:.4f}, Asian option {asian:.3f}, European option {european:.3f}")
    print(f"magnetisation: {cold:.3f} when cold, {hot:.3f} when hot")
    names = ("pi", "asian", "european", "cold", "hot")
    return dict(zip(names, map(np.float64, (pi, asian, european, cold, hot))))


if __name__ == "__main__":
    main()
