"""Wrong solutions of the exercises on networks and hardware and of the bug hunts, as
`wrong_solutions.py` says. The kernels that bug hunts begin with are tested on their own."""

from __future__ import annotations

GUARD = "there are more threads than elements"
FEW = "few threads do the work of all"
SWAPPED = "x and y are swapped"
NO_BARRIER = "cuda.syncthreads() between"
ADDED = "the result is added to, but it holds nothing at first"

WRONG: dict[str, list[tuple]] = {
    "conv2d": [
        ("element 0, 0, 0 is", "x[c, i + p, j + q]", "x[c, i + q, j + p]"),
        ("is outside of", "i < out.shape[1] and j", "i < x.shape[1] and j"),
        ("element 0, 0, 0 is", "w[f, c, p, q]", "w[f, c, w.shape[2] - 1 - p, w.shape[3] - 1 - q]"),
        (ADDED, [("total += x", "out[f, i, j] += x"), ("out[f, i, j] = total", "pass")]),
        ("element 0, 0, 0 is", "range(w.shape[1])", "range(1, w.shape[1])"),
    ],
    "matmul_registers": [
        (NO_BARRIER, "0)\n        cuda.syncthreads()", "0)"),
        ("one more cuda.syncthreads() after", "b_part[j]\n        cuda.syncthreads()", "b_part[j]"),
        ("is outside of a", "row + i < a.shape[0] and k + tx < a.shape[1]", "row + i < a.shape[0]"),
        (
            "read 4 elements of a's tile and 4 of b's tile into variables",
            "a_part[i] * b_part[j]",
            "a_tile[ty + 8 * i, step] * b_tile[step, tx + 8 * j]",
        ),
        ("element 0, 0 is", "range(8)", "range(7)"),
    ],
    "softmax_online": [
        (
            "one loop keeps both the maximum so far and the sum",
            """
            def softmax_online(x, out):
                tile = cuda.shared.array(64, np.float32)
                row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
                top = LOWEST
                for j in range(t, n, 64):
                    top = max(top, x[row, j])
                tile[t] = top
                cuda.syncthreads()
                for j in range(64):
                    top = max(top, tile[j])
                total = np.float32(0)
                for j in range(t, n, 64):
                    total += math.exp(x[row, j] - top)
                cuda.syncthreads()
                tile[t] = total
                cuda.syncthreads()
                total = _block_sum(tile, t)
                for j in range(t, n, 64):
                    out[row, j] = math.exp(x[row, j] - top) / total
            """,
        ),
        ("element", "LOWEST, np.float32(0)", "np.float32(-math.inf), np.float32(0)"),
        ("element 0, 0 is", "total * math.exp(top - larger) + ", "total + "),
        (NO_BARRIER, "    sums[t] = total\n    cuda.syncthreads()", "    sums[t] = total"),
        ("element 0, 0 is", "sums[t + step] * math.exp(tops[t + step] - larger)", "sums[t + step]"),
    ],
    "layer_norm_backward": [
        ("element 0, 0 is", " - xhat * weighted", ""),
        ("element 0, 0 is", "- plain -", "-"),
        (NO_BARRIER, "    tile[t] = weighted\n    cuda.syncthreads()", "    tile[t] = weighted"),
        (
            "no shared memory is used",
            """
            def layer_norm_backward(g, x, mean, rstd, out):
                row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
                centre, scale = mean[row], rstd[row]
                plain, weighted = np.float32(0), np.float32(0)
                for j in range(n):
                    plain += g[row, j]
                    weighted += g[row, j] * (x[row, j] - centre) * scale
                for j in range(t, n, 64):
                    xhat = (x[row, j] - centre) * scale
                    out[row, j] = scale * (g[row, j] - (plain + xhat * weighted) / np.float32(n))
            """,
        ),
        ("element 0, 0 is", "plain = _block_sum(tile, t) / np.float32(n)", "_block_sum(tile, t)"),
    ],
    "attention": [
        (
            "keep the maximum so far",
            "larger = max(top, score)",
            "larger = np.float32(0)",
        ),
        ("element 0, 0 is", "result[d] * old + new", "result[d] + new"),
        ("is outside of k", "inside = first + row < k.shape[0]", "inside = True"),
        (
            "is read where no thread wrote it",
            "    for d in range(16):\n        query",
            "    if i >= q.shape[0]:\n        return\n    for d in range(16):\n        query",
        ),
        (
            "one more cuda.syncthreads() after",
            "            top = larger\n        cuda.syncthreads()",
            "            top = larger",
        ),
        ("element 0, 0 is", "score *= np.float32(0.25)", "score *= np.float32(0.5)"),
        (
            "no shared memory is used",
            """
            def attention(q, k, v, out):
                result = cuda.local.array(16, np.float32)
                i = cuda.grid(1)
                if i < q.shape[0]:
                    for d in range(16):
                        result[d] = 0
                    top, total = LOWEST, np.float32(0)
                    for row in range(k.shape[0]):
                        score = np.float32(0)
                        for d in range(16):
                            score += q[i, d] * k[row, d] * np.float32(0.25)
                        larger = max(top, score)
                        old, new = math.exp(top - larger), math.exp(score - larger)
                        total = total * old + new
                        for d in range(16):
                            result[d] = result[d] * old + new * v[row, d]
                        top = larger
                    for d in range(16):
                        out[i, d] = result[d] / total
            """,
        ),
    ],
    "gru_cell": [
        (
            "element 0, 0 is",
            "(np.float32(1) - z) * new + z * h",
            "z * new + (np.float32(1) - z) * h",
        ),
        (
            "element 0, 0 is",
            "gx[row, 2 * n + j] + r * gh[row, 2 * n + j]",
            "r * (gx[row, 2 * n + j] + gh[row, 2 * n + j])",
        ),
        ("element 0, 0 is", "gx[row, n + j]", "gx[row, j]"),
        ("is outside of", "row < h.shape[0] and j < n", "row < h.shape[0]"),
        (
            "x and y swapped?",
            [("j, row = cuda", "row, j = cuda"), ("if row < h.shape[0] and j < n:", "if True:")],
        ),
    ],
    "compact": [
        ("element", "positive & ((1 << lane) - 1)", "positive & ((2 << lane) - 1)"),
        (
            "no ballot (cuda.ballot_sync) is used",
            """
            def compact(x, out, counts):
                i, lane = cuda.grid(1), cuda.laneid
                out[i] = 0
                cuda.syncwarp()
                value = x[i] if i < x.size else np.float32(0)
                flag = 1 if value > 0 else 0
                place = flag
                for step in (1, 2, 4, 8, 16):
                    other = cuda.shfl_up_sync(FULL, place, step)
                    if lane >= step:
                        place += other
                if flag:
                    out[i - lane + place - 1] = value
                if lane == 31:
                    counts[i // 32] = place
            """,
        ),
        ("never written", "    if lane >= count:\n        out[i] = 0\n", ""),
        ("is outside of x", "x[i] if i < x.size else np.float32(0)", "x[i]"),
        ("element", "value > 0)\n", "value >= 0)\n"),
    ],
    "centre": [
        ("cuda.cg.this_grid().sync()", "cuda.cg.this_grid().sync()", "cuda.syncthreads()"),
        (NO_BARRIER, "    tile[t] = total\n    cuda.syncthreads()", "    tile[t] = total"),
        ("element 0 is", "partial[0] + partial[1]", "partial[1]"),
        (
            "few threads do the work of all",
            """
            def centre(x, partial, out):
                if cuda.grid(1) == 0:
                    total = np.float32(0)
                    for i in range(x.size):
                        total += x[i]
                    partial[0] = total
                cuda.syncthreads()
                cuda.cg.this_grid().sync()
                for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                    out[i] = x[i] - partial[0] / np.float32(x.size)
            """,
        ),
        ("element 0 is", " / np.float32(x.size)\n", " / np.float32(256)\n"),
    ],
    "matmul_double_buffered": [
        (
            "load the next tile into the other buffer",
            "        now = 1 - now",
            "        now = 1 - now\n        cuda.syncthreads()",
        ),
        ("race for", "        cuda.syncthreads()\n        if", "        if"),
        ("race for", "1 - now, t", "now, t"),
        ("element", "range(16, a.shape[1] + 16, 16)", "range(16, a.shape[1], 16)"),
        ("is outside of a", "row < a.shape[0] and k + tx < a.shape[1]", "row < a.shape[0]"),
    ],
    "float4_scale": [
        (
            "a lane asks for",
            """
            __global__ void float4_scale(float a, const float* x, float* out, int n) {
                int threads = gridDim.x * blockDim.x;
                for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads)
                    out[i] = a * x[i];
            }
            """,
        ),
        ("has 1003 elements", "4 * i + 3 < n", "4 * i < n"),
        ("never written", "for (int j = 4 * i; j < n; j++) out[j] = a * x[j];", ""),
        ("element 3 is", "        v.w *= a;\n", ""),
    ],
    "half_dot": [
        (
            "convert x and y to float32 before they are multiplied",
            "np.float32(x[row, j]) * np.float32(y[row, j])",
            "np.float32(np.float16(x[row, j] * y[row, j]))",
        ),
        (
            "float16 holds at most 65504",
            "tile = cuda.shared.array(64, np.float32)",
            "tile = cuda.shared.array(64, np.float16)",
        ),
        (NO_BARRIER, "    tile[t] = total\n    cuda.syncthreads()", "    tile[t] = total"),
        ("element 0 is", "range(t, x.shape[1], 64)", "range(t, 64, 64)"),
        (
            FEW,
            """
            def half_dot(x, y, out):
                tile = cuda.shared.array(1, np.float32)
                if cuda.threadIdx.x == 0:
                    total = np.float32(0)
                    row = cuda.blockIdx.x
                    for j in range(x.shape[1]):
                        total += np.float32(x[row, j]) * np.float32(y[row, j])
                    tile[0] = total
                cuda.syncthreads()
                if cuda.threadIdx.x == 0:
                    out[cuda.blockIdx.x] = tile[0]
            """,
        ),
    ],
    "wmma_matmul": [
        ("element", "    fill_fragment(total, 0.0f);\n", "    fill_fragment(total, 1.0f);\n"),
        ("element", "mem_row_major", "mem_col_major"),
        (
            "no tensor core is used",
            """
            __global__ void wmma_matmul(const half* a, const half* b, float* out, int m, int k,
                                        int n) {
                int row = blockIdx.y * 16, column = blockIdx.x * 16;
                for (int place = threadIdx.x; place < 256; place += 32) {
                    int i = row + place / 16, j = column + place % 16;
                    float total = 0;
                    for (int l = 0; l < k; l++)
                        total += __half2float(a[i * k + l]) * __half2float(b[l * n + j]);
                    out[i * n + j] = total;
                }
            }
            """,
        ),
        ("element", "half, row_major> b_tile", "half, col_major> b_tile"),
    ],
    "fix_barrier": [
        (NO_BARRIER, "    tile[t] = s\n    cuda.syncthreads()\n", "    tile[t] = s\n"),
        ("element", "tile[(t + 1) % 64]", "tile[(t + 2) % 64]"),
        ("is outside of tile", "tile[(t + 1) % 64]", "tile[t + 1]"),
        (
            "no shared memory is used",
            """
            def fix_barrier(x, out):
                i, t = cuda.grid(1), cuda.threadIdx.x
                first = i - t
                s = x[i] + x[first + (t + 1) % 64]
                out[i] = s - (x[first + (t + 63) % 64] + x[i])
            """,
        ),
    ],
    "fix_guard": [
        ("`i + 1` must be less than x.shape[0]", "i < out.size", "i <= out.size"),
        ("never written", "i < out.size", "i < out.size - 1"),
        ("element 0 is", "x[i + 1] - x[i]", "x[i] - x[i + 1]"),
        ("never written", "if i < out.size:", "if 0 < i < out.size:"),
    ],
    "fix_histogram": [
        ("element 0 is", "x[i], 1)", "x[i], 2)"),
        (NO_BARRIER, "        tile[t] = 0\n    cuda.syncthreads()", "        tile[t] = 0"),
        (
            "no shared memory is used",
            """
            def fix_histogram(x, counts):
                i = cuda.grid(1)
                if i < x.size:
                    cuda.atomic.add(counts, x[i], 1)
            """,
        ),
        ("race for counts", "cuda.atomic.add(counts, t, tile[t])", "counts[t] += tile[t]"),
        ("where no thread wrote it", "if t < 10:\n        tile", "if t < 9:\n        tile"),
    ],
    "fix_stride": [
        ("element (i, j) of a matrix in C order", "x[i * columns + j]", "x[j * rows + i]"),
        ("is outside of", "if j < columns:", "if True:"),
        ("element 0 is", "range(rows)", "range(1, rows)"),
        ("never written", "if j < columns:", "if j < rows:"),
    ],
    "fix_divergence": [
        ("is outside of x", "x[i] if i < x.size else np.float32(0)", "x[i]"),
        (
            "not all threads reach the barrier",
            "    step = 32",
            "    if i >= x.size:\n        return\n    step = 32",
        ),
        (NO_BARRIER, "np.float32(0)\n    cuda.syncthreads()", "np.float32(0)"),
        ("element 0 is", "step = 32", "step = 16"),
    ],
    "fix_uninitialised": [
        ("must give less than each of them", "np.float32(-math.inf)", "np.float32(0)"),
        ("is outside of x", "x[i] if i < x.size else np.float32(-math.inf)", "x[i]"),
        (NO_BARRIER, "np.float32(-math.inf)\n    cuda.syncthreads()", "np.float32(-math.inf)"),
        ("element", "step = 32", "step = 16"),
        ("element 0 is", "max(tile[t], tile", "min(tile[t], tile"),
    ],
    "fix_banks": [
        ("bank conflicts", "(64, 33)", "(64, 34)"),
        (NO_BARRIER, "    cuda.syncthreads()\n", ""),
        ("element 0 is", "for j in range(32)", "for j in range(31)"),
        (
            "no shared memory is used",
            """
            def fix_banks(x, out):
                i = cuda.grid(1)
                total = np.float32(0)
                for j in range(32):
                    total += x[i, j]
                out[i] = total
            """,
        ),
    ],
    "fix_mask": [
        ("element 0 is", "(16, 8, 4, 2, 1)", "(8, 4, 2, 1)"),
        ("never written", "if cuda.laneid == 0:", "if cuda.threadIdx.x == 0:"),
        (
            "which are all 32",
            "        value = max(value, cuda",
            "        if cuda.laneid < step:\n            value = max(value, cuda",
        ),
        (
            "no shuffle (cuda.shfl_down_sync) is used",
            """
            def fix_mask(x, out):
                i = cuda.grid(1)
                if i % 32 == 0:
                    value = x[i]
                    for j in range(1, 32):
                        value = max(value, x[i + j])
                    out[i // 32] = value
            """,
        ),
    ],
    "fix_overflow": [
        ("add up in int64", "array(64, np.int64)", "array(64, np.uint32)"),
        ("is outside of x", "x[i] if i < x.size else 0", "x[i]"),
        (NO_BARRIER, "else 0\n    cuda.syncthreads()", "else 0"),
        (
            "add up in int64",
            "tile[t] += tile[t + step]",
            "tile[t] = np.int32(tile[t] + tile[t + step])",
        ),
    ],
    "fix_half": [
        ("add up in float32", "np.float32(x[i, j])", "np.float32(np.float16(x[i, j] * x[i, j]))"),
        ("is outside of x", "if j < x.shape[1]:", "if True:"),
        (
            "add up in float32",
            "total += np.float32(x[i, j])",
            "total = np.float32(np.float16(total + np.float32(x[i, j])))",
        ),
        ("element 0 is", " / np.float32(x.shape[0])", ""),
    ],
}
