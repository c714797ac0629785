/* Tables of named things: lookup, the list of names, and the message for an unknown name. */
#include <limits.h>
#include <stdbool.h>
#include "check.h"
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
    char text[16], small[9], none[1];
    assert_string_equal(choir__list_names(&structs, text, sizeof text), "ant, hen, ox");
    assert_string_equal(choir__list_names(&structs, small, sizeof small), "ant, hen");
    assert_string_equal(choir__list_names(&structs, none, sizeof none), "");
}

/* Names that strangers choose are as many, and as long, as they like. */
static void counts_the_others(void **state)
{
    enum { MANY = 1000 };
    static char name[MANY][8], tall[500];
    const char *many[MANY], *two[] = {tall, "b"};
    char text[70];
    for (int i = 0; i < MANY; i++)
        many[i] = strcpy(name[i], "a name");
    choir__name_table table = CHOIR__NAME_TABLE(many), long_ones = CHOIR__NAME_TABLE(two);
    assert_string_equal(choir__list_names(&table, text, sizeof text),
        "a name, a name, a name, a name and 996 more");
    memset(tall, 'x', sizeof tall - 1);
    char list[200];
    assert_int_equal(strlen(choir__list_names(&long_ones, list, sizeof list)), 106);
    assert_string_equal(list + 98, "xx..., b");
}

/* A sentence about a long text keeps its end, which says the way out. */
static void keeps_the_way_out(void **state)
{
    static char tall[5001];
    memset(tall, '+', sizeof tall - 1);
    choir__error(CHOIR_ERR_ARGUMENT, "unknown '%s': choose another", tall);
    const char *message = choir_error_message();
    assert_int_equal(strncmp(message, "unknown '+++", 12), 0);
    assert_non_null(strstr(message, "bytes left out"));
    assert_string_equal(message + strlen(message) - 20, "+++': choose another");
    char text[] = "\xc3\xa9 is a letter"; /* it stays as it is */
    assert_string_equal(choir__shorten(text, 100), "\xc3\xa9 is a letter");
}

static void names_what_there_is(void **state)
{
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
        cmocka_unit_test(counts_the_others),
        cmocka_unit_test(keeps_the_way_out),
        cmocka_unit_test(names_what_there_is),
        cmocka_unit_test(prefers_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
