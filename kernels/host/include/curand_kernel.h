// cuRAND's device API: the generators XORWOW, Philox4x32-10 and MRG32k3a, with cuRAND's numbers.
//
// XORWOW: Marsaglia, "Xorshift RNGs", J. Stat. Software 8 (2003). Philox: Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011. Skipping ahead multiplies XORWOW's 160 bits by
// powers of the matrix of one step, which are computed when they are first needed.
#pragma once

#include <minigrad/mrg32k3a.h>

#define CURAND_VERSION 10400

struct curandStateXORWOW {
    using mgh_generator = void;
    unsigned int d, v[5];
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
struct curandStatePhilox4_32_10 {
    using mgh_generator = void;
    uint4 ctr, output;
    uint2 key;
    unsigned int STATE;
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t, curandState, curandState_t;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace mgh::random {

// --- XORWOW -----------------------------------------------------------------------------------

constexpr int BITS = 160, POWERS = 131;  // 2^67 numbers in a sequence, and 64 bits of sequences

MGH_SILENT inline void step(unsigned* v) {
    unsigned t = v[0] ^ (v[0] >> 2);
    for (int i = 0; i < 4; ++i) v[i] = v[i + 1];
    v[4] = (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1));
}

struct Matrix {  // what becomes of each bit
    unsigned row[BITS][5];
};

MGH_SILENT inline void multiply(unsigned* v, const Matrix& by) {
    unsigned sum[5] = {};
    for (int bit = 0; bit < BITS; ++bit) {
        const unsigned taken = -(v[bit / 32] >> bit % 32 & 1);
        for (int i = 0; i < 5; ++i) sum[i] ^= taken & by.row[bit][i];
    }
    for (int i = 0; i < 5; ++i) v[i] = sum[i];
}

// power[k] is 2^k steps.
struct Powers {
    Matrix power[POWERS];

    MGH_SILENT void compute() {
        for (int bit = 0; bit < BITS; ++bit) {
            unsigned* row = power[0].row[bit];
            for (int i = 0; i < 5; ++i) row[i] = 0;
            row[bit / 32] = 1u << bit % 32;
            step(row);
        }
        for (int k = 1; k < POWERS; ++k) {
            for (int bit = 0; bit < BITS; ++bit) {
                unsigned* row = power[k].row[bit];
                for (int i = 0; i < 5; ++i) row[i] = power[k - 1].row[bit][i];
                multiply(row, power[k - 1]);
            }
        }
    }
};

MGH_SILENT inline const Powers& powers() {
    static Powers all;
    static int state;  // 0: not computed, 1: an OS thread computes them, 2: there
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != 2) {
        int none = 0;
        if (__atomic_compare_exchange_n(&state, &none, 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            all.compute();
            __atomic_store_n(&state, 2, __ATOMIC_RELEASE);
        }
        while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != 2) {}
    }
    return all;
}

inline void skip(unsigned long long count, int first_power, unsigned* of) {
    if (!count) return;
    unsigned v[5];
    for (int i = 0; i < 5; ++i) v[i] = of[i];
    const Powers& all = powers();
    for (int k = first_power; count; ++k, count >>= 1) {
        if (count & 1) multiply(v, all.power[k]);
    }
    for (int i = 0; i < 5; ++i) of[i] = v[i];
}

// --- Philox -----------------------------------------------------------------------------------

MGH_SILENT inline uint4 philox(uint4 c, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = 0xD2511F53ull * c.x, b = 0xCD9E8D57ull * c.z;
        c = {(unsigned)(b >> 32) ^ c.y ^ key.x, (unsigned)b, (unsigned)(a >> 32) ^ c.w ^ key.y,
             (unsigned)a};
        key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
    }
    return c;
}

// --- distributions ----------------------------------------------------------------------------

constexpr float SCALE = 2.3283064e-10f;  // 2^-32
constexpr double SCALE53 = 1.1102230246251565e-16;
enum Flag { NORMAL = 1, LOG_NORMAL = 2 };

inline float uniform(unsigned x) { return x * SCALE + SCALE / 2; }
inline double uniform(unsigned x, unsigned y) {
    return ((uint64_t)x ^ (uint64_t)y << 21) * SCALE53 + SCALE53 / 2;
}
inline float2 normal(unsigned x, unsigned y) {
    constexpr float turn = SCALE * 6.2831855f;
    const float u = uniform(x), v = y * turn + turn / 2, size = sqrtf(-2.0f * logf(u));
    float2 result;
    __sincosf(v, &result.x, &result.y);
    return {result.x * size, result.y * size};
}
inline double2 normal(uint4 x) {
    const double u = uniform(x.x, x.y), size = sqrt(-2.0 * log(u));
    const double v = ((uint64_t)x.z ^ (uint64_t)x.w << 21) * (2 * SCALE53) + SCALE53;
    double2 result;
    sincospi(v, &result.x, &result.y);
    return {result.x * size, result.y * size};
}

}  // namespace mgh::random

inline unsigned int curand(curandStateXORWOW* state) {
    mgh::random::step(state->v);
    state->d += 362437;
    return state->v[4] + state->d;
}
inline void skipahead(unsigned long long n, curandStateXORWOW* state) {
    mgh::random::skip(n, 0, state->v);
    state->d += 362437 * (unsigned)n;
}
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
    mgh::random::skip(n, 67, state->v);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStateXORWOW* state) {
    const unsigned a = 1099087573u * ((unsigned)seed ^ 0xaad26b49u);
    const unsigned b = 2591861531u * ((unsigned)(seed >> 32) ^ 0xf7dcefddu);
    *state = {6615241 + b + a, {123456789 + a, 362436069 ^ a, 521288629 + b, 88675123 ^ b,
                                5783321 + a}, 0, 0, 0, 0};
    skipahead_sequence(sequence, state);
    skipahead(offset, state);
}

namespace mgh::random {

// The counter as 128 bits: `n` more, at 64 bits of them.
inline void count(curandStatePhilox4_32_10* s, unsigned long long n) {
    const uint64_t low = (uint64_t)s->ctr.y << 32 | s->ctr.x, sum = low + n;
    s->ctr.x = (unsigned)sum, s->ctr.y = (unsigned)(sum >> 32);
    if (sum < low && !++s->ctr.z) ++s->ctr.w;
}
inline void next(curandStatePhilox4_32_10* s) { s->output = philox(s->ctr, s->key); }

}  // namespace mgh::random

inline unsigned int curand(curandStatePhilox4_32_10* state) {
    const unsigned found = (&state->output.x)[state->STATE++];
    if (state->STATE == 4) {
        mgh::random::count(state, 1);
        mgh::random::next(state);
        state->STATE = 0;
    }
    return found;
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
    const uint4 old = state->output;
    mgh::random::count(state, 1);
    mgh::random::next(state);
    const unsigned all[8] = {old.x, old.y, old.z, old.w, state->output.x, state->output.y,
                             state->output.z, state->output.w};
    const unsigned* from = all + state->STATE;
    return {from[0], from[1], from[2], from[3]};
}
inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
    const unsigned place = state->STATE + (n & 3);
    state->STATE = place & 3;
    mgh::random::count(state, n / 4 + place / 4);
    mgh::random::next(state);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
    const uint64_t high = ((uint64_t)state->ctr.w << 32 | state->ctr.z) + n;
    state->ctr.z = (unsigned)high, state->ctr.w = (unsigned)(high >> 32);
    mgh::random::next(state);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence,
                        unsigned long long offset, curandStatePhilox4_32_10* state) {
    *state = {{0, 0, 0, 0}, {0, 0, 0, 0}, {(unsigned)seed, (unsigned)(seed >> 32)}, 0, 0, 0, 0, 0};
    skipahead_sequence(sequence, state);
    skipahead(offset, state);
}

#define MGH_DRAW(Result) \
    template <class S, class = typename S::mgh_generator> \
    inline Result

MGH_DRAW(float) curand_uniform(S* state) { return mgh::random::uniform(curand(state)); }
MGH_DRAW(double) curand_uniform_double(S* state) {
    return curand(state) * 2.3283064365386963e-10 + 2.3283064365386963e-10;
}
inline double curand_uniform_double(curandStateXORWOW* state) {
    const unsigned x = curand(state), y = curand(state);
    return mgh::random::uniform(x, y);
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    using mgh::random::uniform;
    return {uniform(x.x), uniform(x.y), uniform(x.z), uniform(x.w)};
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    return {mgh::random::uniform(x.x, x.y), mgh::random::uniform(x.z, x.w)};
}

MGH_DRAW(float2) curand_normal2(S* state) {
    const unsigned x = curand(state), y = curand(state);
    return mgh::random::normal(x, y);
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
    const uint4 x = curand4(state);
    const float2 a = mgh::random::normal(x.x, x.y), b = mgh::random::normal(x.z, x.w);
    return {a.x, a.y, b.x, b.y};
}
inline double2 curand_normal2_double(curandStateXORWOW* state) {
    const unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
    return mgh::random::normal(uint4{x, y, z, w});
}
inline double2 curand_normal2_double(curandStatePhilox4_32_10* state) {
    return mgh::random::normal(curand4(state));
}

// Of each two numbers the second is kept for the next call.
#define MGH_ONE_OF_TWO(flag, extra, kind, two)          \
    if (state->flag == mgh::random::kind) {             \
        state->flag = 0;                                \
        return state->extra;                            \
    }                                                   \
    const auto both = two;                              \
    state->extra = both.y;                              \
    state->flag = mgh::random::kind;                    \
    return both.x;
MGH_DRAW(float) curand_normal(S* state) {
    MGH_ONE_OF_TWO(boxmuller_flag, boxmuller_extra, NORMAL, curand_normal2(state))
}
MGH_DRAW(double) curand_normal_double(S* state) {
    MGH_ONE_OF_TWO(boxmuller_flag_double, boxmuller_extra_double, NORMAL,
                   curand_normal2_double(state))
}
MGH_DRAW(float2) curand_log_normal2(S* state, float mean, float stddev) {
    const float2 n = curand_normal2(state);
    return {expf(mean + stddev * n.x), expf(mean + stddev * n.y)};
}
MGH_DRAW(double2) curand_log_normal2_double(S* state, double mean, double stddev) {
    const double2 n = curand_normal2_double(state);
    return {exp(mean + stddev * n.x), exp(mean + stddev * n.y)};
}
inline float4 curand_log_normal4(curandStatePhilox4_32_10* state, float mean, float stddev) {
    const float4 n = curand_normal4(state);
    return {expf(mean + stddev * n.x), expf(mean + stddev * n.y), expf(mean + stddev * n.z),
            expf(mean + stddev * n.w)};
}
MGH_DRAW(float) curand_log_normal(S* state, float mean, float stddev) {
    MGH_ONE_OF_TWO(boxmuller_flag, boxmuller_extra, LOG_NORMAL,
                   curand_log_normal2(state, mean, stddev))
}
MGH_DRAW(double) curand_log_normal_double(S* state, double mean, double stddev) {
    MGH_ONE_OF_TWO(boxmuller_flag_double, boxmuller_extra_double, LOG_NORMAL,
                   curand_log_normal2_double(state, mean, stddev))
}
#undef MGH_ONE_OF_TWO
#undef MGH_DRAW
