/* The promise: at six micro-batches per step, 1, 2 and 3 processes compute the same bits. */
#include <stdio.h>
#include <choir/choir.h>

static int train(int rank, int world, void *name)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    env.microbatches = 6; /* of all ranks together */
    int64_t first, count; /* this rank's contiguous range of them */
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 10, 32),
        choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 32, 10));
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int step = 0; step <= 50; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        for (int64_t m = first; m < first + count; m++) {
            choir_scope *micro = choir_micro_open(s, m); /* random numbers depend on m */
            choir_tensor *x = choir_randn(micro, choir_dims(8, 10), name);
            choir_tensor *loss = choir_mse_loss(choir_forward(net, x), x);
            choir_check(choir_backward(loss));
            if (rank == 0 && m == 0 && step % 25 == 0)
                printf("%d ranks, step %2d, loss %a\n", world, step, choir_item(loss));
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt)); /* uses the mean over the six */
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

int main(void)
{
    for (int world = 1; world <= 3; world++)
        choir_check(choir_spawn(world, train, "x"));
}
