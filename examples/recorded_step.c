/* A step as a function: called twice, recorded once, then its kernels run without calling it. */
#include <stdio.h>
#include <time.h>
#include <choir/choir.h>

typedef struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *opt;
    choir_tensor *x, *y, *loss; /* of the run: they stay, and every replay writes loss anew */
    int calls;
} job;

static choir_status train_step(choir_scope *step, void *arg)
{
    job *j = arg;
    j->calls++;
    choir_tensor *loss = choir_mse_loss(choir_forward(j->net, choir_in(step, j->x)), j->y);
    j->loss = choir_keep(j->run, loss);
    choir_status status = choir_backward(loss);
    return status == CHOIR_OK ? choir_optim_step(j->opt) : status;
}

static void run_steps(job *j, int steps, const char *what)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < steps; i++)
        choir_check(choir_step(j->run, train_step, j));
    double loss = choir_item(j->loss); /* waits */
    clock_gettime(CLOCK_MONOTONIC, &to);
    double us = 1e6 * (double)(to.tv_sec - from.tv_sec) + 1e-3 * (double)(to.tv_nsec - from.tv_nsec);
    printf("%-11s %4d steps  %6.1f us each  loss %.4f  calls so far %d\n", what, steps, us / steps, loss, j->calls);
}

int main(void)
{
    job j = {.run = choir_scope_open(NULL, 42)};
    j.x = choir_randn(j.run, choir_dims(16, 8), "x"), j.y = choir_randn(j.run, choir_dims(16, 4), "y");
    j.net = choir_nn_sequential(j.run, choir_nn_linear(j.run, 8, 32), choir_nn_relu(j.run),
        choir_nn_linear(j.run, 32, 4));
    j.opt = choir_adamw(j.run, j.net, choir_adamw_defaults());
    run_steps(&j, 3, "called");
    run_steps(&j, 1000, "replayed");
    return choir_scope_close(j.run);
}
