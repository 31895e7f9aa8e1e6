"""Flow around a cylinder: lattice Boltzmann, D2Q9, in array operations and as one kernel.

python lattice_boltzmann.py --nx 400 --ny 100 --steps 1000
"""

import argparse

import cupy as cp
import numpy as np
from numba import cuda

# velocities, weights and opposite directions of D2Q9
CX = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
CY = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
W = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])


def equilibrium(rho, ux, uy, xp=cp):
    square = 1.5 * (ux * ux + uy * uy)
    populations = xp.empty((9, *rho.shape))
    for q in range(9):
        cu = 3.0 * (int(CX[q]) * ux + int(CY[q]) * uy)
        populations[q] = float(W[q]) * rho * (1.0 + cu + 0.5 * cu * cu - square)
    return populations


def macroscopic(f):
    rho = f.sum(axis=0)
    cx, cy = cp.asarray(CX)[:, None, None], cp.asarray(CY)[:, None, None]
    return rho, (f * cx).sum(axis=0) / rho, (f * cy).sum(axis=0) / rho


class ArraySolver:
    """Collide and stream with cupy's operations."""

    def __init__(self, f, solid, tau):
        self.f, self.solid, self.tau = cp.asarray(f), cp.asarray(solid), tau

    def step(self):
        rho, ux, uy = macroscopic(self.f)
        collided = self.f - (self.f - equilibrium(rho, ux, uy)) / self.tau
        bounced = self.f[OPPOSITE]
        collided = cp.where(self.solid, bounced, collided)
        for q in range(9):
            self.f[q] = cp.roll(collided[q], (int(CX[q]), int(CY[q])), axis=(0, 1))


@cuda.jit
def collide_and_stream(f, out, solid, tau):
    x, y = cuda.grid(2)
    nx, ny = solid.shape
    if x >= nx or y >= ny:
        return
    cx = cuda.const.array_like(CX)
    cy = cuda.const.array_like(CY)
    w = cuda.const.array_like(W)
    opposite = cuda.const.array_like(OPPOSITE)
    here = cuda.local.array(9, dtype=np.float64)
    rho = 0.0
    ux = 0.0
    uy = 0.0
    for q in range(9):
        here[q] = f[q, x, y]
        rho += here[q]
        ux += cx[q] * here[q]
        uy += cy[q] * here[q]
    ux /= rho
    uy /= rho
    square = 1.5 * (ux * ux + uy * uy)
    for q in range(9):
        if solid[x, y]:
            value = here[opposite[q]]
        else:
            cu = 3.0 * (cx[q] * ux + cy[q] * uy)
            feq = w[q] * rho * (1.0 + cu + 0.5 * cu * cu - square)
            value = here[q] - (here[q] - feq) / tau
        out[q, (x + cx[q]) % nx, (y + cy[q]) % ny] = value


class KernelSolver:
    """The same in one kernel, from one array to another and back."""

    def __init__(self, f, solid, tau):
        self.f, self.other = cp.asarray(f), cp.zeros(f.shape)
        self.solid, self.tau = cp.asarray(solid), tau

    def step(self):
        block = (16, 8)
        grid = tuple((n + b - 1) // b for n, b in zip(self.solid.shape, block))
        collide_and_stream[grid, block](self.f, self.other, self.solid, self.tau)
        self.f, self.other = self.other, self.f


def setup(nx, ny):
    x, y = np.mgrid[:nx, :ny]
    solid = (x - nx / 4) ** 2 + (y - ny / 2) ** 2 < (ny / 9) ** 2
    ux = 0.08 * (1 + 0.05 * np.sin(2 * np.pi * y / ny))
    return equilibrium(np.ones((nx, ny)), ux, np.zeros((nx, ny)), np), solid


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nx", type=int, default=60)
    parser.add_argument("--ny", type=int, default=34)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tau", type=float, default=0.6)
    args = parser.parse_args(argv)
    f, solid = setup(args.nx, args.ny)
    results = {"f": f, "solid": solid, "tau": np.float64(args.tau), "steps": np.int64(args.steps)}
    for solver in (ArraySolver(f, solid, args.tau), KernelSolver(f, solid, args.tau)):
        for _ in range(args.steps):
            solver.step()
        rho, ux, uy = macroscopic(solver.f)
        speed = cp.sqrt(ux**2 + uy**2)
        print(
            f"{type(solver).__name__}: mass {float(rho.sum()):.6f}, speed {float(speed.max()):.4f}"
        )
        results[type(solver).__name__] = cp.asnumpy(solver.f)
    return results


if __name__ == "__main__":
    main()
