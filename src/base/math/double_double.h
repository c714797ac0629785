/* Numbers of about 106 bits: the sum of two doubles, where lo is at most half an ulp of hi. The
 * functions of this folder need more digits than a double has between their argument and their
 * result. Sums and products of two doubles are exact here (Knuth, Dekker), by additions and
 * multiplications alone: without a fused multiply-add, which not every processor has, and whose
 * error terms differ where they underflow. The compiler must not contract them (CMakeLists.txt
 * says so for all sources) nor compute them with more digits. */
#ifndef CHOIR_MATH_DOUBLE_DOUBLE_H
#define CHOIR_MATH_DOUBLE_DOUBLE_H

#include <float.h>
#include <stdint.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16, "doubles have no more digits");

typedef struct dd {
    double hi, lo;
} dd;

/* a + b */
static inline dd dd_sum(double a, double b)
{
    double hi = a + b, other = hi - a;
    return (dd){hi, (a - (hi - other)) + (b - other)};
}

/* a + b where a is 0 or |a| >= |b| */
static inline dd dd_sum_sorted(double a, double b)
{
    double hi = a + b;
    return (dd){hi, b - (hi - a)};
}

/* Returns the upper 26 bits of |a| < 2^996; the others fit into 26 bits, too. */
static inline double dd_upper(double a)
{
    double far = a * 0x1.0000002p27;
    return far - (far - a);
}

/* a b, for products from 2^-969 on, or with one operand that has few bits */
static inline dd dd_product(double a, double b)
{
    double hi = a * b, ah = dd_upper(a), bh = dd_upper(b), al = a - ah, bl = b - bh;
    return (dd){hi, ((ah * bh - hi) + ah * bl + al * bh) + al * bl};
}

/* Returns the integer next to |a| < 2^51, the even one of two. */
static inline double dd_round(double a)
{
    return (a + 0x1.8p52) - 0x1.8p52; /* the sum has no bits left for a fraction */
}

/* 2^k for -1022 <= k <= 1023 */
static inline double dd_power_of_2(int k)
{
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* a 2^k for |k| < 2000: exact where neither the result nor, for |k| > 1000, its root is a
 * denormal. */
static inline double dd_scale(double a, int k)
{
    int half = k / 2;
    return a * dd_power_of_2(half) * dd_power_of_2(k - half);
}

static inline dd dd_add(dd a, dd b)
{
    dd s = dd_sum(a.hi, b.hi);
    return dd_sum_sorted(s.hi, s.lo + (a.lo + b.lo));
}

static inline dd dd_multiply(dd a, dd b)
{
    dd p = dd_product(a.hi, b.hi);
    return dd_sum_sorted(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

static inline dd dd_divide(dd a, dd b)
{
    double q = a.hi / b.hi;
    dd p = dd_product(q, b.hi);
    return dd_sum_sorted(q, ((a.hi - p.hi) - p.lo + (a.lo - q * b.lo)) / b.hi);
}

#endif
