/* The promise: at six micro-batches a step, 1, 2 and 3 processes compute the same bits. */
#include <stdio.h>
#include <choir/choir.h>

enum { M = 6, STEPS = 20 };

static int train(int rank, int world, void *arg)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    env.microbatches = M;
    int64_t first, count; /* this rank's share of the six: a contiguous run */
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 42);
    choir_loader *data = choir_env_loader(run, &env, arg, 8 * M);
    choir_ddp_opts opts = choir_ddp_defaults();
    opts.microbatches = M;
    choir_module *toy = choir_nn_sequential(run, choir_nn_linear(run, 10, 10), choir_nn_relu(run),
        choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 10, 5));
    choir_module *net = choir_ddp(run, toy, env.group, opts);
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    float losses[M];
    for (uint64_t step = 0; step < STEPS; step++) {
        choir_scope *s = choir_step_open(run, step);
        for (int64_t m = first; m < first + count; m++) {
            choir_scope *micro = choir_micro_open(s, m);
            choir_batch b;
            choir_check(choir_loader_next(data, micro, &b));
            choir_tensor *loss = choir_mse_loss(choir_forward(net, b.x), b.y);
            choir_check(choir_backward(loss));
            losses[m] = (float)choir_item(loss);
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
}
