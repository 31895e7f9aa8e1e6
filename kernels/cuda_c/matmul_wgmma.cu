// Matrix multiplication of 16-bit elements by Hopper's warpgroups, summed in float. needs sm_90a
// (compute capability 9.0 alone). Batches, bias and layouts are those of matmul.cu; the operands
// come as maps for the copy engine, and their rows in memory are multiples of 16 bytes.
//
// One thread of the first warpgroup, the producer, tells the copy engine which tiles to fetch into
// a ring of STAGES slots; GROUPS warpgroups multiply them (`wgmma` reads shared memory by itself) and
// keep 64 x TN results each, two of them in the registers that the producer gives up. (One leaves
// room for a second block, where a product has few results.) A slot's barrier `full`
// says that its bytes have come, `empty` that all warps have read them. The products of a step run
// while those of the next are issued and the copy engine fills the other slots: a warpgroup waits for
// a group of products, and gives its slot back, only when the next group is on its way.
//
// A slot has boxes of 64 x 64 elements, GROUPS of a and TN / 64 of b, each as it lies in memory: 64
// rows of 128 bytes whose packs of 16 bytes change places by XOR with the row (the 128-byte swizzle
// of the copy engine and of `wgmma`; PTX ISA, "Shared Memory Matrix Layout").
#include "matmul.cuh"
#include "hopper.cuh"

constexpr int BOX = 64, BOX_BYTES = BOX * BOX * 2, ROW_BYTES = BOX * 2;

// What `wgmma` must know of 16 elements along k, at step i of a slot, of an operand that begins at
// an address. Where k runs along the rows, these are 32 bytes of each, and groups of 8 rows follow
// each other. ACROSS, they are 16 rows in two groups of 8, and the next 64 of m or n a box further.
template <bool ACROSS>
__device__ __forceinline__ unsigned long long descriptor(unsigned address, int i) {
    const unsigned long long start = address + i * (ACROSS ? 16 * ROW_BYTES : 32);
    const unsigned long long leading = ACROSS ? BOX_BYTES : 16, stride = 8 * ROW_BYTES;
    const unsigned long long swizzle_128 = 1;
    return (start & 0x3ffff) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle_128 << 62;
}

// Fetches the boxes of SIZE rows or columns from `at` on, for 64 elements along k.
template <int SIZE, bool ACROSS>
__device__ __forceinline__ void load_boxes(unsigned char* to, const TensorMap& map, int at, int k0,
                                           int z, unsigned long long* barrier) {
    for (int i = 0; i < SIZE; i += BOX) {
        load_box(to + i / BOX * BOX_BYTES, map, ACROSS ? at + i : k0, ACROSS ? k0 : at + i, z,
                 barrier);
    }
}

// Block (128 + 128 * GROUPS), grid (n / TN, m / (64 * GROUPS), z); dynamic shared memory for the
// ring. Of one pair of matrices with a long k, each z makes the part of c over `span` terms, a
// multiple of BOX.
template <class T, class U, bool TA, bool TB, bool BIAS, int GROUPS, int TN, int STAGES>
__global__ void __launch_bounds__(128 + 128 * GROUPS, 3 - GROUPS)
wgmma(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const T* bias, U* c, int m, int n, int k, int span, bool batch_a, bool batch_b) {
    constexpr int TM = BOX * GROUPS, A_BYTES = GROUPS * BOX_BYTES, B_BYTES = TN / BOX * BOX_BYTES;
    constexpr int WARPS = 4 * GROUPS;  // that multiply
    extern __shared__ unsigned char memory[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    // The swizzle is a matter of addresses: the ring begins at a multiple of 1024.
    unsigned char* ring = memory + (0u - shared_address(memory)) % 1024;
    const int t = threadIdx.x, row0 = blockIdx.y * TM, col0 = blockIdx.x * TN;
    const int group = __shfl_sync(FULL_WARP, t / 128, 0);  // which the compiler sees is the warp's
    const int first = span < k ? blockIdx.z * span : 0;
    const int steps = (min(k - first, span) + BOX - 1) / BOX;
    if (t == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], WARPS);
        }
        barriers_made();
    }
    __syncthreads();
    if (group == 0) {
        if (GROUPS > 1) keep_registers<40>();
        if (t == 0) {
            for (int step = 0; step < steps; ++step) {
                const int slot = step % STAGES, turn = step / STAGES, k0 = first + step * BOX;
                unsigned char* to = ring + slot * (A_BYTES + B_BYTES);
                barrier_wait(&empty[slot], (turn + 1) % 2);  // read in the turn before
                barrier_expect(&full[slot], A_BYTES + B_BYTES);
                load_boxes<TM, TA>(to, a_map, row0, k0, batch_a ? blockIdx.z : 0, &full[slot]);
                load_boxes<TN, !TB>(to + A_BYTES, b_map, col0, k0, batch_b ? blockIdx.z : 0,
                                    &full[slot]);
            }
        }
    } else {
        if (GROUPS > 1) await_registers<232>();
        float sum[TN / 2] = {};
        for (int step = 0; step < steps; ++step) {
            const int slot = step % STAGES, turn = step / STAGES;
            const unsigned from = shared_address(ring) + slot * (A_BYTES + B_BYTES);
            barrier_wait(&full[slot], turn % 2);
            products_begin();
            #pragma unroll
            for (int i = 0; i < BOX / 16; ++i) {
                warpgroup_product<TA, !TB>(sum, descriptor<TA>(from + (group - 1) * BOX_BYTES, i),
                                           descriptor<!TB>(from + A_BYTES, i), bias);
            }
            products_end();
            wait_for_products<1>();
            if (step > 0 && t % 32 == 0) barrier_arrive(&empty[(step - 1) % STAGES]);
        }
        wait_for_sums(sum);
        const int row = row0 + (group - 1) * 64 + t % 128 / 32 * 16 + t % 32 / 4;
        const int col = col0 + t % 4 * 2;
        #pragma unroll
        for (int i = 0; i < TN / 2; i += 4) {
            store_pair<BIAS>(c, bias, sum[i], sum[i + 1], row, col + i * 2, m, n);
            store_pair<BIAS>(c, bias, sum[i + 2], sum[i + 3], row + 8, col + i * 2, m, n);
        }
    }
}
