// Cross entropy of logits (N, C) against class indices (N,), fused with log-softmax.
//
// loss[r] = -sum_c q[r, c] log_softmax(logits)[r, c], with q = weight[c] * (smoothing / C, plus
// 1 - smoothing at the target); rows whose target is `ignore` have q = 0. About 3 N C operations and
// N C exp; at least the logits read once, and in the backward written once.
//
// warp   block (32, rows): a warp per row, lanes along the classes; no softmax is ever stored
// split  long rows: one or several blocks per row leave the sums of their parts, which a second launch
//        merges
// A target that is no class, which the launcher refuses where it can see it, makes a loss of NaN.
#include "common.cuh"

// The loss of a row, from its log-sum-exp and what smoothing adds; logits[at] is the target's.
template <class A, bool WEIGHT, class L, class T>
__device__ __forceinline__ A loss_of(const L* logits, long long at, long long hit, const T* weight,
                                     long long ignore, A smoothing, A norm, A spread, int classes) {
    if (hit == ignore) return A(0);
    if (hit < 0 || hit >= classes) return A(infinity()) - A(infinity());
    const A share = (A(1) - smoothing) * (WEIGHT ? A(weight[hit]) : A(1));
    return (share != A(0) ? share * (norm - A(logits[at])) : A(0)) + spread;
}

template <class T, class I, class A, bool WEIGHT, bool SMOOTH>
__global__ void forward(const T* logits, const I* target, const T* weight, long long ignore,
                        A smoothing, T* losses, T* lse, int rows, int classes) {
    const int lane = threadIdx.x;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    logits += row * classes;
    A top = A(-infinity());
    for (int c = lane; c < classes; c += 32) top = A(logits[c]) > top ? A(logits[c]) : top;
    top = warp_max(top);
    A total = A(0);
    for (int c = lane; c < classes; c += 32) total += exp_of(A(logits[c]) - top);
    const A norm = top + log_of(warp_sum(total));
    A spread = A(0);
    if (SMOOTH) {
        for (int c = lane; c < classes; c += 32) {
            const A share = WEIGHT ? A(weight[c]) : A(1);
            if (share != A(0)) spread += share * (norm - A(logits[c]));
        }
        spread = warp_sum(spread) * smoothing / A(classes);
    }
    if (lane > 0) return;
    lse[row] = T(norm);
    const long long hit = target[row];
    losses[row] = T(loss_of<A, WEIGHT>(logits, hit, hit, weight, ignore, smoothing, norm, spread,
                                       classes));
}

// Grid (rows * parts,); found (4, rows, parts): of `span` logits the maximum, the sum of
// exp(x - maximum), and if SMOOTH, the sums of weight * (maximum - x) and of the weights. A part that
// is all -inf counts 0 for its maximum in the differences. hits (rows,): the logits of the targets.
template <class T, class I, class A, bool WEIGHT, bool SMOOTH>
__global__ void split_sums(const T* logits, const I* target, const T* weight, A* found, A* hits,
                           int span, int rows, int classes, int parts) {
    __shared__ A partial[32];
    const int first = blockIdx.x % parts * span;
    const int last = classes - first < span ? classes : first + span;
    logits += blockIdx.x / parts * (long long)classes;
    A top = A(-infinity()), total = A(0), spread = A(0), shares = A(0);
    for (int c = first + threadIdx.x; c < last; c += blockDim.x) {
        top = A(logits[c]) > top ? A(logits[c]) : top;
    }
    top = block_max(top, partial);
    const A base = top == A(-infinity()) ? A(0) : top;
    for (int c = first + threadIdx.x; c < last; c += blockDim.x) {
        total += exp_of(A(logits[c]) - base);
        if (SMOOTH) {
            const A share = WEIGHT ? A(weight[c]) : A(1);
            if (share != A(0)) spread += share * (base - A(logits[c]));
            shares += share;
        }
    }
    total = block_sum(total, partial);
    if (SMOOTH) spread = block_sum(spread, partial), shares = block_sum(shares, partial);
    if (threadIdx.x > 0) return;
    const long long step = (long long)rows * parts;
    found += blockIdx.x;
    found[0] = top, found[step] = total;
    if (SMOOTH) found[2 * step] = spread, found[3 * step] = shares;
    const long long row = blockIdx.x / parts, hit = target[row];
    if (hit >= first && hit < last) hits[row] = A(logits[hit]);
}

// Block 32, grid (rows,): losses and lse, by what `split_sums` leaves.
template <class T, class I, class A, bool WEIGHT, bool SMOOTH>
__global__ void split(const I* target, const T* weight, long long ignore, A smoothing, const A* found,
                      const A* hits, T* losses, T* lse, int classes, int rows, int parts) {
    const long long row = blockIdx.x, step = (long long)rows * parts;
    found += row * parts;
    A top = A(-infinity()), total = A(0), spread = A(0);
    for (int p = threadIdx.x; p < parts; p += 32) top = found[p] > top ? found[p] : top;
    top = warp_max(top);
    for (int p = threadIdx.x; p < parts; p += 32) total += found[step + p] * exp_of(found[p] - top);
    const A norm = top + log_of(warp_sum(total));
    if (SMOOTH) {
        for (int p = threadIdx.x; p < parts; p += 32) {
            const A base = found[p] == A(-infinity()) ? A(0) : found[p], shares = found[3 * step + p];
            spread += found[2 * step + p];
            if (shares != A(0)) spread += shares * (norm - base);
        }
        spread = warp_sum(spread) * smoothing / A(classes);
    }
    if (threadIdx.x > 0) return;
    lse[row] = T(norm);
    losses[row] = T(loss_of<A, WEIGHT>(hits + row, 0, target[row], weight, ignore, smoothing, norm,
                                       spread, classes));
}

// d = g (softmax * sum(q) - q) of a row.
template <class A, bool WEIGHT, bool SMOOTH>
struct Gradient {
    A g, norm, at_hit, smoothing;
    long long hit;
    int classes;

    template <class T>
    __device__ Gradient(T g_, T lse, long long target, const T* weight, long long ignore, A smoothing,
                        int classes)
        : norm(A(lse)), smoothing(smoothing), classes(classes) {
        const bool keep = target != ignore && target >= 0 && target < classes;
        hit = keep ? target : 0;
        g = keep ? A(g_) : A(0);
        at_hit = (A(1) - smoothing) * (WEIGHT ? A(weight[hit]) : A(1));
    }
    // sum(q), for the sum of the weights.
    __device__ A total(A shares) const {
        return at_hit + (!SMOOTH ? A(0) : WEIGHT ? shares * smoothing / A(classes) : smoothing);
    }
    template <class T>
    __device__ A at(int c, A logit, const T* weight, A total) const {
        A q = SMOOTH ? smoothing / A(classes) * (WEIGHT ? A(weight[c]) : A(1)) : A(0);
        if (c == hit) q += at_hit;
        return g * (exp_of(logit - norm) * total - q);
    }
};

template <class T, class I, class A, bool WEIGHT, bool SMOOTH>
__global__ void backward(const T* g, const T* logits, const T* lse, const I* target, const T* weight,
                         long long ignore, A smoothing, T* d, int rows, int classes) {
    const int lane = threadIdx.x;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    logits += row * classes;
    d += row * classes;
    const Gradient<A, WEIGHT, SMOOTH> of(g[row], lse[row], target[row], weight, ignore, smoothing,
                                         classes);
    A shares = A(0);
    if (SMOOTH && WEIGHT) {
        for (int c = lane; c < classes; c += 32) shares += A(weight[c]);
        shares = warp_sum(shares);
    }
    const A total = of.total(shares);
    for (int c = lane; c < classes; c += 32) d[c] = T(of.at(c, A(logits[c]), weight, total));
}

// Grid (rows * parts,): d of `span` classes; weights (1,) is the sum of all weights.
template <class T, class I, class A, bool WEIGHT, bool SMOOTH>
__global__ void split_backward(const T* g, const T* logits, const T* lse, const I* target,
                               const T* weight, const A* weights, long long ignore, A smoothing, T* d,
                               int span, int parts, int classes) {
    const long long row = blockIdx.x / parts;
    const int first = blockIdx.x % parts * span;
    const int last = classes - first < span ? classes : first + span;
    logits += row * classes;
    d += row * classes;
    const Gradient<A, WEIGHT, SMOOTH> of(g[row], lse[row], target[row], weight, ignore, smoothing,
                                         classes);
    const A total = of.total(SMOOTH && WEIGHT ? weights[0] : A(0));
    for (int c = first + threadIdx.x; c < last; c += blockDim.x) {
        d[c] = T(of.at(c, A(logits[c]), weight, total));
    }
}
