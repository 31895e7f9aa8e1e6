// Values of images x (N, C, H, W) at points grid (N, points, 2): out (N, C, points).
//
// A thread has a point, whose place and shares it works out once, and CHANNELS channels, whose
// elements it gathers: neighbours of the grid lie beside each other in the result.
//
// Gradients: that of the grid again has a thread per point, which adds up all channels. That of the
// images adds to elements that points share: `atomic` by a thread per point and CHANNELS channels, in
// any order, or `ordered` by a thread per CHANNELS channels, which takes one point after the other.
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
    if (PADDING != ZEROS) {  // no number is the first place
        x = x > A(0) ? x < A(n - 1) ? x : A(n - 1) : A(0);
    }
    return x;
}

// How the place along n elements changes with the number in [-1, 1].
template <class A, int PADDING, int ALIGNED>
__device__ __forceinline__ A slope_of(A x, int n) {
    A slope = ALIGNED ? A(n - 1) / A(2) : A(n) * A(0.5);
    if (PADDING == ZEROS) return slope;
    A place = ALIGNED ? (x + A(1)) * slope : ((x + A(1)) * A(n) - A(1)) * A(0.5);
    if (PADDING == REFLECTION) {
        const A low = ALIGNED ? A(0) : A(-0.5), span = ALIGNED ? A(n - 1) : A(n);
        if (span == A(0)) return A(0);
        const A turns = floor_of((place - low < A(0) ? low - place : place - low) / span);
        const bool even = turns - A(2) * floor_of(turns / A(2)) == A(0);
        slope = even == (place >= low) ? slope : -slope;
        place = reflected(place, low, span);
    }
    return place > A(0) && place < A(n - 1) ? slope : A(0);
}

// Where the corners around a place lie in their plane, or -1, and their shares.
template <class A, int LINEAR>
struct Corners {
    static constexpr int COUNT = LINEAR ? 4 : 1;
    int at[COUNT];
    A share[COUNT];

    __device__ __forceinline__ Corners(A down, A across, int height, int width) {
        #pragma unroll
        for (int k = 0; k < COUNT; ++k) {
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
    }
};

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
    const Corners<A, LINEAR> corners(down, across, height, width);
    const long long start = image * channels + first;
    const int last = channels - first < CHANNELS ? channels - first : CHANNELS;
    #pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
        if (c >= last) break;
        const T* values = x + (start + c) * plane;
        A total = A(0);
        #pragma unroll
        for (int k = 0; k < corners.COUNT; ++k) {
            const int at = corners.at[k];
            total += (at < 0 ? A(0) : A(values[at])) * corners.share[k];
        }
        out[(start + c) * points + i] = T(total);
    }
}

__device__ __forceinline__ void add(float* address, float value) { atomicAdd(address, value); }
__device__ __forceinline__ void add(double* address, double value) { atomicAdd(address, value); }

// dx: zeros. blocks: of an image. ORDERED: a thread has all points, else one.
template <class T, class A, int LINEAR, int PADDING, int ALIGNED, int ORDERED>
__global__ void image_gradient(const T* g, const T* grid, A* dx, int blocks, int points, int channels,
                               int height, int width) {
    const long long image = blockIdx.x / blocks, plane = (long long)height * width;
    const int t = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (t >= (ORDERED ? (channels + CHANNELS - 1) / CHANNELS : points)) return;
    const int first = CHANNELS * (ORDERED ? t : blockIdx.y);
    const int last = first + CHANNELS < channels ? first + CHANNELS : channels;
    for (int i = ORDERED ? 0 : t; i < (ORDERED ? points : t + 1); ++i) {
        const long long place = 2 * (image * points + i);
        const A across = place_of<A, PADDING, ALIGNED>(A(grid[place]), width);
        const A down = place_of<A, PADDING, ALIGNED>(A(grid[place + 1]), height);
        const Corners<A, LINEAR> corners(down, across, height, width);
        for (int c = first; c < last; ++c) {
            const A value = A(g[(image * channels + c) * points + i]);
            A* sums = dx + (image * channels + c) * plane;
            #pragma unroll
            for (int k = 0; k < corners.COUNT; ++k) {
                if (corners.at[k] < 0) continue;
                if (ORDERED) {
                    sums[corners.at[k]] += value * corners.share[k];
                } else {
                    add(sums + corners.at[k], value * corners.share[k]);
                }
            }
        }
    }
}

// Of bilinear values: a thread per point, for all channels.
template <class T, class A, int PADDING, int ALIGNED>
__global__ void points_gradient(const T* g, const T* x, const T* grid, T* dgrid, int blocks,
                                int points, int channels, int height, int width) {
    const long long image = blockIdx.x / blocks;
    const int i = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (i >= points) return;
    const long long place = 2 * (image * points + i);
    const A across = place_of<A, PADDING, ALIGNED>(A(grid[place]), width);
    const A down = place_of<A, PADDING, ALIGNED>(A(grid[place + 1]), height);
    const Corners<A, 1> corners(down, across, height, width);
    const A right = across - floor_of(across), left = floor_of(across) + A(1) - across;
    const A lower = down - floor_of(down), upper = floor_of(down) + A(1) - down;
    A along_x = A(0), along_y = A(0);
    for (int c = 0; c < channels; ++c) {
        const A value = A(g[(image * channels + c) * points + i]);
        const T* values = x + (image * channels + c) * height * width;
        A at[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            at[k] = corners.at[k] < 0 ? A(0) : A(values[corners.at[k]]);
        }
        along_x += value * ((at[1] - at[0]) * upper + (at[3] - at[2]) * lower);
        along_y += value * ((at[2] - at[0]) * left + (at[3] - at[1]) * right);
    }
    dgrid[place] = T(along_x * slope_of<A, PADDING, ALIGNED>(A(grid[place]), width));
    dgrid[place + 1] = T(along_y * slope_of<A, PADDING, ALIGNED>(A(grid[place + 1]), height));
}
