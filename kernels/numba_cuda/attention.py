"""Scaled dot product attention of q (Z, L, E) to k (ZK, S, E) and v (ZK, S, F), with its gradients.

out = softmax(q @ k.T * scale + mask) @ v; head z of q attends to head z // (Z / ZK) of k and v.
4 Z L S E floating-point operations forward, 10 backward; at least q, k, v read and out written.

1. three_step  scores, softmax and weighted sum, one kernel each: Z L S scores go to memory and back
2. triangular  three_step, whose products skip the tiles that causal attention does not see
3. tiled       a block keeps a tile of queries and loops over tiles of keys and values; the sum of a
               row is rescaled at each larger score (online softmax): no score is written to memory
4. split       tiled, where queries are few: blocks share the keys, and a second launch merges their
               results by their log-sum-exp (flash decoding)
All keep the log-sum-exp of each row, from which the gradients recompute the probabilities:
    three_step, triangular  in memory, like the forward scores
    tiled       a block keeps a tile of keys and loops over queries (dk, dv), then the reverse (dq):
                there are no atomic additions, so results repeat bit by bit
    split       likewise, and a reduction adds up the gradients of the blocks that share rows
Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning" (2023).

Element (z, i, j) of the mask is mask[z // div % mod, i * step, j]: a broadcast mask is not copied.
A row with no unmasked key has the result 0 and the log-sum-exp inf, so its probabilities are 0.
"""

from __future__ import annotations

import functools
import math

from kernels.launchers.attention import EDGE, ROW_BLOCK, Tile
from kernels.launchers.attention_tiles import BX, BY
from kernels.numba_cuda.small_block import tree_max, tree_sum
from kernels.simt import cuda

LOWEST = -math.inf
VECTOR = 8  # rows of a causal softmax end at multiples, which the CPU computes without a rest


@functools.cache
def softmax_rows(acc_t, mask_kind: str):
    """Block ROW_BLOCK, grid (Z * L,): the scores s (Z, L, S) of a row become its probabilities."""

    @cuda.jit
    def attention_softmax_rows(s, mask, lse, scale, causal, div, mod, step):
        partial = cuda.shared.array(ROW_BLOCK, acc_t)
        t, z, row = cuda.threadIdx.x, cuda.blockIdx.x // s.shape[1], cuda.blockIdx.x % s.shape[1]
        zm = z // div % mod
        end = min(s.shape[2], row + 1) if causal else s.shape[2]
        stop = min(s.shape[2], (end + VECTOR - 1) // VECTOR * VECTOR)
        top = acc_t(LOWEST)
        for c in range(t, stop, ROW_BLOCK):
            v = s[z, row, c] * scale
            if mask_kind == "add":
                v += acc_t(mask[zm, row * step, c])
            if mask_kind == "keep":
                v = v if mask[zm, row * step, c] else acc_t(LOWEST)
            v = v if c < end else acc_t(LOWEST)
            s[z, row, c] = v
            top = max(top, v)
        top = tree_max(top, partial)
        if top == acc_t(LOWEST):
            top = acc_t(0)
        total = acc_t(0)
        for c in range(t, stop, ROW_BLOCK):
            e = math.exp(s[z, row, c] - top)
            s[z, row, c] = e
            total += e
        total = tree_sum(total, partial)
        part = acc_t(0) if total == acc_t(0) else acc_t(1) / total
        for c in range(t, stop, ROW_BLOCK):
            s[z, row, c] *= part
        for c in range(stop + t, s.shape[2], ROW_BLOCK):
            s[z, row, c] = acc_t(0)
        if t == 0:
            lse[z, row] = acc_t(-LOWEST) if total == acc_t(0) else top + math.log(total)

    return attention_softmax_rows


@functools.cache
def triangular_product(acc_t, kind: str, tile: int):
    """Block (tile, EDGE), grid (tiles of N, tiles of M, Z): a product of causal attention, c
    (Z, M, N), without the tiles of scores in which every key comes after every query.

    kind: "scores", of a (Z, L, E) and b (Z, S, E), where such tiles become 0; "rows", a @ b, or
    "columns", a.T @ b, of scores a (Z, L, S). As `matmul.tiled`, but as narrow as the heads.
    """
    of_scores, of_columns = kind == "scores", kind == "columns"
    depth = tile if of_scores else EDGE

    @cuda.jit
    def attention_triangular_product(a, b, c):
        a_tile = cuda.shared.array((EDGE, depth), acc_t)
        b_tile = cuda.shared.array((depth, tile), acc_t)
        tx, ty, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
        row0, col0 = cuda.blockIdx.y * EDGE, cuda.blockIdx.x * tile
        row, col = row0 + ty, cuda.blockIdx.x * tile + tx
        m, n = c.shape[1], c.shape[2]
        k = a.shape[1] if of_columns else a.shape[2]
        acc = acc_t(0)
        for k0 in range(0, k, depth):
            if of_scores:
                seen = col0 < row0 + EDGE
            elif of_columns:
                seen = row0 < k0 + EDGE
            else:
                seen = k0 < row0 + EDGE
            if depth == EDGE or ty < depth:
                b_tile[ty, tx] = acc_t(0)
                if k0 + ty < k and col < n:
                    b_tile[ty, tx] = acc_t(b[z, col, k0 + ty] if of_scores else b[z, k0 + ty, col])
            for i in range(0, depth, tile):
                x = i + tx
                a_tile[ty, x] = acc_t(0)
                if seen:
                    if of_columns:
                        if k0 + ty < k and row0 + x < m:
                            a_tile[ty, x] = acc_t(a[z, k0 + ty, row0 + x])
                    elif row < m and k0 + x < k:
                        a_tile[ty, x] = acc_t(a[z, row, k0 + x])
            cuda.syncthreads()
            if seen:
                for kk in range(depth):
                    av = a_tile[kk, ty] if of_columns else a_tile[ty, kk]
                    acc += av * b_tile[kk, tx]
            cuda.syncthreads()
        if row < m and col < n:
            c[z, row, col] = acc

    return attention_triangular_product


@functools.cache
def row_products(acc_t):
    """Block ROW_BLOCK, grid (Z * L,): delta (Z, L), the sum of g * out over a row."""

    @cuda.jit
    def attention_row_products(g, out, delta):
        partial = cuda.shared.array(ROW_BLOCK, acc_t)
        t, z, row = cuda.threadIdx.x, cuda.blockIdx.x // g.shape[1], cuda.blockIdx.x % g.shape[1]
        total = acc_t(0)
        for c in range(t, g.shape[2], ROW_BLOCK):
            total += acc_t(g[z, row, c]) * acc_t(out[z, row, c])
        total = tree_sum(total, partial)
        if t == 0:
            delta[z, row] = total

    return attention_row_products


@functools.cache
def score_gradients(acc_t, mask_kind: str):
    """Block ROW_BLOCK, grid (Z * L,): scores s and products ds = g @ v.T (Z, L, S) become
    probabilities and the gradients of q @ k.T."""

    @cuda.jit
    def attention_score_gradients(s, ds, mask, lse, delta, scale, causal, div, mod, step):
        t, z, row = cuda.threadIdx.x, cuda.blockIdx.x // s.shape[1], cuda.blockIdx.x % s.shape[1]
        zm = z // div % mod
        end = min(s.shape[2], row + 1) if causal else s.shape[2]
        stop = min(s.shape[2], (end + VECTOR - 1) // VECTOR * VECTOR)
        total, less = lse[z, row], delta[z, row]
        for c in range(t, stop, ROW_BLOCK):
            v = s[z, row, c] * scale
            if mask_kind == "add":
                v += acc_t(mask[zm, row * step, c])
            if mask_kind == "keep":
                v = v if mask[zm, row * step, c] else acc_t(LOWEST)
            p = math.exp(v - total) if c < end else acc_t(0)
            s[z, row, c] = p
            ds[z, row, c] = p * (ds[z, row, c] - less) * scale
        for c in range(stop + t, s.shape[2], ROW_BLOCK):
            s[z, row, c] = acc_t(0)
            ds[z, row, c] = acc_t(0)

    return attention_score_gradients


@functools.cache
def _steps(acc_t, tile: Tile):
    """The device functions of the tiled kernels: threads (BX, BY) of a block hold an `own` tile of
    rows, transposed (d, own), and loop over `other` rows (other, d)."""
    own, other, d = tile
    own_x, own_y, other_y, d_x = own // BX, own // BY, other // BY, d // BX

    @cuda.jit(device=True)
    def load_own(to, x, z, row0):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        for i in range(own_y):
            for j in range(d_x):
                r = i * BY + ty
                e = j * BX + tx
                inside = row0 + r < x.shape[1] and e < x.shape[2]
                to[e, r] = acc_t(x[z, row0 + r, e]) if inside else acc_t(0)

    @cuda.jit(device=True)
    def load_other(to, x, z, row0):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        for i in range(other_y):
            for j in range(d_x):
                r = i * BY + ty
                e = j * BX + tx
                inside = row0 + r < x.shape[1] and e < x.shape[2]
                to[r, e] = acc_t(x[z, row0 + r, e]) if inside else acc_t(0)

    @cuda.jit(device=True)
    def products(s, other_rows, own_rows):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        for i in range(other_y):
            for j in range(own_x):
                s[i, j] = acc_t(0)
        for e in range(d):
            for i in range(other_y):
                v = other_rows[i * BY + ty, e]
                for j in range(own_x):
                    s[i, j] += v * own_rows[e, j * BX + tx]

    @cuda.jit(device=True)
    def accumulate(total, p, other_rows):
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        for c in range(other):
            for i in range(own_y):
                v = p[c, i * BY + ty]
                for j in range(d_x):
                    total[i, j] += v * other_rows[c, j * BX + tx]

    return load_own, load_other, products, accumulate


@functools.cache
def tiled(acc_t, tile: Tile, mask_kind: str, split: bool):
    """Block (BX, BY), grid (Z * tiles of L,): a tile of queries and its weighted sum.

    split: grid (Z * tiles of L, parts), over `span` keys; out (parts * Z, L, F) and lse
    (parts * Z, L), which is -inf for a row that sees no key of its part, are for `merge`."""
    own, other, d = tile
    own_x, own_y, other_y, d_x = own // BX, own // BY, other // BY, d // BX
    pitch_own, pitch = own + 1, d + 1  # neighbouring rows in different banks
    load_own, load_other, products, accumulate = _steps(acc_t, tile)

    @cuda.jit
    def attention_tiled(q, k, v, mask, out, lse, scale, causal, div, mod, step, span):
        queries = cuda.shared.array((d, pitch_own), acc_t)
        keys = cuda.shared.array((other, pitch), acc_t)
        values = cuda.shared.array((other, pitch), acc_t)
        probs = cuda.shared.array((other, own), acc_t)
        top = cuda.shared.array(own, acc_t)
        base = cuda.shared.array(own, acc_t)
        shrink = cuda.shared.array(own, acc_t)
        total = cuda.shared.array(own, acc_t)
        s = cuda.local.array((other_y, own_x), acc_t)
        acc = cuda.local.array((own_y, d_x), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tiles = (q.shape[1] + own - 1) // own
        z, row0 = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles * own
        t = ty * BX + tx
        zk, zm = z // (q.shape[0] // k.shape[0]), z // div % mod
        load_own(queries, q, z, row0)
        if t < own:
            top[t] = acc_t(LOWEST)
            total[t] = acc_t(0)
        for i in range(own_y):
            for j in range(d_x):
                acc[i, j] = acc_t(0)
        end = min(k.shape[1], row0 + own) if causal else k.shape[1]
        first = cuda.blockIdx.y * span if split else 0
        if split:
            end = min(end, first + span)
            cuda.syncthreads()  # the loop may have no iteration, and so no barrier
        for c0 in range(first, end, other):
            load_other(keys, k, zk, c0)
            load_other(values, v, zk, c0)
            cuda.syncthreads()
            products(s, keys, queries)
            for i in range(other_y):
                for j in range(own_x):
                    c = c0 + i * BY + ty
                    r = row0 + j * BX + tx
                    seen = c < k.shape[1] and r < q.shape[1]
                    if causal:
                        seen = seen and c <= r
                    score = acc_t(LOWEST)
                    if seen:
                        score = s[i, j] * scale
                        if mask_kind == "add":
                            score += acc_t(mask[zm, r * step, c])
                        if mask_kind == "keep":
                            kept = mask[zm, r * step, c]
                            score = score if kept else acc_t(LOWEST)
                    probs[i * BY + ty, j * BX + tx] = score
            cuda.syncthreads()
            if t < own:
                m = top[t]
                for c in range(other):
                    m = max(m, probs[c, t])
                b = acc_t(0) if m == acc_t(LOWEST) else m
                base[t] = b
                shrink[t] = math.exp(top[t] - b)
                top[t] = m
            cuda.syncthreads()
            for i in range(other_y):
                for j in range(own_x):
                    r = j * BX + tx
                    probs[i * BY + ty, r] = math.exp(probs[i * BY + ty, r] - base[r])
            cuda.syncthreads()
            if t < own:
                m = total[t] * shrink[t]
                for c in range(other):
                    m += probs[c, t]
                total[t] = m
            for i in range(own_y):
                for j in range(d_x):
                    acc[i, j] *= shrink[i * BY + ty]
            accumulate(acc, probs, values)
            cuda.syncthreads()
        zo = cuda.blockIdx.y * q.shape[0] + z if split else z
        for i in range(own_y):
            r = i * BY + ty
            part = acc_t(0) if total[r] == acc_t(0) else acc_t(1) / total[r]
            for j in range(d_x):
                e = j * BX + tx
                if row0 + r < q.shape[1] and e < v.shape[2]:
                    out[zo, row0 + r, e] = acc[i, j] * part
        if t < own and row0 + t < q.shape[1]:
            none = total[t] == acc_t(0)
            nothing = acc_t(LOWEST) if split else acc_t(-LOWEST)
            lse[zo, row0 + t] = nothing if none else top[t] + math.log(total[t])

    return attention_tiled


@functools.cache
def merge(acc_t):
    """Block 32, grid (Z * L,): out (Z, L, F) and lse (Z, L) from those of parts of the keys, parts
    (parts, Z * L, F) and of_part (parts, Z * L)."""

    @cuda.jit
    def attention_merge(parts, of_part, out, lse):
        row, queries = cuda.blockIdx.x, out.shape[1]
        z, r = row // queries, row % queries
        top, total = acc_t(LOWEST), acc_t(0)
        for p in range(parts.shape[0]):
            top = max(top, of_part[p, row])
        base = acc_t(0) if top == acc_t(LOWEST) else top
        for p in range(parts.shape[0]):
            total += math.exp(of_part[p, row] - base)
        share = acc_t(0) if total == acc_t(0) else acc_t(1) / total
        for c in range(cuda.threadIdx.x, out.shape[2], 32):
            value = acc_t(0)
            for p in range(parts.shape[0]):
                value += math.exp(of_part[p, row] - base) * parts[p, row, c]
            out[z, r, c] = value * share
        if cuda.threadIdx.x == 0:
            lse[z, r] = acc_t(-LOWEST) if total == acc_t(0) else base + math.log(total)

    return attention_merge


@functools.cache
def tiled_backward(acc_t, tile: Tile, mask_kind: str, of_keys: bool, split: bool):
    """Block (BX, BY), grid (Z or ZK, times tiles of rows). of_keys: own_a, own_b are k and v,
    other_a and other_b q and g, and the gradients da, db those of k and v. Otherwise own and other
    are swapped, and only da, the gradient of q, is written.

    split: grid (..., parts), over `span` of the other rows; da and db have rows for each part."""
    own, other, d = tile
    own_x, own_y, other_y, d_x = own // BX, own // BY, other // BY, d // BX
    pitch_own, pitch = own + 1, d + 1
    load_own, load_other, products, accumulate = _steps(acc_t, tile)

    @cuda.jit
    def attention_tiled_backward(
        own_a,
        own_b,
        other_a,
        other_b,
        mask,
        lse,
        delta,
        da,
        db,
        scale,
        causal,
        div,
        mod,
        step,
        span,
    ):
        own_rows_a = cuda.shared.array((d, pitch_own), acc_t)
        own_rows_b = cuda.shared.array((d, pitch_own), acc_t)
        rows_a = cuda.shared.array((other, pitch), acc_t)
        rows_b = cuda.shared.array((other, pitch), acc_t)
        probs = cuda.shared.array((other, own), acc_t)
        grads = cuda.shared.array((other, own), acc_t)
        s = cuda.local.array((other_y, own_x), acc_t)
        ds = cuda.local.array((other_y, own_x), acc_t)
        acc_a = cuda.local.array((own_y, d_x), acc_t)
        acc_b = cuda.local.array((own_y, d_x), acc_t)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tiles = (own_a.shape[1] + own - 1) // own
        z, row0 = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles * own
        load_own(own_rows_a, own_a, z, row0)
        load_own(own_rows_b, own_b, z, row0)
        for i in range(own_y):
            for j in range(d_x):
                acc_a[i, j] = acc_t(0)
                acc_b[i, j] = acc_t(0)
        first, end = 0, other_a.shape[1]
        if causal:
            if of_keys:
                first = row0 // other * other
            else:
                end = min(end, row0 + own)
        if split:
            first = max(first, cuda.blockIdx.y * span)
            end = min(end, (cuda.blockIdx.y + 1) * span)
        group = other_a.shape[0] // own_a.shape[0] if of_keys else 1
        for h in range(group):
            zo = z * group + h if of_keys else z // (own_a.shape[0] // other_a.shape[0])
            zq = zo if of_keys else z
            zm = zq // div % mod
            for c0 in range(first, end, other):
                load_other(rows_a, other_a, zo, c0)
                load_other(rows_b, other_b, zo, c0)
                cuda.syncthreads()
                products(s, rows_a, own_rows_a)
                products(ds, rows_b, own_rows_b)
                for i in range(other_y):
                    for j in range(own_x):
                        c = i * BY + ty
                        r = j * BX + tx
                        query = c0 + c if of_keys else row0 + r
                        key = row0 + r if of_keys else c0 + c
                        seen = c0 + c < other_a.shape[1] and row0 + r < own_a.shape[1]
                        if causal:
                            seen = seen and key <= query
                        p, grad = acc_t(0), acc_t(0)
                        if seen:
                            score = s[i, j] * scale
                            if mask_kind == "add":
                                score += acc_t(mask[zm, query * step, key])
                            if mask_kind == "keep":
                                kept = mask[zm, query * step, key]
                                score = score if kept else acc_t(LOWEST)
                            p = math.exp(score - lse[zq, query])
                            grad = p * (ds[i, j] - delta[zq, query])
                        probs[c, r] = p
                        grads[c, r] = grad
                cuda.syncthreads()
                accumulate(acc_a, grads, rows_a)
                if of_keys:
                    accumulate(acc_b, probs, rows_b)
                cuda.syncthreads()
        zd = cuda.blockIdx.y * own_a.shape[0] + z if split else z
        for i in range(own_y):
            for j in range(d_x):
                r = row0 + i * BY + ty
                e = j * BX + tx
                if r < own_a.shape[1]:
                    if e < own_a.shape[2]:
                        da[zd, r, e] = acc_a[i, j] * scale
                    if of_keys and e < own_b.shape[2]:
                        db[zd, r, e] = acc_b[i, j]

    return attention_tiled_backward
