/* The loader delivers the right samples in the right order, whatever the timing, for one rank
 * or many, and in recorded steps too. loader_faults.c has its errors. */
#include "loader_fixture.h"
#include "data/dataset.h"
#include "tensor/launch.h"

static void batches_in_order(void **state)
{
    counting data = count_to(22); /* 5 batches, 2 samples dropped */
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    assert_int_equal(choir_loader_batches(loader), 5);
    for (int64_t position = 0; position < 35; position++) /* three epochs and a half */
        next_is(loader, run, 22, position);
    ok(choir_scope_close(run));
    assert_int_equal(data.freed, 0); /* borrowed */
    choir_dataset_free(&data.base);
    assert_int_equal(data.freed, 1);
}

/* No batch is read for many steps: the copies pile up in the queue, and their staging buffers
 * with them. */
static void nobody_waits(void **state)
{
    enum { STEPS = 40, LENGTH = 100 };
    counting data = count_to(LENGTH);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    choir_tensor *kept[STEPS];
    for (int64_t i = 0; i < STEPS; i++) {
        choir_scope *step = choir_step_open(run, (uint64_t)i);
        choir_batch batch;
        ok(choir_loader_next(loader, step, &batch));
        kept[i] = choir_keep(run, batch.x);
        ok(choir_scope_close(step));
    }
    choir__sample_order s;
    ok(choir__sample_order_init(&s, LENGTH, M, B, 3, true, true));
    for (int64_t i = 0; i < STEPS; i++) {
        float x[EACH * 2];
        ok(choir_read(kept[i], x, sizeof x));
        for (int64_t j = 0; j < EACH; j++)
            assert_true(x[2 * j] == (float)choir__sample_order_at(&s, i / M, i % M, j));
    }
    choir__sample_order_free(&s);
    ok(choir_scope_close(run));
}

static void slow_data(void **state)
{
    counting data = count_to(24);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    for (int64_t position = 0; position < 15; position++) {
        data.slow_us = position % 3 ? 3000 : 0;
        next_is(loader, run, 24, position);
        if (position % 5 == 0)
            usleep(4000); /* a slow step: the loader gets ahead */
    }
    ok(choir_scope_close(run));
}

static void prefetches_some(void **state)
{
    counting data = count_to(24);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader *loader = choir_loader_new(run, &data.base, options());
    assert_int_equal(data.calls, 0); /* nothing before the first next */
    next_is(loader, run, 24, 0);
    for (int i = 0; i < 30000 && data.calls < 64 * EACH; i++)
        usleep(1000);
    usleep(20000);
    /* 64 stages of so small a size; the one taken is filled again only with half of the others,
     * unless it was taken before all were full. */
    assert_in_range(data.calls, 64 * EACH, 65 * EACH);
    ok(choir_scope_close(run));
}

static void seeks(void **state)
{
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
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "micro-batch -1");
    choir_scope_clear(run);
    next_is(loader, run, 22, position);
    ok(choir_scope_close(run));
}

/* The next micro-batch is the one of this number among all of the data. */
static void next_has(choir_loader *loader, choir_scope *run, int64_t length, int64_t number)
{
    choir_batch batch;
    choir_scope *step = choir_step_open(run, 0);
    ok(choir_loader_next(loader, step, &batch));
    check_batch(batch, length, number);
    ok(choir_scope_close(step));
}

/* Batches that are left out change which batch a position has, and neither positions nor
 * epochs; another list may come between steps. */
static void skips_batches(void **state)
{
    static const int64_t left[] = {0, 3, 4, 5, 7, 8, 9, 10};
    counting data = count_to(22);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_loader_opts o = options();
    o.skip_batches = "2:4,7";
    choir_loader *loader = choir_loader_new(run, &data.base, o);
    for (int64_t at = 0; at < (int64_t)(sizeof left / sizeof *left) * M; at++)
        next_has(loader, run, 22, left[at / M] * M + at % M);
    choir_loader_seek_step(loader, 1);
    next_has(loader, run, 22, 3 * M);
    choir_loader_seek_step(loader, 1);
    ok(choir__loader_skip(loader, "4"));
    for (int64_t at = M; at < 4 * M; at++)
        next_has(loader, run, 22, at + (at >= 3 * M ? M : 0));
    assert_fails(choir__loader_skip(loader, "5:4"), CHOIR_ERR_ARGUMENT, "got '5:4'");
    assert_int_equal(choir_loader_position(loader), 4 * M);
    o.skip_batches = "x";
    choir_loader_new(run, &data.base, o);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "got 'x'");
    choir_scope_clear(run);
    ok(choir_scope_close(run));
}

/* Ranks that have parts of the micro-batches together see the samples that one rank with all of
 * them sees. */
static void ranks_cut_it_the_same(void **state)
{
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
            ok(choir_loader_next(whole, s, &a));
            ok(choir_loader_next(m < 2 ? first : last, s, &b));
            ok(choir_read(a.y, ya, sizeof ya));
            ok(choir_read(b.y, yb, sizeof yb));
            assert_memory_equal(ya, yb, sizeof ya);
            choir_scope_close(s);
        }
    assert_int_equal(choir_loader_position(last), 9);
    ok(choir_scope_close(run));
}

/* The last batch is filled up: 5 samples in batches of two. */
static void filled_up(void **state)
{
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
        ok(choir_loader_next(loader, s, &b));
        ok(choir_read(b.y, y, sizeof y));
        assert_memory_equal(y, expected + i % 3 * 2, sizeof y);
        choir_scope_close(s);
    }
    ok(choir_scope_close(run));
}

/* --- recorded steps --- */

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
    enum { STEPS = 14, LENGTH = 22 };
    counting data = count_to(LENGTH);
    choir_scope *run = choir_scope_open(NULL, 1);
    recorded r = {.loader = choir_loader_new(run, &data.base, options())};
    for (int m = 0; m < M; m++)
        r.out[m] = choir_zeros(run, CHOIR_F32, choir_dims(EACH, 2));
    choir__sample_order s;
    ok(choir__sample_order_init(&s, LENGTH, M, B, 3, true, true));
    for (int64_t k = 0; k < STEPS; k++) {
        ok(choir_step(run, one_step, &r));
        if (k > 3 && k < 9)
            continue; /* nothing is read yet: replays queue up one after another */
        for (int64_t m = 0; m < M; m++) {
            float x[EACH * 2];
            ok(choir_read(r.out[m], x, sizeof x));
            for (int64_t j = 0; j < EACH; j++)
                assert_true(x[2 * j] == (float)choir__sample_order_at(&s, k, m, j));
        }
    }
    assert_int_equal(r.calls, 3); /* the rest were replays */
    assert_int_equal(choir_loader_position(r.loader), STEPS * M);
    data.fails_at = choir__sample_order_at(&s, 8, 0, 0);
    choir_loader_seek(r.loader, 7 * M); /* last: the loader starts filling at once */
    ok(choir_step(run, one_step, &r));
    assert_fails(choir_step(run, one_step, &r), CHOIR_ERR_FORMAT, "is torn");
    assert_int_equal(choir_loader_position(r.loader), 8 * M);
    choir__sample_order_free(&s);
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_in_order),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(slow_data),
        cmocka_unit_test(prefetches_some),
        cmocka_unit_test(seeks),
        cmocka_unit_test(skips_batches),
        cmocka_unit_test(ranks_cut_it_the_same),
        cmocka_unit_test(filled_up),
        cmocka_unit_test(replayed_steps),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
