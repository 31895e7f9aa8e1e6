// Atomics: safe between the OS threads that run a grid's blocks.
//
// One that leaves memory as it was may be a spin on a lock that another thread holds: such calls
// let other threads of the block run now and then.
#pragma once

namespace mgh {

inline void fruitless() {
    static thread_local unsigned calls;
    if (++calls % 64 == 0) mgh_yield(true);
}

// In loops that may wait for what another thread stores in a volatile variable (source.py).
inline bool poll() {
    fruitless();
    return false;
}

// Replaces *address by what `change` makes of it; the old value.
template <class T, class Change>
MGH_SILENT inline T atomic_update(T* address, Change change) {
    MGH_RECORD_ATOMIC(address);
    T old, changed;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        changed = change(old);
        if (memcmp(&changed, &old, sizeof(T)) == 0) {
            fruitless();
            return old;
        }
    } while (!__atomic_compare_exchange(address, &old, &changed, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
    return old;
}

template <class T>
MGH_SILENT inline T atomic_exchange(T* address, T value) {
    MGH_RECORD_ATOMIC(address);
    T old;
    __atomic_exchange(address, &value, &old, __ATOMIC_SEQ_CST);
    if (memcmp(&value, &old, sizeof(T)) == 0) fruitless();
    return old;
}

template <class T>
MGH_SILENT inline T atomic_cas(T* address, T compare, T value) {
    MGH_RECORD_ATOMIC(address);
    if (!__atomic_compare_exchange(address, &compare, &value, false, __ATOMIC_SEQ_CST,
                                   __ATOMIC_SEQ_CST)) {
        fruitless();
    }
    return compare;
}

template <class T>
MGH_SILENT inline T atomic_add(T* address, T value) {
    MGH_RECORD_ATOMIC(address);
    if (value == 0) fruitless();
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

}  // namespace mgh

#define MGH_INTEGER_ATOMICS(T)                                                              \
    inline T atomicAdd(T* p, T v) { return mgh::atomic_add(p, v); }                         \
    inline T atomicExch(T* p, T v) { return mgh::atomic_exchange(p, v); }                   \
    inline T atomicCAS(T* p, T compare, T v) { return mgh::atomic_cas(p, compare, v); }     \
    inline T atomicMin(T* p, T v) {                                                         \
        return mgh::atomic_update(p, [v](T old) { return v < old ? v : old; });             \
    }                                                                                       \
    inline T atomicMax(T* p, T v) {                                                         \
        return mgh::atomic_update(p, [v](T old) { return v > old ? v : old; });             \
    }                                                                                       \
    MGH_SILENT inline T atomicAnd(T* p, T v) {                                              \
        MGH_RECORD_ATOMIC(p);                                                               \
        return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                  \
    }                                                                                       \
    MGH_SILENT inline T atomicOr(T* p, T v) {                                               \
        MGH_RECORD_ATOMIC(p);                                                               \
        return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                   \
    }                                                                                       \
    MGH_SILENT inline T atomicXor(T* p, T v) {                                              \
        MGH_RECORD_ATOMIC(p);                                                               \
        return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                  \
    }

MGH_INTEGER_ATOMICS(int)
MGH_INTEGER_ATOMICS(unsigned int)
MGH_INTEGER_ATOMICS(long)
MGH_INTEGER_ATOMICS(unsigned long)
MGH_INTEGER_ATOMICS(long long)
MGH_INTEGER_ATOMICS(unsigned long long)
#undef MGH_INTEGER_ATOMICS

inline int atomicSub(int* p, int v) { return mgh::atomic_add(p, -v); }
inline unsigned int atomicSub(unsigned int* p, unsigned int v) { return mgh::atomic_add(p, -v); }

inline unsigned int atomicInc(unsigned int* p, unsigned int limit) {
    return mgh::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}

inline unsigned int atomicDec(unsigned int* p, unsigned int limit) {
    return mgh::atomic_update(
        p, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

inline unsigned short atomicCAS(unsigned short* p, unsigned short compare, unsigned short v) {
    return mgh::atomic_cas(p, compare, v);
}

inline float atomicAdd(float* p, float v) {
    return mgh::atomic_update(p, [v](float old) { return old + v; });
}

inline double atomicAdd(double* p, double v) {
    return mgh::atomic_update(p, [v](double old) { return old + v; });
}

inline float atomicExch(float* p, float v) { return mgh::atomic_exchange(p, v); }

// The scopes of a block and of the system: the same operations on a CPU.
#define atomicAdd_block atomicAdd
#define atomicSub_block atomicSub
#define atomicExch_block atomicExch
#define atomicMin_block atomicMin
#define atomicMax_block atomicMax
#define atomicInc_block atomicInc
#define atomicDec_block atomicDec
#define atomicCAS_block atomicCAS
#define atomicAnd_block atomicAnd
#define atomicOr_block atomicOr
#define atomicXor_block atomicXor
#define atomicAdd_system atomicAdd
#define atomicSub_system atomicSub
#define atomicExch_system atomicExch
#define atomicMin_system atomicMin
#define atomicMax_system atomicMax
#define atomicInc_system atomicInc
#define atomicDec_system atomicDec
#define atomicCAS_system atomicCAS
#define atomicAnd_system atomicAnd
#define atomicOr_system atomicOr
#define atomicXor_system atomicXor

// Each element is added atomically, not the vector as a whole.
inline float2 atomicAdd(float2* p, float2 v) {
    return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)};
}
inline float4 atomicAdd(float4* p, float4 v) {
    return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y), atomicAdd(&p->z, v.z),
            atomicAdd(&p->w, v.w)};
}
