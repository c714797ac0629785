/* Several workers: the same batches as from one worker, the error of the first bad sample,
 * datasets that learn of the epoch, and reports of a hang. */
#include <math.h>

#include "loader_fixture.h"

/* Samples take longest in turn, so that workers overtake each other. */
static choir_status uneven_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    usleep(index % 3 ? 0 : 700);
    return counting_get(self, index, x, y);
}

static const choir_dataset_ops uneven_ops = {.length = counting_length, .get = uneven_get};

static void same_order(void **state)
{
    static const struct {
        int workers, prefetch;
    } ways[] = {{1, 0}, {2, 0}, {4, 1}, {3, 2}, {7, 5}, {64, 0}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        counting data = count_to(22);
        data.base.ops = &uneven_ops;
        choir_loader_opts o = options();
        o.workers = ways[w].workers;
        o.prefetch = ways[w].prefetch;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader *loader = choir_loader_new(run, &data.base, o);
        for (int64_t position = 0; position < 25; position++)
            next_is(loader, run, 22, position);
        choir_loader_seek(loader, 13); /* in mid-epoch, to the exact sample */
        for (int64_t position = 13; position < 18; position++)
            next_is(loader, run, 22, position);
        ok(choir_scope_close(run));
    }
}

/* Three samples of a batch fail, and the first takes longest: its error is the one reported. */
static choir_status failing_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    if (index == 2)
        usleep(3000);
    if (index >= 2 && index < 5)
        return choir__error(CHOIR_ERR_FORMAT, "picture %d is torn", (int)index);
    return counting_get(self, index, x, y);
}

static void first_error(void **state)
{
    static const choir_dataset_ops ops = {.length = counting_length, .get = failing_get};
    for (int again = 0; again < 10; again++) {
        counting data = count_to(32);
        choir_batch b;
        data.base.ops = &ops;
        choir_loader_opts o = choir_loader_defaults();
        o.batch_size = 8;
        o.shuffle = false;
        o.workers = 1 + again % 5;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader *loader = choir_loader_new(run, &data.base, o);
        choir_scope *step = choir_step_open(run, 0);
        choir_status status = choir_loader_next(loader, step, &b);
        assert_fails(status, CHOIR_ERR_FORMAT, "sample 2 of the dataset");
        assert_fails(status, CHOIR_ERR_FORMAT, "picture 2 is torn");
        choir_scope_close(step);
        choir_loader_seek(loader, 1);
        step = choir_step_open(run, 1);
        ok(choir_loader_next(loader, step, &b));
        ok(choir_scope_close(step));
        ok(choir_scope_close(run));
    }
}

/* --- epochs --- */

static choir_status epoch_get(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    choir_status status = counting_get(self, index, x, y);
    ((float *)x)[1] = (float)epoch;
    return status;
}

static void epochs(void **state)
{
    static const choir_dataset_ops ops = {
        .length = counting_length, .get = counting_get, .get_epoch = epoch_get};
    counting data = count_to(22);
    data.base.ops = &ops;
    choir_loader_opts o = options();
    o.workers = 3;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, o);
    for (int64_t position = 0; position < 30; position++) {
        choir_batch b;
        float x[EACH * 2];
        choir_scope *step = choir_step_open(run, (uint64_t)position);
        ok(choir_loader_next(loader, step, &b));
        ok(choir_read(b.x, x, sizeof x));
        assert_true(x[1] == (float)(position / (5 * M))); /* 5 batches an epoch */
        ok(choir_scope_close(step));
    }
    ok(choir_scope_close(run));
    float x[2];
    int64_t y;
    ok(choir_dataset_get_epoch(&data.base, 7, 3, x, &y));
    assert_true(x[1] == 7);
    assert_fails(
        choir_dataset_get_epoch(&data.base, 7, 22, x, &y), CHOIR_ERR_RANGE, "sample 22");
}

/* --- what hangs --- */

static atomic_bool awake;

static choir_status hanging_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    while (index == 5 && !awake)
        usleep(1000);
    return counting_get(self, index, x, y);
}

static void hangs(void **state)
{
    static const choir_dataset_ops ops = {.length = counting_length, .get = hanging_get};
    static counting data; /* outlives the test: a worker may come back to it */
    data = count_to(32);
    data.base.ops = &ops;
    choir_loader_opts o = choir_loader_defaults();
    o.batch_size = 4;
    o.shuffle = false;
    o.timeout_s = 2; /* the first batch comes in time on a busy machine */
    o.workers = 2;
    choir_batch b;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, o);
    choir_scope *step = choir_step_open(run, 0);
    ok(choir_loader_next(loader, step, &b));
    ok(choir_scope_close(step));
    step = choir_step_open(run, 1);
    assert_fails(choir_loader_next(loader, step, &b), CHOIR_ERR_TIMEOUT, "sample 5");
    choir_scope_close(step);
    choir_scope_close(run); /* does not wait for it */
    awake = true;
    usleep(20000);
}

/* A timeout too long for the clock is a long one, not one that has passed. */
static void patient(void **state)
{
    static const choir_dataset_ops ops = {.length = counting_length, .get = uneven_get};
    static const double times[] = {1e12, 1e300, (double)INFINITY};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        counting data = count_to(22);
        data.base.ops = &ops;
        choir_loader_opts o = options();
        o.timeout_s = times[i];
        o.workers = 2;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader *loader = choir_loader_new(run, &data.base, o);
        for (int64_t position = 0; position < 8; position++)
            next_is(loader, run, 22, position);
        ok(choir_scope_close(run));
    }
}

static void bad_workers(void **state)
{
    static const struct {
        int workers, prefetch;
        double timeout;
        const char *says;
    } bad[] = {{-1, 0, 0, "-1 loader workers"}, {65, 0, 0, "65 loader workers"},
        {1, -1, 0, "prefetch -1"}, {1, 0, -1, "wait -1 s"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        counting data = count_to(22);
        choir_loader_opts o = options();
        o.workers = bad[i].workers;
        o.prefetch = bad[i].prefetch;
        o.timeout_s = bad[i].timeout;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader_new(run, &data.base, o);
        assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, bad[i].says);
        choir_scope_close(run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_order),
        cmocka_unit_test(first_error),
        cmocka_unit_test(epochs),
        cmocka_unit_test(hangs),
        cmocka_unit_test(patient),
        cmocka_unit_test(bad_workers),
    };
    return cmocka_run_group_tests_name("loader_workers", tests, NULL, NULL);
}
