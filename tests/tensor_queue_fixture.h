/* Tests of tensor queues, on processors and on GPUs: open_run() chooses the device. */
#ifndef CHOIR_TENSOR_QUEUE_FIXTURE_H
#define CHOIR_TENSOR_QUEUE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "multi/ranks.h"
#include "tensor/launch.h"

enum { PATIENCE = 60 }; /* seconds */

/* A test opens those that it needs. */
typedef struct queues {
    choir_tensor_queue *to, *back, *on;
    _Atomic int64_t *got; /* sums over items, shared */
} queues;

static choir_scope *open_run(void);

static inline choir_status put(choir_tensor_queue *q, choir_tensor *t)
{
    return choir_tensor_queue_put(q, &t, 1, PATIENCE);
}

static inline choir_tensor *get(choir_tensor_queue *q, choir_scope *scope)
{
    choir_tensor *t = NULL;
    choir_check(choir_tensor_queue_get(q, scope, &t, 1, PATIENCE));
    return t;
}

static inline bool all_are(choir_tensor *t, float value)
{
    bool same = true;
    int64_t count = choir_tensor_count(t);
    float *x = malloc((size_t)count * sizeof *x);
    if (choir_read(t, x, (size_t)count * sizeof *x) != CHOIR_OK)
        same = false;
    for (int64_t i = 0; i < count && same; i++)
        same = x[i] == value;
    free(x);
    return same;
}

static inline bool fill(choir_tensor *t, float value)
{
    choir__launch_fill(t, (double)value);
    return choir_device_sync(choir_tensor_device(t)) == CHOIR_OK;
}

/* Ranks 0 and 1: tensors of private memory arrive unchanged, in whatever layout they are. */
static inline int copies(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run(), *s = choir_step_open(run, 0);
    choir_tensor *t[4];
    float a[6] = {1, 2, 3, 4, 5, 6}, got[6];
    int64_t ids[3] = {7, 8, 9}, got_ids[3];
    (void)world;
    if (rank == 0) {
        choir_tensor *x = choir_from(s, CHOIR_F32, choir_dims(2, 3), a);
        t[0] = choir_transpose(x, 0, 1); /* dense in another order */
        t[1] = choir_narrow(x, 1, 1, 2); /* with gaps */
        t[2] = choir_from(s, CHOIR_I64, choir_dims(3), ids);
        t[3] = choir_zeros(s, CHOIR_F32, choir_dims(0, 2));
        CHECK_OK(choir_tensor_queue_put(q->to, t, 4, PATIENCE));
        get(q->back, s);
        CHECK_OK(choir_read(x, got, sizeof got));
        CHECK(!memcmp(got, a, sizeof a)); /* the other rank wrote to its own copy */
    } else {
        CHECK_OK(choir_tensor_queue_get(q->to, s, t, 4, PATIENCE));
        CHECK(choir_tensor_size(t[0], 0) == 3 && choir_tensor_size(t[1], 1) == 2);
        CHECK_OK(choir_read(t[0], got, sizeof got));
        CHECK(!memcmp(got, (float[]){1, 4, 2, 5, 3, 6}, sizeof got));
        CHECK_OK(choir_read(t[1], got, 4 * sizeof(float)));
        CHECK(!memcmp(got, (float[]){2, 3, 5, 6}, 4 * sizeof(float)));
        CHECK_OK(choir_read(t[2], got_ids, sizeof got_ids));
        CHECK(!memcmp(got_ids, ids, sizeof ids));
        CHECK(choir_tensor_count(t[3]) == 0);
        /* A received tensor can be used like any other: as an input, as a target, and by
         * backward. */
        choir_module *net = choir_nn_linear(run, 2, 2);
        choir_tensor *loss = choir_mse_loss(choir_forward(net, t[1]), t[1]);
        CHECK_OK(choir_backward(loss));
        CHECK(choir_grad(choir_module_find(net, "weight")));
        CHECK(fill(t[0], 0));
        CHECK_OK(put(q->back, t[2]));
    }
    CHECK_OK(choir_scope_close(s));
    CHECK_OK(choir_scope_close(run));
    return 0;
}

#endif
