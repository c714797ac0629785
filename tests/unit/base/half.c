/* The 16-bit floats: every pattern there and back, and the rounding on the way down. */
#include <math.h>
#include <stdbool.h>
#include "check.h"
#include "base/half.h"

static bool is_nan16(uint16_t half, uint16_t infinity)
{
    return (half & 0x7FFF) > infinity;
}

static void bf16_round_trip(void **state)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t half = (uint16_t)i, back = choir__bf16_from_f32(choir__f32_from_bf16(half));
        if (is_nan16(half, 0x7F80)) /* quiet now, otherwise the same */
            assert_int_equal(back, half | 0x40);
        else
            assert_int_equal(back, half);
    }
}

static void f16_round_trip(void **state)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t half = (uint16_t)i, back = choir__f16_from_f32(choir__f32_from_f16(half));
        if (is_nan16(half, 0x7C00))
            assert_int_equal(back, half | 0x200);
        else
            assert_int_equal(back, half);
    }
}

static void f16_values(void **state)
{
    assert_true(choir__f32_from_f16(0x3C00) == 1);
    assert_true(choir__f32_from_f16(0xC000) == -2);
    assert_true(choir__f32_from_f16(0x7BFF) == 65504);
    assert_true(choir__f32_from_f16(0x0400) == 0x1p-14f); /* the smallest normal */
    assert_true(choir__f32_from_f16(0x0001) == 0x1p-24f); /* the smallest there is */
    assert_true(choir__f32_from_f16(0x03FF) == 1023 * 0x1p-24f);
    assert_true(choir__f32_from_f16(0x7C00) == INFINITY);
    assert_true(choir__f32_from_f16(0xFC00) == -INFINITY);
    assert_true(signbit(choir__f32_from_f16(0x8000)) != 0);
    assert_true(isnan(choir__f32_from_f16(0x7C01)));
}

/* Rounding between each number and the next: just below the middle rounds down, just above it
 * up, and the middle to the even one. The number after the largest is 2^16, which becomes
 * infinity. */
static void f16_nearest_even(void **state)
{
    for (uint16_t half = 0; half < 0x7C00; half++) {
        float low = choir__f32_from_f16(half);
        float high = half == 0x7BFF ? 65536 : choir__f32_from_f16((uint16_t)(half + 1));
        float middle = low + (high - low) / 2; /* exact: f32 has bits to spare */
        uint16_t even = half % 2 ? (uint16_t)(half + 1) : half;
        assert_int_equal(choir__f16_from_f32(middle), even);
        assert_int_equal(choir__f16_from_f32(nextafterf(middle, 0)), half);
        assert_int_equal(choir__f16_from_f32(nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(choir__f16_from_f32(-middle), even | 0x8000);
    }
    assert_int_equal(choir__f16_from_f32(1e30f), 0x7C00);
    assert_int_equal(choir__f16_from_f32(-INFINITY), 0xFC00);
    assert_int_equal(choir__f16_from_f32(1e-30f), 0);
    assert_int_equal(choir__f16_from_f32(-1e-40f), 0x8000);
    assert_true(is_nan16(choir__f16_from_f32(NAN), 0x7C00));
}

static void bf16_nearest_even(void **state)
{
    for (uint32_t i = 0; i < 0x7F80; i++) {
        uint32_t low = i << 16, even = i % 2 ? i + 1 : i;
        assert_int_equal(choir__bf16_from_f32(choir__f32_of_bits(low + 0x8000)), even);
        assert_int_equal(choir__bf16_from_f32(choir__f32_of_bits(low + 0x7FFF)), i);
        assert_int_equal(choir__bf16_from_f32(choir__f32_of_bits(low + 0x8001)), i + 1);
        assert_int_equal(choir__bf16_from_f32(choir__f32_of_bits(0x80000000u | (low + 0x8000))),
            even | 0x8000);
    }
    assert_int_equal(choir__bf16_from_f32(3e38f), 0x7F62);
    assert_int_equal(
        choir__bf16_from_f32(3.4e38f), 0x7F80); /* nearer to 2^128 than to the largest */
}

/* NaNs stay NaNs, also if their payload is in the lost bits or if rounding would carry. */
static void nan_stays(void **state)
{
    static const uint32_t nans[] = {0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0xFF800001, 0xFFFFFFFF};
    for (int i = 0; i < 5; i++) {
        uint16_t b = choir__bf16_from_f32(choir__f32_of_bits(nans[i]));
        uint16_t h = choir__f16_from_f32(choir__f32_of_bits(nans[i]));
        assert_true(is_nan16(b, 0x7F80) && is_nan16(h, 0x7C00));
        assert_int_equal(b >> 15, nans[i] >> 31);
        assert_int_equal(h >> 15, nans[i] >> 31);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_round_trip),
        cmocka_unit_test(f16_round_trip),
        cmocka_unit_test(f16_values),
        cmocka_unit_test(f16_nearest_even),
        cmocka_unit_test(bf16_nearest_even),
        cmocka_unit_test(nan_stays),
    };
    return cmocka_run_group_tests_name("16-bit floats", tests, NULL, NULL);
}
