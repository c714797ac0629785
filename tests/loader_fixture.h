/* A dataset whose samples are their own indices, and a check of the loader's batches against
 * the sampler's order. */
#ifndef CHOIR_TEST_LOADER_FIXTURE_H
#define CHOIR_TEST_LOADER_FIXTURE_H

#include "check.h"
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <choir/data.h>
#include <choir/ops.h>
#include "base/base.h"
#include "data/loading/sampler.h"
#include "tensor/scope.h"

/* A user's dataset: x (2) f32 = index, -index; y () i64 = index. */
typedef struct counting {
    choir_dataset base;
    int64_t length;
    atomic_int slow_us;          /* get takes this long */
    _Atomic int64_t fails_at;    /* -1: nowhere */
    atomic_bool without_message; /* when it fails */
    atomic_int calls, freed;
} counting;

static inline int64_t counting_length(const choir_dataset *self)
{
    return ((const counting *)self)->length;
}

static inline choir_status counting_get(choir_dataset *self, int64_t index, void *x, void *y)
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

static inline void counting_free(choir_dataset *self)
{
    ((counting *)self)->freed++;
}

static const choir_dataset_ops counting_ops = {
    .length = counting_length, .get = counting_get, .free = counting_free};

static inline counting count_to(int64_t length)
{
    return (counting){
        .base = {&counting_ops, CHOIR_F32, CHOIR_I64, choir_dims(2), CHOIR_SCALAR, 0},
        .length = length,
        .fails_at = -1};
}

enum { B = 4, M = 2, EACH = B / M };

static inline choir_loader_opts options(void)
{
    choir_loader_opts o = choir_loader_defaults();
    o.batch_size = B;
    o.microbatches = M;
    o.seed = 3;
    return o;
}

/* Reads batch and asserts that it is micro-batch `position` of a rank that has all
 * micro-batches. */
static inline void check_batch(choir_batch batch, int64_t length, int64_t position)
{
    choir__sample_order s;
    float x[EACH * 2];
    int64_t y[EACH];
    ok(choir__sample_order_init(&s, length, M, B, 3, true, true));
    ok(choir_read(batch.x, x, sizeof x));
    ok(choir_read(batch.y, y, sizeof y));
    for (int64_t j = 0; j < EACH; j++) {
        int64_t index = choir__sample_order_at(&s, position / M, position % M, j);
        assert_int_equal(y[j], index);
        assert_true(x[2 * j] == (float)index && x[2 * j + 1] == -(float)index);
    }
    choir__sample_order_free(&s);
}

static inline void next_is(
    choir_loader *loader, choir_scope *run, int64_t length, int64_t position)
{
    choir_batch batch;
    assert_int_equal(choir_loader_position(loader), position);
    choir_scope *step = choir_step_open(run, (uint64_t)position);
    ok(choir_loader_next(loader, step, &batch));
    assert_int_equal(choir_tensor_ndim(batch.x), 2);
    assert_int_equal(choir_tensor_size(batch.x, 0), EACH);
    assert_int_equal(choir_tensor_ndim(batch.y), 1);
    assert_int_equal(choir_tensor_dtype(batch.y), CHOIR_I64);
    assert_ptr_equal(choir_tensor_scope(batch.x), step);
    check_batch(batch, length, position);
    ok(choir_scope_close(step));
}

#endif
