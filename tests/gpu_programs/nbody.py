"""Gravity of n bodies: a tiled kernel, leapfrog steps, the energy by a reduction.

python nbody.py --bodies 1024 --steps 10
"""

import argparse
import math
import time

import numpy as np
from numba import cuda, float32

BLOCK = 64
SOFTENING = 0.05


@cuda.jit(device=True)
def interaction(xi, yi, zi, xj, yj, zj, mj, ax, ay, az):
    dx, dy, dz = xj - xi, yj - yi, zj - zi
    squared = dx * dx + dy * dy + dz * dz + SOFTENING * SOFTENING
    inverse = 1.0 / math.sqrt(squared)
    strength = mj * inverse * inverse * inverse
    return ax + dx * strength, ay + dy * strength, az + dz * strength


@cuda.jit
def accelerate(position, mass, acceleration):
    tile = cuda.shared.array((BLOCK, 4), dtype=float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    n = position.shape[0]
    x = position[i, 0] if i < n else 0.0
    y = position[i, 1] if i < n else 0.0
    z = position[i, 2] if i < n else 0.0
    ax = ay = az = 0.0
    for start in range(0, n, BLOCK):
        j = start + t
        if j < n:
            tile[t, 0] = position[j, 0]
            tile[t, 1] = position[j, 1]
            tile[t, 2] = position[j, 2]
            tile[t, 3] = mass[j]
        else:
            tile[t, 3] = 0.0
            tile[t, 0] = tile[t, 1] = tile[t, 2] = 0.0
        cuda.syncthreads()
        for k in range(BLOCK):
            ax, ay, az = interaction(
                x, y, z, tile[k, 0], tile[k, 1], tile[k, 2], tile[k, 3], ax, ay, az
            )
        cuda.syncthreads()
    if i < n:
        acceleration[i, 0] = ax
        acceleration[i, 1] = ay
        acceleration[i, 2] = az


@cuda.jit
def kick(velocity, acceleration, dt):
    i, axis = cuda.grid(2)
    if i < velocity.shape[0] and axis < 3:
        velocity[i, axis] += dt * acceleration[i, axis]


@cuda.jit
def drift(position, velocity, dt):
    i, axis = cuda.grid(2)
    if i < position.shape[0] and axis < 3:
        position[i, axis] += dt * velocity[i, axis]


@cuda.jit
def kinetic_terms(velocity, mass, out):
    i = cuda.grid(1)
    if i < out.size:
        v2 = velocity[i, 0] ** 2 + velocity[i, 1] ** 2 + velocity[i, 2] ** 2
        out[i] = 0.5 * mass[i] * v2


@cuda.reduce
def total(a, b):
    return a + b


class Simulation:
    def __init__(self, position, velocity, mass):
        self.n = len(mass)
        self.position = cuda.to_device(position)
        self.velocity = cuda.to_device(velocity)
        self.mass = cuda.to_device(mass)
        self.acceleration = cuda.device_array_like(self.position)
        self.blocks = math.ceil(self.n / BLOCK)
        self.forces()

    def forces(self):
        accelerate[self.blocks, BLOCK](self.position, self.mass, self.acceleration)

    def step(self, dt):
        grid, block = (math.ceil(self.n / 32), 1), (32, 3)
        kick[grid, block](self.velocity, self.acceleration, np.float32(dt / 2))
        drift[grid, block](self.position, self.velocity, np.float32(dt))
        self.forces()
        kick[grid, block](self.velocity, self.acceleration, np.float32(dt / 2))

    def kinetic_energy(self):
        terms = cuda.device_array(self.n, dtype=np.float64)
        kinetic_terms.forall(self.n)(self.velocity, self.mass, terms)
        return total(terms)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bodies", type=int, default=300)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dt", type=float, default=0.01)
    args = parser.parse_args(argv)
    print(cuda.get_current_device().name)
    rng = np.random.default_rng(4)
    position = rng.standard_normal((args.bodies, 3)).astype(np.float32)
    velocity = (0.1 * rng.standard_normal((args.bodies, 3))).astype(np.float32)
    mass = rng.uniform(0.5, 1.5, args.bodies).astype(np.float32) / args.bodies
    simulation = Simulation(position, velocity, mass)
    start = time.perf_counter()
    for _ in range(args.steps):
        simulation.step(args.dt)
    cuda.synchronize()
    print(f"{args.steps} steps in {time.perf_counter() - start:.3f} s")
    return {
        "position": position,
        "velocity": velocity,
        "mass": mass,
        "dt": np.float64(args.dt),
        "steps": np.int64(args.steps),
        "after": simulation.position.copy_to_host(),
        "kinetic": np.float64(simulation.kinetic_energy()),
    }


if __name__ == "__main__":
    main()
