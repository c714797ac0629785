/* The beginning of every logarithm:
 *
 *   x = 2^k m,  m in [1/sqrt 2, sqrt 2),  c near 1 / m, of 13 bits:
 *   log x = k ln 2 - log c + log(1 + r),  r = m c - 1,  |r| < 2^-7.4
 *
 * where c and log c come from a table, and r is exact. Around 1, c is 1 and k is 0, so a small
 * logarithm keeps its digits. */
#ifndef CHOIR_MATH_LOG_SPLIT_H
#define CHOIR_MATH_LOG_SPLIT_H

#include "base/math/tables.h"

typedef struct log_split {
    int k;
    double c;
    dd minus_log; /* -log c */
    dd r;
} log_split;

/* For normal x > 0. */
static inline log_split log_begin(double x)
{
    uint64_t bits, upper_bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)((bits >> 32) - 0x3fe6a09e) >> 20; /* 0x3fe6a09e: 1/sqrt 2 begins so */
    bits -= (uint64_t)k << 52;
    upper_bits = bits & ~(uint64_t)0x1fff; /* 40 bits of m: their product with c is exact */
    double m, upper;
    memcpy(&m, &bits, sizeof m);
    memcpy(&upper, &upper_bits, sizeof upper);
    const log_entry *e = &choir__log_table[(int)(m * 128 + 0.5) - 91];
    return (log_split){
        k, e->c, e->minus_log, dd_sum_sorted(upper * e->c - 1, (m - upper) * e->c)};
}

/* Returns k ln 2 - log c. The first parts of ln 2 and of log c are multiples of 2^-42, so their
 * sum is exact. */
static inline dd log_end(log_split s)
{
    double high = s.k * 0x1.62e42fefa38p-1 + s.minus_log.hi;
    return (dd){high, s.k * 0x1.ef35793c7673p-45 + s.minus_log.lo};
}

#endif
