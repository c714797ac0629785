/* The functions that take the place of libm's: their errors against long double, values for
 * special arguments, and one hash of a million results, which all compilers and processors must
 * have. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "check.h"
#include "base/math/functions.h"
#include "math_hash.h"

typedef double function(double x);
typedef long double oracle(long double x);

/* The error in units in the last place of the double next to `exact`. */
static double ulps(double x, long double exact)
{
    if (isnan(exact) || !isfinite((double)exact))
        return x == (double)exact || (isnan(x) && isnan(exact)) ? 0 : INFINITY;
    int exponent;
    frexp((double)exact, &exponent);
    return (double)fabsl(
        ((long double)x - exact) * ldexpl(1, exponent < -1021 ? 1074 : 53 - exponent));
}

static const struct {
    const char *name;
    function *ours;
    oracle *exact;
    double low, high, most; /* arguments: most of them in [low, high]; the error in ulps */
} functions[] = {
    {"exp", choir__exp, expl, -746, 710, 0.51},
    {"log", choir__log, logl, 0, 4, 0.502},
    {"log1p", choir__log1p, log1pl, -1, 1, 0.502},
    {"expm1", choir__expm1, expm1l, -40, 710, 0.52},
    {"log10", choir__log10, log10l, 0, 4, 0.502},
    {"sin", choir__sin, sinl, -7, 7, 0.502},
    {"cos", choir__cos, cosl, -7, 7, 0.502},
    {"tan", choir__tan, tanl, -7, 7, 0.502},
    {"atan", choir__atan, atanl, -4, 4, 0.502},
    {"tanh", choir__tanh, tanhl, -4, 4, 0.502},
    {"erfc", choir__erfc, erfcl, -4, 27, 0.7},
    {"erf", choir__erf, erfl, -6, 6, 1.5},
};

static void errors(void **state)
{
    for (size_t f = 0; f < CHOIR_COUNT(functions); f++) {
        double worst = 0, at = 0;
        for (int i = 0; i < 20000; i++) {
            double x = i % 4 == 3   ? any_double()
                       : i % 4 == 2 ? near_0()
                                    : between(functions[f].low, functions[f].high);
            double error = ulps(functions[f].ours(x), functions[f].exact((long double)x));
            if (error > worst)
                worst = error, at = x;
        }
        if (worst > functions[f].most)
            fail_msg("%s(%a) is wrong by %g ulp", functions[f].name, at, worst);
    }
}

static void errors_of_powers(void **state)
{
    for (int i = 0; i < 40000; i++) {
        double x = i % 2 ? between(0, 4) : fabs(any_double());
        double y = i % 4 < 2    ? between(-40, 40)
                   : i % 4 == 2 ? near_0()
                                : (double)(draw() % 100000);
        double error = ulps(choir__pow(x, y), powl((long double)x, (long double)y));
        if (error > 0.502)
            fail_msg("pow(%a, %a) is wrong by %g ulp", x, y, error);
    }
}

/* Multiples of pi that doubles come near to: there a sine has lost most of the digits of pi. */
static void long_reductions(void **state)
{
    static const double x[] = {0x1.6ac5b262ca1ffp849, 0x1.dffffffffffffp4, 0x1.921fb54442d18p1,
        0x1.921fb54442d18p16, 0x1.921fb54442d18p17, 131071, 131072, 0x1p1023,
        1.7976931348623157e308};
    for (size_t i = 0; i < CHOIR_COUNT(x); i++) {
        double s, c;
        choir__sin_cos(x[i], &s, &c);
        assert_true(s == choir__sin(x[i]) && c == choir__cos(x[i]));
        assert_true(ulps(s, sinl((long double)x[i])) < 0.502);
        assert_true(ulps(c, cosl((long double)x[i])) < 0.502);
    }
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void special_arguments(void **state)
{
    static const double pi_2 = 0x1.921fb54442d18p0, least = 0x1p-1074;
    static const struct {
        function *f;
        double x, y;
    } known[] = {
        {choir__exp, 0.0, 1},
        {choir__exp, -0.0, 1},
        {choir__exp, INFINITY, INFINITY},
        {choir__exp, -INFINITY, 0},
        {choir__exp, NAN, NAN},
        {choir__exp, least, 1},
        {choir__exp, 710, INFINITY},
        {choir__exp, -745.13, least},
        {choir__exp, -745.14, 0},
        {choir__log, 0.0, -INFINITY},
        {choir__log, -0.0, -INFINITY},
        {choir__log, 1, 0.0},
        {choir__log, INFINITY, INFINITY},
        {choir__log, -1, NAN},
        {choir__log, NAN, NAN},
        {choir__log, -INFINITY, NAN},
        {choir__log, least, -0x1.74385446d71c3p9},
        {choir__log1p, 0.0, 0.0},
        {choir__log1p, -0.0, -0.0},
        {choir__log1p, -1, -INFINITY},
        {choir__log1p, -2, NAN},
        {choir__log1p, INFINITY, INFINITY},
        {choir__log1p, NAN, NAN},
        {choir__log1p, least, least},
        {choir__log1p, 0x1p1023, 0x1.62e42fefa39efp9 - 0x1.62e42fefa39efp-1},
        {choir__log10, 1000, 3},
        {choir__log10, 1e22, 22},
        {choir__log10, 1, 0.0},
        {choir__log10, 0.0, -INFINITY},
        {choir__log10, -1, NAN},
        {choir__log10, INFINITY, INFINITY},
        {choir__sin, 0.0, 0.0},
        {choir__sin, -0.0, -0.0},
        {choir__sin, least, least},
        {choir__sin, INFINITY, NAN},
        {choir__sin, NAN, NAN},
        {choir__cos, 0.0, 1},
        {choir__cos, least, 1},
        {choir__cos, -INFINITY, NAN},
        {choir__cos, NAN, NAN},
        {choir__tan, -0.0, -0.0},
        {choir__tan, INFINITY, NAN},
        {choir__tan, NAN, NAN},
        {choir__atan, -0.0, -0.0},
        {choir__atan, INFINITY, pi_2},
        {choir__atan, -INFINITY, -pi_2},
        {choir__atan, 1, pi_2 / 2},
        {choir__atan, NAN, NAN},
        {choir__atan, -least, -least},
        {choir__atan, 0x1p1023, pi_2},
        {choir__tanh, -0.0, -0.0},
        {choir__tanh, INFINITY, 1},
        {choir__tanh, -INFINITY, -1},
        {choir__tanh, NAN, NAN},
        {choir__tanh, least, least},
        {choir__expm1, -0.0, -0.0},
        {choir__expm1, INFINITY, INFINITY},
        {choir__expm1, -INFINITY, -1},
        {choir__expm1, NAN, NAN},
        {choir__expm1, least, least},
        {choir__erf, -0.0, -0.0},
        {choir__erf, INFINITY, 1},
        {choir__erf, -INFINITY, -1},
        {choir__erf, NAN, NAN},
        {choir__erfc, 0.0, 1},
        {choir__erfc, -0.0, 1},
        {choir__erfc, INFINITY, 0},
        {choir__erfc, -INFINITY, 2},
        {choir__erfc, NAN, NAN},
        {choir__erfc, least, 1},
    };
    for (size_t i = 0; i < CHOIR_COUNT(known); i++)
        if (!same(known[i].f(known[i].x), known[i].y))
            fail_msg("function %zu of %a: expected %a, got %a", i, known[i].x, known[i].y,
                known[i].f(known[i].x));
}

/* C's Annex F, F.10.4.4, and overflow. */
static void special_powers(void **state)
{
    static const double known[][3] = {{0.0, -3, INFINITY}, {-0.0, -3, -INFINITY},
        {-0.0, -2, INFINITY}, {0.0, -0.5, INFINITY}, {-0.0, -0.5, INFINITY},
        {-0.0, -INFINITY, INFINITY}, {-0.0, 3, -0.0}, {-0.0, 2, 0.0}, {0.0, 3, 0.0},
        {-1, INFINITY, 1}, {-1, -INFINITY, 1}, {1, NAN, 1}, {NAN, 0.0, 1}, {NAN, -0.0, 1},
        {NAN, 1, NAN}, {2, NAN, NAN}, {-2, 0.5, NAN}, {0.5, -INFINITY, INFINITY},
        {2, -INFINITY, 0.0}, {-0.5, INFINITY, 0.0}, {-2, INFINITY, INFINITY},
        {-INFINITY, -3, -0.0}, {-INFINITY, -2, 0.0}, {-INFINITY, 3, -INFINITY},
        {-INFINITY, 2, INFINITY}, {INFINITY, -1, 0.0}, {INFINITY, 0.5, INFINITY}, {-2, 3, -8},
        {-2, 4, 16}, {10, 22, 1e22}, {10, -1, 0.1}, {2, 1024, INFINITY}, {-2, 1025, -INFINITY},
        {2, -1074, 0x1p-1074}, {-2, -1075, -0.0}, {0.5, 1e300, 0.0},
        {1 + 0x1p-52, 1e300, INFINITY}, {1 - 0x1p-53, 1e300, 0.0}, {-1, 0x1p53, 1},
        {-1, 0x1.fffffffffffffp52, -1}, {0x1p-1074, 0.5, 0x1p-537}};
    for (size_t i = 0; i < CHOIR_COUNT(known); i++)
        if (!same(choir__pow(known[i][0], known[i][1]), known[i][2]))
            fail_msg("pow(%a, %a): expected %a, got %a", known[i][0], known[i][1], known[i][2],
                choir__pow(known[i][0], known[i][1]));
}

/* Also where the result is half way between two floats, or no normal float. */
static void powers_of_floats(void **state)
{
    for (int i = 0; i < 100000; i++) {
        float x = i % 2 ? (float)(draw() % 8192) * 0x1p-12f : (float)ldexp(any_double(), 0);
        float y = i % 4 < 2 ? (float)(draw() % 64) - 32 : (float)between(-12, 12);
        double own = (double)choir__powf(x, y);
        if (!same(own, (double)(float)choir__pow((double)x, (double)y)))
            fail_msg(
                "powf(%a, %a) is not the rounded result of pow: %a", (double)x, (double)y, own);
    }
}

static void normal_pairs(void **state)
{
    for (int i = 0; i < 20000; i++) {
        double u = i ? 1 - between(0, 1) : 1, turn = i % 8 ? between(0, 1) : (i % 64) * 0x1p-6,
               a, b;
        choir__normal_pair(u, turn, &a, &b);
        long double root = sqrtl(-2 * logl((long double)u));
        long double angle = 2 * acosl(-1) * (long double)turn;
        long double error = fabsl((long double)a - root * cosl(angle));
        error += fabsl((long double)b - root * sinl(angle));
        if (error > root * 0x1p-50L)
            fail_msg("the normal pair of %a and %a is wrong by %Lg", u, turn, error);
    }
}

static void one_hash(void **state)
{
    if (hash_of_math() != HASH_OF_MATH)
        fail_msg(
            "the hash of all results has become 0x%016llx", (unsigned long long)hash_of_math());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors),
        cmocka_unit_test(errors_of_powers), cmocka_unit_test(long_reductions),
        cmocka_unit_test(special_arguments), cmocka_unit_test(special_powers),
        cmocka_unit_test(powers_of_floats), cmocka_unit_test(normal_pairs),
        cmocka_unit_test(one_hash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
