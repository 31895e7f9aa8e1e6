// Images with their channels last, for convolutions whose operands are tables of packs.
constexpr unsigned OUTSIDE = 0xffffffff;

// planes (images, rows, width, packed) from x (images, channels, H, W): padding around, zeros behind
// the channels. A block of (32, 8) threads turns 32 channels of 32 positions round.
template <class T>
__global__ void channels_last(const T* x, T* planes, int channels, int height, int x_width, int rows,
                              int width, int packed, int lead_h, int lead_w) {
    __shared__ T tile[32][33];
    const int tx = threadIdx.x, ty = threadIdx.y, positions = rows * width;
    const int tiles = (positions + 31) / 32;
    const long long image = blockIdx.x / tiles;
    const int p0 = blockIdx.x % tiles * 32, c0 = blockIdx.y * 32, p = p0 + tx;
    const int h = p / width - lead_h, w = p % width - lead_w;
    const bool inside = p < positions && h >= 0 && h < height && w >= 0 && w < x_width;
    const T* from = x + image * channels * height * x_width + h * x_width + w;
    for (int c = ty; c < 32; c += 8) {
        const bool live = inside && c0 + c < channels;
        tile[c][tx] = live ? from[(c0 + c) * (height * x_width)] : T(0.0f);
    }
    __syncthreads();
    T* to = planes + image * positions * packed;
    for (int q = ty; q < 32; q += 8) {
        if (p0 + q < positions && c0 + tx < packed) to[(p0 + q) * packed + c0 + tx] = tile[tx][q];
    }
}
