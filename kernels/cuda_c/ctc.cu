// Connectionist temporal classification (Graves et al. 2006): a block per sequence, a thread per
// state. About 5 exp and log for each state and step.
//
// The states of n labels are 2 n + 1 symbols: a blank before, between and after. A path begins in one
// of the first two states and ends in one of the last two; from step to step it stays, moves on, or
// leaps over a symbol between two that differ. Rows of states have two places more, which no path
// reaches, so that no state asks whether it has neighbours.
//
// prefixes  the logarithm of the probability of the paths to each state, and the losses
// links     the symbols; for each label the one before of its class, the last one of each class
// shares    the same from the other end: the part of the paths that pass each state
// collect   a thread per element of the gradient adds the shares of its class, without atomics
#include "common.cuh"

// log(exp(a) + exp(b) + exp(c)), also of -inf.
template <class A>
__device__ __forceinline__ A log_sum(A a, A b, A c) {
    A top = a > b ? a : b;
    top = c > top ? c : top;
    top = top > A(-infinity()) ? top : A(0);
    return top + log_of(exp_of(a - top) + exp_of(b - top) + exp_of(c - top));
}

// The symbols of a sequence, with a blank before and one in front of that.
__device__ __forceinline__ void spell(const long long* targets, int states, int blank, int* symbols) {
    if (threadIdx.x < 2) symbols[threadIdx.x] = blank;
    for (int s = threadIdx.x; s < states; s += blockDim.x) {
        symbols[s + 2] = s % 2 == 0 ? blank : int(targets[s / 2]);
    }
}

// Grid (N,): log_probs (T, N, C), targets (N, width), symbols (N, 2 width + 3), rows (N, T,
// 2 width + 3).
template <class T, class A>
__global__ void prefixes(const T* log_probs, const long long* targets, const long long* times,
                         const long long* lengths, int blank, int* symbols, A* rows, A* losses,
                         int all_steps, int classes, int width) {
    const long long n = blockIdx.x, step = (long long)gridDim.x * classes;
    const int steps = times[n], states = 2 * lengths[n] + 1, places = 2 * width + 3;
    const A none = A(-infinity());
    symbols += n * places;
    rows += n * all_steps * places;
    log_probs += n * classes;
    spell(targets + n * width, states, blank, symbols);
    for (int t = 0; t < all_steps; ++t) {  // what no path reaches
        const int first = t < steps ? states + 2 : 2;
        if (threadIdx.x < 2) rows[(long long)t * places + threadIdx.x] = none;
        for (int s = first + threadIdx.x; s < places; s += blockDim.x) {
            rows[(long long)t * places + s] = none;
        }
    }
    for (int t = 0; t < steps; ++t, rows += places, log_probs += step) {
        __syncthreads();
        for (int s = threadIdx.x; s < states; s += blockDim.x) {
            const int symbol = symbols[s + 2];
            A before = s < 2 ? A(0) : none;
            if (t > 0) {
                const A* last = rows - places;
                before = log_sum(last[s + 2], last[s + 1], symbol != symbols[s] ? last[s] : none);
            }
            rows[s + 2] = before + A(log_probs[symbol]);
        }
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    if (steps > 0) losses[n] = -log_sum(rows[states + 1 - places], rows[states - places], none);
    else losses[n] = states == 1 ? A(0) : A(infinity());
}

// Grid (N,): targets, before (N, width), heads (N, C): places in `targets`, or -1.
__global__ void links(const long long* targets, const long long* lengths, int blank, int* symbols,
                      long long* before, long long* heads, int classes, int width) {
    const long long n = blockIdx.x;
    const int length = lengths[n];
    targets += n * width;
    before += n * width;
    heads += n * classes;
    spell(targets, 2 * length + 1, blank, symbols + n * (2 * width + 3));
    for (int c = threadIdx.x; c < classes; c += blockDim.x) heads[c] = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        const long long label = targets[i];
        int nearest = -1;
        bool last = true;
        for (int j = 0; j < length; ++j) {
            if (targets[j] != label) continue;
            if (j < i) nearest = j;
            if (j > i) last = false;
        }
        before[i] = nearest;
        if (last) heads[label] = i;
    }
}

// Grid (N,): as `prefixes`; suffixes (N, 2, 2 width + 3), of this step and the one after; parts (N, T,
// 2 width + 1).
template <class T, class A>
__global__ void shares(const T* log_probs, const long long* times, const long long* lengths,
                       const int* symbols, const A* rows, const A* losses, A* suffixes, A* parts,
                       int all_steps, int classes, int width) {
    const long long n = blockIdx.x, step = (long long)gridDim.x * classes;
    const int steps = times[n], states = 2 * lengths[n] + 1, places = 2 * width + 3;
    const A loss = losses[n], none = A(-infinity());
    symbols += n * places;
    rows += n * all_steps * places;
    parts += n * all_steps * (2 * width + 1);
    suffixes += n * 2 * places;
    log_probs += n * classes;
    if (threadIdx.x < 2) {
        for (int half = 0; half < 2; ++half) suffixes[half * places + states + threadIdx.x] = none;
    }
    for (int t = steps - 1; t >= 0; --t) {
        A* own = suffixes + t % 2 * places;
        const A* later = suffixes + (t + 1) % 2 * places;
        __syncthreads();
        for (int s = threadIdx.x; s < states; s += blockDim.x) {
            const int symbol = symbols[s + 2];
            A after = s >= states - 2 ? A(0) : none;
            if (t < steps - 1) {
                const bool leaps = s + 2 < states && symbol != symbols[s + 4];
                after = log_sum(later[s], later[s + 1], leaps ? later[s + 2] : none);
            }
            own[s] = after + A(log_probs[t * step + symbol]);
            parts[(long long)t * (2 * width + 1) + s] =
                exp_of(rows[(long long)t * places + s + 2] + after + loss);
        }
    }
}

// Grid (C / block, N, T): d like log_probs. spared: whether a sequence that has no path has no
// gradient, either.
template <class T, class A>
__global__ void collect(const A* g, const T* log_probs, const long long* times,
                        const long long* lengths, int blank, const long long* before,
                        const long long* heads, const A* losses, const A* parts, bool spared, T* d,
                        int classes, int width) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= classes) return;
    const long long n = blockIdx.y, t = blockIdx.z, at = (t * gridDim.y + n) * classes + c;
    A value = A(0);
    if (losses[n] == A(infinity())) {
        if (!spared && t < times[n]) value = A(infinity()) - A(infinity());
    } else if (t < times[n]) {
        parts += (n * gridDim.z + t) * (2 * width + 1);
        value = exp_of(A(log_probs[at]));
        if (c == blank) {
            for (int i = 0; i <= lengths[n]; ++i) value -= parts[2 * i];
        }
        for (long long i = heads[n * classes + c]; i >= 0; i = before[n * width + i]) {
            value -= parts[2 * i + 1];
        }
        value *= g[n];
    }
    d[at] = T(value);
}
