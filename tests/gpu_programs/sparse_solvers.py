"""Sparse solvers compared: CG, GMRES, a direct solver, Jacobi in a kernel, eigenvalues.

python sparse_solvers.py --grid 64
"""

import argparse
import time

import cupy as cp
import numpy as np
from cupyx.scipy import sparse
from cupyx.scipy.sparse import linalg

jacobi_kernel = cp.RawKernel(
    r"""
extern "C" __global__
void jacobi(const double* u, const double* f, double* next, double* residual, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= n) return;
    double north = i > 0 ? u[(i - 1) * n + j] : 0.0;
    double south = i < n - 1 ? u[(i + 1) * n + j] : 0.0;
    double west = j > 0 ? u[i * n + j - 1] : 0.0;
    double east = j < n - 1 ? u[i * n + j + 1] : 0.0;
    double value = 0.25 * (north + south + west + east + f[i * n + j]);
    next[i * n + j] = value;
    atomicAdd(residual, fabs(value - u[i * n + j]));
}
""",
    "jacobi",
)


def laplacian(n):
    """-(d2/dx2 + d2/dy2) on the interior of an n x n grid, times h**2."""
    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    eye = sparse.eye(n)
    return (sparse.kron(line, eye) + sparse.kron(eye, line)).tocsr()


class Solver:
    """Times a solver and reports its residual."""

    def __init__(self, matrix, rhs):
        self.matrix, self.rhs = matrix, rhs

    def __call__(self, name, solve):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        solution = solve()
        cp.cuda.Device().synchronize()
        elapsed = time.perf_counter() - start
        residual = float(cp.linalg.norm(self.rhs - self.matrix @ solution))
        print(f"{name:<10} {elapsed * 1e3:8.2f} ms   residual {residual:.2e}")
        return solution


def checked(result):
    solution, info = result
    if info != 0:
        raise RuntimeError(f"no convergence: {info}")
    return solution


def preconditioner(matrix):
    inverse = 1.0 / matrix.diagonal()
    return linalg.LinearOperator(matrix.shape, matvec=lambda v: inverse * v, dtype=matrix.dtype)


def jacobi(f, n, tolerance, max_iter):
    u, other = cp.zeros((n, n)), cp.zeros((n, n))
    residual = cp.zeros(1)
    block = (16, 16)
    grid = ((n + 15) // 16, (n + 15) // 16)
    for _ in range(max_iter):
        residual.fill(0)
        jacobi_kernel(grid, block, (u, f, other, residual, np.int32(n)))
        u, other = other, u
        if residual.item() < tolerance:
            break
    return u


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=int, default=12)
    args = parser.parse_args(argv)
    n = args.grid
    rng = np.random.default_rng(6)
    host_rhs = rng.standard_normal(n * n)
    matrix, rhs = laplacian(n), cp.asarray(host_rhs)
    print(f"{matrix.shape[0]} unknowns, {matrix.nnz} entries, format {matrix.format}")
    run = Solver(matrix, rhs)
    results = {"rhs": host_rhs, "matrix": cp.asnumpy(matrix.toarray())}
    results["cg"] = run("cg", lambda: checked(linalg.cg(matrix, rhs, atol=1e-10, rtol=1e-10)))
    results["pcg"] = run(
        "pcg",
        lambda: checked(linalg.cg(matrix, rhs, M=preconditioner(matrix), atol=1e-10, rtol=1e-10)),
    )
    results["gmres"] = run(
        "gmres", lambda: checked(linalg.gmres(matrix, rhs, atol=1e-10, rtol=1e-10))
    )
    results["direct"] = run("spsolve", lambda: linalg.spsolve(matrix, rhs))
    results["splu"] = run("splu", lambda: linalg.splu(matrix.tocsc()).solve(rhs))
    results["jacobi"] = run("jacobi", lambda: jacobi(rhs, n, 1e-9, 5000).ravel())
    values = linalg.eigsh(matrix, k=3, which="LA", return_eigenvectors=False)
    rows = cp.diff(matrix.indptr)
    print(f"entries per row: {int(rows.min())} to {int(rows.max())}")
    results["values"] = cp.sort(values)
    return {name: cp.asnumpy(value) for name, value in results.items()}


if __name__ == "__main__":
    main()
