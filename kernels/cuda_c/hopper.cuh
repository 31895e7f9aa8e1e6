// Hopper's barriers, copy engine (TMA) and warpgroup products as functions, one instruction each
// (PTX ISA 8.0). needs sm_90a

struct __align__(128) TensorMap {  // a CUtensorMap, which the driver fills in
    unsigned long long opaque[16];
};

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// A barrier's phase ends when `arrivals` threads have arrived and all expected bytes have come.
__device__ __forceinline__ void barrier_init(unsigned long long* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals) : "memory");
}

// After it (and a __syncthreads) barriers just made are there for the copy engine too.
__device__ __forceinline__ void barriers_made() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrives, and makes the phase last until the copy engine has written so many bytes more.
__device__ __forceinline__ void barrier_expect(unsigned long long* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)), "r"(bytes) : "memory");
}

// Waits for the end of the phase of that parity: phases count from 0, and the one before the first
// has ended.
__device__ __forceinline__ void barrier_wait(unsigned long long* barrier, int parity) {
    int over;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.s32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    } while (!over);
}

// Starts the copy of a map's box at (x, y, z), x along rows, to shared memory; outside are zeros.
// All of the box's bytes count for the barrier.
__device__ __forceinline__ void load_box(void* to, const TensorMap& map, int x, int y, int z,
                                         unsigned long long* barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)), "l"(&map), "r"(x),
                 "r"(y), "r"(z), "r"(shared_address(barrier)) : "memory");
}

// Registers a thread, for all of a warpgroup: how many it keeps, or waits for.
template <int REGISTERS>
__device__ __forceinline__ void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void await_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Products of a warpgroup run by themselves. Before the first, when sums have been written otherwise:
__device__ __forceinline__ void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// The products since the last call are one group.
__device__ __forceinline__ void products_end() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all groups of products but the last NEWER: their tiles have been read.
template <int NEWER>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(NEWER) : "memory");
}

// Waits for all products, and keeps the compiler from reading their sums before.
template <int N>
__device__ __forceinline__ void wait_for_sums(float (&sum)[N]) {
    wait_for_products<0>();
    #pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// Names of a thread's sums in the instruction, and the operands that they are.
#define NAMES_32                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "  \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                             \
    NAMES_32                                                                                 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128                                                                            \
    NAMES_64                                                                                 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "     \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "  \
    "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "      \
    "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "   \
    "%125, %126, %127"
#define SUMS_8(i)                                                                            \
    "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]),    \
        "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)

// sum (64 x N) += a (64 x 16) @ b (16 x N) of a warpgroup, a and b in shared memory as their
// descriptors say. A_ACROSS, B_ACROSS: k does not run along the rows there.
#define WARPGROUP_PRODUCT(TYPE, NAME, N, NAMES, A, B, TRANS_A, TRANS_B, ...)                 \
    template <bool A_ACROSS, bool B_ACROSS>                                                  \
    __device__ __forceinline__ void warpgroup_product(                                       \
        float (&sum)[N / 2], unsigned long long a, unsigned long long b, const TYPE*) {      \
        asm volatile("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                          \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME         \
                     " {" NAMES "}, " A ", " B ", add, 1, 1, " TRANS_A ", " TRANS_B ";\n}"   \
                     : __VA_ARGS__                                                           \
                     : "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));                        \
    }
#define WARPGROUP_PRODUCTS(TYPE, NAME)                                                       \
    WARPGROUP_PRODUCT(TYPE, NAME, 64, NAMES_32, "%32", "%33", "%34", "%35", SUMS_32(0))      \
    WARPGROUP_PRODUCT(TYPE, NAME, 128, NAMES_64, "%64", "%65", "%66", "%67", SUMS_32(0),     \
                      SUMS_32(32))                                                           \
    WARPGROUP_PRODUCT(TYPE, NAME, 256, NAMES_128, "%128", "%129", "%130", "%131",            \
                      SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96))
WARPGROUP_PRODUCTS(__half, "f16")
WARPGROUP_PRODUCTS(__nv_bfloat16, "bf16")
