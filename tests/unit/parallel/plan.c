/* Pipeline plans: every action occurs once, after all that it waits for, in the order that
 * fixes the bits, and within the memory that the schedule promises. All schedules, p = 1..8, v
 * = 1..4, m = 1..16. */
#include <math.h>
#include <stdlib.h>
#include <choir/pipeline_plan.h>

#include "check.h"
#include "base/base.h"

enum { P = 8, V = 4, M = 16, STAGES = P * V };

static choir_pipeline_plan *plan_of(
    const char *schedule, int p, int v, int64_t m, const choir_stage_cost *costs)
{
    choir_pipeline_plan *plan;
    ok(choir_pipeline_plan_new(schedule, p, v, m, costs, &plan));
    return plan;
}

static bool is(const char *schedule, const char *name)
{
    return strcmp(schedule, name) == 0;
}

static bool chunked(const char *schedule)
{
    return is(schedule, "sequential") || is(schedule, "interleaved");
}

/* --- orders --- */

/* A stage's progress: the micro-batch of its next F, B and W. */
typedef struct progress {
    int64_t forward[STAGES], backward[STAGES], weight[STAGES];
} progress;

static void advance(const choir_pipeline_plan *plan, progress *at, choir_action a)
{
    const int s = a.stage;
    const int last = choir_pipeline_plan_devices(plan) * choir_pipeline_plan_chunks(plan) - 1;
    const bool split = is(choir_pipeline_plan_schedule(plan), "zero-bubble");
    assert_in_range(s, 0, last);
    switch (a.kind) {
    case CHOIR_FORWARD:
        assert_int_equal(a.micro, at->forward[s]++);
        assert_true(s == 0 || a.micro < at->forward[s - 1]);
        return;
    case CHOIR_BACKWARD:
    case CHOIR_BACKWARD_INPUT:
        assert_int_equal(a.kind, split ? CHOIR_BACKWARD_INPUT : CHOIR_BACKWARD);
        assert_int_equal(a.micro, at->backward[s]++);
        assert_true(a.micro < at->forward[s]);
        assert_true(s == last || a.micro < at->backward[s + 1]);
        return;
    case CHOIR_BACKWARD_WEIGHT:
        assert_true(split);
        assert_int_equal(a.micro, at->weight[s]++);
        assert_true(a.micro < at->backward[s]);
    }
}

static void check_order(const choir_pipeline_plan *plan)
{
    const int p = choir_pipeline_plan_devices(plan), v = choir_pipeline_plan_chunks(plan);
    const int64_t m = choir_pipeline_plan_microbatches(plan);
    const bool split = is(choir_pipeline_plan_schedule(plan), "zero-bubble");
    int count, each, next[P] = {0};
    progress at = {0};
    const choir_action *order = choir_pipeline_plan_order(plan, &count);
    assert_int_equal(count, p * v * m * (split ? 3 : 2));
    for (int i = 0; i < count; i++) {
        const int device = order[i].stage % p;
        const choir_action *own = choir_pipeline_plan_actions(plan, device, &each);
        assert_int_equal(each, count / p);
        assert_memory_equal(&order[i], &own[next[device]++], sizeof *own);
        advance(plan, &at, order[i]);
    }
    for (int s = 0; s < p * v; s++) {
        assert_int_equal(at.forward[s], m);
        assert_int_equal(at.backward[s], m);
        assert_int_equal(at.weight[s], split ? m : 0);
    }
}

static void check_peak(const choir_pipeline_plan *plan)
{
    const char *schedule = choir_pipeline_plan_schedule(plan);
    const int p = choir_pipeline_plan_devices(plan), v = choir_pipeline_plan_chunks(plan);
    const int64_t m = choir_pipeline_plan_microbatches(plan);
    for (int d = 0; d < p; d++) {
        const int64_t peak = choir_pipeline_plan_peak(plan, d);
        if (is(schedule, "sequential"))
            assert_int_equal(peak, v);
        else if (is(schedule, "gpipe"))
            assert_int_equal(peak, m);
        else if (is(schedule, "1f1b") || v == 1)
            assert_int_equal(
                peak, is(schedule, "zero-bubble") ? choir__min(m, p) : choir__min(m, p - d));
        else if (m % p == 0)
            assert_int_equal(peak, choir__min(v * m, (v - 1) * p + 2 * (p - 1 - d) + 1));
    }
}

static void test_orders(void **state)
{
    const char *schedule;
    int done = 0;
    for (int k = 0; (schedule = choir_pipeline_schedule_name(k)); k++)
        for (int p = 1; p <= P; p++)
            for (int v = 1; v <= (chunked(schedule) ? V : 1); v++)
                for (int64_t m = 1; m <= M; m++, done++) {
                    choir_pipeline_plan *plan = plan_of(schedule, p, v, m, NULL);
                    check_order(plan);
                    check_peak(plan);
                    choir_pipeline_plan_free(plan);
                }
    assert_int_equal(done, P * M * (2 * V + 3));
}

/* --- zero-bubble for costs as they are --- */

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static void costs_of(int stages, double spread, uint64_t *state, choir_stage_cost *costs)
{
    for (int s = 0; s < stages; s++) {
        choir_stage_cost *c = &costs[s];
        c->forward = 1 + spread * (2 * uniform(state) - 1);
        c->backward_input = c->forward * (0.6 + uniform(state));
        c->backward_weight = c->forward * (0.4 + uniform(state));
        c->backward = c->backward_input + c->backward_weight;
        c->transfer = 0.1 * uniform(state);
    }
}

/* A searched plan is no longer than ZB-H1's own order or 1f1b, in no more memory, whatever the
 * costs. */
static void test_search(void **state)
{
    static choir_span spans[P * M * 3];
    uint64_t random = 7;
    int better = 0, cases = 0;
    for (int p = 1; p <= P; p++)
        for (int64_t m = 1; m <= M; m++, cases++) {
            choir_stage_cost costs[P];
            costs_of(p, (double)(m % 4) * 0.3, &random, costs);
            choir_pipeline_plan *plain = plan_of("zero-bubble", p, 1, m, NULL);
            choir_pipeline_plan *found = plan_of("zero-bubble", p, 1, m, costs);
            choir_pipeline_plan *rival = plan_of("1f1b", p, 1, m, costs);
            check_order(found);
            for (int d = 0; d < p; d++)
                assert_true(choir_pipeline_plan_peak(found, d) <= choir__min(m, p));
            ok(choir_pipeline_plan_simulate(plain, costs, spans));
            double time = choir_pipeline_plan_makespan(found, NULL);
            double before = choir_pipeline_plan_makespan(plain, spans);
            assert_true(time <= before);
            assert_true(time <= choir_pipeline_plan_makespan(rival, NULL) * (1 + 1e-12));
            better += time < before * 0.999;
            choir_pipeline_plan_free(plain);
            choir_pipeline_plan_free(found);
            choir_pipeline_plan_free(rival);
        }
    assert_in_range(better, cases / 4, cases); /* it is worth its code */
}

/* --- wrong arguments --- */

static void wrong(const char *schedule, int p, int v, int64_t m, const choir_stage_cost *costs,
    const char *words)
{
    choir_pipeline_plan *plan = NULL;
    assert_int_equal(
        choir_pipeline_plan_new(schedule, p, v, m, costs, &plan), CHOIR_ERR_ARGUMENT);
    assert_null(plan);
    assert_says(words);
}

static void test_wrong(void **state)
{
    choir_stage_cost costs[2] = {{1, 2, 1, 1, 0}, {1, 2, 1, NAN, 0}};
    choir_span spans[8];
    wrong(
        "zb", 2, 1, 4, NULL, "'zb': choose one of sequential, gpipe, 1f1b, interleaved, zero-");
    wrong("1f1b", 0, 1, 4, NULL, "devices, got 0");
    wrong("1f1b", 2, -1, 4, NULL, "or more, got -1");
    wrong("1f1b", 2, 1, 0, NULL, "micro-batch or more, got 0");
    wrong("1f1b", 2, 3, 4, NULL, "1f1b: expected 1 chunk per device, got 3; 'interleaved'");
    wrong("gpipe", 2, 2, 4, NULL, "gpipe: expected 1 chunk");
    wrong("zero-bubble", 2, 2, 4, NULL, "zero-bubble: expected 1 chunk");
    wrong("interleaved", 1024, INT32_MAX, INT64_MAX, NULL, "stages");
    wrong("1f1b", 2, 1, 4, costs,
        "the cost of stage 1: expected a backward_weight of at least 0, got nan");
    costs[1] = (choir_stage_cost){1, 2, 1, 1, -0.5};
    wrong("1f1b", 2, 1, 4, costs,
        "the cost of stage 1: expected a transfer of at least 0, got -0.5");
    choir_pipeline_plan *plan = plan_of("gpipe", 2, 1, 2, NULL);
    assert_int_equal(choir_pipeline_plan_simulate(plan, costs, spans), CHOIR_ERR_ARGUMENT);
    choir_pipeline_plan_free(plan);
    choir_pipeline_plan_free(NULL);
    assert_null(choir_pipeline_schedule_name(-1));
    assert_null(choir_pipeline_schedule_name(5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
