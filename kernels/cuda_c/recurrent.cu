// Recurrent layers (RNN, LSTM, GRU) over a sequence, one direction, and their gradients.
//
// The gates of step t are x[t] + h @ weight.T + bias, where x (T, B, gates * H) has the input's part
// for all steps. 2 gates H H floating-point operations per sequence and step, forward and backward;
// the weight, gates * H * H elements, is used in every step, after the step before: latency counts
// more than memory.
//
// 1. gate, update  per step a product, a kernel for each gate and one for the state
// 2. cell          per step a product, and one kernel for all gates of all sequences
// 3. sequence      one launch: a block has ROWS sequences, whose state stays in shared memory from
//                  step to step; no block waits for another, since sequences do not depend on each
//                  other
// Backward the same with the last step first; it has no kernel per gate.
//
// states (1 or 2, T + 1, B, H) has h, and c of an LSTM; gates (T, B, 4 * H) what the gradients need:
// i, f, g, o of an LSTM; r, z, n and the product's part of n of a GRU. sizes (T,): how many sequences
// have a step t; the others keep their state.
#include "common.cuh"

constexpr int TANH = 0, RELU = 1, GRU = 2, LSTM = 3;
__host__ __device__ constexpr int parts_of(int mode) { return mode == LSTM ? 4 : mode == GRU ? 3 : 1; }

__device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_of(double x) { return tanh(x); }

template <class A>
__device__ __forceinline__ A sigmoid(A v) {
    return A(1) / (A(1) + exp_of(-v));
}

// One unit of one sequence: where it is in states, x and gates.
struct Unit {
    long long now, next, cells, x, gates;  // cells: from h to c
    int h;
    __device__ Unit(int t, int b, int j, int steps, int batch, int h, int parts) : h(h) {
        const long long row = t * (long long)batch + b;
        now = row * h + j;
        next = now + (long long)batch * h;
        cells = (steps + 1LL) * batch * h;
        x = row * parts * h + j;
        gates = row * 4 * h + j;
    }
};

// A step of one unit, from the sums of its gates' products. Returns the new h.
template <class T, class A, int MODE>
__device__ __forceinline__ A advance(const T* x, T* states, T* gates, const Unit u, const A* p) {
    A value;
    if constexpr (MODE == LSTM) {
        const A i = sigmoid(A(x[u.x]) + p[0]), f = sigmoid(A(x[u.x + u.h]) + p[1]);
        const A g = tanh_of(A(x[u.x + 2 * u.h]) + p[2]), o = sigmoid(A(x[u.x + 3 * u.h]) + p[3]);
        const A c = f * A(states[u.cells + u.now]) + i * g;
        states[u.cells + u.next] = T(c);
        gates[u.gates] = T(i);
        gates[u.gates + u.h] = T(f);
        gates[u.gates + 2 * u.h] = T(g);
        gates[u.gates + 3 * u.h] = T(o);
        value = o * tanh_of(c);
    } else if constexpr (MODE == GRU) {
        const A r = sigmoid(A(x[u.x]) + p[0]), z = sigmoid(A(x[u.x + u.h]) + p[1]);
        const A n = tanh_of(A(x[u.x + 2 * u.h]) + r * p[2]);
        gates[u.gates] = T(r);
        gates[u.gates + u.h] = T(z);
        gates[u.gates + 2 * u.h] = T(n);
        gates[u.gates + 3 * u.h] = T(p[2]);
        value = (A(1) - z) * n + z * A(states[u.now]);
    } else {
        const A v = A(x[u.x]) + p[0];
        value = MODE == TANH ? tanh_of(v) : v > A(0) ? v : A(0);
    }
    states[u.next] = T(value);
    return value;
}

// The gradients d of the product's gates of one unit from those of its h and c after the step; dc
// becomes that of c before it. Returns what of dh goes past the product.
template <class T, class A, int MODE>
__device__ __forceinline__ A retreat(const T* states, const T* gates, T* dx, const Unit u, A dh,
                                     A& dc, A* d) {
    A past = A(0);
    if constexpr (MODE == LSTM) {
        const A i = A(gates[u.gates]), f = A(gates[u.gates + u.h]);
        const A g = A(gates[u.gates + 2 * u.h]), o = A(gates[u.gates + 3 * u.h]);
        const A bounded = tanh_of(A(states[u.cells + u.next]));
        dc += dh * o * (A(1) - bounded * bounded);
        d[0] = dc * g * i * (A(1) - i);
        d[1] = dc * A(states[u.cells + u.now]) * f * (A(1) - f);
        d[2] = dc * i * (A(1) - g * g);
        d[3] = dh * bounded * o * (A(1) - o);
        dc *= f;
        for (int p = 1; p < 4; ++p) dx[u.x + p * u.h] = T(d[p]);
    } else if constexpr (MODE == GRU) {
        const A r = A(gates[u.gates]), z = A(gates[u.gates + u.h]);
        const A n = A(gates[u.gates + 2 * u.h]), q = A(gates[u.gates + 3 * u.h]);
        const A dn = dh * (A(1) - z) * (A(1) - n * n);
        d[0] = dn * q * r * (A(1) - r);
        d[1] = dh * (A(states[u.now]) - n) * z * (A(1) - z);
        d[2] = dn * r;
        past = dh * z;
        dx[u.x + u.h] = T(d[1]);
        dx[u.x + 2 * u.h] = T(dn);
    } else {
        const A y = A(states[u.next]);
        d[0] = MODE == TANH ? dh * (A(1) - y * y) : y > A(0) ? dh : A(0);
    }
    dx[u.x] = T(d[0]);
    return past;
}

// Block (threads along H), grid (blocks along H, B): gate PART of step t.
template <class T, class A, int MODE, int PART>
__global__ void gate(const T* x, const T* product, const long long* sizes, T* gates, int batch,
                     int h, int t) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (j >= h || b >= sizes[t]) return;
    const long long row = t * (long long)batch + b;
    T* own = gates + row * 4 * h + j;
    A v = A(product[(b * (long long)parts_of(MODE) + PART) * h + j]);
    if (MODE == GRU && PART == 2) {
        own[3 * h] = T(v);
        v *= A(own[0]);
    }
    v += A(x[(row * parts_of(MODE) + PART) * h + j]);
    own[PART * h] = T(PART == 2 ? tanh_of(v) : sigmoid(v));
}

// Block and grid of `gate`: the states after step t from its gates.
template <class T, class A, int MODE>
__global__ void update(const long long* sizes, T* states, const T* gates, int steps, int batch, int h,
                       int t) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (j >= h) return;
    const Unit u(t, b, j, steps, batch, h, parts_of(MODE));
    A value = A(states[u.now]);
    if (b < sizes[t]) {
        if (MODE == LSTM) {
            const A i = A(gates[u.gates]), f = A(gates[u.gates + h]);
            const A c = f * A(states[u.cells + u.now]) + i * A(gates[u.gates + 2 * h]);
            states[u.cells + u.next] = T(c);
            value = A(gates[u.gates + 3 * h]) * tanh_of(c);
        } else {
            const A z = A(gates[u.gates + h]), n = A(gates[u.gates + 2 * h]);
            value = (A(1) - z) * n + z * value;
        }
    } else if (MODE == LSTM) {
        states[u.cells + u.next] = states[u.cells + u.now];
    }
    states[u.next] = T(value);
}

// Block and grid of `gate`: all gates of step t from their products (B, gates * H).
template <class T, class A, int MODE>
__global__ void cell(const T* x, const T* product, const long long* sizes, T* states, T* gates,
                     int steps, int batch, int h, int t) {
    constexpr int PARTS = parts_of(MODE);
    const int j = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (j >= h) return;
    const Unit u(t, b, j, steps, batch, h, PARTS);
    if (b < sizes[t]) {
        A p[PARTS];
        #pragma unroll
        for (int i = 0; i < PARTS; ++i) p[i] = A(product[(b * (long long)PARTS + i) * h + j]);
        advance<T, A, MODE>(x, states, gates, u, p);
    } else {
        states[u.next] = states[u.now];
        if (MODE == LSTM) states[u.cells + u.next] = states[u.cells + u.now];
    }
}

// Block (WIDTH) with H <= WIDTH, grid (blocks of ROWS sequences); weight (H, gates * H).
template <class T, class A, int MODE, int ROWS, int WIDTH, bool BIAS>
__global__ void sequence(const T* x, const T* weight, const T* bias, const long long* sizes,
                         T* states, T* gates, int steps, int batch, int h) {
    constexpr int PARTS = parts_of(MODE);
    __shared__ A near[ROWS][WIDTH];
    const int j = threadIdx.x, first = blockIdx.x * ROWS;
    for (int r = 0; r < ROWS; ++r) {
        const bool inside = j < h && first + r < batch;
        near[r][j] = inside ? A(states[(first + r) * (long long)h + j]) : A(0);
    }
    __syncthreads();
    for (int t = 0; t < steps; ++t) {
        A acc[ROWS][PARTS] = {};
        if (j < h) {
            for (int k = 0; k < h; ++k) {
                #pragma unroll
                for (int p = 0; p < PARTS; ++p) {
                    const A w = A(weight[(k * (long long)PARTS + p) * h + j]);
                    #pragma unroll
                    for (int r = 0; r < ROWS; ++r) acc[r][p] += near[r][k] * w;
                }
            }
            if (BIAS) {
                #pragma unroll
                for (int p = 0; p < PARTS; ++p) {
                    #pragma unroll
                    for (int r = 0; r < ROWS; ++r) acc[r][p] += A(bias[p * h + j]);
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int b = first + r;
            if (j >= h || b >= batch) continue;
            const Unit u(t, b, j, steps, batch, h, PARTS);
            if (b < sizes[t]) {
                near[r][j] = advance<T, A, MODE>(x, states, gates, u, acc[r]);
            } else {
                states[u.next] = states[u.now];
                if (MODE == LSTM) states[u.cells + u.next] = states[u.cells + u.now];
            }
        }
        __syncthreads();
    }
}

// Block and grid of `gate`: the gradients of step t's gates. On entry, dh is the sum of `product` and
// `past` (B, H), on return that of `past` and the product with the gates' gradients. Those of the
// product's gates are in dr for a GRU, else they are dx. after: t + 1; with 0, `past` and dc become the
// gradients of the first states.
template <class T, class A, int MODE>
__global__ void cell_backward(const T* g, const T* product, const long long* sizes, const T* states,
                              const T* gates, T* past, T* dc, T* dx, T* dr, int steps, int batch,
                              int h, int after) {
    constexpr int PARTS = parts_of(MODE);
    const int j = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y, t = after - 1;
    if (j >= h) return;
    const Unit u(t, b, j, steps, batch, h, PARTS);
    const long long at = b * (long long)h + j;
    const A dh = A(g[u.next]) + A(product[at]) + A(past[at]);
    A d[PARTS] = {}, dcell = MODE == LSTM ? A(g[u.cells + u.next]) + A(dc[at]) : A(0);
    if (t >= 0 && b < sizes[t]) {
        past[at] = T(retreat<T, A, MODE>(states, gates, dx, u, dh, dcell, d));
    } else {
        past[at] = T(dh);
        for (int p = 0; t >= 0 && p < PARTS; ++p) dx[u.x + p * h] = T(A(0));
    }
    if (MODE == LSTM) dc[at] = T(dcell);
    if (MODE == GRU && t >= 0) {
        for (int p = 0; p < PARTS; ++p) dr[u.x + p * h] = T(d[p]);
    }
}

// Block and grid of `sequence`; weight (gates * H, H). dh and dc (B, H) become the gradients of the
// first states.
template <class T, class A, int MODE, int ROWS, int WIDTH>
__global__ void sequence_backward(const T* g, const T* weight, const long long* sizes,
                                  const T* states, const T* gates, T* dh, T* dc, T* dx, T* dr,
                                  int steps, int batch, int h) {
    constexpr int PARTS = parts_of(MODE);
    __shared__ A near[ROWS][PARTS * WIDTH];
    const int j = threadIdx.x, first = blockIdx.x * ROWS;
    A acc[ROWS] = {}, cells[ROWS] = {};
    for (int r = batch - first; r < ROWS; ++r) {  // read below with the other rows
        for (int p = 0; j < h && p < PARTS; ++p) near[r][p * h + j] = A(0);
    }
    for (int t = steps - 1; t >= 0; --t) {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int b = first + r;
            if (j >= h || b >= batch) continue;
            const Unit u(t, b, j, steps, batch, h, PARTS);
            A d[PARTS] = {};
            acc[r] += A(g[u.next]);
            if (MODE == LSTM) cells[r] += A(g[u.cells + u.next]);
            if (b < sizes[t]) {
                acc[r] = retreat<T, A, MODE>(states, gates, dx, u, acc[r], cells[r], d);
            } else {
                for (int p = 0; p < PARTS; ++p) dx[u.x + p * h] = T(A(0));
            }
            #pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                near[r][p * h + j] = d[p];
                if (MODE == GRU) dr[u.x + p * h] = T(d[p]);
            }
        }
        __syncthreads();
        for (int k = 0; j < h && k < PARTS * h; ++k) {
            const A w = A(weight[k * (long long)h + j]);
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) acc[r] += near[r][k] * w;
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r) {
        const int b = first + r;
        if (j >= h || b >= batch) continue;
        const long long at = b * (long long)h + j;
        dh[at] = T(acc[r] + A(g[at]));
        if (MODE == LSTM) dc[at] = T(cells[r] + A(g[(steps + 1LL) * batch * h + at]));
    }
}
