/* Options written as name:key=value,...: the values that are read, and the messages. */

#include "check.h"
#include "base/options.h"

static int64_t layers;
static double rate;
static bool causal;
static char kind[64];

static const choir__option known[] = {
    {"layers", CHOIR__INT, &layers, 1, 100},
    {"rate", CHOIR__FLOAT, &rate, 0, 1},
    {"causal", CHOIR__FLAG, &causal, 0, 0},
    {"kind", CHOIR__WORD, kind, 0, 0},
    {0},
};

static int reset(void **state)
{
    layers = 7;
    rate = 0.5;
    causal = false;
    strcpy(kind, "plain");
    return 0;
}

static void test_values(void **state)
{
    ok(choir__options_parse("gpt2", "model gpt2", known));
    ok(choir__options_parse("gpt2:", "model gpt2", known));
    assert_true(layers == 7 && rate == 0.5 && !causal);
    const char *text = "gpt2:layers=4,rate=1e-3,causal=true,kind=big";
    ok(choir__options_parse(text, "model gpt2", known));
    assert_true(layers == 4 && rate == 1e-3 && causal);
    assert_string_equal(kind, "big");
    ok(choir__options_parse("x:causal=0", "x", known));
    assert_false(causal);
}

static void assert_bad(const char *text, const char *const *parts)
{
    assert_fails(
        choir__options_parse(text, "model gpt2", known), CHOIR_ERR_ARGUMENT, "model gpt2");
    for (; *parts; parts++)
        assert_says(*parts);
}

#define BAD(text, ...) assert_bad(text, (const char *const[]){__VA_ARGS__, NULL})

static void test_errors(void **state)
{
    BAD("gpt2:depth=4", "depth", "layers", "rate", "causal", "kind");
    BAD("gpt2:layers", "'layers'", "key=value");
    BAD("gpt2:layers=4,,rate=1", "key=value");
    BAD("gpt2:layers=4,", "key=value");
    BAD("gpt2:layers=0", "layers=0", "1", "100");
    BAD("gpt2:layers=101", "layers=101");
    BAD("gpt2:layers=4x", "layers=4x");
    BAD("gpt2:layers=", "layers=");
    BAD("gpt2:layers=99999999999999999999", "layers=99999999999999999999");
    BAD("gpt2:rate=nan", "rate=nan");
    BAD("gpt2:rate=inf", "rate=inf");
    BAD("gpt2:rate=-0.1", "rate=-0.1");
    BAD("gpt2:causal=maybe", "causal=maybe");
    BAD("gpt2:=4", "''");
    static const choir__option none[] = {{0}};
    assert_int_equal(choir__options_parse("x:a=1", "x", none), CHOIR_ERR_ARGUMENT);
    char longest[200] = "x:kind=";
    memset(longest + 7, 'k', 100);
    assert_int_equal(choir__options_parse(longest, "x", known), CHOIR_ERR_ARGUMENT);
}

static void test_name(void **state)
{
    char name[8];
    ok(choir__options_name("gpt2:layers=4", name, sizeof name));
    assert_string_equal(name, "gpt2");
    ok(choir__options_name("1234567", name, sizeof name));
    assert_int_equal(choir__options_name("12345678", name, sizeof name), CHOIR_ERR_ARGUMENT);
}

static void test_bytes(void **state)
{
    int64_t n = -1;
    assert_true(choir__parse_bytes("17", &n) && n == 17);
    assert_true(choir__parse_bytes("3K", &n) && n == 3 << 10);
    assert_true(choir__parse_bytes("2G", &n) && n == INT64_C(2) << 30);
    static const char *const bad[] = {
        "", "K", "-1", "1KB", "1T", "9223372036854775807K", "1 K"};
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++)
        assert_false(choir__parse_bytes(bad[i], &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_values, reset),
        cmocka_unit_test_setup(test_errors, reset),
        cmocka_unit_test_setup(test_name, reset),
        cmocka_unit_test_setup(test_bytes, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
