"""CUDA C kernels on the CPU: launches, barriers, a register-tiled SGEMM beside NumPy, compiling.

    python -m benchmarks.raw_kernels [--json]

One thread. The targets: a launch at most 30 us, a barrier at most 10 ns per thread at 256 threads,
SGEMM at 512 at least 0.15 of NumPy's BLAS with clang++ or 0.07 with g++, a cold compile under
1.5 s per file. The source of each kernel is the same as for a GPU, compiled without checks.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

for _name in ("MINIGRAD_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import measure  # noqa: E402
import numpy as np  # noqa: E402

from kernels import raw_kernel  # noqa: E402
from kernels.host import compiler  # noqa: E402

SMALL = """
__global__ void nothing(const float* a, const float* b, float* out, int n, float scale) {}
__global__ void barriers(int n) {
    for (int i = 0; i < n; ++i) __syncthreads();
}
"""

# 128 x 128 outputs per block of 16 x 16 threads, 8 x 8 per thread: the 2-D register tile.
SGEMM = """
#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8
extern "C" __global__ void __launch_bounds__(256)
sgemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
      int M, int N, int K) {
    __shared__ float As[BK][BM];
    __shared__ float Bs[BK][BN];
    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    const int aRow = threadIdx.x / 2, aCol = threadIdx.x % 2 * 4;
    const int bRow = threadIdx.x / 32, bCol = threadIdx.x % 32 * 4;
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        float4 a = *reinterpret_cast<const float4*>(&A[aRow * K + k0 + aCol]);
        As[aCol + 0][aRow] = a.x;
        As[aCol + 1][aRow] = a.y;
        As[aCol + 2][aRow] = a.z;
        As[aCol + 3][aRow] = a.w;
        *reinterpret_cast<float4*>(&Bs[bRow][bCol]) =
            *reinterpret_cast<const float4*>(&B[(k0 + bRow) * N + bCol]);
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float m[TM], n[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) m[i] = As[k][ty * TM + i];
            #pragma unroll
            for (int j = 0; j < TN; ++j) n[j] = Bs[k][tx * TN + j];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] += m[i] * n[j];
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) C[(ty * TM + i) * N + tx * TN + j] = acc[i][j];
}
"""


def best(function: Callable[[], object], calls: int, turns: int) -> float:
    """Seconds per call on this thread, in the best of many short turns.

    CPU time of the thread, so that other programs on the machine do not count.
    """
    function()
    seconds = []
    for _ in range(turns):
        start = time.thread_time()
        for _ in range(calls):
            function()
        seconds.append((time.thread_time() - start) / calls)
    return min(seconds)


def launch_cost() -> float:
    kernel = raw_kernel(SMALL, "nothing", debug=False)
    a, b, out = (np.zeros(4, np.float32) for _ in range(3))
    return best(lambda: kernel((1,), (32,), (a, b, out, 4, 1.0)), calls=50, turns=200)


def barrier_cost(threads: int = 256, count: int = 200) -> float:
    """Seconds per barrier and thread."""
    kernel = raw_kernel(SMALL, "barriers", debug=False)
    few = best(lambda: kernel((1,), (threads,), (10,)), calls=1, turns=300)
    many = best(lambda: kernel((1,), (threads,), (10 + count,)), calls=1, turns=300)
    return (many - few) / count / threads


def sgemm_seconds(n: int = 512) -> tuple[float, float]:
    """Ours and NumPy's."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    c, expected = np.empty_like(a), np.empty_like(a)
    kernel = raw_kernel(SGEMM, "sgemm", debug=False)

    def ours() -> None:
        kernel((n // 128, n // 128), (256,), (a, b, c, n, n, n))

    seconds = best(ours, calls=1, turns=15)
    np.testing.assert_allclose(c, a.astype(float) @ b, atol=1e-3)
    return seconds, best(lambda: np.matmul(a, b, out=expected), calls=1, turns=15)


def cold_compile() -> float:
    """The compiler's seconds for the SGEMM source without a cache. The runtime is cached, and so is
    the precompiled prelude of g++ (0.8 s more, once)."""
    import resource

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = os.environ.get("MINIGRAD_CACHE_DIR")
    seconds = []
    try:
        for turn in range(3):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["MINIGRAD_CACHE_DIR"] = folder
                raw_kernel(
                    SMALL, "nothing", debug=False
                ).compile()  # the compiler's name and version
                start = spent()
                raw_kernel(f"// {turn}\n{SGEMM}", "sgemm", debug=False).compile()
                seconds.append(spent() - start)
    finally:
        os.environ.pop("MINIGRAD_CACHE_DIR")
        if before is not None:
            os.environ["MINIGRAD_CACHE_DIR"] = before
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    gnu = compiler.is_gnu(compiler.find_compiler())
    launch, barrier = launch_cost(), barrier_cost()
    ours, theirs = sgemm_seconds()
    compiling = cold_compile()
    wanted = 0.07 if gnu else 0.15
    flops = 2 * 512**3 / ours / 1e9
    rows = [
        {"name": "launch, 5 arguments", "value": launch * 1e6, "unit": "us", "at most": 30},
        {"name": "barrier, 256 threads", "value": barrier * 1e9, "unit": "ns", "at most": 10},
        {"name": "cold compile", "value": compiling, "unit": "s", "at most": 1.5},
        {
            "name": f"SGEMM 512 ({'g++' if gnu else 'clang++'})",
            "value": theirs / ours,
            "unit": f"of BLAS ({flops:.1f} GFLOP/s)",
            "at least": wanted,
            "ours": ours,
            "theirs": theirs,
        },
    ]
    for row in rows:
        bound = "at most" if "at most" in row else "at least"
        met = row["value"] <= row[bound] if bound == "at most" else row["value"] >= row[bound]
        target = f"target: {bound} {row[bound]}{'' if met else '   MISSED'}"
        print(f"{row['name']:24} {row['value']:8.3g} {row['unit']:24} {target}")
    if options.json:
        measure.write_json(measure.results_path("raw_kernels"), 1, rows)


if __name__ == "__main__":
    main()
