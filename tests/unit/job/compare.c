/* The summary that choir compare makes of its runs: medians, spreads, speed-ups, equal bits,
 * advice. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "cli/compare/compare.h"

enum { RUNS = 3 };

static const choir__job_strategy single = {.name = "single", .family = CHOIR__UNDIVIDED},
                                 ddp = {.name = "ddp", .family = CHOIR__DATA_PARALLEL},
                                 pipeline = {.name = "pipeline", .family = CHOIR__PIPELINED},
                                 hogwild = {.name = "hogwild"};

static choir__compare compare;

/* Adds a strategy whose runs had these rates, and whose fullest device held mib MiB. */
static choir__compare_entry *add(const choir__job_strategy *s, double low, double middle,
    double high, double mib, const char *sha)
{
    double rate[RUNS] = {high, low, middle}; /* the order does not matter */
    choir__compare_entry *e = &compare.entries[compare.count++];
    *e = (choir__compare_entry){.strategy = s, .run_count = RUNS};
    strcpy(e->text, s->name);
    e->runs = calloc(RUNS, sizeof *e->runs);
    for (int r = 0; r < RUNS; r++) {
        e->runs[r].steps = 1;
        e->runs[r].bits = calloc(1, sizeof(uint32_t));
        e->runs[r].summary = json_pack("{s:f,s:s,s:i,s:i,s:f,s:[{s:f,s:f},{s:f,s:f}]}",
            "items_per_s", rate[r], "weights_sha256", sha, "world", s == &single ? 1 : 2,
            "steps", 4, "final_loss", 0.5, "devices", "peak_bytes", mib * 1048576, "comm_bytes",
            400.0, "peak_bytes", mib * 1000000, "comm_bytes", 800.0);
    }
    return e;
}

static int open_compare(void **state)
{
    compare =
        (choir__compare){.repeats = RUNS, .entries = calloc(8, sizeof(choir__compare_entry))};
    add(&single, 99, 100, 102, 60, "a");
    return 0;
}

static int close_compare(void **state)
{
    for (int i = 0; i < compare.count; i++) {
        for (int r = 0; r < RUNS; r++)
            choir__outcome_free(&compare.entries[i].runs[r]);
        free(compare.entries[i].runs);
    }
    free(compare.entries);
    return 0;
}

static const char *advice(void)
{
    static char text[1024];
    choir__compare_figures(&compare);
    choir__compare_advice(&compare, text, sizeof text);
    return text;
}

static bool says(const char *what)
{
    return strstr(advice(), what) != NULL;
}

static void statistics(void **state)
{
    const double three[] = {5, 1, 2}, five[] = {9, 1, 2, 3, 5}, even[] = {4, 1, 3, 2};
    assert_true(choir__median(three, 3) == 2);
    assert_true(choir__median(even, 4) == 2.5);
    assert_true(choir__run_spread(three, 3) == 2);  /* half of 1 to 5 */
    assert_true(choir__run_spread(five, 5) == 1.5); /* half of 2 to 5 */
    assert_true(choir__run_spread(three, 1) == 0);
    assert_true(isnan(choir__median(three, 0)));
}

static void figures(void **state)
{
    choir__compare_entry *e = add(&ddp, 180, 190, 194, 30, "a");
    choir__compare_figures(&compare);
    assert_true(e->items_per_s == 190 && e->spread == 7 && e->same_bits);
    assert_true(e->speed_up == 1.9 && e->efficiency == 0.95 && e->world == 2);
    assert_true(e->peak_bytes == 30 * 1048576.0); /* of the fullest */
    assert_true(e->moved_bytes == 300);           /* of both ranks, per step */
}

/* Runs have the same bits only if no loss and no weight differs in any of them. */
static void bits(void **state)
{
    choir__compare_entry *e = add(&ddp, 180, 190, 194, 30, "a");
    e->runs[RUNS - 1].bits[0] = 1;
    choir__compare_figures(&compare);
    assert_false(e->same_bits);
    e->runs[RUNS - 1].bits[0] = 0;
    choir__compare_figures(&compare);
    assert_true(e->same_bits);
    json_object_set_new(e->runs[1].summary, "weights_sha256", json_string("b"));
    choir__compare_figures(&compare);
    assert_false(e->same_bits);
}

static void choose_the_fastest(void **state)
{
    add(&ddp, 188, 190, 194, 50, "a");
    assert_true(says("Choose ddp: 1.90 times one device, 95 % of what 2 could give"));
    assert_false(says("One run"));
    compare.repeats = 1;
    assert_true(says("One run each is little to go by"));
    assert_false(says("as fast"));
    add(&pipeline, 180, 182, 184, 20, "a"); /* the lightest */
    assert_true(says("Choose ddp"));
    assert_true(
        says("If memory is short: ddp takes 50 MiB of its fullest device, pipeline takes "
             "20 MiB, at 1.82 times one device."));
    add(&hogwild, 198, 199, 200, 50, "b"); /* faster, with other bits */
    assert_true(says("Choose ddp"));
    assert_true(says("hogwild is faster still, 1.99 times"));
}

/* The advice names memory only if it may be short, in numbers that differ, and tells if the
 * bits are other ones. */
static void memory(void **state)
{
    add(&ddp, 188, 190, 194, 17.2, "a");
    choir__compare_entry *light = add(&hogwild, 150, 152, 154, 8.4, "b");
    assert_true(says("ddp takes 17 MiB of its fullest device, hogwild takes 8.4 MiB, at 1.52 "
                     "times one device and with other bits."));
    light->failed = true;
    assert_false(says("memory"));
    add(&pipeline, 150, 152, 154, 16.9, "a"); /* as good as none */
    assert_false(says("memory"));
}

static void memory_of_a_small_job(void **state)
{
    add(&ddp, 188, 190, 194, 1.4, "a");
    add(&pipeline, 150, 152, 154, 1.1, "a");
    assert_true(says("Choose ddp"));
    assert_false(says("memory"));
}

static void as_fast(void **state)
{
    add(&ddp, 184, 190, 194, 60, "a");
    add(&pipeline, 183, 188, 190, 60, "a");
    assert_true(says("; pipeline is as fast, within the spread"));
}

static void stay(void **state)
{
    choir__compare_entry *e = add(&ddp, 60, 61, 62, 60, "a");
    assert_true(says("Stay with single"));
    e->failed = true;
    assert_true(says("Stay with single"));
}

static void no_advice(void **state)
{
    add(&ddp, 98, 103, 105, 60, "a"); /* faster by less than the runs differ */
    assert_true(says("No advice: ddp was 1.03 times"));
    add(&pipeline, 100, 190, 200, 60, "a"); /* whose runs differ by a half */
    assert_true(says("No advice: pipeline was 1.90 times"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics),
#define T(f) cmocka_unit_test_setup_teardown(f, open_compare, close_compare)
        T(figures),
        T(bits),
        T(choose_the_fastest),
        T(memory),
        T(memory_of_a_small_job),
        T(as_fast),
        T(stay),
        T(no_advice),
#undef T
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
