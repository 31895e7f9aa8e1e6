// Copies: x (batch, rows, columns) to out (batch, columns, rows), and a part of a concatenation.
//
// 1. transpose_naive: reads rows and writes columns; every write is a transaction of its own
// 2. transpose_tile<TILE>: a tile passes through shared memory, so that reads and writes both run
//    along rows; but the 32 threads that read a column of the tile all hit one bank
// 3. transpose_tile<TILE + 1>, "padded": one more column puts a column into 32 different banks
// few_rows, few_columns: a thread moves one element of each of the COUNT rows or columns; constants,
//    so that a compiler for the CPU makes packs of what neighbouring threads move
// concat_rows: a block copies a tile of a part into its columns of the result.
constexpr int TILE = 32, ROWS = 8;  // a block is TILE x ROWS threads

template <class T>
__global__ void transpose_naive(const T* x, T* out, long long rows, long long columns) {
    const long long column = blockIdx.x * (long long)TILE + threadIdx.x;
    const long long start = blockIdx.z * rows * columns;
    const long long first = blockIdx.y * (long long)TILE;
    if (column >= columns) return;
    for (long long row = first + threadIdx.y; row < first + TILE && row < rows; row += ROWS) {
        out[start + column * rows + row] = x[start + row * columns + column];
    }
}

template <class T, int WIDTH>
__global__ void transpose_tile(const T* x, T* out, long long rows, long long columns) {
    __shared__ T tile[TILE][WIDTH];
    const int tx = threadIdx.x;
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    const long long start = blockIdx.z * rows * columns;
    for (int k = threadIdx.y; k < TILE; k += ROWS) {
        if (row0 + k < rows && column0 + tx < columns) {
            tile[k][tx] = x[start + (row0 + k) * columns + column0 + tx];
        }
    }
    __syncthreads();
    for (int k = threadIdx.y; k < TILE; k += ROWS) {
        if (column0 + k < columns && row0 + tx < rows) {
            out[start + (column0 + k) * rows + row0 + tx] = tile[tx][k];
        }
    }
}

// x (batch, phases, COUNT, times, length) to out (batch, times, phases, length, COUNT).
template <class T, int COUNT>
__global__ void few_rows(const T* x, T* out, long long lines, long long length, long long times,
                         long long phases) {
    const long long line = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (line >= lines) return;
    const long long phase = line % phases, time = line / phases % times;
    x += ((line / (phases * times) * phases + phase) * COUNT * times + time) * length;
    out += line * length * COUNT;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        for (int row = 0; row < COUNT; ++row) out[i * COUNT + row] = x[row * times * length + i];
    }
}

// x (lines, length, COUNT) to out (lines, COUNT, length).
template <class T, int COUNT>
__global__ void few_columns(const T* x, T* out, long long lines, long long length) {
    const long long line = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (line >= lines) return;
    x += line * length * COUNT;
    out += line * length * COUNT;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) {
        for (int column = 0; column < COUNT; ++column) {
            out[column * length + i] = x[i * COUNT + column];
        }
    }
}

// x (rows, width) into the columns of out (rows, total) that begin at `start`.
template <class T>
__global__ void concat_rows(const T* x, T* out, long long rows, long long width, long long total,
                            long long start) {
    const long long tiles = (width + blockDim.x - 1) / blockDim.x;
    const long long row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const long long j = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    if (row < rows && j < width) out[row * total + start + j] = x[row * width + j];
}
