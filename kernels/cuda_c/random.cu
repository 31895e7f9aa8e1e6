// Random numbers by Philox4x32-10, and dropout.
//
// Philox is a counter-based generator: ten rounds of two 32x32-bit multiplications turn a 128-bit
// counter and a 64-bit key into four random words (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", 2011). No thread keeps a state, so element i is the same number on
// every device and for every grid: counter (i // 4, offset), key `seed`, word i % 4.
//
// A block of four words costs about 90 integer operations; a float32 output moves 16 bytes for it.
// A thread works out one counter and writes the elements that its four words give (4 float32, 2
// float64, 2 pairs of normals). Dropout keeps no mask: the gradient draws the same numbers again.
struct Words {
    unsigned at[4];
};

__device__ __forceinline__ Words philox(unsigned long long block, unsigned long long seed,
                                        unsigned long long offset) {
    unsigned c0 = block, c1 = block >> 32, c2 = offset, c3 = offset >> 32;
    unsigned k0 = seed, k1 = seed >> 32;
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0);
        const unsigned low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// 24 bits of a word as a float in [0, 1); 53 bits of two as a double.
__device__ __forceinline__ float unit(unsigned word) { return (word >> 8) * 5.9604644775390625e-8f; }

__device__ __forceinline__ double unit(unsigned high, unsigned low) {
    const unsigned long long bits = (high >> 5) * 67108864ull + (low >> 6);
    return bits * 1.1102230246251565e-16;
}

__device__ __forceinline__ long long counter() {
    return blockIdx.x * (long long)blockDim.x + threadIdx.x;
}

// Writes the first elements of `values` that are inside.
template <int COUNT, class T, class A>
__device__ __forceinline__ void store(T* out, long long n, const A* values) {
    const long long first = counter() * COUNT;
    for (int w = 0; w < COUNT && first + w < n; ++w) out[first + w] = T(values[w]);
}

__global__ void philox_words(unsigned* out, unsigned long long seed, unsigned long long offset,
                             long long n) {
    if (4 * counter() >= n) return;
    store<4>(out, n, philox(counter(), seed, offset).at);
}

template <class T>
__global__ void uniform(T* out, unsigned long long seed, unsigned long long offset, long long n) {
    if (4 * counter() >= n) return;
    const Words words = philox(counter(), seed, offset);
    float values[4];
    for (int w = 0; w < 4; ++w) values[w] = unit(words.at[w]);
    store<4>(out, n, values);
}

template <>
__global__ void uniform(double* out, unsigned long long seed, unsigned long long offset, long long n) {
    if (2 * counter() >= n) return;
    const Words words = philox(counter(), seed, offset);
    const double values[] = {unit(words.at[0], words.at[1]), unit(words.at[2], words.at[3])};
    store<2>(out, n, values);
}

// Pairs (r cos a, r sin a) of r = sqrt(-2 log(1 - u)), a = 2 pi v (Box and Muller, 1958).
__device__ __forceinline__ void pair(float u, float v, float* out) {
    const float radius = sqrtf(-2.0f * logf(1.0f - u));
    out[0] = radius * cospif(2.0f * v);
    out[1] = radius * sinpif(2.0f * v);
}

template <class T>
__global__ void normal(T* out, unsigned long long seed, unsigned long long offset, long long n) {
    if (4 * counter() >= n) return;
    const Words words = philox(counter(), seed, offset);
    float values[4];
    for (int w = 0; w < 4; w += 2) pair(unit(words.at[w]), unit(words.at[w + 1]), values + w);
    store<4>(out, n, values);
}

template <>
__global__ void normal(double* out, unsigned long long seed, unsigned long long offset, long long n) {
    if (2 * counter() >= n) return;
    const Words words = philox(counter(), seed, offset);
    const double radius = sqrt(-2.0 * log(1.0 - unit(words.at[0], words.at[1])));
    const double angle = 2.0 * unit(words.at[2], words.at[3]);
    const double values[] = {radius * cospi(angle), radius * sinpi(angle)};
    store<2>(out, n, values);
}

// An element is kept where its `uniform` number in float is at least p.
template <class T, class A>
__global__ void dropout(const T* x, T* out, float p, A scale, unsigned long long seed,
                        unsigned long long offset, long long n) {
    const long long first = 4 * counter();
    if (first >= n) return;
    const Words words = philox(counter(), seed, offset);
    for (int w = 0; w < 4 && first + w < n; ++w) {
        out[first + w] = T(unit(words.at[w]) >= p ? A(x[first + w]) * scale : A(0));
    }
}
