/* One NaN per dtype replaces all others; every other pattern of bits stays. */
#include <stdlib.h>

#include <choir/choir.h>

#include "base/base.h"
#include "base/half.h"
#include "base/nan.h"
#include "check.h"

/* All patterns of 16 bits, at an odd address. */
static void sixteen_bits(void **state)
{
    enum { N = 1 << 16 };
    static const choir_dtype dtypes[] = {CHOIR_BF16, CHOIR_F16};
    unsigned char *data = malloc(2 * N + 1);
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < N; i++)
            memcpy(data + 1 + 2 * i, &(uint16_t){(uint16_t)i}, 2);
        choir__one_nan(data + 1, dtypes[d], N);
        for (int i = 0; i < N; i++) {
            uint16_t now;
            memcpy(&now, data + 1 + 2 * i, 2);
            bool nan = (i & 0x7fff) > (d ? 0x7c00 : 0x7f80);
            assert_int_equal(now, nan ? (d ? 0x7e00 : 0x7fc0) : i);
        }
    }
    free(data);
}

static void wide_ones(void **state)
{
    uint32_t f[] = {0xffc00000, 0x7f800001, 0x7fffffff, 0x7f800000, 0xff800000, 0x80000000, 1};
    uint32_t f_then[] = {
        0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7f800000, 0xff800000, 0x80000000, 1};
    uint64_t d[] = {UINT64_C(0xfff) << 51, (UINT64_C(0x7ff) << 52) + 1, UINT64_C(0xffe) << 51,
        UINT64_C(1) << 63};
    uint64_t d_then[] = {
        UINT64_C(0xfff) << 51, UINT64_C(0xfff) << 51, UINT64_C(0xffe) << 51, UINT64_C(1) << 63};
    int64_t whole[] = {-1};
    choir__one_nan(f, CHOIR_F32, CHOIR_COUNT(f));
    assert_memory_equal(f, f_then, sizeof f);
    choir__one_nan(d, CHOIR_F64, CHOIR_COUNT(d));
    assert_memory_equal(d, d_then, sizeof d);
    choir__one_nan(whole, CHOIR_I64, 1);
    assert_int_equal(whole[0], -1);
}

/* Weights whose NaN differ in their bits have one hash. */
static void hashes_know_one(void **state)
{
    char hex[2][65];
    for (int i = 0; i < 2; i++) {
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_module *net = choir_nn_linear(run, 3, 1);
        float values[3] = {1, choir__f32_of_bits(i ? 0xffc00000 : 0x7fc01234), 2};
        ok(choir_write(choir_module_find(net, "weight"), values, sizeof values));
        ok(choir_weights_sha256(net, NULL, hex[i]));
        ok(choir_scope_close(run));
    }
    assert_string_equal(hex[0], hex[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(wide_ones),
        cmocka_unit_test(hashes_know_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
