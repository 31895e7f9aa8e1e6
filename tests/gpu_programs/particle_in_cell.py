"""Electrostatic particle-in-cell in one dimension: two streams of electrons.

Deposit charge (atomics), solve Poisson's equation (FFT), gather the field, push the particles.

    python particle_in_cell.py --particles 100000 --steps 200
"""

import argparse
import math

import cupy as cp
import numpy as np
from numba import cuda

deposit = cp.RawKernel(
    r"""
extern "C" __global__
void deposit(const double* x, double* density, double cell, double weight, int particles,
             int cells) {
    extern __shared__ double local[];
    for (int i = threadIdx.x; i < cells; i += blockDim.x) local[i] = 0.0;
    __syncthreads();
    for (int p = blockIdx.x * blockDim.x + threadIdx.x; p < particles;
         p += gridDim.x * blockDim.x) {
        double place = x[p] / cell;
        int left = (int)floor(place);
        double share = place - left;
        left = (left % cells + cells) % cells;
        int right = (left + 1) % cells;
        atomicAdd(&local[left], weight * (1.0 - share));
        atomicAdd(&local[right], weight * share);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < cells; i += blockDim.x) atomicAdd(&density[i], local[i]);
}
""",
    "deposit",
)


@cuda.jit
def push(x, v, field, cell, length, dt):
    p = cuda.grid(1)
    if p >= x.size:
        return
    cells = field.size
    place = x[p] / cell
    left = int(math.floor(place))  # noqa: RUF046
    share = place - left
    left = left % cells
    right = (left + 1) % cells
    electric = (1.0 - share) * field[left] + share * field[right]
    v[p] -= dt * electric
    position = x[p] + dt * v[p]
    if position < 0.0:
        position += length
    elif position >= length:
        position -= length
    x[p] = position


class Plasma:
    def __init__(self, particles, cells, length, speed, seed):
        rng = np.random.default_rng(seed)
        self.cells, self.length, self.cell = cells, length, length / cells
        self.start_x = rng.uniform(0, length, particles)
        self.start_v = np.where(np.arange(particles) % 2, speed, -speed)
        self.start_v = self.start_v + 0.05 * rng.standard_normal(particles)
        self.x, self.v = cp.asarray(self.start_x), cp.asarray(self.start_v)
        self.weight = cells / particles
        k = 2 * np.pi * cp.fft.rfftfreq(cells, d=self.cell)
        k[0] = 1.0
        self.inverse_k = 1.0 / k
        self.inverse_k[0] = 0.0

    def density(self):
        density = cp.zeros(self.cells)
        n = np.int32(len(self.x))
        args = (self.x, density, self.cell, self.weight, n, np.int32(self.cells))
        deposit((4,), (128,), args, shared_mem=8 * self.cells)
        return density

    def field(self):
        """E with dE/dx = 1 - n: ions at rest, electrons of charge -1."""
        charge = 1.0 - self.density()
        return cp.fft.irfft(-1j * self.inverse_k * cp.fft.rfft(charge), n=self.cells)

    def step(self, dt):
        field = self.field()
        threads = 128
        blocks = (len(self.x) + threads - 1) // threads
        push[blocks, threads](self.x, self.v, field, self.cell, self.length, dt)
        return float(0.5 * (field**2).sum() * self.cell)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, default=4000)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dt", type=float, default=0.1)
    args = parser.parse_args(argv)
    plasma = Plasma(args.particles, args.cells, 4 * np.pi, 1.0, seed=8)
    first = plasma.density().get()
    energies = [plasma.step(args.dt) for _ in range(args.steps)]
    print(f"energy of the field: {energies[0]:.3e} at first, {energies[-1]:.3e} at last")
    print(f"momentum: {float(plasma.v.sum()):.3e}")
    return {
        "x0": plasma.start_x,
        "v0": plasma.start_v,
        "density": first,
        "energies": np.array(energies),
        "x": plasma.x.get(),
        "v": plasma.v.get(),
        "dt": np.float64(args.dt),
    }


if __name__ == "__main__":
    main()
