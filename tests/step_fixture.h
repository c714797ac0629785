/* A training whose step is: the loader's next batch, cross entropy, backward, the optimizer.
 * And what both tests of Hogwild look at: the loss, and words that are not torn. */
#ifndef CHOIR_TESTS_STEP_FIXTURE_H
#define CHOIR_TESTS_STEP_FIXTURE_H

#include <stdlib.h>

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

/* Returns the loss of the first samples, (12) with a class each, in evaluation mode. */
static inline double loss_of_all(choir_module *net, choir_dataset *data, int64_t samples)
{
    enum { WIDE = 12 };
    float *x = malloc((size_t)samples * WIDE * sizeof *x);
    int64_t *y = malloc((size_t)samples * sizeof *y);
    for (int64_t i = 0; i < samples; i++)
        choir_check(choir_dataset_get(data, i, x + i * WIDE, y + i));
    choir_module_train(net, false);
    choir_scope *s = choir_no_grad(net->run);
    choir_tensor *in = choir_from(s, CHOIR_F32, choir_dims(samples, WIDE), x);
    double loss = choir_item(choir_cross_entropy(
        choir_forward(net, in), choir_from(s, CHOIR_I64, choir_dims(samples), y)));
    choir_check(choir_scope_close(s));
    choir_module_train(net, true);
    free(x);
    free(y);
    return loss;
}

/* Returns whether every word is a multiple of 65537, whose halves are both 1: half of one and
 * half of another would not be. */
static inline bool are_whole(const float *words, int count)
{
    bool good = true;
    for (int i = 0; i < count; i++) {
        double times = (double)words[i] / 65537;
        good &= times == (double)(int)times && times >= -250 && times <= 250;
    }
    return good;
}

#endif
