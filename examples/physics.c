/* A network learns u with u'' = -u, u(0) = 0 and u'(0) = 1, which is the sine: its loss has
 * second derivatives of its output. The bits are the same on any number of ranks:  ./physics
 * [RANKS] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>
static int train(int rank, int world, void *unused)
{
    choir_env env;
    choir_check(choir_env_init(&env)), env.microbatches = 4;
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 1, 32), choir_nn_tanh(run), choir_nn_linear(run, 32, 1));
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_adamw_opts opts = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};
    choir_optim *opt = choir_adam(run, net, opts);
    for (int i = 1; i <= 400; i++) {
        choir_scope *step = choir_step_open(run, (uint64_t)i);
        for (int64_t m = rank * 4 / world; m < (rank + 1) * 4 / world; m++) {
            choir_scope *s = choir_micro_open(step, m);
            choir_tensor *t = choir_require_grad(choir_rand(s, choir_dims(8, 1), "t", 0, 3));
            choir_tensor *u = choir_mul(choir_square(t), choir_forward(net, t)), *du, *bend;
            u = choir_add(t, u); /* t + t^2 net(t) begins as it should */
            choir_check(choir_derivatives(u, &t, 1, &du)); /* du has a history, too */
            choir_check(choir_derivatives(du, &t, 1, &bend));
            choir_tensor *loss = choir_mean(choir_square(choir_add(bend, u)));
            if (m == 0 && i % 200 == 0)
                printf("after %d steps: u'' + u is off by %.9f\n", i, choir_item(loss));
            choir_check(choir_backward(loss));
            choir_check(choir_scope_close(s));
        }
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(step));
    }
    return unused || choir_scope_close(run) != CHOIR_OK;
}
int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, NULL));
}
