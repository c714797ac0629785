/* A small network that a step trains on one batch, which lives as long as the run. */
#ifndef CHOIR_TESTS_SMALL_STEP_H
#define CHOIR_TESTS_SMALL_STEP_H

#include <choir/choir.h>

#include "check.h"
#include "base/base.h"

enum { STEPS = 12, BATCH = 6, WIDTH = 5, HIDDEN = 8 };

struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *opt;
    choir_tensor *x, *y; /* of the run */
    choir_tensor *loss;  /* loss of the latest step */
    choir_status fail;   /* the error that the step is asked to make */
    int calls;
};

static inline void open_job(struct job *j)
{
    float x[BATCH * WIDTH];
    int64_t y[BATCH];
    for (int i = 0; i < BATCH * WIDTH; i++)
        x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < BATCH; i++)
        y[i] = i % 3;
    choir_scope *run = choir_scope_open(NULL, 11);
    *j = (struct job){.run = run,
        .net = choir_nn_sequential(run, choir_nn_linear(run, WIDTH, HIDDEN), choir_nn_gelu(run),
            choir_nn_dropout(run, 0.3f), choir_nn_linear(run, HIDDEN, 3)),
        .x = choir_from(run, CHOIR_F32, choir_dims(BATCH, WIDTH), x),
        .y = choir_from(run, CHOIR_I64, choir_dims(BATCH), y)};
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 0.05f;
    j->opt = choir_adamw(run, j->net, hp);
    choir_optim_clip(j->opt, 0.5f);
    choir_optim_schedule(j->opt, choir_schedule_cosine(3, STEPS, 0.001f));
}

static inline choir_status train(choir_scope *step, void *arg)
{
    struct job *j = arg;
    j->calls++;
    if (j->fail != CHOIR_OK)
        return choir__error(j->fail, "asked to fail");
    choir_tensor *loss = choir_cross_entropy(choir_forward(j->net, choir_in(step, j->x)), j->y);
    j->loss = choir_keep(j->run, loss);
    choir_status status = choir_backward(loss);
    return status != CHOIR_OK ? status : choir_optim_step(j->opt);
}

static inline choir_status other(choir_scope *step, void *arg)
{
    struct job *j = arg;
    j->loss = choir_keep(j->run, choir_sum(choir_forward(j->net, choir_in(step, j->x))));
    return choir_scope_status(step);
}

static inline choir_status eager(struct job *j, uint64_t number)
{
    choir_scope *s = choir_step_open(j->run, number);
    choir_status status = train(s, j), closed = choir_scope_close(s);
    return status == CHOIR_OK ? closed : status;
}

static inline void weights_of(struct job *j, float w[HIDDEN * WIDTH])
{
    choir_tensor *t = choir_module_find(j->net, "0.weight");
    ok(choir_read(t, w, HIDDEN * WIDTH * sizeof(float)));
}

#endif
