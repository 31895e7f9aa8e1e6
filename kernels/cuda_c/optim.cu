// Optimiser steps over a flat arena of n parameters: one launch, one thread per parameter.
//
// SGD with momentum does about 5 floating-point operations a parameter and moves 5 elements; Adam
// about 14, and moves 7: 28 bytes a parameter in float32. Both run at the speed of memory. The
// constants say which options are on.
#include "common.cuh"

template <class T, class A, bool MOMENTUM, bool NESTEROV, bool FIRST, bool MAXIMIZE>
__global__ void sgd(T* p, const T* g, T* buf, long long n, A lr, A momentum, A undamped,
                    A weight_decay) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {
        const A x = A(p[i]);
        A d = MAXIMIZE ? -A(g[i]) : A(g[i]);
        d += weight_decay * x;
        if (MOMENTUM) {
            const A b = FIRST ? d : momentum * A(buf[i]) + undamped * d;
            buf[i] = T(b);
            d = NESTEROV ? d + momentum * b : b;
        }
        p[i] = T(x - lr * d);
    }
}

// rate: lr / (1 - beta1^step); root: 1 / sqrt(1 - beta2^step); decay: the factor of p before the
// step (DECOUPLED), or the weight of p in the gradient.
template <class T, class A, bool AMSGRAD, bool DECOUPLED, bool MAXIMIZE>
__global__ void adam(T* p, const T* g, T* m, T* v, T* vmax, long long n, A one_minus_beta1, A beta2,
                     A one_minus_beta2, A decay, A rate, A root, A eps) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {
        A x = A(p[i]);
        A d = MAXIMIZE ? -A(g[i]) : A(g[i]);
        if (DECOUPLED) x *= decay;
        else d += decay * x;
        A mean = A(m[i]);
        mean += one_minus_beta1 * (d - mean);
        A second = beta2 * A(v[i]) + one_minus_beta2 * d * d;
        m[i] = T(mean);
        v[i] = T(second);
        if (AMSGRAD) {
            const A top = A(vmax[i]);
            second = top > second ? top : second;
            vmax[i] = T(second);
        }
        p[i] = T(x - rate * mean / (sqrt_of(second) * root + eps));
    }
}
