// Cross entropy of logits (N, C) against class indices (N,), fused with log-softmax.
//
// loss[r] = -sum_c q[r, c] log_softmax(logits)[r, c], with q = weight[c] * (smoothing / C, plus
// 1 - smoothing at the target); rows whose target is `ignore` have q = 0. About 3 N C operations and
// N C exp; at least the logits read once, and in the backward written once.
//
// Block (32, rows): a warp per row, lanes along the classes; no softmax is ever stored. A target that
// is no class, which the launcher refuses where it can see it, makes a loss of NaN.
#include "common.cuh"

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
    A loss = A(0);
    if (hit != ignore) {
        if (hit < 0 || hit >= classes) {
            loss = A(infinity()) - A(infinity());
        } else {
            const A share = (A(1) - smoothing) * (WEIGHT ? A(weight[hit]) : A(1));
            if (share != A(0)) loss = share * (norm - A(logits[hit]));
            loss += spread;
        }
    }
    losses[row] = T(loss);
}

// d = g (softmax * sum(q) - q).
template <class T, class I, class A, bool WEIGHT, bool SMOOTH>
__global__ void backward(const T* g, const T* logits, const T* lse, const I* target, const T* weight,
                         long long ignore, A smoothing, T* d, int rows, int classes) {
    const int lane = threadIdx.x;
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    logits += row * classes;
    d += row * classes;
    long long hit = target[row];
    const bool keep = hit != ignore && hit >= 0 && hit < classes;
    hit = keep ? hit : 0;
    const A gv = keep ? A(g[row]) : A(0), norm = A(lse[row]);
    const A at_hit = (A(1) - smoothing) * (WEIGHT ? A(weight[hit]) : A(1));
    A total = at_hit;
    if (SMOOTH && WEIGHT) {
        A part = A(0);
        for (int c = lane; c < classes; c += 32) part += A(weight[c]);
        total += warp_sum(part) * smoothing / A(classes);
    } else if (SMOOTH) {
        total += smoothing;
    }
    for (int c = lane; c < classes; c += 32) {
        A q = SMOOTH ? smoothing / A(classes) * (WEIGHT ? A(weight[c]) : A(1)) : A(0);
        if (c == hit) q += at_hit;
        d[c] = T(gv * (exp_of(A(logits[c]) - norm) * total - q));
    }
}
