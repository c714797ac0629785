/* Tables of named things: lookup, the list of names, and the message for an unknown name. */
#include <limits.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "base/named.h"

typedef struct animal {
    const char *name;
    int legs;
} animal;

static const animal bee = {"bee", 6}, cat = {"cat", 4};
static const animal animals[] = {{"ant", 6}, {"hen", 2}, {"ox", 4}};
static const animal *const pointers[] = {&bee, &cat};
static const char *const words[] = {"auto", "ring", ""};

static const choir__name_table structs = CHOIR__NAME_TABLE(animals),
                               pointed = CHOIR__NAME_TABLE_OF_POINTERS(pointers),
                               plain = CHOIR__NAME_TABLE(words);

static void finds_names(void **state)
{
    (void)state;
    assert_int_equal(choir__find_named(&structs, "ant"), 0);
    assert_int_equal(choir__find_named(&structs, "ox"), 2);
    assert_int_equal(choir__find_named(&structs, "o"), -1);
    assert_int_equal(choir__find_named(&structs, ""), -1);
    assert_int_equal(choir__find_named(&pointed, "cat"), 1);
    assert_int_equal(choir__find_named(&pointed, "ant"), -1);
    assert_int_equal(choir__find_named(&plain, "ring"), 1);
    assert_int_equal(choir__find_named(&plain, ""), 2);
    assert_string_equal(choir__name_at(&pointed, 0), "bee");
}

static void lists_names(void **state)
{
    (void)state;
    char text[16], small[9], none[1];
    assert_string_equal(choir__list_names(&structs, text, sizeof text), "ant, hen, ox");
    assert_string_equal(choir__list_names(&structs, small, sizeof small), "ant, hen");
    assert_string_equal(choir__list_names(&structs, none, sizeof none), "");
}

static void names_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(choir__unknown_name(&structs, "animal", "cow"), CHOIR_ERR_ARGUMENT);
    assert_string_equal(
        choir_error_message(), "unknown animal 'cow': choose one of ant, hen, ox");
    assert_int_equal(choir__unknown_name(&structs, "animal", "hne"), CHOIR_ERR_ARGUMENT);
    assert_string_equal(choir_error_message(),
        "unknown animal 'hne' (did you mean 'hen'?): choose one of ant, hen, ox");
}

/* Among names that are equally many letters off, one of the word's length comes first. */
static void prefers_length(void **state)
{
    (void)state;
    int best = INT_MAX;
    assert_true(choir__is_nearer("dp", "dpp", &best));
    assert_true(choir__is_nearer("ddp", "dpp", &best));
    assert_false(choir__is_nearer("dp", "dpp", &best));
    best = INT_MAX;
    assert_true(choir__is_nearer("accuracy", "acc", &best)); /* the word begins it */
    assert_false(choir__is_nearer("loss", "acc", &best));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_names),
        cmocka_unit_test(lists_names),
        cmocka_unit_test(names_what_there_is),
        cmocka_unit_test(prefers_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
