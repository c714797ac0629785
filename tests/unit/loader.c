/* The loader: the right samples in the right order, whatever the timing and whatever fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <choir/data.h>
#include <choir/ops.h>
#include "base/base.h"
#include "data/sampler.h"
#include "device/queue.h"
#include "tensor/tensor.h"

#define assert_says(status, expected, text)                                                    \
    do {                                                                                       \
        assert_int_equal(status, expected);                                                    \
        if (!strstr(choir_error_message(), text))                                              \
            fail_msg("'%s' does not say '%s'", choir_error_message(), text);                   \
    } while (0)

/* A user's dataset: x (2) f32 = index, -index; y () i64 = index. */
typedef struct counting {
    choir_dataset base;
    int64_t length;
    atomic_int slow_us;          /* get takes this long */
    _Atomic int64_t fails_at;    /* -1: nowhere */
    atomic_bool without_message; /* when it fails */
    atomic_int calls, freed;
} counting;

static int64_t counting_length(const choir_dataset *self)
{
    return ((const counting *)self)->length;
}

static choir_status counting_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    counting *c = (counting *)self;
    c->calls++;
    if (index == c->fails_at)
        return c->without_message
                   ? CHOIR_ERR_IO
                   : choir__error(CHOIR_ERR_FORMAT, "picture %d is torn", (int)index);
    if (c->slow_us)
        usleep((unsigned)c->slow_us);
    ((float *)x)[0] = (float)index;
    ((float *)x)[1] = -(float)index;
    *(int64_t *)y = index;
    return CHOIR_OK;
}

static void counting_free(choir_dataset *self)
{
    ((counting *)self)->freed++;
}

static const choir_dataset_ops counting_ops = {
    .length = counting_length, .get = counting_get, .free = counting_free};

static counting count_to(int64_t length)
{
    return (counting){
        .base = {&counting_ops, CHOIR_F32, CHOIR_I64, choir_dims(2), CHOIR_SCALAR, 0},
        .length = length,
        .fails_at = -1};
}

enum { B = 4, M = 2, EACH = B / M };

static choir_loader_opts options(void)
{
    choir_loader_opts o = choir_loader_defaults();
    o.batch_size = B;
    o.microbatches = M;
    o.seed = 3;
    return o;
}

/* Reads batch and asserts that it is micro-batch `position` of a rank with all of them. */
static void check_batch(choir_batch batch, int64_t length, int64_t position)
{
    choir__sampler s;
    float x[EACH * 2];
    int64_t y[EACH];
    assert_int_equal(choir__sampler_init(&s, length, M, B, 3, true, true), CHOIR_OK);
    assert_int_equal(choir_read(batch.x, x, sizeof x), CHOIR_OK);
    assert_int_equal(choir_read(batch.y, y, sizeof y), CHOIR_OK);
    for (int64_t j = 0; j < EACH; j++) {
        int64_t index = choir__sampler_at(&s, position / M, position % M, j);
        assert_int_equal(y[j], index);
        assert_true(x[2 * j] == (float)index && x[2 * j + 1] == -(float)index);
    }
    choir__sampler_free(&s);
}

static void next_is(choir_loader *loader, choir_scope *run, int64_t length, int64_t position)
{
    choir_batch batch;
    assert_int_equal(choir_loader_position(loader), position);
    choir_scope *step = choir_step_open(run, (uint64_t)position);
    assert_int_equal(choir_loader_next(loader, step, &batch), CHOIR_OK);
    assert_int_equal(choir_tensor_ndim(batch.x), 2);
    assert_int_equal(choir_tensor_size(batch.x, 0), EACH);
    assert_int_equal(choir_tensor_ndim(batch.y), 1);
    assert_int_equal(choir_tensor_dtype(batch.y), CHOIR_I64);
    assert_ptr_equal(choir_tensor_scope(batch.x), step);
    check_batch(batch, length, position);
    assert_int_equal(choir_scope_close(step), CHOIR_OK);
}

static void batches_in_order(void **state)
{
    (void)state;
    counting data = count_to(22); /* 5 batches, 2 samples dropped */
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    assert_int_equal(choir_loader_batches(loader), 5);
    for (int64_t position = 0; position < 35; position++) /* three epochs and a half */
        next_is(loader, run, 22, position);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
    assert_int_equal(data.freed, 0); /* borrowed */
    choir_dataset_free(&data.base);
    assert_int_equal(data.freed, 1);
}

/* Nobody reads for many steps: the copies pile up in the queue, and stages with them. */
static void nobody_waits(void **state)
{
    (void)state;
    enum { STEPS = 40, LENGTH = 100 };
    counting data = count_to(LENGTH);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    choir_tensor *kept[STEPS];
    for (int64_t i = 0; i < STEPS; i++) {
        choir_scope *step = choir_step_open(run, (uint64_t)i);
        choir_batch batch;
        assert_int_equal(choir_loader_next(loader, step, &batch), CHOIR_OK);
        kept[i] = choir_keep(run, batch.x);
        assert_int_equal(choir_scope_close(step), CHOIR_OK);
    }
    choir__sampler s;
    assert_int_equal(choir__sampler_init(&s, LENGTH, M, B, 3, true, true), CHOIR_OK);
    for (int64_t i = 0; i < STEPS; i++) {
        float x[EACH * 2];
        assert_int_equal(choir_read(kept[i], x, sizeof x), CHOIR_OK);
        for (int64_t j = 0; j < EACH; j++)
            assert_true(x[2 * j] == (float)choir__sampler_at(&s, i / M, i % M, j));
    }
    choir__sampler_free(&s);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

static void slow_data(void **state)
{
    (void)state;
    counting data = count_to(24);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    for (int64_t position = 0; position < 15; position++) {
        data.slow_us = position % 3 ? 3000 : 0;
        next_is(loader, run, 24, position);
        if (position % 5 == 0)
            usleep(4000); /* a slow step: the loader gets ahead */
    }
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

static void prefetches_some(void **state)
{
    (void)state;
    counting data = count_to(24);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    assert_int_equal(data.calls, 0); /* nothing before the first next */
    next_is(loader, run, 24, 0);
    for (int i = 0; i < 2000 && data.calls < 65 * EACH; i++)
        usleep(1000);
    usleep(20000);
    assert_int_equal(data.calls, 65 * EACH); /* the one taken, and 64 small ones ahead */
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

static void seeks(void **state)
{
    (void)state;
    counting data = count_to(22);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    choir_loader_seek(loader, 17); /* before its thread has started: how a job is resumed */
    static const int64_t to[] = {3, 0, 27, 27, 26, 1000003, 1};
    int64_t position = 17;
    for (size_t i = 0; i <= sizeof to / sizeof *to; i++) {
        for (int n = 0; n < 3; n++)
            next_is(loader, run, 22, position++);
        data.slow_us = i % 2 ? 500 : 0; /* some of them while a stage is being filled */
        if (i < sizeof to / sizeof *to)
            choir_loader_seek(loader, position = to[i]);
    }
    choir_loader_seek(loader, -1);
    assert_says(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "micro-batch -1");
    choir_scope_clear(run);
    next_is(loader, run, 22, position);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

/* Ranks with parts of the micro-batches together see what one with all of them sees. */
static void ranks_cut_it_the_same(void **state)
{
    (void)state;
    counting data = count_to(26);
    choir_loader_opts o = options();
    o.batch_size = 6;
    o.microbatches = 3;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *whole = choir_loader_new(run, &data.base, o);
    o.micro_count = 2;
    choir_loader *first = choir_loader_new(run, &data.base, o);
    o.micro_first = 2;
    o.micro_count = 1;
    choir_loader *last = choir_loader_new(run, &data.base, o);
    for (int step = 0; step < 9; step++)
        for (int m = 0; m < 3; m++) {
            choir_scope *s = choir_step_open(run, 0);
            choir_batch a, b;
            int64_t ya[2], yb[2];
            assert_int_equal(choir_loader_next(whole, s, &a), CHOIR_OK);
            assert_int_equal(choir_loader_next(m < 2 ? first : last, s, &b), CHOIR_OK);
            assert_int_equal(choir_read(a.y, ya, sizeof ya), CHOIR_OK);
            assert_int_equal(choir_read(b.y, yb, sizeof yb), CHOIR_OK);
            assert_memory_equal(ya, yb, sizeof ya);
            choir_scope_close(s);
        }
    assert_int_equal(choir_loader_position(last), 9);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

/* The last batch filled up: 5 samples by twos. */
static void filled_up(void **state)
{
    (void)state;
    static const int64_t expected[] = {0, 1, 2, 3, 4, 0};
    counting data = count_to(5);
    choir_loader_opts o = choir_loader_defaults();
    o.batch_size = 2;
    o.shuffle = o.drop_last = false;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, o);
    assert_int_equal(choir_loader_batches(loader), 3);
    for (int i = 0; i < 6; i++) {
        choir_scope *s = choir_step_open(run, 0);
        choir_batch b;
        int64_t y[2];
        assert_int_equal(choir_loader_next(loader, s, &b), CHOIR_OK);
        assert_int_equal(choir_read(b.y, y, sizeof y), CHOIR_OK);
        assert_memory_equal(y, expected + i % 3 * 2, sizeof y);
        choir_scope_close(s);
    }
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

/* A bad sample fails the step that wants it, no earlier one; then all can go on. */
static void failing_sample(void **state)
{
    (void)state;
    counting data = count_to(22);
    choir__sampler s;
    assert_int_equal(choir__sampler_init(&s, 22, M, B, 3, true, true), CHOIR_OK);
    data.fails_at = choir__sampler_at(&s, 1, 1, 1); /* in micro-batch 3 */
    choir__sampler_free(&s);
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
            assert_says(status, CHOIR_ERR_FORMAT, "is torn");
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
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

/* A status alone: the loader says which sample it was. */
static void failing_silently(void **state)
{
    (void)state;
    counting data = count_to(22);
    choir_loader_opts o = options();
    o.shuffle = false;
    data.fails_at = 2;
    data.without_message = true;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, o);
    choir_scope *step = choir_step_open(run, 0);
    choir_batch b;
    assert_says(choir_loader_next(loader, step, &b), CHOIR_ERR_IO, "sample 2 of the dataset");
    choir_scope_close(step);
    data.fails_at = -1; /* mended: taking it again tries again, at the latest the second time */
    choir_status status = CHOIR_ERR_IO;
    for (int again = 0; again < 2 && status != CHOIR_OK; again++) {
        step = choir_step_open(run, 0);
        status = choir_loader_next(loader, step, &b);
        choir_scope_close(step);
    }
    assert_int_equal(status, CHOIR_OK);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

static void bad_options(void **state)
{
    (void)state;
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
        {&data.base, 0, 1, 0, 0, CHOIR_ERR_ARGUMENT, "batch size of 0"},
        {&data.base, 4, 3, 0, 0, CHOIR_ERR_ARGUMENT, "a batch of 4 does not divide into 3"},
        {&data.base, 12, 3, 0, 0, CHOIR_ERR_ARGUMENT,
            "10 samples are fewer than a batch of 12"},
        {&data.base, 4, 0, 0, 0, CHOIR_ERR_ARGUMENT, "0 micro-batches"},
        {&data.base, 4, 2, 2, 1, CHOIR_ERR_ARGUMENT, "1 micro-batches from number 2 on"},
        {&data.base, 4, 2, 0, 3, CHOIR_ERR_ARGUMENT, "3 micro-batches from number 0 on"},
        {&data.base, 4, 2, 1, 0, CHOIR_ERR_ARGUMENT, "2 micro-batches from number 1 on"},
        {&data.base, 4, 2, -1, 1, CHOIR_ERR_ARGUMENT, "from number -1 on"},
        {&data.base, 4, 2, 1, -1, CHOIR_ERR_ARGUMENT, "-1 micro-batches"},
        {&data.base, 4, 2, INT64_MAX, INT64_MAX, CHOIR_ERR_ARGUMENT, "the batch has 2"},
        {&nothing.base, 4, 2, 0, 0, CHOIR_ERR_ARGUMENT, "0 samples"},
        {NULL, 4, 2, 0, 0, CHOIR_ERR_ARGUMENT, "needs a dataset"},
        {&strange.base, 4, 2, 0, 0, CHOIR_ERR_DTYPE, "y has no known dtype (99)"},
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
        assert_says(choir_scope_status(run), bad[i].status, bad[i].says);
        choir_scope_clear(run); /* the loader stays what it is */
        choir_batch b;
        choir_scope *step = choir_step_open(run, 0);
        assert_says(choir_loader_next(loader, step, &b), bad[i].status, bad[i].says);
        choir_scope_close(step);
        assert_int_equal(choir_loader_batches(loader), 0);
        choir_loader_seek(loader, 5);
        choir_scope_close(run);
    }
}

/* A failed step takes no batch. */
static void failed_scope(void **state)
{
    (void)state;
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
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

/* --- recorded steps ----------------------------------------------------------------------- */

typedef struct recorded {
    choir_loader *loader;
    choir_tensor *out[M]; /* of the run: each micro-batch's x is copied there */
    int calls;
} recorded;

static choir_status one_step(choir_scope *step, void *arg)
{
    recorded *r = arg;
    r->calls++;
    for (int m = 0; m < M; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_batch b;
        choir_status status = choir_loader_next(r->loader, micro, &b);
        if (status == CHOIR_OK)
            choir__launch_copy(r->out[m], b.x);
        choir_status closed = choir_scope_close(micro);
        if (status != CHOIR_OK || closed != CHOIR_OK)
            return status != CHOIR_OK ? status : closed;
    }
    return CHOIR_OK;
}

static void replayed_steps(void **state)
{
    (void)state;
    enum { STEPS = 14, LENGTH = 22 };
    counting data = count_to(LENGTH);
    choir_scope *run = choir_scope_open(NULL, 1);
    recorded r = {.loader = choir_loader_new(run, &data.base, options())};
    for (int m = 0; m < M; m++)
        r.out[m] = choir_zeros(run, CHOIR_F32, choir_dims(EACH, 2));
    choir__sampler s;
    assert_int_equal(choir__sampler_init(&s, LENGTH, M, B, 3, true, true), CHOIR_OK);
    for (int64_t k = 0; k < STEPS; k++) {
        assert_int_equal(choir_step(run, one_step, &r), CHOIR_OK);
        if (k > 3 && k < 9)
            continue; /* nobody reads: replays queue up behind one another */
        for (int64_t m = 0; m < M; m++) {
            float x[EACH * 2];
            assert_int_equal(choir_read(r.out[m], x, sizeof x), CHOIR_OK);
            for (int64_t j = 0; j < EACH; j++)
                assert_true(x[2 * j] == (float)choir__sampler_at(&s, k, m, j));
        }
    }
    assert_int_equal(r.calls, 3); /* the rest were replays */
    assert_int_equal(choir_loader_position(r.loader), STEPS * M);
    data.fails_at = choir__sampler_at(&s, 8, 0, 0);
    choir_loader_seek(r.loader, 7 * M); /* after that: it starts filling at once */
    assert_int_equal(choir_step(run, one_step, &r), CHOIR_OK);
    assert_says(choir_step(run, one_step, &r), CHOIR_ERR_FORMAT, "is torn");
    assert_int_equal(choir_loader_position(r.loader), 8 * M);
    choir__sampler_free(&s);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

/* --- life --------------------------------------------------------------------------------- */

/* Closed while the thread is busy, while copies wait in the queue, and without having begun. */
static void closed_at_any_time(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        counting data = count_to(22);
        data.slow_us = i % 3 * 100;
        choir_scope *run = choir_scope_open(NULL, 1);
        choir_loader *a = choir_loader_new(run, &data.base, options());
        choir_loader_new(run, &data.base, options());
        for (int n = 0; n < i % 5; n++) {
            choir_scope *step = choir_step_open(run, 0);
            choir_batch b;
            assert_int_equal(choir_loader_next(a, step, &b), CHOIR_OK);
            assert_int_equal(choir_scope_close(step), CHOIR_OK);
        }
        assert_int_equal(choir_scope_close(run), CHOIR_OK);
    }
}

/* Both sides of a fork go on where they were. */
static void forks(void **state)
{
    (void)state;
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
            alarm(20);
            choir_batch b;
            int64_t y[EACH];
            choir__sampler s;
            bool good = choir__sampler_init(&s, 22, M, B, 3, true, true) == CHOIR_OK;
            for (int64_t p = 5 + round; good && p < 30; p++) {
                choir_scope *step = choir_step_open(run, 0);
                good = choir_loader_next(loader, step, &b) == CHOIR_OK &&
                       choir_read(b.y, y, sizeof y) == CHOIR_OK &&
                       y[1] == choir__sampler_at(&s, p / M, p % M, 1);
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
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

static choir_status forking_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    pid_t child = fork(); /* as for a decoder */
    if (child == 0)
        _exit(0);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return choir__error(CHOIR_ERR_IO, "no fork");
    return counting_get(self, index, x, y);
}

static void forks_within_get(void **state)
{
    (void)state;
    static const choir_dataset_ops ops = {.length = counting_length, .get = forking_get};
    counting data = count_to(22);
    data.base.ops = &ops;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    for (int64_t position = 0; position < 6; position++)
        next_is(loader, run, 22, position);
    assert_int_equal(choir_scope_close(run), CHOIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_in_order),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(slow_data),
        cmocka_unit_test(prefetches_some),
        cmocka_unit_test(seeks),
        cmocka_unit_test(ranks_cut_it_the_same),
        cmocka_unit_test(filled_up),
        cmocka_unit_test(failing_sample),
        cmocka_unit_test(failing_silently),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(failed_scope),
        cmocka_unit_test(replayed_steps),
        cmocka_unit_test(closed_at_any_time),
        cmocka_unit_test(forks),
        cmocka_unit_test(forks_within_get),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
