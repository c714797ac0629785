/* A module of one's own marks a sum that ranks may share:  ./own_cut [RANKS] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>
typedef struct block {
    choir_module base, *up, *down;
} block;
static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *b = (block *)self; /* (B, 32) -> (B, 32) */
    return choir_forward(b->down, choir_gelu(choir_forward(b->up, in[count - 1])));
}
static const choir_module_class block_class = {"block", sizeof(block), block_forward, 1};
static int train(int rank, int world, void *unused)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 42);
    block *b = choir_module_new(run, &block_class);
    choir_module_child(&b->base, "up", &b->up, choir_nn_linear(run, 32, 128));
    choir_module_child(&b->base, "down", &b->down, choir_nn_linear(run, 128, 32));
    choir_module_contraction(&b->base, b->up, 1, b->down); /* down adds over up's outputs */
    choir_tensor_parallel(run, &b->base, env.group, (choir_tensor_parallel_opts){.slices = 4});
    choir_optim *opt = choir_adamw(run, &b->base, choir_adamw_defaults());
    for (int step = 1; step <= 40; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = choir_randn(s, choir_dims(16, 32), "x");
        choir_tensor *loss = choir_mse_loss(choir_forward(&b->base, x), choir_relu(x));
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        if (rank == 0 && step == 40)
            printf("after 40 steps: loss %.9f\n", choir_item(loss));
        choir_check(choir_scope_close(s));
    }
    return unused || world < 1 || choir_scope_close(run) != CHOIR_OK;
}
int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, NULL));
}
