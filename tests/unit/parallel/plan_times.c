/* Times of pipeline plans: simulated times against the formulas, to the last bit where the
 * formulas are exact, and the pictures of plans. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <choir/pipeline_plan.h>

#include "check.h"
#include "base/base.h"

enum { P = 8, V = 4, M = 16, MOST = P * V * M * 3 };

static choir_pipeline_plan *plan_of(const char *schedule, int p, int v, int64_t m)
{
    choir_pipeline_plan *plan;
    ok(choir_pipeline_plan_new(schedule, p, v, m, NULL, &plan));
    return plan;
}

/* Simulates with whole numbers for F, B, W, so that sums are exact. */
static double simulate(
    const choir_pipeline_plan *plan, int f, int b, int w, double transfer, choir_span *spans)
{
    choir_stage_cost costs[P * V];
    for (int s = 0; s < P * V; s++)
        costs[s] = (choir_stage_cost){f, b + w, b, w, transfer};
    ok(choir_pipeline_plan_simulate(plan, costs, spans));
    return choir_pipeline_plan_makespan(plan, spans);
}

static double largest(double a, double b, double c)
{
    return fmax(a, fmax(b, c));
}

/* The longest chain of work and waiting equals the papers' formulas. */
static void test_formulas(void **state)
{
    static choir_span spans[MOST];
    for (int p = 1; p <= P; p++)
        for (int m = 1; m <= M; m++)
            for (int f = 1; f <= 3; f++)
                for (int b = 1; b <= 3; b++)
                    for (int w = 1; w <= 3; w++) {
                        const int each = f + b + w;
                        choir_pipeline_plan *gpipe = plan_of("gpipe", p, 1, m);
                        choir_pipeline_plan *one = plan_of("1f1b", p, 1, m);
                        choir_pipeline_plan *zero = plan_of("zero-bubble", p, 1, m);
                        double time = simulate(one, f, b, w, 0, spans);
                        double zb = simulate(zero, f, b, w, 0, spans);
                        assert_true(time == (m + p - 1) * each);
                        assert_true(time == simulate(gpipe, f, b, w, 0, spans));
                        assert_true(zb <= time);
                        if (m >= p)
                            assert_true(zb == m * each + (p - 1) * largest(f + b - w, f, b));
                        choir_pipeline_plan_free(gpipe);
                        choir_pipeline_plan_free(one);
                        choir_pipeline_plan_free(zero);
                    }
}

static void test_chunks(void **state)
{
    static choir_span spans[MOST];
    for (int p = 1; p <= P; p++)
        for (int v = 1; v <= V; v++)
            for (int m = 1; m <= M; m++) {
                choir_pipeline_plan *inter = plan_of("interleaved", p, v, m);
                choir_pipeline_plan *seq = plan_of("sequential", p, v, m);
                double time = simulate(inter, 1, 1, 1, 0, spans), ideal = 3 * v * m;
                assert_true(m % p ? time >= ideal : time == ideal + 3 * (p - 1));
                if (m > p) /* and nearly so where p does not divide m */
                    assert_true(time <= 1.1 * (ideal + 3 * (p - 1)));
                assert_true(simulate(seq, 1, 1, 1, 0, spans) == 3 * p * v * m);
                assert_true(simulate(seq, 1, 1, 1, 0.5, spans) ==
                            3 * p * v * m + (p > 1 ? (double)m * (p * v - 1) : 0));
                choir_pipeline_plan_free(inter);
                choir_pipeline_plan_free(seq);
            }
}

/* The idle share of each device and of all equals the formula's. */
static void test_idle(void **state)
{
    const char *schedule;
    for (int k = 0; (schedule = choir_pipeline_schedule_name(k)); k++)
        for (int p = 1; p <= P; p++)
            for (int m = p; m <= M; m += p) {
                int v = strcmp(schedule, "interleaved") == 0 ? 2 : 1;
                choir_pipeline_plan *plan = plan_of(schedule, p, v, m);
                const double formula = choir_pipeline_plan_idle_formula(plan);
                for (int d = -1; d < p; d++) {
                    const double idle = choir_pipeline_plan_idle(plan, NULL, d);
                    assert_true(idle >= 0 && fabs(idle - formula) < 1e-12);
                }
                choir_pipeline_plan_free(plan);
            }
}

/* An action starts after those that it waits for. The spans of a device do not overlap, and
 * starts ascend. */
static void test_spans(void **state)
{
    static choir_span spans[MOST];
    const char *schedule;
    int count;
    for (int k = 0; (schedule = choir_pipeline_schedule_name(k)); k++)
        for (int p = 1; p <= P; p++)
            for (int m = 1; m <= M; m += 5) {
                choir_pipeline_plan *plan = plan_of(schedule, p, 1, m);
                const choir_action *order = choir_pipeline_plan_order(plan, &count);
                double free_at[P] = {0}, forward[P][M], back[P][M];
                ok(choir_pipeline_plan_simulate(plan, NULL, spans));
                for (int i = 0; i < count; i++) {
                    const int s = order[i].stage;
                    const int64_t j = order[i].micro;
                    const choir_action_kind kind = order[i].kind;
                    double ready = free_at[s];
                    if (kind == CHOIR_FORWARD)
                        ready = fmax(ready, s ? forward[s - 1][j] : 0);
                    else if (kind != CHOIR_BACKWARD_WEIGHT)
                        ready = largest(ready, forward[s][j], s < p - 1 ? back[s + 1][j] : 0);
                    assert_true(
                        spans[i].start == ready && (i == 0 || ready >= spans[i - 1].start));
                    free_at[s] = spans[i].end;
                    if (kind == CHOIR_FORWARD)
                        forward[s][j] = spans[i].end;
                    else if (kind != CHOIR_BACKWARD_WEIGHT)
                        back[s][j] = spans[i].end;
                }
                choir_pipeline_plan_free(plan);
            }
}

/* --- shown --- */

static char *printed(const choir_pipeline_plan *plan, const choir_span *spans)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    ok(choir_pipeline_plan_print(plan, spans, file));
    fclose(file);
    return text;
}

static void test_print(void **state)
{
    choir_pipeline_plan *plan = plan_of("1f1b", 2, 1, 3);
    char *text = printed(plan, NULL);
    assert_string_equal(text, "1f1b: 2 devices, 3 micro-batches\n"
                              "device 0  F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
                              "device 1  .  F0 B0--- F1 B1--- F2 B2--- .  .\n"
                              "takes 12, idle 25.0 %; equal stages, by (p - 1) / m: 25.0 %\n"
                              "idle a device: 25 25 %\n"
                              "activations held: 2 1\n");
    choir_span spans[12]; /* measured ones need not start at 0 */
    simulate(plan, 1, 1, 1, 0, spans);
    for (int i = 0; i < 12; i++)
        spans[i].start += 1000, spans[i].end += 1000;
    char *later = printed(plan, spans);
    assert_string_equal(text, later);
    free(text);
    free(later);
    spans[3].end = spans[3].start - 1;
    assert_fails(
        choir_pipeline_plan_print(plan, spans, stdout), CHOIR_ERR_ARGUMENT, "action 3");
    assert_int_equal(choir_pipeline_plan_print(NULL, NULL, stdout), CHOIR_ERR_ARGUMENT);
    choir_pipeline_plan_free(plan);
}

/* A picture has at most 100 columns, however long the plan is; every name is there if no action
 * is too short for it. */
static void test_columns(void **state)
{
    const char *schedule;
    for (int k = 0; (schedule = choir_pipeline_schedule_name(k)); k++)
        for (int m = 1; m <= 128; m *= 2) {
            int v = strcmp(schedule, "interleaved") == 0 ? 3 : 1;
            choir_pipeline_plan *plan = plan_of(schedule, 4, v, m);
            char *text = printed(plan, NULL), last[16];
            for (const char *line = text, *end; *line; line = end + 1) {
                end = strchr(line, '\n');
                assert_in_range(end - line, 0, 100);
                assert_true(end == line || end[-1] != ' ');
            }
            snprintf(last, sizeof last, "B%d%s", m - 1, v > 1 ? "a" : "");
            if (m <= 16)
                assert_non_null(strstr(text, last));
            free(text);
            choir_pipeline_plan_free(plan);
        }
}

/* The picture has a panel per plan, a row per device, a box per action. */
static void test_picture(void **state)
{
    static char text[1 << 20];
    char path[] = "/tmp/choir_plan_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    choir_pipeline_plan *both[] = {
        plan_of("interleaved", 4, 2, 8), plan_of("zero-bubble", 4, 1, 8)};
    const choir_pipeline_plan *const *plans = (const choir_pipeline_plan *const *)both;
    ok(choir_pipeline_plan_svg(plans, NULL, 2, "ms", path));
    assert_true(read(fd, text, sizeof text - 1) > 0);
    assert_int_equal(occurrences(text, "<svg "), 1);
    assert_int_equal(occurrences(text, "</svg>"), 1);
    assert_int_equal(occurrences(text, "<text"), occurrences(text, "</text>"));
    assert_int_equal(occurrences(text, ">device "), 2 * 4);
    assert_int_equal(occurrences(text, "class='a'"), 4 * 2 * 8 * 2 + 4 * 8 * 3);
    assert_int_equal(occurrences(text, ">11.1 %<"), 4);
    assert_non_null(strstr(text, "takes 27 ms, idle 11.1 %"));
    assert_non_null(strstr(text, "W: gradient of the weights"));
    assert_null(strstr(text, "nan"));
    assert_int_equal(choir_pipeline_plan_svg(plans, NULL, 0, NULL, path), CHOIR_ERR_ARGUMENT);
    const choir_pipeline_plan *none[2] = {plans[0], NULL};
    assert_int_equal(choir_pipeline_plan_svg(none, NULL, 2, NULL, path), CHOIR_ERR_ARGUMENT);
    assert_int_equal(
        choir_pipeline_plan_svg(plans, NULL, 2, NULL, "/nowhere/at/all.svg"), CHOIR_ERR_IO);
    assert_int_equal(choir_pipeline_plan_svg(plans, NULL, 2, NULL, "/dev/full"), CHOIR_ERR_IO);
    assert_int_equal(choir_pipeline_plan_svg(plans, NULL, 2, "<s>", path), CHOIR_ERR_ARGUMENT);
    choir_pipeline_plan_free(both[0]);
    choir_pipeline_plan_free(both[1]);
    close(fd);
    unlink(path);
}

/* Stages that take no time cause no endless loop, no division by 0 and no endless picture. */
static void test_nothing(void **state)
{
    choir_stage_cost costs[3] = {{0}};
    choir_pipeline_plan *plan;
    for (int k = 0; choir_pipeline_schedule_name(k); k++) {
        ok(choir_pipeline_plan_new(choir_pipeline_schedule_name(k), 3, 1, 5, costs, &plan));
        char *text = printed(plan, NULL);
        assert_null(strstr(text, "nan"));
        free(text);
        assert_true(choir_pipeline_plan_makespan(plan, NULL) == 0);
        assert_true(choir_pipeline_plan_idle(plan, NULL, -1) == 0);
        const choir_pipeline_plan *one = plan;
        ok(choir_pipeline_plan_svg(&one, NULL, 1, NULL, "/dev/null"));
        choir_pipeline_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
