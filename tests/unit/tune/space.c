/* Spaces of hyper-parameters: distributions, expressions and conditions as text, the
 * messages about wrong ones, and values in inner coordinates. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "tune/space/normal.h"
#include "tune/space/space.h"

static void add(choir_space *space, const char *name, const char *text)
{
    ok(choir_space_add(space, name, text));
}

/* --- distributions --- */

static void test_distributions(void **state)
{
    choir_space *s = choir_space_new();
    add(s, "a", "uniform(-1, 2.5)");
    add(s, "b", " log ( 1e-5,1e-1 ) ");
    add(s, "c", "int(1,8,step=3)");
    add(s, "d", "int(1,1000,log)");
    add(s, "e", "choice(sgd, 'a, b', 16)");
    add(s, "f", "normal(0, 2)");
    add(s, "g", "adamw");
    add(s, "h", "'f(1)'\tif\te == \"a, b\"");
    add(s, "i", "choice(\"don't\", '', 8bit) if e == 'sgd'");
    add(s, "j", "uniform(0, 1) if i == 8bit");
    assert_string_equal(s->param[7].dist.choices[0].text, "f(1)");
    assert_string_equal(s->param[8].dist.choices[0].text, "don't");
    assert_string_equal(s->param[8].dist.choices[1].text, "");
    assert_int_equal(choir_space_count(s), 10);
    assert_string_equal(choir_space_name(s, 4), "e");
    assert_null(choir_space_name(s, 10));
    assert_true(s->param[0].dist.low == -1 && s->param[0].dist.high == 2.5);
    assert_true(s->param[1].dist.kind == CHOIR__LOG && s->param[1].dist.low == 1e-5);
    assert_true(s->param[2].dist.high == 7 && choir__dist_size(&s->param[2].dist) == 3);
    assert_true(s->param[3].dist.log);
    assert_int_equal(s->param[4].dist.choice_count, 3);
    assert_string_equal(s->param[4].dist.choices[1].text, "a, b");
    assert_true(s->param[4].dist.choices[2].is_number);
    assert_int_equal(choir__dist_size(&s->param[6].dist), 1);
    choir_space_free(s);
}

/* Every value goes to inner coordinates and back, and to text and back. */
static void test_values(void **state)
{
    static const char *const texts[] = {"uniform(-1, 2)", "log(1e-7, 10)", "int(-3, 9, step=4)",
        "int(1, 100000, log)", "normal(3, 0.1)", "choice(a, 2, b)"};
    choir_space *s = choir_space_new();
    for (int i = 0; i < (int)CHOIR_COUNT(texts); i++) {
        char name[2] = {(char)('a' + i), 0};
        add(s, name, texts[i]);
        const choir__dist *d = &s->param[i].dist;
        double low, high, again;
        choir__inner_range(d, &low, &high);
        for (int k = 0; k <= 50; k++) {
            double value = choir__from_inner(d, low + (high - low) * k / 50);
            if (d->kind != CHOIR__CHOICE) {
                double back = choir__from_inner(d, choir__to_inner(d, value));
                assert_true(fabs(back - value) <= 1e-9 * (1 + fabs(value)));
            }
            char *text = choir__dist_write(d, value);
            if (d->kind != CHOIR__CHOICE || value < d->choice_count)
                ok(choir__dist_read(d, name, text, &again));
            assert_true(again == value);
            free(text);
        }
    }
    choir_space_free(s);
}

static void test_normal(void **state)
{
    for (double z = -8; z < 8; z += 0.37) /* the cdf is a double near 1: only the lower half */
        if (z < 5)
            assert_true(fabs(choir__normal_quantile(choir__normal_cdf(z)) - z) < 1e-9);
    assert_true(fabs(choir__normal_log_mass(-1, 1) - log(0.6826894921370859)) < 1e-14);
    assert_true(fabs(choir__normal_log_mass(8, 9) - log(6.219831985865831e-16)) < 1e-9);
    assert_true(fabs(choir__normal_log_mass(-41, -40) + 804.6084420137538) < 1e-9);
    assert_true(fabs(choir__normal_log_mass(40, 41) + 804.6084420137538) < 1e-9);
}

/* --- expressions --- */

static choir_space *some_space(void)
{
    choir_space *s = choir_space_new();
    add(s, "width", "int(64, 512, step=64)");
    add(s, "heads", "choice(2, 4, 8)");
    add(s, "optimizer", "choice(sgd, adamw)");
    add(s, "weight-decay", "uniform(0, 1)");
    add(s, "momentum", "uniform(0, 0.99) if optimizer == sgd and weight-decay < 0.5");
    return s;
}

static bool allows(const char *condition, const double *values)
{
    choir_space *s = some_space();
    if (choir_space_require(s, condition) != CHOIR_OK)
        fail_msg("%s: %s", condition, choir_error_message());
    bool is = choir__space_allows(s, values);
    choir_space_free(s);
    return is;
}

static void test_expressions(void **state)
{
    double nan = (double)NAN, v[] = {192, 1, 0, 0.25, nan}; /* heads 4, sgd */
    static const char *const yes[] = {"width % heads == 0", "width/heads==48",
        "heads + 2 * 3 == 10", "(heads + 2) * 3 == 18", "-heads < 0", "optimizer == sgd",
        "optimizer == 'sgd'", "optimizer == (sgd)", "optimizer != adamw and width > 100",
        "not width < 100", "!(width < 100) && heads != 2 || width == 1",
        "weight-decay - 0.25 == 0", "width -heads == 188", "width-heads == 188",
        "weight-decay-heads < 0", "momentum > 2", "not momentum > 2", "not not heads",
        "width >= 192 and width <= 192", "momentum > 2 and width > 0",
        "momentum > 2 or width < 0", "momentum > 2 or width > 0"};
    static const char *const no[] = {"width % heads", "optimizer == adamw", "not heads == 4",
        "width > 100 and heads > 4", "optimizer * 2 == 0", "optimizer < 3",
        /* whatever the missing one would be */
        "momentum < 2 and width < 0", "width < 0 and momentum < 2",
        "not (momentum < 2 or width > 0)", "width % 0 == 0", "1e400 * 0 == 0 * heads"};
    for (size_t i = 0; i < CHOIR_COUNT(yes); i++)
        if (!allows(yes[i], v))
            fail_msg("false: %s", yes[i]);
    for (size_t i = 0; i < CHOIR_COUNT(no); i++)
        if (allows(no[i], v))
            fail_msg("true: %s", no[i]);
}

static void test_conditional(void **state)
{
    choir_space *s = some_space();
    double v[] = {64, 0, 0, 0.25, 0};
    assert_true(choir__space_active(s, 4, v));
    v[2] = 1;
    assert_false(choir__space_active(s, 4, v));
    v[2] = 0, v[3] = 0.5;
    assert_false(choir__space_active(s, 4, v));
    choir_space *copy = choir__space_copy(s);
    assert_int_equal(choir_space_count(copy), 5);
    assert_false(choir__space_active(copy, 4, v));
    choir_space_free(copy);
    choir_space_free(s);
}

/* --- errors --- */

static void test_errors(void **state)
{
    static const struct {
        const char *name, *text, *says;
    } bad[] = {
        {"x", "unifrom(0, 1)", "unknown distribution 'unifrom' (did you mean 'uniform'?)"},
        {"x", "uniform(3, 1)", "expected a range that is not empty"},
        {"x", "uniform(3)", "expected two numbers, got 'uniform(3)'"},
        {"x", "uniform(1, 2, 3)", "expected uniform(low, high), got"},
        {"x", "uniform(a, 2)", "expected uniform(low, high), got"},
        {"x", "uniform(0, inf)", "expected uniform(low, high), got"},
        {"x", "uniform(0, 1", "expected ')' at the end"},
        {"x", "log(0, 1)", "expected a range above 0"},
        {"x", "int(0, 8, log)", "expected a range above 0"},
        {"x", "int(1, 8, step=0)", "expected a whole step of 1 or more, got '0'"},
        {"x", "int(1, 8, step=2, log)", "expected step=1 beside log"},
        {"x", "int(1.5, 8)", "expected whole numbers"},
        {"x", "normal(0, 0)", "expected a standard deviation above 0"},
        {"x", "choice(a, b, a)", "'a' is there twice"},
        {"x", "choice()", "expected at least one choice"},
        {"x", "", "expected a distribution or a value"},
        {"x", "choice(a, )", "expected a value between the commas"},
        {"x", "int(,3)", "expected a value between the commas"},
        {"2x", "uniform(0, 1)", "expected a parameter's name"},
        {"a b", "uniform(0, 1)", "expected a parameter's name"},
        {"width", "uniform(0, 1)", "parameter width is in the space twice"},
        {"x", "uniform(0, 1) if", "if"},
        {"x", "uniform(0, 1) if optimizer == sdg", "optimizer is never 'sdg'"},
        {"x", "uniform(0, 1) if optimiser == sgd", "there is no parameter 'optimiser'"},
        {"x", "uniform(0, 1) if x > 2", "there is no parameter 'x' before it"},
        {"x", "uniform(0, 1) if width >", "expected a number, a name or '(', got 'the end'"},
        {"x", "uniform(0, 1) if (width > 3", "expected ')'"},
        {"x", "uniform(0, 1) if width > 3 4", "expected an operator, got '4'"},
        {"x", "uniform(0, 1) if 1 > 3", "names no parameter"},
        {"x", "uniform(0, 1) if optimizer == 'sgd", "expected a closing quote"},
        {"x", "uniform(0, 1) if -sgd == optimizer", "there is no parameter 'sgd'"},
        {"x", "uniform(0, 1) if optimizer == -sgd", "there is no parameter 'sgd'"},
        {"x", "uniform(0, 1) if heads > 8bit", "never '8bit'"},
        {"x", "uniform(0, 1) if 64 < width < 512", "expected 'and' or 'or' between"},
        {"x", "choice(don't, do)", "expected quotes around a whole value, got 'don't, do'"},
        {"x", "choice('a, b)", "expected quotes around a whole value, got ''a, b'"},
        {"x", "choice(a, b')", "expected quotes around a whole value, got 'b''"},
        {"x", "choice('a' 'b')", "expected quotes around a whole value, got ''a' 'b''"},
        {"x", "choice('a\"', \"b')", "expected quotes around a whole value"},
        {"x", "'", "expected quotes around a whole value"},
        {"x", "choice(\xff, a)", "expected text in UTF-8"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++) {
        choir_space *s = some_space();
        assert_int_equal(choir_space_add(s, bad[i].name, bad[i].text), CHOIR_ERR_ARGUMENT);
        if (!strstr(choir_error_message(), bad[i].says))
            fail_msg("%s: '%s'", bad[i].text, choir_error_message());
        assert_int_equal(choir_space_count(s), 5);
        choir_space_free(s);
    }
    choir_space *s = some_space();
    assert_fails(choir_space_require(s, "'\xff' == 'a' or 1 < 2"), CHOIR_ERR_ARGUMENT,
        "expected a condition in UTF-8");
    choir_space_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_conditional),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
