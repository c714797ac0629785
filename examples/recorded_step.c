/* A step as a function: after two calls and a recording, the same kernels run without calling it. */
#include <stdio.h>
#include <time.h>
#include <choir/choir.h>

typedef struct job {
    choir_module *net;
    choir_optim *opt;
    choir_loader *data;
    choir_tensor *loss; /* kept in the run, written anew by every replay */
    choir_scope *run;
    int calls;
} job;

static choir_status train_step(choir_scope *s, void *arg)
{
    job *j = arg;
    choir_batch b;
    choir_status status = choir_loader_next(j->data, s, &b); /* a replay gets the next one */
    if (status != CHOIR_OK)
        return status;
    choir_tensor *loss = choir_mse_loss(choir_forward(j->net, b.x), b.y);
    j->loss = choir_keep(j->run, loss);
    j->calls++;
    status = choir_backward(loss);
    return status == CHOIR_OK ? choir_optim_step(j->opt) : status;
}
