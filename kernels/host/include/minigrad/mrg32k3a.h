// cuRAND's generator MRG32k3a: L'Ecuyer, "Good parameters and implementations for combined multiple
// recursive random number generators", Operations Research 47 (1999). Skipping ahead multiplies its
// two halves by powers of the matrix of one step.
#pragma once

struct curandStateMRG32k3a {
    using mgh_generator = void;
    unsigned int s1[3], s2[3];
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef curandStateMRG32k3a curandStateMRG32k3a_t;

namespace mgh::random {

// One half: x[n] = (a * x[n - 2 or 1] - b * x[n - 3]) modulo m.
struct Half {
    int64_t m, a, b;
    int from;  // which of the last three numbers `a` belongs to, the oldest first

    MGH_SILENT int64_t step(unsigned* s) const {
        int64_t next = (a * s[from] - b * s[0]) % m;
        next += next < 0 ? m : 0;
        s[0] = s[1], s[1] = s[2], s[2] = (unsigned)next;
        return next;
    }
};
constexpr Half FIRST = {4294967087, 1403580, 810728, 1}, SECOND = {4294944443, 527612, 1370589, 2};

// power[k] is 2^k steps. A sequence is 2^127 numbers, a subsequence 2^76.
struct MrgPowers {
    uint32_t power[192][3][3] = {};
    uint64_t m;

    constexpr MrgPowers(const Half& half) : m(half.m) {
        power[0][0][1] = power[0][1][2] = 1;
        power[0][2][0] = half.m - half.b;
        power[0][2][half.from] = half.a;
        for (int k = 1; k < 192; ++k) {
            for (int i = 0; i < 9; ++i) {
                uint64_t sum = 0;
                for (int j = 0; j < 3; ++j) {
                    sum += (uint64_t)power[k - 1][i / 3][j] * power[k - 1][j][i % 3] % m;
                }
                power[k][i / 3][i % 3] = sum % m;
            }
        }
    }
    MGH_SILENT void skip(unsigned long long count, int k, unsigned* s) const {
        for (; count; ++k, count >>= 1) {
            if (!(count & 1)) continue;
            const uint64_t old[3] = {s[0], s[1], s[2]};
            for (int i = 0; i < 3; ++i) {
                uint64_t sum = 0;
                for (int j = 0; j < 3; ++j) sum += power[k][i][j] * old[j] % m;
                s[i] = sum % m;
            }
        }
    }
};
inline constexpr MrgPowers FIRST_POWERS(FIRST), SECOND_POWERS(SECOND);

inline void skip(unsigned long long count, int first_power, curandStateMRG32k3a* state) {
    FIRST_POWERS.skip(count, first_power, state->s1);
    SECOND_POWERS.skip(count, first_power, state->s2);
}

// From 1 to FIRST.m.
inline double draw(curandStateMRG32k3a* state) {
    const int64_t difference = FIRST.step(state->s1) - SECOND.step(state->s2);
    return difference + (difference <= 0 ? FIRST.m : 0);
}

}  // namespace mgh::random

inline unsigned int curand(curandStateMRG32k3a* state) {
    return (unsigned)(mgh::random::draw(state) * 1.000000048662);
}
inline void skipahead(unsigned long long n, curandStateMRG32k3a* state) {
    mgh::random::skip(n, 0, state);
}
inline void skipahead_subsequence(unsigned long long n, curandStateMRG32k3a* state) {
    mgh::random::skip(n & ((1ull << 51) - 1), 76, state);
}
inline void skipahead_sequence(unsigned long long n, curandStateMRG32k3a* state) {
    mgh::random::skip(n, 127, state);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStateMRG32k3a* state) {
    const uint64_t low = (unsigned)seed ^ 0x55555555u, high = (unsigned)(seed >> 32) ^ 0xAAAAAAAAu;
    *state = {};
    for (int i = 0; i < 3; ++i) {
        state->s1[i] = seed ? (i % 2 ? high : low) * 12345 % mgh::random::FIRST.m : 12345;
        state->s2[i] = seed ? (i % 2 ? low : high) * 12345 % mgh::random::SECOND.m : 12345;
    }
    skipahead_subsequence(subsequence, state);
    skipahead(offset, state);
}

inline double curand_uniform_double(curandStateMRG32k3a* state) {
    return mgh::random::draw(state) * 2.3283065498378288e-10;
}
inline float curand_uniform(curandStateMRG32k3a* state) {
    return (float)curand_uniform_double(state);
}
inline float2 curand_normal2(curandStateMRG32k3a* state) {
    const float u = curand_uniform(state), v = curand_uniform(state) * 6.2831855f;
    const float size = sqrtf(-2.0f * logf(u));
    float2 result;
    __sincosf(v, &result.x, &result.y);
    return {result.x * size, result.y * size};
}
inline double2 curand_normal2_double(curandStateMRG32k3a* state) {
    const double u = curand_uniform_double(state), v = curand_uniform_double(state) * 2.0;
    const double size = sqrt(-2.0 * log(u));
    double2 result;
    sincospi(v, &result.x, &result.y);
    return {result.x * size, result.y * size};
}
