// Weighted sums of neighbours along a dimension, x (outer, size, inner) -> out (outer, results,
// inner): result i adds up count[i] elements from first[i] on, times weights (width, results).

// A block has a tile of 8 results and a strip of 32 columns.
template <class T, class A>
__global__ void resample_rows(const T* x, const int* first, const int* count, const A* weights,
                              T* out, int results, int size, long long inner, int tiles,
                              int strips) {
    const unsigned tile = blockIdx.x / strips;
    const long long outer = tile / tiles;
    const long long c = blockIdx.x % strips * (long long)blockDim.x + threadIdx.x;
    const int i = tile % tiles * blockDim.y + threadIdx.y;
    if (i >= results || c >= inner) return;
    const T* source = x + (outer * size + first[i]) * inner + c;
    const int taps = count[i];
    A total = A(0);
    for (int k = 0; k < taps; ++k) {
        total += weights[k * (long long)results + i] * A(source[k * inner]);
    }
    out[(outer * results + i) * inner + c] = T(total);
}

// A block has 8 rows and a strip of 32 results.
template <class T, class A>
__global__ void resample_last(const T* x, const int* first, const int* count, const A* weights,
                              T* out, int results, int size, long long rows, int strips) {
    const int i = blockIdx.x % strips * blockDim.x + threadIdx.x;
    const long long row = blockIdx.x / strips * (long long)blockDim.y + threadIdx.y;
    if (row >= rows || i >= results) return;
    const T* source = x + row * size + first[i];
    const int taps = count[i];
    A total = A(0);
    for (int k = 0; k < taps; ++k) total += weights[k * (long long)results + i] * A(source[k]);
    out[row * results + i] = T(total);
}
