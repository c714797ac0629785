/* Replays of small steps whose seconds can be counted by hand, and of large ones. */
#include <string.h>

#include "check.h"
#include "base/base.h"
#include "device/kernels.h"
#include "forecast/replay.h"

enum {
#define X(name) KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

/* Devices that multiply 10^9 FLOPs in a second, and links of 10^9 bytes in a second. */
static choir__cluster cluster_of(int64_t nodes, int64_t devices)
{
    choir__cluster c;
    ok(choir__cluster_preset("H100", nodes, devices, &c));
    c.device.f32_flops = 1e9;
    c.device.tf32_flops = 0;
    c.device.product_share = 1;
    c.device.launch_s = 0;
    c.device.memory_bytes_s = 1e30;
    for (int level = 0; level < CHOIR__LEVELS; level++)
        c.links[level] =
            (choir__link){.alpha_s = 0, .beta_bytes_s = 1e9, .share = 1, .ports = 8};
    return c;
}

static void compute(choir__step_program *p, int queue, double seconds)
{
    choir__step_entry *e = choir__step_add(p, CHOIR__ENTRY_KERNEL, queue);
    e->as.kernel.id = KERNEL_matmul;
    e->as.kernel.dtype = CHOIR_F32;
    e->as.kernel.flops = seconds * 1e9;
}

static int event(choir__step_program *p, int queue)
{
    choir__step_add(p, CHOIR__ENTRY_EVENT, queue)->as.event = p->event_count;
    return p->event_count++;
}

static void wait_for(choir__step_program *p, int queue, int number)
{
    choir__step_add(p, CHOIR__ENTRY_WAIT, queue)->as.event = number;
}

/* An all-gather of two ranks, or a message, takes `seconds`. */
static void talk(choir__step_program *p, int queue, choir__kind kind, int group, double seconds,
    int distance)
{
    choir__step_entry *e = choir__step_add(p, CHOIR__ENTRY_COLLECTIVE, queue);
    e->as.collective.kind = kind;
    e->as.collective.algorithm = CHOIR__EXCHANGE;
    e->as.collective.dtype = CHOIR_U8;
    e->as.collective.count = (int64_t)(seconds * 1e9);
    e->as.collective.group = group;
    e->as.collective.root = distance;
}

static choir__forecast replay(
    const choir__step *s, const choir__cluster *c, choir__replay_opts opts)
{
    choir__forecast f;
    ok(choir__replay(s, c, NULL, opts, &f));
    return f;
}

static void near(double got, double expected)
{
    if (!(got > expected - 1e-6 && got < expected + 1e-6))
        fail_msg("expected %g, got %g", expected, got);
}

/* A bucket of two travels while the device computes; with one core for both it does not. */
static double overlapped(bool one_core, double *idle)
{
    choir__step s = {.world = 2};
    choir__cluster c = cluster_of(1, 2);
    choir__step_program *p = choir__step_add_program(&s, 0, 2);
    int device = choir__step_add_queue(p, 0, 0),
        group = choir__step_add_queue(p, -1, one_core ? 0 : 1),
        world = choir__step_group_of(&s, 2, 1);
    compute(p, device, 1);
    wait_for(p, group, event(p, device));
    talk(p, group, CHOIR__ALL_GATHER, world, 2, 0);
    compute(p, device, 1.5);
    wait_for(p, device, event(p, group));
    compute(p, device, 0.5);
    choir__forecast f = replay(&s, &c, (choir__replay_opts){.times = true});
    near(f.times[0][0].end, 1);
    if (idle)
        *idle = f.idle;
    double seconds = f.seconds;
    choir__forecast_free(&f);
    choir__step_free(&s);
    return seconds;
}

static void test_overlap(void **state)
{
    double idle;
    near(overlapped(false, &idle), 3.5);
    near(idle, 0.5 / 3.5);
    near(overlapped(true, NULL), 5);
}

/* The host issues nothing after it has begun to wait. */
static void test_host(void **state)
{
    choir__step s = {.world = 1};
    choir__cluster c = cluster_of(1, 1);
    choir__step_program *p = choir__step_add_program(&s, 0, 1);
    choir__step_add_queue(p, 0, 0);
    choir__step_add_queue(p, 1, 1);
    compute(p, 0, 2);
    compute(p, 1, 1);
    choir__step_add(p, CHOIR__ENTRY_HOST, 0);
    compute(p, 1, 1);
    choir__forecast f = replay(&s, &c, (choir__replay_opts){0});
    near(f.seconds, 3);
    near(f.idle, 2.0 / 6);
    choir__forecast_free(&f);
    choir__step_free(&s);
}

/* All forwards, then all backwards, of M micro-batches over S stages: (M + S - 1) (f + b). */
static void pipeline(choir__step *s, int stages, int micro, int64_t replicas, bool reduce)
{
    int group = choir__step_group_of(s, stages * replicas, 1);
    int data = choir__step_group_of(s, replicas, 1);
    s->world = stages * replicas;
    for (int stage = 0; stage < stages; stage++) {
        choir__step_program *p = choir__step_add_program(s, stage * replicas, replicas);
        int d = choir__step_add_queue(p, 0, 0), in = choir__step_add_queue(p, -1, 1),
            out = choir__step_add_queue(p, -1, 2);
        for (int way = 0; way < 2; way++) {
            const int sign = way ? -1 : 1;
            const bool first = way ? stage == stages - 1 : stage == 0,
                       last = way ? stage == 0 : stage == stages - 1;
            for (int m = 0; m < micro; m++) {
                if (!first) {
                    talk(p, in, CHOIR__RECEIVE, group, 0, (int)(-sign * replicas));
                    wait_for(p, d, event(p, in));
                }
                compute(p, d, way ? 2 : 1);
                wait_for(p, out, event(p, d));
                if (!last)
                    talk(p, out, CHOIR__SEND, group, 0, (int)(sign * replicas));
            }
        }
        if (reduce) {
            wait_for(p, out, event(p, d));
            talk(p, out, CHOIR__ALL_REDUCE, data, 1, 0);
        }
    }
}

static void test_pipeline(void **state)
{
    for (int stages = 1; stages <= 4; stages++)
        for (int micro = 1; micro <= 8; micro *= 2) {
            choir__step s = {0};
            choir__cluster c = cluster_of(1, 16);
            pipeline(&s, stages, micro, 2, false);
            choir__forecast f = replay(&s, &c, (choir__replay_opts){0});
            near(f.seconds, 3.0 * (micro + stages - 1));
            near(f.idle, (stages - 1.0) / (micro + stages - 1));
            choir__forecast_free(&f);
            choir__step_free(&s);
        }
}

/* Jitter makes an interval, the same one in each replay; more ranks wait longer for the slowest
 * of them. */
static void test_jitter(void **state)
{
    double before = 0;
    for (int64_t replicas = 8; replicas <= 8000; replicas *= 10) {
        choir__step s = {0};
        choir__cluster c = cluster_of(4 * replicas / 8, 8);
        c.kernel_jitter = 0.05;
        c.device_spread = 0.02;
        pipeline(&s, 4, 8, replicas, true);
        const choir__replay_opts opts = {.draws = 40, .seed = 3};
        choir__forecast f = replay(&s, &c, opts), again = replay(&s, &c, opts);
        assert_true(f.low < f.median && f.median < f.high && f.seconds < f.median);
        assert_true(f.low == again.low && f.median == again.median && f.high == again.high);
        assert_true(f.median > before && f.median < 1.25 * f.seconds);
        before = f.median;
        choir__forecast_free(&f);
        choir__step_free(&s);
    }
}

/* The largest of n normal numbers: means 0, 0.846, 1.539, 3.241 (n = 1, 3, 10, 1000). */
static void test_largest(void **state)
{
    static const struct {
        double n, mean;
    } rows[] = {{1, 0}, {3, 0.8463}, {10, 1.5388}, {1000, 3.2414}};
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++) {
        double sum = 0;
        for (uint64_t k = 0; k < 20000; k++)
            sum += choir__largest_of(7, k, 1, rows[i].n);
        assert_true(sum / 20000 > rows[i].mean - 0.02 && sum / 20000 < rows[i].mean + 0.02);
    }
    assert_true(choir__largest_of(7, 1, 1, 1e8) > 4.5);
}

static void test_wrong(void **state)
{
    choir__step s = {.world = 2};
    choir__cluster c = cluster_of(1, 2);
    choir__forecast f;
    choir__step_program *p = choir__step_add_program(&s, 0, 2);
    int group = choir__step_group_of(&s, 2, 1);
    choir__step_add_queue(p, 0, 0);
    talk(p, 0, CHOIR__RECEIVE, group, 1, 1);
    assert_int_equal(
        choir__replay(&s, &c, NULL, (choir__replay_opts){0}, &f), CHOIR_ERR_ARGUMENT);
    assert_non_null(
        strstr(choir_error_message(), "waits forever: its peers have no such call"));
    p->entries[0] = (choir__step_entry){.kind = CHOIR__ENTRY_WAIT};
    p->event_count = 1;
    assert_int_equal(
        choir__replay(&s, &c, NULL, (choir__replay_opts){0}, &f), CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(choir_error_message(), "event 0, which is not recorded before"));
    p->entry_count = 0;
    s.world = 3;
    assert_int_equal(
        choir__replay(&s, &c, NULL, (choir__replay_opts){0}, &f), CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(choir_error_message(), "expected programs for its 3 ranks"));
    p->ranks = 3;
    assert_int_equal(
        choir__replay(&s, &c, NULL, (choir__replay_opts){0}, &f), CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(choir_error_message(), "at least one for each of the 3 ranks"));
    choir__step_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
