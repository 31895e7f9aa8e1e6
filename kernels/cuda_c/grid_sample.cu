// Values of images x (N, C, H, W) at points grid (N, points, 2): out (N, C, points).
//
// A thread has a point, whose place and shares it works out once, and CHANNELS channels, whose
// elements it gathers: neighbours of the grid lie beside each other in the result.
enum Padding { ZEROS, BORDER, REFLECTION };

constexpr int CHANNELS = 8;

__device__ __forceinline__ float floor_of(float x) { return floorf(x); }
__device__ __forceinline__ double floor_of(double x) { return floor(x); }
__device__ __forceinline__ float nearest_to(float x) { return rintf(x); }
__device__ __forceinline__ double nearest_to(double x) { return rint(x); }

// x reflected into [low, low + span].
template <class A>
__device__ __forceinline__ A reflected(A x, A low, A span) {
    if (span == A(0)) return x * A(0);
    x = x - low < A(0) ? low - x : x - low;
    const A turns = floor_of(x / span), rest = x - turns * span;
    return turns - A(2) * floor_of(turns / A(2)) == A(0) ? rest + low : span - rest + low;
}

// The place along n elements of a number in [-1, 1].
template <class A, int PADDING, int ALIGNED>
__device__ __forceinline__ A place_of(A x, int n) {
    x = ALIGNED ? (x + A(1)) * (A(n - 1) / A(2)) : ((x + A(1)) * A(n) - A(1)) * A(0.5);
    if (PADDING == REFLECTION) {
        x = ALIGNED ? reflected(x, A(0), A(n - 1)) : reflected(x, A(-0.5), A(n));
    }
    if (PADDING != ZEROS) x = x < A(0) ? A(0) : x > A(n - 1) ? A(n - 1) : x;
    return x;
}

template <class T, class A, int LINEAR, int PADDING, int ALIGNED>
__global__ void grid_sample(const T* x, const T* grid, T* out, int blocks, int points, int channels,
                            int height, int width) {
    const long long image = blockIdx.x / blocks;
    const int i = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (i >= points) return;
    const int plane = height * width, first = blockIdx.y * CHANNELS;
    const long long place = 2 * (image * points + i);
    const A across = place_of<A, PADDING, ALIGNED>(A(grid[place]), width);
    const A down = place_of<A, PADDING, ALIGNED>(A(grid[place + 1]), height);
    constexpr int CORNERS = LINEAR ? 4 : 1;
    int at[CORNERS];
    A share[CORNERS];
    #pragma unroll
    for (int k = 0; k < CORNERS; ++k) {
        const A h = LINEAR ? floor_of(down) + A(k / 2) : nearest_to(down);
        const A w = LINEAR ? floor_of(across) + A(k % 2) : nearest_to(across);
        const bool fits = h >= A(0) && h <= A(height - 1) && w >= A(0) && w <= A(width - 1);
        A part = A(1);
        if (LINEAR) {
            part = k / 2 ? down - floor_of(down) : floor_of(down) + A(1) - down;
            part *= k % 2 ? across - floor_of(across) : floor_of(across) + A(1) - across;
        }
        share[k] = fits ? part : part * A(0);  // of no number, no number
        at[k] = fits ? (int)h * width + (int)w : -1;
    }
    const long long start = image * channels + first;
    const int last = channels - first < CHANNELS ? channels - first : CHANNELS;
    #pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
        if (c >= last) break;
        const T* values = x + (start + c) * plane;
        A total = A(0);
        #pragma unroll
        for (int k = 0; k < CORNERS; ++k) {
            total += (at[k] < 0 ? A(0) : A(values[at[k]])) * share[k];
        }
        out[(start + c) * points + i] = T(total);
    }
}
