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

// Sums of a block each; the partial sums are added in a second launch, which takes no time beside it.
template <class T>
__global__ void tree(const T* x, T* out, int n) {
    __shared__ T s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        if (t % (2 * d) == 0) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
template <class T>
__global__ void neighbours(const T* x, T* out, int n) {
    __shared__ T s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        int i = 2 * d * t;
        if (i < 256) s[i] += s[i + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
template <class T>
__global__ void halves(const T* x, T* out, int n) {
    __shared__ T s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
template <class T>
__global__ void many_loads(const T* x, T* out, int n) {
    __shared__ T s[256];
    int t = threadIdx.x;
    T sum = 0;
    for (int i = blockIdx.x * 256 + t; i < n; i += 256 * gridDim.x) sum += x[i];
    s[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
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
