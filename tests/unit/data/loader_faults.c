/* Errors of the loader: a bad sample fails only the step that needs it, the message for a bad
 * option names the option, and closing or forking at any time loses no thread and no sample. */
#include "loader_fixture.h"

#include <stdio.h>
#include <sys/wait.h>
#include "base/process/forks.h"
#include "device/queue.h"

/* A bad sample fails the step that needs it and no earlier one; after that all can continue. */
static void failing_sample(void **state)
{
    counting data = count_to(22);
    choir__sample_order s;
    ok(choir__sample_order_init(&s, 22, M, B, 3, true, true));
    data.fails_at = choir__sample_order_at(&s, 1, 1, 1); /* in micro-batch 3 */
    choir__sample_order_free(&s);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    for (int64_t position = 0; position < 3; position++)
        next_is(loader, run, 22, position);
    for (int again = 0; again < 3; again++) {
        choir_batch b;
        choir_scope *step = choir_step_open(run, 3);
        data.without_message = again == 1;
        choir_status status = choir_loader_next(loader, step, &b);
        if (again == 0) /* prepared before without_message was known */
            assert_fails(status, CHOIR_ERR_FORMAT, "is torn");
        else
            assert_int_not_equal(status, CHOIR_OK);
        choir_relu(b.x); /* passes through */
        assert_int_equal(choir_loader_position(loader), 3);
        assert_int_not_equal(choir_scope_close(step), CHOIR_OK);
    }
    choir_loader_seek(loader, 4); /* over it */
    next_is(loader, run, 22, 4);
    data.fails_at = -1; /* mended */
    choir_loader_seek(loader, 3);
    next_is(loader, run, 22, 3);
    next_is(loader, run, 22, 4);
    ok(choir_scope_close(run));
}

/* The dataset returns a status without a message: the loader names the sample. */
static void failing_silently(void **state)
{
    counting data = count_to(22);
    choir_loader_opts o = options();
    o.shuffle = false;
    data.fails_at = 2;
    data.without_message = true;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, o);
    choir_scope *step = choir_step_open(run, 0);
    choir_batch b;
    assert_fails(choir_loader_next(loader, step, &b), CHOIR_ERR_IO, "sample 2 of the dataset");
    choir_scope_close(step);
    data.fails_at = -1; /* mended: taking it again tries again, at the latest the second time */
    choir_status status = CHOIR_ERR_IO;
    for (int again = 0; again < 2 && status != CHOIR_OK; again++) {
        step = choir_step_open(run, 0);
        status = choir_loader_next(loader, step, &b);
        choir_scope_close(step);
    }
    ok(status);
    ok(choir_scope_close(run));
}

static void bad_options(void **state)
{
    counting data = count_to(10), nothing = count_to(0), strange = count_to(10),
             deep = count_to(10), huge = count_to(10);
    strange.base.y_dtype = (choir_dtype)99;
    deep.base.x_shape = (choir_shape){.ndim = CHOIR_MAX_DIMS};
    huge.base.x_shape = choir_dims(INT64_MAX / 64, 3);
    const struct {
        choir_dataset *data;
        int64_t batch, m, first, count;
        choir_status status;
        const char *says;
    } bad[] = {
        {&data.base, 0, 1, 0, 0, CHOIR_ERR_ARGUMENT, "batch size of 1 or more, got 0"},
        {&data.base, 4, 3, 0, 0, CHOIR_ERR_ARGUMENT, "a batch of 4 does not divide into 3"},
        {&data.base, 12, 3, 0, 0, CHOIR_ERR_ARGUMENT,
            "10 samples are fewer than a batch of 12"},
        {&data.base, 4, 0, 0, 0, CHOIR_ERR_ARGUMENT, "micro-batch or more, got 0"},
        {&data.base, 4, 2, 2, 1, CHOIR_ERR_ARGUMENT, "1 micro-batches from number 2 on"},
        {&data.base, 4, 2, 0, 3, CHOIR_ERR_ARGUMENT, "3 micro-batches from number 0 on"},
        {&data.base, 4, 2, 1, 0, CHOIR_ERR_ARGUMENT, "2 micro-batches from number 1 on"},
        {&data.base, 4, 2, -1, 1, CHOIR_ERR_ARGUMENT, "from number -1 on"},
        {&data.base, 4, 2, 1, -1, CHOIR_ERR_ARGUMENT, "-1 micro-batches"},
        {&data.base, 4, 2, INT64_MAX, INT64_MAX, CHOIR_ERR_ARGUMENT, "the batch has 2"},
        {&nothing.base, 4, 2, 0, 0, CHOIR_ERR_ARGUMENT, "0 samples"},
        {NULL, 4, 2, 0, 0, CHOIR_ERR_ARGUMENT, "needs a dataset"},
        {&strange.base, 4, 2, 0, 0, CHOIR_ERR_DTYPE, "y: unknown dtype 99"},
        {&deep.base, 4, 2, 0, 0, CHOIR_ERR_SHAPE, "x of 6 dimensions"},
        {&huge.base, 4, 2, 0, 0, CHOIR_ERR_SHAPE, "x is that large"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        choir_loader_opts o = choir_loader_defaults();
        o.batch_size = bad[i].batch;
        o.microbatches = bad[i].m;
        o.micro_first = bad[i].first;
        o.micro_count = bad[i].count;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader *loader = choir_loader_new(run, bad[i].data, o);
        assert_non_null(loader);
        assert_fails(choir_scope_status(run), bad[i].status, bad[i].says);
        choir_scope_clear(run); /* the loader keeps its error */
        choir_batch b;
        choir_scope *step = choir_step_open(run, 0);
        assert_fails(choir_loader_next(loader, step, &b), bad[i].status, bad[i].says);
        choir_scope_close(step);
        assert_int_equal(choir_loader_batches(loader), 0);
        choir_loader_seek(loader, 5);
        choir_scope_close(run);
    }
}

/* A failed step takes no batch. */
static void failed_scope(void **state)
{
    counting data = count_to(10);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    choir_scope *step = choir_step_open(run, 0);
    choir_matmul(choir_zeros(step, CHOIR_F32, choir_dims(2, 3)),
        choir_zeros(step, CHOIR_F32, choir_dims(2, 3)));
    choir_batch b;
    assert_int_equal(choir_loader_next(loader, step, &b), CHOIR_ERR_SHAPE);
    assert_int_equal(choir_loader_position(loader), 0);
    choir_scope_close(step);
    next_is(loader, run, 10, 0);
    ok(choir_scope_close(run));
}

/* --- life --- */

/* The loader is closed while its thread is busy, while copies wait in the queue, and before it
 * has started. */
static void closed_at_any_time(void **state)
{
    for (int i = 0; i < 30; i++) {
        counting data = count_to(22);
        data.slow_us = i % 3 * 100;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader *a = choir_loader_new(run, &data.base, options());
        choir_loader_new(run, &data.base, options());
        for (int n = 0; n < i % 5; n++) {
            choir_scope *step = choir_step_open(run, 0);
            choir_batch b;
            ok(choir_loader_next(a, step, &b));
            ok(choir_scope_close(step));
        }
        ok(choir_scope_close(run));
    }
}

/* Both processes of a fork continue where they were. */
static void forks(void **state)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer follows no threads started after a fork\n");
    skip();
#endif
    counting data = count_to(22);
    data.slow_us = 200;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    for (int64_t position = 0; position < 5; position++)
        next_is(loader, run, 22, position);
    for (int round = 0; round < 3; round++) {
        choir__queues_quiesce();
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            choir_batch b;
            int64_t y[EACH];
            choir__sample_order s;
            bool good = choir__sample_order_init(&s, 22, M, B, 3, true, true) == CHOIR_OK;
            for (int64_t p = 5 + round; good && p < 30; p++) {
                choir_scope *step = choir_step_open(run, 0);
                good = choir_loader_next(loader, step, &b) == CHOIR_OK &&
                       choir_read(b.y, y, sizeof y) == CHOIR_OK &&
                       y[1] == choir__sample_order_at(&s, p / M, p % M, 1);
                choir_scope_close(step);
            }
            good = choir_scope_close(run) == CHOIR_OK && good;
            _exit(good ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        next_is(loader, run, 22, 5 + round);
    }
    ok(choir_scope_close(run));
}

static choir_status forking_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    choir_status status = counting_get(self, index, x, y);
    pid_t child = fork(); /* as for a decoder */
    if (child == 0)
        _exit(0);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return choir__error(CHOIR_ERR_IO, "no fork");
    return status;
}

static void forks_within_get(void **state)
{
    static const choir_dataset_ops ops = {.length = counting_length, .get = forking_get};
    counting data = count_to(22);
    data.base.ops = &ops;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    for (int64_t position = 0; position < 6; position++)
        next_is(loader, run, 22, position);
    ok(choir_scope_close(run));
}

/* The program forks while workers do, also if what takes part in forks was added after the
 * loader: the fork waits for the workers, so no worker may wait for the fork. */
static void forks_of_both(void **state)
{
    static const choir_dataset_ops ops = {.length = counting_length, .get = forking_get};
    counting data = count_to(22);
    data.base.ops = &ops;
    data.slow_us = 200;
    choir__forkable later = {0};
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    choir__forkable_add(&later);
    for (int64_t position = 0; position < 30; position++) {
        next_is(loader, run, 22, position);
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    choir__forkable_remove(&later);
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_sample),
        cmocka_unit_test(failing_silently),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(failed_scope),
        cmocka_unit_test(closed_at_any_time),
        cmocka_unit_test(forks),
        cmocka_unit_test(forks_within_get),
        cmocka_unit_test(forks_of_both),
    };
    return cmocka_run_group_tests_name("loader_faults", tests, NULL, NULL);
}
