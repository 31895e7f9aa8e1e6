"""Conjugate gradient for dense and for CSR matrices, after the usual CuPy example.

python conjugate_gradient.py --size 400
"""

import argparse
import time

import cupy as cp
import numpy as np

SPMV = r"""
template <typename T>
__global__ void spmv(const T* data, const int* indices, const int* indptr, const T* x, T* y,
                     int rows) {
    // one warp per row
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (warp >= rows) return;
    T sum = 0;
    for (int j = indptr[warp] + lane; j < indptr[warp + 1]; j += 32) {
        sum += data[j] * x[indices[j]];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (lane == 0) y[warp] = sum;
}
"""

module = cp.RawModule(code=SPMV, name_expressions=["spmv<float>", "spmv<double>"])


class CsrOperator:
    """y = A x for a matrix in CSR, through a kernel of our own."""

    def __init__(self, data, indices, indptr):
        self.data, self.indices, self.indptr = data, indices, indptr
        self.rows = len(indptr) - 1
        name = "spmv<float>" if data.dtype == cp.float32 else "spmv<double>"
        self.kernel = module.get_function(name)

    def __matmul__(self, x):
        y = cp.empty_like(x)
        threads = 128
        blocks = (self.rows * 32 + threads - 1) // threads
        args = (self.data, self.indices, self.indptr, x, y, cp.int32(self.rows))
        self.kernel((blocks,), (threads,), args)
        return y


def conjugate_gradient(A, b, max_iter, tol):
    """Solve A x = b for a symmetric positive definite A."""
    x = cp.zeros_like(b)
    r = b - A @ x
    p = r.copy()
    rs_old = r @ r
    for iteration in range(max_iter):
        Ap = A @ p
        alpha = rs_old / cp.maximum(p @ Ap, 1e-30)
        x += alpha * p
        r -= alpha * Ap
        rs_new = r @ r
        if float(cp.sqrt(rs_new)) < tol:
            return x, iteration + 1
        p = r + (rs_new / rs_old) * p
        rs_old = rs_new
    return x, max_iter


def poisson_csr(n, dtype):
    """The 5-point Laplacian on an n x n grid, as arrays of CSR on the host."""
    data, indices, indptr = [], [], [0]
    for i in range(n):
        for j in range(n):
            for di, dj in ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)):
                k, m = i + di, j + dj
                if 0 <= k < n and 0 <= m < n:
                    data.append(4.0 if (di, dj) == (0, 0) else -1.0)
                    indices.append(k * n + m)
            indptr.append(len(data))
    return (
        np.asarray(data, dtype),
        np.asarray(indices, np.int32),
        np.asarray(indptr, np.int32),
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--grid", type=int, default=20)
    parser.add_argument("--tol", type=float, default=1e-9)
    args = parser.parse_args(argv)
    pool = cp.get_default_memory_pool()
    rng = np.random.default_rng(1)
    m = rng.standard_normal((args.size, args.size))
    dense = m @ m.T / args.size + np.eye(args.size)
    b = rng.standard_normal(args.size)
    start = time.time()
    x, iterations = conjugate_gradient(cp.asarray(dense), cp.asarray(b), 1000, args.tol)
    print(f"dense: {iterations} iterations, {time.time() - start:.3f} s")
    print(f"memory in use: {pool.used_bytes()} of {pool.total_bytes()} bytes")

    data, indices, indptr = poisson_csr(args.grid, np.float64)
    operator = CsrOperator(cp.asarray(data), cp.asarray(indices), cp.asarray(indptr))
    rhs = rng.standard_normal(args.grid**2)
    with cp.cuda.Stream(non_blocking=True) as stream:
        y, iterations = conjugate_gradient(operator, cp.asarray(rhs), 1000, args.tol)
        stream.synchronize()
    print(f"sparse: {iterations} iterations")
    return {
        "dense": dense,
        "b": b,
        "x": cp.asnumpy(x),
        "data": data,
        "indices": indices,
        "indptr": indptr,
        "rhs": rhs,
        "y": y.get(),
    }


if __name__ == "__main__":
    main()
