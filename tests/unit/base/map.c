/* Numbers under texts: choir__map against a list. */
#include "check.h"
#include "base/files/map.h"

static void holds_one(void **state)
{
    choir__map m = {0};
    assert_int_equal(choir__map_find(&m, ""), -1);
    assert_int_equal(choir__map_put(&m, "a", 7), -1);
    assert_int_equal(choir__map_find(&m, "a"), 7);
    assert_int_equal(choir__map_find(&m, ""), -1);
    assert_int_equal(choir__map_find(&m, "ab"), -1);
    assert_int_equal(choir__map_put(&m, "a", 8), 7);
    assert_int_equal(choir__map_find(&m, "a"), 8);
    choir__map_free(&m);
    assert_int_equal(choir__map_find(&m, "a"), -1);
}

/* Words of two letters, one of them beyond ASCII: many are a beginning of others. */
static void agrees_with_a_list(void **state)
{
    enum { WORDS = 400, LONGEST = 9 };
    static char word[WORDS][LONGEST + 1];
    int64_t number[WORDS], count = 0;
    uint32_t random = 1;
    choir__map m = {0};
    for (int i = 0; i < WORDS; i++) {
        random = random * 1664525 + 1013904223;
        int length = (int)(random >> 24) % (LONGEST + 1);
        for (int k = 0; k < length; k++)
            word[i][k] = random >> k & 1 << 8 ? 'a' : '\xff';
        int64_t at = 0;
        while (at < count && strcmp(word[at], word[i]))
            at++;
        int64_t old = choir__map_put(&m, word[i], i);
        assert_int_equal(old, at < count ? number[at] : -1);
        if (at == count) {
            memmove(word[count], word[i], sizeof *word);
            choir__map_free(&m); /* keys must stay as they are: all are put again */
            for (int64_t k = 0; k < count; k++)
                choir__map_put(&m, word[k], number[k]);
            choir__map_put(&m, word[count++], i);
        }
        number[at] = i;
        for (int64_t k = 0; k < count; k++)
            assert_int_equal(choir__map_find(&m, word[k]), number[k]);
    }
    assert_true(count > 100);
    choir__map_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_one),
        cmocka_unit_test(agrees_with_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
