"""K-means clustering on the GPU: three ways to compute the distances.

python kmeans.py --clusters 4 --points 5000 --use-custom-kernel
"""

import argparse
import contextlib
import time

import cupy as cp
import numpy as np

distance_kernel = cp.ElementwiseKernel(
    "T x0, T x1, T c0, T c1",
    "T out",
    "out = (x0 - c0) * (x0 - c0) + (x1 - c1) * (x1 - c1)",
    "squared_distance",
)

sum_kernel = cp.ReductionKernel(
    "T x, S mask", "T out", "mask ? x : 0", "a + b", "out = a", "0", "masked_sum"
)

count_kernel = cp.ReductionKernel(
    "T mask", "float32 out", "mask ? 1.0f : 0.0f", "a + b", "out = a", "0.0", "masked_count"
)

assign_kernel = cp.RawKernel(
    r"""
extern "C" __global__
void assign(const float* x, const float* centers, int* labels, int n, int k) {
    extern __shared__ float cached[];
    for (int i = threadIdx.x; i < 2 * k; i += blockDim.x) {
        cached[i] = centers[i];
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best = 3.4e38f;
    int label = 0;
    for (int c = 0; c < k; c++) {
        float dx = x[2 * i] - cached[2 * c];
        float dy = x[2 * i + 1] - cached[2 * c + 1];
        float d = dx * dx + dy * dy;
        if (d < best) {
            best = d;
            label = c;
        }
    }
    labels[i] = label;
}
""",
    "assign",
)


@contextlib.contextmanager
def timer(message):
    cp.cuda.Stream.null.synchronize()
    start = time.time()
    yield
    cp.cuda.Stream.null.synchronize()
    print(f"{message}: {time.time() - start:.3f} s")


def nearest(x, centers, method):
    xp = cp.get_array_module(x)
    n_clusters = len(centers)
    if method == "raw":
        labels = cp.empty(len(x), dtype=cp.int32)
        threads = 128
        blocks = (len(x) + threads - 1) // threads
        args = (x, centers, labels, cp.int32(len(x)), cp.int32(n_clusters))
        assign_kernel((blocks,), (threads,), args, shared_mem=centers.nbytes)
        return labels
    if method == "elementwise":
        distances = distance_kernel(
            x[:, None, 0], x[:, None, 1], centers[None, :, 0], centers[None, :, 1]
        )
    else:
        distances = xp.linalg.norm(x[:, None, :] - centers[None, :, :], axis=2)
    return xp.argmin(distances, axis=1).astype(xp.int32)


def update(x, labels, n_clusters, method):
    masks = labels == cp.arange(n_clusters)[:, None]
    if method == "elementwise":
        sums = sum_kernel(x[None], masks[:, :, None], axis=1)
        counts = count_kernel(masks, axis=1).reshape(n_clusters, 1)
        return sums / counts
    sums = cp.zeros((n_clusters, 2), dtype=x.dtype)
    cp.add.at(sums, labels, x)
    return sums / masks.sum(axis=1, dtype=cp.float32)[:, None]


def fit(x, n_clusters, max_iter, method):
    centers = x[:: len(x) // n_clusters][:n_clusters].copy()
    labels = cp.zeros(len(x), dtype=cp.int32)
    for iteration in range(max_iter):
        new_labels = nearest(x, centers, method)
        if iteration and bool(cp.all(new_labels == labels)):
            break
        labels = new_labels
        centers = update(x, labels, n_clusters, method)
    return centers, labels


def make_data(points, clusters, seed):
    rng = np.random.default_rng(seed)
    means = rng.uniform(-10, 10, (clusters, 2))
    return (means[np.arange(points) % clusters] + rng.normal(size=(points, 2))).astype(np.float32)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=4)
    parser.add_argument("--points", type=int, default=4000)
    parser.add_argument("--max-iter", type=int, default=20)
    args = parser.parse_args(argv)
    host = make_data(args.points, args.clusters, seed=0)
    x = cp.asarray(host)
    results = {"points": host}
    for method in ("norm", "elementwise", "raw"):
        with timer(method):
            centers, labels = fit(x, args.clusters, args.max_iter, method)
        results[f"centers_{method}"] = cp.asnumpy(centers)
        results[f"labels_{method}"] = labels.get()
    return results


if __name__ == "__main__":
    main()
