/* The promise: at M micro-batches a step, 1, 2 and 3 processes compute the same bits. */
#include <stdio.h>
#include <choir/choir.h>

enum { M = 6, STEPS = 50 };

static int train(int rank, int world, void *dataset)
{
    choir_env env;
    int64_t first, count; /* this rank's share of the six: a contiguous run of them */
    choir_check(choir_env_init(&env));
    env.microbatches = M;
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 42);
    choir_loader *data = choir_env_loader(run, &env, dataset, 8 * M);
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 10, 32),
        choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 32, 1));
    net = choir_ddp(run, net, env.group, (choir_ddp_opts){25, 1, M});
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    float loss[M] = {0}; /* a micro-batch; the other ranks add theirs */
    for (uint64_t step = 0; step < STEPS; step++) {
        choir_scope *s = choir_step_open(run, step);
        for (int64_t m = first; m < first + count; m++) {
            choir_scope *micro = choir_micro_open(s, m);
            choir_batch b; /* x (8, 10), y (8, 1) */
            choir_check(choir_loader_next(data, micro, &b));
            choir_tensor *mse = choir_mse_loss(choir_forward(net, b.x), b.y);
            choir_check(choir_backward(mse));
            loss[m] = (float)choir_item(mse);
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_group_all_reduce(env.group, loss, M, CHOIR_F32, CHOIR_SUM));
    if (rank == 0)
        printf("%d ranks: %a %a ... %a\n", world, loss[0], loss[1], loss[M - 1]);
    return 0;
}

int main(void)
{
    choir_dataset *data;
    choir_check(choir_dataset_random(480, choir_dims(10), choir_dims(1), 0, 7, &data));
    choir_check(choir_spawn(1, train, data));
    choir_check(choir_spawn(2, train, data));
    choir_check(choir_spawn(3, train, data));
}
