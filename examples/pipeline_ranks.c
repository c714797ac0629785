/* An autoencoder, one stage per rank, with the bits of one: ./pipeline_ranks [1 or 2] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    (void)arg;
    choir_tensor *x = choir_randn(micro, choir_dims(8, 64), "noise");
    return choir_mean(choir_square(choir_sub(choir_forward(net, x), x)));
}

static int train(int rank, int world, void *arg)
{
    (void)arg;
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_scope_open(env.device, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 64, 256), choir_nn_relu(run), choir_nn_linear(run, 256, 64));
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.group = env.group;
    choir_module *pipe = choir_pipeline(run, net, opts);
    choir_optim *opt = choir_adamw(run, pipe, choir_adamw_defaults());
    choir_tensor *losses[4]; /* every rank receives them */
    for (uint64_t number = 0; number < 20; number++) {
        choir_scope *step = choir_step_open(run, number);
        choir_check(choir_pipeline_step(pipe, step, 4, micro_batch, NULL, losses));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(step));
    }
    if (rank == world - 1)
        printf("after 20 steps, micro-batch 3: loss %a\n", choir_item(losses[3]));
    return choir_scope_close(run) != CHOIR_OK;
}

int main(int argc, char **argv)
{
    choir_check(choir_spawn(argc > 1 ? atoi(argv[1]) : 2, train, NULL));
}
