// Kernels with one mistake each. The lines that take part in it end in `// <-`; the comment before a
// kernel says what is found: kind, blocks, threads, shared bytes, arguments, part of the hint.
#define N 64
__device__ float table[8];

//? race 1 64 0 x,out __syncthreads() between
__global__ void no_barrier(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    s[t] = x[t];  // <-
    out[t] = s[N - 1 - t];  // <-
}

//? race 1 64 0 x,out one more __syncthreads() after
__global__ void no_second_barrier(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    float total = 0;
    for (int k = 0; k < 4; ++k) {
        s[t] = x[k * 16 + t % 16];  // <-
        __syncthreads();
        for (int j = 0; j < N; ++j) total += s[j];  // <-
    }
    out[t] = total;
}

//? race 1 64 0 x,out one more
__global__ void reduction_without_barriers(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int step = N / 2; step; step /= 2) {
        if (t < step) s[t] += s[t + step];  // <-
    }
    __syncthreads();
    if (t == 0) out[0] = s[0];
}

//? race 1 64 0 x,out read into a variable
__global__ void last_warp_without_syncwarp(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        for (int step = 32; step >= 8; step /= 2) s[t] += s[t + step];  // <-
    }
    if (t == 0) out[0] = s[0];
}

//? race 1 64 0 x,out one thread
__global__ void all_write_one(const float* x, float* out) {
    __shared__ float s[1];
    int t = threadIdx.x;
    s[0] = x[t];  // <-
    __syncthreads();
    out[t] = s[0];
}

//? race 1 64 0 x,out between
__global__ void atomic_then_plain_read(const float* x, float* out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);  // <-
    out[threadIdx.x] = count;  // <-
}

//? race 1 64 512 x,out one thread
__global__ void dynamic_arrays_overlap(const float* x, float* out) {
    extern __shared__ float a[];
    int* b = (int*)(a + N / 2);
    int t = threadIdx.x;
    a[t] = x[t];  // <-
    b[t] = t;  // <-
    __syncthreads();
    out[t] = a[t / 2];
}

__device__ void publish(float* s, const float* x) {
    s[threadIdx.x] = x[threadIdx.x];  // <- race_in_a_device_function
}
//? race 1 64 0 x,out between
__global__ void race_in_a_device_function(const float* x, float* out) {
    __shared__ float s[N];
    publish(s, x);
    out[threadIdx.x] = s[(threadIdx.x + 32) % N];  // <-
}

//? race 4 64 0 large,out atomicAdd
__global__ void sum_without_atomics(const float* x, float* out) {
    out[0] += x[blockIdx.x * blockDim.x + threadIdx.x];  // <-
}

//? race 4 64 0 large two launches
__global__ void stencil_in_place(float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float right = i < 255 ? x[i + 1] : 0;  // <-
    x[i] = right * 0.5f;  // <-
}

//? race 4 64 0 large,out two launches
__global__ void last_block_reads_the_others(const float* x, float* out) {
    if (threadIdx.x == 0) table[blockIdx.x] = x[blockIdx.x];  // <-
    if (threadIdx.x == 0 && blockIdx.x == 3) out[0] = table[0];  // <-
}

//? race 2 64 0 large,out one thread
__global__ void blocks_write_the_same(const float* x, float* out) {
    out[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];  // <-
}

//? barrier 1 64 0 x,out out of the condition
__global__ void barrier_in_a_branch(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < N / 2) __syncthreads();  // <-
    out[t] = s[t];
}

//? barrier 1 64 0 x,out out of the condition
__global__ void two_barriers(const float* x, float* out) {
    if (threadIdx.x < 40) {
        out[threadIdx.x] = 1;
        __syncthreads();  // <-
    } else {
        __syncthreads();  // <-
    }
}

//? barrier 1 64 0 x,out every lane that the mask names
__global__ void shuffle_in_a_branch(const float* x, float* out) {
    float value = x[threadIdx.x];
    if (threadIdx.x % 32 < 16) value += __shfl_xor_sync(0xffffffff, value, 1);  // <-
    __syncthreads();  // <-
    out[threadIdx.x] = value;
}

//? shuffle 1 64 0 x,out guard the data instead
__global__ void shuffle_in_the_last_branch(const float* x, float* out) {
    int t = threadIdx.x;
    if (t < 40) {
        out[t] = x[t] + __shfl_down_sync(0xffffffff, x[t], 16);  // <-
    }
}

//? returned 1 64 0 x,out not the thread
__global__ void return_before_a_barrier(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    if (t >= 40) return;
    s[t] = x[t];
    __syncthreads();  // <-
    out[t] = s[39 - t];
}

//? bounds 4 64 0 x,large guard
__global__ void no_guard(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];  // <-
}

//? bounds 1 64 0 x,out,63 guard
__global__ void off_by_one(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i <= n) out[i + 1] = x[i];  // <-
}

//? bounds 1 64 0 x,out guard
__global__ void index_below_zero(const float* x, float* out) {
    int i = threadIdx.x;
    out[i] = x[i] - x[i - 1];  // <-
}

//? bounds 1 64 0 x,out guard
__global__ void row_and_column_swapped(const float* x, float* out) {
    __shared__ float s[4][16];
    s[threadIdx.x % 16][threadIdx.x / 16] = x[threadIdx.x];  // <-
}

//? bounds 1 64 128 x,out guard
__global__ void dynamic_shared_too_small(const float* x, float* out) {
    extern __shared__ float a[];
    a[threadIdx.x] = x[threadIdx.x];  // <-
}

//? bounds 1 64 0 x,out guard
__global__ void atomic_outside(const float* x, float* out) {
    atomicAdd(out + 2 * threadIdx.x, x[threadIdx.x]);  // <-
}

//? uninitialised 1 64 0 x,out write every element
__global__ void tile_is_not_filled(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    if (t < 40) s[t] = x[t];
    __syncthreads();
    out[t] = s[t];  // <-
}

//? uninitialised 2 64 0 large,out write every element
__global__ void what_an_earlier_block_left(const float* x, float* out) {
    __shared__ float s[N];
    int t = threadIdx.x;
    if (blockIdx.x == 0) s[t] = x[t];
    __syncthreads();
    if (blockIdx.x == 1) out[t] = s[t];  // <-
}

//? endless 1 64 0 x,64 change `k` in the loop's body
__global__ void loop_without_increment(float* x, int n) {
    int k = 0;
    while (k < n) {  // <-
        x[threadIdx.x] += 1;
    }
}

//? harmless 4 64 0 large,256 give each its own element
__global__ void all_write_all(float* x, int n) {
    for (int i = 0; i < n; ++i) {
        x[i] = 1;  // <-
    }
}
