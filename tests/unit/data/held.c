/* Which samples are for validation (data/dataset.h): one of each group, as many as the part
 * says.
 */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "data/dataset.h"

static void records(void **state)
{
    const double parts[] = {0, 0.1, 0.2, 0.25, 0.29, 1.0 / 3, 0.5, 0.9, 1e-6, 1 - 1e-6};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        int64_t held = 0, expected = 0;
        for (int64_t i = 0; i < 100000; i++) {
            held += choir__is_held(parts[p], i);
            expected = (int64_t)((parts[p] > 0 ? parts[p] : 0.1) * (double)(i + 1) + 1e-9);
            if (parts[p] != 1.0 / 3) /* which is 0.333333 here */
                assert_in_range(held, expected, expected + 1);
        }
        assert_in_range(held + 1, expected, expected + 2);
        assert_false(choir__is_held(parts[p], 0)); /* of a class of one sample, too */
    }
}

/* The default is one of each ten, and all ten places are as likely. */
static void places(void **state)
{
    int at_place[10] = {0};
    for (int64_t ten = 0; ten < 1000; ten++) {
        int held = 0;
        for (int64_t i = 0; i < 10; i++)
            if (choir__is_held(0, 10 * ten + i)) {
                held++;
                at_place[i]++;
            }
        assert_int_equal(held, 1);
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(at_place[i], 70, 130); /* 100, deviation 9.5 */
    int held = 0; /* the last samples that can be counted: nothing overflows */
    for (int64_t i = INT64_MAX - 20; i < INT64_MAX; i++)
        held += choir__is_held(0.3, i);
    assert_in_range(held, 4, 8);
}

/* Each class of two samples or more has one that is held; of large ones as before. */
static void classes(void **state)
{
    const double parts[] = {0, 0.25, 0.5, 0.01, 1};
    for (size_t p = 0; p < CHOIR_COUNT(parts); p++)
        for (int64_t count = 1; count < 300; count++) {
            int64_t of_class = 0, held = 0;
            for (int64_t i = 0; i < count; i++) {
                held += choir__is_held(parts[p], i);
                of_class += choir__is_held_of_class(parts[p], i, count);
            }
            assert_int_equal(of_class, held ? held : count > 1);
        }
}

/* Both splits keep the second sample of a class until its others are known: here those of
 * class 5, whose third is held, and of class 2, of which none is. */
static void mixed_classes(void **state)
{
    const struct {
        int64_t class;
        bool held;
    } all[] = {
        {5, false}, {2, false}, {5, false}, {2, false}, {5, true}, {7, false}, {2, false}};
    const bool in_training[] = {true, true, true, false, false, true, true};
    for (int training = 0; training < 2; training++) {
        choir__holdout_classes h = {0};
        int64_t place[CHOIR_COUNT(all)], kept = 0;
        for (size_t i = 0; i < CHOIR_COUNT(all); i++)
            place[i] =
                choir__holdout_classes_note(&h, all[i].class, all[i].held, training, kept)
                    ? kept++
                    : -1;
        bool *dropped = choir__holdout_classes_end(&h, training, kept);
        for (size_t i = 0; i < CHOIR_COUNT(all); i++)
            assert_int_equal(place[i] >= 0 && !dropped[place[i]], in_training[i] == training);
        free(dropped);
    }
}

static void windows(void **state)
{
    for (int64_t count = 0; count < 2000; count++)
        assert_int_equal(choir__training_part(0, count), count * 9 / 10);
    assert_int_equal(choir__training_part(0.29, 100), 71);
    assert_int_equal(choir__training_part(0.5, INT64_MAX), INT64_MAX / 2);
    assert_int_equal(choir__training_part(0.999, 5), 0);
    assert_int_equal(choir__training_part(1e-9, 5), 4); /* one is held out */
}

static void parts(void **state)
{
    const double wrong[] = {-0.1, 1.1, 2, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(choir__holdout_check("x", wrong[i]), CHOIR_ERR_ARGUMENT);
    ok(choir__holdout_check("x", 0.999));
    ok(choir__holdout_check("x", 1)); /* all of them */
    assert_int_equal(choir__training_part(1, 7), 0);
    for (int64_t i = 0; i < 100; i++)
        assert_true(choir__is_held(1, i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records),
        cmocka_unit_test(places),
        cmocka_unit_test(classes),
        cmocka_unit_test(mixed_classes),
        cmocka_unit_test(windows),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
