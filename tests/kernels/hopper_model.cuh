// In place of kernels/cuda_c/hopper.cuh: what its instructions do, in C++ for the CPU, as the PTX
// ISA says it. Memory is written and read through the same swizzle, descriptors are taken apart bit
// by bit, barriers count arrivals and bytes; a wait that does not end is a trap. Products run twice,
// as early as they may, and as late: when a thread waits for their group, and after the copy engine
// has filled all slots that it finds empty. Where the two differ, and before that, sums are NaN.

struct TensorMap {  // here the facts from which the driver would make one
    const unsigned short* x;
    long long columns, rows, batches;
    long long unused[12];
};

struct Barrier {
    unsigned char arrivals, missing;
    unsigned short phase;
    int bytes;  // expected and not yet there
};
__shared__ unsigned long long ring_starts;  // poison is the largest number

__device__ void ensure(bool holds) {
    if (!holds) __trap();
}

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void barrier_settle(Barrier& b) {
    if (b.missing == 0 && b.bytes == 0) b.phase += 1, b.missing = b.arrivals;
}

__device__ void barrier_init(unsigned long long* barrier, int arrivals) {
    *(Barrier*)barrier = {(unsigned char)arrivals, (unsigned char)arrivals, 0, 0};
}

__device__ void barriers_made() {}

__device__ void barrier_arrive(unsigned long long* barrier) {
    Barrier& b = *(Barrier*)barrier;
    ensure(b.missing > 0);
    b.missing -= 1;
    barrier_settle(b);
}

__device__ void barrier_expect(unsigned long long* barrier, int bytes) {
    ((Barrier*)barrier)->bytes += bytes;
    barrier_arrive(barrier);
}

__device__ void barrier_wait(unsigned long long* barrier, int parity) {
    ensure(parity == 0 || parity == 1);
    for (int i = 0; ((volatile Barrier*)barrier)->phase % 2 == parity; ++i) {
        ensure(i < 100000);
        __nanosleep(1);
    }
}

// The 128-byte swizzle: bits 7 to 9 of an address turn bits 4 to 6.
__device__ unsigned long long swizzled_128(unsigned long long address) {
    return address ^ (address >> 7 & 7) << 4;
}

__device__ void load_box(void* to, const TensorMap& map, int x, int y, int z,
                         unsigned long long* barrier) {
    ensure((unsigned long long)to % 1024 == 0);
    if ((unsigned long long)to < ring_starts) ring_starts = (unsigned long long)to;
    for (int row = 0; row < 64; ++row) {
        for (int i = 0; i < 64; ++i) {
            const bool inside = x + i < map.columns && y + row < map.rows && z < map.batches;
            *(unsigned short*)swizzled_128((unsigned long long)to + row * 128 + i * 2) =
                inside ? map.x[(z * map.rows + y + row) * map.columns + x + i] : 0;
        }
    }
    ((Barrier*)barrier)->bytes -= 64 * 64 * 2;
    ensure(((Barrier*)barrier)->bytes >= 0);
    barrier_settle(*(Barrier*)barrier);
    __nanosleep(1);  // others take their turns
}

template <int REGISTERS>
__device__ void keep_registers() {}
// Products of a thread that have not run, in the order in which they were told.
struct Product {
    int group;
    unsigned long long a, b;
    void (*add)(float* sum, unsigned long long a, unsigned long long b);
};
struct Products {
    bool begun;
    int group, told;  // the group that is being told; products in `waiting`
    Product waiting[16];
    int sums;
    float *seen, early[128], sum[128];  // where the kernel has them; by early and late products
};
thread_local Products all_products[384];  // a thread of the CPU runs all threads of a block

template <int REGISTERS>
__device__ void await_registers() { all_products[threadIdx.x] = {}; }  // once, in the beginning

__device__ void products_begin() {
    Products& own = all_products[threadIdx.x];
    if (own.told == 0) own = {true};
}

__device__ void products_end() { all_products[threadIdx.x].group += 1; }

template <int NEWER>
__device__ __noinline__ void wait_for_products() {
    Products& own = all_products[threadIdx.x];
    for (int turn = 0; turn < 64; ++turn) __nanosleep(1);  // the copy engine goes around the ring
    int ready = 0;
    while (ready < own.told && own.waiting[ready].group < own.group - NEWER) {
        const Product& next = own.waiting[ready++];
        next.add(own.sum, next.a, next.b);
    }
    own.told -= ready;
    for (int i = 0; i < own.told; ++i) own.waiting[i] = own.waiting[i + ready];
    if (ready && own.told == 0) {
        for (int i = 0; i < own.sums; ++i) {
            if (own.sum[i] == own.early[i]) own.seen[i] = own.sum[i];
        }
        own.begun = false;
    }
}

template <int N>
__device__ void wait_for_sums(float (&)[N]) { wait_for_products<0>(); }

// The element (at, k) of an operand, at along m or n: the canonical layouts with a 128-byte swizzle
// of elements of 2 bytes, ((8,m),(8,2k)):((64,SBO),(1,8)) where k runs along the rows, else
// ((8,8,m),(8,k)):((1,8,LBO),(64,SBO)).
template <class T, bool ACROSS>
__device__ float operand(unsigned long long descriptor, int at, int k) {
    const unsigned long long start = (descriptor & 0x3fff) << 4;
    const unsigned long long leading = (descriptor >> 16 & 0x3fff) << 4;
    const unsigned long long stride = (descriptor >> 32 & 0x3fff) << 4;
    ensure(descriptor >> 62 == 1);  // 128-byte swizzle
    ensure((descriptor >> 49 & 7) == 0);  // the pattern starts at a multiple of 1024
    unsigned long long offset = ACROSS ? at % 64 * 2 + at / 64 * leading + k % 8 * 128 + k / 8 * stride
                                       : at % 8 * 128 + at / 8 * stride + k * 2;
    offset += (start - ring_starts) & 0x3ffff;  // a descriptor has 18 bits of an address
    return float(*(T*)swizzled_128(ring_starts + offset));
}

// Figure "WGMMA .m64nNk16 register fragment layout for accumulator matrix D".
template <bool A_ACROSS, bool B_ACROSS, class T, int SUMS>
__device__ __noinline__ void add_product(float* sum, unsigned long long a, unsigned long long b) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    for (int half = 0; half < 2; ++half) {
        float row[16];
        for (int k = 0; k < 16; ++k) {
            row[k] = operand<T, A_ACROSS>(a, warp * 16 + half * 8 + lane / 4, k);
        }
        for (int i = 0; i < SUMS / 2; ++i) {
            float& total = sum[i / 2 * 4 + half * 2 + i % 2];
            for (int k = 0; k < 16; ++k) {
                total += row[k] * operand<T, B_ACROSS>(b, i / 2 * 8 + lane % 4 * 2 + i % 2, k);
            }
        }
    }
}

template <bool A_ACROSS, bool B_ACROSS, class T, int SUMS>
__device__ __noinline__ void warpgroup_product(float (&sum)[SUMS], unsigned long long a,
                                               unsigned long long b, const T*) {
    Products& own = all_products[threadIdx.x];
    ensure(own.begun && own.told < 16);
    if (own.told == 0) {
        own.sums = SUMS, own.seen = sum;
        for (int i = 0; i < SUMS; ++i) {
            own.sum[i] = own.early[i] = sum[i];
            sum[i] = __int_as_float(0x7fc00000);
        }
    }
    const auto add = add_product<A_ACROSS, B_ACROSS, T, SUMS>;
    add(own.early, a, b);
    own.waiting[own.told++] = {own.group, a, b, add};
}
