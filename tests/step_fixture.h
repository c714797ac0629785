/* A training whose step is: the loader's next batch, cross entropy, backward, the optimizer. */
#ifndef CHOIR_TESTS_STEP_FIXTURE_H
#define CHOIR_TESTS_STEP_FIXTURE_H

#include <choir/choir.h>

typedef struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_loader *data;
    choir_tensor *loss; /* of the latest step, in memory that stays */
} job;

static inline choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_batch b;
    choir_status status = choir_loader_next(j->data, step, &b);
    if (status != CHOIR_OK)
        return status;
    choir_tensor *loss = choir_cross_entropy(choir_forward(j->net, b.x), b.y);
    status = choir_backward(loss);
    j->loss = choir_keep(j->run, loss);
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

#endif
