/* A step as a function: called twice, recorded, then replayed without calling it. */
#include <stdio.h>
#include <time.h>
#include <choir/choir.h>

typedef struct job {
    choir_module *net;
    choir_optim *opt;
    choir_tensor *x, *y, *loss; /* of the run; each replay overwrites loss */
} job;

static choir_status train_step(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_tensor *out = choir_forward(j->net, choir_in(step, j->x)); /* a result of the step */
    choir_tensor *loss = choir_mse_loss(out, j->y);
    j->loss = choir_keep(choir_tensor_scope(j->x), loss);
    choir_status status = choir_backward(loss);
    return status == CHOIR_OK ? choir_optim_step(j->opt) : status;
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    job j = {.x = choir_randn(run, choir_dims(64, 8), "x")};
    j.y = choir_randn(run, choir_dims(64, 4), "y");
    j.net = choir_nn_sequential(run, choir_nn_linear(run, 8, 32), choir_nn_linear(run, 32, 4));
    j.opt = choir_adamw(run, j.net, choir_adamw_defaults());
    for (int round = 0, steps = 3; round < 3; round++, steps = 1000) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < steps; i++)
            choir_check(choir_step(run, train_step, &j));
        double loss = choir_item(j.loss); /* waits for the last step */
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = 1e9 * (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec);
        printf("%4d steps  %6.1f us each  loss %.4f\n", steps, ns / steps / 1000, loss);
    }
    choir_check(choir_scope_close(run));
}
