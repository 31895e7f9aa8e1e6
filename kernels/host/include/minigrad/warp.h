// Shuffles, votes, matches and reductions over the lanes of a warp.
//
// Each lane brings 64 bits; the last to arrive computes the result for all (runtime/warps.h).
#pragma once

namespace mgh {

enum WarpOp {
    SYNCWARP,
    SHUFFLE,
    BALLOT,
    ANY,
    ALL,
    MATCH_ANY,
    MATCH_ALL,
    ADD,
    MIN_SIGNED,
    MIN_UNSIGNED,
    MAX_SIGNED,
    MAX_UNSIGNED,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COLLECTIVE,
};

enum ShuffleMode { IDX, UP, DOWN, XOR };

// The lane that a shuffle reads, or its own where CUDA says that the value does not move.
inline int shuffle_source(ShuffleMode mode, int lane, int operand, int width) {
    int first = lane & ~(width - 1);
    int last = first + width - 1;
    switch (mode) {
        case IDX: return first + (operand & (width - 1));
        case UP: return lane - operand < first ? lane : lane - operand;
        case DOWN: return lane + operand > last ? lane : lane + operand;
        default: return (lane ^ operand) > last ? lane : lane ^ operand;
    }
}

template <class T>
uint64_t to_bits(T value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
T shuffle(ShuffleMode mode, unsigned mask, T value, int operand, int width, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
        mgh_trap("the width of a shuffle must be a power of two up to 32", "", line);
    }
    int source = shuffle_source(mode, self()->linear % LANES, operand, width);
    return from_bits<T>(mgh_warp(SHUFFLE, mask, to_bits(value), source, line));
}

inline uint64_t collective(WarpOp op, unsigned mask, uint64_t value, int line) {
    return mgh_warp(op, mask, value, 0, line);
}

// The lines of the calls, for errors: the functions below are reached through macros.
#define MGH_SHUFFLE(T)                                                                            \
    inline T shfl(int line, ShuffleMode mode, unsigned mask, T v, int operand, int width = 32) {  \
        return shuffle<T>(mode, mask, v, operand, width, line);                                   \
    }
MGH_SHUFFLE(int)
MGH_SHUFFLE(unsigned)
MGH_SHUFFLE(long)
MGH_SHUFFLE(unsigned long)
MGH_SHUFFLE(long long)
MGH_SHUFFLE(unsigned long long)
MGH_SHUFFLE(float)
MGH_SHUFFLE(double)
#undef MGH_SHUFFLE

template <class T>
unsigned match_any(int line, unsigned mask, T value) {
    return collective(MATCH_ANY, mask, to_bits(value), line);
}

template <class T>
unsigned match_all(int line, unsigned mask, T value, int* predicate) {
    unsigned lanes = collective(MATCH_ALL, mask, to_bits(value), line);
    *predicate = lanes != 0;
    return lanes;
}

inline int reduce(int line, WarpOp as_signed, WarpOp, unsigned mask, int value) {
    return collective(as_signed, mask, (unsigned)value, line);
}

inline unsigned reduce(int line, WarpOp, WarpOp as_unsigned, unsigned mask, unsigned value) {
    return collective(as_unsigned, mask, value, line);
}

inline void syncwarp(int line, unsigned mask = 0xffffffff) { collective(SYNCWARP, mask, 0, line); }

// The lanes that are there go on together; no barrier for the lab. See _in_step in source.py.
inline void in_step(int place) { mgh_activemask(place); }

inline unsigned vote(int line, WarpOp op, unsigned mask, int predicate) {
    return collective(op, mask, predicate != 0, line);
}

}  // namespace mgh

#define __shfl_sync(mask, ...) mgh::shfl(__LINE__, mgh::IDX, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) mgh::shfl(__LINE__, mgh::UP, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) mgh::shfl(__LINE__, mgh::DOWN, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) mgh::shfl(__LINE__, mgh::XOR, mask, __VA_ARGS__)
#define __syncwarp(...) mgh::syncwarp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __activemask() mgh_activemask(__LINE__)
#define __ballot_sync(mask, predicate) mgh::vote(__LINE__, mgh::BALLOT, mask, predicate)
#define __any_sync(mask, predicate) ((int)mgh::vote(__LINE__, mgh::ANY, mask, predicate))
#define __all_sync(mask, predicate) ((int)mgh::vote(__LINE__, mgh::ALL, mask, predicate))
#define __match_any_sync(mask, ...) mgh::match_any(__LINE__, mask, __VA_ARGS__)
#define __match_all_sync(mask, ...) mgh::match_all(__LINE__, mask, __VA_ARGS__)
#define __reduce_add_sync(mask, v) mgh::reduce(__LINE__, mgh::ADD, mgh::ADD, mask, v)
#define __reduce_min_sync(mask, v) \
    mgh::reduce(__LINE__, mgh::MIN_SIGNED, mgh::MIN_UNSIGNED, mask, v)
#define __reduce_max_sync(mask, v) \
    mgh::reduce(__LINE__, mgh::MAX_SIGNED, mgh::MAX_UNSIGNED, mask, v)
#define __reduce_and_sync(mask, v) mgh::reduce(__LINE__, mgh::BIT_AND, mgh::BIT_AND, mask, v)
#define __reduce_or_sync(mask, v) mgh::reduce(__LINE__, mgh::BIT_OR, mgh::BIT_OR, mask, v)
#define __reduce_xor_sync(mask, v) mgh::reduce(__LINE__, mgh::BIT_XOR, mgh::BIT_XOR, mask, v)
