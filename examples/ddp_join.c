/* Ranks with unequal data: no_sync adds up two backwards, join handles the remaining steps. */
#include <stdio.h>
#include <choir/choir.h>

static void backward(choir_module *net, choir_scope *s)
{
    choir_tensor *y = choir_forward(net, choir_randn(s, choir_dims(8, 4), "x"));
    choir_check(choir_backward(choir_mean(choir_mul(y, y))));
}

static int train(int rank, int world, void *arg)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *s, *run = choir_run_open(&env, (uint64_t)world);
    choir_module *net = choir_nn_linear(run, 4, 1);
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int step = 0; step < 5; step++, choir_check(choir_scope_close(s))) {
        s = choir_step_open(run, (uint64_t)step);
        choir_check(choir_ddp_no_sync(net, true));
        backward(net, s);
        choir_check(choir_ddp_no_sync(net, false));
        backward(net, s); /* the step's last: reduces all four */
        choir_check(choir_optim_step(opt));
    }
    choir_check(choir_ddp_join_begin(net, (choir_ddp_join_opts){.optim = opt}));
    for (int step = 5; step < 7 + 3 * rank; step++, choir_check(choir_scope_close(s))) {
        backward(net, s = choir_step_open(run, (uint64_t)step));
        choir_check(choir_optim_step(opt)); /* rank 1 takes three more steps */
    }
    choir_check(choir_ddp_join_end(net)); /* rank 0 takes part in those until here */
    printf("%d: %.6f\n", rank, choir_item(choir_module_find(net, "bias")));
    return choir_scope_close(run) || arg;
}

int main(void)
{
    return choir_spawn(2, train, NULL) != CHOIR_OK;
}
