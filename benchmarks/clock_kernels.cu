// Kernels of the structure that published tables describe, for benchmarks/clock.py: square products of
// float32 (c = a b, n a multiple of the tiles), sums, and softmax of rows. Written for the clock, not
// for use: nothing is guarded.


extern "C" __global__ void naive(const float* a,const float* b,float* c,int n){
 int row=blockIdx.x*32+threadIdx.x, col=blockIdx.y*32+threadIdx.y;
 float s=0; for(int k=0;k<n;++k) s+=a[row*n+k]*b[k*n+col]; c[row*n+col]=s; }

extern "C" __global__ void coalesced(const float* a,const float* b,float* c,int n){
 int row=blockIdx.x*32+threadIdx.x/32, col=blockIdx.y*32+threadIdx.x%32;
 float s=0; for(int k=0;k<n;++k) s+=a[row*n+k]*b[k*n+col]; c[row*n+col]=s; }

extern "C" __global__ void shared_tile(const float* a,const float* b,float* c,int n){
 __shared__ float as[32*32], bs[32*32];
 int tx=threadIdx.x%32, ty=threadIdx.x/32;
 a+=blockIdx.x*32*n; b+=blockIdx.y*32; c+=blockIdx.x*32*n+blockIdx.y*32;
 float s=0;
 for(int t=0;t<n;t+=32){ as[ty*32+tx]=a[ty*n+tx]; bs[ty*32+tx]=b[ty*n+tx]; __syncthreads(); a+=32; b+=32*n;
  for(int k=0;k<32;++k) s+=as[ty*32+k]*bs[k*32+tx]; __syncthreads(); }
 c[ty*n+tx]=s; }

extern "C" __global__ void tile_1d(const float* a,const float* b,float* c,int n){
 __shared__ float as[64*8], bs[8*64];
 int tcol=threadIdx.x%64, trow=threadIdx.x/64;
 a+=blockIdx.y*64*n; b+=blockIdx.x*64; c+=blockIdx.y*64*n+blockIdx.x*64;
 int ac=threadIdx.x%8, ar=threadIdx.x/8, bc=threadIdx.x%64, br=threadIdx.x/64;
 float r[8]={0};
 for(int t=0;t<n;t+=8){ as[ar*8+ac]=a[ar*n+ac]; bs[br*64+bc]=b[br*n+bc]; __syncthreads(); a+=8; b+=8*n;
  for(int k=0;k<8;++k){ float v=bs[k*64+tcol]; for(int i=0;i<8;++i) r[i]+=as[(trow*8+i)*8+k]*v; } __syncthreads(); }
 for(int i=0;i<8;++i) c[(trow*8+i)*n+tcol]=r[i]; }

extern "C" __global__ void __launch_bounds__(256,1) tile_2d(const float* a,const float* b,float* c,int n){
 __shared__ float as[128*8], bs[8*128];
 int tcol=threadIdx.x%16, trow=threadIdx.x/16;
 a+=blockIdx.y*128*n; b+=blockIdx.x*128; c+=blockIdx.y*128*n+blockIdx.x*128;
 int ac=threadIdx.x%8, ar=threadIdx.x/8, bc=threadIdx.x%128, br=threadIdx.x/128;
 float r[64]={0}, m[8], q[8];
 for(int t=0;t<n;t+=8){
  for(int o=0;o<128;o+=32) as[(ar+o)*8+ac]=a[(ar+o)*n+ac];
  for(int o=0;o<8;o+=2) bs[(br+o)*128+bc]=b[(br+o)*n+bc];
  __syncthreads(); a+=8; b+=8*n;
  for(int k=0;k<8;++k){ for(int i=0;i<8;++i) m[i]=as[(trow*8+i)*8+k]; for(int i=0;i<8;++i) q[i]=bs[k*128+tcol*8+i];
   for(int i=0;i<8;++i) for(int j=0;j<8;++j) r[i*8+j]+=m[i]*q[j]; } __syncthreads(); }
 for(int i=0;i<8;++i) for(int j=0;j<8;++j) c[(trow*8+i)*n+tcol*8+j]=r[i*8+j]; }

extern "C" __global__ void __launch_bounds__(256,1) vectorised(float* a,float* b,float* c,int n){
 __shared__ float as[128*8], bs[8*128];
 int tcol=threadIdx.x%16, trow=threadIdx.x/16;
 a+=blockIdx.y*128*n; b+=blockIdx.x*128; c+=blockIdx.y*128*n+blockIdx.x*128;
 int ac=threadIdx.x%2, ar=threadIdx.x/2, bc=threadIdx.x%32, br=threadIdx.x/32;
 float r[64]={0}, m[8], q[8];
 for(int t=0;t<n;t+=8){
  float4 v=*(float4*)&a[ar*n+ac*4];
  as[(ac*4+0)*128+ar]=v.x; as[(ac*4+1)*128+ar]=v.y; as[(ac*4+2)*128+ar]=v.z; as[(ac*4+3)*128+ar]=v.w;
  *(float4*)&bs[br*128+bc*4]=*(float4*)&b[br*n+bc*4];
  __syncthreads(); a+=8; b+=8*n;
  for(int k=0;k<8;++k){ for(int i=0;i<8;++i) m[i]=as[k*128+trow*8+i]; for(int i=0;i<8;++i) q[i]=bs[k*128+tcol*8+i];
   for(int i=0;i<8;++i) for(int j=0;j<8;++j) r[i*8+j]+=m[i]*q[j]; } __syncthreads(); }
 for(int i=0;i<8;++i) for(int j=0;j<8;j+=4) *(float4*)&c[(trow*8+i)*n+tcol*8+j]=make_float4(r[i*8+j],r[i*8+j+1],r[i*8+j+2],r[i*8+j+3]); }

extern "C" __global__ void __launch_bounds__(128) warp_tile(float* a,float* b,float* c,int n){
 const int BM=128,BN=128,BK=16,WM=64,WN=64,TM=8,TN=4,WNI=4,WSM=WM,WSN=16;
 __shared__ float as[BM*BK], bs[BK*BN];
 int warp=threadIdx.x/32, wc=warp%(BN/WN), wr=warp/(BN/WN);
 int lane=threadIdx.x%32, lc=lane%(WSN/TN), lr=lane/(WSN/TN);
 a+=blockIdx.y*BM*n; b+=blockIdx.x*BN; c+=(blockIdx.y*BM+wr*WM)*n+blockIdx.x*BN+wc*WN;
 int ar=threadIdx.x/4, ac=threadIdx.x%4, br=threadIdx.x/32, bc=threadIdx.x%32;
 float r[TM*WNI*TN]={0}, m[TM], q[WNI*TN];
 for(int t=0;t<n;t+=BK){
  for(int o=0;o<BM;o+=32){ float4 v=*(float4*)&a[(ar+o)*n+ac*4];
   as[(ac*4+0)*BM+ar+o]=v.x; as[(ac*4+1)*BM+ar+o]=v.y; as[(ac*4+2)*BM+ar+o]=v.z; as[(ac*4+3)*BM+ar+o]=v.w; }
  for(int o=0;o<BK;o+=4) *(float4*)&bs[(br+o)*BN+bc*4]=*(float4*)&b[(br+o)*n+bc*4];
  __syncthreads(); a+=BK; b+=BK*n;
  for(int k=0;k<BK;++k){
   for(int i=0;i<TM;++i) m[i]=as[k*BM+wr*WM+lr*TM+i];
   for(int w=0;w<WNI;++w) for(int i=0;i<TN;++i) q[w*TN+i]=bs[k*BN+wc*WN+w*WSN+lc*TN+i];
   for(int w=0;w<WNI;++w) for(int i=0;i<TM;++i) for(int j=0;j<TN;++j) r[i*WNI*TN+w*TN+j]+=m[i]*q[w*TN+j]; }
  __syncthreads(); }
 for(int w=0;w<WNI;++w) for(int i=0;i<TM;++i) *(float4*)&c[(lr*TM+i)*n+w*WSN+lc*TN]=
   make_float4(r[i*WNI*TN+w*TN],r[i*WNI*TN+w*TN+1],r[i*WNI*TN+w*TN+2],r[i*WNI*TN+w*TN+3]); }

// Sums of a block each, of any size. ATOMIC: added to one sum at the end, else stored for a second
// launch, which takes no time beside the first. TWICE: the first addition is that of two loads.
template <class T, bool ATOMIC>
__device__ void finish(T* out, T sum) {
    if (threadIdx.x) return;
    if (ATOMIC) atomicAdd(out, sum);
    else out[blockIdx.x] = sum;
}
template <class T, bool TWICE>
__device__ T* loaded(const T* x, int n) {
    extern __shared__ __align__(8) unsigned char room[];
    T* s = (T*)room;
    int t = threadIdx.x, width = blockDim.x, i = blockIdx.x * width * (TWICE ? 2 : 1) + t;
    T first = i < n ? x[i] : T(0);
    if (TWICE) first += i + width < n ? x[i + width] : T(0);
    s[t] = first;
    __syncthreads();
    return s;
}
template <class T, bool ATOMIC>
__global__ void tree(const T* x, T* out, int n) {
    T* s = loaded<T, false>(x, n);
    int t = threadIdx.x;
    for (int d = 1; d < blockDim.x; d *= 2) {
        if (t % (2 * d) == 0) s[t] += s[t + d];
        __syncthreads();
    }
    finish<T, ATOMIC>(out, s[0]);
}
template <class T, bool ATOMIC>
__global__ void neighbours(const T* x, T* out, int n) {
    T* s = loaded<T, false>(x, n);
    for (int d = 1; d < blockDim.x; d *= 2) {
        int i = 2 * d * threadIdx.x;
        if (i < blockDim.x) s[i] += s[i + d];
        __syncthreads();
    }
    finish<T, ATOMIC>(out, s[0]);
}
template <class T, bool ATOMIC, bool TWICE>
__global__ void halves(const T* x, T* out, int n) {
    T* s = loaded<T, TWICE>(x, n);
    int t = threadIdx.x;
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    finish<T, ATOMIC>(out, s[0]);
}
// Halves until one warp has the rest, which needs no barriers.
template <class T, bool ATOMIC, bool TWICE>
__global__ void last_warp(const T* x, T* out, int n) {
    volatile T* s = loaded<T, TWICE>(x, n);
    int t = threadIdx.x;
    for (int d = blockDim.x / 2; d > 32; d /= 2) {
        if (t < d) s[t] = s[t] + s[t + d];
        __syncthreads();
    }
    if (t < 32)
        for (int d = 32; d > 0; d /= 2) s[t] = s[t] + s[t + d];
    finish<T, ATOMIC>(out, s[0]);
}

// Transposes of h rows and w columns; direct ones and `tile` in blocks of 16 x 16 threads.
extern "C" __global__ void transpose_direct(const float* x, float* y, unsigned w, unsigned h) {
    unsigned c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < w && r < h) y[c * h + r] = x[r * w + c];
}
extern "C" __global__ void transpose_gather(const float* x, float* y, unsigned w, unsigned h) {
    unsigned r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < w && r < h) y[c * h + r] = x[r * w + c];
}
extern "C" __global__ void transpose_tile(const float* x, float* y, unsigned w, unsigned h) {
    __shared__ float s[16][17];
    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned c = blockIdx.x * 16 + tx, r = blockIdx.y * 16 + ty;
    if (c < w && r < h) s[ty][tx] = x[r * w + c];
    __syncthreads();
    unsigned to_c = blockIdx.y * 16 + tx, to_r = blockIdx.x * 16 + ty;
    if (to_c < h && to_r < w) y[to_r * h + to_c] = s[tx][ty];
}
// Tiles of 32 rows and COLUMNS columns, 256 threads. Lanes of the direct ones go along a row of x, or
// along one of y.
template <int COLUMNS, bool ALONG_X>
__global__ void transpose_lanes(const float* x, float* y, unsigned w, unsigned h) {
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += blockIdx.y * 32 * w + blockIdx.x * COLUMNS;
    y += blockIdx.x * COLUMNS * h + blockIdx.y * 32;
    float held[COLUMNS / 8];
    for (int i = 0; i < COLUMNS / 8; ++i) {
        unsigned r = ALONG_X ? warp + i % 4 * 8 : lane, c = ALONG_X ? lane + i / 4 * 32 : warp + i * 8;
        held[i] = x[r * w + c];
    }
    for (int i = 0; i < COLUMNS / 8; ++i) {
        unsigned r = ALONG_X ? warp + i % 4 * 8 : lane, c = ALONG_X ? lane + i / 4 * 32 : warp + i * 8;
        y[c * h + r] = held[i];
    }
}
// LAYOUT of the tile in shared memory: 0 by rows, 1 by columns, 2 by rows with one more column, 3 by
// rows with swizzled columns.
template <int COLUMNS, int LAYOUT>
__global__ void transpose_shared(const float* x, float* y, unsigned w, unsigned h) {
    __shared__ float s[32 * (COLUMNS + 1)];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += blockIdx.y * 32 * w + blockIdx.x * COLUMNS;
    y += blockIdx.x * COLUMNS * h + blockIdx.y * 32;
    auto at = [](unsigned r, unsigned c) {
        return LAYOUT == 1 ? c * 32 + r : LAYOUT == 2 ? r * (COLUMNS + 1) + c
            : r * COLUMNS + (LAYOUT == 3 ? c ^ r : c);
    };
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i) {
        unsigned r = warp + i % 4 * 8, c = lane + i / 4 * 32;
        s[at(r, c)] = x[r * w + c];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i) y[(warp + i * 8) * h + lane] = s[at(lane, warp + i * 8)];
}
template <bool SWIZZLED>
__global__ void transpose_float4(const float* x, float* y, unsigned w, unsigned h) {
    __shared__ float s[32][SWIZZLED ? 32 : 33];
    unsigned c = threadIdx.x % 8 * 4, r = threadIdx.x / 8;
    x += blockIdx.y * 32 * w + blockIdx.x * 32;
    y += blockIdx.x * 32 * h + blockIdx.y * 32;
    auto at = [&](unsigned r, unsigned c) -> float& { return s[r][SWIZZLED ? c ^ r : c]; };
    float4 v = *(const float4*)(x + r * w + c);
    at(r, c) = v.x, at(r, c + 1) = v.y, at(r, c + 2) = v.z, at(r, c + 3) = v.w;
    __syncthreads();
    *(float4*)(y + r * h + c) = make_float4(at(c, r), at(c + 1, r), at(c + 2, r), at(c + 3, r));
}

// Softmax of rows in two passes over x and one over y, which holds the exponentials in between.
template <bool LARGEST>
__device__ float both(float a, float b) { return LARGEST ? fmaxf(a, b) : a + b; }
template <bool LARGEST>
__device__ float of_warp(float v) {
    for (int d = 16; d > 0; d /= 2) v = both<LARGEST>(v, __shfl_down_sync(~0u, v, d));
    return v;
}
template <bool LARGEST>
__device__ float of_block(float v) {  // halves in shared memory, a float per thread
    extern __shared__ __align__(8) unsigned char room[];
    float* s = (float*)room;
    int t = threadIdx.x;
    s[t] = v;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (t < d) s[t] = both<LARGEST>(s[t], s[t + d]);
        __syncthreads();
    }
    return s[0];
}
template <bool LARGEST>
__device__ float of_warps(float v) {  // shuffles, then those of the warps' results
    extern __shared__ __align__(8) unsigned char room[];
    float* s = (float*)room;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = (blockDim.x + 31) / 32;
    v = of_warp<LARGEST>(v);
    if (lane == 0) s[warp] = v;
    __syncthreads();
    if (warp == 0) v = of_warp<LARGEST>(lane < count ? s[lane] : LARGEST ? -3e38f : 0.0f);
    if (threadIdx.x == 0) s[0] = v;
    __syncthreads();
    return s[0];
}
template <bool LARGEST>
__device__ float of_all_lanes(float v) { return __shfl_sync(~0u, of_warp<LARGEST>(v), 0); }
template <float LARGEST(float), float SUM(float)>
__device__ void softmax_row(const float* x, float* y, int n, int t, int threads) {
    float m = -3e38f, sum = 0;
    for (int i = t; i < n; i += threads) m = fmaxf(m, x[i]);
    m = LARGEST(m);
    for (int i = t; i < n; i += threads) sum += y[i] = expf(x[i] - m);
    sum = SUM(sum);
    for (int i = t; i < n; i += threads) y[i] = y[i] / sum;
}
extern "C" __global__ void softmax_block(const float* x, float* y, int n) {
    softmax_row<of_block<true>, of_block<false>>(
        x + blockIdx.x * n, y + blockIdx.x * n, n, threadIdx.x, blockDim.x);
}
extern "C" __global__ void softmax_warps(const float* x, float* y, int n) {
    softmax_row<of_warps<true>, of_warps<false>>(
        x + blockIdx.x * n, y + blockIdx.x * n, n, threadIdx.x, blockDim.x);
}
extern "C" __global__ void softmax_warp_a_row(const float* x, float* y, int n) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    softmax_row<of_all_lanes<true>, of_all_lanes<false>>(
        x + row * n, y + row * n, n, threadIdx.x % 32, 32);
}
extern "C" __global__ void softmax_float4(const float* x, float* y, int n) {
    const float4* from = (const float4*)(x + blockIdx.x * n);
    float4* to = (float4*)(y + blockIdx.x * n);
    int t = threadIdx.x, threads = blockDim.x;
    float m = -3e38f, sum = 0;
    for (int i = t; i < n / 4; i += threads) {
        float4 v = from[i];
        m = fmaxf(fmaxf(fmaxf(m, v.x), fmaxf(v.y, v.z)), v.w);
    }
    m = of_warps<true>(m);
    for (int i = t; i < n / 4; i += threads) {
        float4 v = from[i];
        v = make_float4(expf(v.x - m), expf(v.y - m), expf(v.z - m), expf(v.w - m));
        sum += v.x + v.y + v.z + v.w;
        to[i] = v;
    }
    sum = of_warps<false>(sum);
    for (int i = t; i < n / 4; i += threads) {
        float4 v = to[i];
        to[i] = make_float4(v.x / sum, v.y / sum, v.z / sum, v.w / sum);
    }
}

// Softmax in three passes over x.
extern "C" __global__ void softmax_rows(const float* x, float* y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    x += (size_t)row * n;
    y += (size_t)row * n;
    float m = -3e38f, sum = 0;
    for (int i = 0; i < n; ++i) m = fmaxf(m, x[i]);
    for (int i = 0; i < n; ++i) sum += __expf(x[i] - m);
    for (int i = 0; i < n; ++i) y[i] = __expf(x[i] - m) / sum;
}
extern "C" __global__ void softmax_shared(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    x += (size_t)blockIdx.x * n;
    y += (size_t)blockIdx.x * n;
    float m = -3e38f, sum = 0;
    for (int i = t; i < n; i += 256) m = fmaxf(m, x[i]);
    s[t] = m;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    m = s[0];
    __syncthreads();
    for (int i = t; i < n; i += 256) sum += __expf(x[i] - m);
    s[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    sum = s[0];
    for (int i = t; i < n; i += 256) y[i] = __expf(x[i] - m) / sum;
}

// Root mean square norm of rows, y = x / rms * w + b. One thread, and one warp, for a row.
extern "C" __global__ void rms_thread(float* y, const float* x, const float* w, const float* b, int n, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * n, y += row * n;
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i] * x[i];
    float rms = sqrtf(sum / n + 1e-5f);
    for (int i = 0; i < n; ++i) y[i] = __fdividef(x[i], rms) * w[i] + b[i];
}
extern "C" __global__ void rms_warp(float* __restrict__ y, const float* __restrict__ x,
                                    const float* __restrict__ w, const float* __restrict__ b, int n, int rows) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * n, y += row * n;
    float sum = 0;
    for (int i = lane; i < n; i += 32) sum += x[i] * x[i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    float rms = sqrtf(sum / n + 1e-5f);
    for (int i = lane; i < n; i += 32) __stcs(y + i, __fdividef(__ldcs(x + i), rms) * w[i] + b[i]);
}
// One block of 512 threads for a row of 4096; KEPT: the row waits in shared memory, else it is read
// twice; WARPS: sums by shuffles.
template <class T> __device__ float squares(T v);
template <> __device__ float squares(float v) { return v * v; }
template <> __device__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
__device__ float scaled(float v, float s, float w) { return v * s * w; }
__device__ float4 scaled(float4 v, float s, float4 w) {
    return make_float4(v.x * s * w.x, v.y * s * w.y, v.z * s * w.z, v.w * s * w.w);
}
template <class T, bool KEPT, bool WARPS>
__global__ void rms_block(const T* x, const T* w, float eps, T* y) {
    const int n = 4096 / (sizeof(T) / 4), threads = 512;
    __shared__ float s[threads], of_warps[32], scale;
    __shared__ T row[KEPT ? n : 1];
    int t = threadIdx.x;
    x += blockIdx.x * n, y += blockIdx.x * n;
    float sum = 0;
    for (int i = t; i < n; i += threads) {
        T v = x[i];
        if (KEPT) row[i] = v;
        sum += squares(v);
    }
    s[t] = sum;
    __syncthreads();
    if (WARPS) {
        sum = of_warp<false>(s[t]);
        if (t % 32 == 0) of_warps[t / 32] = sum;
        __syncthreads();
        if (t < 32) {
            of_warps[t] = of_warp<false>(t < threads / 32 ? of_warps[t] : 0);
            if (t == 0) scale = rsqrtf(of_warps[t] / 4096 + eps);
        }
    } else {
        for (int d = threads / 2; d > 0; d /= 2) {
            if (t < d) s[t] += s[t + d];
            __syncthreads();
        }
        if (t == 0) scale = rsqrtf(s[t] / 4096 + eps);
    }
    __syncthreads();
    for (int i = t; i < n; i += threads) y[i] = scaled(KEPT ? row[i] : x[i], scale, w[i]);
}
