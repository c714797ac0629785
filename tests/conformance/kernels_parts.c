/* Conformance of the kernels for tables and scores of which each rank has a part: ids of rows
 * that another rank has, targets of the whole as targets of the part, losses from the parts'
 * statistics, and the maximum of all parts. */
#include "conformance/harness.h"
#include "device/queue.h"

enum { FIRST = 5, COUNT = 4, WHOLE = 13, IGNORED = -100 };

static void targets(void **state)
{
    enum { N = WHOLE + 1 };
    int64_t x[N], expected[N], y[N];
    for (int64_t i = 0; i < WHOLE; i++) {
        x[i] = i;
        expected[i] = i >= FIRST && i < FIRST + COUNT ? i - FIRST : CHOIR__ELSEWHERE;
    }
    x[WHOLE] = IGNORED;
    expected[WHOLE] = -1;
    const choir__kernels *tables[MAX_TABLES + 1];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    tables[count] = &choir__cpu_reference;
    for (int t = 0; t <= count; t++) {
        memset(y, 0, sizeof y);
        tables[t]->part_targets(&(choir__k_part_targets){.x = x,
            .y = y,
            .n = N,
            .first = FIRST,
            .count = COUNT,
            .whole = WHOLE,
            .ignored = IGNORED,
            .ignores = true});
        assert_memory_equal(y, expected, sizeof y);
    }
}

/* The target's logit and log sum exp, for a part that has the target and for one that does
 * not. */
static void scores(void **state)
{
    enum { ROWS = 7, COLS = 37 };
    int64_t targets[ROWS] = {0, CHOIR__ELSEWHERE, 36, -1, CHOIR__ELSEWHERE, 12, -1};
    trial t = TRIAL(cross_entropy, .targets = targets, .rows = ROWS, .cols = COLS,
        .ignore_index = -1, .losses = CHOIR__ROWS_SCORE);
    t.tolerance = 1e-5;
    give(&t, AT(cross_entropy, logits), ROWS * COLS, uniform(ROWS * COLS, -6, 9));
    take(&t, AT(cross_entropy, loss), ROWS), keep_wide(&t);
    take(&t, AT(cross_entropy, count), 1), keep_wide(&t);
    take(&t, AT(cross_entropy, lse), ROWS), keep_wide(&t);
    check(t);

    for (int losses = 0; losses < 3; losses++) {
        t = TRIAL(cross_entropy_backward, .targets = targets, .rows = ROWS, .cols = COLS,
            .ignore_index = -1, .losses = (choir__row_losses)losses);
        int64_t values = losses == CHOIR__ROWS_EACH ? ROWS : 1;
        float count = losses == CHOIR__ROWS_MEAN ? 5 : 1;
        t.tolerance = 1e-5;
        give(&t, AT(cross_entropy_backward, lse), ROWS, uniform(ROWS, 9, 11)), keep_wide(&t);
        give(&t, AT(cross_entropy_backward, count), 1, uniform(1, count, count)), keep_wide(&t);
        give(&t, AT(cross_entropy_backward, gloss), values, uniform(values, 0.5f, 2)),
            keep_wide(&t);
        give(&t, AT(cross_entropy_backward, logits), ROWS * COLS, uniform(ROWS * COLS, -6, 9));
        take(&t, AT(cross_entropy_backward, glogits), ROWS * COLS);
        check(t);
    }
}

static void losses(void **state)
{
    for (int64_t parts = 1; parts <= 5; parts++)
        for (int i = 0; i < 3 * 3; i++) {
            int64_t rows = parts * 4 - 3, targets[20];
            choir__row_losses kind = (choir__row_losses)(i / 3);
            for (int64_t r = 0; r < rows; r++)
                targets[r] = i % 3 && r % 3 == i % 3 ? -1 : r % 2 ? CHOIR__ELSEWHERE : r;
            trial t = TRIAL(
                part_losses, .targets = targets, .parts = parts, .rows = rows, .losses = kind);
            t.tolerance = 1e-5;
            give(&t, AT(part_losses, stats), 2 * parts * rows, uniform(2 * parts * rows, 1, 9)),
                keep_wide(&t);
            take(&t, AT(part_losses, loss), kind == CHOIR__ROWS_EACH ? rows : 1), keep_wide(&t);
            take(&t, AT(part_losses, lse), rows), keep_wide(&t);
            take(&t, AT(part_losses, count), 1), keep_wide(&t);
            check(t);
        }
}

/* The first of equal values wins, as within a row. */
static void max(void **state)
{
    int64_t index[3 * 4] = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};
    float *values = uniform(12, -1, 1);
    values[2] = values[6] = values[10] = 7;
    trial t = TRIAL(part_max, .index = index, .parts = 3, .rows = 4);
    give(&t, AT(part_max, max), 12, values);
    take_raw(&t, AT(part_max, y), 4, sizeof(int64_t));
    check(t);
    int64_t y[4];
    float again[12] = {1, 0, 7, 5, 2, 0, 7, 4, 0, 0, 7, 6};
    choir__cpu_reference.part_max(&(choir__k_part_max){
        .max = again, .index = index, .y = y, .parts = 3, .rows = 4, .dtype = CHOIR_F32});
    assert_memory_equal(y, ((int64_t[]){10, 1, 2, 23}), sizeof y);
}

static void elsewhere_is_no_row(void **state)
{
    int64_t ids[5] = {6, 3, 4, 9, 5};
    trial t =
        TRIAL(embedding, .ids = ids, .n = 5, .rows = 3, .cols = 21, .first = 4, .whole = 10);
    t.exact = true;
    give(&t, AT(embedding, table), 3 * 21, uniform(3 * 21, -1, 1));
    take(&t, AT(embedding, y), 5 * 21);
    check(t);
}

static void call_with_bad_target(const void *args)
{
    const choir__kernels *table = *(const choir__kernels *const *)args;
    int64_t x = WHOLE, y;
    table->part_targets(
        &(choir__k_part_targets){.x = &x, .y = &y, .n = 1, .count = COUNT, .whole = WHOLE});
}

static void bad_targets_fail_the_queue(void **state)
{
    if (test_device())
        skip(); /* a device says it at the next wait: kernels_large.c */
    const choir__kernels *tables[MAX_TABLES + 1];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    tables[count++] = &choir__cpu_reference;
    for (int i = 0; i < count; i++) {
        choir__queue *queue = choir__queue_new((choir__queue_opts){.name = "test"});
        choir__queue_issue(queue, call_with_bad_target, &tables[i], sizeof tables[i]);
        assert_int_equal(choir__queue_wait(queue), CHOIR_ERR_RANGE);
        assert_non_null(strstr(choir_error_message(), "cross_entropy: target 13 of row 0"));
        choir__queue_free(queue);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets),
        cmocka_unit_test(scores),
        cmocka_unit_test(losses),
        cmocka_unit_test(max),
        cmocka_unit_test(elsewhere_is_no_row),
        cmocka_unit_test(bad_targets_fail_the_queue),
    };
    return cmocka_run_group_tests_name("kernels of parts", tests, NULL, NULL);
}
