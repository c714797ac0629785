/* Weights, gradients and optimizer state are sharded over the ranks:  ./fsdp RANKS */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static int train(int rank, int world, void *arg)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    env.microbatches = 4; /* of all ranks together: the bits do not depend on their number */
    int64_t first, count;
    choir_env_micro(&env, &first, &count);
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *net = choir_model(run, arg, NULL);
    net = choir_fsdp(run, net, env.group, choir_fsdp_defaults());
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int step = 0; step <= 20; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        for (int64_t m = first; m < first + count; m++) {
            choir_scope *micro = choir_micro_open(s, m);
            choir_tensor *x = choir_randn(micro, choir_dims(8, 64), "x");
            choir_tensor *loss = choir_mse_loss(choir_forward(net, x), x);
            if (m == 0 && step % 10 == 0)
                printf("step %2d, loss %a\n", step, choir_item(loss));
            choir_check(choir_backward(loss));
            choir_check(choir_scope_close(micro));
        }
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
    choir_device_stats stats;
    choir_device_get_stats(env.device, &stats);
    printf(rank ? "" : "%d ranks, at most %zu KiB each\n", world, stats.bytes_peak >> 10);
    return choir_scope_close(run) != CHOIR_OK; /* the process's end frees env */
}

int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, "mlp:in=64,classes=64"));
}
